"""One more repair of a request that was refused, aimed at what the refusal names.

The text of a refusal never says what is changed: it only says by whose rules to look again. What
these rules find at the place that was named is repaired by the same engine as ever, or nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec
from msgspec import Struct

from lockstitch.dialects.profiles import PROFILES
from lockstitch.proxy.healing import Decision, decided, is_plain
from lockstitch.rules import RULES

# Words that a rule leaves open in a refusal; the numbers among them are those of places.
_OPEN = re.compile(r"<(\w+)>")
_FEWEST_LETTERS = 16
_LONGEST_TEXT = 4000


class Reading(Struct, frozen=True):
    """How a request could be looked at again: under which rules, and how strictly."""

    profile: str
    model: str | None
    strict: bool


class _Refusal(Struct, frozen=True):
    """What is known of the words of a refusal: who says them, and for which rule."""

    code: str
    profile: str
    pattern: re.Pattern[str]


def aimed(
    plain: bytes, before: Decision, profile: str, model: str | None, text: bytes
) -> Decision | None:
    """Return the request healed once more, None if the refusal names nothing that can be found.

    It is another body than the one that was refused, by a repair of the very rule that the
    refusal tells of.
    """
    said = _message(text)
    for refusal in _refusals(profile.partition(":")[0]):
        found = refusal.pattern.search(said)
        if found is None:
            continue
        for reading in _readings(refusal, profile, model):
            again = decided(plain, reading.profile, reading.model, strict=reading.strict)
            if _answers(again, before, refusal.code, found):
                return again
    return None


def _answers(again: Decision, before: Decision, code: str, found: re.Match[str]) -> bool:
    """Whether another repair is one of what the refusal names, and was not made before."""
    if again.data == before.data or again.left:
        return False
    if again.repaired.get(code, 0) <= before.repaired.get(code, 0):
        return False
    number = found.groupdict().get("N")
    places = {place.split(".")[1] for place in again.places if "." in place}
    return number is None or bool(before.repaired) or number in places


def _readings(refusal: _Refusal, profile: str, model: str | None) -> Iterator[Reading]:
    """Return the ways to look again, the nearest first."""
    if not is_plain(refusal.profile) and refusal.profile != profile:
        if is_plain(profile):
            yield Reading(refusal.profile, model, strict=False)
        return
    yield Reading(profile, model, strict=True)
    for stricter in _NEWEST.get(profile, ()):
        yield Reading(profile, stricter, strict=False)


# Models of which all is asked that is asked of any: for names that say nothing of their version.
_NEWEST = {
    "anthropic": ("claude-opus-5-5",),
    "bedrock": ("anthropic.claude-opus-5-5",),
    "gemini": ("gemini-3-pro",),
}


def _message(text: bytes) -> str:
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
def _refusals(dialect: str) -> list[_Refusal]:
    """Return the refusals that are known of a dialect's servers, the longest words first."""
    found: list[_Refusal] = []
    for rule in RULES.values():
        for who, words in rule.errors:
            name = who.partition(" (")[0]
            if name in PROFILES and name.partition(":")[0] == dialect and rule.fixable:
                pattern = _pattern(words)
                if pattern is not None:
                    found.append(_Refusal(rule.code, name, pattern))
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
