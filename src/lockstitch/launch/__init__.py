"""Start an agent behind the proxy, and find the session that it is about to resume.

The words of a command line say which program it starts and which session it resumes. If that is a
session of the folder, its candidates are returned with the program's first choice in front.

The variables, arguments and upstreams that lead a program to the proxy are determined before the
proxy has an address: ``HERE`` stands for that, and ``FOLDER`` for a temporary folder with the files
that the program reads. The program's own settings are not changed.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct, field, structs

from lockstitch import dialects
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import read
from lockstitch.formats.interface import SQLITE, Format, format_named
from lockstitch.proxy import VENDORS, Upstream
from lockstitch.sources.own_stores import DATABASES
from lockstitch.sources.source import Source
from lockstitch.sources.targets import places_of, sources_in

# What a command resumes: nothing, the last session, a named one, or one that a person picks once
# the program runs.
NOTHING, NEWEST, NAMED, PICKED = "nothing", "newest", "named", "picked"


class Resume(Struct, frozen=True):
    """The session that a command line resumes.

    ``everywhere`` says that the folder does not matter.
    """

    kind: str = NOTHING
    name: str = ""
    everywhere: bool = False
    folder: str = ""


class Client(Struct, frozen=True):
    """A known program: its commands, its packages, and the format of its sessions."""

    format: str
    title: str
    commands: tuple[str, ...]
    packages: tuple[str, ...] = ()


CLAUDE = Client("claude-code", "Claude Code", ("claude",), ("claude-code",))
CODEX = Client("codex", "Codex", ("codex",))
GEMINI = Client("gemini-cli", "Gemini CLI", ("gemini",), ("gemini-cli",))
OPENCODE = Client("opencode", "opencode", ("opencode",), ("opencode-ai",))
PI = Client("pi", "pi", ("pi",), ("pi-coding-agent",))
GOOSE = Client("goose", "goose", ("goose",))
CLIENTS = (CLAUDE, CODEX, GEMINI, OPENCODE, PI, GOOSE)


class KnownCommand(Struct, frozen=True):
    """The command line of a known program; its own arguments begin at ``at``."""

    client: Client
    at: int


# Programs that start another one, given by its name or its package.
_RUNNERS = ("npx", "bunx", "uvx", "pnpx")
_TWO_WORDS = (("npm", "exec"), ("pnpm", "dlx"), ("yarn", "dlx"), ("uv", "run"), ("uv", "tool"))
_INTERPRETERS = ("node", "nodejs", "bun", "deno")
_VALUED = ("-p", "--package", "-c", "--call", "--from", "--with", "-w")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SUFFIX = re.compile(r"\.(?:exe|cmd|bat|js|mjs|cjs)$")


def find_known_command(words: Sequence[str]) -> KnownCommand | None:
    """Return the program that a command line starts; None if it is not known."""
    at = 0
    if words and _name(words[0]) == "env":
        at = 1
        while at < len(words) and _ASSIGNMENT.match(words[at]):
            at += 1
    if at >= len(words):
        return None
    name = _name(words[at])
    if name in _RUNNERS or (name, *words[at + 1 : at + 2]) in _TWO_WORDS:
        start = at + 1 if name in _RUNNERS else at + 2
        found = _first_operand(words, start, _VALUED)
        if found is None:
            return None
        # with or without a scope and a version
        return _find_by_names({words[found].rpartition("/")[2].partition("@")[0]}, found)
    if name in _INTERPRETERS:
        found = _first_operand(words, at + 1, ())
        return _find_by_script(words, found) if found is not None else None
    return _find_by_names({name}, at) or _find_by_script(words, at)


def _name(word: str) -> str:
    return _SUFFIX.sub("", PurePath(word.replace("\\", "/")).name)


def _first_operand(words: Sequence[str], at: int, valued: Sequence[str]) -> int | None:
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    return at if at < len(words) else None


def _find_by_names(names: set[str], at: int) -> KnownCommand | None:
    """Return the program with one of these commands or packages; its arguments begin at ``at``."""
    for client in CLIENTS:
        if not names.isdisjoint((*client.commands, *client.packages)):
            return KnownCommand(client, at + 1)
    return None


def _find_by_script(words: Sequence[str], at: int) -> KnownCommand | None:
    """Return the program whose package is in the path of the script."""
    steps = PurePath(words[at].replace("\\", "/")).parts
    return _find_by_names({*steps[:-1], _name(words[at])}, at)


def find_resumed(client: Client, words: Sequence[str]) -> Resume:
    """Return the session that the arguments of a program resume."""
    return _PROGRAMS[client.format][0]([*words])


class _Arguments:
    """The arguments of a program: flags with or without values, and operands."""

    def __init__(self, words: Sequence[str], valued: Sequence[str], short: str = "") -> None:
        self.flags: dict[str, str | None] = {}
        self.operands: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                self.operands += rest
                break
            flag, attached, value = word.partition("=")
            if not word.startswith("-") or word == "-":
                self.operands.append(word)
            elif attached:
                self.flags[flag] = value
            elif flag in valued:
                self.flags[flag] = next(rest, None)
            elif short and re.fullmatch(rf"-[{short}]+", word):
                self.flags |= {f"-{letter}": None for letter in word[1:]}
            else:
                self.flags[flag] = None

    def has(self, *flags: str) -> bool:
        """Whether any of these flags is there."""
        return not self.flags.keys().isdisjoint(flags)

    def value(self, *flags: str) -> str:
        """Return the value of one of these flags, "" if there is none."""
        return next((value for flag in flags if (value := self.flags.get(flag))), "")


def _optional(words: Sequence[str], *flags: str) -> str | None:
    """Return the value of a flag that may have one; None if the flag is not there."""
    for at, word in enumerate(words):
        flag, attached, value = word.partition("=")
        if word == "--":
            return None
        if flag in flags:
            following = words[at + 1] if at + 1 < len(words) else "-"
            return value if attached else "" if following.startswith("-") else following
    return None


def _claude(words: Sequence[str]) -> Resume:
    value = _optional(words, "-r", "--resume")
    if value is not None:
        return Resume(NAMED, value) if value else Resume(PICKED)
    parsed = _Arguments(words, (), short="cpd")
    return Resume(NEWEST) if parsed.has("-c", "--continue") else Resume()


_CODEX_VALUED = (
    *("-c", "--config", "-m", "--model", "-p", "--profile", "-C", "--cd", "-s", "--sandbox"),
    *("-a", "--ask-for-approval", "-i", "--image", "--enable", "--disable", "--local-provider"),
    *("--add-dir", "--remote", "--output-schema", "-o", "--output-last-message", "--color"),
)


def _codex(words: Sequence[str]) -> Resume:
    parsed = _Arguments(words, _CODEX_VALUED)
    operands = parsed.operands
    if operands[:1] in (["exec"], ["e"]):
        operands = operands[1:]
    if operands[:1] not in (["resume"], ["fork"]):
        return Resume()
    folder = parsed.value("-C", "--cd")
    if parsed.has("--last"):
        return Resume(NEWEST, everywhere=parsed.has("--all"), folder=folder)
    return Resume(NAMED, operands[1]) if len(operands) > 1 else Resume(PICKED, folder=folder)


def _gemini(words: Sequence[str]) -> Resume:
    value = _optional(words, "-r", "--resume")
    if value is None:
        return Resume()
    if value in ("", "latest"):
        return Resume(NEWEST)
    # A number counts sessions in an order that only the program knows.
    return Resume(PICKED) if value.isdecimal() else Resume(NAMED, value)


def _opencode(words: Sequence[str]) -> Resume:
    parsed = _Arguments(words, ("-s", "--session", "-m", "--model", "--agent", "--port"))
    if name := parsed.value("-s", "--session"):
        return Resume(NAMED, name)
    return Resume(NEWEST) if parsed.has("-c", "--continue") else Resume()


_PI_VALUED = (
    *("--provider", "--model", "--api-key", "--system-prompt", "--append-system-prompt"),
    *("--mode", "--session", "--session-id", "--fork", "--session-dir", "--name", "-n"),
    *("--models", "--tools", "-t", "--exclude-tools", "-xt", "--thinking", "--extension", "-e"),
    *("--skill", "--prompt-template", "--theme", "--use-theme", "--export", "--tui-mode"),
)


def _pi(words: Sequence[str]) -> Resume:
    parsed = _Arguments(words, _PI_VALUED)
    if name := parsed.value("--session", "--session-id", "--fork"):
        return Resume(NAMED, name)
    if parsed.has("-c", "--continue"):
        return Resume(NEWEST)
    return Resume(PICKED) if parsed.has("-r", "--resume") else Resume()


def _goose(words: Sequence[str]) -> Resume:
    valued = ("-n", "--name", "--session-id", "--id", "-i", "-t", "--text", "--recipe")
    parsed = _Arguments(words, valued)
    if parsed.operands[:1] not in (["session"], ["s"], ["run"]) or not parsed.has("-r", "--resume"):
        return Resume()
    name = parsed.value("--session-id", "--id", "-n", "--name")
    return Resume(NAMED, name) if name else Resume(NEWEST, everywhere=True)


# How many sessions to check if a person is going to pick one.
_MOST = 20


def find_resumable(
    client: Client, resume: Resume, folder: str, home: Path, environ: Mapping[str, str]
) -> list[Source]:
    """Return the sessions that a command is about to resume; several if a person picks one."""
    if resume.kind == NOTHING:
        return []
    form = format_named(client.format)
    if resume.kind == NAMED:
        return [*islice(_find_named(form, resume.name, home, environ), 1)]
    place = os.path.realpath(os.path.join(folder, resume.folder))  # noqa: PTH118 - may be empty
    found = _find_in_folder(form, "" if resume.everywhere else place, home, environ)
    return [*islice(found, 1 if resume.kind == NEWEST else _MOST)]


def _find_named(
    form: Format, name: str, home: Path, environ: Mapping[str, str]
) -> Iterator[Source]:
    if os.path.isfile(name):  # noqa: PTH113 - a name may be no path at all
        yield from sources_in(name, form.name, environ)
        return
    for path in _newest_files(form, home, environ):
        if path.endswith(DATABASES):
            yield from (one for one in _read_rows(path, environ) if one.session == name)
        elif name in Path(path).stem:
            yield from _read_sources(path, environ)


def _find_in_folder(
    form: Format, folder: str, home: Path, environ: Mapping[str, str]
) -> Iterator[Source]:
    for path in _newest_files(form, home, environ):
        if path.endswith(DATABASES):
            yield from _read_rows(path, environ, folder)
        elif not folder or form.belongs(path, folder):
            yield from _read_sources(path, environ)


def _newest_files(form: Format, home: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the files of a program, the last written first."""
    dated = []
    for path in places_of(form, home, environ):
        try:
            dated.append((os.stat(path).st_mtime_ns, path))  # noqa: PTH116 - there may be many
        except OSError:
            continue
    return [path for _, path in sorted(dated, reverse=True)]


