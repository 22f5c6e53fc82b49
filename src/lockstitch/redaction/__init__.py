"""Secrets out of a JSON value: stable placeholders in, everything structural as it was."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.redaction import texts as encodings
from lockstitch.redaction.secrets import NAMES, SecretSpan
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
from lockstitch.redaction.walk import ContentSlots, TextSlot, text_of

Look = Callable[[Sequence[str]], set[str]]
_MOST_ECHOES = 500
# Shorter names of users are left where they may be words.
_SHORT_NAME = 2
_NAMED = frozenset({*NAMES.values(), "api-key"})


class Redaction(Struct, frozen=True):
    """One secret that was taken out of one string; never holds the secret.

    ``place`` names the string (``3.content.1.text``). ``breaks_signature`` says that a signature
    beside the string (of signed thinking) no longer fits it.
    """

    place: str
    kind: str
    placeholder: str
    breaks_signature: bool = False


def redact_value(
    value: Any, place: str = "", *, personal: bool = False
) -> tuple[Any, list[Redaction]]:
    """Replace the secrets in all content of a JSON value by placeholders.

    The same secret becomes the same placeholder everywhere, numbered in the order of discovery;
    what only its name tells to be a secret is also replaced where it stands without the name (the
    first 500 of these).
    With ``personal`` mail addresses, telephone numbers and names of users go, too.
    Ids, types, names of tools, signatures, media and everything else that a provider binds a
    history to is left alone. What holds no secret is handed back as the same object; nothing is
    changed in place. ``place`` names the value itself. Doing it twice changes nothing more.
    """
    contents = ContentSlots(value, place)
    ledger = _SecretLedger(value, personal=personal)
    ledger.sweep(contents)
    names = {key: ledger.key(key, place) for key in sorted(contents.keys)}
    new = contents.rebuilt(value, names)
    found = [_without_keys(one, names) for one in ledger.found] if names else ledger.found
    return new, list(dict.fromkeys(found))


def _without_keys(redaction: Redaction, names: dict[str, str]) -> Redaction:
    """Return a redaction whose place does not tell a secret key."""
    place = redaction.place
    for key, name in names.items():
        place = place.replace(key, name)
    return structs.replace(redaction, place=place)


class _SecretLedger:
    """The secrets met so far and what they became."""

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
        """Take the secrets out of the slots, then what they left of themselves elsewhere."""
        self._clean(contents, contents.slots, self._suspicious)
        for row in contents.rows:
            self._clean_row(row)
        while self.fresh:
            self.echoes, self.fresh = self.fresh[:_MOST_ECHOES], []
            self._clean(contents, contents.slots, self._holding)
        if self.people:
            self._clean_people(contents.slots)

    def _suspicious(self, texts: Sequence[str]) -> set[str]:
        return suspicious(texts, Layers(personal=self.personal))

    def _holding(self, texts: Sequence[str]) -> set[str]:
        return holding(texts, self.echoes)

    def _clean(self, contents: ContentSlots, slots: Sequence[TextSlot], look: Look) -> None:
        """Clean the slots that ``look`` suspects, and those inside them that it suspects then."""
        suspects = look([slot.text for slot in slots])
        inner: list[TextSlot] = []
        for slot in list(slots):
            is_told = slot.kind is not None or bool(slot.lead)
            is_suspect = slot.text in suspects or (is_told and not self.echoes)
            if not is_suspect or not slot.is_folded:
                continue
            unfolded = contents.unfold(slot)
            if unfolded is None:
                if self.echoes:
                    slot.text = self._without_echoes(slot)
                slot.text = self._cleaned(slot.text, slot, DEPTH)
            else:
                inner += unfolded
        if inner:
            self._clean(contents, inner, look)

    def _clean_people(self, slots: Iterable[TextSlot]) -> None:
        """Take the names of users out where they stand as words of their own."""
        names = sorted((name for name in self.people if len(name) > _SHORT_NAME), key=len)
        if not names:
            return
        either = "|".join(map(re.escape, reversed(names)))
        pattern = re.compile(rf"(?<![\w@.-])(?:{either})(?![\w@-])")
        for slot in slots:
            if slot.is_folded and (found := list(pattern.finditer(slot.text))):
                marks = [SecretSpan(*one.span(), "user") for one in found]
                slot.text = self._replaced(slot.text, marks, slot.place, signed=slot.signed)

    def _clean_row(self, row: Sequence[tuple[str, TextSlot | None]]) -> None:
        """Take the secrets out of texts that belong together: an option and its value, lines."""
        texts = [slot.text if slot else text for text, slot in row]
        starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
        for start, end, kind in reversed(find_spans(" ".join(texts), None, Layers(random=False))):
            for number in range(bisect_right(starts, start) - 1, bisect_left(starts, end)):
                slot, at = row[number][1], starts[number]
                first, last = max(start - at, 0), min(end - at, len(texts[number]))
                if slot is not None and slot.is_folded and first < last:
                    found = [SecretSpan(first, last, kind)]
                    signed = slot.signed
                    slot.text = self._replaced(slot.text, found, slot.place, signed=signed)

    def _cleaned(self, text: str, slot: TextSlot, depth: int) -> str:
        """Return a text without its secrets, as it is written and in every encoding."""
        kind = slot.kind if depth == DEPTH else None
        while True:
            before = text
            text = self._without_encoded(text, slot, depth) if depth else text
            # What is taken out may leave something behind that is a secret by itself.
            lead = slot.lead if depth == DEPTH else ""
            while found := self._spans(text, slot, kind, lead):
                text = self._replaced(text, found, slot.place, signed=slot.signed)
            text = self._without_escaped(text, slot, depth)
            if text == before:
                return text

    def _without_encoded(self, text: str, slot: TextSlot, depth: int) -> str:
        pieces: list[str] = []
        at = 0
        for run in encodings.find_runs(text):
            clean = self._cleaned(run.text, slot, depth - 1)
            if clean != run.text:
                pieces += (text[at : run.start], run.encoded(clean))
                at = run.end
        return "".join((*pieces, text[at:])) if at else text

    def _spans(
        self, text: str, slot: TextSlot, kind: str | None = None, lead: str = ""
    ) -> list[SecretSpan]:
        layers = Layers(random=not slot.is_id, personal=self.personal)
        return find_spans(text, kind, layers, lead=lead)

    def _without_escaped(self, text: str, slot: TextSlot, depth: int) -> str:
        pieces: list[str] = []
        at = 0
        for view in encodings.find_views(text):
            found = self._spans(view.text, slot)
            for start, end, kind in found:
                first, last = view.place(start, end)
                if first >= at:
                    pieces += (text[at:first], self._placeholder(view.text[start:end], kind))
                    self._note(pieces[-1], slot.place, signed=slot.signed)
                    at = last
            for run in encodings.find_runs(view.text) if depth and not found else ():
                clean = self._cleaned(run.text, slot, depth - 1)
                first, last = view.place(run.start, run.end)
                if clean != run.text and first >= at:
                    pieces += (text[at:first], run.encoded(clean))
                    at = last
        return "".join((*pieces, text[at:])) if at else text

    def key(self, key: str, place: str) -> str:
        """Return a key of an object without its secrets."""
        found = find_spans(key, None, KNOWN)
        return self._replaced(key, found, place, signed=False)

    def _replaced(self, text: str, found: list[SecretSpan], place: str, *, signed: bool) -> str:
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
            # Count a kind on, behind the placeholders that an earlier redaction left.
            if self.numbers is None:
                self.numbers = {}
                try:
                    text = msgspec.json.encode(self.value).decode()
                except (ArithmeticError, TypeError, ValueError, RecursionError):
                    text = text_of(self.value)
                for old, number in PLACEHOLDER.findall(text):
                    self.numbers[old] = max(self.numbers.get(old, 0), int(number))
            self.numbers[kind] = self.numbers.get(kind, 0) + 1
            placeholder = f"[redacted:{kind}:{self.numbers[kind]}]"
            self.placeholders[secret] = placeholder
            if kind in _NAMED and _is_telling(secret):
                self.fresh.append(secret)
            if kind == "user":
                self.people.append(secret)
        return placeholder

    def _without_echoes(self, slot: TextSlot) -> str:
        known = sorted((echo for echo in self.echoes if echo in slot.text), key=len, reverse=True)
        pattern = re.compile("|".join((PLACEHOLDER.pattern, *map(re.escape, known))))

        def replace(match: re.Match[str]) -> str:
            placeholder = self.placeholders.get(match[0])
            if placeholder is None:
                return match[0]
            self._note(placeholder, slot.place, signed=slot.signed)
            return placeholder

        return pattern.sub(replace, slot.text)


def _is_telling(secret: str) -> bool:
    """Whether a secret has to be looked for elsewhere: no word, and nothing but its name."""
    return len(secret) >= SHORTEST and not is_words(secret) and not find_spans(secret)


def drop_broken_thinking(
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
_SPOT = re.compile(r"(?:messages\.)?(\d+)(?:\.content\.(\d+))?(?:\.|$)")
_NOWHERE = (float("inf"), float("inf"))


def _broken_places(redactions: Iterable[Redaction], *, bound: bool) -> tuple[set[Spot], Spot]:
    """Return the blocks whose own text changed, and the first place at which anything did."""
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
