"""Every kind of broken Claude Code file: mended by the command, resumed by the real client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.claude_cases import BROKEN
from tests.formats.claude_files import MARK, Case

from .conftest import EVERYTHING, Life, needs
from .drive import ClaudeCode
from .reading import Said, of_messages

NEW = ("2.1.112", "2.1.197", "2.1.325")
# These send what stands on the way from the newest record to the root, and nothing beside it.
OLD = ("1.0.100", "2.0.50", "2.1.50")
# These do not know what was typed while a tool ran: it is kept in a record of its own.
DEAF = ("1.0.100",)
SLICE = {
    "2.1.325": (
        "01_open_batch_at_tail-tree",
        "02_open_call_in_middle-tree",
        "03_orphan_result-tree",
        "06_torn_result-tree",
        "07_two_of_three-tree",
        "11_missing_line-tree",
        "14_interleaved-tree",
        "18_glued-tree",
        "compaction_without_summary-tree",
        "empty_prompt-tree",
        "h7_two_writers-tree",
        "note_written_late_at_the_end-tree",
        "root_in_middle-tree",
        "root_in_middle_prompt-tree",
        "second_window_while_the_first_waits-tree",
        "two_windows_one_after_the_other-tree",
        "wrong_call_id-tree",
    ),
    "2.1.50": (
        "01_open_batch_at_tail-linear",
        "02_open_call_in_middle-linear",
        "04_duplicate_result-linear",
        "07_two_of_three-linear",
        "07_two_of_three-tree",
        "11_dangling_parent-linear",
        "16_one_turn_late-linear",
        "19_duplicate_uuid-linear",
        "h4_cycle-linear",
        "h7_two_writers-linear",
        "clock_set_back-linear",
        "null_content-linear",
        "progress_on_an_open_call-linear",
        "root_in_middle-linear",
        "text_before_result-linear",
    ),
}
TRIED = [
    pytest.param(ClaudeCode(version), case, id=f"{version}-{case}")
    for version in (*OLD, *NEW)
    for case in BROKEN
    if EVERYTHING or str(case) in SLICE.get(version, ())
]


@needs
@pytest.mark.parametrize(("client", "case"), TRIED)
def test_a_mended_session_is_resumed_whole(client: ClaudeCode, case: Case, tmp_path: Path) -> None:
    life = Life.of(client, tmp_path, case.session, _files(case), f"{case.session}.jsonl")
    exported = of_messages(life.exported("anthropic"))
    assert life.after.is_accepted, (life.after.said, life.after.refused)
    sent = of_messages(life.after.requests[-1]["messages"])
    assert _sent_before(life) <= {*sent.marks, *case.spare, *case.aside}
    assert set(sent.results.items()) <= set(exported.results.items())
    if client.version in NEW or case.layout == "linear":
        unheard = _queued(case) if client.version in DEAF else set()
        assert set(case.history) - unheard <= set(sent.marks)
        assert sent.marks == [mark for mark in exported.marks if mark not in unheard]
        assert sent.calls == exported.calls
        assert sent.results == exported.results


def _files(case: Case) -> dict[str, bytes]:
    return {f"{case.session}.jsonl": case.data, **case.side}


def _queued(case: Case) -> set[str]:
    lines = (line for line in case.data.splitlines() if b'"type":"attachment"' in line)
    return {mark for line in lines for mark in MARK.findall(line.decode(errors="replace"))}


def _sent_before(life: Life) -> set[str]:
    """The marks that the file as it was could deliver; what was refused delivered nothing."""
    said = of_messages(life.before.requests[-1]["messages"]) if life.before.is_accepted else Said()
    return set(said.marks)
