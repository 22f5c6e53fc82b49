"""Where everything in a repaired list came from, as the passes left it on record.

A pass that changes a part keeps its home and its path, one that moves a part keeps both, and one
that makes a part gives it none: so the draft itself says at the end what each message and each
part was. Edits, SDK objects and files are written from that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from lockstitch.conversation.parts import UNTOUCHED, Path
from lockstitch.repair.draft import RepairDraft


class RepairedPart(Struct, gc=False):
    """A part of a repaired message; ``origin`` and ``path`` say where it was, None: it is new."""

    value: Any
    origin: int | None
    path: Path


class RepairedMessage(Struct, gc=False):
    """A message of a repaired list, and the number of the one that it was; None for a new one.

    ``parts`` is empty where nothing of the message was looked at: it is as it was.
    """

    message: Any
    origin: int | None
    parts: Sequence[RepairedPart] = ()


def trace_draft(
    draft: RepairDraft, rendered: Sequence[Any], raw: Sequence[Any]
) -> list[RepairedMessage]:
    """Say of each message of a draft, as it was rendered, where it and its parts came from.

    Numbers are those of the list that was given, also where ``raw`` is an excerpt of it.
    """
    number = draft.origin.request.number
    traced: list[RepairedMessage] = []
    for view, message in zip(draft.messages, rendered, strict=True):
        if view.state == UNTOUCHED and view.index >= 0:
            traced.append(RepairedMessage(message, number(view.index)))
            continue
        index = view.index
        if index < 0:
            # a message made of parts of another one of its kind is the second half of that
            homes = (part.home for part in view.parts if part.home >= 0)
            index = next((home for home in homes if _kind(raw[home]) == _kind(message)), -1)
        parts = [
            RepairedPart(part.raw, number(part.home) if part.home >= 0 else None, part.at)
            for part in view.parts
        ]
        traced.append(RepairedMessage(message, number(index) if index >= 0 else None, parts))
    return traced


def _kind(message: Any) -> tuple[Any, Any] | None:
    return (message.get("role"), message.get("type")) if type(message) is dict else None


def earlier_forms(repaired: Iterable[RepairedMessage], raw: Sequence[Any]) -> dict[int, Any]:
    """Return what each changed message and part was, by the ``id`` of its new value.

    None stands for what is new; values that are the same objects as before are not listed.
    """
    earlier: dict[int, Any] = {}
    for one in repaired:
        before = None if one.origin is None else raw[one.origin]
        if one.message is before:
            continue
        earlier[id(one.message)] = before
        for part in one.parts:
            old = None if part.origin is None else value_at(raw[part.origin], part.path)
            if type(part.value) is dict and old is not part.value and part.value is not one.message:
                earlier[id(part.value)] = old
    return earlier


def value_at(value: Any, path: Path) -> Any:
    """Return what stands at a path of plain data, None if nothing does."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value