def _read_sources(path: str, environ: Mapping[str, str]) -> Iterator[Source]:
    try:
        yield from sources_in(path, None, environ)
    except LockstitchError:
        return  # the program itself reports errors in such a file


def _read_rows(path: str, environ: Mapping[str, str], folder: str = "") -> Iterator[Source]:
    """Yield the sessions of a database, the last changed first."""
    from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    try:
        found = {one.session: one for one in sources_in(path, None, environ) if one.kind == SQLITE}
        if not found:
            return
        listed = rows.list_sessions(path, next(iter(found.values())).form)
    except LockstitchError:
        return
    for row in listed:
        project = os.path.realpath(row.project) if row.project else ""
        if row.id in found and (not folder or project == folder):
            yield found[row.id]


HERE, FOLDER = "http://proxy.lockstitch.invalid", "/lockstitch.invalid"
_ANTHROPIC, _OPENAI, _GOOGLE = (vendor.url for vendor in VENDORS[:3])
_CHATGPT = "https://chatgpt.com/backend-api/codex"
_OF_OPENAI = (dialects.OPENAI_CHAT, dialects.OPENAI_RESPONSES)
_NAME = re.compile(r"[A-Za-z0-9._~-]+")


class CommandLine(Struct, frozen=True):
    """A command line, with its environment and folder."""

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
    """How a program is led to the proxy.

    If there are no upstreams, it is not, and ``why`` says why.
    """

    words: list[str]
    upstreams: tuple[Upstream, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    why: str = ""

    def with_arguments(self, at: int, *more: str) -> None:
        """Insert arguments before the program's own."""
        self.words = [*self.words[:at], *more, *self.words[at:]]


def find_way(known: KnownCommand | None, asked: CommandLine, upstream: str | None) -> ProxyWay:
    """Return the way for a known program, or one that works for most others."""
    made = _any_way(asked) if known is None else _PROGRAMS[known.client.format][1](asked)
    if upstream is not None:
        bare, _ = split_version(upstream)
        made.upstreams = tuple(structs.replace(one, url=bare) for one in made.upstreams)
    # send on through the HTTP proxy that the program would have used
    made.upstreams = tuple(
        structs.replace(one, proxy=_proxy_for(one.url, asked.environ)) for one in made.upstreams
    )
    if made.upstreams and {"HTTP_PROXY", "http_proxy", "ALL_PROXY"} & asked.environ.keys():
        before = asked.environ.get("NO_PROXY") or asked.environ.get("no_proxy") or ""
        around = ",".join(filter(None, (before, "127.0.0.1,localhost")))
        made.environ |= {"NO_PROXY": around, "no_proxy": around}
    return made


def _proxy_for(url: str, environ: Mapping[str, str]) -> str:
    if re.match(r"https?://(?:localhost|127\.|\[::1\])", url):
        return ""
    name = "HTTPS_PROXY" if url.startswith("https:") else "HTTP_PROXY"
    return environ.get(name) or environ.get(name.lower()) or ""


def split_version(base: str) -> tuple[str, str]:
    """Split the version off the end of a base address, for proxies that keep it in the path."""
    bare = base.rstrip("/")
    return (bare.removesuffix("/v1"), "/v1") if bare.endswith("/v1") else (bare, "")


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file; empty if there is none that can be read."""
    try:
        found = json.loads(read.read_file(path))
    except (LockstitchError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _value_at(value: Any, *steps: str) -> Any:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _any_way(asked: CommandLine) -> ProxyWay:
    anthropic, _ = split_version(asked.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC)
    openai, version = split_version(asked.environ.get("OPENAI_BASE_URL") or f"{_OPENAI}/v1")
    upstreams = (
        Upstream(url=anthropic, dialects=(dialects.ANTHROPIC,)),
        Upstream(url=openai, dialects=_OF_OPENAI),
    )
    environ = {"ANTHROPIC_BASE_URL": HERE, "OPENAI_BASE_URL": f"{HERE}{version}"}
    return ProxyWay(asked.words, upstreams, environ)


_CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


def _claude_way(asked: CommandLine) -> ProxyWay:
    made = ProxyWay(asked.words)
    own = Path(asked.environ.get("CLAUDE_CONFIG_DIR") or asked.home / ".claude")
    project = asked.folder / ".claude"
    files = (own / "settings.json", project / "settings.json", project / "settings.local.json")
    settings: dict[str, str] = {}
    for path in files:
        found = _value_at(_read_json(path), "env")
        settings |= found if isinstance(found, dict) else {}
    if any({**asked.environ, **settings}.get(name) for name in _CLOUDS):
        made.why = "it sends to a cloud provider, not to Anthropic"
        return made
    set_there = settings.get("ANTHROPIC_BASE_URL")
    base = set_there or asked.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC
    if set_there:
        if any(word.partition("=")[0] == "--settings" for word in asked.arguments):
            made.why = "its settings say where it sends to, and --settings is already used"
            return made
        # Settings take precedence over the environment; the last argument takes precedence over
        # all.
        ours = json.dumps({"env": {"ANTHROPIC_BASE_URL": HERE}})
        made.with_arguments(asked.at, "--settings", ours)
    made.upstreams = (Upstream(url=base.rstrip("/"), dialects=(dialects.ANTHROPIC,)),)
    made.environ = {"ANTHROPIC_BASE_URL": HERE}
    return made


def _codex_way(asked: CommandLine) -> ProxyWay:
    made = ProxyWay([*asked.words])
    home = Path(asked.environ.get("CODEX_HOME") or asked.home / ".codex")
    try:
        settings = tomllib.loads(read.read_file(home / "config.toml").decode())
    except (LockstitchError, ValueError):
        settings = {}
    # overrides on the command line: where each setting is, and its value
    overrides: dict[str, tuple[int, str]] = {}
    for at in range(asked.at, len(asked.words) - 1):
        if asked.words[at] in ("-c", "--config"):
            key, _, value = asked.words[at + 1].partition("=")
            overrides[key.strip()] = at + 1, value.strip().strip("\"'")
    profile = settings.get("profile", "")
    for at, word in enumerate(asked.arguments[:-1]):
        if word in ("-p", "--profile"):
            profile = asked.arguments[at + 1]
    in_profile = _value_at(settings, "profiles", profile, "model_provider")
    provider = str(in_profile or settings.get("model_provider") or "openai")
    if "model_provider" in overrides:
        provider = overrides["model_provider"][1]
    if "--oss" in asked.arguments:
        made.why = "--oss uses a model on this machine"
        return made
    key = "openai_base_url" if provider == "openai" else f"model_providers.{provider}.base_url"
    base = overrides.get(key, (0, ""))[1] or _value_at(settings, *key.split("."))
    if not base and provider == "openai":
        is_login = _value_at(_read_json(home / "auth.json"), "tokens") and not (
            asked.environ.get("CODEX_API_KEY")
        )
        base = _CHATGPT if is_login else f"{_OPENAI}/v1"
    if not isinstance(base, str) or not base:
        made.why = f"the address of its provider {provider} is not known"
        return made
    bare, version = split_version(base)
    ours = f'{key}="{HERE}{version}"'
    if key in overrides:
        made.words[overrides[key][0]] = ours
    else:
        made.with_arguments(asked.at, "-c", ours)
    made.upstreams = (Upstream(url=bare),)
    return made


def _gemini_way(asked: CommandLine) -> ProxyWay:
    base = asked.environ.get("GOOGLE_GEMINI_BASE_URL") or _GOOGLE
    upstreams = (Upstream(url=base.rstrip("/"), dialects=(dialects.GEMINI,)),)
    return ProxyWay(asked.words, upstreams, {"GOOGLE_GEMINI_BASE_URL": HERE})


def _opencode_way(asked: CommandLine) -> ProxyWay:
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
        raise UsageError(
            "OPENCODE_CONFIG_CONTENT does not hold a JSON object: correct it, or unset it"
        )
    providers: dict[str, str] = {}
    for found in [*map(_read_json, files), own]:
        for name, value in (_value_at(found, "provider") or {}).items():
            base = _value_at(value, "options", "baseURL")
            providers |= {name: base} if isinstance(base, str) else {}
    made = ProxyWay(asked.words)
    bases = _give_prefixes(made, providers)
    ours = {name: {"options": {"baseURL": base}} for name, base in bases.items()}
    for name, value in (_value_at(own, "provider") or {}).items():
        options = {**(_value_at(value, "options") or {}), **ours.get(name, {}).get("options", {})}
        ours[name] = {**value, "options": options}
    made.environ = {"OPENCODE_CONFIG_CONTENT": json.dumps({**own, "provider": ours})}
    return made


def _give_prefixes(made: ProxyWay, providers: Mapping[str, str]) -> dict[str, str]:
    """Give every provider its own path at the proxy; return where each path leads to.

    Vendors that are not configured have their usual addresses.
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


def _pi_way(asked: CommandLine) -> ProxyWay:
    own = Path(asked.environ.get("PI_CODING_AGENT_DIR") or asked.home / ".pi" / "agent")
    found = _value_at(_read_json(own / "models.json"), "providers") or {}
    providers = {
        name: base
        for name, value in found.items()
        if isinstance(base := _value_at(value, "baseUrl"), str)
    }
    made = ProxyWay(asked.words)
    bases = _give_prefixes(made, providers)
    # Its client for Anthropic adds the version itself.
    bases["anthropic"] = bases["anthropic"].removesuffix("/v1")
    calls = [
        f"  pi.registerProvider({json.dumps(name)}, {json.dumps({'baseUrl': base})});"
        for name, base in bases.items()
    ]
    made.files = {"proxy.ts": "\n".join(["export default function (pi: any) {", *calls, "}", ""])}
    made.with_arguments(asked.at, "--extension", f"{FOLDER}/proxy.ts")
    return made


def _goose_way(asked: CommandLine) -> ProxyWay:
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


# How to read the arguments of a program, and how to lead it to the proxy.
_PROGRAMS: dict[
    str, tuple[Callable[[Sequence[str]], Resume], Callable[[CommandLine], ProxyWay]]
] = {
    CLAUDE.format: (_claude, _claude_way),
    CODEX.format: (_codex, _codex_way),
    GEMINI.format: (_gemini, _gemini_way),
    OPENCODE.format: (_opencode, _opencode_way),
    PI.format: (_pi, _pi_way),
    GOOSE.format: (_goose, _goose_way),
}


def fill_way(made: ProxyWay, url: str, folder: str) -> tuple[list[str], dict[str, str]]:
    """Return the words and variables of a way, now that the proxy has an address."""

    def fill(text: str) -> str:
        return text.replace(HERE, url).replace(FOLDER, folder)

    return [*map(fill, made.words)], {name: fill(text) for name, text in made.environ.items()}
