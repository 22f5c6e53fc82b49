"""Files read as they grow: what the whole says is never missed, and little is read."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch import sessions
from lockstitch.formats.interface import LINES
from lockstitch.rules import NOTE, Finding
from lockstitch.sources.source import Source
from lockstitch.sources.targets import sources_in
from lockstitch.watch.followed import CLEAN_TAIL, OPEN_TAIL, SUSPECT_TAIL, Followed
from tests.formats.claude_cases import CASES as CLAUDE
from tests.formats.codex_files import CASES as CODEX
from tests.formats.gemini_files import CASES as GEMINI
from tests.formats.pi_files import CASES as PI
from tests.formats.stored import Stored

from .made import Chat, Rollout

FILES: dict[str, tuple[bytes | Stored, str]] = {
    **{f"claude:{case}": (case.data, "claude-code") for case in CLAUDE},
    **{
        f"{case.format}:{case.name}": (case, case.format)
        for case in (*CODEX, *PI, *GEMINI)
        if case.path.endswith(".jsonl")
    },
}
ROLLOUT = "rollout-2026-09-01T00-00-00-00000000-0000-4000-8000-000000000001.jsonl"


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small files be viewed by their end, too."""
    monkeypatch.setattr("lockstitch.watch.followed._SMALL", 0)


def grown(path: Path, data: bytes, cuts: list[int], form: str) -> Followed:
    """Follow a file that is appended to piece by piece, as a watch does."""
    path.write_bytes(b"")
    followed: Followed | None = None
    for start, end in pairwise([0, *sorted(cuts), len(data)]):
        with path.open("ab") as file:
            file.write(data[start:end])
        if followed is None:
            (source,) = sources_in(str(path), form)
            followed = Followed(source)
        if followed.look() == SUSPECT_TAIL:
            followed.examine()
    assert followed is not None
    return followed


def rested(followed: Followed) -> str:
    """Let it rest, as a watch does, and return the state that is left."""
    if followed.is_unsure:
        followed.understand()
    return followed.state


def line_ends(data: bytes) -> list[int]:
    return [at + 1 for at, byte in enumerate(data[:-1]) if byte == ord("\n")]


def bad(findings: list[Finding]) -> Counter[str]:
    return Counter(found.code for found in findings if found.severity != NOTE)


@pytest.mark.usefixtures("all_are_large")
@pytest.mark.parametrize("name", FILES)
def test_what_is_wrong_with_a_file_is_not_missed_as_it_grows(name: str, tmp_path: Path) -> None:
    held, form = FILES[name]
    path = tmp_path / "session.jsonl"
    if isinstance(held, bytes):
        data = held
    else:
        held.write(path)
        data = path.read_bytes()
    followed = grown(path, data, line_ends(data), form)
    whole = sessions.check(followed.source)
    state = rested(followed)
    if state == CLEAN_TAIL:
        assert bad(whole.findings) == Counter()
        assert whole.error is None
    else:
        assert state == OPEN_TAIL
        assert bad(followed.at_rest().findings) == bad(whole.findings)
        assert not bad(followed.final) - bad(whole.findings)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 4000), max_size=12), turns=st.integers(1, 8))
@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_a_healthy_file_is_never_told_however_it_is_written(
    kind: str, cuts: list[int], turns: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("grown")
    made: Chat | Rollout
    made = Rollout(folder / ROLLOUT) if kind == "codex" else Chat(folder / "whole.jsonl")
    made.turns(turns)
    data = made.path.read_bytes()
    inside = [cut for cut in cuts if cut < len(data)]
    path = folder / f"again-{made.path.name}"
    path.write_bytes(b"")
    followed: Followed | None = None
    for start, end in pairwise([0, *sorted(inside), len(data)]):
        with path.open("ab") as file:
            file.write(data[start:end])
        if followed is None:
            followed = Followed(Source(str(path), kind, LINES))
        if followed.look() == SUSPECT_TAIL:
            followed.examine()
        assert not bad(followed.final)
    assert followed is not None
    assert followed.state == CLEAN_TAIL


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_one_more_turn_does_not_cost_the_whole_file(kind: str, tmp_path: Path) -> None:
    made: Chat | Rollout
    made = Rollout(tmp_path / ROLLOUT) if kind == "codex" else Chat(tmp_path / "large.jsonl")
    made.turns(4000)
    (source,) = sources_in(str(made.path), kind)
    followed = Followed(source)
    assert followed.look() == SUSPECT_TAIL
    followed.examine()
    assert followed.state == CLEAN_TAIL
    before = followed.read
    for _ in range(5):
        made.turns(1)
        assert followed.look() == CLEAN_TAIL
    size = made.path.stat().st_size
    assert size > 2_000_000
    assert followed.read - before < size / 50


def test_a_call_under_way_makes_no_file_suspect(tmp_path: Path) -> None:
    chat = Chat(tmp_path / "chat.jsonl")
    chat.turns(3)
    followed = grown(chat.path, chat.path.read_bytes(), [], "claude-code")
    chat.append(chat.said("user", "go on"))
    chat.call()
    assert followed.look() == OPEN_TAIL
    assert followed.proof is not None
    chat.result()
    assert followed.look() == CLEAN_TAIL


@pytest.mark.parametrize("how", ["replaced", "cut", "written anew"])
def test_a_file_that_is_another_one_is_read_as_a_whole(how: str, tmp_path: Path) -> None:
    chat = Chat(tmp_path / "chat.jsonl")
    chat.turns(9)
    data = chat.path.read_bytes()
    followed = grown(chat.path, data, [], "claude-code")
    assert followed.look() == CLEAN_TAIL
    lines = data.splitlines(keepends=True)
    if how == "replaced":
        other = tmp_path / "other"
        other.write_bytes(data)
        other.rename(chat.path)
    elif how == "cut":
        os.truncate(chat.path, len(b"".join(lines[:4])))
    else:
        chat.path.write_bytes(b"".join([lines[0], *lines[4:], lines[-1] * 9]))
    assert followed.look() == SUSPECT_TAIL
