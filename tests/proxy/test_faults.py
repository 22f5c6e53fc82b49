"""What is sent by mistake or on purpose, and what comes of it: a clear answer, and no more."""

from __future__ import annotations

import gzip
import json
import os
import socket
import threading
import zlib
from typing import Any
from urllib.parse import urlsplit

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.proxy import forwarding
from tests.kinds_of_break.conversations import BROKEN, HEALTHY
from tests.proxy.bodies import CASES, EACH_DIALECT
from tests.proxy.conftest import Proxied, Start
from tests.proxy.sending import JSON, PATIENCE, raw, send
from tests.proxy.upstream import Upstream

MESSAGES = CASES[0]
FINE, BAD = MESSAGES.body(HEALTHY.turns), MESSAGES.body(BROKEN[0].turns)
PACKED = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def head(path: str = "/v1/messages", *lines: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("encoding", PACKED)
def test_packed_bodies_are_looked_into(proxy: Start, upstream: Upstream, encoding: str) -> None:
    url = proxy(upstream.url).url
    headers = {**JSON, "Content-Encoding": encoding}
    packed = PACKED[encoding](FINE)
    assert send(url, MESSAGES.path, packed, headers).header("lockstitch-repaired") is None
    assert (upstream.last.body, upstream.last.one("content-encoding")) == (packed, encoding)
    got = send(url, MESSAGES.path, PACKED[encoding](BAD), headers)
    assert got.header("lockstitch-repaired") == "LS101=1"
    assert upstream.last.one("content-encoding") is None
    assert send(url, MESSAGES.path, upstream.last.body).header("lockstitch-repaired") is None


@pytest.mark.parametrize("encoding", [*PACKED, "br", "x-nobody"])
def test_bodies_that_are_not_what_they_claim_pass(
    proxy: Start, upstream: Upstream, encoding: str
) -> None:
    body = b"this is neither packed nor JSON" * 9
    headers = {**JSON, "Content-Encoding": encoding}
    got = send(proxy(upstream.url).url, MESSAGES.path, body, headers)
    assert (got.status, upstream.last.body) == (200, body)


@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_that_is_huge_once_it_is_unpacked(
    proxy: Start, upstream: Upstream, encoding: str
) -> None:
    bomb = PACKED[encoding](b"0" * (64 << 20))
    headers = {**JSON, "Content-Encoding": encoding}
    got = send(proxy(upstream.url, max_body=1 << 20).url, MESSAGES.path, bomb, headers)
    assert (got.status, upstream.seen) == (413, [])


def test_a_body_of_300_megabytes(proxy: Start, upstream: Upstream) -> None:
    url = proxy(upstream.url).url
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port), PATIENCE) as sock:
        sock.sendall(head("/v1/messages", f"Content-Length: {300 << 20}"))
        got = sock.recv(1 << 16)
    assert status(got) == 413
    chunked = head("/v1/messages", "Transfer-Encoding: chunked")
    small = proxy(upstream.url, max_body=1 << 20).url
    got = raw(small, chunked + (b"80000\r\n" + b"0" * 0x80000 + b"\r\n") * 3 + b"0\r\n\r\n")
    assert status(got) == 413
    assert upstream.seen == []


def test_ten_thousand_headers(proxy: Start, upstream: Upstream) -> None:
    many = [f"X-{number}: y" for number in range(10_000)]
    assert status(raw(proxy(upstream.url).url, head("/v1/messages", *many))) == 400
    assert upstream.seen == []


def test_a_header_without_an_end(proxy: Start, upstream: Upstream) -> None:
    assert status(raw(proxy(upstream.url).url, head()[:-2] + b"X: " + b"y" * (1 << 20))) == 400
    assert upstream.seen == []


@pytest.mark.parametrize("sent", [b"", b"POST /v1/mess", head("/v1/messages", "A: b")[:-2]])
def test_a_slow_head_is_not_waited_for(proxy: Start, upstream: Upstream, sent: bytes) -> None:
    assert raw(proxy(upstream.url, client_timeout=0.3).url, sent) == b""
    assert upstream.seen == []


def test_a_slow_body_is_not_waited_for(proxy: Start, upstream: Upstream) -> None:
    url = proxy(upstream.url, client_timeout=0.3).url
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port), PATIENCE) as sock:
        sock.sendall(head("/v1/messages", "Content-Length: 100000"))
        ended = threading.Event()

        def drip() -> None:
            while not ended.wait(0.05):
                try:
                    sock.sendall(b" ")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        got = sock.recv(1 << 16)
        ended.set()
        dripping.join()
    assert status(got) == 408
    assert upstream.seen == []


