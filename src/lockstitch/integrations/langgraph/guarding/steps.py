"""What is asked of a saver, one step at a time, so that one protocol serves both its faces.

A protocol is a generator that yields steps and is sent their results; ``carried_out`` performs
them with a saver's plain methods, ``acarried_out`` with its async ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver

from lockstitch.integrations.langgraph.caller import GUARD, announced

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )

T = TypeVar("T")
Saver = BaseCheckpointSaver[Any]


class Step:
    """One call of a saver; ``looks`` if the values of what is read do not matter."""

    __slots__ = ()
    looks: ClassVar[bool] = False

    def done(self, saver: Saver) -> Any:
        raise NotImplementedError

    async def adone(self, saver: Saver) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Read(Step):
    """Read the checkpoint that a config names, or the newest."""

    config: RunnableConfig

    def done(self, saver: Saver) -> CheckpointTuple | None:
        return saver.get_tuple(self.config)

    async def adone(self, saver: Saver) -> CheckpointTuple | None:
        return await saver.aget_tuple(self.config)


@dataclass(frozen=True, slots=True)
class Look(Read):
    """Read who put a checkpoint on what, and what is written on it, but not its values."""

    looks: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Older(Step):
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
class Latest(Step):
    """Read the last checkpoints of all namespaces of a thread."""

    config: RunnableConfig
    limit: int

    def done(self, saver: Saver) -> list[CheckpointTuple]:
        return list(islice(saver.list(self.config, limit=self.limit), self.limit))

    async def adone(self, saver: Saver) -> list[CheckpointTuple]:
        return [saved async for saved in saver.alist(self.config, limit=self.limit)]


@dataclass(frozen=True, slots=True)
class Put(Step):
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
class Write(Step):
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
class Pause(Step):
    """Wait for some seconds."""

    seconds: float

    def done(self, saver: Saver) -> None:
        time.sleep(self.seconds)

    async def adone(self, saver: Saver) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class History(Step):
    """Read what channels that store only changes have along the ancestors of a checkpoint."""

    config: RunnableConfig
    channels: Sequence[str]

    def done(self, saver: Saver) -> Mapping[str, DeltaChannelHistory]:
        return saver.get_delta_channel_history(config=self.config, channels=self.channels)

    async def adone(self, saver: Saver) -> Mapping[str, DeltaChannelHistory]:
        return await saver.aget_delta_channel_history(config=self.config, channels=self.channels)


Steps = Generator[Step, Any, T]


def carried_out(saver: Saver, steps: Steps[T], eyes: Saver | None = None) -> T:
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


def _after(steps: Steps[Any], step: Step, saver: Saver) -> Step:
    try:
        # With two referees nobody could build beside what lost.
        with announced(GUARD):
            result = step.done(saver)
    except BaseException as error:  # noqa: BLE001 - it is the protocol's to handle
        return steps.throw(error)
    return steps.send(result)


async def acarried_out(saver: Saver, steps: Steps[T], eyes: Saver | None = None) -> T:
    """Perform a protocol with a saver's async methods; what a step raises, it is told."""
    try:
        step = next(steps)
        while True:
            try:
                with announced(GUARD):
                    result = await step.adone(eyes if step.looks and eyes else saver)
            except BaseException as error:  # noqa: BLE001 - it is the protocol's to handle
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()
