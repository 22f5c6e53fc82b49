"""Decide whether one request body is sent unchanged or healed; pure and deterministic.

Everyday requests are proven valid without building a view of them; the rules check the others. A
request that was refused is checked once more. The text of a refusal never says what to change. It
only says by whose rules to check again. If these rules find something at the place that was named,
the usual engine repairs it; otherwise nothing is changed.

A healed request is written from the bytes that the client sent, with the smallest splices. What no
edit names keeps its bytes: unknown fields, the order of keys, spellings of numbers and escapes.
Even what an edit moves or wraps keeps them. Everything is done from left to right and depends only
on what is there, so a request that continues another one begins with the same bytes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from lockstitch.conversation.json_text import decode, dump, member_spans, raw_decode, skip_space
from lockstitch.conversation.parts import Path
from lockstitch.dialects.profiles import PROFILES, VIEWS, profile_named
from lockstitch.errors import UsageError
from lockstitch.repair.edits import DELETE, INSERT, MOVE, REPLACE, Edit, EditTree
from lockstitch.repair.plan import Plan, plan_sent
from lockstitch.rules import ERROR, RULES

Body = dict[str, Any]

# A larger body may contain a very large part, or exceed what the provider accepts.
_UNREMARKABLE = 10 << 20
_NUL = re.compile(rb"\\u0000")


def is_clean(data: bytes) -> bool:
    """Whether a JSON text has a usual size and certainly contains no NUL."""
    return len(data) <= _UNREMARKABLE and _NUL.search(data) is None


def is_proven(body: Body, dialect: str, model: str | None) -> bool:
    """Whether the value of a clean text certainly breaks no rule of the dialect."""
    raw = body.get(profile_named(dialect).list_key)
    try:
        return type(raw) is list and bool(raw) and VIEWS[dialect].is_proven(body, raw, model)
    except (KeyError, TypeError, AttributeError, IndexError):
        return False


class HealDecision(Struct, frozen=True):
    """What to send, and what was done to it.

    ``repaired`` counts the repairs by code, ``left`` what could not be repaired, and ``places``
    says where. If all of these are empty, ``data`` is what came in, byte for byte. ``streams`` says
    that the body asks for a stream.
    """

    data: bytes
    streams: bool = False
    repaired: dict[str, int] = {}
    left: dict[str, int] = {}
    places: tuple[str, ...] = ()


def decide(
    data: bytes, profile: str, model: str | None = None, *, strict: bool = False
) -> HealDecision:
    """Decide about a body for a receiver; ``model`` is the one that the path names, if any.

    A body that is not JSON, or not a conversation, is sent unchanged, because its receiver explains
    that best. With ``strict``, reasoning after a repaired place is dropped.
    """
    body = read_body(data)
    if body is None:
        return HealDecision(data)
    return decide_quickly(data, body, profile, model) or heal_body(
        data, body, profile, model, strict=strict
    )


def decide_quickly(
    data: bytes, body: dict[str, Any], profile: str, model: str | None
) -> HealDecision | None:
    """Decide about a body that is certainly valid; return None if it needs a closer look."""
    named = body.get("model") if model is None else model
    named = named if type(named) is str else None
    if is_plain_body(profile) and is_clean(data) and is_proven(body, profile, named):
        return HealDecision(data, body.get("stream") is True)
    return None


def heal_body(
    data: bytes, body: dict[str, Any], profile: str, model: str | None, *, strict: bool = False
) -> HealDecision:
    """Decide about a body by all rules."""
    try:
        plan = plan_sent(body, profile, model, strict=strict, clean=is_clean(data))
    except UsageError:
        return HealDecision(data, body.get("stream") is True)
    return structs.replace(_decide_by_plan(data, body, plan), streams=body.get("stream") is True)


def is_plain_body(profile: str) -> bool:
    """Whether this is a dialect with its own rules, not a variant of it."""
    return ":" not in profile


def _decide_by_plan(data: bytes, body: dict[str, Any], plan: Plan) -> HealDecision:
    if not plan.healed:
        refused = [finding for finding in plan.remaining if finding.severity == ERROR]
        places = tuple(finding.place for finding in refused)
        return HealDecision(data, left=_count(finding.code for finding in refused), places=places)
    if not plan.changed:
        return HealDecision(data)
    written = rewrite(data, body, plan.edits)
    # Read the new parts of the result again: they must be what was planned. The rest was copied,
    # and is only checked to be JSON.
    new = {key: value for key, value in plan.plain.items() if value is not body.get(key)}
    try:
        _MEMBERS.decode(written.data)
        is_planned = all(_is_planned(written, key, value) for key, value in new.items())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # what only Python can read is read as a whole
        is_planned = _value(written.data) == plan.plain
    if not is_planned or not new:
        raise Miswritten("the healed request could not be written as planned")
    repaired = _count(change.code for change in plan.changes)
    places = tuple(change.place for change in plan.changes)
    return HealDecision(written.data, repaired=repaired, places=places)


def _count(codes: Any) -> dict[str, int]:
    return dict(sorted(Counter(codes).items()))


class Miswritten(Exception):
    """The bytes that were written do not say what was planned, so they must not be sent."""


def _is_planned(written: EditedDocument, key: str, value: Any) -> bool:
    """Whether the parts that were written for a field are the planned ones."""
    pieces = written.pieces.get(key)
    if pieces is None or type(value) is not list:
        text = _MEMBERS.decode(written.data)[key]
        return bool(msgspec.json.decode(text) == value)
    at = 0
    for size, piece in pieces:
        if piece is not None and msgspec.json.decode(piece) != value[at]:
            return False
        at += size
    return at == len(value)


def read_body(data: bytes) -> dict[str, Any] | None:
    """Return the object in a body, None if it is not one; big and odd numbers stay texts."""
    value = _value(data)
    return value if type(value) is dict else None


def _value(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return decode(data.decode("utf-8"), constants=False)
    except (ValueError, RecursionError):
        return None


# Words that a rule leaves open in a refusal; numbers among them are places.
_OPEN = re.compile(r"<(\w+)>")
_FEWEST_LETTERS = 16
_LONGEST_TEXT = 4000


class _KnownRefusal(Struct, frozen=True):
    """The known words of a refusal: who says them, and for which rule."""

    code: str
    profile: str
    pattern: re.Pattern[str]


def look_again(
    plain: bytes, before: HealDecision, profile: str, model: str | None, text: bytes
) -> HealDecision | None:
    """Return a refused request healed once more; None if the refusal names nothing to be found.

    The result differs from the refused body by a repair of the very rule that the refusal is about.
    """
    said = _words_of(text)
    for refusal in _refusals(profile.partition(":")[0]):
        found = refusal.pattern.search(said)
        if found is None:
            continue
        number = found.groupdict().get("N")
        for rules, named, strict in _second_looks(refusal, profile, model):
            again = decide(plain, rules, named, strict=strict)
            if again.data == before.data or again.left:
                continue
            if again.repaired.get(refusal.code, 0) <= before.repaired.get(refusal.code, 0):
                continue
            places = {place.split(".")[1] for place in again.places if "." in place}
            if number is None or before.repaired or number in places:
                return again
    return None


def _second_looks(
    refusal: _KnownRefusal, profile: str, model: str | None
) -> Iterator[tuple[str, str | None, bool]]:
    """Yield the ways to check again, the closest first: whose rules, which model, how strictly."""
    if not is_plain_body(refusal.profile) and refusal.profile != profile:
        if is_plain_body(profile):
            yield refusal.profile, model, False
        return
    yield profile, model, True
    for stricter in VIEWS[profile].newest_models if is_plain_body(profile) else ():
        yield profile, stricter, False


def _words_of(text: bytes) -> str:
    """Return the words of a refusal, whatever the format of its body."""
    try:
        body = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if type(body) is list and body:
        body = body[0]
    for key in ("error", "message"):
        if type(body) is dict and key in body:
            body = body[key]
    return body[:_LONGEST_TEXT] if type(body) is str else ""


@cache
def _refusals(dialect: str) -> list[_KnownRefusal]:
    """Return the known refusals of a dialect's servers, the longest first."""
    found: list[_KnownRefusal] = []
    for rule in RULES.values():
        for who, words in rule.errors:
            name = who.partition(" (")[0]
            if name in PROFILES and name.partition(":")[0] == dialect and rule.fixable:
                pattern = _pattern(words)
                if pattern is not None:
                    found.append(_KnownRefusal(rule.code, name, pattern))
    return sorted(found, key=lambda one: len(one.pattern.pattern), reverse=True)


