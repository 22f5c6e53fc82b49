"""A recorder gets every request and reply, and has kept them before the client has the end."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from tests.kinds_of_break.conversations import BROKEN, HEALTHY
from tests.proxy.bodies import CASES, Case
from tests.proxy.conftest import Start
from tests.proxy.sending import JSON, PATIENCE, send
from tests.proxy.test_streams import asked, chunk_from
from tests.proxy.upstream import Upstream, Wire

MESSAGES = CASES[0]


@dataclass
class Kept:
    """One exchange as a recorder keeps it."""

    recorder: Memory
    dialect: str
    body: bytes
    streamed: bool
    reply: bytes = b""
    outcome: tuple[int, bool] | None = None

    def feed(self, chunk: bytes) -> None:
        assert self.outcome is None
        self.reply += chunk

    async def commit(self, status: int, *, complete: bool) -> None:
        assert self.outcome is None, "committed twice"
        await asyncio.to_thread(self.recorder.may_commit.wait, PATIENCE)
        if self.recorder.fails == "commit":
            raise OSError("no space")
        self.outcome = status, complete


@dataclass
class Memory:
    """A recorder that keeps everything in memory."""

    kept: list[Kept] = field(default_factory=list)
    may_begin: threading.Event = field(default_factory=threading.Event)
    may_commit: threading.Event = field(default_factory=threading.Event)
    fails: str = ""
    is_closed: bool = False

    async def begin(self, dialect: str, body: bytes, *, streamed: bool, **_: str) -> Kept:
        await asyncio.to_thread(self.may_begin.wait, PATIENCE)
        if self.fails == "begin":
            raise OSError("no space")
        self.kept.append(Kept(self, dialect, body, streamed))
        return self.kept[-1]

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def memory() -> Memory:
    made = Memory()
    made.may_begin.set()
    made.may_commit.set()
    return made


def connect(memory: Memory) -> Callable[[], object]:
    async def opened() -> Memory:
        return memory

    return opened


def all_that_comes(answer: http.client.HTTPResponse) -> bytes:
    """Read until nothing more comes for a while."""
    got = b""
    try:
        while chunk := chunk_from(answer):
            got += chunk
    except TimeoutError:
        return got
    raise AssertionError("the reply has ended")


def until(condition: Callable[[], object]) -> None:
    latest = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < latest
        time.sleep(0.01)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_client_sent_is_kept(
    proxy: Start, upstream: Upstream, memory: Memory, case: Case
) -> None:
    """Not what was made of it; and the number of tokens of a list is no conversation."""
    url = proxy(upstream.url, connect=connect(memory)).url
    body = case.body(BROKEN[1].turns)
    assert send(url, case.path, body).header("lockstitch-repaired")
    send(url, "/v1/models", None, {}, "GET")
    if case.name == "count_tokens":
        assert memory.kept == []
        return
    (kept,) = memory.kept
    assert (kept.dialect, kept.body, kept.reply) == (case.dialect, body, b'{"ok":true}')
    assert kept.streamed == ("stream" in case.path)
    assert kept.outcome == (200, True)


def test_a_packed_body_and_reply_are_kept_unpacked(
    proxy: Start, upstream: Upstream, memory: Memory
) -> None:
    upstream.script = lambda wire: wire.whole(
        gzip.compress(b"words"), "200 OK", "Content-Encoding: gzip"
    )
    body = MESSAGES.body(HEALTHY.turns)
    headers = {**JSON, "Content-Encoding": "gzip", "Accept-Encoding": "br;q=1, gzip;q=0.5, zstd"}
    got = send(
        proxy(upstream.url, connect=connect(memory)).url,
        MESSAGES.path,
        gzip.compress(body),
        headers,
    )
    assert gzip.decompress(got.data) == b"words"
    assert upstream.last.one("accept-encoding") == "gzip;q=0.5, zstd"
    assert (memory.kept[0].body, memory.kept[0].reply) == (body, b"words")


def test_the_request_is_kept_before_the_reply_begins(
    proxy: Start, upstream: Upstream, memory: Memory
) -> None:
    memory.may_begin.clear()
    url = proxy(upstream.url, connect=connect(memory)).url
    with closing(asked(url)) as connection:
        until(lambda: upstream.seen)
        assert connection.sock
        connection.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.sock.recv(1)
        connection.sock.settimeout(PATIENCE)
        memory.may_begin.set()
        assert connection.getresponse().read() == b'{"ok":true}'


ENDS = {
    "messages": (b'event: message_stop\ndata: {"type": "message_stop"}\n\n',),
    "chat": (b'data: {"choices":[{"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"),
    "responses": (b'event: response.completed\ndata: {"type":"response.completed"}\n\n',),
    "stream, snake": (b'data: {"candidates":[{"finishReason":"STOP"}]}\n\n',),
    "converse-stream": (b"\0\0\0\x30:event-type\x07\0\x0bmessageStop", b"\0\0\0\x20metadata"),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "split"])
def test_the_end_of_a_stream_waits_until_the_reply_is_kept(
    proxy: Start, upstream: Upstream, memory: Memory, name: str, cut: bool
) -> None:
    case = next(case for case in CASES if case.name == name)
    first = b'data: {"text": "data: [DONE] \\"type\\":\\"message_stop\\" messageSt"}\n\n'
    ends = ENDS[name]
    pieces = [ends[0][:20], ends[0][20:], *ends[1:]] if cut else [*ends]

    def script(wire: Wire) -> None:
        kind = "application/vnd.amazon.eventstream" if "converse" in name else "text/event-stream"
        wire.begin(f"Content-Type: {kind}; charset=utf-8")
        for piece in (first, *pieces, b""):
            wire.chunk(piece)
            time.sleep(0.02)

    upstream.script = script
    memory.may_commit.clear()
    url = proxy(upstream.url, connect=connect(memory)).url
    with closing(asked(url, case, case.body(HEALTHY.turns))) as connection:
        answer = connection.getresponse()
        got = b""
        while len(got) < len(first):
            got += chunk_from(answer)
        until(lambda: memory.kept and memory.kept[0].reply.endswith(pieces[-1]))
        assert connection.sock
        connection.sock.settimeout(0.2)
        got += all_that_comes(answer)
        assert not got.endswith(ends[-1])
        memory.may_commit.set()
        until(lambda: memory.kept[0].outcome)
    assert memory.kept[0].outcome == (200, True)
    assert memory.kept[0].reply == first + b"".join(ends)


def test_who_keeps_the_line_open_behind_the_end_does_not_keep_the_client_waiting(
    proxy: Start, upstream: Upstream, memory: Memory
) -> None:
    done = threading.Event()

    def script(wire: Wire) -> None:
        wire.begin()
        wire.chunk(ENDS["messages"][0])
        done.wait(PATIENCE)
        wire.chunk(b": ping\n\n")
        wire.chunk(b"")

    upstream.script = script
    url = proxy(upstream.url, connect=connect(memory)).url
    with closing(asked(url)) as connection:
        answer = connection.getresponse()
        assert chunk_from(answer) == ENDS["messages"][0]
        assert memory.kept[0].outcome == (200, True)
        done.set()
        assert answer.read() == b": ping\n\n"


def test_what_arrived_of_a_reply_that_is_cut_is_kept(
    proxy: Start, upstream: Upstream, memory: Memory
) -> None:
    import socket

    def script(wire: Wire) -> None:
        wire.begin()
        wire.chunk(b"data: half\n\n")
        wire.sock.shutdown(socket.SHUT_RDWR)

    upstream.script = script
    url = proxy(upstream.url, connect=connect(memory)).url
    with closing(asked(url)) as connection, pytest.raises(http.client.IncompleteRead):
        connection.getresponse().read()
    assert (memory.kept[0].reply, memory.kept[0].outcome) == (b"data: half\n\n", (200, False))


def test_what_arrived_before_the_client_went_away_is_kept(
    proxy: Start, upstream: Upstream, memory: Memory
) -> None:
    def script(wire: Wire) -> None:
        wire.begin()
        wire.chunk(b"data: half\n\n")
        assert wire.is_gone()

    upstream.script = script
    connection = asked(proxy(upstream.url, connect=connect(memory)).url)
    answer = connection.getresponse()
    assert chunk_from(answer)
    answer.close()
    connection.close()
    until(lambda: memory.kept[0].outcome)
    assert (memory.kept[0].reply, memory.kept[0].outcome) == (b"data: half\n\n", (200, False))


@pytest.mark.parametrize("fails", ["begin", "commit"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_recorder_that_fails(
    proxy: Start, upstream: Upstream, memory: Memory, fails: str, strict: bool
) -> None:
    """The reply passes all the same; for the strict it does not."""
    memory.fails = fails
    proxied = proxy(upstream.url, connect=connect(memory), fail_closed=strict)
    if strict and fails == "commit":
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            send(proxied.url, MESSAGES.path, MESSAGES.body(HEALTHY.turns))
        return
    got = send(proxied.url, MESSAGES.path, MESSAGES.body(HEALTHY.turns))
    if strict:
        assert (got.status, got.header("lockstitch-error")) == (500, "not-recorded")
    else:
        assert (got.status, json.loads(got.data)) == (200, {"ok": True})
    told = send(proxied.url, "/metrics", None, {}, "GET").data.decode()
    assert 'errors_total{kind="not-recorded"} 1' in told


def test_the_recorder_is_closed_at_the_end(upstream: Upstream, memory: Memory) -> None:
    from lockstitch.proxy import Settings
    from lockstitch.proxy import Upstream as Target
    from lockstitch.proxy.server import running

    made = Settings(port=0, upstreams=(Target(url=upstream.url),))
    with running(made, connect=connect(memory)):  # type: ignore[arg-type]
        assert not memory.is_closed
    assert memory.is_closed
