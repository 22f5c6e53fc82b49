"""Where requests go: routes, prefixes, configuration files and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstitch.errors import UsageError
from lockstitch.proxy import (
    DIALECTS,
    VENDORS,
    Settings,
    Upstream,
    parse_settings,
    profile_for,
    upstream_for,
    without_prefix,
)
from lockstitch.proxy.http import NAMES, is_sound, route_of
from tests.inprocess import command
from tests.kinds_of_break.conversations import BROKEN
from tests.proxy import upstream as servers
from tests.proxy.bodies import CASES
from tests.proxy.conftest import Start
from tests.proxy.sending import send

KNOWN = {
    "/v1/messages": ("messages", "anthropic", None),
    "/v1/messages/count_tokens": ("count_tokens", "anthropic", None),
    "/v1/chat/completions": ("chat", "openai-chat", None),
    "/chat/completions": ("chat", "openai-chat", None),
    "/openai/deployments/gpt-x/chat/completions": ("chat", "openai-chat", None),
    "/v1/responses": ("responses", "openai-responses", None),
    "/v1beta/models/gemini-3-pro:generateContent": ("generateContent", "gemini", "gemini-3-pro"),
    "/v1/projects/p/locations/l/publishers/google/models/gemini-3:streamGenerateContent": (
        "streamGenerateContent",
        "gemini",
        "gemini-3",
    ),
    "/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-5@1:streamRawPredict": (
        "messages",
        "anthropic",
        "claude-opus-5@1",
    ),
    "/model/anthropic.claude-v1%3A0/converse": ("converse", "bedrock", "anthropic.claude-v1:0"),
    "/model/anthropic.claude-v1:0/converse-stream": (
        "converse-stream",
        "bedrock",
        "anthropic.claude-v1:0",
    ),
}


@pytest.mark.parametrize("path", KNOWN)
def test_known_routes(path: str) -> None:
    route = route_of("POST", path, {})
    assert (route.name, route.dialect, route.model) == KNOWN[path]
    assert route.name in NAMES
    assert not route_of("GET", path, {}).is_known
    assert not route_of("POST", f"{path}/more", {}).is_known
    assert is_sound(path)


@pytest.mark.parametrize(
    ("path", "headers", "vendor"),
    [
        ("/v1/models", {"anthropic-version": "1"}, "anthropic"),
        ("/v1/messages/batches", {}, "anthropic"),
        ("/v1/models", {}, "openai-responses"),
        ("/v1/models", {"x-goog-api-key": "1"}, "gemini"),
        ("/v1beta/models", {}, "gemini"),
        ("/model/x/invoke", {}, "bedrock"),
    ],
)
def test_others_have_a_vendor(path: str, headers: dict[str, str], vendor: str) -> None:
    route = route_of("GET", path, headers)
    assert (route.is_known, route.vendor) == (False, vendor)


def test_the_vendors_take_what_is_theirs() -> None:
    for dialect in DIALECTS:
        found = upstream_for(VENDORS, dialect)
        assert found is not None
        assert found.url.startswith("https://")


def test_the_longest_prefix_wins() -> None:
    ups = (Upstream(url="http://a", prefix="/a"), Upstream(url="http://b", prefix="/a/b"))
    assert without_prefix(ups, "/a/b/v1/messages") == (ups[1], "/v1/messages")
    assert without_prefix(ups, "/a/bc/v1") == (ups[0], "/bc/v1")
    assert without_prefix(ups, "/ab/v1") == (None, "/ab/v1")


def test_a_profile_is_for_its_dialect() -> None:
    mistral = Upstream(url="http://a", profile="openai-chat:mistral")
    assert profile_for(mistral, "openai-chat") == "openai-chat:mistral"
    assert profile_for(mistral, "anthropic") == "anthropic"


CONFIG = """
port = 9000
token_file = "token"
fail_closed = true
idle_timeout = 60

[[upstream]]
prefix = "/openrouter"
url = "https://openrouter.ai/api"

[[upstream]]
dialects = ["openai-chat"]
url = "https://api.mistral.ai"
profile = "openai-chat:mistral"
"""


def test_a_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    made = parse_settings(CONFIG, tmp_path)
    assert (made.port, made.token, made.fail_closed) == (9000, "0123456789abcdef", True)
    chat, anthropic = (upstream_for(made.upstreams, name) for name in ("openai-chat", "anthropic"))
    assert chat is not None
    assert chat.profile == "openai-chat:mistral"
    assert anthropic is not None
    assert anthropic.url == "https://api.anthropic.com"


@pytest.mark.parametrize(
    "text", ["port = 'x'", "nonsense = 1", "[[upstream]]\nuri = 'x'", "= 1", "workers = 0"]
)
def test_a_configuration_that_is_wrong(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        parse_settings(text, tmp_path)


def test_several_upstreams(proxy: Start) -> None:
    with servers.listening() as one, servers.listening() as other:
        ups = (
            Upstream(url=f"{one.url}/api", prefix="/one"),
            Upstream(url=other.url, dialects=("anthropic",)),
        )
        proxied = proxy("", upstreams=ups)
        chat = CASES[2]
        got = send(proxied.url, f"/one{chat.path}?x=1", chat.body(BROKEN[1].turns))
        assert (got.status, got.header("lockstitch-repaired")) == (200, "LS101=1")
        assert one.last.target == f"/api{chat.path}?x=1"
        assert send(proxied.url, CASES[0].path, CASES[0].body(BROKEN[1].turns)).status == 200
        assert other.last.target == CASES[0].path
        got = send(proxied.url, chat.path, b"{}")
        assert (got.status, got.value["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "set a token first"),  # noqa: S104 - what must be refused
        (["--port", "x"], "--port takes a number"),
        (["--upstream", "nowhere"], "an upstream must be an http or https address"),
        (["no-such-file.toml"], "no-such-file.toml: no such file"),
        (["--token-file", "no-such-file"], "no-such-file: no such file"),
    ],
)
def test_a_command_line_that_is_wrong(words: list[str], said: str) -> None:
    done = command("proxy", *words)
    assert done.returncode == 2
    assert said in done.stderr.decode()


def test_settings_are_what_they_say_by_default() -> None:
    made = Settings()
    assert (made.host, made.port, made.is_local, made.retry) == ("127.0.0.1", 8484, True, True)
