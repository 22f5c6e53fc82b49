"""Remove secrets from a JSON value: they become stable placeholders, and its structure stays."""

from __future__ import annotations

import json
import operator
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from lockstitch.conversation.json_text import dump, is_json
from lockstitch.redaction import texts as encodings
from lockstitch.redaction.secrets import NAMES, SecretSpan, kind_of
from lockstitch.redaction.spans import (
    DEPTH,
    KNOWN,
    PLACEHOLDER,
    SHORTEST,
    Layers,
    find_spans,
    holding,
    suspicious,
)
from lockstitch.redaction.texts import is_words

# A path is a chain from the inside out, (outer, step), because most are never written out.
Trail = tuple[Any, Any] | None

# Fields that name, address or sign things, wherever a program and not a tool wrote them.
_STRUCTURE = re.compile(
    r"(?:.*_)?(?:id|uuid)|.*[a-z](?:Id|ID|Uuid|UUID)"
    r"|type|role|name|model|model_name|modelVersion|status|timestamp|created_at|updated_at"
    r"|signature|thoughtSignature|thought_signature|encrypted_\w+|redactedContent"
    r"|media_type|mimeType|mime_type|bytes|base64|file_data"
)
_MEDIA_LABELS = ("media_type", "mimeType", "mime_type")
_MEDIA = frozenset({"bytes", "base64", "file_data"})
_DOCUMENT = re.compile(r"text/|application/(?:json|xml|[\w.-]*(?:json|xml|yaml|toml|sql|script)\b)")
_DATA_URL = re.compile(r"data:[^,\s]{0,100};base64,[A-Za-z0-9+/=_-]*+$")
# Fields whose object is the input or the output of a tool, so that all its fields are content.
_FREE = frozenset(
    {"input", "args", "arguments", "response", "json", "action", "operation", "artifact"}
    | {"toolUseResult", "details", "structuredContent", "structured_content"}
)
_JSON_TEXT = ("arguments", "args")
_NAMING = ("name", "key", "header", "field", "variable")
_PAIR = 2
# Fields whose value is judged as if it followed the field's name in a text.
_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "auth", "_auth"}
    | {"passphrase", "mnemonic"}
)
_DEEPEST = 100
_SHORTEST = 4
_UNSURE = (ArithmeticError, TypeError, ValueError, RecursionError)


class TextSlot(Struct):
    """One string of content.

    ``kind`` is the kind of secret that its field holds. ``is_id`` says that the string may look
    random without being a secret. ``signed`` says that a signature beside it covers it. ``old`` is
    the original text. ``lead`` is the name in front of it, if that says what it is. If the string
    turns out to be JSON, ``is_folded`` is set to false and the slots inside count instead.
    """

    text: str
    trail: Trail
    kind: str | None
    is_id: bool
    signed: bool
    old: str
    is_folded: bool = True
    lead: str = ""

    @property
    def place(self) -> str:
        """The place of the string, as rules name places: ``3.content.1.text``."""
        return ".".join(str(step) for step in steps_of(self.trail) if step != "")


class NestedValue(Struct):
    """A string that encodes another value: its place, the value, and how to encode it again.

    A string of JSON encodes that value; base64, or a part that was not read, encodes a text.
    """

    trail: Trail
    value: Any
    encoded: Callable[[Any], Any]


