"""Compute a checkpoint that follows the head and makes the conversation valid.

It is not stored yet.

A ``CheckpointRepair`` has a ``MessageChannel`` for every channel of messages in a checkpoint, with
all pending writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from operator import eq, is_
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from msgspec import Struct

from lockstitch.errors import UsageError
from lockstitch.formats.interface import new_finding
from lockstitch.formats.langgraph.decisions import (
    BREAKPOINT,
    add_ids,
    change_channels,
    count_steps,
    is_first_input,
    is_workflow,
    reason_to_wait,
    repair_metadata,
)
from lockstitch.formats.langgraph.snapshot import (
    BRANCH,
    MESSAGES,
    PREVIOUS,
    RETURN,
    START,
    successor,
)
from lockstitch.integrations.langgraph import pending_writes
from lockstitch.integrations.langgraph.message_repair import (
    AlignedMessages,
    RepairedMessages,
    align,
    is_real,
    repair_messages,
)
from lockstitch.integrations.langgraph.pending_writes import AskedCall, failed_results
from lockstitch.integrations.langgraph.report import COUNTED, Reconciled, ReconciledChannel
from lockstitch.rules import WARNING

if TYPE_CHECKING:
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
    )

HIDDEN_RESULT = "LS901"
HIDDEN_INPUT = "LS908"
NextVersion = Callable[[Any, None], Any]


class MessageChannel:
    """One channel of messages: what it holds, what is pending for it, and what it shall hold.

    ``held`` is what the checkpoint holds. ``writes`` are to be merged into it, in the order in
    which they happened, and ``returned`` is the part of them that finished tasks returned.
    ``by_id`` says that calls of ancestors can be recognized only by their ids. ``applied`` is what
    the graph itself makes of all that, if it is known. ``late`` are results found beside ancestors,
    and ``failed`` are the errors that tools ended with.
    """

    def __init__(
        self,
        name: str,
        held: Sequence[BaseMessage],
        writes: Sequence[Any] = (),
        returned: Sequence[Any] = (),
        *,
        by_id: bool = False,
    ) -> None:
        self.name = name
        self.held: list[BaseMessage] = list(held)
        self.writes = list(writes)
        self.applied: list[BaseMessage] | None = None
        self.late: list[ToolMessage] = []
        self.failed: list[ToolMessage] = []
        self.aligned = AlignedMessages([])
        self.synthetic = 0
        self._returned = list(returned)
        self._by_id = by_id
        self._last_repair: tuple[list[BaseMessage], RepairedMessages] | None = None

    @property
    def repaired(self) -> RepairedMessages:
        """The conversation that it shall hold, after :meth:`align`."""
        return self._repair(self.aligned.messages)

    def align(self, wanted: Sequence[Any] | None = None) -> None:
        """Compute the conversation to repair: all that is known, or what an application holds."""
        whole = self.whole()
        self.aligned = AlignedMessages(whole) if wanted is None else align(wanted, whole)

    def whole(self) -> list[BaseMessage]:
        """Return the conversation with everything that is pending.

        A graph that has changed since does not recognize a task of the old graph as its own, and
        does not apply what that task returned.
        """
        if self.applied is None:
            return [
                *pending_writes.apply_updates(self.held, self.writes),
                *self.late,
                *self.failed,
            ]
        ids = {message.id for message in self.applied}
        missing = (found for found in self.beside() if found.id not in ids)
        return [*self.applied, *missing, *self.failed]

    def add_returned(self, messages: Sequence[BaseMessage], synthetic: int) -> None:
        """Add the messages of a subgraph as if its node had returned them.

        ``synthetic`` is the number of made-up results among them, which are new here as well.
        """
        self.writes.append(list(messages))
        self._returned.append(list(messages))
        self.synthetic += synthetic

    def beside(self) -> list[BaseMessage]:
        """Return the results that are not in the conversation but beside it or an ancestor."""
        found = [one for value in self._returned for one in pending_writes.to_messages(value)]
        return [message for message in (*found, *self.late) if is_real(message)]

    def open_calls(self) -> set[AskedCall]:
        """Return the calls that no real result in the conversation or beside it answers.

        A call whose id is used more than once is left out if only ids could tell which call it is.
        """
        whole = self.whole()
        used = Counter(call for call, _ in pending_writes.calls_in(whole))
        only_ids = self._by_id or any(message.id is None for message in self.held)
        # A placeholder may have been written although its real result was stored right beside it.
        stored = {id(message) for message in whole}
        found: set[AskedCall] = set()
        reply: str | None = None
        for message in self._repair(whole).messages:
            if isinstance(message, AIMessage):
                reply = message.id
            elif isinstance(message, ToolMessage) and not is_real(message):
                call = message.tool_call_id
                if used[call] == 1 or not (only_ids or id(message) in stored):
                    found.add((call, reply))
        return found

    def take(self, ancestor: CheckpointTuple, calls: set[AskedCall]) -> bool:
        """Take results for open calls from beside an ancestor; return False to look no further.

        Calls that are answered this way, by results or errors of tools, are removed from the set.
        """
        found = pending_writes.results_for(calls, ancestor, self.name)
        held = pending_writes.unwrap(ancestor.checkpoint["channel_values"].get(self.name))
        errors = failed_results(ancestor, held) if pending_writes.holds_messages(held) else []
        for kept, messages in ((self.late, found or ()), (self.failed, errors)):
            for message in messages:
                answered = {asked for asked in calls if asked[0] == message.tool_call_id}
                if answered:
                    calls -= answered
                    known = [*self.whole(), message]
                    kept.append(cast("ToolMessage", add_ids(known, known[:-1], always=True)[-1]))
        return found is not None

    @property
    def is_behind(self) -> bool:
        """Whether the checkpoint holds something other than the repaired conversation."""
        return bool(self.writes) or not are_same(self.repaired.messages, self.held)

    @property
    def is_open(self) -> bool:
        """Whether the checkpoint itself holds a call that nothing in it answers."""
        return bool(self._repair(self.held).synthetic)

    def describe(self) -> ReconciledChannel:
        """Return the report on the channel."""
        done = self.repaired
        final = {message.id for message in done.messages}
        return ReconciledChannel(
            name=self.name,
            messages=done.messages,
            changed=self.is_behind,
            healed=done.healed,
            results=len({found.id for found in self.beside()} & final),
            errors=len({found.id for found in self.failed} & final),
            synthetic=done.synthetic + self.synthetic,
            partial=done.partial,
            duplicates=done.duplicates,
        )

    def _repair(self, messages: list[BaseMessage]) -> RepairedMessages:
        """Repair a list; the list that was repaired last is not repaired again."""
        if self._last_repair is None or not are_same(self._last_repair[0], messages, is_):
            self._last_repair = messages, repair_messages(messages)
        return self._last_repair[1]


def are_same(
    one: Sequence[BaseMessage], other: Sequence[BaseMessage], same: Callable[[Any, Any], bool] = eq
) -> bool:
    """Whether two lists have the same messages: the same objects, or equal by ``same``."""
    return len(one) == len(other) and all(
        new is old or same(new, old) for new, old in zip(one, other, strict=True)
    )


class NewCheckpoint(Struct):
    """A checkpoint to store after the one that was read, and the report on it."""

    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions
    report: Reconciled


class AppliedPending(Struct):
    """What a graph makes of a checkpoint when finished tasks count and the rest is dropped.

    ``counters`` are those of its metadata. ``values`` holds all channels, including those that
    store only changes, which ``deltas`` names; ``held`` is their state before anything was applied.
    ``due`` names the nodes to continue with, and ``paused`` says that the graph stopped so that a
    person can look.
    """

    checkpoint: Checkpoint
    counters: dict[str, tuple[int, int]]
    values: dict[str, Any]
    held: dict[str, Any]
    deltas: frozenset[str]
    due: tuple[str, ...]
    paused: bool


class CheckpointRepair:
    """One checkpoint under repair, with its pending writes.

    ``channels`` are the channels that hold messages; ``main`` is the one that the application calls
    the conversation. ``workflow`` says whether the checkpoint belongs to the functional API, if the
    graph tells.
    """

    def __init__(
        self,
        saved: CheckpointTuple,
        next_version: NextVersion,
        *,
        delta: Mapping[str, Any] | None = None,
        channel: str | None = None,
        workflow: bool | None = None,
    ) -> None:
        self.next_version = next_version
        self.applied: AppliedPending | None = None
        self.delta = delta or {}
        self.stored: dict[str, Any] = saved.checkpoint["channel_values"]
        self._named = channel
        versions = saved.checkpoint["channel_versions"]
        written = [name for _, name, _ in saved.pending_writes or ()]
        # A saver does not return the paths of tasks.
        is_flow = is_workflow(versions, self.stored, [(name, "") for name in written])
        self.is_workflow = is_flow if workflow is None else workflow
        # Without a graph it is unknown whether this is the input of a workflow.
        self.is_unknown = workflow is None and is_first_input(versions, written)
        self._values = {name: pending_writes.unwrap(value) for name, value in self.stored.items()}
        replayed = {name: pending_writes.replay(history) for name, history in self.delta.items()}
        self._values |= {name: found for name, found in replayed.items() if found is not None}
        self._unreadable = {name for name, found in replayed.items() if found is None}
        # Channels to which something other than messages was written.
        self._refused: set[str] = set()
        # Channels that store only changes and that the new checkpoint stores whole.
        self._whole: set[str] = set()
        # What the subgraphs of single calls have so far, by node; and the nodes that work on the
        # conversation itself, which continue from there when they are called again.
        self.brought: list[tuple[str, dict[str, Any]]] = []
        self._again: set[str] = set()
        # How a subgraph waits for a person while this checkpoint has no sign of it yet.
        self.paused_below = ""
        names = pending_writes.message_channels(self._values)
        held = {name: self._values[name] for name in names}
        self.saved = pending_writes.add_ids_to_writes(saved, held)
        self.work = pending_writes.work_on(self.saved)
        self.channels: dict[str, MessageChannel] = {}
        for name in self._find_channels():
            self._add(name, held.get(name, ()))
        self.main = pending_writes.main_channel(self._values, self.channels, channel)
        if self.main in self._unreadable or self.main in self._refused:
            self.main = None
        elif self.main is not None:
            self._add(self.main, held.get(self.main, ()))
        self.report = Reconciled(before=saved.config, after=saved.config, channel=self.main)
        self.report.messages = list(held.get(self.main or "", ()))
        self.report.next = pending_writes.nodes_due(self.stored)

    def _find_channels(self) -> list[str]:
        """Return the channels that hold messages, or for which only messages are pending."""
        holding = pending_writes.message_channels(self._values)
        if self.is_workflow:
            return [name for name in holding if name == PREVIOUS]
        inputs = {} if self.is_unknown or self.work.returned else self._input()
        pending = (*self.work.returned, *self.work.commands)
        updates = [*inputs.items(), *(write[1:] for write in pending)]
        fitting = pending_writes.is_convertible, pending_writes.is_written_as_messages
        for name, value in updates:
            if not fitting[name not in holding](value):
                self._refused.add(name)
        for name in {name: None for name, _ in updates}:
            is_list = name == MESSAGES or all(type(v) is list for at, v in updates if at == name)
            is_free = name not in self._unreadable and pending_writes.is_empty(
                self._values.get(name)
            )
            if pending_writes.is_state(name) and is_list and is_free and name not in holding:
                holding.append(name)
        return [name for name in holding if name not in self._refused]

    def _input(self) -> Mapping[str, Any]:
        """Return the input that no step has taken up, by channel."""
        return pending_writes.input_fields(self.stored.get(START)) or {}

    def _add(self, name: str, held: Sequence[BaseMessage]) -> None:
        if name in self.channels:
            return
        if self.is_workflow:
            self.channels[name] = MessageChannel(name, held)
            return
        begun = [] if self.is_unknown else pending_writes.input_messages(self.saved, name)
        writes, returned = self.work.written_to(name), self.work.returned_to(name)
        self.channels[name] = MessageChannel(
            name, held, [*begun, *writes], returned, by_id=name in self.delta
        )

    def apply(self, applied: AppliedPending | None) -> None:
        """Use what a graph made of the checkpoint, because it knows which channels hold messages.

        A channel with anything else in it is left to the graph.
        """
        if applied is None or self.is_workflow:
            return
        if self.main is not None and self.main not in applied.values:
            return
        self.applied = applied
        found = pending_writes.message_channels(applied.values)
        self.main = pending_writes.main_channel(applied.values, found, self._named)
        found += [self.main] if self.main is not None and self.main not in found else []
        known, self.channels = self.channels, {}
        for name in found:
            held: Any = applied.held.get(name) if name in self.delta else self._values.get(name)
            held = held if pending_writes.holds_messages(held) else ()
            if name in known:
                self.channels[name] = known[name]
                self.channels[name].held = list(held)
            self._add(name, held)
            self.channels[name].applied = list(applied.values.get(name) or ())
        self.report.channel = self.main
        self.report.messages = self.channels[self.main].held if self.main is not None else []

    def take_over(
        self, node: str, space: str, child: CheckpointRepair, initial: Collection[str | None]
    ) -> None:
        """Take over what an unfinished subgraph has beyond its input.

        LangGraph drops the subgraph when something new is said. Its messages are merged as if its
        node had returned them. If calls are open, the node is a tool, which would return something
        else; if there is no channel of that name, it is unknown what it would return. In both cases
        the report says what is left.
        """
        updates: dict[str, Any] = {}
        left, is_shared = 0, bool(initial)
        for name, below in child.channels.items():
            own = self.channels.get(name)
            known = {message.id for message in own.whole()} if own is not None else set()
            is_shared = is_shared and known.issuperset(initial)
            known |= set(initial)
            new = [message for message in below.repaired.messages if message.id not in known]
            if own is None or pending_writes.ends_with_calls({name: own.held}):
                left += sum(map(is_real, new))
            elif new:
                updates[name] = new
        for name, new in updates.items():
            below = child.channels[name]
            self.channels[name].add_returned(new, below.repaired.synthetic + below.synthetic)
        if updates:
            self.brought.append((node, updates))
            self._again |= {f"{BRANCH}to:{node}"} if is_shared else set()
        if left:
            noun = "result is" if left == 1 else "results are"
            text = f"{left} finished {noun} in namespace {space}, and a new message drops them"
            self._find(HIDDEN_RESULT, f"subgraphs.{node}", text, is_left=True)

    def open_calls(self) -> dict[str, set[AskedCall]]:
        """Return the calls that nothing real answers, for each channel that has any.

        The errors that tools ended with are real.
        """
        for one in self.channels.values():
            if not one.failed:
                one.failed += failed_results(self.saved, one.whole())
        found = {name: one.open_calls() for name, one in self.channels.items()}
        return {name: calls for name, calls in found.items() if calls}

    def take(self, ancestor: CheckpointTuple, calls: dict[str, set[AskedCall]]) -> None:
        """Take results for these open calls from beside an ancestor.

        Calls that are answered this way are removed, and so are channels for which it is useless to
        look any further.
        """
        for name in list(calls):
            if not (self.channels[name].take(ancestor, calls[name]) and calls[name]):
                del calls[name]

    def reason_to_wait(self) -> str:
        """Return how a person is being asked, here or in a subgraph; "" if nobody is."""
        if self.paused_below:
            return self.paused_below
        if self.applied is not None and not self.work.asking:
            # The graph knows its breakpoints; from what a thread stores they can only be guessed.
            return BREAKPOINT if self.applied.paused else ""
        return reason_to_wait(
            self.work,
            self.saved.checkpoint["versions_seen"],
            is_due=bool(pending_writes.triggers(self.stored)),
            has_open_calls=lambda: any(one.is_open for one in self.channels.values()),
        )

    def new_checkpoint(
        self, messages: Sequence[Any] | None, *, force: bool
    ) -> NewCheckpoint | None:
        """Return the new checkpoint; None if nothing is wrong, or if a person is being asked."""
        report = self.report
        report.paused = self.reason_to_wait()
        if self.main is None and messages is not None:
            # The channel for a conversation of which the checkpoint has nothing yet.
            name = self._named or MESSAGES
            is_free = pending_writes.is_empty(self._values.get(name))
            if not is_free or name in self._unreadable:
                raise UsageError(f"channel {name!r} does not hold a list of messages")
            if self.is_workflow:
                text = "this is a workflow that keeps no list of messages for its next run"
                raise UsageError(text)
            self.main = report.channel = name
            self._add(name, ())
        self._note_unread()
        if not self.channels:
            return None
        is_begun = self.is_workflow and START in self.stored
        if (report.paused or is_begun) and not force:
            if self.main in self.channels:
                report.messages = self.channels[self.main].whole()
            return None
        self._note_hidden()
        for name, one in self.channels.items():
            one.align(messages if name == self.main else None)
        report.channels = [one.describe() for one in self.channels.values()]
        for one in self.channels.values():
            report.findings += one.repaired.findings
        report.healed = all(one.healed for one in report.channels)
        if report.healed:
            for count in COUNTED:
                setattr(report, count, sum(getattr(one, count) for one in report.channels))
            report.removed = sum(one.aligned.removed for one in self.channels.values())
            report.added = sum(one.aligned.added for one in self.channels.values())
        is_behind = any(one.is_behind for one in self.channels.values())
        is_applied = self.applied is not None and bool(self._find_other_channels())
        closes = force and bool(report.paused) and not self.is_workflow
        if not report.healed or not (is_behind or is_applied or closes):
            return None
        if self.main is not None:
            report.messages = self.channels[self.main].repaired.messages
        report.changed = True
        checkpoint, versions = self._make_checkpoint()
        report.next = pending_writes.nodes_due(checkpoint["channel_values"])
        if self.applied is None:
            counters = count_steps(pending_writes.counters(self.saved.metadata), 1, self._whole)
        else:
            counters = count_steps(self.applied.counters, 0, self._whole)
        head = self.saved.checkpoint["id"]
        metadata = repair_metadata(self.saved.metadata, head, report.codes, counters)
        made = cast("CheckpointMetadata", metadata)
        return NewCheckpoint(checkpoint, made, versions, report)

    def _find_other_channels(self) -> list[str]:
        """Return the channels without messages that have pending writes."""
        inputs = self._input() if not self.work.returned else ()
        names = [*(name for _, name, _ in self.work.returned), *inputs]
        return [name for name in names if name not in self.channels]

    def _find(self, code: str, place: str, text: str, *, is_left: bool = False) -> None:
        """Report a finding; ``is_left`` says that it cannot be repaired."""
        left = {"fixable": False} if is_left else {}
        found = new_finding(code, place, text, WARNING if is_left else "", **left)
        self.report.findings.append(found)

    def _note_unread(self) -> None:
        """Report channels that are left alone because their form is not understood."""
        start = "channels.__start__"
        brings = any(map(pending_writes.looks_like_messages, self._input().values()))
        if self.is_workflow and START in self.stored:
            # The parts of an interrupted workflow that would continue, and that a new input would
            # drop.
            kept = sum(name == RETURN for _, name, _ in self.saved.pending_writes or ())
            if kept:
                noun = "result" if kept == 1 else "results"
                what, code, place = f"{kept} finished {noun}", HIDDEN_RESULT, "writes"
            else:
                what, code, place = "an input", HIDDEN_INPUT, start
            text = f"{what} that invoke(None) would continue with, and a new input drops"
            self._find(code, place, text, is_left=True)
        elif self.is_unknown or (not self.channels and brings):
            text = "an input that invoke(None) would process; pass the graph if it is to be kept"
            self._find(HIDDEN_INPUT, start, text, is_left=True)
        values = self._values if self.applied is None else self.applied.values
        unread = {
            name
            for name, value in values.items()
            if pending_writes.is_state(name)
            and name not in self.channels
            and pending_writes.looks_like_messages(value)
        }
        strange = self._unreadable if self.applied is None else set()
        self.report.unread = tuple(sorted(unread | strange))

    def _note_hidden(self) -> None:
        for number in range(sum(len(one.beside()) for one in self.channels.values())):
            text = "a finished result that the conversation lacks"
            self._find(HIDDEN_RESULT, f"writes.{number}", text)
        for number in range(sum(len(one.failed) for one in self.channels.values())):
            text = "an error of a tool that the conversation lacks"
            self._find(HIDDEN_RESULT, f"errors.{number}", text)
        if START in self.stored and not self.is_workflow and not self.is_unknown:
            self._find(HIDDEN_INPUT, "channels.__start__", "a message that no step has processed")
        if self.applied is None and not self.is_workflow:
            self.report.unapplied = tuple(sorted(set(self._find_other_channels())))

    def _make_checkpoint(self) -> tuple[Checkpoint, ChannelVersions]:
        old = self.saved.checkpoint
        base = old if self.applied is None else self.applied.checkpoint
        held, known = base["channel_values"], base["channel_versions"]
        top = self.next_version(max(known.values()) if known else None, None)
        due = self._find_due(held)
        emptied = [name for name in pending_writes.triggers(held) if name not in due]
        again = due.keys() - held.keys() | (self._again & due.keys())
        changed: dict[str, Any] = {name: due[name] for name in sorted(again)}
        deltas = set(self.delta) if self.applied is None else self.applied.deltas
        for name, one in self.channels.items():
            messages = one.repaired.messages
            if are_same(messages, one.held if one.applied is None else one.applied):
                continue
            self._whole.add(name)
            is_delta = pending_writes.unwrap(held.get(name)) is not held.get(name)
            as_delta = name in deltas or is_delta
            changed[name] = _DeltaSnapshot(messages) if as_delta else messages
        values, versions = change_channels(held, known, changed, emptied, top)
        new = {name: v for name, v in versions.items() if v != old["channel_versions"].get(name)}
        body = {
            **base,
            # The id directly after the old one: a run that is still alive writes later ids, so its
            # turn is not hidden behind the repair (see ``successor``).
            "id": successor(old["id"]) or str(uuid6(clock_seq=-2)),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {node: dict(seen) for node, seen in base["versions_seen"].items()},
            # LangGraph looks only at these in order to find the nodes that are due.
            "updated_channels": sorted({*(self.channels.keys() & new.keys()), *due}),
        }
        return cast("Checkpoint", body), new

    def _find_due(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the channels that make a node run next, without those that must not stay.

        A node that answers calls must not run any more, because the calls are answered. Nodes that
        follow it may run, and so may nodes that have nothing to do with calls. None may if the
        application has changed the conversation, or if a question to a person was closed.
        """
        channels = self.channels.values()
        is_changed = any(one.aligned.removed or one.aligned.added for one in channels)
        if self.is_workflow or self.report.paused or is_changed:
            return {}
        if self._again:
            return {name: self.stored[name] for name in self._again & self.stored.keys()}
        due = {name: values[name] for name in pending_writes.triggers(values)}
        if self.applied is not None:
            return due if self.applied.due else {}
        if START in self.stored or self.brought:
            return {}
        if not (self.work.returned or self.work.commands):
            held = {name: one.held for name, one in self.channels.items()}
            return {} if pending_writes.ends_with_calls(held) else due
        whole = {call for one in channels for call in pending_writes.unanswered(one.whole())}
        if not whole <= {call for one in channels for call in pending_writes.unanswered(one.held)}:
            return {}
        writes = self.saved.pending_writes or ()
        return {name: value for _, name, value in writes if name.startswith(BRANCH)}


def report_broken(
    code: str, channel: str, text: str, saved: CheckpointTuple, messages: Sequence[BaseMessage]
) -> Reconciled:
    """Return the report on a checkpoint that cannot be repaired and is left as it is.

    ``messages`` is as much of the conversation as can be read.
    """
    return Reconciled(
        before=saved.config,
        after=saved.config,
        channel=channel,
        messages=list(messages),
        healed=False,
        findings=[new_finding(code, f"channels.{channel}", text)],
    )
