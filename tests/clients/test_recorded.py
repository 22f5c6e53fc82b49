"""Real clients behind the proxy: a conversation that they resume is one session."""

from __future__ import annotations

from pathlib import Path

import pytest

import lockstitch
from lockstitch.provider import Reply
from lockstitch.proxy import Settings
from lockstitch.proxy import Upstream as Target
from lockstitch.proxy.server import recorder_at, running
from tests.recording.talking import spelled

from .conftest import needs
from .drive import PATIENCE, PROMPT, ClaudeCode, Client, Codex, Place, _run

CLIENTS = [ClaudeCode("2.1.325"), Codex("0.166.0")]


@needs
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: type(client).__name__)
def test_a_conversation_that_is_resumed_is_one_session(client: Client, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/conversations.db"
    place = Place(tmp_path / "place")
    replies = [
        Reply("I look.", (client.shell_call("echo under the mat"),)),
        Reply("It is under the mat."),
        Reply("Once more.", (client.shell_call("echo still there"),)),
        Reply("It is still there."),
    ]
    with place.provider(*replies) as provider:
        settings = Settings(port=0, grace=5.0, upstreams=(Target(url=provider),))
        with running(settings, log=lambda _: None, connect=recorder_at(url)) as proxy:
            environ = client._environ(place, proxy)  # noqa: SLF001 - the proxy in its place
            _run([*client.program(), *client.starting()], place.work, environ, PATIENCE)
            ((session, _),) = client.sessions(place.home)
            _run([*client.program(), *client.resuming(session)], place.work, environ, PATIENCE)
    with lockstitch.open(url) as store:
        found = [one for one in store.sessions() if one.title == PROMPT]
        assert len(found) == 1, [one.title for one in store.sessions()]
        lines = [spelled(one) for one in store.read(found[0].session).request("openai-chat")]
    said = " ".join(lines)
    marks = ["I look.", "under the mat", "It is under the mat.", "still there", "It is still there"]
    places = [said.index(mark) for mark in marks]
    assert places == sorted(places)
