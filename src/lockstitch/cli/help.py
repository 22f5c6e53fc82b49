"""Help pages, laid out for the terminal's width, and the versions that ``--version`` prints."""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import TYPE_CHECKING

import lockstitch
from lockstitch.cli import terminal
from lockstitch.cli.parser import COMMON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lockstitch.cli.parser import Command


GROUPS = {
    "sessions": "Your session is dead",
    "store": "Your own store of sessions",
    "requests": "In front of a provider",
    "": "More",
}
ABOUT = (
    "Repairs AI agent sessions that can no longer be resumed, because the provider rejects them "
    "or turns are missing, and stores the sessions of your own agents so that they cannot break."
)
EXIT_STATUS = (
    "0: clean or repaired. 1: findings are left. 2: bad usage, unreadable input, or an internal "
    "error. 130: interrupted by Ctrl-C."
)
START = (
    ("lockstitch", "On a terminal: pick a session, see what is wrong, repair it, resume it."),
    ("lockstitch scan", "Find every agent session on this machine, and what is wrong with it."),
    ("lockstitch repair TARGET", "Show what would change, ask, keep a backup, repair."),
    ("lockstitch undo TARGET", "Undo the repair, byte for byte."),
)
_WIDEST, _NARROWEST = 100, 40
# The meaning of a longer term goes on the next line.
_COLUMN = 28


def overview_page(commands: Mapping[str, tuple[str, str]]) -> str:
    """Return the page with all commands in their groups, and what to type first.

    ``commands`` has the group and the summary of each, so that none of them has to be loaded.
    """
    usage = [f"{terminal.paint('Usage:', 'bold')} lockstitch COMMAND [OPTIONS] [TARGET]..."]
    lines = [*usage, "", *_wrap(ABOUT), "", *_section("Start here", START)]
    for group, title in GROUPS.items():
        rows = [(name, summary) for name, (where, summary) in commands.items() if where == group]
        lines += _section(title, rows)
    lines += _section("Options of every command", ((one.usage, one.help) for one in COMMON))
    lines += [*_wrap("`lockstitch COMMAND -h` describes one command, with examples."), ""]
    return "\n".join([*lines, *_wrap(f"Exit status: {EXIT_STATUS}")]) + "\n"


def command_page(declared: Command) -> str:
    """Return the page about one command."""
    operand = declared.operand
    usage = f"lockstitch {declared.name} [OPTIONS] {operand.usage}"
    lines = [f"{terminal.paint('Usage:', 'bold')} {usage}", "", *_wrap(declared.summary), ""]
    lines += [*_wrap(declared.details), ""]
    lines += _section("Arguments", [(operand.metavar, operand.help)])
    lines += _section("Options", ((one.usage, one.help) for one in declared.options))
    lines += _section("Options of every command", ((one.usage, one.help) for one in COMMON))
    lines += [_title("Examples"), *(f"  {example}" for example in declared.examples), ""]
    return "\n".join([*lines, *_wrap(f"Exit status: {EXIT_STATUS}")]) + "\n"


def _title(text: str) -> str:
    return terminal.paint(f"{text}:", "bold")


def _section(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a title, and rows of terms and meanings in two columns.

    Nothing if there are no rows.
    """
    rows = list(rows)
    if not rows:
        return
    yield _title(title)
    column = min(max(len(term) for term, _ in rows) + 4, _COLUMN)
    for term, meaning in rows:
        fits = len(term) + 4 <= column
        if not fits:
            yield f"  {term}"
        yield from _wrap(meaning, f"  {term}".ljust(column) if fits else " " * column, " " * column)
    yield ""


def _wrap(text: str, first: str = "", other: str = "") -> Iterator[str]:
    for paragraph in text.split("\n"):
        yield from textwrap.wrap(
            paragraph,
            min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST),
            initial_indent=first,
            subsequent_indent=other,
            break_long_words=False,
            break_on_hyphens=False,
        )


_PACKAGE = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")


def version_page() -> str:
    """Return the versions of Lockstitch, Python, SQLite, and of every extra's packages."""
    # sqlite3 and the metadata of packages take longer to load than the rest of the help
    import platform
    import sqlite3
    from importlib import metadata

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return ""

    lines = [
        f"lockstitch {lockstitch.__version__}",
        f"{platform.python_implementation().replace('CPython', 'Python')} "
        f"{platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
        f"msgspec {version('msgspec')}",
    ]
    try:
        named = metadata.requires("lockstitch") or []
    except metadata.PackageNotFoundError:  # running from a checkout that is not installed
        named = []
    needs: dict[str, list[str]] = {}
    for line in named:
        package, extra = _PACKAGE.match(line), _EXTRA.search(line)
        if package and extra:
            needs.setdefault(extra[1], []).append(package[0])
    # only extras that are part of ``all`` are meant for users
    every = set(needs.pop("all", []))
    found, missing = [], []
    for name, packages in sorted(needs.items()):
        versions = {package: version(package) for package in packages}
        if every.issuperset(packages) and all(versions.values()):
            what = ", ".join(f"{package} {of}" for package, of in versions.items())
            found.append(f"{name} ({what})")
        elif every.issuperset(packages):
            missing.append(name)
    lines += [f"extras: {'; '.join(found)}"] if found else []
    if missing:
        lines.append(f"not installed: {', '.join(missing)} (pip install 'lockstitch[all]')")
    return "\n".join(lines) + "\n"