class ContentSlots:
    """All parts of a value that may hold a secret: slots, strings of JSON, and unusual keys."""

    def __init__(self, value: Any, place: str) -> None:
        self.slots: list[TextSlot] = []
        self.nests: list[NestedValue] = []
        self.keys: set[str] = set()
        # Lists of texts: the lines of a file, the words of a command. Short texts have no slot.
        self.rows: list[list[tuple[str, TextSlot | None]]] = []
        self._depth = 0
        self._fields: set[Any] = set()
        self._gather(value, "", (None, place), free=False, signed=False)

    def _gather(self, value: Any, key: str, trail: Trail, *, free: bool, signed: bool) -> None:
        """Collect the slots of one value.

        ``free`` says that a tool, not a format, chose its fields.
        """
        kind = type(value)
        if kind is str:
            if len(value) >= _SHORTEST and (free or not _is_structure(key)):
                self._gather_string(value, key, trail, signed=signed)
        elif kind is dict or kind is list:
            self._depth += 1
            if self._depth > _DEEPEST:
                self._gather_as_text(value, trail)
            elif kind is dict:
                self._gather_object(value, trail, free=free or key in _FREE)
            else:
                first = len(self.slots)
                is_text = all(type(item) is str for item in value)
                is_pair = len(value) == _PAIR and is_text
                for number, item in enumerate(value):
                    name = key if type(item) is str else ""
                    # a header as HTTP libraries represent it: a name and a value
                    name = value[0] if is_pair and number else name
                    self._gather(item, name, (trail, number), free=free, signed=False)
                if is_text and len(value) > 1 and len(self.slots) > first:
                    own = {slot.trail[1]: slot for slot in self.slots[first:] if slot.trail}
                    self.rows.append([(item, own.get(number)) for number, item in enumerate(value)])
            self._depth -= 1
        elif kind is Raw:
            self._gather_as_text(value, trail)

    def _gather_as_text(self, value: Any, trail: Trail) -> None:
        """Collect from a value that is nested too deeply or was not read, as JSON text."""
        text = text_of(value)
        self.nests.append(NestedValue(trail, text, _value_of))
        self.slots.append(TextSlot(text, (trail, ""), None, False, False, text))

    def _gather_object(self, fields: dict[str, Any], trail: Trail, *, free: bool) -> None:
        signed = not free and bool(fields.get("signature"))
        if not self._fields.issuperset(fields):
            found = {key for key in fields if type(key) is str and find_spans(key, None, KNOWN)}
            self._fields.update(fields)
            self.keys |= found
        # whether ``data`` is an image, a sound, a file, or encrypted reasoning
        kind = next((fields[name] for name in _MEDIA_LABELS if name in fields), None)
        is_sealed = "format" in fields or fields.get("type") == "redacted_thinking"
        is_media = any(name in fields for name in _MEDIA_LABELS) or (not free and is_sealed)
        label = next((fields[name] for name in _NAMING if type(fields.get(name)) is str), None)
        for key, value in fields.items():
            name = key if type(key) is str else ""
            # a header or a variable as many interfaces write it: its name beside its value
            name = label if label is not None and name == "value" else name
            if key == "data" and type(value) is str and is_media:
                # of a file in a message, readable text is content: base64, or plain text
                is_text = isinstance(kind, str) and _DOCUMENT.match(kind)
                if not self._gather_encoded(value, (trail, key)) and is_text:
                    self._gather_string(value, "", (trail, key), signed=False)
            elif type(value) is str and name in _MEDIA:
                self._gather_encoded(value, (trail, key))
            else:
                self._gather(value, name, (trail, key), free=free, signed=signed)

    def _gather_encoded(self, text: str, trail: Trail) -> bool:
        """Collect from a text that is base64 of another one, or a data URL.

        False if it is neither.
        """
        run = encodings.decode_whole(text)
        if run is None:
            return False
        head = text[: run.start]
        self.nests.append(NestedValue(trail, run.text, lambda new: head + run.encoded(new)))
        self._gather_string(run.text, "", (trail, ""), signed=False)
        return True

    def _gather_string(self, text: str, key: str, trail: Trail, *, signed: bool) -> None:
        if _DATA_URL.match(text):
            self._gather_encoded(text, trail)
            return
        if key in _JSON_TEXT and self._gather_json(text, trail):
            return
        is_id = _is_structure(key)
        kind = None if is_id else kind_of(key)
        lead = f"{key}: " if key.lower() in _HEADERS else ""
        self.slots.append(TextSlot(text, trail, kind, is_id, signed, text, lead=lead))

    def _gather_json(self, text: str, trail: Trail) -> bool:
        if text.lstrip()[:1] not in ("{", "["):
            return False
        try:
            value = msgspec.json.decode(text)
        except _UNSURE:
            return False
        self.nests.append(NestedValue(trail, value, lambda new: _as_json(new, text)))
        self._gather(value, "", trail, free=True, signed=False)
        return True

    def unfold(self, slot: TextSlot) -> list[TextSlot] | None:
        """Return the slots in a text that is JSON, so that it stays valid JSON.

        None if it is not.
        """
        first = len(self.slots)
        if not slot.is_folded or not self._gather_json(slot.text, slot.trail):
            return None
        slot.is_folded = False
        return self.slots[first:]

    def rebuild(self, value: Any, names: dict[str, str]) -> Any:
        """Return the value with the current texts of the slots, and new names for some keys.

        Returns the same object if nothing changed.
        """
        changes = [
            (slot.trail, slot.text)
            for slot in self.slots
            if slot.is_folded and slot.text is not slot.old
        ]
        if not changes and not names:
            return value
        inside: dict[int, dict[Trail, str]] = {id(nest.trail): {} for nest in self.nests}
        outside: dict[Trail, str] = {}
        for trail, text in changes:
            _home(trail, inside, outside)[trail] = text
        # An inner nested value comes after the one around it.
        for nest in reversed(self.nests):
            inner = inside[id(nest.trail)]
            if type(nest.value) is str:
                new = next(iter(inner.values()), nest.value)
            else:
                new = _renew(nest.value, inner, len(steps_of(nest.trail)), names)
            if new is not nest.value:
                _home(nest.trail, inside, outside)[nest.trail] = nest.encoded(new)
        return _renew(value, outside, 1, names)


