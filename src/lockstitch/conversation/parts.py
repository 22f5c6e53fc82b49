"""The neutral view over a raw message list: messages, parts and where they stand.

A view never replaces the raw data: every part points at the raw value it was read from,
and what no edit names is handed back as the same object.

Beside it are a ``repr`` without content, and a list of messages that is its holder's own, though
it shares what nobody has looked at yet.
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

    ``at`` is the path inside the message it was read from (``()`` when the message itself is
    the part) and ``home`` that message's index; a part that was invented has ``home`` -1.
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

    ``index`` is its place in the original list (-1: invented).
    ``state`` says how far it differs from its raw value: ``COSMETIC`` changes are those that no
    provider binds reasoning to, such as cache markers.
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


# What sort_parts notes beside kinds and roles: what only some rules are about.
FLAWED = "flawed"
EMPTY = "empty"
BLANK_TEXTS = "blank texts"
MARKED = "marked"
TEXT_BEHIND_CALL = "text behind a call"


class Sorted(Struct):
    """The parts of a list of messages, by kind, in wire order.

    ``signs`` says what there is anywhere: the roles, the kinds of parts, each kind with the role
    of the message that it is in, and what is odd.
    """

    signs: set[str | tuple[str, str]]
    calls: list[Part]
    results: list[Part]
    texts: list[Part]
    reasoning: list[Part]
    servers: list[Part]
    rest: list[Part]


def sort_parts(messages: Iterable[Message]) -> Sorted:
    """Gather the parts of all messages by kind, and note what there is among them."""
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
    signs.update([sign[0] for sign in signs if type(sign) is tuple])
    return Sorted(signs, calls, results, texts, reasoning, servers, rest)


class Place(Struct, frozen=True, gc=False):
    """Where something is; printed the way providers do: ``messages.29.content.1``.

    ``steps`` lead there from the request or the store; ``message`` is the number of the message
    that it is in, None if it is not in a list of messages.
    """

    steps: Path
    message: int | None = None

    @classmethod
    def in_list(cls, key: str, message: int, path: Path = ()) -> Place:
        """Return the place of a message in the list under a key, or of something inside it.

        What a repair added is in no message of the list, and has the number -1.
        """
        if message < 0:
            return cls((key, str(message), *path))
        return cls((key, message, *path), message)

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place that a string names."""
        steps = tuple(int(step) if is_index(step) else step for step in text.split("."))
        number = steps[1] if len(steps) > 1 else None
        return cls(steps, number if type(number) is int and type(steps[0]) is str else None)

    @property
    def path(self) -> Path:
        """The path inside the message, or the whole path if there is no message."""
        return self.steps if self.message is None else self.steps[2:]

    @property
    def order(self) -> list[tuple[int, int, str]]:
        """A key that sorts places in the order of the list: numbers by value, then names."""
        return [(0, step, "") if type(step) is int else (1, 0, str(step)) for step in self.steps]

    def __str__(self) -> str:
        """Name the place."""
        return ".".join(map(str, self.steps))


class Placed(Struct, frozen=True, kw_only=True, dict=True):
    """What says where it is: ``place`` as text for people and JSON, ``at`` as a value for code.

    Made with a ``Place``, it keeps that; a field of its own would show in everybody's JSON.
    """

    def __post_init__(self) -> None:
        """Keep the place as a value, and its text in its field."""
        place: Any = self.place  # type: ignore[attr-defined]
        if type(place) is Place:
            self.__dict__["at"] = place
            structs.force_setattr(self, "place", str(place))

    @cached_property
    def at(self) -> Place:
        """Where it is."""
        return Place.parse(self.place)  # type: ignore[attr-defined]


_COUNTED = (list, tuple, dict, set, frozenset)


def _show(self: Any, *hidden: str) -> str:
    """Show the fields; content only by its kind and size."""
    # Those of a dataclass are asked for without its module, which takes time to import.
    fields = getattr(self, "__dataclass_fields__", None)
    names = self.__struct_fields__ if fields is None else fields
    values = ((name, getattr(self, name)) for name in names)
    shown = [
        f"{name}={describe_size(value) if name in hidden else repr(value)}"
        for name, value in values
    ]
    return f"{type(self).__name__}({', '.join(shown)})"


# Makes the ``__repr__`` of a struct or dataclass that shows some fields by kind and size only.
# Whoever says which fields hide content keeps the others to names, numbers and places.
repr_without: Any = partial(partialmethod, _show)


def describe_size(value: Any) -> str:
    """Describe a value by its kind and size."""
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

    An agent asks for its request once a turn, and nearly all of it is what it was a turn ago.
    Copying all of that would cost as much as reading it anew; giving the same messages out twice
    would let a change that one holder makes show in the next request. So a message that is shared
    is copied at the moment somebody takes it out of the list, and what is taken out is theirs.

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
