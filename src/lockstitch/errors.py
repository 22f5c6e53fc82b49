"""Every error Lockstitch raises, by what the caller should do about it.

LockstitchError
├── UsageError          the call itself is wrong: change the call
│   └── AmbiguousDialect    several wire formats fit the input: name one
└── Unreadable          the input cannot be read: nothing was changed, fix or replace the input

Unhealed (a warning)    the list could not be made valid: the original was returned

Messages name places, ids and sizes, never message content.
"""


class LockstitchError(Exception):
    """Base of everything Lockstitch raises."""


class UsageError(LockstitchError, ValueError):
    """The call is wrong; nothing was read or changed."""


class AmbiguousDialect(UsageError):
    """Several dialects fit the input; pass one by name."""


class Unreadable(LockstitchError):
    """The input cannot be read as what it should be; nothing was changed."""


class Unhealed(UserWarning):
    """A list could not be made valid, so the original was returned unchanged."""
