"""The neutral view of a raw message list: messages, parts and their places.

A view never replaces the raw data. Every part points at the raw value it was read from, and
whatever no edit names is handed back as the same object.

The module also has a ``repr`` that hides content, and a list of messages that copies each shared
message when someone takes it out.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable
from functools import cached_property, partial, partialmethod, wraps
from typing import Any, SupportsIndex

from msgspec import UNSET, Raw, Struct, structs

from lockstitch.conversation.json_text import is_index

TEXT = "text"
CALL = "call"
RESULT = "result"
REASONING = "reasoning"
MEDIA = "media"
SERVER_CALL = "server-call"
SERVER_RESULT = "server-result"
OTHER = "other"
BROKEN = "broken"

USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
SYSTEM = "system"
UNKNOWN = "unknown"

Path = tuple[str | int, ...]

UNTOUCHED = 0
COSMETIC = 1
CHANGED = 2


class Part(Struct, gc=False):
    """One block, tool call, result or item of a message.

    ``at`` is the path inside the message from which it was read (``()`` if the message itself is
    the part), and ``home`` is the index of that message. A part that a repair made has ``home`` -1.
    """

    kind: str
    raw: Any
    at: Path = ()
    home: int = -1
    id: str | None = None
    name: str | None = None
    flavor: str = ""
    text: str = ""


class Message(Struct, gc=False):
    """One raw message with its parts in wire order.

    ``index`` is its index in the original list, -1 if a repair made it. ``state`` says how far it
    differs from its raw value: ``COSMETIC`` changes, such as cache markers, are those that no
    provider binds reasoning to.
    """

    raw: Any
    index: int
    role: str
    parts: list[Part]
    flaw: str = ""
    state: int = UNTOUCHED

    def touch(self, state: int = CHANGED) -> None:
        """Mark this message as different from its raw value."""
        self.state = max(self.state, state)

    def has(self, kind: str) -> bool:
        """Whether any part is of this kind."""
        return any(part.kind == kind for part in self.parts)


# What sort_parts notes besides kinds and roles: oddities that only some rules look for.
FLAWED = "flawed"
EMPTY = "empty"
BLANK_TEXTS = "blank texts"
MARKED = "marked"
TEXT_BEHIND_CALL = "text behind a call"


class Sorted(Struct):
    """The parts of a list of messages, by kind, in wire order.

    ``signs`` says what occurs anywhere in the list: the roles, the kinds of parts, each kind paired
    with the role of its message, and oddities.
    """

    signs: set[str | tuple[str, str]]
    calls: list[Part]
    results: list[Part]
    texts: list[Part]
    reasoning: list[Part]
    servers: list[Part]
    rest: list[Part]


def sort_parts(messages: Iterable[Message]) -> Sorted:
    """Gather the parts of all messages by kind, and note what occurs among them."""
    signs: set[str | tuple[str, str]] = set()
    calls: list[Part] = []
    results: list[Part] = []
    texts: list[Part] = []
    reasoning: list[Part] = []
    servers: list[Part] = []
    rest: list[Part] = []
    drawer = {
        TEXT: texts,
        CALL: calls,
        RESULT: results,
        REASONING: reasoning,
        SERVER_CALL: servers,
        SERVER_RESULT: servers,
        MEDIA: rest,
        OTHER: rest,
        BROKEN: rest,
    }
    for message in messages:
        role = message.role
        signs.add(role)
        if message.flaw:
            signs.add(FLAWED)
        if not message.parts:
            signs.add(EMPTY)
        has_called = False
        for part in message.parts:
            kind = part.kind
            drawer[kind].append(part)
            signs.add((kind, role))
            if kind == CALL:
                has_called = True
            elif kind == TEXT:
                if has_called:
                    signs.add(TEXT_BEHIND_CALL)
                if not part.text or part.text.isspace():
                    signs.add(BLANK_TEXTS)
                if part.flavor == "bare":
                    signs.add(FLAWED)
            if type(part.raw) is dict and "cache_control" in part.raw:
                signs.add(MARKED)
    # a kind that occurs under some role occurs at all
    signs.update([sign[0] for sign in signs if type(sign) is tuple])
    return Sorted(signs, calls, results, texts, reasoning, servers, rest)


class Place(Struct, frozen=True, gc=False):
    """A place in a request or a store; printed as providers do: ``messages.29.content.1``.

    ``steps`` is the path from the request or the store. ``message`` is the number of the message
    that the place is in, None outside of any list of messages.
    """

    steps: Path
    message: int | None = None

    @classmethod
    def in_list(cls, key: str, message: int, path: Path = ()) -> Place:
        """Return the place of a message in the list under a key, or of something inside it.

        A message that a repair made is not in the list and has the number -1.
        """
        if message < 0:
            return cls((key, str(message), *path))
        return cls((key, message, *path), message)

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place that a text names, for texts from outside this project."""
        steps = tuple(int(step) if is_index(step) else step for step in text.split("."))
        number = steps[1] if len(steps) > 1 else None
        return cls(steps, number if type(number) is int and type(steps[0]) is str else None)

    @property
    def path(self) -> Path:
        """The path inside the message, or the whole path if the place is in no message."""
        return self.steps if self.message is None else self.steps[2:]

    @property
    def order(self) -> list[tuple[int, int, str]]:
        """A key that sorts places in the order of the list: numbers by value, then names."""
        return [(0, step, "") if type(step) is int else (1, 0, str(step)) for step in self.steps]

    def __str__(self) -> str:
        """Return the place as text."""
        return ".".join(map(str, self.steps))


