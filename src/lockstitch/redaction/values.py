"""Walk a JSON value: which strings are content, and what becomes of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.redaction.names import kind_of
from lockstitch.redaction.shapes import is_words
from lockstitch.redaction.spans import PLACEHOLDER, SHORTEST, Span, spans


class Redaction(Struct, frozen=True):
    """One secret that was taken out of one string; never holds the secret.

    ``place`` names the string (``3.content.1.text``). ``breaks_signature`` says that a signature
    beside the string (of signed thinking) no longer fits it.
    """

    place: str
    kind: str
    placeholder: str
    breaks_signature: bool = False


def redacted(value: Any, place: str = "") -> tuple[Any, list[Redaction]]:
    """Replace the secrets in all content of a JSON value by placeholders.

    The same secret becomes the same placeholder everywhere, numbered in the order of discovery;
    what is known to be a secret by its name is also replaced where it stands without one.
    Ids, types, names of tools, signatures, media and everything else a provider binds a history
    to is left alone. What holds no secret is handed back as the same object; nothing is changed
    in place. ``place`` is the name of the value itself. Doing it twice changes nothing more.
    """
    run = _Run(value, place)
    value = run.value(value)
    while run.fresh:
        run.echoes, run.fresh = run.fresh[:_MOST_ECHOES], []
        value = run.value(value)
    return value, list(dict.fromkeys(run.found))


def without_broken_thinking(
    messages: Sequence[Any], redactions: Iterable[Redaction], *, bound: bool = True
) -> list[Any]:
    """Drop the signed thinking of an Anthropic list that its redaction made unusable.

    ``bound`` says that thinking is also bound to everything before it, as newer models do: then
    all thinking behind the first redaction goes. A message left with nothing goes, too.
    """
    broken, first = _broken_places(redactions, bound=bound)
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


Spot = tuple[float, float]
_SPOT = re.compile(r"(?:[A-Za-z]+\.)?(\d+)(?:\.content\.(\d+))?(?:\.|$)")
_NOWHERE = (float("inf"), float("inf"))


def _broken_places(redactions: Iterable[Redaction], *, bound: bool) -> tuple[set[Spot], Spot]:
    """Give the blocks whose own text changed, and the first place at which anything did."""
    broken: set[Spot] = set()
    first = _NOWHERE
    for redaction in redactions:
        match = _SPOT.match(redaction.place)
        spot = (int(match[1]), int(match[2] or -1)) if match else (-1, -1)
        if redaction.breaks_signature:
            broken.add(spot)
        if bound:
            first = min(first, spot)
    return broken, first


def _is_thinking(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("thinking", "redacted_thinking")


# Fields that name, address or sign things, wherever a program and not a tool wrote them.
_STRUCTURE = re.compile(
    r"(?:.*_)?(?:id|uuid)|.*[a-z](?:Id|ID|Uuid|UUID)"
    r"|type|role|name|model|model_name|modelVersion|status|timestamp|created_at|updated_at"
    r"|signature|thoughtSignature|thought_signature|encrypted_\w+|redactedContent"
    r"|media_type|mimeType|mime_type|bytes|base64|file_data"
)
_MEDIA_LABELS = ("media_type", "mimeType", "mime_type")
_DATA_URL = re.compile(r"data:[^,]{0,100};base64,")
# Fields whose object is what a tool was given or gave: there, every field is content.
_FREE = frozenset(
    {"input", "args", "arguments", "response", "json", "action", "operation", "artifact"}
    | {"toolUseResult", "details", "structuredContent", "structured_content"}
)
_JSON_TEXT = ("arguments", "args")
_MOST_ECHOES = 500
_UNSURE = (TypeError, ValueError, RecursionError, UnicodeError)


class _Run:
    """One redaction: the secrets met so far, what they became, and where the walk is."""

    def __init__(self, value: Any, place: str) -> None:
        self.root = value
        self.path: list[str] = [place] if place else []
        self.found: list[Redaction] = []
        self.placeholders: dict[str, str] = {}
        self.numbers: dict[str, int] | None = None
        self.echoes: list[str] = []
        self.fresh: list[str] = []
        self.fields: dict[str, bool] = {}

    def value(self, value: Any, key: str = "", *, free: bool = False) -> Any:
        """Give the value without its secrets; the same object if there are none.

        ``free`` says that a tool, not a program's format, decided on the fields.
        """
        if type(value) is str:
            return self._string(value, key, free=free)
        if type(value) is dict:
            return self._object(value, free=free or key in _FREE)
        return self._list(value, key, free=free) if type(value) is list else value

    def _list(self, values: list[Any], key: str, *, free: bool) -> list[Any]:
        changed: list[Any] | None = None
        for number, value in enumerate(values):
            self.path.append(str(number))
            new = self.value(value, key if type(value) is str else "", free=free)
            self.path.pop()
            if new is not value:
                changed = changed or list(values)
                changed[number] = new
        return values if changed is None else changed

    def _object(self, fields: dict[str, Any], *, free: bool) -> dict[str, Any]:
        first = len(self.found)
        changed: dict[str, Any] = {}
        for key, value in fields.items():
            if key == "data" and _is_media(fields, free=free):
                continue
            self.path.append(str(key))
            new = self.value(value, key if type(key) is str else "", free=free)
            self.path.pop()
            if new is not value:
                changed[key] = new
        if changed and not free and fields.get("signature"):
            self._note_broken(first)
        return self._keys({**fields, **changed} if changed else fields)

    def _keys(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Keys are fields, not content, unless they are a key of the other kind."""
        if all(self._is_field(key) for key in fields):
            return fields
        return {self._key(key): value for key, value in fields.items()}

    def _is_field(self, key: Any) -> bool:
        known = self.fields.get(key)
        if known is None:
            known = type(key) is not str or not spans(key, formats_only=True)
            self.fields[key] = known
        return known

    def _key(self, key: Any) -> Any:
        return key if self._is_field(key) else self._text(key, formats_only=True)

    def _note_broken(self, first: int) -> None:
        self.found[first:] = [
            structs.replace(redaction, breaks_signature=True) for redaction in self.found[first:]
        ]

    def _string(self, text: str, key: str, *, free: bool) -> str:
        is_structure = _is_structure(key)
        if (is_structure and not free) or _DATA_URL.match(text):
            return text
        if key in _JSON_TEXT and (new := self._in_json(text)) is not None:
            return new
        first = len(self.found)
        kind = None if is_structure else kind_of(key)
        new = self._text(text, kind, formats_only=is_structure)
        if new is text or not _is_json(text) or _is_json(new):
            return new
        del self.found[first:]
        return self._in_json(text) or text

    def _in_json(self, text: str) -> str | None:
        """Redact a text that is JSON by what it says, so that it stays JSON; None if it is not."""
        if not _starts_json(text):
            return None
        try:
            value = msgspec.json.decode(text)
            new = self.value(value, free=True)
            return text if new is value else msgspec.json.encode(new).decode()
        except _UNSURE:
            return None

    def _text(self, text: str, kind: str | None = None, *, formats_only: bool = False) -> str:
        if self.echoes:
            known = text
            text = self._without_echoes(text)
            if text is known:
                return text
        # What is taken out may leave something behind that is a secret by itself.
        while found := spans(text, kind, formats_only=formats_only):
            text = self._replaced(text, found)
        return text

    def _replaced(self, text: str, found: list[Span]) -> str:
        pieces: list[str] = []
        at = 0
        for start, end, kind in found:
            pieces += (text[at:start], self._placeholder(text[start:end], kind))
            at = end
        return "".join((*pieces, text[at:]))

    def _placeholder(self, secret: str, kind: str) -> str:
        mark = self.placeholders.get(secret)
        if mark is None:
            mark = self.placeholders[secret] = f"[redacted:{kind}:{self._next(kind)}]"
            if _is_telling(secret):
                self.fresh.append(secret)
        kind = mark[1:-1].split(":")[1]
        self.found.append(Redaction(".".join(self.path), kind, mark))
        return mark

    def _next(self, kind: str) -> int:
        """Count a kind on, behind the placeholders that an earlier redaction left."""
        if self.numbers is None:
            self.numbers = {}
            for old, number in _placeholders_in(self.root):
                self.numbers[old] = max(self.numbers.get(old, 0), int(number))
        self.numbers[kind] = self.numbers.get(kind, 0) + 1
        return self.numbers[kind]

    def _without_echoes(self, text: str) -> str:
        known = [secret for secret in self.echoes if secret in text]
        if not known:
            return text
        known.sort(key=len, reverse=True)
        pattern = re.compile("|".join((PLACEHOLDER.pattern, *map(re.escape, known))))
        return pattern.sub(self._echo, text)

    def _echo(self, match: re.Match[str]) -> str:
        is_done = match[0] not in self.placeholders
        return match[0] if is_done else self._placeholder(match[0], "")


def _is_telling(secret: str) -> bool:
    """Tell whether a secret is one wherever it stands: long enough, and no word."""
    return len(secret) >= SHORTEST and not is_words(secret) and "\n" not in secret


@lru_cache(4096)
def _is_structure(key: str) -> bool:
    return _STRUCTURE.fullmatch(key) is not None


def _is_media(fields: dict[str, Any], *, free: bool) -> bool:
    """Tell whether ``data`` is a picture, a sound, a file, or reasoning nobody can read."""
    if any(label in fields for label in _MEDIA_LABELS):
        return True
    return not free and ("format" in fields or fields.get("type") == "redacted_thinking")


def _starts_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _is_json(text: str) -> bool:
    if not _starts_json(text):
        return False
    try:
        msgspec.json.decode(text)
    except _UNSURE:
        return False
    return True


def _placeholders_in(value: Any) -> list[tuple[str, str]]:
    """Give the placeholders that the strings of a value already hold."""
    try:
        text = msgspec.json.encode(value).decode()
    except _UNSURE:
        text = repr(value)
    return PLACEHOLDER.findall(text)
