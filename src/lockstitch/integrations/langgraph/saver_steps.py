"""The calls of a saver as steps, so that sync and async code share each decision.

A decision is a generator that yields steps and is sent their results. ``perform`` executes them
with a saver's synchronous methods, ``aperform`` with its async ones.

Of most checkpoints only the header is needed: who put it on what, and who has claimed it. Most of
the time of a read is spent on making messages. So LangGraph's own savers are read through a shallow
copy of them (they make one themselves in order to restrict what is loaded) with a serializer that
makes no messages.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from msgspec import DecodeError, Struct, ValidationError
from msgspec.msgpack import Decoder
from msgspec.structs import asdict

from lockstitch.conversation.steps import adrive, drive
from lockstitch.integrations.langgraph.run_ids import GUARD, announcing

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

T = TypeVar("T")
Saver = BaseCheckpointSaver[Any]

_LANGGRAPH = "langgraph.checkpoint."
_OUTLINES: Decoder[Any] = Decoder(ext_hook=lambda _, __: None)
_MAPS = Decoder(dict[str, Any], ext_hook=lambda _, __: None)
# In bytes. What a guard writes itself, and reads the values of, is smaller.
_SMALL = 500


class SaverStep:
    """One call of a saver; ``looks`` says that only headers are needed.

    If the saver has no async method of its own, its synchronous one is called in a thread.
    """

    __slots__ = ()
    looks: ClassVar[bool] = False

    def done(self, saver: Saver) -> Any:
        """Call the saver and return its result."""
        raise NotImplementedError

    async def adone(self, saver: Saver) -> Any:
        """Do the same in an event loop."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ReadCheckpoint(SaverStep):
    """Read the checkpoint that a config names, or the newest one."""

    config: RunnableConfig

    def done(self, saver: Saver) -> CheckpointTuple | None:
        return saver.get_tuple(self.config)

    async def adone(self, saver: Saver) -> CheckpointTuple | None:
        return await saver.aget_tuple(self.config)


@dataclass(frozen=True, slots=True)
class ReadHeader(ReadCheckpoint):
    """Read who put a checkpoint on what, and the writes on it, but not its values."""

    looks: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ListHeaders(SaverStep):
    """List some headers, newest first, of one namespace or of all, or those before a checkpoint."""

    looks: ClassVar[bool] = True

    config: RunnableConfig
    limit: int
    before: RunnableConfig | None = None

    def done(self, saver: Saver) -> list[CheckpointTuple]:
        found = saver.list(self.config, before=self.before, limit=self.limit)
        return list(islice(found, self.limit))

    async def adone(self, saver: Saver) -> list[CheckpointTuple]:
        found = saver.alist(self.config, before=self.before, limit=self.limit)
        return [saved async for saved in found]


@dataclass(frozen=True, slots=True)
class PutCheckpoint(SaverStep):
    """Store a checkpoint."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    versions: ChannelVersions

    def done(self, saver: Saver) -> RunnableConfig:
        return saver.put(self.config, self.checkpoint, self.metadata, self.versions)

    async def adone(self, saver: Saver) -> RunnableConfig:
        return await saver.aput(self.config, self.checkpoint, self.metadata, self.versions)


@dataclass(frozen=True, slots=True)
class PutWrites(SaverStep):
    """Store writes of a task on a checkpoint."""

    config: RunnableConfig
    writes: Sequence[tuple[str, Any]]
    task: str
    # Left out for a saver from before paths existed.
    path: tuple[str, ...] = ()

    def done(self, saver: Saver) -> None:
        saver.put_writes(self.config, self.writes, self.task, *self.path)

    async def adone(self, saver: Saver) -> None:
        await saver.aput_writes(self.config, self.writes, self.task, *self.path)


@dataclass(frozen=True, slots=True)
class ReadDeltas(SaverStep):
    """Read what channels that store only changes have in the ancestors of a checkpoint."""

    config: RunnableConfig
    channels: Sequence[str]

    def done(self, saver: Saver) -> Any:
        return saver.get_delta_channel_history(config=self.config, channels=self.channels)

    async def adone(self, saver: Saver) -> Any:
        return await saver.aget_delta_channel_history(config=self.config, channels=self.channels)


@dataclass(frozen=True, slots=True)
class WaitSeconds(SaverStep):
    """Wait for some seconds."""

    seconds: float

    def done(self, saver: Saver) -> None:
        time.sleep(self.seconds)

    async def adone(self, saver: Saver) -> None:
        await asyncio.sleep(self.seconds)


Steps = Generator[SaverStep, Any, T]


def perform(saver: Saver, steps: Steps[T], headers: Saver | None = None) -> T:
    """Return the outcome of a decision, using a saver's synchronous methods.

    ``headers`` is a saver that reads headers faster, for the decisions of a guard.
    """

    def done(step: SaverStep) -> Any:
        # If the saver behind a guard decided as well, nobody could build beside a checkpoint that
        # lost.
        with announcing(GUARD):
            return step.done(headers if step.looks and headers else saver)

    return drive(steps, done)


async def aperform(saver: Saver, steps: Steps[T], headers: Saver | None = None) -> T:
    """Return the outcome of a decision, using a saver's async methods."""

    async def done(step: SaverStep) -> Any:
        with announcing(GUARD):
            return await step.adone(headers if step.looks and headers else saver)

    return await adrive(steps, done)


class _CheckpointHeader(Struct):
    """The parts of a checkpoint that a saver needs in order to make a tuple."""

    v: int
    id: str
    ts: str
    channel_versions: dict[str, str | int | float]
    versions_seen: dict[str, dict[str, str | int | float]]
    updated_channels: list[str] | None = None


_CHECKPOINTS = Decoder(_CheckpointHeader)


class HeaderSerializer:
    """A serializer that reads only the outline of a value: anything but plain data becomes None."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Serialize as the real one does."""
        return self._serde.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read the outline, or all of a value that is not written in the usual form."""
        kind, body = data
        if kind != "msgpack":
            return self._serde.loads_typed(data)
        if len(body) > _SMALL:
            # A checkpoint with all its values, one of the values, or the metadata.
            with suppress(ValidationError, DecodeError):
                return {**asdict(_CHECKPOINTS.decode(body)), "channel_values": {}}
            with suppress(ValidationError, DecodeError, TypeError):
                return _MAPS.decode(body)
            return None
        with suppress(ValidationError, DecodeError, TypeError):
            return _OUTLINES.decode(body)
        return self._serde.loads_typed(data)


def header_reader(saver: Saver) -> Saver:
    """Return a saver that reads the same checkpoints without values, or else the saver itself."""
    serde = saver.serde
    found: SerializerProtocol
    if type(serde) is JsonPlusSerializer:
        found = HeaderSerializer(serde)
    elif type(serde) is EncryptedSerializer and type(serde.serde) is JsonPlusSerializer:
        found = EncryptedSerializer(serde.cipher, HeaderSerializer(serde.serde))
    else:
        return saver
    if not type(saver).__module__.startswith(_LANGGRAPH):
        return saver
    clone = copy.copy(saver)
    clone.serde = found
    return clone
