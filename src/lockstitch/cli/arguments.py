"""What a command takes, declared once: read by the parser here and by typer in ``manual``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch.addresses import problem_of, public
from lockstitch.dialects.profiles import DIALECTS
from lockstitch.errors import UsageError
from lockstitch.formats.registry import NAMES as FORMAT_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Operand(Struct, frozen=True):
    """What stands on the command line without a flag; always optional."""

    name: str
    metavar: str
    help: str
    many: bool = False
    is_target: bool = True


class Option(Struct, frozen=True):
    """One option; without a ``metavar`` it is a switch.

    One with ``implied`` may stand alone and means that then; a value comes only behind ``=``, so
    that it never takes the next word.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    default: str | None = None
    implied: str = ""


class Command(Struct, frozen=True):
    """One command: what it says of itself, what it takes, and the function that does it."""

    name: str
    run: Callable[..., int]
    summary: str
    details: str
    examples: tuple[str, ...]
    operand: Operand
    options: tuple[Option, ...]

    def parse(self, words: Sequence[str]) -> dict[str, Any] | None:
        """Parse an everyday call into keyword arguments of ``run``.

        None means "not everyday", never "wrong": typer then decides, so both must agree on
        every line that this accepts.
        """
        flags = {flag: option for option in self.options for flag in option.flags}
        values = self.defaults()
        operands: list[str] = []
        rest = iter(words)
        for word in rest:
            flag, attached, text = word.partition("=") if word.startswith("--") else (word, "", "")
            option = flags.get(flag)
            if option is None:
                if word.startswith("-") and word != "-":
                    return None
                operands.append(word)
                continue
            value = _value(option, text if attached else None, rest)
            if value is None:
                return None
            values[option.name] = value
        if len(operands) > 1 and not self.operand.many:
            return None
        if operands:
            values[self.operand.name] = operands if self.operand.many else operands[0]
        return values

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


def _value(option: Option, attached: str | None, rest: Iterator[str]) -> str | bool | None:
    if not option.metavar:
        return True if attached is None else None
    if option.implied and attached is None:
        return option.implied
    value = next(rest, None) if attached is None else attached
    if value is None or (attached is None and value.startswith("-") and value != "-"):
        return None
    return None if option.choices and value not in option.choices else value


DIALECT = Option(
    "dialect",
    ("--dialect", "-d"),
    f"Wire format of the input: {', '.join(DIALECTS)}; with a profile as in openai-chat:mistral. "
    "Detected when not given.",
    metavar="DIALECT",
)
MODEL = Option(
    "model",
    ("--model", "-m"),
    "Model the request goes to, where its rules differ from the dialect's.",
    metavar="MODEL",
)
JSON = Option("as_json", ("--json",), "Print one JSON document for programs.")
FORMAT = Option(
    "form",
    ("--format",),
    f"Format of the store: {', '.join(FORMAT_NAMES)}, lockstitch. Detected when not given.",
    metavar="NAME",
)
SESSION = Option(
    "session",
    ("--session",),
    "Id of one session where a store holds many.",
    metavar="ID",
)
LAST = Option(
    "newest",
    ("--last",),
    "Take the session that was used last: in this folder, or else on this machine.",
)
OVERWRITE = Option(
    "force", ("--force",), "Let -o overwrite a file that exists; never the one that is read."
)
FOLLOW = Option(
    "follow_symlinks",
    ("--follow-symlinks",),
    "Work on the file that a symbolic link leads to; refused otherwise.",
)
