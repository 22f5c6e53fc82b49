"""What PostgreSQL's errors mean for a journal: was it written, and what can be done about it.

An error that the server reports with severity ERROR has rolled the statement back: nothing was
written. After anything else, a lost connection first of all, nobody knows. The server's own texts
may quote what was sent, so its codes are translated here and its texts are not passed on.
"""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

from lockstitch.errors import Busy, Damaged, LockstitchError, Unreadable, UsageError

_RETRIED = {"40001", "40P01"}
_DOUBTFUL = {"40003"}
_SECRET = re.compile(r"(password|secret)\s*=\s*\S+", re.IGNORECASE)
_KINDS: dict[str, tuple[type[LockstitchError], str]] = {
    "25006": (UsageError, "the server is a replica or read-only; name the primary"),
    "42501": (Unreadable, "the role lacks a privilege on the schema lockstitch"),
    "3D000": (Unreadable, "the database does not exist"),
    "3F000": (Unreadable, "the schema lockstitch is gone"),
    "42P01": (Unreadable, "a table of the schema lockstitch is gone"),
    "42883": (Unreadable, "a function of the schema lockstitch is gone"),
    "53100": (Unreadable, "the server's disk is full"),
    "53200": (Unreadable, "the server is out of memory"),
    "53300": (Busy, "the server has no connection left"),
    "55P03": (Busy, "the server gave up waiting for a lock"),
    "57014": (Busy, "the server cancelled the statement, or its time was up"),
    "40001": (Busy, "the server could not put it in order with what others wrote"),
    "40P01": (Busy, "the server broke a deadlock"),
    "23505": (Damaged, "there are records after the session's end"),
    "XX001": (Damaged, "the server found damaged data"),
    "XX002": (Damaged, "the server found a damaged index"),
}


def is_rolled_back(error: psycopg.Error) -> bool:
    """Whether the server itself said that the statement failed, so nothing of it was kept."""
    code = error.sqlstate or ""
    if not code or code in _DOUBTFUL or code.startswith("08"):
        return False
    return error.diag.severity_nonlocalized == "ERROR"


def is_worth_another_try(error: psycopg.Error) -> bool:
    """Whether the same statement, rolled back, may well succeed at once."""
    return is_rolled_back(error) and error.sqlstate in _RETRIED


def translated(error: psycopg.Error, where: str) -> LockstitchError:
    """Say what a reported error means; nothing was written."""
    code = error.sqlstate or ""
    kind, text = _KINDS.get(code, (Unreadable, f"the server refused it: {_name_of(code)}"))
    return kind(f"{where}: {text} (SQLSTATE {code or 'none'}); nothing was written")


def _name_of(code: str) -> str:
    try:
        return errors.lookup(code).__name__
    except KeyError:
        return "an error of its own"


def reason_of(error: psycopg.Error, secrets: list[str]) -> str:
    """Say in one line why no connection was made, without what must not be seen."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines) or "no reason given"
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _SECRET.sub(r"\1=***", text)