def _home(
    trail: Trail, inside: dict[int, dict[Trail, str]], outside: dict[Trail, str]
) -> dict[Trail, str]:
    """Return the changes of the innermost nested value that contains a place."""
    around: Trail = trail[0] if trail else None
    while around is not None and id(around) not in inside:
        around = around[0]
    return outside if around is None else inside[id(around)]


def _renew(value: Any, changes: dict[Trail, str], depth: int, names: dict[str, str]) -> Any:
    """Copy a value with other texts at some places and other names for some keys.

    The first ``depth`` steps of a place lead to the value itself. Unchanged parts are shared.
    """
    tree: dict[Any, Any] = {}
    for trail, text in changes.items():
        steps = steps_of(trail)[depth:]
        if not steps:
            return text
        branch = tree
        for step in steps[:-1]:
            branch = branch.setdefault(step, {})
        branch[steps[-1]] = text
    return _copy_changed(value, tree, names, 0)


def _copy_changed(value: Any, tree: Any, names: dict[str, str], depth: int) -> Any:
    if type(tree) is not dict:
        return tree
    if not tree and (not names or depth > _DEEPEST):
        return value
    depth += 1
    new: Any = value
    if isinstance(value, dict):
        new = {
            names.get(key, key): _copy_changed(inner, tree.get(key, {}), names, depth)
            for key, inner in value.items()
        }
        is_same = names.keys().isdisjoint(value) and all(new[key] is value[key] for key in value)
    elif isinstance(value, list):
        new = [_copy_changed(item, tree.get(at, {}), names, depth) for at, item in enumerate(value)]
        is_same = all(map(operator.is_, new, value))
    else:
        is_same = True
    return value if is_same else new


def steps_of(trail: Trail) -> list[Any]:
    """Return the steps of a path, from the outside in."""
    steps: list[Any] = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    return steps[::-1]


class _JsonSyntax(str):
    """A piece of JSON syntax, written as it is."""

    __slots__ = ()


