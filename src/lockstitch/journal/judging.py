"""Whether a request that was made here satisfies all the rules, told in one quick walk over it."""

from __future__ import annotations

from typing import Any

from lockstitch.dialects.detect import new_dialect
from lockstitch.dialects.profiles import Profile
from lockstitch.given import Given
from lockstitch.model.stretches import Excerpt, excerpt
from lockstitch.rules import examine

# Below this no result can be a giant one, and a list has a size that everybody takes.
_UNREMARKABLE = 10 * 1024 * 1024


def is_small(profile: Profile, size: int, largest: int) -> bool:
    """Tell whether a list of ``size`` bytes at most is within its receiver's limit.

    No message is made of more than two parts of ``largest`` bytes, and none may be a giant.
    """
    limit = max(profile.max_bytes or size, _UNREMARKABLE)
    return size <= limit and 2 * largest <= _UNREMARKABLE


def is_valid(messages: list[Any], dialect: str, model: str | None) -> bool:
    """Tell whether no rule finds anything in a list, which is known to be small and clean text.

    False also for a list that needs a longer look.
    """
    made = _Made(messages, dialect, model, ())
    return made.excerpt is not None and (made.is_proven or not examine(made.case()))


class _Made(Given):
    """A list of plain data that was made here: only where its messages stand is to be judged."""

    def _excerpt(self, profile: Profile, model: str | None) -> Excerpt | None:
        walker = None if profile.name else new_dialect(profile.dialect).walker()
        if walker is None or not self.value:
            return None
        found = excerpt(self.value, walker, with_ends=model is not None)
        is_narrow = found is not None and len(found.numbers) * 2 <= len(self.value)
        return found if is_narrow else None
