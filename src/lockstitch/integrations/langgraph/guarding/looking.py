"""A look at a checkpoint that leaves its values alone: who put it on what, and who has claimed it.

A guard looks at checkpoints far more often than it hands them out, and most of the time of a read
goes into making messages. LangGraph's own savers are looked at through a shallow copy of them, as
they make one themselves to narrow what is loaded, with a serializer that makes no objects.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from msgspec import DecodeError, Struct, ValidationError
from msgspec.msgpack import Decoder
from msgspec.structs import asdict

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from lockstitch.integrations.langgraph.guarding.steps import Saver

_OWN = "langgraph.checkpoint."
_OUTLINES: Decoder[Any] = Decoder(ext_hook=lambda _, __: None)
# In bytes; what a guard itself writes is smaller, and all that it reads the values of.
_SMALL = 500


class _Checkpoint(Struct):
    """What a saver needs of a checkpoint to make a tuple of it."""

    v: int
    id: str
    ts: str
    channel_versions: dict[str, str | int | float]
    versions_seen: dict[str, dict[str, str | int | float]]
    updated_channels: list[str] | None = None


_CHECKPOINTS = Decoder(_Checkpoint)


class Looking:
    """A serializer that reads the outlines of a value: what is no plain data is None."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Serialize as the real one does."""
        return self._serde.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read the outlines, or all of it, if it is not written in the usual way."""
        kind, body = data
        if kind != "msgpack":
            return self._serde.loads_typed(data)
        if len(body) > _SMALL:
            # A checkpoint with all its values in it, or one of those.
            with suppress(ValidationError, DecodeError):
                return {**asdict(_CHECKPOINTS.decode(body)), "channel_values": {}}
            return None
        with suppress(ValidationError, DecodeError, TypeError):
            return _OUTLINES.decode(body)
        return self._serde.loads_typed(data)


def eyes_of(saver: Saver) -> Saver:
    """Give a saver that reads the same checkpoints without their values, or the saver itself."""
    serde = saver.serde
    found: SerializerProtocol
    if type(serde) is JsonPlusSerializer:
        found = Looking(serde)
    elif type(serde) is EncryptedSerializer and type(serde.serde) is JsonPlusSerializer:
        found = EncryptedSerializer(serde.cipher, Looking(serde.serde))
    else:
        return saver
    if not type(saver).__module__.startswith(_OWN):
        return saver
    clone = copy.copy(saver)
    clone.serde = found
    return clone
