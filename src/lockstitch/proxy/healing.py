"""What becomes of one request body: it goes as it came, or healed; pure, and always the same.

Whether a request is certainly fine, told without building a view of it.

Reads the everyday shapes of each dialect. What it passes, the rules pass as well; what it does not
pass may be fine all the same, and is left to them.

One more repair of a request that was refused, aimed at what the refusal names.

The text of a refusal never says what is changed: it only says by whose rules to look again. What
these rules find at the place that was named is repaired by the same engine as ever, or nothing is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.conversation.json_text import decode
from lockstitch.dialects import ANTHROPIC, BEDROCK, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES
from lockstitch.dialects.fast import is_blank
from lockstitch.dialects.profiles import PROFILES, traits_of
from lockstitch.dialects.registry import VIEWS
from lockstitch.errors import UsageError
from lockstitch.heal import Plan, plan_sent
from lockstitch.proxy.writing import EditedDocument, rewrite
from lockstitch.rules import ERROR, RULES
from lockstitch.rules.content import markers_outside

Body = dict[str, Any]

# Larger ones may hold a giant, or be more than the provider takes.
_UNREMARKABLE = 10 << 20
_NUL = re.compile(rb"\\u0000")
_MOST_MARKERS = 4
_THINKING = ("thinking", "redacted_thinking")


class _Around(Struct, frozen=True):
    """A request: the whole body, the messages in it, and the model it is for."""

    body: Body
    raw: list[Any]
    model: str | None


def is_clean(data: bytes) -> bool:
    """Whether a text of JSON is of a usual size and certainly holds no NUL."""
    return len(data) <= _UNREMARKABLE and _NUL.search(data) is None


def is_proven(body: Body, dialect: str, model: str | None) -> bool:
    """Whether the value of a clean text certainly breaks no rule of the dialect."""
    raw = body.get(_LISTS[dialect])
    try:
        if type(raw) is not list or not raw or not _ASIDE[dialect](_Around(body, raw, model)):
            return False
        failed = _walked(raw, dialect)
        if failed < len(raw) and dialect == ANTHROPIC and _plainer(raw[failed]) is not raw[failed]:
            if not _markers_are_fine(body, raw):
                return False
            failed = _walked([*map(_plainer, raw)], dialect)
        return failed == len(raw)
    except (KeyError, TypeError, AttributeError, IndexError):
        return False


def _walked(raw: list[Any], dialect: str) -> int:
    """Return the number of the first message that is not plain, that of all if every one is."""
    proof = VIEWS[dialect].proof()
    at = proof.run(raw, 0, [])
    return at if at < len(raw) or proof.is_sound() else 0


def _anthropic(asked: _Around) -> bool:
    """Look at what surrounds the messages: how they end, the tools, and the thinking asked for."""
    body, raw = asked.body, asked.raw
    if any(len(message) != 2 for message in raw) or raw[-1]["role"] != "user":  # noqa: PLR2004
        return False
    tools = body.get("tools")
    names = [tool["name"] for tool in tools] if tools else []
    if not names or len(set(names)) != len(names):
        # without tools a call anywhere counts
        return not tools and len(raw) == 1
    thinking = body.get("thinking")
    if thinking is None or thinking["type"] in ("adaptive", "disabled"):
        return True
    last = raw[-1]["content"]
    if type(last) is str or all(block["type"] != "tool_result" for block in last):
        return True
    said = raw[-2]["content"]
    return raw[-3]["role"] == "user" and type(said) is list and said[0]["type"] in _THINKING


def _markers_are_fine(body: Body, raw: list[Any]) -> bool:
    marked = [
        block
        for message in raw
        if type(message["content"]) is list
        for block in message["content"]
        if "cache_control" in block
    ]
    if any(block["type"] in _THINKING for block in marked):
        return False
    return len(marked) + markers_outside(body) <= _MOST_MARKERS


def _plainer(message: Body) -> Body:
    """Return a message without what is usual and cannot be wrong here: markers, texts in lists."""
    content = message["content"]
    if type(content) is str or not any(map(_is_dressed, content)):
        return message
    return {"role": message["role"], "content": [*map(_undressed, content)]}


def _is_dressed(block: Body) -> bool:
    return "cache_control" in block or type(block.get("content")) is list


def _undressed(block: Body) -> Body:
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    held = plain.get("content")
    if plain["type"] == "tool_result" and type(held) is list and all(map(_is_text, held)):
        plain["content"] = ""
    return plain


def _is_text(block: Body) -> bool:
    return (
        block.keys() == {"type", "text"} and block["type"] == "text" and not is_blank(block["text"])
    )


def _chat(asked: _Around) -> bool:
    return asked.raw[-1]["role"] in ("user", "tool")


def _responses(asked: _Around) -> bool:
    if asked.body.get("store") is not False:
        return True
    return all(
        type(item.get("encrypted_content")) is str
        for item in asked.raw
        if item["type"] == "reasoning"
    )


def _gemini(asked: _Around) -> bool:
    if asked.raw[-1]["role"] != "user":
        return False
    return not traits_of(asked.model).thought_signatures or all(map(_is_signed, asked.raw))


def _is_signed(message: Body) -> bool:
    """Whether the first call of a message, if it makes any, has its signature."""
    calls = [part for part in message["parts"] if "functionCall" in part]
    return not calls or bool(calls[0].get("thoughtSignature"))


def _bedrock(asked: _Around) -> bool:
    return asked.raw[-1]["role"] == "user" and bool(
        asked.body.get("toolConfig") or len(asked.raw) == 1
    )


_LISTS = {
    ANTHROPIC: "messages",
    OPENAI_CHAT: "messages",
    OPENAI_RESPONSES: "input",
    GEMINI: "contents",
    BEDROCK: "messages",
}
_ASIDE: dict[str, Callable[[_Around], bool]] = {
    ANTHROPIC: _anthropic,
    OPENAI_CHAT: _chat,
    OPENAI_RESPONSES: _responses,
    GEMINI: _gemini,
    BEDROCK: _bedrock,
}


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
    named = model if model is not None else _model_in(body)
    if is_plain_body(profile) and is_clean(data) and is_proven(body, profile, named):
        return HealDecision(data, _streams(body))
    return None


def heal_body(
    data: bytes, body: dict[str, Any], profile: str, model: str | None, *, strict: bool = False
) -> HealDecision:
    """Decide on a body by all the rules."""
    try:
        plan = plan_sent(body, profile, model, strict=strict, clean=is_clean(data))
    except UsageError:
        return HealDecision(data, _streams(body))
    return structs.replace(_decision(data, body, plan), streams=_streams(body))


def _streams(body: dict[str, Any]) -> bool:
    return body.get("stream") is True


def is_plain_body(profile: str) -> bool:
    """Whether this is a dialect under its own rules, not a variant of it."""
    return ":" not in profile


def _decision(data: bytes, body: dict[str, Any], plan: Plan) -> HealDecision:
    if not plan.healed:
        refused = [finding for finding in plan.remaining if finding.severity == ERROR]
        places = tuple(finding.place for finding in refused)
        return HealDecision(data, left=_counted(finding.code for finding in refused), places=places)
    if not plan.changed:
        return HealDecision(data)
    written = rewrite(data, body, plan.edits)
    _verify(written, body, plan)
    repaired = _counted(change.code for change in plan.changes)
    places = tuple(change.place for change in plan.changes)
    return HealDecision(written.data, repaired=repaired, places=places)


def _counted(codes: Any) -> dict[str, int]:
    return dict(sorted(Counter(codes).items()))


class Miswritten(Exception):
    """The bytes that were written do not say what was planned; they must not be sent."""


def _verify(written: EditedDocument, body: dict[str, Any], plan: Plan) -> None:
    """Read what is about to be sent once more, as far as it is new: it must be what was planned.

    The rest was copied, and is only looked at as JSON.
    """
    new = {key: value for key, value in plan.plain.items() if value is not body.get(key)}
    try:
        _SKIMMED.decode(written.data)
        is_planned = all(_is_planned(written, key, value) for key, value in new.items())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # what only Python reads is read whole
        is_planned = _value(written.data) == plan.plain
    if not is_planned or not new:
        raise Miswritten("the healed request could not be written as it was planned")


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


def _model_in(body: dict[str, Any]) -> str | None:
    model = body.get("model")
    return model if type(model) is str else None


# Words that a rule leaves open in a refusal; the numbers among them are those of places.
_OPEN = re.compile(r"<(\w+)>")
_FEWEST_LETTERS = 16
_LONGEST_TEXT = 4000


class SecondLook(Struct, frozen=True):
    """How a request could be looked at again: under which rules, and how strictly."""

    profile: str
    model: str | None
    strict: bool


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
    refusal tells of.
    """
    said = _message(text)
    for refusal in _refusals(profile.partition(":")[0]):
        found = refusal.pattern.search(said)
        if found is None:
            continue
        for reading in _readings(refusal, profile, model):
            again = decide(plain, reading.profile, reading.model, strict=reading.strict)
            if _answers(again, before, refusal.code, found):
                return again
    return None


def _answers(again: HealDecision, before: HealDecision, code: str, found: re.Match[str]) -> bool:
    """Whether another repair is one of what the refusal names, and was not made before."""
    if again.data == before.data or again.left:
        return False
    if again.repaired.get(code, 0) <= before.repaired.get(code, 0):
        return False
    number = found.groupdict().get("N")
    places = {place.split(".")[1] for place in again.places if "." in place}
    return number is None or bool(before.repaired) or number in places


def _readings(refusal: _KnownRefusal, profile: str, model: str | None) -> Iterator[SecondLook]:
    """Return the ways to look again, the nearest first."""
    if not is_plain_body(refusal.profile) and refusal.profile != profile:
        if is_plain_body(profile):
            yield SecondLook(refusal.profile, model, strict=False)
        return
    yield SecondLook(profile, model, strict=True)
    for stricter in _NEWEST.get(profile, ()):
        yield SecondLook(profile, stricter, strict=False)


# Models of which all is asked that is asked of any: for names that say nothing of their version.
_NEWEST = {
    ANTHROPIC: ("claude-opus-5-5",),
    BEDROCK: ("anthropic.claude-opus-5-5",),
    GEMINI: ("gemini-3-pro",),
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
