"""What any program on this machine can send, well-meant or not, and what is kept of it."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from lockstitch.provider import Reply
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.service import wire_at
from tests.provider.conftest import Running

Start = Callable[..., Running]

SECRET = "sk-very-secret"  # noqa: S105 - the point is that it is found nowhere
WORDS = "words of a person"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {
        "model": "claude-fable-5",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": WORDS}],
    },
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": WORDS}]},
    "/v1/responses": {"model": "m", "input": [{"role": "user", "content": WORDS}]},
    "/v1beta/models/gemini-3-pro:generateContent": {
        "contents": [{"role": "user", "parts": [{"text": WORDS}]}]
    },
    "/model/anthropic.claude-sonnet-5-v1%3A0/converse": {
        "messages": [{"role": "user", "content": [{"text": WORDS}]}]
    },
}
PATHS = tuple(BODIES)
# What an error of each API says about itself beside its words.
KINDS = {
    "anthropic": {
        400: "invalid_request_error",
        403: "permission_error",
        404: "not_found_error",
        405: "invalid_request_error",
        413: "request_too_large",
        415: "invalid_request_error",
    },
    "openai-chat": {403: "permission_error"},
    "openai-responses": {403: "permission_error"},
    "gemini": {403: "PERMISSION_DENIED", 404: "NOT_FOUND"},
    "bedrock": {403: "AccessDeniedException", 404: "ResourceNotFoundException"},
}
OTHERS = {"gemini": "INVALID_ARGUMENT", "bedrock": "ValidationException"}
JSON = {"Content-Type": "application/json"}


def send(
    running: Running,
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], Any]:
    """One bare request: the status, the headers and the decoded body of what comes back."""
    connection = HTTPConnection(running.url.removeprefix("http://"), timeout=600)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, JSON if headers is None else headers)
        answer = connection.getresponse()
        text = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, json.loads(text) if text.startswith(b"{") else text
    finally:
        connection.close()


def words_of(path: str, answer: tuple[int, dict[str, str], Any]) -> str:
    """The words of an error, which must have the shape of the API at that path."""
    status, headers, body = answer
    wire = wire_at(path)
    assert wire is not None
    kind = KINDS[wire.dialect].get(status, OTHERS.get(wire.dialect, "invalid_request_error"))
    if wire.dialect == "bedrock":
        assert headers["x-amzn-errortype"] == kind
        assert list(body) == ["message"]
        return str(body["message"])
    error = body["error"]
    if wire.dialect == "gemini":
        assert (list(error), error["code"]) == (["code", "message", "status"], status)
        assert error["status"] == kind
    elif wire.dialect == "anthropic":
        assert (body["type"], list(error), error["type"]) == ("error", ["type", "message"], kind)
    else:
        assert (list(error), error["type"]) == (["message", "type", "param", "code"], kind)
    return str(error["message"])


@pytest.mark.parametrize("path", PATHS)
def test_the_host_must_be_this_machine(provider: Start, path: str) -> None:
    running = provider()
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost:x", ""):
        answer = send(running, path, BODIES[path], headers={**JSON, "Host": host})
        assert answer[0] == 403, host
        assert words_of(path, answer) == "Host must be 127.0.0.1 or localhost"
    assert running.log == []
    port = running.url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", f"localhost:{port}"):
        assert send(running, path, BODIES[path], headers={**JSON, "Host": host})[0] == 200, host


@pytest.mark.parametrize("path", PATHS)
def test_a_page_from_elsewhere_gets_no_permission(provider: Start, path: str) -> None:
    running = provider()
    origin = {"Origin": "https://evil.example"}
    asked = {**origin, "Access-Control-Request-Method": "POST"}
    status, headers, _ = send(running, path, method="OPTIONS", headers=asked)
    assert status == 405
    assert not any(name.startswith("access-control") for name in headers)
    status, headers, _ = send(running, path, BODIES[path], headers={**JSON, **origin})
    assert not any(name.startswith("access-control") for name in headers)
    plain = {**origin, "Content-Type": "text/plain"}
    assert send(running, path, BODIES[path], headers=plain)[0] == 415
    assert len(running.log) == 1


@pytest.mark.parametrize("path", PATHS)
def test_a_refusal_has_the_shape_of_the_api_that_was_asked(provider: Start, path: str) -> None:
    running = provider()
    untyped = send(running, path, BODIES[path], headers={"Content-Type": ""})
    assert untyped[0] == 415
    assert words_of(path, untyped) == "Content-Type must be application/json"
    for method in ("GET", "PUT", "OPTIONS"):
        answer = send(running, path, method=method, headers={})
        assert answer[0] == 405
        assert words_of(path, answer)
    unknown = send(running, f"{path}/nothing", BODIES[path])
    assert unknown[0] == 404
    assert words_of(path, unknown) == "Not Found"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"1", b"\xff", b'{"model": NaN}'])
def test_what_is_no_json_object_is_refused(provider: Start, path: str, data: bytes) -> None:
    answer = send(provider(), path, data)
    wire = wire_at(path)
    assert wire is not None
    assert answer[0] == 400
    assert words_of(path, answer) == wire.not_json()


@pytest.mark.parametrize("path", PATHS)
def test_required_fields_are_required(provider: Start, path: str) -> None:
    running = provider()
    wire = wire_at(path)
    assert wire is not None
    for field in wire.required:
        rest = {key: value for key, value in BODIES[path].items() if key != field}
        answer = send(running, path, rest)
        assert answer[0] == 400
        assert words_of(path, answer) == wire.lacks(field)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", [7, {"a": 1}, [7], [[]], [None], True])
def test_junk_for_messages_is_an_answer_not_a_crash(provider: Start, path: str, value: Any) -> None:
    wire = wire_at(path)
    assert wire is not None
    answer = send(provider(), path, {**BODIES[path], wire.list_key: value})
    assert answer[0] == 400, answer
    assert words_of(path, answer)


def test_deep_nesting_is_an_answer_not_a_crash(provider: Start) -> None:
    deep = b'{"model":"m","max_tokens":1,"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert send(provider(), "/v1/messages", deep)[0] == 400


def test_a_lone_surrogate_is_refused(provider: Start) -> None:
    body = json.dumps(BODIES["/v1/messages"]).replace(WORDS, "\\ud83d").encode()
    running = provider()
    assert send(running, "/v1/messages", body)[0] == 400
    assert running.log[0].findings


def test_unknown_paths(provider: Start) -> None:
    running = provider()
    for path in ("/v2/nothing", "/v1/embeddings", "/v1beta/models/m:embed", "/model/m/invoke"):
        status, _, body = send(running, path, {"input": "x"})
        assert status == 404, path
        assert "Not Found" in json.dumps(body), path
    assert send(running, "/", method="HEAD", headers={})[0] == 200
    assert send(running, "/v1/messages", method="GET", headers={})[0] == 405


def test_a_body_that_is_too_large(provider: Start) -> None:
    running = provider()
    status, _, body = send(running, "/v1/messages", b" " * ((64 << 20) + 1))
    assert (status, body["error"]["type"]) == (413, "request_too_large")


def test_bodies_are_kept_as_they_came_for_the_owner_only(provider: Start, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "requests"
    running = provider(records=folder)
    odd = b' {"model":"m", "messages":[ {"role":"user","content":"\\u0041"} ] }\n'
    send(running, "/v1/chat/completions", odd, headers={**JSON, "Authorization": SECRET})
    send(running, "/v1/messages", b"not json", headers={**JSON, "x-api-key": SECRET})
    send(running, "/v1/messages/count_tokens", BODIES["/v1/messages"])
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == [
        "000001-openai-chat.json",
        "000002-anthropic.json",
        "000003-anthropic-count.json",
    ]
    assert files[0].read_bytes() == odd
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert [entry.record for entry in running.log] == [path.name for path in files]


def test_a_second_run_goes_on_counting(provider: Start, tmp_path: Path) -> None:
    for _ in range(2):
        send(provider(records=tmp_path), "/v1/responses", BODIES["/v1/responses"])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["000001-openai-responses.json", "000002-openai-responses.json"]


@pytest.mark.parametrize("path", PATHS)
def test_the_log_has_no_content(provider: Start, path: str) -> None:
    running = provider()
    send(running, path, BODIES[path], headers={**JSON, "x-api-key": SECRET})
    assert len(running.log) == 1
    assert WORDS not in repr(running.log)
    assert SECRET not in repr(running.log)


def test_a_call_waits_for_a_request_that_offers_the_tool(provider: Start) -> None:
    running = provider(Reply(calls=(Call("bash"),)), Reply("after"))
    body = BODIES["/v1/messages"]
    tools = {**body, "tools": [{"name": "bash", "input_schema": {"type": "object"}}]}
    said = [send(running, "/v1/messages", each)[2] for each in (body, tools, body, body)]
    kinds = [(block["type"], block.get("text")) for message in said for block in message["content"]]
    assert kinds == [("text", "ok"), ("tool_use", None), ("text", "after"), ("text", "ok")]


def test_ids_are_the_same_each_run_and_differ_as_the_history_grows(provider: Start) -> None:
    body = BODIES["/v1/messages"]
    longer = {**body, "messages": [*body["messages"], *body["messages"]]}
    running = provider()
    first, again, other = (send(running, "/v1/messages", b)[2]["id"] for b in (body, body, longer))
    assert first == again != other
    assert send(provider(), "/v1/messages", body)[2]["id"] == first


def test_providers_run_side_by_side(provider: Start) -> None:
    assert provider().url != provider().url


def test_others_are_served_while_a_large_request_is_judged(provider: Start, tmp_path: Path) -> None:
    running = provider(records=tmp_path)
    call = {"type": "tool_use", "name": "bash", "input": {}}
    large = [
        message
        for number in range(20_000)
        for message in (
            {"role": "user", "content": WORDS},
            {"role": "assistant", "content": [{**call, "id": f"toolu_{number}"}]},
        )
    ]
    body = {**BODIES["/v1/messages"], "messages": large}
    sending = threading.Thread(target=send, args=(running, "/v1/messages", body))
    sending.start()
    # What came is kept before it is judged.
    while not list(tmp_path.glob("*.json")):
        time.sleep(0.001)
    assert send(running, "/v1/messages", BODIES["/v1/messages"])[0] == 200
    sending.join()
    assert [entry.messages for entry in running.log] == [1, len(large)]
