"""All errors that Lockstitch raises, grouped by what the caller should do about them.

LockstitchError ├── UsageError the call itself is wrong: change the call │ └── AmbiguousDialect
several wire formats fit the input: name one ├── Unreadable the input cannot be read: nothing was
changed, fix or replace the input │ ├── UnknownFormat it can be read, but belongs to no known
program │ └── Damaged a store holds other bytes than were written: nothing was changed ├── Conflict
the target is no longer what was read: nothing was written │ ├── Busy a program has the session or
its file open: end it first │ ├── Held another writer holds the session: wait, read it, or fork it │
├── Fenced another writer took the session over: open it again │ └── Moved the session went on since
it was read: read it again ├── Unmet no compaction meets the budget: nothing was written, give more
├── Unsure a write failed and may be there or not: open the session again ├── Closed the session or
store was closed: open it again └── Unhealed the list could not be made valid: a warning, unless
heal is strict

Messages name places, ids and sizes, never message content.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import NamedTuple, Self

_REASONS = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.EISDIR: "it is a folder, not a file",
    errno.EACCES: "permission denied",
}


def reason_of(error: OSError) -> str:
    """Return why a file cannot be read, without its name."""
    return _REASONS.get(error.errno or 0, error.strerror or "cannot be read")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean X?`` for a word that is nearly one of those known, else nothing.

    Dashes in front do not count: all options have them.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only for those who mistype

    plain = {name.lstrip("-"): name for name in known}
    found = get_close_matches(word.lstrip("-").lower(), list(plain), n=1, cutoff=0.6)
    return f" Did you mean {plain[found[0]]}?" if found else ""


class Where(NamedTuple):
    """What an error is about, for functions that raise one: ``error.about(*where)``."""

    target: str | None = None
    session: str | None = None


class LockstitchError(Exception):
    """Base of everything Lockstitch raises.

    ``target`` is the file, URL or store that it is about, ``session`` the one in it, ``place``
    where in that, ``code`` the rule; None where that is not known. ``message`` is what happened
    and what to do next; the text of the error is that behind the names of target and session.
    """

    target: str | None = None
    session: str | None = None
    place: str | None = None
    code: str | None = None

    def about(
        self,
        target: str | os.PathLike[str] | None = None,
        session: str | None = None,
        *,
        place: str | None = None,
        code: str | None = None,
    ) -> Self:
        """Set what the error is about; what is None stays as it is."""
        self.target = self.target if target is None else os.fspath(target)
        self.session = self.session if session is None else session
        self.place = self.place if place is None else place
        self.code = self.code if code is None else code
        return self

    @property
    def message(self) -> str:
        """What happened and what to do next, for where the names stand before it anyway."""
        return super().__str__()

    @property
    def message_with_session(self) -> str:
        """The message behind the name of the session, for where only the target is named."""
        return self.message if self.session is None else f"session {self.session}: {self.message}"

    def __str__(self) -> str:
        """Return what happened, to what."""
        text = self.message_with_session
        return text if self.target is None else f"{self.target}: {text}"


class UsageError(LockstitchError, ValueError):
    """The call is wrong; nothing was read or changed."""


class AmbiguousDialect(UsageError):
    """Several dialects fit the input; pass one by name."""


class Unreadable(LockstitchError):
    """The input cannot be read as what it should be; nothing was changed."""


class UnknownFormat(Unreadable):
    """The input is the session of no program that is known; nothing was changed.

    ``likeness`` says what it looks like without being it; empty if it looks like nothing.
    """

    def __init__(self, message: str = "", likeness: str = "") -> None:
        super().__init__(message)
        self.likeness = likeness


class Conflict(LockstitchError):
    """A file is no longer what it was when it was read; nothing was written: read it again.

    Of a turn of a graph, more may be there: ``kept`` is ``"nothing"`` if nothing of it was
    written, ``"beside"`` if it can be read under the id ``checkpoint`` and is not in the history,
    and ``"part"`` if its first steps are in the history, up to ``checkpoint``, and with them the
    message that it began with.
    """

    kept: str = "nothing"
    checkpoint: str | None = None


class Busy(Conflict):
    """A program has the session or its store in hand and does not let go; nothing was written.

    Trying again at once is of no use; later it is safe.
    """


class Held(Conflict):
    """Another writer holds the session; nothing was written: wait, read it, or fork it."""


class Fenced(Conflict):
    """Another writer took the session over while this one was away; nothing was written."""


class Moved(Conflict):
    """The session has gone on since it was read; nothing was written: read it again."""


class Damaged(Unreadable):
    """A store holds other bytes than were written to it; nothing was changed."""


class Unmet(LockstitchError):
    """No compaction can meet the budget; nothing was changed: give more, or begin anew.

    ``least`` is how many tokens a compaction could come to, 0 if none would be shorter.
    """

    def __init__(self, message: str = "", least: int = 0) -> None:
        super().__init__(message)
        self.least = least


class Unsure(LockstitchError):
    """A write failed, and whether it is in the store is unknown until the session is opened again.

    Open the session again to see which; sending the same thing again under its key is always safe.
    """


class Closed(LockstitchError):
    """The session or the store was closed; nothing was written."""


class Unhealed(LockstitchError, UserWarning):
    """A list could not be made valid: a warning, or with ``heal(…, strict=True)`` an error.

    ``codes`` names the rules that are still broken. The original list is as it was.
    """

    def __init__(self, message: str = "", codes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.codes = codes
