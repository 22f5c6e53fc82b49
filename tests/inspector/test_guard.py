"""Whom the page refuses: strangers on this machine, and pages of other sites."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lockstitch.inspector.server import HEADER, HEADERS, PageGuard
from tests.inspector import scenes

Serve = Callable[[Path | str | None], str]
JSON = {"Content-Type": "application/json"}


class Caller:
    """Asks a server as any program on this machine can."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.host, self.token = parts.netloc, parts.fragment.removeprefix("token=")
        self.secrets: dict[str, str] = {}

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str | None
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request; gives status, what the JSON says, and the headers."""
        given = {"Host": self.host, **self.secrets}
        if method == "POST":
            given |= {"Origin": f"http://{self.host}", **JSON}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {**given, **named}
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        data = b"" if body is None else data
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        found = dict(answer.getheaders())
        is_json = found.get("Content-Type", "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else text, found

    def enter(self) -> None:
        """Hand the token in, and keep what is given for it."""
        status, given, headers = self.ask("POST", "/api/enter", {"token": self.token})
        assert status == 200
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        self.secrets = {"Cookie": cookie.partition(";")[0], HEADER: given["token"]}


@pytest.fixture
def caller(tmp_path: Path, served: Serve) -> Caller:
    scenes.interrupted(tmp_path)
    return Caller(served(tmp_path))


def test_the_token_is_good_for_one_use(caller: Caller) -> None:
    assert caller.ask("GET", "/api/store")[0] == 401
    assert caller.ask("POST", "/api/enter", {"token": "x" * 43})[0] == 403
    assert caller.ask("POST", "/api/enter", {"token": None})[0] == 403
    assert caller.ask("POST", "/api/enter", {})[0] == 403
    caller.enter()
    assert caller.ask("GET", "/api/session/none")[0] == 404
    assert caller.ask("POST", "/api/enter", {"token": caller.token})[0] == 403


def test_the_cookie_and_the_token_are_both_asked_for(caller: Caller) -> None:
    caller.enter()
    both = caller.secrets
    for one in both:
        caller.secrets = {one: both[one]}
        assert caller.ask("GET", "/api/session/none")[0] == 401
    caller.secrets = {**both, HEADER: both[HEADER][:-1] + "é"}
    assert caller.ask("GET", "/api/session/none")[0] == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "", "127.0.0.1.:80"])
def test_another_host_is_refused(caller: Caller, host: str) -> None:
    caller.enter()
    for path in ("/", "/assets/main.js", "/api/session/none"):
        status, said, _ = caller.ask("GET", path, Host=host)
        assert (status, "Host" in said["error"]) == (403, True)


def test_the_name_localhost_is_fine(caller: Caller) -> None:
    port = caller.host.partition(":")[2]
    assert caller.ask("GET", "/", Host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:1", ""])
def test_another_origin_is_refused(caller: Caller, origin: str) -> None:
    caller.enter()
    assert caller.ask("GET", "/api/session/none", Origin=origin)[0] == 403
    assert caller.ask("POST", "/api/scan", {}, Origin=origin)[0] == 403


def test_what_changes_needs_an_origin_and_json(caller: Caller) -> None:
    caller.enter()
    assert caller.ask("POST", "/api/scan", {}, Origin=None)[0] == 403
    assert caller.ask("POST", "/api/scan", {}, Content_Type="text/plain")[0] == 403
    assert caller.ask("POST", "/api/scan", {}, Content_Type=None)[0] == 403
    assert caller.ask("POST", "/api/scan", {}, Sec_Fetch_Site="cross-site")[0] == 403
    assert caller.ask("POST", "/api/scan", {}, Sec_Fetch_Site="same-site")[0] == 403
    assert caller.ask("POST", "/api/scan", b"[1]")[0] == 200
    assert caller.ask("POST", "/api/scan", {}, Sec_Fetch_Site="same-origin")[0] == 200


def test_every_answer_has_its_headers(caller: Caller) -> None:
    answers = [
        caller.ask("GET", "/"),
        caller.ask("GET", "/assets/main.js"),
        caller.ask("GET", "/assets/none"),
        caller.ask("GET", "/nowhere"),
        caller.ask("DELETE", "/"),
        caller.ask("GET", "/api/store"),
        caller.ask("GET", "/", Host="evil.example"),
    ]
    assert [status for status, _, _ in answers] == [200, 200, 404, 404, 403, 401, 403]
    for _, _, headers in answers:
        assert {name: headers.get(name) for name in HEADERS} == HEADERS


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../server.py",
        "/assets/..%2fserver.py",
        "/assets/%2e%2e/%2e%2e/report.py",
        "/assets//etc/passwd",
        "/assets/",
        "//etc/passwd",
    ],
)
def test_nothing_but_assets_is_served(caller: Caller, path: str) -> None:
    assert caller.ask("GET", path)[0] == 404


def test_an_odd_body_is_refused_and_not_repeated(caller: Caller) -> None:
    caller.enter()
    [name] = known_ids(caller)
    for body in (b"{", b"[]", b'"words"', b"\xff", b""):
        for deed in ("plan", "do", "export"):
            status, said, _ = caller.ask("POST", f"/api/session/{name}/{deed}", body)
            assert status == 400
            assert said["error"].startswith("the body of a request must be")
    for action in ("explode", "", "rewind"):
        status, said, _ = caller.ask("POST", f"/api/session/{name}/plan", {"action": action})
        assert (status, "not available" in said["error"]) == (422, True)
    assert caller.ask("GET", f"/api/session/{name}/rows?from=-1&version=1")[0] in (400, 410)
    assert caller.ask("POST", f"/api/session/{name}/plan", b"x" * (2 << 20))[0] == 413


def known_ids(caller: Caller) -> list[str]:
    """The ids in the first events of a list that is whole."""
    connection = http.client.HTTPConnection(caller.host, timeout=60)
    connection.request("GET", "/api/events", headers={"Host": caller.host, **caller.secrets})
    answer = connection.getresponse()
    assert answer.getheader("Content-Type", "").startswith("text/event-stream")
    found: set[str] = set()
    while True:
        line = answer.readline().strip()
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            found |= {row["id"] for row in event.get("rows", [])}
            if event.get("state", {}).get("is_done"):
                connection.close()
                return sorted(found)


def test_a_guard_compares_whatever_it_is_given() -> None:
    guard = PageGuard()
    for odd in (
        None,
        1,
        b"x",
        "",
        "\ud800",
        ["x"],
        guard.entrance.encode() if guard.entrance else 0,
    ):
        assert not guard.enters(odd)
        assert not guard.knows(odd, odd)
    assert guard.enters(guard.entrance)
    assert not guard.enters(None)
    assert guard.knows(guard.cookie, guard.token)
    assert not guard.knows(guard.token, guard.cookie)
