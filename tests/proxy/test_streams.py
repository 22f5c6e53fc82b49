"""Replies pass as they come: chunk by chunk, with their status and headers, or cut as they were."""

from __future__ import annotations

import gzip
import http.client
import socket
import threading
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.kinds_of_break.conversations import BROKEN, HEALTHY
from tests.proxy.bodies import CASES, Case
from tests.proxy.conftest import Start
from tests.proxy.sending import JSON, PATIENCE, send
from tests.proxy.upstream import Upstream, Wire

MESSAGES = CASES[0]
BODY = MESSAGES.body(HEALTHY.turns)


def asked(url: str, case: Case = MESSAGES, body: bytes = BODY) -> HTTPConnection:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
    connection.request("POST", case.path, body, JSON)
    return connection


def chunk_from(answer: http.client.HTTPResponse) -> bytes:
    return answer.read1(1 << 16)


def listens(url: str) -> bool:
    """Whether somebody listens there, told without connecting: asyncio loses a connection that
    comes while it stops to listen."""
    parts = urlsplit(url)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((parts.hostname, parts.port))
        except OSError:
            return True
        return False


@pytest.mark.parametrize("conversation", [HEALTHY, BROKEN[0]], ids=["healthy", "healed"])
def test_each_chunk_arrives_before_the_next_is_sent(
    proxy: Start, upstream: Upstream, conversation: object
) -> None:
    arrived = threading.Semaphore(0)

    def script(wire: Wire) -> None:
        wire.begin()
        for number in range(20):
            wire.chunk(f"data: {number}\n\n".encode())
            assert arrived.acquire(timeout=PATIENCE)
        wire.chunk(b"")

    upstream.script = script
    body = MESSAGES.body(conversation.turns)  # type: ignore[attr-defined]
    with closing(asked(proxy(upstream.url).url, body=body)) as connection:
        answer = connection.getresponse()
        for number in range(20):
            assert chunk_from(answer) == f"data: {number}\n\n".encode()
            arrived.release()
        assert chunk_from(answer) == b""


def test_a_client_that_goes_away_cancels_upstream(proxy: Start, upstream: Upstream) -> None:
    gone = threading.Event()

    def script(wire: Wire) -> None:
        wire.begin()
        wire.chunk(b"data: 1\n\n")
        assert wire.is_gone()
        gone.set()

    upstream.script = script
    connection = asked(proxy(upstream.url).url)
    answer = connection.getresponse()
    assert chunk_from(answer)
    assert connection.sock
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    answer.close()
    assert gone.wait(PATIENCE)


def test_a_client_that_goes_away_before_the_reply_cancels_upstream(
    proxy: Start, upstream: Upstream
) -> None:
    came, gone = threading.Event(), threading.Event()

    def script(wire: Wire) -> None:
        came.set()
        assert wire.is_gone()
        gone.set()

    upstream.script = script
    connection = asked(proxy(upstream.url).url)
    assert came.wait(PATIENCE)
    connection.close()
    assert gone.wait(PATIENCE)


@pytest.mark.parametrize("chunked", [True, False])
def test_an_upstream_that_dies_in_mid_stream_is_no_end(
    proxy: Start, upstream: Upstream, chunked: bool
) -> None:
    def script(wire: Wire) -> None:
        if chunked:
            wire.begin()
            wire.chunk(b"data: half\n\n")
        else:
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\ndata: half\n\n")
        wire.sock.shutdown(socket.SHUT_RDWR)

    upstream.script = script
    proxied = proxy(upstream.url)
    with closing(asked(proxied.url)) as connection:
        answer = connection.getresponse()
        assert answer.status == 200
        with pytest.raises(http.client.IncompleteRead) as caught:
            answer.read()
        assert caught.value.partial == b"data: half\n\n"
    assert [event.error.split(";")[0] for event in proxied.log] == ["", "upstream-cut"]


