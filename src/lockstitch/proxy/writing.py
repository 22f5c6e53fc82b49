"""A healed request as bytes: those that the client sent, with the smallest splices.

What no edit names keeps its bytes: unknown fields, the order of keys, spellings of numbers and
escapes. What an edit moves or wraps keeps them, too. All is done from left to right and by what
stands there, so that a request that goes on where another ended begins with the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.conversation.json_text import dump, raw_decode, skip_space
from lockstitch.conversation.parts import Path
from lockstitch.repair.edits import DELETE, INSERT, MOVE, REPLACE, Edit, EditTree

_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_BLANK = b" \t\r\n"
_SPACE = re.compile(rb"[ \t\r\n]*+")
# Shorter strings are shared by the interpreter, so that their identity says nothing.
_SHARED = 2
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


# A member as text, and where it stood, -1 for a new one.
_Piece = tuple[int, bytes]
# How many elements a piece of a list holds, and its text if it is not a mere copy.
_Noted = list[tuple[int, bytes | None]]


class Members(Struct, frozen=True):
    """Where the members of a list or an object stand, each with its key, if it has one."""

    names: list[str | int]
    starts: list[int]
    values: list[int]
    ends: list[int]

    def gap(self, data: bytes, at: int) -> bytes:
        """Return what stands between a member and the one before it."""
        return data[self.ends[at - 1] : self.starts[at]]


class EditedDocument(Struct, frozen=True):
    """An edited document, and of what pieces the lists in its fields were put together.

    Of each piece it is noted how many elements it holds, and its text if it is not a mere copy.
    """

    data: bytes
    pieces: dict[str, _Noted]


def rewrite(data: bytes, value: dict[str, Any], edits: Sequence[Edit]) -> EditedDocument:
    """Return the bytes of a JSON document with edits made to the value that was read from it."""
    document = _BodyDocument(data, value)
    return EditedDocument(document.edit(edits), document.pieces)


class _BodyDocument:
    """A JSON text, the value read from it, and where the members stand that were looked for."""

    def __init__(self, data: bytes, value: Any) -> None:
        self.data = data
        self.value = value
        self.start = _skip(data, 0)
        self.end = len(data.rstrip(b" \t\r\n"))
        self.scanned: dict[int, Members] = {}
        self.origins: dict[int, Path] = {}
        self.root = EditTree()
        self.pieces: dict[str, _Noted] = {}
        firsts = self.members(self.start, self.end, value).values[:1]
        spaced = any(data[first - 1 : first].isspace() for first in firsts)
        self.comma, self.colon = (b", ", b": ") if spaced else (b",", b":")

    def edit(self, edits: Sequence[Edit]) -> bytes:
        """Return the text with all edits made."""
        values = [edit.value for edit in edits if edit.op in (INSERT, REPLACE)]
        wanted = {id(part) for value in values for part in _parts(value)}
        for edit in edits:
            # what is put elsewhere is no longer where it was: only there it has to be looked for
            if edit.op in (DELETE, REPLACE):
                value = self.value
                for step in edit.path:
                    value = value[step]
                found = _locate(edit.path, value, wanted)
                self.origins.update({id(part): path for path, part in found})
        head, tail = self.data[: self.start], self.data[self.end :]
        self.root = EditTree.of(edits)
        return head + self._apply(self.root, self.value, (self.start, self.end), []) + tail

    def _apply(self, node: EditTree, value: Any, span: tuple[int, int], noted: _Noted) -> bytes:
        """Return a value as text with its edits; of a list it is ``noted`` what it is made of."""
        start, end = span
        if node.replacement is not None:
            return self._write_value(node.replacement.value)
        if not node.below:
            return self.data[start:end]
        members = self.members(start, end, value)
        if type(value) is list:
            pieces = self._edit_list(node, value, members, noted)
        else:
            pieces = self._edit_object(node, value, members)
        data = self.data
        if not members.starts:
            inside = self.comma.join(piece for _, piece in pieces)
            return data[start : start + 1] + inside + data[end - 1 : end]
        usual = members.gap(data, 1) if len(members.starts) > 1 else self.comma
        out = [data[start : members.starts[0]]]
        for number, (at, piece) in enumerate(pieces):
            if number:
                out.append(members.gap(data, at) if at > 0 else usual)
            out.append(piece)
        return b"".join([*out, data[members.ends[-1] : end]])

    def _edit_list(
        self, node: EditTree, value: list[Any], members: Members, noted: _Noted
    ) -> list[_Piece]:
        """Return the elements of an edited list; those between edits are one piece."""
        pieces: list[_Piece] = []
        after = 0
        for at in sorted(step for step in node.below if isinstance(step, int)):
            if at > after:
                pieces.append((after, self.data[members.starts[after] : members.ends[at - 1]]))
                noted.append((at - after, None))
            below = node.below[at]
            for edit in below.inserts:
                pieces.append((-1, self._write_insert(edit)))
                noted.append((1, pieces[-1][1]))
            if at < len(value) and not below.deleted:
                span = members.starts[at], members.ends[at]
                pieces.append((at, self._apply(below, value[at], span, [])))
                noted.append((1, pieces[-1][1]))
            after = min(at + 1, len(value))
        if after < len(value):
            pieces.append((after, self.data[members.starts[after] : members.ends[-1]]))
            noted.append((len(value) - after, None))
        return pieces

    def _edit_object(self, node: EditTree, value: dict[str, Any], members: Members) -> list[_Piece]:
        """Return the members of an edited object; of a key that is there twice the last counts."""
        last = {name: at for at, name in enumerate(members.names)}
        pieces: list[_Piece] = []
        for at, name in enumerate(members.names):
            below = node.below.get(name)
            start, end = members.starts[at], members.ends[at]
            if below is None or (last[name] != at and not below.deleted):
                pieces.append((at, self.data[start:end]))
            elif not below.deleted:
                noted: _Noted = []
                if node is self.root:
                    self.pieces[str(name)] = noted
                new = self._apply(below, value[str(name)], (members.values[at], end), noted)
                pieces.append((at, self.data[start : members.values[at]] + new))
        for key, below in node.below.items():
            spelled = dump(key).encode() + self.colon
            pieces += [(-1, spelled + self._write_insert(edit)) for edit in below.inserts]
        return pieces

    def _write_insert(self, edit: Edit) -> bytes:
        if edit.op == MOVE:
            return self._at(edit.source_path)
        return self._write_value(edit.value)

    def _write_value(self, value: Any) -> bytes:
        """Return a value as text; what of it stands in the document keeps its spelling."""
        path = self.origins.get(id(value))
        if path is not None:
            return self._at(path)
        if type(value) is dict:
            members = [
                dump(key).encode() + self.colon + self._write_value(one)
                for key, one in value.items()
            ]
            return b"{" + self.comma.join(members) + b"}"
        if type(value) is list:
            return b"[" + self.comma.join(map(self._write_value, value)) + b"]"
        return dump(value).encode()

    def _at(self, path: Path) -> bytes:
        value, start, end = self.value, self.start, self.end
        for step in path:
            members = self.members(start, end, value)
            same = (n for n, name in enumerate(members.names) if name == step)
            at = step if type(step) is int else max(same)
            value, start, end = value[step], members.values[at], members.ends[at]
        return self.data[start:end]

    def members(self, start: int, end: int, value: Any) -> Members:
        """Return where the members of a list or an object stand."""
        found = self.scanned.get(start)
        if found is None:
            try:
                text = self.data[start:end]
                if type(value) is list:
                    found = _place_elements(self.data, start, _ELEMENTS.decode(text))
                else:
                    found = _place_members(self.data, start, _MEMBERS.decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass  # only Python reads it
            found = self.scanned[start] = found or _scan_slowly(self.data, start, end)
        return found


def _parts(value: Any) -> Iterator[Any]:
    """Return a value and all in it that keeps its identity when it is put elsewhere."""
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


def _locate(at: Path, value: Any, wanted: set[int]) -> Iterator[tuple[Path, Any]]:
    """Return the path of every part of a value whose identity is wanted."""
    rest: list[tuple[Path, Any]] = [(at, value)]
    while rest:
        path, one = rest.pop()
        if id(one) in wanted:
            yield path, one
        if type(one) is dict:
            rest += [((*path, key), inner) for key, inner in one.items()]
        elif type(one) is list:
            rest += [((*path, at), inner) for at, inner in enumerate(one)]


def _place_elements(data: bytes, start: int, texts: list[Raw]) -> Members:
    """Find the elements of a list whose texts are known."""
    starts: list[int] = []
    ends: list[int] = []
    at = _skip(data, start + 1)
    gap = b"?"
    for size in [len(memoryview(text)) for text in texts]:
        stop = at + size
        starts.append(at)
        ends.append(stop)
        at = stop + len(gap)
        # most stand as far apart as those before them
        if not data.startswith(gap, stop) or data[at] in _BLANK:
            at = _skip(data, _skip(data, stop) + 1)
            gap = data[stop:at]
    return Members([*range(len(starts))], starts, starts, ends)


def _place_members(data: bytes, start: int, texts: dict[str, Raw]) -> Members | None:
    """Find the members of an object whose values are known; None if a key is there twice."""
    found = Members([], [], [], [])
    at = _skip(data, start + 1)
    while data[at : at + 1] != b"}":
        key = _STRING.match(data, at)
        if key is None:
            return None
        name = msgspec.json.decode(key[0], type=str)
        value = _skip(data, _skip(data, key.end()) + 1)
        text = bytes(texts[name])
        stop = value + len(text)
        behind = _skip(data, stop)
        if data[value:stop] != text or data[behind : behind + 1] not in (b",", b"}"):
            return None
        _add(found, name, (at, value, stop))
        at = _skip(data, behind + 1) if data[behind : behind + 1] == b"," else behind
    return found


def _add(found: Members, name: str | int, places: tuple[int, int, int]) -> None:
    found.names.append(name)
    found.starts.append(places[0])
    found.values.append(places[1])
    found.ends.append(places[2])


def _scan_slowly(data: bytes, start: int, end: int) -> Members:
    """Find members by reading every one of them: slow, and right for whatever JSON there is."""
    text = data[start:end].decode("utf-8", "surrogatepass")
    keyed = text[0] == "{"
    sizes = _Sizes(text, start)
    found = Members([], [], [], [])
    at = skip_space(text, 1)
    while text[at] not in "]}":
        name: str | int = len(found.starts)
        begin = at
        if keyed:
            name, at = raw_decode(text, at, strict=False)
            at = skip_space(text, skip_space(text, at) + 1)
        value = at
        at = raw_decode(text, at, strict=False)[1]
        _add(found, name, (sizes.at(begin), sizes.at(value), sizes.at(at)))
        at = skip_space(text, at)
        if text[at] == ",":
            at = skip_space(text, at + 1)
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
