"""The map of the house: what it names is there, and every room is on it."""

from __future__ import annotations

import re
from pathlib import Path

import lockstitch
from tests.docs.pages import ROOT

MAP = ROOT / "design" / "0021-the-house.md"
SOURCE = Path(lockstitch.__file__).parent


def test_every_path_on_the_map_exists() -> None:
    named = re.findall(r"`((?:tests|scripts)?[\w/]+(?:\.py|/))`", MAP.read_text("utf-8"))
    assert named
    missing = [one for one in named if not (SOURCE / one).exists() and not (ROOT / one).exists()]
    assert missing == []


def test_every_room_is_on_the_map() -> None:
    text = MAP.read_text("utf-8")
    rooms = [path for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    assert len(rooms) > 20
    assert [room.name for room in rooms if f"`{room.name}/`" not in text] == []
