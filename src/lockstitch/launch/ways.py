"""How each program is led to a proxy: variables, arguments, and where it would have sent to.

A way is worked out before the proxy has an address: ``HERE`` stands for that, and ``FOLDER`` for a
folder of its own with the files that the way needs. Nothing of a program's own settings is changed.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from lockstitch import dialects
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import read
from lockstitch.launch.commands import (
    CLAUDE,
    CODEX,
    GEMINI,
    GOOSE,
    OPENCODE,
    PI,
    Client,
    KnownCommand,
)
from lockstitch.proxy.settings import VENDORS, Upstream

HERE, FOLDER = "http://proxy.lockstitch.invalid", "/lockstitch.invalid"
_ANTHROPIC, _OPENAI, _GOOGLE = (vendor.url for vendor in VENDORS[:3])
_CHATGPT = "https://chatgpt.com/backend-api/codex"
_OF_OPENAI = (dialects.OPENAI_CHAT, dialects.OPENAI_RESPONSES)
_NAME = re.compile(r"[A-Za-z0-9._~-]+")


class CommandLine(Struct, frozen=True):
    """A command line as it was given, and what surrounds it."""

    words: list[str]
    at: int
    folder: Path
    home: Path
    environ: Mapping[str, str]

    @property
    def arguments(self) -> list[str]:
        """The arguments of the program itself."""
        return self.words[self.at :]


class ProxyWay(Struct):
    """How a program is led to the proxy; without upstreams it is not, and ``why`` says why."""

    words: list[str]
    upstreams: tuple[Upstream, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    why: str = ""

    def with_arguments(self, at: int, *more: str) -> None:
        """Put arguments in front of the program's own."""
        self.words = [*self.words[:at], *more, *self.words[at:]]


def find_way(known: KnownCommand | None, asked: CommandLine, upstream: str | None) -> ProxyWay:
    """Return the way of a program that is known, or one that leads most others."""
    made = _any(asked) if known is None else _WAYS[known.client.format](asked)
    if upstream is not None:
        bare, _ = split_version(upstream)
        made.upstreams = tuple(structs.replace(one, url=bare) for one in made.upstreams)
    made.upstreams = tuple(_through(one, asked.environ) for one in made.upstreams)
    if made.upstreams and {"HTTP_PROXY", "http_proxy", "ALL_PROXY"} & asked.environ.keys():
        before = asked.environ.get("NO_PROXY") or asked.environ.get("no_proxy") or ""
        around = ",".join(filter(None, (before, "127.0.0.1,localhost")))
        made.environ |= {"NO_PROXY": around, "no_proxy": around}
    return made


def _through(upstream: Upstream, environ: Mapping[str, str]) -> Upstream:
    """Send on through the HTTP proxy that the program would have taken."""
    names = ("HTTPS_PROXY",) if upstream.url.startswith("https:") else ("HTTP_PROXY",)
    found = next((environ[n] for name in names for n in (name, name.lower()) if environ.get(n)), "")
    is_local = re.match(r"https?://(?:localhost|127\.|\[::1\])", upstream.url)
    return structs.replace(upstream, proxy="" if is_local else found)


