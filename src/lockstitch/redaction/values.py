"""The secrets of a JSON value and the placeholders that stand for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.redaction.formats import Span
from lockstitch.redaction.shapes import is_words
from lockstitch.redaction.spans import PLACEHOLDER, SHORTEST, holding, spans, suspicious
from lockstitch.redaction.walk import Contents, Slot, as_json, json_in, renamed, texts_of

_MOST_ECHOES = 500


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
    what its name tells to be a secret is also replaced where it stands without the name.
    Ids, types, names of tools, signatures, media and everything else that a provider binds a
    history to is left alone. What holds no secret is handed back as the same object; nothing is
    changed in place. ``place`` names the value itself. Doing it twice changes nothing more.
    """
    contents = Contents(value, (None, place) if place else None)
    ledger = _Ledger(value)
    ledger.sweep(contents.slots)
    new = contents.rebuilt(value)
    if contents.keys:
        names = {key: ledger.redact(key, place, known_only=True) for key in contents.keys}
        new = renamed(new, names)
        ledger.found = [_without_keys(one, names) for one in ledger.found]
    return new, list(dict.fromkeys(ledger.found))


def _without_keys(redaction: Redaction, names: dict[str, str]) -> Redaction:
    """Give a redaction whose place does not tell a secret key."""
    place = redaction.place
    for key, name in names.items():
        place = place.replace(key, name)
    return structs.replace(redaction, place=place)


class _Ledger:
    """The secrets met so far and what they became."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.found: list[Redaction] = []
        self.placeholders: dict[str, str] = {}
        self.numbers: dict[str, int] | None = None
        self.fresh: list[str] = []

    def sweep(self, slots: Sequence[Slot]) -> None:
        """Take the secrets out of the slots, then what they left of themselves elsewhere."""
        suspects = suspicious(texts_of(slots))
        for slot in slots:
            if slot.kind is not None or slot.text in suspects:
                self._clean(slot)
        while self.fresh:
            echoes, self.fresh = self.fresh[:_MOST_ECHOES], []
            suspects = holding(texts_of(slots), echoes)
            for slot in slots if suspects else ():
                if slot.text in suspects:
                    slot.text = self._without(echoes, slot)
                    self._clean(slot)

    def _clean(self, slot: Slot) -> None:
        first = len(self.found)
        old = slot.text
        slot.text = self.redact(
            old, slot.place, slot.kind, known_only=slot.known_only, signed=slot.signed
        )
        value = json_in(old) if slot.text is not old else None
        if value is not None and json_in(slot.text) is None:
            del self.found[first:]
            inside = Contents(value, slot.trail, free=True)
            self.sweep(inside.slots)
            new = inside.rebuilt(value)
            slot.text = old if new is value else as_json(new)

    def redact(
        self,
        text: str,
        place: str,
        kind: str | None = None,
        *,
        known_only: bool = False,
        signed: bool = False,
    ) -> str:
        """Give a text without its secrets."""
        # What is taken out may leave something behind that is a secret by itself.
        while found := spans(text, kind, known_only=known_only):
            text = self._replaced(text, found, place, signed=signed)
        return text

    def _replaced(self, text: str, found: list[Span], place: str, *, signed: bool) -> str:
        pieces: list[str] = []
        at = 0
        for start, end, kind in found:
            pieces += (text[at:start], self._placeholder(text[start:end], kind))
            self._note(pieces[-1], place, signed=signed)
            at = end
        return "".join((*pieces, text[at:]))

    def _note(self, placeholder: str, place: str, *, signed: bool) -> None:
        kind = placeholder[1:-1].split(":")[1]
        self.found.append(Redaction(place, kind, placeholder, signed))

    def _placeholder(self, secret: str, kind: str) -> str:
        placeholder = self.placeholders.get(secret)
        if placeholder is None:
            placeholder = f"[redacted:{kind}:{self._next(kind)}]"
            self.placeholders[secret] = placeholder
            if _is_telling(secret):
                self.fresh.append(secret)
        return placeholder

    def _next(self, kind: str) -> int:
        """Count a kind on, behind the placeholders that an earlier redaction left."""
        if self.numbers is None:
            self.numbers = {}
            for old, number in _placeholders_in(self.value):
                self.numbers[old] = max(self.numbers.get(old, 0), int(number))
        self.numbers[kind] = self.numbers.get(kind, 0) + 1
        return self.numbers[kind]

    def _without(self, echoes: Iterable[str], slot: Slot) -> str:
        known = sorted((echo for echo in echoes if echo in slot.text), key=len, reverse=True)
        pattern = re.compile("|".join((PLACEHOLDER.pattern, *map(re.escape, known))))

        def replace(match: re.Match[str]) -> str:
            placeholder = self.placeholders.get(match[0])
            if placeholder is None:
                return match[0]
            self._note(placeholder, slot.place, signed=slot.signed)
            return placeholder

        return pattern.sub(replace, slot.text)


def _is_telling(secret: str) -> bool:
    """Tell whether a secret is one wherever it stands: long enough, and no word."""
    return len(secret) >= SHORTEST and not is_words(secret) and "\n" not in secret


def _placeholders_in(value: Any) -> list[tuple[str, str]]:
    """Give the placeholders that the strings of a value already hold."""
    try:
        text = msgspec.json.encode(value).decode()
    except (ArithmeticError, TypeError, ValueError, RecursionError):
        text = repr(value)
    return PLACEHOLDER.findall(text)


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