def text_of(value: Any) -> str:
    """Return the JSON text of a value, however deeply it is nested."""
    pieces: list[str] = []
    rest: list[Any] = [value]
    while rest:
        one = rest.pop()
        if type(one) is _JsonSyntax:
            pieces.append(one)
        elif type(one) is dict and one:
            rest.append(_JsonSyntax("}"))
            for key, inner in reversed(one.items()):
                rest += (
                    inner,
                    _JsonSyntax(f"{dump(key if type(key) is str else str(key))}:"),
                    _COMMA,
                )
            rest[-1] = _JsonSyntax("{")
        elif type(one) is list and one:
            rest.append(_JsonSyntax("]"))
            for inner in reversed(one):
                rest += (inner, _COMMA)
            rest[-1] = _JsonSyntax("[")
        else:
            try:
                pieces.append(dump(one))
            except (TypeError, ValueError):
                pieces.append(dump(str(one)))
    return "".join(pieces)


_COMMA = _JsonSyntax(",")


def _value_of(text: str) -> Any:
    """Return the value of a JSON text; if the text is not JSON any more, return it as a string."""
    return Raw(text.encode("utf-8", "surrogatepass")) if is_json(text) else text


def _as_json(value: Any, like: str) -> str:
    """Return a value as JSON, formatted as widely as the text that it replaces."""
    indent = 2 if "\n" in like else 0 if '": ' in like else -1
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()
    except _UNSURE:
        return json.dumps(value, ensure_ascii=False)


@lru_cache(4096)
def _is_structure(key: str) -> bool:
    return _STRUCTURE.fullmatch(key) is not None


Look = Callable[[Sequence[str]], set[str]]
_MOST_ECHOES = 500
# A shorter user name is not replaced where it may be a word.
_SHORT_NAME = 2
_NAMED = frozenset({*NAMES.values(), "api-key"})


class Redaction(Struct, frozen=True):
    """One secret that was removed from one string; it never contains the secret.

    ``place`` names the string (``3.content.1.text``). ``breaks_signature`` says that a signature
    beside the string (of signed thinking) no longer matches it.
    """

    place: str
    kind: str
    placeholder: str
    breaks_signature: bool = False


def redact_value(
    value: Any, place: str = "", *, personal: bool = False
) -> tuple[Any, list[Redaction]]:
    """Replace the secrets in all content of a JSON value by placeholders.

    The same secret becomes the same placeholder everywhere, numbered in the order of discovery. A
    secret that is recognized only by its name is also replaced where it stands without the name
    (the first 500 of these). With ``personal``, mail addresses, telephone numbers and user names
    are replaced, too. Ids, types, names of tools, signatures, media and everything else that a
    provider binds a history to stay as they are. A value without secrets is returned as the same
    object; nothing is changed in place. ``place`` names the value itself. A second pass changes
    nothing more.
    """
    contents = ContentSlots(value, place)
    ledger = _SecretLedger(value, personal=personal)
    ledger.sweep(contents)
    slot = TextSlot("", (None, place), None, False, False, "")
    names = {
        key: ledger.replace_spans(key, find_spans(key, None, KNOWN), slot)
        for key in sorted(contents.keys)
    }
    new = contents.rebuild(value, names)
    found = ledger.found
    for key, name in names.items():
        # a place must not show a key that is itself a secret
        found = [structs.replace(one, place=one.place.replace(key, name)) for one in found]
    return new, list(dict.fromkeys(found))


