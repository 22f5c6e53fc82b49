"""The options that several commands take; and what every declaration of a command is made of."""

from __future__ import annotations

from lockstitch.cli.declarations import Command, Operand, Option
from lockstitch.dialects.profiles import DIALECTS, profile_named
from lockstitch.formats.registry import NAMES as FORMAT_NAMES

__all__ = [
    "DIALECT",
    "FOLLOW",
    "FORMAT",
    "JSON",
    "LAST",
    "MODEL",
    "OVERWRITE",
    "SESSION",
    "Command",
    "Operand",
    "Option",
]

DIALECT = Option(
    "dialect",
    ("--dialect", "-d"),
    f"Wire format of the input: {', '.join(DIALECTS)}; with a profile as in openai-chat:mistral. "
    "Detected when not given.",
    metavar="DIALECT",
    known=DIALECTS,
    check=profile_named,
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
    known=(*FORMAT_NAMES, "lockstitch"),
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
