"""Every error Lockstitch raises, by what the caller should do about it.

LockstitchError
├── UsageError          the call itself is wrong: change the call
│   └── AmbiguousDialect    several wire formats fit the input: name one
├── Unreadable          the input cannot be read: nothing was changed, fix or replace the input
│   └── UnknownFormat       it can be read, but belongs to no program that is known
└── Conflict            the file is no longer what was read: nothing was written, read it again
    └── Busy                a program has the file open for writing: end it first

Unhealed (a warning)    the list could not be made valid: the original was returned

Messages name places, ids and sizes, never message content.
"""

import errno

_REASONS = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.EISDIR: "is a folder, not a file",
    errno.EACCES: "permission denied",
}


def reason_of(error: OSError) -> str:
    """Say why a file cannot be read, without its name."""
    return _REASONS.get(error.errno or 0, error.strerror or "cannot be read")


class LockstitchError(Exception):
    """Base of everything Lockstitch raises."""


class UsageError(LockstitchError, ValueError):
    """The call is wrong; nothing was read or changed."""


class AmbiguousDialect(UsageError):
    """Several dialects fit the input; pass one by name."""


class Unreadable(LockstitchError):
    """The input cannot be read as what it should be; nothing was changed."""


class UnknownFormat(Unreadable):
    """The input is the session of no program that is known; nothing was changed."""


class Conflict(LockstitchError):
    """A file is no longer what it was when it was read; nothing was written: read it again."""


class Busy(Conflict):
    """Another program holds the file, so trying again at once is of no use; nothing was written."""


class Unhealed(UserWarning):
    """A list could not be made valid, so the original was returned unchanged."""