class _SecretLedger:
    """The secrets found so far, and their placeholders."""

    def __init__(self, value: Any, *, personal: bool) -> None:
        self.value = value
        self.personal = personal
        self.people: list[str] = []
        self.found: list[Redaction] = []
        self.placeholders: dict[str, str] = {}
        self.numbers: dict[str, int] | None = None
        self.fresh: list[str] = []
        self.echoes: list[str] = []

    def sweep(self, contents: ContentSlots) -> None:
        """Remove the secrets from the slots, then other copies of them that have no name."""
        layers = Layers(personal=self.personal)
        self._clean(contents, contents.slots, lambda texts: suspicious(texts, layers))
        for row in contents.rows:
            self._clean_row(row)
        while self.fresh:
            self.echoes, self.fresh = self.fresh[:_MOST_ECHOES], []
            self._clean(contents, contents.slots, lambda texts: holding(texts, self.echoes))
        if self.people:
            self._clean_people(contents.slots)

    def _clean(self, contents: ContentSlots, slots: Sequence[TextSlot], look: Look) -> None:
        """Clean the slots that ``look`` suspects, and suspected slots inside those."""
        suspects = look([slot.text for slot in slots])
        inner: list[TextSlot] = []
        for slot in list(slots):
            is_named = slot.kind is not None or bool(slot.lead)
            is_suspect = slot.text in suspects or (is_named and not self.echoes)
            if not is_suspect or not slot.is_folded:
                continue
            unfolded = contents.unfold(slot)
            if unfolded is None:
                if self.echoes:
                    slot.text = self._clean_copies(slot)
                slot.text = self._clean_text(slot.text, slot, DEPTH)
            else:
                inner += unfolded
        if inner:
            self._clean(contents, inner, look)

    def _clean_people(self, slots: Iterable[TextSlot]) -> None:
        """Remove the names of users where they stand as separate words."""
        names = sorted((name for name in self.people if len(name) > _SHORT_NAME), key=len)
        if not names:
            return
        either = "|".join(map(re.escape, reversed(names)))
        pattern = re.compile(rf"(?<![\w@.-])(?:{either})(?![\w@-])")
        for slot in slots:
            if slot.is_folded:
                marks = [SecretSpan(*one.span(), "user") for one in pattern.finditer(slot.text)]
                slot.text = self.replace_spans(slot.text, marks, slot)

    def _clean_row(self, row: Sequence[tuple[str, TextSlot | None]]) -> None:
        """Remove secrets from texts that belong together: an option and its value, or lines."""
        texts = [slot.text if slot else text for text, slot in row]
        starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
        for start, end, kind in reversed(find_spans(" ".join(texts), None, Layers(random=False))):
            for number in range(bisect_right(starts, start) - 1, bisect_left(starts, end)):
                slot, at = row[number][1], starts[number]
                first, last = max(start - at, 0), min(end - at, len(texts[number]))
                if slot is not None and slot.is_folded and first < last:
                    slot.text = self.replace_spans(slot.text, [SecretSpan(first, last, kind)], slot)

    def _clean_text(self, text: str, slot: TextSlot, depth: int) -> str:
        """Return a text without its secrets, including encoded ones."""
        kind, lead = (slot.kind, slot.lead) if depth == DEPTH else (None, "")
        layers = Layers(random=not slot.is_id, personal=self.personal)
        while True:
            before = text
            text = _splice(text, self._clean_runs(text, slot, depth))
            # Removing one secret may leave something that is a secret by itself.
            while found := find_spans(text, kind, layers, lead=lead):
                text = self.replace_spans(text, found, slot)
            text = _splice(text, self._clean_views(text, slot, layers, depth))
            if text == before:
                return text

    def _clean_runs(self, text: str, slot: TextSlot, depth: int) -> Iterator[Splice]:
        """Yield a replacement for each piece of base64 that contains a secret."""
        for run in encodings.find_runs(text) if depth else ():
            clean = self._clean_text(run.text, slot, depth - 1)
            if clean != run.text:
                yield run.start, run.end, run.encoded(clean)

    def _clean_views(
        self, text: str, slot: TextSlot, layers: Layers, depth: int
    ) -> Iterator[Splice]:
        """Yield a replacement for each escaped stretch that contains a secret."""
        for view in encodings.find_views(text):
            found = find_spans(view.text, None, layers)
            for start, end, kind in found:
                yield *view.place(start, end), self._take_out(view.text[start:end], kind, slot)
            for start, end, new in self._clean_runs(view.text, slot, depth) if not found else ():
                yield *view.place(start, end), new

    def replace_spans(self, text: str, found: Iterable[SecretSpan], slot: TextSlot) -> str:
        """Return a text, of a slot or found in it, without these secrets."""
        return _splice(
            text, ((a, b, self._take_out(text[a:b], kind, slot)) for a, b, kind in found)
        )

    def _take_out(self, secret: str, kind: str, slot: TextSlot) -> str:
        """Record that a secret is removed, and return its placeholder."""
        placeholder = self._placeholder(secret, kind)
        kind = placeholder[1:-1].split(":")[1]
        self.found.append(Redaction(slot.place, kind, placeholder, slot.signed))
        return placeholder

    def _placeholder(self, secret: str, kind: str) -> str:
        placeholder = self.placeholders.get(secret)
        if placeholder is None:
            # Continue the numbering after the placeholders that an earlier redaction left.
            if self.numbers is None:
                self.numbers = {}
                try:
                    text = msgspec.json.encode(self.value).decode()
                except _UNSURE:
                    text = text_of(self.value)
                for old, number in PLACEHOLDER.findall(text):
                    self.numbers[old] = max(self.numbers.get(old, 0), int(number))
            self.numbers[kind] = self.numbers.get(kind, 0) + 1
            placeholder = f"[redacted:{kind}:{self.numbers[kind]}]"
            self.placeholders[secret] = placeholder
            # It is not a word, and only its name marks it as a secret, so search for it elsewhere.
            is_plain = len(secret) < SHORTEST or is_words(secret) or find_spans(secret)
            if kind in _NAMED and not is_plain:
                self.fresh.append(secret)
            if kind == "user":
                self.people.append(secret)
        return placeholder

    def _clean_copies(self, slot: TextSlot) -> str:
        known = sorted((echo for echo in self.echoes if echo in slot.text), key=len, reverse=True)
        pattern = re.compile("|".join((PLACEHOLDER.pattern, *map(re.escape, known))))

        found = (match for match in pattern.finditer(slot.text) if match[0] in self.placeholders)
        return _splice(
            slot.text, ((*one.span(), self._take_out(one[0], "", slot)) for one in found)
        )