class Placed(Struct, frozen=True, kw_only=True, dict=True):
    """A value that knows where it is: ``place`` is text for people and JSON, ``at`` is for code.

    If it is made with a ``Place``, it keeps that. ``at`` is not a field, since it would show in
    everybody's JSON.
    """

    def __post_init__(self) -> None:
        """Keep the place as a value, and put its text into the field."""
        place: Any = self.place  # type: ignore[attr-defined]
        if type(place) is Place:
            self.__dict__["at"] = place
            structs.force_setattr(self, "place", str(place))

    @cached_property
    def at(self) -> Place:
        """The place as a value."""
        return Place.parse(self.place)  # type: ignore[attr-defined]


_COUNTED = (list, tuple, dict, set, frozenset)


def _show(self: Any, *hidden: str) -> str:
    """Show the fields; content only by its kind and size."""
    # A dataclass is read without importing ``dataclasses``, which is slow to load.
    fields = getattr(self, "__dataclass_fields__", None)
    names = self.__struct_fields__ if fields is None else fields
    values = ((name, getattr(self, name)) for name in names)
    shown = [
        f"{name}={describe_size(value) if name in hidden else repr(value)}"
        for name, value in values
    ]
    return f"{type(self).__name__}({', '.join(shown)})"


# Makes the ``__repr__`` of a struct or dataclass that shows some fields by kind and size only. All
# other fields must hold nothing but names, numbers and places.
repr_without: Any = partial(partialmethod, _show)


def describe_size(value: Any) -> str:
    """Return the kind and size of a value, without its content."""
    if value is None or value is UNSET:
        return repr(value)
    if isinstance(value, str):
        return f"<{len(value)} characters>"
    if isinstance(value, Raw | bytes):
        return f"<{len(bytes(value))} bytes>"
    if isinstance(value, _COUNTED):
        return f"<{type(value).__name__} of {len(value)}>"
    return f"<{type(value).__name__}>"


_NESTED = (dict, list)


def copy_plain(value: Any) -> Any:
    """Return a copy of plain data that shares nothing mutable with it."""
    try:
        return _copy(value)
    except RecursionError:
        # marshal takes deeper nesting than Python's recursion limit allows.
        return marshal.loads(marshal.dumps(value))  # noqa: S302 - written in this very line


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {k: _copy(v) if type(v) in _NESTED else v for k, v in value.items()}
    if type(value) is list:
        return [_copy(v) if type(v) in _NESTED else v for v in value]
    return value


class MessageList(list[Any]):
    """A list whose first messages are shared until someone takes them out.

    An agent asks for its request once a turn, and nearly all of it is the same as a turn ago.
    Copying all of that would cost as much as reading it anew. Handing the same messages out twice
    would let a change by one holder show up in the next request. So a shared message is copied at
    the moment it is taken out of the list, and the copy belongs to whoever took it.

    Everything that hands a message to Python code gives a copy that belongs to this list alone, and
    gives the same copy from then on. Operations that only read the whole list in one go, such as a
    comparison, read the shared messages. A copy, a slice, a sum and a pickle are plain lists.
    """

    __slots__ = ("_owned", "_shared")

    def __init__(self, messages: Iterable[Any] = (), shared: int = 0) -> None:
        super().__init__(messages)
        self.share(shared)
        self._owned: set[int] = set()

    def share(self, count: int) -> None:
        """Note that the first ``count`` messages are shared with someone else."""
        self._shared = min(count, len(self))

    def begin_with(self, head: list[Any]) -> None:
        """Insert messages, which belong to this list, before all others."""
        count = len(head)
        list.__setitem__(self, slice(0, 0), head)
        self._owned = {*range(count), *(number + count for number in self._owned)}
        self._shared += count

    def own(self) -> None:
        """Copy every message that is still shared."""
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
        """Return a message, or several, that belong to this list alone."""
        if type(index) is int and self._shared:
            self._own_one(index)
        elif self._shared:
            self.own()
        return list.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Replace a message."""
        if type(index) is int and self._shared:
            number = index + len(self) if index < 0 else index
            list.__setitem__(self, index, value)
            self._owned.add(number)
            return
        self.own()
        list.__setitem__(self, index, value)

    def __radd__(self, other: Any) -> Any:
        """Return a plain list that begins with another one."""
        self.own()
        return other + list(self) if isinstance(other, list) else NotImplemented

    def __iadd__(self, others: Any) -> Any:  # type: ignore[misc]
        """Append messages."""
        self.extend(others)
        return self

    def __reduce_ex__(self, _protocol: SupportsIndex) -> Any:
        """Pickle and deep-copy as a plain list."""
        return list, (list(self),)

    def extend(self, others: Iterable[Any]) -> None:
        """Append messages."""
        if others is self:
            self.own()
        list.extend(self, others)

    def pop(self, index: SupportsIndex = -1) -> Any:
        """Remove a message and return it."""
        if index != -1 or len(self) <= self._shared:
            self.own()
        return list.pop(self, index)

    def clear(self) -> None:
        """Remove all messages."""
        self._shared = 0
        list.clear(self)


def _own_first(name: str) -> Callable[..., Any]:
    """Return a method of ``list`` that first copies every message that is still shared."""
    method = getattr(list, name)

    @wraps(method)
    def call(self: MessageList, *given: Any, **options: Any) -> Any:
        self.own()
        return method(self, *given, **options)

    return call


# Methods that hand messages out, move them, or depend on where each one is.
_OWNING_METHODS = (
    *("__iter__", "__reversed__", "__delitem__", "__add__", "__mul__", "__rmul__", "__imul__"),
    *("copy", "insert", "remove", "reverse", "sort"),
)
for _name in _OWNING_METHODS:
    setattr(MessageList, _name, _own_first(_name))
