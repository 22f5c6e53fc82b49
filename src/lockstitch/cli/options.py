"""Options that several commands take, and functions that read the values of options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lockstitch.cli.parser import Command, Operand, option
from lockstitch.conversation.json_text import is_index
from lockstitch.dialects.profiles import DIALECTS, profile_named
from lockstitch.formats.interface import NAMES as FORMAT_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "DIALECT",
    "FOLLOW",
    "FORMAT",
    "JSON",
    "LAST",
    "MODEL",
    "OVERWRITE",
    "SESSION",
    "SHARD",
    "WAIT",
    "WORKERS",
    "YES",
    "Command",
    "Operand",
    "option",
    "read_age",
    "read_number",
    "read_port",
    "read_seconds",
]
_AGE = re.compile(r"(\d+)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_HIGHEST_PORT = 65535


# Values.


def read_number(what: str = "a number", least: int = 0) -> Callable[[str], int]:
    """Return a function that reads a whole number; ``what`` says what the option takes."""

    def read(text: str) -> int:
        if not is_index(text) or int(text) < least:
            raise ValueError(what)
        return int(text)

    return read


def read_port(text: str) -> int:
    """Return a port number."""
    if not is_index(text) or int(text) > _HIGHEST_PORT:
        raise ValueError(f"a number from 0 to {_HIGHEST_PORT}")
    return int(text)


def read_seconds(text: str) -> float:
    """Return a number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError("a number of seconds")
    return number


def read_age(text: str) -> float:
    """Return an age such as ``30d`` in seconds."""
    found = _AGE.fullmatch(text)
    if not found:
        raise ValueError("an age such as 90d, 12h or 6w")
    return int(found[1]) * _UNITS[found[2]]


def _read_dialect(text: str) -> str:
    profile_named(text)
    return text


def _read_shard(text: str) -> tuple[int, int]:
    first, slash, count = text.partition("/")
    if not (slash and is_index(first) and is_index(count) and 0 < int(first) <= int(count)):
        raise ValueError(
            "a part and the number of parts, counted from 1: --shard 2/4 is the second of four"
        )
    return int(first), int(count)


# Options.

DIALECT = option(
    "--dialect -d DIALECT",
    f"Wire format of the input: {', '.join(DIALECTS)}; with a profile as in openai-chat:mistral. "
    "Detected by default.",
    known=DIALECTS,
    read=_read_dialect,
)
MODEL = option(
    "--model -m MODEL", "Model that the request goes to, if its rules differ from the dialect's."
)
JSON = option("--json", "Print one JSON document for programs.", name="as_json")
YES = option("--yes -y", "Do not ask.")
FORMAT = option(
    "--format NAME",
    f"Format of the store: {', '.join(FORMAT_NAMES)}, lockstitch. Detected by default.",
    name="form",
    known=(*FORMAT_NAMES, "lockstitch"),
)
SESSION = option("--session ID", "Id of one session, if a store holds several.")
LAST = option(
    "--last",
    "Take the most recently used session: in this folder, or else on this machine.",
    name="newest",
)
OVERWRITE = option("--force", "Let -o overwrite an existing file; never the one that is read.")
FOLLOW = option(
    "--follow-symlinks", "Follow a symbolic link to the file that it points to; refused otherwise."
)
WAIT = option(
    "--wait SECONDS",
    "Wait this long for a writer to release the session (default: 0).",
    default=0.0,
    read=read_seconds,
)
WORKERS = option(
    "--workers -w N", "How many processes to use.", read=lambda text: max(read_number()(text), 1)
)
SHARD = option(
    "--shard I/N",
    "PostgreSQL only: take part I of N of all threads, e.g. 2/4, one per machine.",
    read=_read_shard,
)
