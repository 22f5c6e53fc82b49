"""Real clients that are at work: a repair of their session waits until they have ended."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.formats.campaign import Home

from .conftest import EVERYTHING, needs
from .drive import ClaudeCode, Client, Codex, Place

# It may outlive the client, which starts it in a group of its own: until the test is over.
COMMAND = "touch started; until [ -e ended ] || [ ! -e started ]; do sleep 1; done"
SLICE = [ClaudeCode("2.1.325"), ClaudeCode("2.1.197"), ClaudeCode("2.1.50"), Codex("0.166.0")]
REST = [ClaudeCode(version) for version in ("1.0.100", "2.0.50", "2.1.112")]
TITLES = {ClaudeCode: "Claude Code", Codex: "Codex"}


@needs
@pytest.mark.parametrize(
    "client", [*SLICE, *(REST if EVERYTHING else ())], ids=lambda client: str(client.version)
)
def test_a_session_is_repaired_only_when_its_client_has_ended(
    client: Client, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    home = Home(place.home)
    copy = tmp_path / "copy.jsonl"
    with client.working(place, COMMAND) as process:
        ((_, path),) = client.sessions(place.home)
        before = path.read_bytes()
        ran = home.run("repair", "--yes", path)
        looked = home.run("check", path)
        shutil.copy(path, copy)
        of_copy = home.run("repair", "--yes", copy)
    (place.work / "ended").touch()
    assert ran.status == 2, ran.err
    assert f"{TITLES[type(client)]} (process {process.pid})" in ran.err
    assert "nothing was changed" in ran.err
    assert looked.status in {0, 1}
    assert of_copy.status == 0, of_copy.err
    assert not (path.parent / ".lockstitch").exists()
    assert path.read_bytes() == before
    ran = home.run("repair", "--yes", path)
    assert ran.status == 0, ran.err
    assert path.read_bytes() != before


@needs
def test_a_folder_of_settings_elsewhere_has_its_own_process_files(tmp_path: Path) -> None:
    client, place = ClaudeCode("2.1.325"), Place(tmp_path)
    config, other = tmp_path / "settings", Home(tmp_path / "other")
    other.root.mkdir()
    with client.working(place, COMMAND, {"CLAUDE_CONFIG_DIR": str(config)}) as process:
        (path,) = config.glob("projects/*/*.jsonl")
        (record,) = config.glob("sessions/*.json")
        # The home of the one who repairs knows nothing of that folder.
        ran = other.run("repair", "--yes", path)
    (place.work / "ended").touch()
    assert ran.status == 2, ran.err
    assert f"Claude Code (process {process.pid}) has it open" in ran.err
    # The file outlives a killed process; its number may be given to another one.
    known = json.loads(record.read_bytes())
    record.with_name(f"{os.getpid()}.json").write_text(json.dumps({**known, "pid": os.getpid()}))
    record.unlink()
    ran = other.run("repair", "--yes", path)
    assert ran.status == 0, ran.err
