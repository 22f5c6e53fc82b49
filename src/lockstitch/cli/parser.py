"""Declarations of what a command takes, and parsing of its words.

The parser, help, completion, man page and docs all use the declarations. argparse finds which word
belongs to which option; its error messages are replaced by whole sentences with a suggestion.
Nothing can be abbreviated, options may be anywhere, and everything after ``--`` is an operand,
whatever it looks like.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentError, ArgumentParser, HelpFormatter
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from lockstitch.errors import UsageError, suggestion
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

END = "--"
# Options of earlier versions, and the commands that had them.
_RETIRED = ("--run", "--idle", "--pause")
_SHARED = ("scan", "check", "repair")


class Operand(Struct, frozen=True):
    """A word on the command line without a flag.

    A ``metavar`` of several words is shown as it is. ``required`` is for the help only: the command
    itself reports a missing operand, because an option may take its place. ``known`` are words that
    a shell may offer; others are valid, too.
    """

    name: str
    metavar: str
    help: str
    many: bool = False
    is_target: bool = True
    required: bool = False
    known: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """The form in a usage line: ``TARGET``, ``[TARGET]...``, ``FROM TO``."""
        if " " in self.metavar:
            return self.metavar
        shown = self.metavar if self.required else f"[{self.metavar}]"
        return f"{shown}..." if self.many else shown


class Option(Struct, frozen=True):
    """One option; without a ``metavar`` it is a switch.

    An option with ``implied`` may stand alone and then has that value; any other value has to
    follow ``=``, so that the option never takes the next word. ``choices`` are all valid values,
    ``known`` those that a shell may offer. ``read`` converts the text; it raises `UsageError`, or
    `ValueError` with what the option takes.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    default: Any = None
    implied: str = ""
    known: tuple[str, ...] = ()
    read: Callable[[str], Any] | None = None

    @property
    def value(self) -> str:
        """What is written after the flag: `` FILE``, ``[=KIND]`` or nothing."""
        if self.implied:
            return f"[={self.metavar}]"
        return f" {self.metavar}" if self.metavar else ""

    @property
    def takes_file(self) -> bool:
        """Whether its value is the path of a file or a folder."""
        return self.metavar in ("FILE", "FOLDER", "PATH")

    @property
    def usage(self) -> str:
        """The form in a list: ``-o, --output FILE``."""
        return ", ".join(sorted(self.flags, key=len)) + self.value

    def parse(self, text: str) -> Any:
        """Return the value for a text; raise `UsageError` if it is not valid."""
        flag = self.flags[0]
        if self.choices and text not in self.choices:
            hint, known = suggestion(text, self.choices), ", ".join(self.choices)
            raise UsageError(f"{flag} cannot be {text!r}; it must be one of {known}.{hint}")
        if self.read is None:
            return text
        try:
            return self.read(text)
        except UsageError as error:
            raise UsageError(f"{flag}: {error}") from None
        except ValueError as error:
            raise UsageError(f"{flag} takes {error}") from None


def option(spec: str, help: str, *, name: str = "", **more: Any) -> Option:  # noqa: A002 - so shown
    """Return an option declared as it is written: ``--output -o FILE``.

    Without a ``name`` it is named after its first flag. ``more`` are other fields.
    """
    words = spec.split()
    metavar = "" if words[-1].startswith("-") else words.pop()
    own = name or words[0].removeprefix("--").replace("-", "_")
    return Option(own, tuple(words), help, metavar, **more)


class Command(Struct, frozen=True):
    """One command: its texts, what it takes, and the function that runs it.

    ``run`` gets the values by name or, if there are many, as one ``bundle``. Its line in the list
    of all commands is in ``COMMANDS`` of ``lockstitch.cli``, which fills in ``summary`` and
    ``group``.
    """

    name: str
    run: Callable[..., int]
    details: str
    examples: tuple[str, ...]
    operand: Operand
    options: tuple[Option, ...]
    bundle: type[Struct] | None = None
    group: str = ""
    summary: str = ""