def test_an_upstream_that_is_not_there(proxy: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        proxied = proxy(f"http://127.0.0.1:{taken.getsockname()[1]}")
        for case in CASES:
            got = send(proxied.url, case.path, case.body(HEALTHY.turns))
            assert (got.status, got.header("lockstitch-error")) == (502, "upstream")
            assert "cannot be reached" in str(got.value)


def test_an_upstream_that_does_not_answer_in_time(proxy: Start, upstream: Upstream) -> None:
    done = threading.Event()
    upstream.script = lambda _: (done.wait(PATIENCE), None)[1]
    got = send(proxy(upstream.url, idle_timeout=0.2).url, MESSAGES.path, BODY)
    done.set()
    assert (got.status, got.value["error"]["type"]) == (504, "timeout_error")


@pytest.mark.parametrize("status", ["400 Bad Request", "429 Slow Down", "529 Overloaded"])
def test_errors_pass_as_they_are(proxy: Start, upstream: Upstream, status: str) -> None:
    body = b'{"type":"error","error":{"type":"x","message":"no"}}'
    named = ("Retry-After: 7", "x-Request-ID: req_1", "X-Twice: a", "X-Twice: b", "Date: now")
    upstream.script = lambda wire: wire.whole(body, status, *named)
    got = send(proxy(upstream.url).url, MESSAGES.path, BODY)
    assert (got.status, got.data) == (int(status[:3]), body)
    for line in named:
        assert tuple(line.split(": ")) in got.headers
    assert len(upstream.seen) == 1


def test_encoded_replies_pass_untouched(proxy: Start, upstream: Upstream) -> None:
    packed = gzip.compress(b"words")
    upstream.script = lambda wire: wire.whole(packed, "200 OK", "Content-Encoding: gzip")
    got = send(
        proxy(upstream.url).url, MESSAGES.path, BODY, {**JSON, "Accept-Encoding": "gzip, br"}
    )
    assert (got.data, got.header("content-encoding")) == (packed, "gzip")
    assert upstream.last.one("accept-encoding") == "gzip, br"


def test_redirects_are_not_followed(proxy: Start, upstream: Upstream) -> None:
    upstream.script = lambda wire: wire.whole(b"", "307 Elsewhere", f"Location: {upstream.url}/x")
    got = send(proxy(upstream.url).url, MESSAGES.path, BODY)
    assert (got.status, got.header("location")) == (307, f"{upstream.url}/x")
    assert len(upstream.seen) == 1


def test_headers_pass_in_their_order_and_spelling(proxy: Start, upstream: Upstream) -> None:
    sent = {
        "X-Api-Key": "sk-1",
        "anthropic-version": "2023-06-01",
        "Content-Type": "application/json; charset=utf-8",
        "x-stainless-Lang": "python",
        "User-Agent": "someone/1",
        "Accept": "*/*",
        "Connection": "keep-alive, X-Hop",
        "X-Hop": "1",
        "TE": "trailers",
        "Lockstitch-Token": "x",
        "Proxy-Authorization": "Basic x",
    }
    send(proxy(upstream.url).url, MESSAGES.path, BODY, sent)
    got = [(k, v) for k, v in upstream.last.headers if k.lower() not in ("host", "content-length")]
    kept = ("X-Api-Key", "anthropic-version", "Content-Type", "x-stainless-Lang", "User-Agent")
    mine = [pair for pair in got if pair[0] not in ("Accept-Encoding", "Accept")]
    assert mine == [(name, sent[name]) for name in kept]
    assert upstream.last.one("host") == urlsplit(upstream.url).netloc


def test_what_nobody_knows_passes_both_ways(proxy: Start, upstream: Upstream) -> None:
    url = proxy(upstream.url).url
    upstream.script = lambda wire: wire.whole(b"\x00\xff" * 1000, "201 Made", "X-Y: z")
    blob = bytes(range(256)) * 4096
    got = send(url, "/v1/files?purpose=x%2Fy&z=%20", blob, {"Content-Type": "image/png"}, "PUT")
    assert (got.status, got.data, got.header("x-y")) == (201, b"\x00\xff" * 1000, "z")
    seen = upstream.last
    assert (seen.method, seen.target) == ("PUT", "/v1/files?purpose=x%2Fy&z=%20")
    assert (seen.body, seen.one("content-type")) == (blob, "image/png")
    assert send(url, "/v1/models", None, {}, "GET").status == 201
    assert (upstream.last.method, upstream.last.body) == ("GET", b"")
    assert upstream.last.one("content-length") is None
    assert send(url, "/v1/files/x", None, {}, "DELETE").status == 201


def test_a_stream_that_runs_when_the_proxy_is_told_to_stop_is_finished(upstream: Upstream) -> None:
    from lockstitch.proxy import Settings
    from lockstitch.proxy import Upstream as Target
    from lockstitch.proxy.server import running

    go = threading.Event()

    def script(wire: Wire) -> None:
        wire.begin()
        wire.chunk(b"data: 1\n\n")
        assert go.wait(PATIENCE)
        wire.chunk(b"data: 2\n\n")
        wire.chunk(b"")

    upstream.script = script
    proxied = running(Settings(port=0, grace=PATIENCE, upstreams=(Target(url=upstream.url),)))
    url = proxied.__enter__()
    with closing(asked(url)) as connection:
        answer = connection.getresponse()
        assert chunk_from(answer) == b"data: 1\n\n"
        stopping = threading.Thread(target=proxied.__exit__, args=(None, None, None))
        stopping.start()
        while listens(url):
            time.sleep(0.01)
        go.set()
        assert answer.read() == b"data: 2\n\n"
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
