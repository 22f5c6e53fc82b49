"""A request's body as a recorder reads it: messages, what the model is told, and the rest."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.conversation.parts import ASSISTANT, SYSTEM
from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import Unreadable
from lockstitch.journal.events import Instructed
from lockstitch.proxy.recording.chains import Linked, Linking
from lockstitch.redaction import redacted
from lockstitch.session.importing import SYSTEMS, instructions, system_in

_FIELDS = msgspec.json.Decoder(dict[str, Raw]).decode
_ITEMS = msgspec.json.Decoder(list[Raw]).decode
_DECODE = msgspec.json.Decoder().decode
_PREVIOUS = "previous_response_id"


class Asking(Struct):
    """What a client asks a model, taken apart.

    ``raws`` are the bytes of the messages in the conversation, ``told`` what the model is told
    before it, and ``beside`` the other fields of the body, without keys. ``previous`` is the id of
    the response that the provider keeps the conversation under, "" if the client sends all of it.
    """

    dialect: str
    raws: list[bytes]
    linked: list[Linked]
    told: list[Instructed]
    beside: dict[str, bytes]
    model: str = ""
    previous: str = ""

    @property
    def replies(self) -> list[bool]:
        """Which of the messages are a model's."""
        return [linked.role == ASSISTANT for linked in self.linked]

    def values(self, start: int = 0, stop: int | None = None) -> list[Any]:
        """Return some of the messages, decoded."""
        return [_DECODE(raw) for raw in self.raws[start:stop]]


def read_body(dialect: str, body: bytes, linking: Linking, model: str = "") -> Asking:
    """Take a request's body apart; raise ``Unreadable`` for what holds no list of messages."""
    try:
        try:
            return _taken_apart(dialect, body, linking, model)
        except ValueError:
            # half a character: Python reads it, and what is kept says so
            plain = json.dumps(json.loads(body), ensure_ascii=False)
            return _taken_apart(dialect, plain.encode("utf-8", "replace"), linking, model)
    except (ValueError, RecursionError):
        raise Unreadable("the body of the request holds no list of messages") from None


def _taken_apart(dialect: str, body: bytes, linking: Linking, model: str) -> Asking:
    profile = profile_named(dialect)
    name, key = profile.dialect, profile.list_key
    fields = _FIELDS(body)
    raws = _listed(fields.get(key))
    linked = linking.of_raws(name, raws)
    begun = next((n for n, one in enumerate(linked) if one.role != SYSTEM), len(raws))
    system = system_in({one: _DECODE(fields[one]) for one in SYSTEMS if one in fields})
    others = {one: bytes(raw) for one, raw in fields.items() if one not in (key, *SYSTEMS)}
    beside = {one: _without_secrets(raw) for one, raw in others.items() if one != _PREVIOUS}
    return Asking(
        name,
        raws[begun:],
        linked[begun:],
        instructions(name, system, [_DECODE(raw) for raw in raws[:begun]]),
        beside,
        model or _text(others.get("model")),
        _text(others.get(_PREVIOUS)) if name == "openai-responses" else "",
    )


@lru_cache(256)
def _without_secrets(raw: bytes) -> bytes:
    """Return a field's value as a record may hold it: on one line, and without keys.

    Clients hand over the keys of other servers in what they say of their tools.
    """
    if b'"' not in raw and b"\n" not in raw and b"\r" not in raw:
        return raw
    value = _DECODE(raw)
    clean, found = redacted(value)
    is_plain = not found and b"\n" not in raw and b"\r" not in raw
    return raw if is_plain else msgspec.json.encode(clean)


def _listed(raw: Raw | None) -> list[bytes]:
    """Return the bytes of each message; OpenAI's Responses take a text for a single one."""
    if raw is None:
        return []
    if bytes(raw)[:1] == b'"':
        return [b'{"role":"user","content":%b}' % bytes(raw)]
    return list(map(bytes, _ITEMS(raw)))


def _text(raw: bytes | None) -> str:
    value = _DECODE(raw) if raw is not None else ""
    return value if isinstance(value, str) else ""
