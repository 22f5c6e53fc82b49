"""A request's body as a recorder reads it: messages, what the model is told, and the rest."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.dialects.detect import new_dialect
from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import Unreadable
from lockstitch.journal.events import Instructed
from lockstitch.journal.importing import ASSISTANT, SYSTEM
from lockstitch.model.parts import Message
from lockstitch.session.importing import SYSTEMS, instructions, system_in

_FIELDS = msgspec.json.Decoder(dict[str, Raw]).decode
_ITEMS = msgspec.json.Decoder(list[Raw]).decode
_DECODE = msgspec.json.Decoder().decode
_PREVIOUS = "previous_response_id"


class Asking(Struct):
    """What a client asks a model, taken apart.

    ``raws`` are the bytes of the messages in the conversation, ``told`` what the model is told
    before it, and ``beside`` the other fields of the body as they came. ``previous`` is the id of
    the response that the provider keeps the conversation under, "" if the client sends all of it.
    """

    dialect: str
    raws: list[bytes]
    told: list[Instructed]
    beside: dict[str, bytes]
    model: str = ""
    previous: str = ""

    def view(self, start: int = 0) -> list[Message]:
        """Return the messages from one on as the dialect reads them."""
        return new_dialect(self.dialect).read(self.values(start))

    def values(self, start: int = 0) -> list[Any]:
        """Return the messages from one on, decoded."""
        return [_DECODE(raw) for raw in self.raws[start:]]


def read_body(dialect: str, body: bytes, model: str = "") -> Asking:
    """Take a request's body apart; raise ``Unreadable`` for what holds no list of messages."""
    try:
        try:
            return _taken_apart(dialect, body, model)
        except ValueError:
            # half a character: Python reads it, and what is kept says so
            plain = json.dumps(json.loads(body), ensure_ascii=False)
            return _taken_apart(dialect, plain.encode("utf-8", "replace"), model)
    except (ValueError, RecursionError):
        raise Unreadable("the body of the request holds no list of messages") from None


def _taken_apart(dialect: str, body: bytes, model: str) -> Asking:
    profile = profile_named(dialect)
    name, key = profile.dialect, profile.list_key
    fields = _FIELDS(body)
    raws = _listed(fields.get(key))
    values = [_DECODE(raw) for raw in raws[: _leading(name, raws)]]
    _DECODE(body)  # what is read message by message later is known to be readable
    beside = {one: bytes(raw) for one, raw in fields.items() if one not in (key, *SYSTEMS)}
    system = system_in({one: _DECODE(fields[one]) for one in SYSTEMS if one in fields})
    return Asking(
        name,
        raws[len(values) :],
        instructions(name, system, values),
        beside,
        model or _text(beside.get("model")),
        _text(beside.get(_PREVIOUS)),
    )


def _listed(raw: Raw | None) -> list[bytes]:
    """Return the bytes of each message; OpenAI's Responses take a text for a single one."""
    if raw is None:
        return []
    if bytes(raw)[:1] == b'"':
        return [b'{"role":"user","content":%b}' % bytes(raw)]
    return list(map(bytes, _ITEMS(raw)))


def _leading(dialect: str, raws: list[bytes]) -> int:
    """Count the messages of the system that stand before the conversation."""
    view = new_dialect(dialect)
    for number, raw in enumerate(raws):
        if view.read([_DECODE(raw)])[0].role != SYSTEM:
            return number
    return len(raws)


def _text(raw: bytes | None) -> str:
    value = _DECODE(raw) if raw is not None else ""
    return value if isinstance(value, str) else ""


def is_reply(message: Message) -> bool:
    """Whether a message is a model's."""
    return message.role == ASSISTANT
