"""How programs are led to the proxy, and where the proxy sends to then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from lockstitch.errors import UsageError
from lockstitch.launch import CommandLine, ProxyWay, fill_way, find_known_command, find_way

URL = "http://127.0.0.1:8484"


def made(
    root: Path,
    *words: str,
    environ: Mapping[str, str] | None = None,
    upstream: str | None = None,
    files: Mapping[str, str] | None = None,
) -> ProxyWay:
    """The way of a command line in a home with some files."""
    home, work = root / "home", root / "work"
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    found = find_known_command(words)
    at = found.at if found else 1
    return find_way(found, CommandLine([*words], at, work, home, environ or {}), upstream)


def urls(found: ProxyWay) -> set[str]:
    return {upstream.url for upstream in found.upstreams}


def test_the_base_url_of_claude_code_becomes_the_upstream(tmp_path: Path) -> None:
    found = made(tmp_path, "claude", environ={"ANTHROPIC_BASE_URL": "https://gate.example/a/"})
    assert urls(found) == {"https://gate.example/a"}
    assert fill_way(found, URL, "") == (["claude"], {"ANTHROPIC_BASE_URL": URL})
    assert urls(made(tmp_path, "claude")) == {"https://api.anthropic.com"}


def test_a_base_url_in_the_settings_of_claude_code_is_overridden(tmp_path: Path) -> None:
    settings = json.dumps({"env": {"ANTHROPIC_BASE_URL": "https://gate.example"}})
    found = made(tmp_path, "claude", "-c", files={"work/.claude/settings.local.json": settings})
    assert urls(found) == {"https://gate.example"}
    words, _ = fill_way(found, URL, "")
    assert words[:2] == ["claude", "--settings"]
    assert json.loads(words[2]) == {"env": {"ANTHROPIC_BASE_URL": URL}}
    assert words[3:] == ["-c"]
    found = made(tmp_path, "claude", "--settings", "mine.json")
    assert not found.upstreams
    assert found.why


def test_claude_code_in_a_cloud_goes_its_own_way(tmp_path: Path) -> None:
    found = made(tmp_path, "claude", environ={"CLAUDE_CODE_USE_BEDROCK": "1"})
    assert not found.upstreams
    assert found.why


CONFIG = """
model_provider = "gate"
[model_providers.gate]
base_url = "https://gate.example/v1"
[model_providers.other]
base_url = "https://other.example/api"
[profiles.second]
model_provider = "other"
"""


@pytest.mark.parametrize(
    ("words", "upstream", "override"),
    [
        ([], "https://gate.example", f'model_providers.gate.base_url="{URL}/v1"'),
        (
            ["-p", "second"],
            "https://other.example/api",
            f'model_providers.other.base_url="{URL}"',
        ),
        (
            ["-c", "model_provider=openai"],
            "https://api.openai.com",
            f'openai_base_url="{URL}/v1"',
        ),
        (
            ["-c", "model_providers.gate.base_url=https://mine.example/v1"],
            "https://mine.example",
            f'model_providers.gate.base_url="{URL}/v1"',
        ),
    ],
)
def test_the_provider_of_codex_is_found_in_its_settings(
    words: list[str], upstream: str, override: str, tmp_path: Path
) -> None:
    found = made(tmp_path, "codex", *words, files={"home/.codex/config.toml": CONFIG})
    assert urls(found) == {upstream}
    line, environ = fill_way(found, URL, "")
    at = line.index(override)
    assert line[at - 1] == "-c"
    assert not environ
    assert sum("base_url" in word for word in line) == 1


def test_codex_with_an_account_is_led_to_where_that_is(tmp_path: Path) -> None:
    tokens = json.dumps({"tokens": {"access_token": "x"}})
    found = made(tmp_path, "codex", files={"home/.codex/auth.json": tokens})
    assert urls(found) == {"https://chatgpt.com/backend-api/codex"}
    assert fill_way(found, URL, "")[0] == ["codex", "-c", f'openai_base_url="{URL}"']


@pytest.mark.parametrize("given", ["{", "[]"])
def test_settings_of_opencode_that_are_none_are_named(tmp_path: Path, given: str) -> None:
    with pytest.raises(UsageError, match="OPENCODE_CONFIG_CONTENT"):
        made(tmp_path, "opencode", environ={"OPENCODE_CONFIG_CONTENT": given})


def test_the_providers_of_opencode_have_paths_of_their_own(tmp_path: Path) -> None:
    own = json.dumps({"provider": {"router": {"options": {"baseURL": "https://r.example/api/v1"}}}})
    given = json.dumps({"model": "x", "provider": {"anthropic": {"options": {"timeout": 9}}}})
    found = made(
        tmp_path,
        "opencode",
        environ={"OPENCODE_CONFIG_CONTENT": given},
        files={"work/opencode.json": own},
    )
    assert "https://r.example/api" in urls(found)
    _, environ = fill_way(found, URL, "")
    config = json.loads(environ["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == "x"
    options = {name: value["options"] for name, value in config["provider"].items()}
    assert options["router"] == {"baseURL": f"{URL}/to-router/v1"}
    assert options["anthropic"] == {"timeout": 9, "baseURL": f"{URL}/v1"}
    assert options["google"] == {"baseURL": f"{URL}/v1beta"}


def test_pi_is_led_by_an_extension(tmp_path: Path) -> None:
    own = json.dumps({"providers": {"local": {"baseUrl": "http://127.0.0.1:9"}, "odd name": {}}})
    found = made(tmp_path, "pi", "-c", files={"home/.pi/agent/models.json": own})
    assert "http://127.0.0.1:9" in urls(found)
    words, _ = fill_way(found, URL, "/folder")
    assert words == ["pi", "--extension", "/folder/proxy.ts", "-c"]
    assert '"local", {"baseUrl"' in found.files["proxy.ts"]


def test_the_hosts_of_goose_are_found_in_its_settings(tmp_path: Path) -> None:
    config = 'GOOSE_PROVIDER: anthropic\nANTHROPIC_HOST: "https://gate.example"\n'
    found = made(tmp_path, "goose", "session", files={"home/.config/goose/config.yaml": config})
    assert urls(found) >= {"https://gate.example", "https://api.openai.com"}
    assert fill_way(found, URL, "")[1]["ANTHROPIC_HOST"] == URL


def test_any_other_program_gets_both_variables(tmp_path: Path) -> None:
    found = made(tmp_path, "python", "a.py", environ={"OPENAI_BASE_URL": "https://gate.example/v9"})
    assert urls(found) == {"https://api.anthropic.com", "https://gate.example/v9"}
    assert fill_way(found, URL, "") == (
        ["python", "a.py"],
        {"ANTHROPIC_BASE_URL": URL, "OPENAI_BASE_URL": URL},
    )


@pytest.mark.parametrize("program", ["claude", "codex", "gemini", "opencode", "pi", "goose", "x"])
def test_an_upstream_that_is_given_takes_everything(program: str, tmp_path: Path) -> None:
    found = made(tmp_path, program, upstream="http://127.0.0.1:8400/v1/")
    assert urls(found) == {"http://127.0.0.1:8400"}


def test_the_proxy_of_a_company_stays_on_the_way(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://gate:3128", "HTTP_PROXY": "http://gate:3128", "NO_PROXY": "x"}
    found = made(tmp_path, "claude", environ=environ)
    assert [one.proxy for one in found.upstreams] == ["http://gate:3128"]
    assert fill_way(found, URL, "")[1]["NO_PROXY"] == "x,127.0.0.1,localhost"
    found = made(tmp_path, "claude", environ=environ, upstream="http://127.0.0.1:8400")
    assert [one.proxy for one in found.upstreams] == [""]
