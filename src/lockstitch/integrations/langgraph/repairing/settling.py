"""The checkpoint behind a head that makes a conversation valid: worked out, not yet stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import eq, is_
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from msgspec import Struct, field

from lockstitch.formats.base import find
from lockstitch.formats.langgraph.naming import COUNTERS, MESSAGES, START, successor
from lockstitch.integrations.langgraph.repairing import pending
from lockstitch.integrations.langgraph.repairing.healing import Mended, is_real, mended
from lockstitch.integrations.langgraph.repairing.identity import named
from lockstitch.integrations.langgraph.repairing.matching import Aligned, aligned
from lockstitch.integrations.langgraph.repairing.report import BREAKPOINT, INTERRUPT, Reconciled

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
    )

HIDDEN_RESULT = "LS901"
HIDDEN_INPUT = "LS908"
NextVersion = Callable[[Any, None], Any]


class Settled(Struct):
    """A checkpoint to be put behind the one that was read, and the report on it."""

    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions
    report: Reconciled


class Applied(Struct):
    """What a graph makes of a checkpoint when finished tasks count and the rest is dropped.

    ``values`` are those of all channels, also of those that store only changes, which
    ``deltas`` names. ``paused`` says that the graph stops there to let a person look.
    """

    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    values: dict[str, Any] = field(default_factory=dict)
    deltas: frozenset[str] = frozenset()
    paused: bool = False


def settled(  # noqa: PLR0913 - the inputs of a pure function, by name
    saved: CheckpointTuple,
    *,
    messages: Sequence[Any] | None = None,
    force: bool = False,
    channel: str | None = None,
    next_version: NextVersion,
    delta: Mapping[str, Any] | None = None,
    ancestors: Iterable[CheckpointTuple] = (),
) -> Settled | None:
    """Work out the checkpoint that makes a conversation valid; None if there is nothing to do.

    ``next_version`` is the saver's ``get_next_version``, ``delta`` the history that the saver
    gives of the channels that ``pending.wanted_histories`` names; results of open calls may be
    beside ``ancestors``, nearest first. Nothing is read or written. A checkpoint that waits for a
    person is left alone, unless ``force`` is given.
    """
    task = Settling(saved, next_version, delta=delta, channel=channel)
    calls = task.open_calls()
    for ancestor in ancestors:
        if not (calls and task.take(ancestor, calls)):
            break
    return task.settled(messages, force=force)


class Settling:
    """One checkpoint under repair, with the writes that hang on it."""

    def __init__(
        self,
        saved: CheckpointTuple,
        next_version: NextVersion,
        *,
        delta: Mapping[str, Any] | None = None,
        channel: str | None = None,
    ) -> None:
        self.next_version = next_version
        self.applied: Applied | None = None
        self.delta = delta or {}
        self.stored: dict[str, Any] = saved.checkpoint["channel_values"]
        values = {name: pending.opened(value) for name, value in self.stored.items()}
        values |= {name: pending.replayed(history) for name, history in self.delta.items()}
        self.channel = pending.messages_channel(values, channel) or _begun_in(values, channel)
        self.held: list[BaseMessage] = list(values.get(self.channel or "") or [])
        self.saved = pending.stamped(saved, self.held)
        self.finished = pending.finished(self.saved)
        self.late: list[ToolMessage] = []
        self._done: tuple[list[BaseMessage], Mended] | None = None
        self.report = Reconciled(before=saved.config, after=saved.config, channel=self.channel)
        self.report.messages = self.held

    def apply(self, applied: Applied | None) -> None:
        """Use what a graph made of the checkpoint, if that has the conversation."""
        if applied is not None and (self.channel is None or self.channel in applied.values):
            self.applied = applied

    def open_calls(self) -> set[pending.Asked]:
        """Give the calls that nothing real in the conversation or beside it answers.

        A call whose id is in use more than once is left out where only ids could tell.
        """
        whole = self._whole()
        used = Counter(call for call, _ in pending.calls_in(whole))
        only_ids = self.channel in self.delta or any(message.id is None for message in self.held)
        # What stands in the place of a result may have been put there beside that very result.
        stored = {id(message) for message in whole}
        return {
            (answer.tool_call_id, reply)
            for answer, reply in _made_up(self._mended(whole).messages)
            if used[answer.tool_call_id] == 1 or not (only_ids or id(answer) in stored)
        }

    def take(self, ancestor: CheckpointTuple, calls: set[pending.Asked]) -> bool:
        """Take results for these open calls from beside an ancestor; False to look no further.

        The calls that are answered so are taken out of the set.
        """
        found = pending.results_for(calls, ancestor, self.channel or "")
        for message in found or ():
            answered = {asked for asked in calls if asked[0] == message.tool_call_id}
            if answered:
                calls -= answered
                known = [*self._whole(), message]
                self.late.append(cast("ToolMessage", named(known, known[:-1])[-1]))
        return found is not None

    def settled(self, messages: Sequence[Any] | None, *, force: bool) -> Settled | None:
        """Work out the new checkpoint; None if nothing is wrong, or a person is asked."""
        report = self.report
        report.paused = self._paused()
        if self.channel is None:
            if messages is None:
                return None
            self.channel = report.channel = MESSAGES
        if report.paused and not force:
            report.messages = self._whole()
            return None
        self._note_hidden()
        lined = self._lined_up(messages)
        done = self._mended(lined.messages)
        self._note(lined, done)
        if not done.healed:
            return None
        if not (self._must_write(done) or (force and report.paused)):
            return None
        report.messages = done.messages
        report.changed = True
        checkpoint, versions = self._checkpoint(done.messages)
        return Settled(checkpoint, self._metadata(), versions, report)

    def _mended(self, messages: list[BaseMessage]) -> Mended:
        """Mend a list; the one that was mended last is not looked at again."""
        if self._done is None or not _are_same(self._done[0], messages, is_):
            self._done = messages, mended(messages)
        return self._done[1]

    def _paused(self) -> str:
        if pending.asked(self.saved):
            return INTERRUPT
        if self.applied is not None:
            return BREAKPOINT if self.applied.paused else ""
        at_rest = not pending.triggers(self.stored) or pending.ran_since(self.saved)
        if at_rest or not pending.was_resumed(self.saved):
            return ""
        return BREAKPOINT if mended(self.held).synthetic else ""

    def _writes(self) -> list[Any]:
        """Give what is to be merged into the conversation, in the order in which it happened."""
        name = self.channel or ""
        commanded = [value for _, at, value in pending.commanded(self.saved) if at == name]
        returned = [value for _, at, value in self.finished if at == name]
        return [*pending.begun(self.saved, name), *commanded, *returned]

    def _whole(self) -> list[BaseMessage]:
        """Give the conversation with all that hangs on the checkpoint.

        A graph that was changed since does not know a task of the old one as its own, and does
        not apply what it returned.
        """
        if self.applied is not None and self.channel is not None:
            known: list[BaseMessage] = list(self.applied.values.get(self.channel) or [])
            ids = {message.id for message in known}
            return [*known, *(found for found in self._beside() if found.id not in ids)]
        return [*pending.added(self.held, self._writes()), *self.late]

    def _lined_up(self, messages: Sequence[Any] | None) -> Aligned:
        whole = self._whole()
        return Aligned(whole) if messages is None else aligned(messages, whole)

    def _must_write(self, done: Mended) -> bool:
        if self._writes() or not _are_same(done.messages, self.held):
            return True
        return self.applied is not None and bool(self._others())

    def _others(self) -> list[str]:
        """Name the channels beside the conversation that something is kept for."""
        inputs = pending.fields_of(self.stored.get(START)) if not self.finished else None
        names = [*pending.other_channels(self.finished, self.channel), *(inputs or ())]
        return [name for name in names if name != self.channel]

    def _beside(self) -> list[BaseMessage]:
        """Give the results that are not in the conversation, but beside it or an ancestor."""
        values = [value for _, name, value in self.finished if name == self.channel]
        found = [message for value in values for message in pending.converted(value)]
        return [message for message in (*found, *self.late) if is_real(message)]

    def _note_hidden(self) -> None:
        report = self.report
        for number, _ in enumerate(self._beside()):
            text = "a finished result that the conversation lacks"
            report.findings.append(find(HIDDEN_RESULT, f"writes.{number}", text))
        if START in self.stored:
            text = "a message that no step has taken up"
            report.findings.append(find(HIDDEN_INPUT, "channels.__start__", text))
        if self.applied is None:
            report.unapplied = tuple(sorted(set(self._others())))

    def _note(self, lined: Aligned, done: Mended) -> None:
        report = self.report
        report.healed = done.healed
        final = {message.id for message in done.messages}
        report.results = len({found.id for found in self._beside()} & final)
        report.findings += done.findings
        report.removed, report.added = lined.removed, lined.added
        report.synthetic, report.partial = done.synthetic, done.partial
        report.duplicates = done.duplicates

    def _checkpoint(self, messages: list[BaseMessage]) -> tuple[Checkpoint, ChannelVersions]:
        old = self.saved.checkpoint
        base = old if self.applied is None else self.applied.checkpoint
        values, versions = dict(base["channel_values"]), dict(base["channel_versions"])
        top = self.next_version(max(versions.values()) if versions else None, None)
        for name in pending.triggers(values):
            del values[name]
            versions[name] = top
        if self.channel is not None:
            self._store(values, versions, messages, top)
        new = {name: v for name, v in versions.items() if v != old["channel_versions"].get(name)}
        seen = {node: dict(found) for node, found in base["versions_seen"].items()}
        body = {
            **base,
            "id": successor(old["id"]) or str(uuid6(clock_seq=-2)),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": seen,
            "updated_channels": [self.channel] if self.channel in new else [],
        }
        return cast("Checkpoint", body), new

    def _store(
        self, values: dict[str, Any], versions: dict[str, Any], messages: list[Any], top: Any
    ) -> None:
        name = self.channel or ""
        deltas = set(self.delta) if self.applied is None else self.applied.deltas
        as_delta = name in deltas or pending.opened(values.get(name)) is not values.get(name)
        values[name] = _DeltaSnapshot(messages) if as_delta else messages
        versions[name] = top

    def _metadata(self) -> CheckpointMetadata:
        old: Mapping[str, Any] = self.saved.metadata
        made = {"repaired": self.saved.checkpoint["id"], "codes": self.report.codes}
        found: dict[str, Any] = {
            "source": "update",
            "step": int(old.get("step", -2)) + 1,
            "parents": dict(old.get("parents") or {}),
            "lockstitch": made,
        }
        if counters := self._counters():
            found[COUNTERS] = counters
        return cast("CheckpointMetadata", found)

    def _counters(self) -> dict[str, tuple[int, int]]:
        """Count on, for channels that store only changes, but not for the one stored whole."""
        if self.applied is not None:
            known = pending.counters(self.applied.metadata)
        else:
            old = pending.counters(self.saved.metadata)
            known = {name: (updates, steps + 1) for name, (updates, steps) in old.items()}
        return {name: count for name, count in known.items() if name != self.channel}


def _made_up(messages: Iterable[BaseMessage]) -> Iterator[tuple[ToolMessage, str | None]]:
    """Give the texts in place of answers, whoever wrote them, with the reply before each."""
    reply: str | None = None
    for message in messages:
        if isinstance(message, AIMessage):
            reply = message.id
        elif isinstance(message, ToolMessage) and not is_real(message):
            yield message, reply


def _begun_in(values: Mapping[str, Any], named: str | None) -> str | None:
    """Find the channel that an input, which no step has taken up, is for."""
    begun = pending.fields_of(values.get(START))
    if begun is None or MESSAGES in begun:
        return None if begun is None else MESSAGES
    return pending.messages_channel(begun, named)


def _are_same(
    one: Sequence[BaseMessage], other: Sequence[BaseMessage], same: Callable[[Any, Any], bool] = eq
) -> bool:
    return len(one) == len(other) and all(
        new is old or same(new, old) for new, old in zip(one, other, strict=True)
    )


def broken(
    code: str, channel: str, text: str, saved: CheckpointTuple, messages: Sequence[BaseMessage]
) -> Reconciled:
    """Report on a checkpoint that cannot be mended, and is left as it is.

    ``messages`` is what can be made out of the conversation, which may be less than there was.
    """
    return Reconciled(
        before=saved.config,
        after=saved.config,
        channel=channel,
        messages=list(messages),
        healed=False,
        findings=[find(code, f"channels.{channel}", text)],
    )
