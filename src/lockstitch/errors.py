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
    """Return the reason why a file cannot be read, without the name of the file."""
    return _REASONS.get(error.errno or 0, error.strerror or "cannot be read")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean X?`` if a word is close to a known name, else an empty string.

    Leading dashes are ignored, since every option has them.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only needed after a typo

    plain = {name.lstrip("-"): name for name in known}
    found = get_close_matches(word.lstrip("-").lower(), list(plain), n=1, cutoff=0.6)
    return f" Did you mean {plain[found[0]]}?" if found else ""


class Where(NamedTuple):
    """The target and session that an error is about: ``error.about(*where)``."""

    target: str | None = None
    session: str | None = None


class LockstitchError(Exception):
    """Base class of every error that Lockstitch raises.

    ``target`` is the file, URL or store that the error is about, ``session`` the session in it,
    ``place`` the place in that session, and ``code`` the rule. Each is None if it is not known.
    ``message`` says what happened and what to do next; the text of the error puts the names of
    target and session before it.
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
        """Set what the error is about and return it; a field given as None stays as it is."""
        self.target = self.target if target is None else os.fspath(target)
        self.session = self.session if session is None else session
        self.place = self.place if place is None else place
        self.code = self.code if code is None else code
        return self

    @property
    def message(self) -> str:
        """What happened and what to do next, without the names of target and session."""
        return super().__str__()

    @property
    def message_with_session(self) -> str:
        """The message after the name of the session, for output that already names the target."""
        return self.message if self.session is None else f"session {self.session}: {self.message}"

    def __str__(self) -> str:
        """Return the message after the names of target and session."""
        text = self.message_with_session
        return text if self.target is None else f"{self.target}: {text}"


class UsageError(LockstitchError, ValueError):
    """The call is wrong; nothing was read or changed."""


class AmbiguousDialect(UsageError):
    """Several dialects fit the input; pass one by name."""


class Unreadable(LockstitchError):
    """The input cannot be read as what it is supposed to be; nothing was changed."""


class UnknownFormat(Unreadable):
    """No known program wrote the input; nothing was changed.

    ``likeness`` says what the input resembles without being it; it is empty if it resembles
    nothing.
    """

    def __init__(self, message: str = "", likeness: str = "") -> None:
        super().__init__(message)
        self.likeness = likeness


class Conflict(LockstitchError):
    """A file has changed since it was read; nothing was written: read it again.

    A turn of a graph may have been stored in part. ``kept`` is ``"nothing"`` if none of the turn
    was written. It is ``"beside"`` if the turn can be read under the id ``checkpoint`` but is not
    in the history. It is ``"part"`` if its first steps are in the history, up to ``checkpoint``,
    together with the message that the turn began with.
    """

    kept: str = "nothing"
    checkpoint: str | None = None


class Busy(Conflict):
    """A program has the session or its store open and does not release it; nothing was written.

    Trying again at once does not help; trying again later is safe.
    """


class Held(Conflict):
    """Another writer holds the session; nothing was written: wait, read it, or fork it."""


class Fenced(Conflict):
    """Another writer took the session over in the meantime; nothing was written."""


class Moved(Conflict):
    """The session has changed since it was read; nothing was written: read it again."""


class Damaged(Unreadable):
    """A store does not hold the bytes that were written to it; nothing was changed."""


class Unmet(LockstitchError):
    """No compaction can meet the budget; nothing was changed: give more, or start a new session.

    ``least`` is the smallest number of tokens that a compaction could reach, 0 if none would be
    shorter.
    """

    def __init__(self, message: str = "", least: int = 0) -> None:
        super().__init__(message)
        self.least = least


class Unsure(LockstitchError):
    """A write failed, and whether it was stored is unknown until the session is opened again.

    Open the session again to find out. Sending the same thing again under its key is always safe.
    """


class Closed(LockstitchError):
    """The session or the store was closed; nothing was written."""


class Unhealed(LockstitchError, UserWarning):
    """A list could not be made valid: a warning, or an error with ``heal(…, strict=True)``.

    ``codes`` names the rules that are still broken. The original list is unchanged.
    """

    def __init__(self, message: str = "", codes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.codes = codes
