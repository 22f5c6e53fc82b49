"""Who may send what to whom: the upstreams are fixed, and strangers are turned away."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from lockstitch.errors import UsageError
from lockstitch.proxy import Settings, Upstream, check_settings
from tests.kinds_of_break.conversations import HEALTHY
from tests.proxy import upstream as servers
from tests.proxy.bodies import CASES
from tests.proxy.conftest import Start
from tests.proxy.sending import JSON, raw, send

MESSAGES = CASES[0]
BODY = MESSAGES.body(HEALTHY.turns)
TOKEN = "a-token-of-some-length"  # noqa: S105 - of this test


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost:x",
        "localhost@evil.example",
        "evil.example#localhost",
        "0.0.0.0",  # noqa: S104 - a name that must not be taken
        "[::ffff:7f00:1]",
        "",
    ],
)
def test_a_name_that_only_points_here(proxy: Start, upstream: servers.Upstream, host: str) -> None:
    got = send(proxy(upstream.url).url, MESSAGES.path, BODY, {**JSON, "Host": host})
    assert (got.status, got.value["error"]["type"]) == (403, "permission_error")
    assert upstream.seen == []


def test_names_of_this_machine(proxy: Start, upstream: servers.Upstream) -> None:
    url = proxy(upstream.url, hosts=("llm.internal",)).url
    port = urlsplit(url).port
    for host in ("127.0.0.1", f"localhost:{port}", "[::1]:8484", "llm.internal:1"):
        assert send(url, MESSAGES.path, BODY, {**JSON, "Host": host}).status == 200, host


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_web_pages_from_elsewhere(
    proxy: Start, upstream: servers.Upstream, headers: dict[str, str]
) -> None:
    url = proxy(upstream.url).url
    for method in ("POST", "OPTIONS"):
        got = send(url, MESSAGES.path, BODY, {**JSON, **headers}, method)
        assert got.status == 403
        assert not any(name.lower().startswith("access-control") for name, _ in got.headers)
    assert upstream.seen == []


def test_web_pages_that_are_listed(proxy: Start, upstream: servers.Upstream) -> None:
    url = proxy(upstream.url, origins=("app://editor",)).url
    for origin in ("app://editor", "http://localhost:3000", "http://127.0.0.1"):
        assert send(url, MESSAGES.path, BODY, {**JSON, "Origin": origin}).status == 200


def test_a_token_is_asked_for(proxy: Start, upstream: servers.Upstream) -> None:
    url = proxy(upstream.url, token=TOKEN).url
    for headers in ({}, {"lockstitch-token": "wrong"}, {"Authorization": f"Bearer {TOKEN}"}):
        got = send(url, MESSAGES.path, BODY, {**JSON, **headers})
        assert (got.status, got.value["error"]["type"]) == (401, "authentication_error")
    assert send(url, f"/lockstitch/token/wrong{MESSAGES.path}", BODY).status == 401
    assert send(url, "/metrics", None, {}, "GET").status == 403
    assert upstream.seen == []
    mine = {**JSON, "Lockstitch-Token": TOKEN, "Authorization": "Bearer of the client"}
    assert send(url, MESSAGES.path, BODY, mine).status == 200
    assert upstream.last.one("lockstitch-token") is None
    assert upstream.last.one("authorization") == "Bearer of the client"
    assert send(url, f"/lockstitch/token/{TOKEN}{MESSAGES.path}", BODY).status == 200
    assert upstream.last.target == MESSAGES.path
    asked = {"Authorization": f"Bearer {TOKEN}"}
    assert send(url, "/metrics", None, asked, "GET").status == 200
    assert send(url, "/healthz", None, {}, "GET").value == {"status": "ok"}


ELSEWHERE = [
    "http://{other}/v1/messages",
    "//{other}/v1/messages",
    "/\\{other}/v1/messages",
    "/@{other}/v1/messages",
    "/v1/../../{other}/v1/messages",
    "/v1/%2e%2e/v1/messages",
    "/v1/..%2f..%2fadmin",
    "/v1/..;/admin",
    "/v1/./messages",
    "*",
    "{other}:443",
]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_no_request_chooses_where_it_goes(
    proxy: Start, upstream: servers.Upstream, path: str
) -> None:
    with servers.listening() as other:
        address = urlsplit(other.url).netloc
        target = path.format(other=address)
        method = "CONNECT" if target.endswith(":443") else "POST"
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        more = (
            f"X-Forwarded-Host: {address}\r\nX-Upstream: {other.url}\r\nForwarded: host={address}"
        )
        body = f"{head}{more}\r\nContent-Length: 2\r\n\r\n{{}}"
        raw(proxy(f"{upstream.url}/base").url, body.encode())
        assert other.seen == []
        assert all(seen.target.startswith("/base/") for seen in upstream.seen)
        assert all(seen.one("host") == urlsplit(upstream.url).netloc for seen in upstream.seen)
        assert not any(".." in seen.target for seen in upstream.seen)


def test_cookies_are_nobody_elses(proxy: Start, upstream: servers.Upstream) -> None:
    url = proxy(upstream.url).url
    upstream.script = lambda wire: wire.whole(b"{}", "200 OK", "Set-Cookie: who=one")
    assert send(url, MESSAGES.path, BODY).header("set-cookie") == "who=one"
    send(url, MESSAGES.path, BODY)
    assert upstream.last.one("cookie") is None


def test_the_environment_does_not_choose_a_proxy(
    proxy: Start, upstream: servers.Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servers.listening() as other:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
            monkeypatch.setenv(name, other.url)
        assert send(proxy(upstream.url).url, MESSAGES.path, BODY).status == 200
        assert other.seen == []
        through = (Upstream(url=upstream.url, proxy=other.url),)
        assert send(proxy("", upstreams=through).url, MESSAGES.path, BODY).status == 200
        assert other.last.target == upstream.url + MESSAGES.path


def test_headers_of_ours_are_not_believed(proxy: Start, upstream: servers.Upstream) -> None:
    upstream.script = lambda wire: wire.whole(b"{}", "200 OK", "lockstitch-repaired: LS999=1")
    got = send(proxy(upstream.url).url, MESSAGES.path, BODY)
    assert got.header("lockstitch-repaired") is None


def test_a_web_socket_is_declined(proxy: Start, upstream: servers.Upstream) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    got = send(proxy(upstream.url).url, "/v1/responses", None, headers, "GET")
    assert (got.status, upstream.seen) == (426, [])


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"},  # noqa: S104 - what must be refused
        {"host": "192.168.1.7"},
        {"token": "short"},
        {"token": "with a space in between"},
        {"upstreams": ()},
        {"upstreams": (Upstream(url="ftp://x"),)},
        {"upstreams": (Upstream(url="https://user:secret@x"),)},
        {"upstreams": (Upstream(url="https://x?key=1"),)},
        {"upstreams": (Upstream(url="https://x", prefix="no-slash"),)},
        {"upstreams": (Upstream(url="https://x", prefix="/lockstitch"),)},
        {"upstreams": (Upstream(url="https://x", profile="nobody"),)},
        {"upstreams": (Upstream(url="https://x", dialects=("nobody",)),)},
        {"port": 70000},
        {"workers": 0},
        {"max_body": 0},
    ],
    ids=str,
)
def test_settings_that_are_not_safe_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        check_settings(Settings(**settings))  # type: ignore[arg-type]


def test_the_token_is_in_no_representation() -> None:
    assert TOKEN not in repr(Settings(token=TOKEN))
