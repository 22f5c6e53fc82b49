"""Every kind of broken pi session: repaired by the command, resumed by the real client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.pi_files import CASES
from tests.formats.stored import Stored

from .conftest import EVERYTHING, Life, needs
from .drive import Pi
from .reading import Said, of_messages

PI = Pi("0.87.1")
# Starting pi costs seconds: what only pi can tell is tried in every run, the rest when asked for.
CHOSEN = ("ancestor_last", "ancestor_again", "head_lost", "byte_order_mark", "aborted_with_results")
BROKEN = [case for case in CASES if not case.healthy and (EVERYTHING or case.name in CHOSEN)]


@needs
@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_mended_session_is_resumed_whole(case: Stored, tmp_path: Path) -> None:
    name = Path(case.path).name
    case.write(tmp_path / "session")
    files = {name: (tmp_path / "session").read_bytes()}
    life = Life.of(PI, tmp_path, case.session, files, name)
    assert life.after.is_accepted, (life.after.said, life.after.refused)
    sent = of_messages(life.after.requests[-1]["messages"])
    exported = of_messages(life.exported("anthropic"))
    assert _sent_before(life) <= {*sent.marks, *case.spare, *case.aside}
    assert set(case.history) <= set(sent.marks)
    assert sent.marks == exported.marks
    assert sent.calls == exported.calls
    assert sent.results == exported.results


def _sent_before(life: Life) -> set[str]:
    said = of_messages(life.before.requests[-1]["messages"]) if life.before.requests else Said()
    return set(said.marks)