def _pattern(words: str) -> re.Pattern[str] | None:
    """Return a pattern for the words of a refusal; None if hardly any of them are fixed."""
    pieces = _OPEN.split(words)
    if sum(len(piece.strip()) for piece in pieces[::2]) < _FEWEST_LETTERS:
        return None
    out: list[str] = []
    named = False
    for at, piece in enumerate(pieces):
        if at % 2 == 0:
            out.append(re.escape(piece))
        elif piece in ("N", "next", "M", "K", "n"):
            out.append(r"(?P<N>\d+)" if piece == "N" and not named else r"\d+")
            named = named or piece == "N"
        else:
            out.append(r".{0,200}?")
    return re.compile("".join(out), re.DOTALL)


_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_SPACE = re.compile(rb"[ \t\r\n]*+")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# Python shares shorter strings, so their identity says nothing.
_SHARED = 2

_BLANK = b" \t\r\n"
# A member as text, and its old place, -1 for a new one.
_Piece = tuple[int, bytes]
# The number of elements in a piece of a list, and its text if it is not just a copy.
_Noted = list[tuple[int, bytes | None]]


class Members(Struct, frozen=True):
    """The places of the members of a list or an object, each with its key, if it has one."""

    names: list[str | int]
    starts: list[int]
    values: list[int]
    ends: list[int]

    def gap(self, data: bytes, at: int) -> bytes:
        """Return the bytes between a member and the one before it."""
        return data[self.ends[at - 1] : self.starts[at]]


