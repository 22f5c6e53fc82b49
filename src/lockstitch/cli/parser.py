"""From the words of a command line to a call: argparse, built from what the commands declare.

argparse finds which word belongs to which option; what it says of mistakes is replaced by whole
sentences with a suggestion. Nothing is abbreviated, options may stand anywhere, and what stands
behind ``--`` is an operand, whatever it looks like.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentError, ArgumentParser, HelpFormatter
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from lockstitch.addresses import public
from lockstitch.cli.declarations import COMMON
from lockstitch.errors import UsageError, suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstitch.cli.declarations import Command, Option

END = "--"
# Options of earlier versions, and the commands that had them.
_RETIRED = ("--run", "--idle", "--pause")
_SHARED = ("scan", "check", "repair")


class Line(Struct):
    """The words of a command line: those before the command, its name, and those behind it."""

    front: list[str]
    name: str
    rest: list[str]


class Common(Struct, frozen=True):
    """What the options say that every command takes."""

    help: bool = False
    version: bool = False
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"


class Call(Struct):
    """A command line that was read: keyword arguments for the command's ``run``, and the rest."""

    values: dict[str, Any]
    common: Common


def divided(words: Sequence[str]) -> Line:
    """Find the command among the words: the first that is neither an option nor its value."""
    valued = {flag for option in COMMON if option.metavar for flag in option.flags}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    return Line([*words[:at]], words[at] if at < len(words) else "", [*words[at + 1 :]])


def common(words: Sequence[str]) -> Common:
    """Read the words in front of a command; raise `UsageError` for what no command knows."""
    found, _ = _read("", COMMON, words)
    return Common(**found)


def parse(command: Command, words: Sequence[str]) -> Call:
    """Read the words behind a command; raise `UsageError` with a sentence if they are wrong."""
    found, operands = _read(command.name, (*command.options, *COMMON), words)
    shared = Common(**{key: found.pop(key) for key in Common.__struct_fields__ if key in found})
    values = command.defaults() | found
    operand = command.operand
    if operands and operand.many:
        values[operand.name] = operands
    elif len(operands) > 1 and not shared.help:
        shown = ", ".join(map(public, operands))
        raise UsageError(
            f"{command.name} takes one {operand.metavar}, and {len(operands)} were given: {shown}."
        )
    elif operands:
        values[operand.name] = operands[0]
    return Call(values, shared)


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


def _read(
    name: str, options: Sequence[Option], words: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Tell options and operands apart; only the options that were given are in the result."""
    end = words.index(END) if END in words else len(words)
    parser = _Parser(
        name,
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
        argument_default=SUPPRESS,
        # It makes one for every option; without a width each asks the terminal, and loads shutil.
        formatter_class=partial(HelpFormatter, width=80),
    )
    for option in options:
        if option.metavar:
            parser.add_argument(*option.flags, dest=option.name)
        else:
            parser.add_argument(*option.flags, dest=option.name, action="store_true")
    alone = {flag: option.implied for option in options if option.implied for flag in option.flags}
    spelled = [f"{word}={alone[word]}" if word in alone else word for word in words[:end]]
    try:
        found, others = parser.parse_known_args(spelled)
    except ArgumentError as error:
        raise UsageError(_mistake(name, options, error)) from None
    values = vars(found)
    unknown = [word for word in others if word.startswith("-") and word != "-"]
    if unknown and not values.get("help"):
        raise UsageError(_unknown(name, options, unknown[0]))
    for option in options:
        _check(option, values.get(option.name))
    return values, [*others, *words[end + 1 :]]


def _mistake(name: str, options: Sequence[Option], error: ArgumentError) -> str:
    """Say what is wrong with one option in a sentence."""
    flags = (error.argument_name or "").split("/")
    option = next(option for option in options if option.flags[0] in flags)
    if not option.metavar:
        return f"{option.flags[0]} takes no value. {_see(name)}"
    one_of = f", one of {', '.join(option.choices)}" if option.choices else ""
    return f"{option.flags[0]} needs a value: {option.flags[0]} {option.metavar}{one_of}."


def _unknown(name: str, options: Sequence[Option], word: str) -> str:
    """Say that there is no such option, and which one may be meant."""
    flag = word.partition("=")[0]
    if name in _SHARED and flag in _RETIRED:
        return (
            f"{name} has no option {flag} any more: runs that several machines share are retired."
            " Use --workers N on one machine, and --shard I/N to divide the threads of a"
            " PostgreSQL among several."
        )
    hint = suggestion(flag, (flag for option in options for flag in option.flags))
    hint = hint or f" {_see(name)} Put -- in front of a name that starts with a dash."
    return f"{name or 'lockstitch'} has no option {flag}.{hint}"


def _see(name: str) -> str:
    return f"See: lockstitch {name} -h." if name else "See: lockstitch -h."


def _check(option: Option, value: Any) -> None:
    """Raise `UsageError` for a value that the option cannot have."""
    if value is None:
        return
    if option.choices and value not in option.choices:
        hint = suggestion(value, option.choices)
        known = ", ".join(option.choices)
        raise UsageError(f"{option.flags[0]} cannot be {value!r}: it is one of {known}.{hint}")
    if option.check is not None:
        try:
            option.check(value)
        except UsageError as error:
            raise UsageError(f"{option.flags[0]}: {error}") from None
