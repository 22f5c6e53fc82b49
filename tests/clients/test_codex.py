"""Every kind of broken Codex rollout: mended by the command, resumed by the real client."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstitch.files import read
from tests.formats.codex_files import CASES
from tests.formats.stored import Stored

from .conftest import Life, needs
from .drive import Codex
from .reading import Said, of_items

CODEX = Codex("0.166.0")
BROKEN = [case for case in CASES if not case.healthy]


@needs
@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_mended_session_is_resumed_whole(case: Stored, tmp_path: Path) -> None:
    name = Path(case.path).name
    life = Life.of(CODEX, tmp_path, case.session, {name: _data(case, tmp_path)}, name)
    exported = of_items(life.exported("openai-responses"))
    assert life.after.is_accepted, (life.after.said, life.after.refused)
    sent = of_items(life.after.requests[-1]["input"])
    assert _sent_before(life) <= {*sent.marks, *case.spare, *case.aside}
    assert set(case.history) <= set(sent.marks)
    assert sent.marks == exported.marks
    assert sent.calls == exported.calls
    assert sent.results == exported.results


@needs
def test_a_packed_session_is_resumed_before_and_after_its_repair(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "finished_item")
    name = f"{Path(case.path).name}.zst"
    data = read.pack(_data(case, tmp_path))
    life = Life.of(CODEX, tmp_path, case.session, {name: data}, name)
    assert life.before.is_accepted, life.before.said
    assert life.after.is_accepted, (life.after.said, life.after.refused)
    assert life.path.read_bytes().startswith(read.ZSTD_MAGIC)
    sent = of_items(life.after.requests[-1]["input"])
    assert sent.marks == of_items(life.exported("openai-responses")).marks
    assert set(case.history) <= set(sent.marks)
    assert _sent_before(life) < set(sent.marks)


@needs
@pytest.mark.parametrize("case", BROKEN[:1], ids=lambda case: case.name)
def test_a_packed_session_that_breaks_off_is_resumed_once_it_is_repaired(
    case: Stored, tmp_path: Path
) -> None:
    name = f"{Path(case.path).name}.zst"
    whole = _data(case, tmp_path)
    # Two frames, of which the second is cut off: what is in the first one can be read.
    data = read.pack(whole) + read.pack(whole)[:-9]
    life = Life.of(CODEX, tmp_path, case.session, {name: data}, name)
    assert not life.before.is_accepted
    assert life.after.is_accepted, (life.after.said, life.after.refused)
    assert set(case.history) <= set(of_items(life.after.requests[-1]["input"]).marks)


def _data(case: Stored, folder: Path) -> bytes:
    """The rollout as it is, but for the provider: a session is bound to the one it names."""
    path = folder / "rollout"
    case.write(path)
    old, new = (f'"model_provider":"{name}"'.encode() for name in ("openai", CODEX.provider))
    return path.read_bytes().replace(old, new)


def _sent_before(life: Life) -> set[str]:
    said = of_items(life.before.requests[-1]["input"]) if life.before.is_accepted else Said()
    return set(said.marks)