Splice = tuple[int, int, str]


def _splice(text: str, splices: Iterable[Splice]) -> str:
    """Return a text with some parts replaced; if two overlap, the first one counts."""
    pieces: list[str] = []
    at = 0
    for start, end, new in splices:
        if start >= at:
            pieces += (text[at:start], new)
            at = end
    return "".join((*pieces, text[at:]))


Spot = tuple[float, float]
_SPOT = re.compile(r"(?:messages\.)?(\d+)(?:\.content\.(\d+))?(?:\.|$)")
_NOWHERE = (float("inf"), float("inf"))


def drop_broken_thinking(
    messages: Sequence[Any], redactions: Iterable[Redaction], *, bound: bool = True
) -> list[Any]:
    """Drop the signed thinking of an Anthropic list that a redaction has made invalid.

    ``bound`` says that thinking is also bound to everything before it, as with newer models; then
    all thinking after the first redaction is dropped. A message that becomes empty is dropped, too.
    """
    broken: set[Spot] = set()
    first = _NOWHERE
    for redaction in redactions:
        match = _SPOT.match(redaction.place)
        spot = (int(match[1]), int(match[2] or -1)) if match else (-1, -1)
        if redaction.breaks_signature:
            broken.add(spot)
        if bound:
            first = min(first, spot)
    kept: list[Any] = []
    for number, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list) or not any(map(_is_thinking, content)):
            kept.append(message)
            continue
        left = [
            block
            for at, block in enumerate(content)
            if not (_is_thinking(block) and ((number, at) in broken or (number, at) > first))
        ]
        if left:
            kept.append(message if len(left) == len(content) else {**message, "content": left})
    return kept


def _is_thinking(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("thinking", "redacted_thinking")
