"""What becomes of one request body: it goes as it came, or healed; pure, and always the same.

Everyday requests are proven fine without building a view of them; the rules look at the rest. A
request that was refused is looked at once more. The text of a refusal never says what is changed:
it only says by whose rules to look again. What these rules find at the place that was named is
repaired by the same engine as ever, or nothing is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.conversation.json_text import decode
from lockstitch.dialects.profiles import PROFILES, profile_named
from lockstitch.dialects.registry import VIEWS
from lockstitch.errors import UsageError
from lockstitch.proxy.writing import EditedDocument, rewrite
from lockstitch.repair.plan import Plan, plan_sent
from lockstitch.rules import ERROR, RULES

Body = dict[str, Any]

# Larger ones may hold a giant, or be more than the provider takes.
_UNREMARKABLE = 10 << 20
_NUL = re.compile(rb"\\u0000")


def is_clean(data: bytes) -> bool:
    """Whether a text of JSON is of a usual size and certainly holds no NUL."""
    return len(data) <= _UNREMARKABLE and _NUL.search(data) is None


def is_proven(body: Body, dialect: str, model: str | None) -> bool:
    """Whether the value of a clean text certainly breaks no rule of the dialect."""
    raw = body.get(profile_named(dialect).list_key)
    try:
        return type(raw) is list and bool(raw) and VIEWS[dialect].is_proven(body, raw, model)
    except (KeyError, TypeError, AttributeError, IndexError):
        return False


_SKIMMED = msgspec.json.Decoder(dict[str, msgspec.Raw])


class HealDecision(Struct, frozen=True):
    """What goes out, and what was done to it.

    ``repaired`` counts what was repaired by code, ``left`` what could not be; ``places`` names
    where. Without any of them ``data`` is what came in, byte for byte. ``streams`` says that the
    body asks for a stream.
    """

    data: bytes
    streams: bool = False
    repaired: dict[str, int] = {}
    left: dict[str, int] = {}
    places: tuple[str, ...] = ()


def decide(
    data: bytes, profile: str, model: str | None = None, *, strict: bool = False
) -> HealDecision:
    """Decide on a body for a receiver; ``model`` is the one that the path names, if it does.

    What is no JSON, or no conversation, goes as it came: its receiver says so best. With
    ``strict`` reasoning behind a repaired place is dropped.
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
    """Decide on a body that is certainly fine; None if it takes a closer look."""
    named = body.get("model") if model is None else model
    named = named if type(named) is str else None
    if is_plain_body(profile) and is_clean(data) and is_proven(body, profile, named):
        return HealDecision(data, body.get("stream") is True)
    return None


def heal_body(
    data: bytes, body: dict[str, Any], profile: str, model: str | None, *, strict: bool = False
) -> HealDecision:
    """Decide on a body by all the rules."""
    try:
        plan = plan_sent(body, profile, model, strict=strict, clean=is_clean(data))
    except UsageError:
        return HealDecision(data, body.get("stream") is True)
    return structs.replace(_decide_by_plan(data, body, plan), streams=body.get("stream") is True)


def is_plain_body(profile: str) -> bool:
    """Whether this is a dialect under its own rules, not a variant of it."""
    return ":" not in profile


def _decide_by_plan(data: bytes, body: dict[str, Any], plan: Plan) -> HealDecision:
    if not plan.healed:
        refused = [finding for finding in plan.remaining if finding.severity == ERROR]
        places = tuple(finding.place for finding in refused)
        return HealDecision(data, left=_count(finding.code for finding in refused), places=places)
    if not plan.changed:
        return HealDecision(data)
    written = rewrite(data, body, plan.edits)
    # Read what is about to be sent once more, as far as it is new: it must be what was planned.
    # The rest was copied, and is only looked at as JSON.
    new = {key: value for key, value in plan.plain.items() if value is not body.get(key)}
    try:
        _SKIMMED.decode(written.data)
        is_planned = all(_is_planned(written, key, value) for key, value in new.items())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # what only Python reads is read whole
        is_planned = _value(written.data) == plan.plain
    if not is_planned or not new:
        raise Miswritten("the healed request could not be written as it was planned")
    repaired = _count(change.code for change in plan.changes)
    places = tuple(change.place for change in plan.changes)
    return HealDecision(written.data, repaired=repaired, places=places)


def _count(codes: Any) -> dict[str, int]:
    return dict(sorted(Counter(codes).items()))


class Miswritten(Exception):
    """The bytes that were written do not say what was planned; they must not be sent."""


def _is_planned(written: EditedDocument, key: str, value: Any) -> bool:
    """Whether the parts that were written for a field are the planned ones."""
    pieces = written.pieces.get(key)
    if pieces is None or type(value) is not list:
        text = _SKIMMED.decode(written.data)[key]
        return bool(msgspec.json.decode(text) == value)
    at = 0
    for size, piece in pieces:
        if piece is not None and msgspec.json.decode(piece) != value[at]:
            return False
        at += size
    return at == len(value)


def read_body(data: bytes) -> dict[str, Any] | None:
    """Return the object of a body, None if it holds none; big and odd numbers stay as text."""
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


# Words that a rule leaves open in a refusal; the numbers among them are those of places.
_OPEN = re.compile(r"<(\w+)>")
_FEWEST_LETTERS = 16
_LONGEST_TEXT = 4000


class _KnownRefusal(Struct, frozen=True):
    """What is known of the words of a refusal: who says them, and for which rule."""

    code: str
    profile: str
    pattern: re.Pattern[str]


def look_again(
    plain: bytes, before: HealDecision, profile: str, model: str | None, text: bytes
) -> HealDecision | None:
    """Return the request healed once more, None if the refusal names nothing that can be found.

    It is another body than the one that was refused, by a repair of the very rule that the
    refusal is about.
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
    """Return the ways to look again, the nearest first: whose rules, which model, how strictly."""
    if not is_plain_body(refusal.profile) and refusal.profile != profile:
        if is_plain_body(profile):
            yield refusal.profile, model, False
        return
    yield profile, model, True
    for stricter in VIEWS[profile].newest_models if is_plain_body(profile) else ():
        yield profile, stricter, False


def _words_of(text: bytes) -> str:
    """Return the words of a refusal, of whatever shape the body that holds them."""
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
    """Return the refusals that are known of a dialect's servers, the longest words first."""
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
    """Return a pattern for the words of a refusal; None if hardly anything of them is fixed."""
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
