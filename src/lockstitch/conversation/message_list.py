"""A list of messages that is its holder's own, though it shares what nobody has looked at yet.

An agent asks for its request once a turn, and nearly all of it is what it was a turn ago. Copying
all of that would cost as much as reading it anew; giving the same messages out twice would let a
change that one holder makes show in the next request. So a message that is shared is copied at
the moment somebody takes it out of the list, and what is taken out is theirs.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, SupportsIndex

_NESTED = (dict, list)


def copy_plain(value: Any) -> Any:
    """Return a copy of plain data that shares nothing which can be changed."""
    try:
        return _copied(value)
    except RecursionError:
        return marshal.loads(marshal.dumps(value))  # noqa: S302 - written in this very line


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {k: _copied(v) if type(v) in _NESTED else v for k, v in value.items()}
    if type(value) is list:
        return [_copied(v) if type(v) in _NESTED else v for v in value]
    return value


class MessageList(list[Any]):
    """A list whose first messages are shared until they are taken out of it.

    Everything that hands a message to Python code gives one that belongs to this list alone, and
    the same one from then on. What only reads all of it in one go, as comparing does, reads what
    is shared. A copy, a slice, a sum and a pickle are plain lists.
    """

    __slots__ = ("_owned", "_shared")

    def __init__(self, messages: Iterable[Any] = (), shared: int = 0) -> None:
        super().__init__(messages)
        self.share(shared)
        self._owned: set[int] = set()

    def share(self, count: int) -> None:
        """Note that so many of the first messages are somebody else's, too."""
        self._shared = min(count, len(self))

    def begin_with(self, head: list[Any]) -> None:
        """Put messages before all others."""
        count = len(head)
        list.__setitem__(self, slice(0, 0), head)
        self._owned = {*range(count), *(number + count for number in self._owned)}
        self._shared += count

    def own(self) -> None:
        """Copy all that is still shared."""
        if self._shared:
            for number in range(self._shared):
                self._own_one(number)
            self._shared = 0
            self._owned = set()

    def _own_one(self, index: int) -> None:
        number = index + len(self) if index < 0 else index
        if 0 <= number < self._shared and number not in self._owned:
            list.__setitem__(self, number, copy_plain(list.__getitem__(self, number)))
            self._owned.add(number)

    def __getitem__(self, index: Any) -> Any:
        """Take a message out, or several."""
        if type(index) is int and self._shared:
            self._own_one(index)
        elif self._shared:
            self.own()
        return list.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Put a message in the place of another."""
        if type(index) is int and self._shared:
            number = index + len(self) if index < 0 else index
            list.__setitem__(self, index, value)
            self._owned.add(number)
            return
        self.own()
        list.__setitem__(self, index, value)

    def __radd__(self, other: Any) -> Any:
        """Return a plain list with more before it."""
        self.own()
        return other + list(self) if isinstance(other, list) else NotImplemented

    def __iadd__(self, others: Any) -> Any:  # type: ignore[misc]
        """Add messages."""
        self.extend(others)
        return self

    def __reduce_ex__(self, _protocol: SupportsIndex) -> Any:
        """Let a pickle and a deep copy be a plain list."""
        return list, (list(self),)

    def extend(self, others: Iterable[Any]) -> None:
        """Add messages."""
        if others is self:
            self.own()
        list.extend(self, others)

    def pop(self, index: SupportsIndex = -1) -> Any:
        """Take a message out, and away."""
        if index != -1 or len(self) <= self._shared:
            self.own()
        return list.pop(self, index)

    def clear(self) -> None:
        """Take all messages away."""
        self._shared = 0
        list.clear(self)


def _owning(name: str) -> Callable[..., Any]:
    """Make a method of a list that copies all that is still shared before it does its work."""
    method = getattr(list, name)

    @wraps(method)
    def call(self: MessageList, *given: Any, **options: Any) -> Any:
        self.own()
        return method(self, *given, **options)

    return call


# What hands messages out, moves them, or needs to know where each is.
_WHOLE = (
    *("__iter__", "__reversed__", "__delitem__", "__add__", "__mul__", "__rmul__", "__imul__"),
    *("copy", "insert", "remove", "reverse", "sort"),
)
for _name in _WHOLE:
    setattr(MessageList, _name, _owning(_name))
