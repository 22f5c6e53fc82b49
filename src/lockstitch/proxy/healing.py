"""What becomes of one request body: it goes as it came, or healed; pure, and always the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.conversation.json_text import decode
from lockstitch.errors import UsageError
from lockstitch.heal import Plan, plan_sent
from lockstitch.proxy.proving import is_clean, is_proven
from lockstitch.proxy.writing import Written, rewritten
from lockstitch.rules import ERROR

_SKIMMED = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Decision(Struct, frozen=True):
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


def decided(
    data: bytes, profile: str, model: str | None = None, *, strict: bool = False
) -> Decision:
    """Decide on a body for a receiver; ``model`` is the one that the path names, if it does.

    What is no JSON, or no conversation, goes as it came: its receiver says so best. With
    ``strict`` reasoning behind a repaired place is dropped.
    """
    body = read(data)
    if body is None:
        return Decision(data)
    return quickly(data, body, profile, model) or healed(data, body, profile, model, strict=strict)


def quickly(data: bytes, body: dict[str, Any], profile: str, model: str | None) -> Decision | None:
    """Decide on a body that is certainly fine; None if it takes a closer look."""
    named = model if model is not None else _model_in(body)
    if is_plain(profile) and is_clean(data) and is_proven(body, profile, named):
        return Decision(data, _streams(body))
    return None


def healed(
    data: bytes, body: dict[str, Any], profile: str, model: str | None, *, strict: bool = False
) -> Decision:
    """Decide on a body by all the rules."""
    try:
        plan = plan_sent(body, profile, model, strict=strict, clean=is_clean(data))
    except UsageError:
        return Decision(data, _streams(body))
    return structs.replace(_decision(data, body, plan), streams=_streams(body))


def _streams(body: dict[str, Any]) -> bool:
    return body.get("stream") is True


def is_plain(profile: str) -> bool:
    """Whether this is a dialect under its own rules, not a variant of it."""
    return ":" not in profile


def _decision(data: bytes, body: dict[str, Any], plan: Plan) -> Decision:
    if not plan.healed:
        refused = [finding for finding in plan.remaining if finding.severity == ERROR]
        places = tuple(finding.place for finding in refused)
        return Decision(data, left=_counted(finding.code for finding in refused), places=places)
    if not plan.changed:
        return Decision(data)
    written = rewritten(data, body, plan.edits)
    _verify(written, body, plan)
    repaired = _counted(change.code for change in plan.changes)
    places = tuple(change.place for change in plan.changes)
    return Decision(written.data, repaired=repaired, places=places)


def _counted(codes: Any) -> dict[str, int]:
    return dict(sorted(Counter(codes).items()))


class Miswritten(Exception):
    """The bytes that were written do not say what was planned; they must not be sent."""


def _verify(written: Written, body: dict[str, Any], plan: Plan) -> None:
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


def _is_planned(written: Written, key: str, value: Any) -> bool:
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


def read(data: bytes) -> dict[str, Any] | None:
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
