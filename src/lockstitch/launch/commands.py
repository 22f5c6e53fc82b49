"""What a command line is about to do: which program it starts, and which session it resumes.

The words of the command line say both; then the sessions that the program would resume in a folder
are found, the one that it takes first in front.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePath

from msgspec import Struct

from lockstitch.errors import LockstitchError
from lockstitch.sources.interface import SQLITE, Format, format_named
from lockstitch.sources.source import Source
from lockstitch.sources.targets import places_of, sources_in

# What a command resumes: nothing, the session that was used last, one that it names, or one that
# a person picks once the program runs.
NOTHING, NEWEST, NAMED, PICKED = "nothing", "newest", "named", "picked"


class Resume(Struct, frozen=True):
    """Which session a command line resumes; ``everywhere`` says that no folder is looked at."""

    kind: str = NOTHING
    name: str = ""
    everywhere: bool = False
    folder: str = ""


class Client(Struct, frozen=True):
    """A program that is known: its commands, its packages, and the format of its sessions."""

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
    """A command line of a program that is known; ``at`` is where its own arguments begin."""

    client: Client
    at: int


# Programs that start another one, which they are told by its name or by its package.
_RUNNERS = ("npx", "bunx", "uvx", "pnpx")
_TWO_WORDS = (("npm", "exec"), ("pnpm", "dlx"), ("yarn", "dlx"), ("uv", "run"), ("uv", "tool"))
_INTERPRETERS = ("node", "nodejs", "bun", "deno")
_VALUED = ("-p", "--package", "-c", "--call", "--from", "--with", "-w")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SUFFIX = re.compile(r"\.(?:exe|cmd|bat|js|mjs|cjs)$")


def find_known_command(words: Sequence[str]) -> KnownCommand | None:
    """Return the program that a command line starts, None if it is not known."""
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
        return _by_package(words, found) if found is not None else None
    if name in _INTERPRETERS:
        found = _first_operand(words, at + 1, ())
        return _by_script(words, found) if found is not None else None
    for client in CLIENTS:
        if name in client.commands:
            return KnownCommand(client, at + 1)
    return _by_script(words, at)


def _name(word: str) -> str:
    return _SUFFIX.sub("", PurePath(word.replace("\\", "/")).name)


def _first_operand(words: Sequence[str], at: int, valued: Sequence[str]) -> int | None:
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    return at if at < len(words) else None


def _by_package(words: Sequence[str], at: int) -> KnownCommand | None:
    """Find a program by its package, with or without a scope and a version."""
    package = words[at].rpartition("/")[2].partition("@")[0]
    for client in CLIENTS:
        if package in (*client.commands, *client.packages):
            return KnownCommand(client, at + 1)
    return None


def _by_script(words: Sequence[str], at: int) -> KnownCommand | None:
    """Find a program by the folders that its script is in: those of its package."""
    steps = PurePath(words[at].replace("\\", "/")).parts
    for client in CLIENTS:
        if not {*client.commands, *client.packages}.isdisjoint((*steps[:-1], _name(words[at]))):
            return KnownCommand(client, at + 1)
    return None


def find_resumed(client: Client, words: Sequence[str]) -> Resume:
    """Return which session the arguments of a program resume."""
    return _RESUMED[client.format]([*words])


class _Arguments:
    """The arguments of a program: flags with or without values, and operands."""

    def __init__(self, words: Sequence[str], valued: Sequence[str], short: str = "") -> None:
        self.flags: dict[str, str | None] = {}
        self.operands: list[str] = []
        self.behind: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                self.operands += rest
                break
            self._take(word, rest, valued, short)

    def _take(self, word: str, rest: Iterator[str], valued: Sequence[str], short: str) -> None:
        if not word.startswith("-") or word == "-":
            self.operands.append(word)
            return
        flag, attached, value = word.partition("=")
        if attached:
            self.flags[flag] = value
        elif flag in valued:
            self.flags[flag] = next(rest, None)
        elif short and re.fullmatch(rf"-[{short}]+", word):
            self.flags |= {f"-{letter}": None for letter in word[1:]}
        else:
            self.flags[flag] = None

    def has(self, *flags: str) -> bool:
        """Whether any of these was given."""
        return not self.flags.keys().isdisjoint(flags)

    def value(self, *flags: str) -> str:
        """Return the value of one of these, empty if there is none."""
        return next((value for flag in flags if (value := self.flags.get(flag))), "")


def _optional(words: Sequence[str], *flags: str) -> str | None:
    """Return the value of a flag that may have one, None if the flag is not there."""
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
    given = _Arguments(words, (), short="cpd")
    return Resume(NEWEST) if given.has("-c", "--continue") else Resume()


_CODEX_VALUED = (
    *("-c", "--config", "-m", "--model", "-p", "--profile", "-C", "--cd", "-s", "--sandbox"),
    *("-a", "--ask-for-approval", "-i", "--image", "--enable", "--disable", "--local-provider"),
    *("--add-dir", "--remote", "--output-schema", "-o", "--output-last-message", "--color"),
)


def _codex(words: Sequence[str]) -> Resume:
    given = _Arguments(words, _CODEX_VALUED)
    operands = given.operands
    if operands[:1] in (["exec"], ["e"]):
        operands = operands[1:]
    if operands[:1] not in (["resume"], ["fork"]):
        return Resume()
    folder = given.value("-C", "--cd")
    if given.has("--last"):
        return Resume(NEWEST, everywhere=given.has("--all"), folder=folder)
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
    given = _Arguments(words, ("-s", "--session", "-m", "--model", "--agent", "--port"))
    if name := given.value("-s", "--session"):
        return Resume(NAMED, name)
    return Resume(NEWEST) if given.has("-c", "--continue") else Resume()


_PI_VALUED = (
    *("--provider", "--model", "--api-key", "--system-prompt", "--append-system-prompt"),
    *("--mode", "--session", "--session-id", "--fork", "--session-dir", "--name", "-n"),
    *("--models", "--tools", "-t", "--exclude-tools", "-xt", "--thinking", "--extension", "-e"),
    *("--skill", "--prompt-template", "--theme", "--use-theme", "--export", "--tui-mode"),
)


def _pi(words: Sequence[str]) -> Resume:
    given = _Arguments(words, _PI_VALUED)
    if name := given.value("--session", "--session-id", "--fork"):
        return Resume(NAMED, name)
    if given.has("-c", "--continue"):
        return Resume(NEWEST)
    return Resume(PICKED) if given.has("-r", "--resume") else Resume()


def _goose(words: Sequence[str]) -> Resume:
    valued = ("-n", "--name", "--session-id", "--id", "-i", "-t", "--text", "--recipe")
    given = _Arguments(words, valued)
    if given.operands[:1] not in (["session"], ["s"], ["run"]) or not given.has("-r", "--resume"):
        return Resume()
    name = given.value("--session-id", "--id", "-n", "--name")
    return Resume(NAMED, name) if name else Resume(NEWEST, everywhere=True)


_RESUMED: dict[str, Callable[[Sequence[str]], Resume]] = {
    CLAUDE.format: _claude,
    CODEX.format: _codex,
    GEMINI.format: _gemini,
    OPENCODE.format: _opencode,
    PI.format: _pi,
    GOOSE.format: _goose,
}


# So many sessions are looked at where a person is to pick one.
_MOST = 20
_DATABASES = (".db", ".sqlite", ".sqlite3")


def find_resumable(
    client: Client, resume: Resume, folder: str, home: Path, environ: Mapping[str, str]
) -> list[Source]:
    """Return the sessions that a command is about to resume; several if a person picks one."""
    if resume.kind == NOTHING:
        return []
    form = format_named(client.format)
    if resume.kind == NAMED:
        return [*islice(_named(form, resume.name, home, environ), 1)]
    place = os.path.realpath(os.path.join(folder, resume.folder))  # noqa: PTH118 - may be empty
    found = _found(form, "" if resume.everywhere else place, home, environ)
    return [*islice(found, 1 if resume.kind == NEWEST else _MOST)]


def _named(form: Format, name: str, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
    if os.path.isfile(name):  # noqa: PTH113 - a name may be no path at all
        yield from sources_in(name, form.name, environ)
        return
    for path in _newest(form, home, environ):
        if path.endswith(_DATABASES):
            yield from (one for one in _rows(path, environ) if one.session == name)
        elif name in Path(path).stem:
            yield from _read(path, environ)


def _found(form: Format, folder: str, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
    for path in _newest(form, home, environ):
        if path.endswith(_DATABASES):
            yield from _rows(path, environ, folder)
        elif not folder or form.belongs(path, folder):
            yield from _read(path, environ)


def _newest(form: Format, home: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the files of a program, the one that was written to last first."""
    dated = []
    for path in places_of(form, home, environ):
        try:
            dated.append((os.stat(path).st_mtime_ns, path))  # noqa: PTH116 - there may be many
        except OSError:
            continue
    return [path for _, path in sorted(dated, reverse=True)]


def _read(path: str, environ: Mapping[str, str]) -> Iterator[Source]:
    try:
        yield from sources_in(path, None, environ)
    except LockstitchError:
        return  # the program itself says what it thinks of such a file


def _rows(path: str, environ: Mapping[str, str], folder: str = "") -> Iterator[Source]:
    """Return the sessions of a database, the one that was changed last first."""
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
