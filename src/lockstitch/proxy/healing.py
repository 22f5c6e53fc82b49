"""What becomes of one request body: it goes as it came, or healed; pure, and always the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.errors import UsageError
from lockstitch.lists import Plan, plan_sent
from lockstitch.proxy.proving import is_proven
from lockstitch.proxy.writing import rewritten
from lockstitch.rules import ERROR
from lockstitch.unread import decode


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
    body = _read(data)
    if type(body) is not dict:
        return Decision(data)
    streams = body.get("stream") is True
    named = model if model is not None else _model_in(body)
    if is_plain(profile) and not strict and is_proven(data, body, profile, named):
        return Decision(data, streams)
    try:
        plan = plan_sent(body, profile, model, strict=strict)
    except UsageError:
        return Decision(data, streams)
    return structs.replace(_decision(data, body, plan), streams=streams)


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
    edits = plan.edits
    healed = rewritten(data, body, edits)
    _verify(healed, plan)
    repaired = _counted(change.code for change in plan.changes)
    places = tuple(change.place for change in plan.changes)
    return Decision(healed, repaired=repaired, places=places)


def _counted(codes: Any) -> dict[str, int]:
    return dict(sorted(Counter(codes).items()))


class Miswritten(Exception):
    """The bytes that were written do not say what was planned; they must not be sent."""


def _verify(healed: bytes, plan: Plan) -> None:
    """Read what is about to be sent once more: it must be the plan, to the last value."""
    if _read(healed) != plan.plain:
        raise Miswritten("the healed request could not be written as it was planned")


def _read(data: bytes) -> Any:
    """Return the JSON value of a body, None if it is none; big and odd numbers stay as text."""
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
