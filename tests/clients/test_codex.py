"""Every kind of broken Codex rollout: mended by the command, resumed by the real client."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def _data(case: Stored, folder: Path) -> bytes:
    """The rollout as it is, but for the provider: a session is bound to the one it names."""
    path = folder / "rollout"
    case.write(path)
    old, new = (f'"model_provider":"{name}"'.encode() for name in ("openai", CODEX.provider))
    return path.read_bytes().replace(old, new)


def _sent_before(life: Life) -> set[str]:
    said = of_items(life.before.requests[-1]["input"]) if life.before.is_accepted else Said()
    return set(said.marks)