def split_version(base: str) -> tuple[str, str]:
    """Take the version off the end of a base address, where a proxy keeps it in the path."""
    bare = base.rstrip("/")
    return (bare.removesuffix("/v1"), "/v1") if bare.endswith("/v1") else (bare, "")


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a file, empty if there is none that can be read."""
    try:
        found = json.loads(read.read_file(path))
    except (LockstitchError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _deep(value: Any, *steps: str) -> Any:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _any(asked: CommandLine) -> ProxyWay:
    anthropic, _ = split_version(asked.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC)
    openai, version = split_version(asked.environ.get("OPENAI_BASE_URL") or f"{_OPENAI}/v1")
    upstreams = (
        Upstream(url=anthropic, dialects=(dialects.ANTHROPIC,)),
        Upstream(url=openai, dialects=_OF_OPENAI),
    )
    environ = {"ANTHROPIC_BASE_URL": HERE, "OPENAI_BASE_URL": f"{HERE}{version}"}
    return ProxyWay(asked.words, upstreams, environ)


_CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


def _claude(asked: CommandLine) -> ProxyWay:
    made = ProxyWay(asked.words)
    own = Path(asked.environ.get("CLAUDE_CONFIG_DIR") or asked.home / ".claude")
    project = asked.folder / ".claude"
    files = (own / "settings.json", project / "settings.json", project / "settings.local.json")
    settings: dict[str, str] = {}
    for path in files:
        found = _deep(_json(path), "env")
        settings |= found if isinstance(found, dict) else {}
    if any({**asked.environ, **settings}.get(name) for name in _CLOUDS):
        made.why = "it sends to a cloud provider, not to Anthropic"
        return made
    set_there = settings.get("ANTHROPIC_BASE_URL")
    base = set_there or asked.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC
    if set_there:
        if any(word.partition("=")[0] == "--settings" for word in asked.arguments):
            made.why = "its settings say where it sends to, and --settings is taken"
            return made
        # What settings say counts more than the environment; the last ones are these.
        given = json.dumps({"env": {"ANTHROPIC_BASE_URL": HERE}})
        made.with_arguments(asked.at, "--settings", given)
    made.upstreams = (Upstream(url=base.rstrip("/"), dialects=(dialects.ANTHROPIC,)),)
    made.environ = {"ANTHROPIC_BASE_URL": HERE}
    return made


def _codex(asked: CommandLine) -> ProxyWay:
    made = ProxyWay([*asked.words])
    home = Path(asked.environ.get("CODEX_HOME") or asked.home / ".codex")
    settings = _toml(home / "config.toml")
    overrides = _overrides(asked)
    provider = _codex_provider(asked, settings, overrides)
    if "--oss" in asked.arguments:
        made.why = "--oss asks a model on this machine"
        return made
    key = "openai_base_url" if provider == "openai" else f"model_providers.{provider}.base_url"
    base = overrides.get(key, (0, ""))[1] or _deep(settings, *key.split("."))
    if not base and provider == "openai":
        is_login = _deep(_json(home / "auth.json"), "tokens") and not (
            asked.environ.get("CODEX_API_KEY")
        )
        base = _CHATGPT if is_login else f"{_OPENAI}/v1"
    if not isinstance(base, str) or not base:
        made.why = f"it is not known where its provider {provider} is"
        return made
    bare, version = split_version(base)
    ours = f'{key}="{HERE}{version}"'
    if key in overrides:
        made.words[overrides[key][0]] = ours
    else:
        made.with_arguments(asked.at, "-c", ours)
    made.upstreams = (Upstream(url=bare),)
    return made


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read.read_file(path).decode())
    except (LockstitchError, ValueError):
        return {}


def _overrides(asked: CommandLine) -> dict[str, tuple[int, str]]:
    """Return the settings that a command line overrides: where each stands, and its value."""
    found = {}
    for at in range(asked.at, len(asked.words) - 1):
        if asked.words[at] in ("-c", "--config"):
            key, _, value = asked.words[at + 1].partition("=")
            found[key.strip()] = at + 1, value.strip().strip("\"'")
    return found


def _codex_provider(
    asked: CommandLine, settings: dict[str, Any], overrides: dict[str, tuple[int, str]]
) -> str:
    if "model_provider" in overrides:
        return overrides["model_provider"][1]
    profile = settings.get("profile", "")
    for at, word in enumerate(asked.arguments[:-1]):
        if word in ("-p", "--profile"):
            profile = asked.arguments[at + 1]
    in_profile = _deep(settings, "profiles", profile, "model_provider")
    return str(in_profile or settings.get("model_provider") or "openai")


def _gemini(asked: CommandLine) -> ProxyWay:
    base = asked.environ.get("GOOGLE_GEMINI_BASE_URL") or _GOOGLE
    upstreams = (Upstream(url=base.rstrip("/"), dialects=(dialects.GEMINI,)),)
    return ProxyWay(asked.words, upstreams, {"GOOGLE_GEMINI_BASE_URL": HERE})


def _opencode(asked: CommandLine) -> ProxyWay:
    config = Path(asked.environ.get("XDG_CONFIG_HOME") or asked.home / ".config") / "opencode"
    named = asked.environ.get("OPENCODE_CONFIG")
    files = [config / "opencode.json", config / "opencode.jsonc"]
    files += [Path(named)] if named else []
    files += [asked.folder / "opencode.json", asked.folder / "opencode.jsonc"]
    try:
        own = json.loads(asked.environ.get("OPENCODE_CONFIG_CONTENT") or "{}")
    except ValueError:
        own = None
    if not isinstance(own, dict):
        raise UsageError("OPENCODE_CONFIG_CONTENT holds no JSON object: correct it, or unset it")
    providers: dict[str, str] = {}
    for found in [*map(_json, files), own]:
        for name, value in (_deep(found, "provider") or {}).items():
            base = _deep(value, "options", "baseURL")
            providers |= {name: base} if isinstance(base, str) else {}
    made = ProxyWay(asked.words)
    bases = _prefixed(made, providers)
    ours = {name: {"options": {"baseURL": base}} for name, base in bases.items()}
    for name, value in (_deep(own, "provider") or {}).items():
        options = {**(_deep(value, "options") or {}), **ours.get(name, {}).get("options", {})}
        ours[name] = {**value, "options": options}
    made.environ = {"OPENCODE_CONFIG_CONTENT": json.dumps({**own, "provider": ours})}
    return made


def _prefixed(made: ProxyWay, providers: Mapping[str, str]) -> dict[str, str]:
    """Assign every provider a path of its own at the proxy; return where each one sends to then.

    The vendors that were not configured have the addresses that they always have.
    """
    bases = {}
    usual = {"anthropic": "/v1", "openai": "/v1", "google": "/v1beta"}
    for name, version in usual.items():
        if name not in providers:
            bases[name] = f"{HERE}{version}"
    made.upstreams = tuple(VENDORS)
    for name, base in providers.items():
        if _NAME.fullmatch(name):
            bare, version = split_version(base)
            prefix = f"/to-{name}"
            made.upstreams = (Upstream(url=bare, prefix=prefix), *made.upstreams)
            bases[name] = f"{HERE}{prefix}{version}"
    return bases


def _pi(asked: CommandLine) -> ProxyWay:
    own = Path(asked.environ.get("PI_CODING_AGENT_DIR") or asked.home / ".pi" / "agent")
    found = _deep(_json(own / "models.json"), "providers") or {}
    providers = {
        name: base
        for name, value in found.items()
        if isinstance(base := _deep(value, "baseUrl"), str)
    }
    made = ProxyWay(asked.words)
    bases = _prefixed(made, providers)
    # Its client for Anthropic adds the version itself.
    bases["anthropic"] = bases["anthropic"].removesuffix("/v1")
    calls = [
        f"  pi.registerProvider({json.dumps(name)}, {json.dumps({'baseUrl': base})});"
        for name, base in bases.items()
    ]
    made.files = {"proxy.ts": "\n".join(["export default function (pi: any) {", *calls, "}", ""])}
    made.with_arguments(asked.at, "--extension", f"{FOLDER}/proxy.ts")
    return made


def _goose(asked: CommandLine) -> ProxyWay:
    config = Path(asked.environ.get("XDG_CONFIG_HOME") or asked.home / ".config")
    try:
        text = read.read_file(config / "goose" / "config.yaml").decode("utf-8", "replace")
    except LockstitchError:
        text = ""
    set_there = dict(re.findall(r"(?m)^([A-Z]+_HOST):\s*[\"']?([^\s\"'#]+)", text))
    usual = {
        "ANTHROPIC_HOST": (_ANTHROPIC, (dialects.ANTHROPIC,)),
        "OPENAI_HOST": (_OPENAI, _OF_OPENAI),
        "GOOGLE_HOST": (_GOOGLE, (dialects.GEMINI,)),
    }
    upstreams = tuple(
        Upstream(
            url=(asked.environ.get(name) or set_there.get(name) or url).rstrip("/"),
            dialects=dialects,
        )
        for name, (url, dialects) in usual.items()
    )
    return ProxyWay(asked.words, upstreams, dict.fromkeys(usual, HERE))


_WAYS = {
    CLAUDE.format: _claude,
    CODEX.format: _codex,
    GEMINI.format: _gemini,
    OPENCODE.format: _opencode,
    PI.format: _pi,
    GOOSE.format: _goose,
}


def fill_way(made: ProxyWay, url: str, folder: str) -> tuple[list[str], dict[str, str]]:
    """Return the words and variables of a way, now that the proxy has an address."""

    def filled(text: str) -> str:
        return text.replace(HERE, url).replace(FOLDER, folder)

    return [*map(filled, made.words)], {name: filled(text) for name, text in made.environ.items()}


def program_title(client: Client | None, words: Sequence[str]) -> str:
    """Return what a program is called."""
    return client.title if client is not None else Path(words[0]).name