class EditedDocument(Struct, frozen=True):
    """An edited document, and the pieces that the lists in its fields consist of.

    For each piece it has the number of elements, and its text if it is not just a copy.
    """

    data: bytes
    pieces: dict[str, _Noted]


def rewrite(data: bytes, value: dict[str, Any], edits: Sequence[Edit]) -> EditedDocument:
    """Return the bytes of a JSON document, with edits made to the value that was read from it."""
    document = _BodyDocument(data, value)
    return EditedDocument(document.edit(edits), document.pieces)


class _BodyDocument:
    """A JSON text, the value read from it, and the places of members that were looked up."""

    def __init__(self, data: bytes, value: Any) -> None:
        self.data = data
        self.value = value
        self.start = len(data) - len(data.lstrip(_BLANK))
        self.end = len(data.rstrip(_BLANK))
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
            # a value that is moved has another place than before; only moved values have to be
            # located
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
        """Return an edited value as text; for a list, also record the pieces in ``noted``."""
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
        """Return the elements of an edited list; all elements between two edits are one piece."""
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
        """Return the members of an edited object; of a repeated key, the last one counts."""
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
        """Return a value as text; parts that are in the document keep their spelling."""
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
        """Return the places of the members of a list or an object."""
        found = self.scanned.get(start)
        if found is None:
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                read = _ELEMENTS if type(value) is list else _MEMBERS
                found = _place(self.data, start, read.decode(self.data[start:end]))
        if found is None:
            # some of it only Python can read
            found = Members([], [], [], [])
            # decoded as Latin-1, so that places in the text are places of bytes
            text = self.data[start:end].decode("latin-1")
            at = skip_space(text, 1)
            for low, high in member_spans(text):
                name: str | int = len(found.names)
                if type(value) is not list:
                    key = raw_decode(text, at, strict=False)[1]
                    name = json.loads(self.data[start + at : start + key], strict=False)
                found.names.append(name)
                found.starts.append(start + at)
                found.values.append(start + low)
                found.ends.append(start + high)
                # after the comma, if there is one
                at = skip_space(text, skip_space(text, high) + 1)
        self.scanned[start] = found
        return found


def _place(data: bytes, start: int, texts: list[Raw] | dict[str, Raw]) -> Members | None:
    """Return the places of members whose texts are known; None if a key is repeated."""
    found = Members([], [], [], [])
    at = _skip(data, start + 1)
    while data[at] not in b"]}":
        name: Any = len(found.names)
        value = at
        if type(texts) is dict:
            key = _STRING.match(data, at)
            if key is None:
                return None
            name = msgspec.json.decode(key[0], type=str)
            value = _skip(data, _skip(data, key.end()) + 1)
        text = texts[name]
        stop = value + len(memoryview(text))
        behind = _skip(data, stop)
        if type(texts) is dict and (data[value:stop] != bytes(text) or data[behind] not in b",}"):
            return None
        found.names.append(name)
        found.starts.append(at)
        found.values.append(value)
        found.ends.append(stop)
        at = _skip(data, behind + 1) if data[behind] in b"," else behind
    return found


def _skip(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value and everything in it that keeps its identity when it is moved."""
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
    """Yield the path of every part of a value whose identity is wanted."""
    rest: list[tuple[Path, Any]] = [(at, value)]
    while rest:
        path, one = rest.pop()
        if id(one) in wanted:
            yield path, one
        if type(one) is dict:
            rest += [((*path, key), inner) for key, inner in one.items()]
        elif type(one) is list:
            rest += [((*path, at), inner) for at, inner in enumerate(one)]
