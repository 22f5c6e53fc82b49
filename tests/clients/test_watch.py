"""``lockstitch watch`` beside real clients: quiet while they work, loud once they are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.watching.made import Chat
from tests.watching.process import Watch

from .conftest import EVERYTHING, needs
from .drive import ClaudeCode, Client, Codex, Place

COMMAND = "touch started; until [ -e ended ] || [ ! -e started ]; do sleep 1; done"
REST = [ClaudeCode("2.1.50"), Codex("0.166.0")]


@needs
@pytest.mark.parametrize(
    "client",
    [ClaudeCode("2.1.325"), *(REST if EVERYTHING else ())],
    ids=lambda client: str(client.version),
)
def test_a_command_at_work_is_no_damage_and_a_killed_client_is(
    client: Client, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    other = Chat(place.home / ".claude" / "projects" / "-other" / "other.jsonl")
    other.turns(2)
    other.age()
    (place.home / ".codex" / "sessions").mkdir(parents=True)
    with Watch(place.home, "--idle", "0.5", "--repair") as watch:
        watch.event("started")
        with client.working(place, COMMAND):
            (path,) = (one for _, one in client.sessions(place.home) if one != other.path)
            before = path.read_bytes()
            # Told and repaired while the client is at work, which rests for longer than this.
            other.append(other.said("user", "go on"))
            other.call()
            assert watch.event("repaired")["session"]["target"] == str(other.path)
            assert path.read_bytes().startswith(before)
        (place.work / "ended").touch()
        assert watch.event("repaired", 2)["session"]["target"] == str(path)
    after = client.resume(place, path.stem if isinstance(client, ClaudeCode) else path.stem[-36:])
    assert after.is_accepted, (after.said, after.refused)
