"""The man page: what the commands declare, as roff."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import lockstitch
from lockstitch.cli.help import ABOUT, EXIT_STATUS, GROUPS, START
from lockstitch.cli.parser import COMMON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lockstitch.cli.parser import Command, Option

VARIABLES = {
    "NO_COLOR": "No colours, unless --color always.",
    "FORCE_COLOR, CLICOLOR_FORCE": "Colours also where there is no terminal; 0 is as if not set.",
    "CLICOLOR": "0 means no colours.",
    "COLUMNS": "Width of help, tables and conversations.",
    "PAGER": "The program through which show prints on a terminal.",
    "CLAUDE_CONFIG_DIR, CODEX_HOME, OPENCLAW_STATE_DIR, XDG_DATA_HOME": (
        "Where those programs keep their sessions, as for the programs themselves."
    ),
}


def page(commands: Iterable[Command]) -> str:
    """The whole page."""
    return "\n".join(_lines(list(commands))) + "\n"


def _lines(commands: list[Command]) -> Iterator[str]:
    yield f'.TH LOCKSTITCH 1 "" "Lockstitch {lockstitch.__version__}" "User Commands"'
    yield from (".SH NAME", r"lockstitch \- repair the sessions of AI agents, and keep them valid")
    yield from (
        ".SH SYNOPSIS",
        r".B lockstitch",
        r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fITARGET\fR]...",
    )
    yield from (".SH DESCRIPTION", _text(ABOUT), ".PP", "To begin with:")
    for term, meaning in START:
        yield from _term(rf"\fB{_text(term)}\fR", meaning)
    for group, title in GROUPS.items():
        yield f".SH {_text(title.upper())}"
        for one in commands:
            if one.group == group:
                yield from _command(one)
    yield ".SH OPTIONS OF EVERY COMMAND"
    yield from _options(COMMON)
    yield ".SH ENVIRONMENT"
    for name, meaning in VARIABLES.items():
        yield from _term(rf"\fB{_text(name)}\fR", meaning)
    yield ".SH EXIT STATUS"
    for status, meaning in re.findall(r"(\d+): ([^.]+\.)", EXIT_STATUS):
        yield from _term(rf"\fB{status}\fR", meaning)


def _command(declared: Command) -> Iterator[str]:
    name, operand = _text(declared.name), declared.operand
    yield f".SS lockstitch {name}"
    yield rf"\fBlockstitch {name}\fR [\fIOPTIONS\fR] \fI{_text(operand.usage)}\fR"
    yield from (".PP", _text(declared.summary), ".PP", _text(declared.details))
    yield from _term(rf"\fI{_text(operand.metavar)}\fR", operand.help)
    yield from _options(declared.options)
    yield from (".PP", "Examples:", ".PP", ".RS 4", ".nf")
    yield from (_text(example) for example in declared.examples)
    yield from (".fi", ".RE")


def _options(options: Iterable[Option]) -> Iterator[str]:
    for option in options:
        flags = ", ".join(rf"\fB{_text(flag)}\fR" for flag in sorted(option.flags, key=len))
        value = rf"\fI{_text(option.value)}\fR" if option.value else ""
        yield from _term(flags + value, option.help)


def _term(term: str, meaning: str) -> Iterator[str]:
    yield from (".TP", term, _text(meaning))


def _text(text: str) -> str:
    r"""Text in which roff sees nothing to obey: ``\``, ``-``, and a dot or quote that leads."""
    plain = text.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\`")
    # Terminals that show a man page in ASCII have no such sign.
    plain = plain.replace("…", "...")
    return rf"\&{plain}" if plain[:1] in (".", "'") else plain