def test_a_length_that_is_too_long(proxy: Start, upstream: Upstream) -> None:
    """The client ends before it has sent what it announced: nothing goes out."""
    raw(
        proxy(upstream.url).url, head("/v1/messages", "Content-Length: 99") + b"{}", half_close=True
    )
    assert upstream.seen == []


def test_a_length_that_is_too_short(proxy: Start, upstream: Upstream) -> None:
    """What is left over is no request, and ends the connection."""
    body = b'{"messages":[]}'
    got = raw(proxy(upstream.url).url, head("/v1/messages", "Content-Length: 5") + body)
    assert b"400 Bad Request" in got
    assert all(seen.body == body[:5] for seen in upstream.seen)


SMUGGLED = b"GET /admin HTTP/1.1\r\nHost: localhost\r\n\r\n"
TRICKS: dict[str, bytes] = {
    "both lengths": head("/v1/messages", "Content-Length: 4", "Transfer-Encoding: chunked")
    + b"0\r\n\r\n"
    + SMUGGLED,
    "two lengths": head("/v1/messages", "Content-Length: 4", "Content-Length: 40") + SMUGGLED,
    "a signed length": head("/v1/messages", "Content-Length: +4") + b"{}{}" + SMUGGLED,
    "a list of lengths": head("/v1/messages", "Content-Length: 4, 4") + b"{}{}" + SMUGGLED,
    "an odd encoding": head("/v1/messages", "Transfer-Encoding: xchunked") + SMUGGLED,
    "an encoding twice": head("/v1/messages", "Transfer-Encoding: chunked, chunked") + SMUGGLED,
    "white space before the colon": head("/v1/messages", "Transfer-Encoding : chunked") + SMUGGLED,
    "a folded header": head("/v1/messages", "X: y", " Transfer-Encoding: chunked") + SMUGGLED,
    "a bare line feed": b"POST /v1/messages HTTP/1.1\nHost: localhost\nContent-Length: 4\n\n{}{}",
    "a bare return in a value": head("/v1/messages", "X: a\rContent-Length: 4") + SMUGGLED,
    "nul in a value": head("/v1/messages", "X: a\0b"),
    "a chunk size that is none": head("/v1/messages", "Transfer-Encoding: chunked")
    + b"-1\r\n\r\n"
    + SMUGGLED,
    "a chunk size beyond numbers": head("/v1/messages", "Transfer-Encoding: chunked")
    + b"FFFFFFFFFFFFFFFFFF\r\n"
    + SMUGGLED,
}


@pytest.mark.parametrize("trick", TRICKS)
def test_nothing_is_smuggled(proxy: Start, upstream: Upstream, trick: str) -> None:
    raw(proxy(upstream.url).url, TRICKS[trick], half_close=True)
    assert not any(seen.target == "/admin" for seen in upstream.seen)
    assert all(seen.one("transfer-encoding") is None for seen in upstream.seen)


def test_line_breaks_in_headers_do_not_get_through(proxy: Start, upstream: Upstream) -> None:
    """Neither into the request, nor from an upstream's reply into ours."""
    url = proxy(upstream.url).url
    got = raw(url, head("/v1/models?x=%0d%0aX:y", "Connection: close", method="GET"))
    assert status(got) == 200
    assert upstream.last.target == "/v1/models?x=%0d%0aX:y"
    assert upstream.last.one("x") is None
    upstream.script = lambda wire: wire.send(
        b"HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: c\r\nContent-Length: 0\r\n\r\n"
    )
    got = raw(url, head("/v1/models", "Connection: close", method="GET"))
    assert status(got) == 502
    assert b"Set-Cookie" not in got


