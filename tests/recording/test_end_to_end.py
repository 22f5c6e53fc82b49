"""Through the real proxy: conversations on every route, and one that its client lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lockstitch
from lockstitch.proxy import Settings
from lockstitch.proxy import Upstream as Target
from lockstitch.proxy.server import recorder_at, running
from tests.inprocess import command
from tests.proxy.sending import JSON, send
from tests.proxy.upstream import Upstream, Wire, listening
from tests.recording.provider import Moody
from tests.recording.talking import Client, answer, spelled, streamed, whole

SECRET = "sk-never-to-be-stored"  # noqa: S105 - what must not be found
HEADERS = {
    **JSON,
    "x-api-key": SECRET,
    "Authorization": f"Bearer {SECRET}",
    "User-Agent": "agent/1",
}
PATHS = {
    "anthropic": ("/v1/messages", "/v1/messages"),
    "openai-chat": ("/v1/chat/completions", "/v1/chat/completions"),
    "openai-responses": ("/v1/responses", "/v1/responses"),
    "gemini": (
        "/v1beta/models/a-model:generateContent",
        "/v1beta/models/a-model:streamGenerateContent?alt=sse",
    ),
    "bedrock": ("/model/a-model/converse", "/model/a-model/converse-stream"),
}
KINDS = {"bedrock": "application/vnd.amazon.eventstream"}
CALLS = {1: ("call_a",), 2: (), 3: ()}


@contextmanager
def proxied(upstream: Upstream, record: str) -> Iterator[str]:
    """A proxy in front of a provider, which records."""
    settings = Settings(port=0, grace=5.0, upstreams=(Target(url=upstream.url),), record=record)
    with running(settings, log=lambda _: None, connect=recorder_at(record)) as url:
        yield url


def provider_of(dialect: str, *, stream: bool) -> Upstream:
    """What answers the requests of a conversation, one after the other."""

    def script(wire: Wire) -> None:
        number = 1 + len(made.seen) - 1
        text, calls = f"Reply {number}.", CALLS.get(number, ())
        if not stream:
            kind = "Content-Type: application/json"
            return wire.whole(whole(answer(dialect, number, text, *calls)), "200 OK", kind)
        wire.begin(f"Content-Type: {KINDS.get(dialect, 'text/event-stream')}")
        for chunk in streamed(dialect, text, *calls)[0]:
            wire.chunk(chunk)
        return wire.chunk(b"")

    made = Upstream("", script)
    return made


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_conversation_through_the_proxy(
    url: str, tmp_path: Path, dialect: str, stream: bool
) -> None:
    beside = {"stream": True} if stream and dialect not in ("gemini", "bedrock") else {}
    client = Client(dialect, system="Be careful.", beside=beside)
    with listening() as upstream:
        script = provider_of(dialect, stream=stream)
        script.seen, upstream.script = upstream.seen, script.script
        with proxied(upstream, url) as proxy:
            for number in (1, 2, 3):
                if number == 2:
                    client.give([("call_a", "look", "under the mat")])
                else:
                    client.say(f"Question {number}")
                got = send(proxy, PATHS[dialect][stream], client.body(), HEADERS)
                assert got.status == 200
                client.hear(answer(dialect, number, f"Reply {number}.", *CALLS[number]))
        assert upstream.failed == []
    with lockstitch.open(url) as store:
        (listed,) = store.sessions()
        lines = [spelled(one) for one in store.read(listed.session).request("openai-chat")]
    assert [line.partition("look(")[0] for line in lines] == [
        "system: Be careful.",
        "user: Question 1",
        "assistant: Reply 1.",
        "tool: under the mat",
        "assistant: Reply 2.",
        "user: Question 3",
        "assistant: Reply 3.",
    ]
    assert listed.title == "Question 1"
    assert listed.metadata == {"dialect": dialect, "model": "a-model", "client": "agent/1"}
    for file in tmp_path.iterdir():
        assert SECRET.encode() not in file.read_bytes()


def test_a_conversation_that_its_client_lost(url: str) -> None:
    """The client is killed; what it had is shown, exported, and gone on with from the store."""
    with listening() as upstream:
        upstream.script = Moody(7)
        with proxied(upstream, url) as proxy:
            words = [sys.executable, "-m", "tests.recording.client", proxy, "7"]
            last: list[str] = []
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout
                for line in process.stdout:
                    word, _, rest = line.partition(" ")
                    lines = json.loads(rest)
                    if word == "ack" and len(lines) >= 6 and lines[-1].startswith("assistant"):
                        last = lines
                        break
                process.kill()
        _gone_on(url, last)


def _gone_on(url: str, last: list[str]) -> None:
    with lockstitch.open(url) as store:
        found = next(
            listed
            for listed in store.sessions()
            if [spelled(m) for m in store.read(listed.session).request("openai-chat")][: len(last)]
            == last
        )
    name = found.session
    shown = command("show", url, "--session", name)
    assert shown.returncode == 0
    assert found.title == last[0].removeprefix("user: ")
    assert found.title in shown.stdout.decode()
    exported = command("export", url, "--session", name, "--to", "gemini")
    assert exported.returncode == 0
    assert not lockstitch.check(json.loads(exported.stdout), "gemini")
    checked = command("check", url)
    assert checked.returncode == 0
    with lockstitch.open(url) as store, store.session(name) as session:
        session.say("I am back")
        session.record(whole(answer("anthropic", 99, "So I see.")), "anthropic")
        assert not session.turn.is_open


def test_a_store_that_cannot_be_opened_is_told_at_the_start(tmp_path: Path) -> None:
    done = command("proxy", "--port", "0", "--record", f"redis:///{tmp_path}")
    assert done.returncode == 2
    assert b"--record sqlite:///" in done.stderr
