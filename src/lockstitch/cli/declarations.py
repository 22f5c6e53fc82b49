"""What a command takes, declared once: for the parser, help, completion, man page and docs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch.addresses import problem_of, public
from lockstitch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


class Operand(Struct, frozen=True):
    """What stands on the command line without a flag.

    A ``metavar`` of several words is shown as it is. ``required`` is for help only: the command
    itself says what is missing, since an option may take its place. ``known`` are words that a
    shell may offer; others are as good.
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
        """How it is written in a line of usage: ``TARGET``, ``[TARGET]...``, ``FROM TO``."""
        if " " in self.metavar:
            return self.metavar
        shown = self.metavar if self.required else f"[{self.metavar}]"
        return f"{shown}..." if self.many else shown


class Option(Struct, frozen=True):
    """One option; without a ``metavar`` it is a switch.

    One with ``implied`` may stand alone and means that then; a value comes only behind ``=``, so
    that it never takes the next word. ``choices`` are all its values, ``known`` those that a shell
    may offer; ``check`` raises `UsageError` for one that cannot be.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    default: str | None = None
    implied: str = ""
    known: tuple[str, ...] = ()
    check: Callable[[str], object] | None = None

    @property
    def value(self) -> str:
        """What is written behind the flag: `` FILE``, ``[=KIND]`` or nothing."""
        if self.implied:
            return f"[={self.metavar}]"
        return f" {self.metavar}" if self.metavar else ""

    @property
    def takes_file(self) -> bool:
        """Whether its value is the name of a file or a folder."""
        return self.metavar in ("FILE", "FOLDER", "PATH")

    @property
    def usage(self) -> str:
        """How it is listed: ``-o, --output FILE``."""
        return ", ".join(sorted(self.flags, key=len)) + self.value


class Command(Struct, frozen=True):
    """One command: what it says of itself, what it takes, and the function that does it.

    ``group`` is one of ``help.GROUPS``: where the command stands in the list of all.
    """

    name: str
    run: Callable[..., int]
    summary: str
    details: str
    examples: tuple[str, ...]
    operand: Operand
    options: tuple[Option, ...]
    group: str = ""

    def start(self, values: dict[str, Any]) -> int:
        """Run the command; whoever looks for what was named need not think of odd addresses."""
        given = values[self.operand.name]
        for word in given if isinstance(given, list) else [given]:
            problem = problem_of(word) if word and self.operand.is_target else ""
            if problem and not os.path.lexists(word):
                raise UsageError(f"{public(word)} {problem}")
        return self.run(**values)

    def defaults(self) -> dict[str, Any]:
        """The keyword arguments of ``run`` when nothing is given."""
        values: dict[str, Any] = {o.name: o.default if o.metavar else False for o in self.options}
        values[self.operand.name] = [] if self.operand.many else None
        return values


# What every command takes; none of them reaches its ``run``.
COMMON = (
    Option("help", ("--help", "-h"), "Show this help."),
    Option("version", ("--version", "-V"), "Show the versions of Lockstitch and what it uses."),
    Option("quiet", ("--quiet", "-q"), "Say nothing but results and errors."),
    Option("verbose", ("--verbose", "-v"), "Leave nothing out, and say how long it took."),
    Option(
        "color",
        ("--color",),
        "Colours: auto (on a terminal), always or never.",
        metavar="WHEN",
        choices=("auto", "always", "never"),
        default="auto",
    ),
)