BROKEN_BODIES = {
    "not UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "half an escape": b'{"messages": [{"role": "user", "content": "\\ud8"}]}',
    "cut": FINE[: len(FINE) // 2],
    "empty": b"",
    "a list": b"[]",
    "text": b"hello",
    "NaN": b'{"messages": [], "x": NaN}',
    "a byte order mark": b"\xef\xbb\xbf" + FINE,
    "UTF-16": FINE.decode().encode("utf-16"),
    "deep": b'{"messages": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a long number": b'{"messages": [], "n": ' + b"9" * 10_000 + b"}",
    "messages that are none": b'{"messages": 7, "input": {}, "contents": "x"}',
}


@pytest.mark.parametrize("name", BROKEN_BODIES)
def test_bodies_that_are_none_pass_as_they_are(proxy: Start, upstream: Upstream, name: str) -> None:
    proxied = proxy(upstream.url)
    for case in EACH_DIALECT:
        got = send(proxied.url, case.path, BROKEN_BODIES[name])
        assert (got.status, got.header("lockstitch-error")) == (200, None)
        assert upstream.last.body == BROKEN_BODIES[name]


@pytest.fixture(scope="module")
def standing() -> Any:
    """A proxy and its upstream for all of the module: a body is sent faster than they start."""
    from lockstitch.proxy import Settings
    from lockstitch.proxy import Upstream as Target
    from lockstitch.proxy.server import running
    from tests.proxy.upstream import listening

    with listening() as upstream:
        made = Settings(port=0, upstreams=(Target(url=upstream.url),))
        with running(made, log=lambda _: None) as url:
            yield Proxied(url), upstream


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(("role", "content", "parts", "type", "id", "messages", "input", "x")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=int(os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES", "40")))
@given(data=st.data())
def test_no_body_makes_the_proxy_fail(standing: Any, data: st.DataObject) -> None:
    proxied, upstream = standing
    case = data.draw(st.sampled_from(EACH_DIALECT))
    kind = data.draw(st.sampled_from(("bytes", "value", "messages", "cut")))
    if kind == "bytes":
        body = data.draw(st.binary(max_size=200))
    elif kind == "cut":
        body = FINE[: data.draw(st.integers(0, len(FINE)))]
    else:
        value = data.draw(ANYTHING)
        found = value if kind == "value" else {case.list_key: value}
        body = json.dumps(found).encode("utf-8", "surrogatepass")
    got = send(proxied.url, case.path, body)
    assert (got.status, got.header("lockstitch-error")) == (200, None)
    if got.header("lockstitch-repaired") is None:
        assert upstream.last.body == body
    upstream.seen.clear()


def failing(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("content of a person")


def test_a_failure_of_our_own_lets_the_original_through(
    proxy: Start, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "heal_body", failing)
    proxied = proxy(upstream.url)
    got = send(proxied.url, MESSAGES.path, BAD)
    assert (got.status, upstream.last.body) == (200, BAD)
    assert got.header("lockstitch-error") == "check-failed; ZeroDivisionError"
    assert "person" not in str(proxied.log)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_failure_of_our_own_is_an_error_for_the_strict(
    proxy: Start, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, case: Any
) -> None:
    monkeypatch.setattr(forwarding, "heal_body", failing)
    got = send(proxy(upstream.url, fail_closed=True).url, case.path, case.body(BROKEN[0].turns))
    assert (got.status, upstream.seen) == (500, [])
    assert "could not be checked" in json.dumps(got.value)
    assert got.header("lockstitch-error") == "check-failed"


def test_what_cannot_be_healed_is_told(proxy: Start, upstream: Upstream) -> None:
    """Too large, and no image to leave out."""
    body = json.dumps({"messages": [{"role": "user", "content": "x" * (33 << 20)}]}).encode()
    got = send(proxy(upstream.url).url, MESSAGES.path, body)
    assert (got.status, got.header("lockstitch-left")) == (200, "LS504=1")
    assert len(upstream.last.body) == len(body)
    got = send(proxy(upstream.url, fail_closed=True).url, MESSAGES.path, body)
    assert (got.status, len(upstream.seen)) == (400, 1)


def test_keys_are_never_logged(proxy: Start, upstream: Upstream) -> None:
    proxied = proxy(upstream.url)
    secret = f"sk-{os.urandom(8).hex()}"
    headers = {**JSON, "x-api-key": secret, "Authorization": f"Bearer {secret}"}
    send(proxied.url, f"{MESSAGES.path}?key={secret}", BAD, headers)
    send(proxied.url, f"/v1/other/{secret}", BAD, headers)
    assert upstream.last.one("x-api-key") == secret
    assert secret not in str(proxied.log)
    told = send(proxied.url, "/metrics", None, {}, "GET").data.decode()
    assert secret not in told
    assert 'lockstitch_proxy_repairs_total{code="LS101"} 1' in told
