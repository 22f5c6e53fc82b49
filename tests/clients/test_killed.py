"""Real clients that really die: killed while a command runs, mended, resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.campaign import Home

from .conftest import EVERYTHING, needs
from .drive import ClaudeCode, Client, Codex, Place
from .reading import Said, of_items, of_messages

# It may outlive the client, which starts it in a group of its own: until the test is over.
COMMAND = "touch started; until [ -e ended ] || [ ! -e started ]; do sleep 1; done"
SLICE = [ClaudeCode("2.1.325"), ClaudeCode("2.1.50"), Codex("0.166.0")]
REST = [ClaudeCode(version) for version in ("1.0.100", "2.0.50", "2.1.112", "2.1.197")]
UNKNOWN = "no result was recorded"


@needs
@pytest.mark.parametrize(
    "client", [*SLICE, *(REST if EVERYTHING else ())], ids=lambda client: str(client.version)
)
def test_the_model_is_told_of_a_command_that_was_cut_off(client: Client, tmp_path: Path) -> None:
    place = Place(tmp_path)
    client.die(place, COMMAND)
    (place.work / "ended").touch()
    ((session, path),) = client.sessions(place.home)
    ran = Home(place.home).run("repair", "--yes", path)
    assert ran.status == 0, ran.err
    after = client.resume(place, session)
    assert after.is_accepted, (after.said, after.refused)
    said = _said(after.requests[-1])
    ((call, (_, given)),) = said.calls.items()
    assert COMMAND in given.values()
    assert UNKNOWN in said.results[call].lower()


def _said(request: dict[str, list[dict[str, object]]]) -> Said:
    return of_messages(request["messages"]) if "messages" in request else of_items(request["input"])