# The options of every command, which are not passed to its ``run``.
COMMON = (
    option("--help -h", "Show this help."),
    option("--version -V", "Show the versions of Lockstitch and what it uses."),
    option("--quiet -q", "Print only results and errors."),
    option("--verbose -v", "Print everything in full, and how long it took."),
    option(
        "--color WHEN",
        "When to use colours: auto (on a terminal), always or never.",
        choices=("auto", "always", "never"),
        default="auto",
    ),
)
# Those that take the next word.
COMMON_WITH_VALUE = {flag for option in COMMON if option.metavar for flag in option.flags}


class CommonOptions(Struct, frozen=True):
    """The values of the options that every command takes."""

    help: bool = False
    version: bool = False
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"


class ParsedCommand(Struct):
    """A parsed command line: the values for the command's ``run``, and the common options."""

    values: dict[str, Any]
    common: CommonOptions


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


def parse(command: Command | None, words: Sequence[str]) -> ParsedCommand:
    """Parse the words of a command line, without the command's name.

    Raises `UsageError` with a sentence if they are wrong. Without a command, only the common
    options are known.
    """
    name, own = (command.name, command.options) if command else ("", ())
    options = (*own, *COMMON)
    parser = _Parser(
        name,
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
        argument_default=SUPPRESS,
        # argparse makes a formatter for every option, which without a width asks the terminal and
        # loads shutil.
        formatter_class=partial(HelpFormatter, width=80),
    )
    for option in options:
        action = "store" if option.metavar else "store_true"
        parser.add_argument(*option.flags, dest=option.name, action=action)
    end = words.index(END) if END in words else len(words)
    alone = {flag: option.implied for option in options if option.implied for flag in option.flags}
    spelled = [f"{word}={alone[word]}" if word in alone else word for word in words[:end]]
    try:
        namespace, others = parser.parse_known_args(spelled)
    except ArgumentError as error:
        raise UsageError(_describe_mistake(name, options, error)) from None
    found = vars(namespace)
    unknown = [word for word in others if word.startswith("-") and word != "-"]
    if unknown and not found.get("help"):
        raise UsageError(_describe_unknown(name, options, unknown[0]))
    for option in options:
        if option.metavar and option.name in found:
            found[option.name] = option.parse(found[option.name])
    common = CommonOptions(
        **{key: found.pop(key) for key in CommonOptions.__struct_fields__ if key in found}
    )
    if command is None:
        return ParsedCommand({}, common)
    values: dict[str, Any] = {o.name: o.default if o.metavar else False for o in own} | found
    operand, operands = command.operand, [*others, *words[end + 1 :]]
    if len(operands) > 1 and not operand.many and not common.help:
        shown = ", ".join(map(public, operands))
        raise UsageError(
            f"{name} takes one {operand.metavar}, but {len(operands)} were given: {shown}."
        )
    values[operand.name] = operands if operand.many else operands[0] if operands else None
    return ParsedCommand(values, common)


def _describe_mistake(name: str, options: Sequence[Option], error: ArgumentError) -> str:
    """Return a sentence on what is wrong with an option."""
    flags = (error.argument_name or "").split("/")
    option = next(option for option in options if option.flags[0] in flags)
    if not option.metavar:
        return f"{option.flags[0]} takes no value. {_see(name)}"
    one_of = f", one of {', '.join(option.choices)}" if option.choices else ""
    return f"{option.flags[0]} needs a value: {option.flags[0]} {option.metavar}{one_of}."


def _describe_unknown(name: str, options: Sequence[Option], word: str) -> str:
    """Return the error for an unknown option, with a suggestion."""
    flag = word.partition("=")[0]
    if name in _SHARED and flag in _RETIRED:
        return (
            f"{name} no longer has the option {flag}: runs shared by several machines were "
            "removed. Use --workers N on one machine, and --shard I/N to divide the threads of "
            "a PostgreSQL database among several."
        )
    hint = suggestion(flag, (flag for option in options for flag in option.flags))
    hint = hint or f" {_see(name)} Put -- before a name that starts with a dash."
    return f"{name or 'lockstitch'} has no option {flag}.{hint}"


def _see(name: str) -> str:
    return f"See: lockstitch {name} -h." if name else "See: lockstitch -h."
