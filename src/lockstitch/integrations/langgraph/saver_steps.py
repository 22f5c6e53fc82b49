"""What is asked of a saver, one step at a time, so that one protocol serves both its faces.

A protocol is a generator that yields steps and is sent their results; ``carried_out`` performs
them with a saver's plain methods, ``acarried_out`` with its async ones.

A look at a checkpoint that leaves its values alone: who put it on what, and who has claimed it.

A guard looks at checkpoints far more often than it hands them out, and most of the time of a read
goes into making messages. LangGraph's own savers are looked at through a shallow copy of them, as
they make one themselves to narrow what is loaded, with a serializer that makes no objects.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Generator, Mapping, Sequence
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

from lockstitch.integrations.langgraph.caller import GUARD, announcing

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol


T = TypeVar("T")
Saver = BaseCheckpointSaver[Any]


class SaverStep:
    """One call of a saver; ``looks`` if the values of what is read do not matter."""

    __slots__ = ()
    looks: ClassVar[bool] = False

    def done(self, saver: Saver) -> Any:
        raise NotImplementedError

    async def adone(self, saver: Saver) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ReadCheckpoint(SaverStep):
    """Read the checkpoint that a config names, or the newest."""

    config: RunnableConfig

    def done(self, saver: Saver) -> CheckpointTuple | None:
        return saver.get_tuple(self.config)

    async def adone(self, saver: Saver) -> CheckpointTuple | None:
        return await saver.aget_tuple(self.config)


@dataclass(frozen=True, slots=True)
class ReadHeader(ReadCheckpoint):
    """Read who put a checkpoint on what, and what is written on it, but not its values."""

    looks: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ListOlder(SaverStep):
    """Look at some checkpoints that are older than a given one, the newest of them first."""

    looks: ClassVar[bool] = True

    config: RunnableConfig
    before: RunnableConfig
    limit: int

    def done(self, saver: Saver) -> list[CheckpointTuple]:
        found = saver.list(self.config, before=self.before, limit=self.limit)
        return list(islice(found, self.limit))

    async def adone(self, saver: Saver) -> list[CheckpointTuple]:
        found = saver.alist(self.config, before=self.before, limit=self.limit)
        return [saved async for saved in found]


@dataclass(frozen=True, slots=True)
class ListLatest(SaverStep):
    """Read the last checkpoints of all namespaces of a thread."""

    config: RunnableConfig
    limit: int

    def done(self, saver: Saver) -> list[CheckpointTuple]:
        return list(islice(saver.list(self.config, limit=self.limit), self.limit))

    async def adone(self, saver: Saver) -> list[CheckpointTuple]:
        return [saved async for saved in saver.alist(self.config, limit=self.limit)]


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
    # Nothing for a saver that is older than paths.
    path: tuple[str, ...] = ()

    def done(self, saver: Saver) -> None:
        saver.put_writes(self.config, self.writes, self.task, *self.path)

    async def adone(self, saver: Saver) -> None:
        await saver.aput_writes(self.config, self.writes, self.task, *self.path)


@dataclass(frozen=True, slots=True)
class Sleep(SaverStep):
    """Wait for some seconds."""

    seconds: float

    def done(self, saver: Saver) -> None:
        time.sleep(self.seconds)

    async def adone(self, saver: Saver) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class ReadDeltas(SaverStep):
    """Read what channels that store only changes have along the ancestors of a checkpoint."""

    config: RunnableConfig
    channels: Sequence[str]

    def done(self, saver: Saver) -> Mapping[str, DeltaChannelHistory]:
        return saver.get_delta_channel_history(config=self.config, channels=self.channels)

    async def adone(self, saver: Saver) -> Mapping[str, DeltaChannelHistory]:
        return await saver.aget_delta_channel_history(config=self.config, channels=self.channels)


Steps = Generator[SaverStep, Any, T]


def perform(saver: Saver, steps: Steps[T], eyes: Saver | None = None) -> T:
    """Perform a protocol with a saver's plain methods; what a step raises, it is told.

    ``eyes`` is a saver that is quicker at looking.
    """
    try:
        step = next(steps)
        while True:
            step = _after(steps, step, eyes if step.looks and eyes else saver)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def _after(steps: Steps[Any], step: SaverStep, saver: Saver) -> SaverStep:
    try:
        # With two referees nobody could build beside what lost.
        with announcing(GUARD):
            result = step.done(saver)
    except BaseException as error:  # noqa: BLE001 - it is the protocol's to handle
        return steps.throw(error)
    return steps.send(result)


async def aperform(saver: Saver, steps: Steps[T], eyes: Saver | None = None) -> T:
    """Perform a protocol with a saver's async methods; what a step raises, it is told."""
    try:
        step = next(steps)
        while True:
            try:
                with announcing(GUARD):
                    result = await step.adone(eyes if step.looks and eyes else saver)
            except BaseException as error:  # noqa: BLE001 - it is the protocol's to handle
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


_LANGGRAPH = "langgraph.checkpoint."
_OUTLINES: Decoder[Any] = Decoder(ext_hook=lambda _, __: None)
# In bytes; what a guard itself writes is smaller, and all that it reads the values of.
_SMALL = 500


class _CheckpointHeader(Struct):
    """What a saver needs of a checkpoint to make a tuple of it."""

    v: int
    id: str
    ts: str
    channel_versions: dict[str, str | int | float]
    versions_seen: dict[str, dict[str, str | int | float]]
    updated_channels: list[str] | None = None


_CHECKPOINTS = Decoder(_CheckpointHeader)


class HeaderSerializer:
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


def header_reader(saver: Saver) -> Saver:
    """Give a saver that reads the same checkpoints without their values, or the saver itself."""
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
