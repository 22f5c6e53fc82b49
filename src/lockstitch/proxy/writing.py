"""A healed request as bytes: those that the client sent, with the smallest splices.

What no edit names keeps its bytes: unknown fields, the order of keys, spellings of numbers and
escapes. What an edit moves or wraps keeps them, too. All is done from left to right and by what
stands there, so that a request that goes on where another ended begins with the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.model.parts import Path
from lockstitch.repair.edits import INSERT, MOVE, REPLACE, Edit
from lockstitch.splices import dump, skip
from lockstitch.unread import raw_decode

_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_SPACE = re.compile(rb"[ \t\r\n]*+")
# Shorter strings are shared by the interpreter, so that their identity says nothing.
_SHARED = 2
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Member(Struct, frozen=True):
    """Where a member of a list or an object stands: its key, if it has one, and its value."""

    name: str | int
    start: int
    value: int
    end: int


def rewritten(data: bytes, value: Any, edits: Sequence[Edit]) -> bytes:
    """Return the bytes of a JSON document with edits made to the value that was read from it."""
    return _Document(data, value).edited(edits)


class _Node:
    """The edits at and below one place."""

    def __init__(self) -> None:
        self.below: dict[str | int, _Node] = {}
        self.inserts: list[Edit] = []
        self.replacement: Edit | None = None
        self.is_gone = False

    def reach(self, path: Path) -> _Node:
        """Return the node at a path, made where it is missing."""
        node = self
        for step in path:
            node = node.below.setdefault(step, _Node())
        return node


def _tree(edits: Iterable[Edit]) -> _Node:
    root = _Node()
    for edit in edits:
        node = root.reach(edit.path)
        if edit.op in (INSERT, MOVE):
            node.inserts.append(edit)
        elif edit.op == REPLACE:
            node.replacement = edit
        else:
            node.is_gone = True
        if edit.op == MOVE:
            root.reach(edit.source_path).is_gone = True
    return root


class _Document:
    """A JSON text, the value read from it, and where the members stand that were looked for."""

    def __init__(self, data: bytes, value: Any) -> None:
        self.data = data
        self.value = value
        self.start = _skip(data, 0)
        self.end = len(data.rstrip(b" \t\r\n"))
        self.scanned: dict[int, list[Member]] = {}
        self.origins: dict[int, Path] = {}
        first = self.members(self.start, self.end, value)[:1]
        spaced = any(data[one.value - 1 : one.value].isspace() for one in first)
        self.comma, self.colon = (b", ", b": ") if spaced else (b",", b":")

    def edited(self, edits: Sequence[Edit]) -> bytes:
        """Return the text with all edits made."""
        values = [edit.value for edit in edits if edit.op in (INSERT, REPLACE)]
        wanted = {id(part) for value in values for part in _parts(value)}
        self.origins = {id(part): path for path, part in _located(self.value, wanted)}
        head, tail = self.data[: self.start], self.data[self.end :]
        return head + self._applied(_tree(edits), self.value, self.start, self.end) + tail

    def _applied(self, node: _Node, value: Any, start: int, end: int) -> bytes:
        if node.replacement is not None:
            return self._written(node.replacement.value)
        if not node.below:
            return self.data[start:end]
        members = self.members(start, end, value)
        pieces = self._listed(node, value, members) if type(value) is list else None
        if pieces is None:
            pieces = self._keyed(node, value, members)
        return self._joined(pieces, members, start, end)

    def _listed(
        self, node: _Node, value: list[Any], members: list[Member]
    ) -> list[tuple[int, bytes]]:
        """Return the elements of an edited list, each with its old place, -1 for a new one."""
        pieces: list[tuple[int, bytes]] = []
        last = max([len(value) - 1, *(step for step in node.below if isinstance(step, int))])
        for at in range(last + 1):
            below = node.below.get(at)
            if below is not None:
                pieces += [(-1, self._inserted(edit)) for edit in below.inserts]
            if at < len(members) and not (below is not None and below.is_gone):
                span = members[at].start, members[at].end
                piece = self.data[slice(*span)]
                if below is not None:
                    piece = self._applied(below, value[at], *span)
                pieces.append((at, piece))
        return pieces

    def _keyed(
        self, node: _Node, value: dict[str, Any], members: list[Member]
    ) -> list[tuple[int, bytes]]:
        """Return the members of an edited object; of a key that is there twice the last counts."""
        last = {member.name: at for at, member in enumerate(members)}
        pieces: list[tuple[int, bytes]] = []
        for at, member in enumerate(members):
            below = node.below.get(member.name)
            if below is None or (last[member.name] != at and not below.is_gone):
                pieces.append((at, self.data[member.start : member.end]))
            elif not below.is_gone:
                new = self._applied(below, value[str(member.name)], member.value, member.end)
                pieces.append((at, self.data[member.start : member.value] + new))
        for key, below in node.below.items():
            name = dump(key).encode() + self.colon
            pieces += [(-1, name + self._inserted(edit)) for edit in below.inserts]
        return pieces

    def _joined(
        self, pieces: list[tuple[int, bytes]], members: list[Member], start: int, end: int
    ) -> bytes:
        data = self.data
        if not members:
            inside = self.comma.join(piece for _, piece in pieces)
            return data[start : start + 1] + inside + data[end - 1 : end]
        gaps = [data[a.end : b.start] for a, b in pairwise(members)]
        usual = gaps[0] if gaps else self.comma
        out = [data[start : members[0].start]]
        for number, (at, piece) in enumerate(pieces):
            if number:
                out.append(gaps[at - 1] if at > 0 else usual)
            out.append(piece)
        return b"".join([*out, data[members[-1].end : end]])

    def _inserted(self, edit: Edit) -> bytes:
        if edit.op == MOVE:
            return self._at(edit.source_path)
        return self._written(edit.value)

    def _written(self, value: Any) -> bytes:
        """Return a value as text; what of it stands in the document keeps its spelling."""
        path = self.origins.get(id(value))
        if path is not None:
            return self._at(path)
        if type(value) is dict:
            members = [
                dump(key).encode() + self.colon + self._written(one) for key, one in value.items()
            ]
            return b"{" + self.comma.join(members) + b"}"
        if type(value) is list:
            return b"[" + self.comma.join(map(self._written, value)) + b"]"
        return dump(value).encode()

    def _at(self, path: Path) -> bytes:
        value, start, end = self.value, self.start, self.end
        for step in path:
            found = {member.name: member for member in self.members(start, end, value)}[step]
            value, start, end = value[step], found.value, found.end
        return self.data[start:end]

    def members(self, start: int, end: int, value: Any) -> list[Member]:
        """Return where the members of a list or an object stand."""
        found = self.scanned.get(start)
        if found is None:
            scan = _elements if type(value) is list else _pairs
            found = self.scanned[start] = list(scan(self.data, start, end))
        return found


def _parts(value: Any) -> Iterator[Any]:
    """Give a value and all in it that keeps its identity when it is put elsewhere."""
    rest = [value]
    while rest:
        one = rest.pop()
        if type(one) is dict:
            rest += one.values()
        elif type(one) is list:
            rest += one
        elif type(one) is not str or len(one) < _SHARED:
            continue
        yield one


def _located(value: Any, wanted: set[int]) -> Iterator[tuple[Path, Any]]:
    """Give the path of every part of a value whose identity is wanted."""
    rest: list[tuple[Path, Any]] = [((), value)] if wanted else []
    while rest:
        path, one = rest.pop()
        if id(one) in wanted:
            yield path, one
        if type(one) is dict:
            rest += [((*path, key), inner) for key, inner in one.items()]
        elif type(one) is list:
            rest += [((*path, at), inner) for at, inner in enumerate(one)]


def _elements(data: bytes, start: int, end: int) -> Iterator[Member]:
    try:
        texts = _ELEMENTS.decode(data[start:end])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield from _read(data, start, end)
        return
    at = _skip(data, start + 1)
    for number, text in enumerate(texts):
        stop = at + len(memoryview(text))
        yield Member(number, at, at, stop)
        at = _skip(data, _skip(data, stop) + 1)


def _pairs(data: bytes, start: int, end: int) -> Iterator[Member]:
    try:
        texts = _MEMBERS.decode(data[start:end])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return iter(_read(data, start, end))
    found = _walked(data, start, texts)
    return iter(_read(data, start, end) if found is None else found)


def _walked(data: bytes, start: int, texts: dict[str, Raw]) -> list[Member] | None:
    """Find the members of an object whose values are known; None if a key is there twice."""
    found: list[Member] = []
    at = _skip(data, start + 1)
    while data[at : at + 1] != b"}":
        key = _STRING.match(data, at)
        if key is None:
            return None
        name = msgspec.json.decode(key[0], type=str)
        value = _skip(data, _skip(data, key.end()) + 1)
        text = memoryview(texts[name])
        stop = value + len(text)
        behind = _skip(data, stop)
        if data[value:stop] != text or data[behind : behind + 1] not in (b",", b"}"):
            return None
        found.append(Member(name, at, value, stop))
        at = behind
        if data[at : at + 1] == b",":
            at = _skip(data, at + 1)
    return found


def _read(data: bytes, start: int, end: int) -> list[Member]:
    """Find members by reading every one of them: slow, and right for whatever JSON there is."""
    text = data[start:end].decode("utf-8", "surrogatepass")
    keyed = text[0] == "{"
    sizes = _Sizes(text, start)
    found: list[Member] = []
    at = skip(text, 1)
    while text[at] not in "]}":
        name: str | int = len(found)
        begin = at
        if keyed:
            name, at = raw_decode(text, at, strict=False)
            at = skip(text, skip(text, at) + 1)
        value = at
        at = raw_decode(text, at, strict=False)[1]
        found.append(Member(name, sizes.at(begin), sizes.at(value), sizes.at(at)))
        at = skip(text, at)
        if text[at] == ",":
            at = skip(text, at + 1)
    return found


class _Sizes:
    """Places of a text as places of its bytes, asked for from left to right."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.known = 0
        self.size = start

    def at(self, place: int) -> int:
        """Return the place in the bytes."""
        self.size += len(self.text[self.known : place].encode("utf-8", "surrogatepass"))
        self.known = place
        return self.size


def _skip(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at
