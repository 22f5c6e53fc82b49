"""What belongs to a checkpoint: its conversation, finished results beside it, and open questions.

LangGraph keeps the input of a run, the results of finished tasks and the errors of failed ones
beside the checkpoint until the whole step is done. A new input hides all of these.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.pregel import _algo
from langgraph.types import Overwrite

from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.decisions import (
    PendingWork,
    add_ids,
    call_in,
    error_text,
    failed_calls,
    fold_updates,
    makes_due,
    open_calls,
    sort_writes,
)
from lockstitch.formats.langgraph.snapshot import (
    COUNTERS,
    JOIN,
    MESSAGES,
    OVERWRITE,
    PREVIOUS,
    PUSH,
    START,
    TASKS,
    WITHIN,
    is_trigger,
)
from lockstitch.integrations.langgraph.message_repair import is_real

if TYPE_CHECKING:
    from langgraph.checkpoint.base import Checkpoint, CheckpointTuple

_HEX = re.compile("([0-9a-fA-F]{2})+")
_TURNS_LOOKED_AT = 2
# What LangGraph's own tool node tells the model; the graph goes on as if that had been said. In a
# store the text is a placeholder, which a check recognizes.
ERROR_RESULT = "Error: {error}\n Please fix your mistakes."
BATCH_RESULT = "Error: the step that ran this call failed, and kept no result of it: {error}"

PendingWrite = tuple[str, str, Any]
# A call: its id, and the id of the reply that contains it.
AskedCall = tuple[str, str | None]


# Channels


def message_channels(values: Mapping[str, Any]) -> list[str]:
    """Return the names of the channels that hold messages and nothing else.

    A list that holds anything else, including dicts and texts, is not understood: only the graph
    knows what its reducer makes of it.
    """
    return [name for name, value in values.items() if is_state(name) and holds_messages(value)]


def main_channel(
    values: Mapping[str, Any], holding: Collection[str], named: str | None = None
) -> str | None:
    """Return the channel of the conversation among those that hold messages.

    None if there is none.
    """
    # All channels of messages are repaired, but the application means only this one, so it is not
    # guessed. When a stored thread is shown, its first such channel is the conversation
    # (``conversation``).
    if named is not None:
        if named in values and not (named in holding or is_empty(values[named])):
            raise UsageError(f"channel {named!r} holds no list of messages")
        return named
    if MESSAGES in holding or (MESSAGES in values and is_empty(values[MESSAGES])):
        return MESSAGES
    return next(iter(holding)) if len(holding) == 1 else None


def is_state(name: str) -> bool:
    """Whether a channel belongs to the state, or is what a workflow keeps for its next run."""
    steers = is_trigger(name) or name.startswith((JOIN, "__"))
    return not steers or name in {"__root__", PREVIOUS}


def unwrap(value: Any) -> Any:
    """Return the value of a channel that is stored as a snapshot of changes."""
    return value.value if type(value).__name__ == "_DeltaSnapshot" else value


def holds_messages(value: Any) -> bool:
    """Whether this is a list of messages, at least one, and of nothing else."""
    found = unwrap(value)
    return (
        isinstance(found, list)
        and bool(found)
        and all(isinstance(item, BaseMessage) for item in found)
    )


def looks_like_messages(value: Any) -> bool:
    """Whether this list contains messages, or dicts that LangChain would read as messages."""
    found = unwrap(value)
    return isinstance(found, list) and any(
        isinstance(item, BaseMessage)
        or (isinstance(item, dict) and isinstance(item.get("role"), str))
        for item in found
    )


def is_empty(value: Any) -> bool:
    """Whether a channel holds nothing, or a list of nothing."""
    found = unwrap(value)
    return found is None or (isinstance(found, list) and not found)


def triggers(values: Mapping[str, Any]) -> list[str]:
    """Return the channels whose values make a node run next."""

    def is_due(name: str, value: Any) -> bool:
        come = value if isinstance(value, set | frozenset) else ()
        return makes_due(name, lambda: bool(value), lambda: come)

    return [name for name, value in values.items() if is_due(name, value)]


def nodes_due(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes that run next, as far as the channels tell."""
    found: list[str] = []
    for name in triggers(values):
        if name == TASKS:
            found += [str(getattr(sent, "node", "")) for sent in values[TASKS]]
        else:
            found.append(name if name == START else name.rsplit(":", 1)[-1])
    return tuple(dict.fromkeys(filter(None, found)))


# Calls


def calls_in(messages: Iterable[BaseMessage]) -> list[AskedCall]:
    """Return all calls in a conversation; an id alone may be used again in a later reply."""
    replies = [message for message in messages if isinstance(message, AIMessage)]
    return [(call["id"], reply.id) for reply in replies for call in reply.tool_calls if call["id"]]


def unanswered(messages: Iterable[BaseMessage]) -> set[AskedCall]:
    """Return the calls of a conversation that no later result answers, real or not."""
    return set(open_calls(map(_step_of, messages)).items())


def _step_of(message: BaseMessage) -> tuple[str | None, bool, list[str]]:
    if isinstance(message, ToolMessage):
        return message.id, True, [message.tool_call_id]
    return message.id, False, [call for call, _ in calls_in([message])]


def may_be_broken(saved: CheckpointTuple) -> bool:
    """Whether a head may differ from what a successful run leaves; looks only at its end."""
    values = saved.checkpoint["channel_values"]
    due = (bool(value) if name == TASKS else is_trigger(name) for name, value in values.items())
    if saved.pending_writes or any(due):
        return True
    return leaves_calls_open(values) or has_placeholders(values)


def leaves_calls_open(values: Mapping[str, Any]) -> bool:
    """Whether the last reply in any channel of messages contains a call without an answer."""
    for name in message_channels(values):
        answered: set[str] = set()
        for message in reversed(unwrap(values[name])):
            if isinstance(message, ToolMessage):
                answered.add(message.tool_call_id)
            elif isinstance(message, AIMessage):
                if {call["id"] for call in message.tool_calls} - answered:
                    return True
                break
    return False


def ends_with_calls(values: Mapping[str, Any]) -> bool:
    """Whether a channel of messages ends with open calls, so that tools are due."""
    conversations = (unwrap(values[name]) for name in message_channels(values))
    return any(open_calls(map(_step_of, whole), at_end=True) for whole in conversations)


def has_placeholders(values: Mapping[str, Any]) -> bool:
    """Whether one of the last two turns has a placeholder for a result.

    The real result may have been written since. Older turns were searched before.
    """
    for name in message_channels(values):
        turns = 0
        for message in reversed(unwrap(values[name])):
            turns += isinstance(message, HumanMessage)
            if turns > _TURNS_LOOKED_AT:
                break
            if isinstance(message, ToolMessage) and not is_real(message):
                return True
    return False


# Channels that store only changes


def wanted_histories(saved: CheckpointTuple, named: str | None = None) -> list[str]:
    """Return the channels that may hold the conversation and keep it spread over ancestors."""
    checkpoint = saved.checkpoint
    names = {*counters(saved.metadata), named or MESSAGES}
    return [
        name
        for name in checkpoint["channel_versions"]
        if name in names and name not in checkpoint["channel_values"]
    ]


def delta_channels(graph: Any) -> set[str]:
    """Return the names of a graph's channels that store only changes."""
    channels = graph.channels.items()
    return {name for name, spec in channels if type(spec).__name__ == "DeltaChannel"}


def counters(metadata: Any) -> dict[str, tuple[int, int]]:
    """Return LangGraph's counters for the channels that store only changes."""
    found: dict[str, tuple[int, int]] = metadata.get(COUNTERS) or {}
    return {name: (int(count[0]), int(count[1])) for name, count in found.items()}


def replay(history: Mapping[str, Any]) -> list[BaseMessage] | None:
    """Return a conversation computed from the last stored one and the writes since.

    None if it contains anything but messages: only the graph knows what a reducer makes of that.
    """
    seed, writes = unwrap(history.get("seed")), [write[2] for write in history["writes"]]
    new = [_written_value(value) for value in writes]
    if not all(is_empty(value) or is_written_as_messages(value) for value in (seed, *new)):
        return None
    return apply_updates(seed or [], writes)


# Writes


def is_written_as_messages(value: Any) -> bool:
    """Whether this is a message, or a list of messages and of nothing else."""
    return isinstance(value, BaseMessage) or (type(value) is list and holds_messages(value))


def apply_updates(left: Any, writes: Iterable[Any]) -> list[BaseMessage]:
    """Merge writes into a conversation as LangGraph would; skip what it would refuse.

    Messages that no write concerns stay the same objects.
    """
    read = ((_overwriting(value), value) for value in writes)
    updates = ((is_new, (new or []) if is_new else to_messages(one)) for (is_new, new), one in read)
    return fold_updates(left if isinstance(left, list) else [], updates)


def _overwriting(value: Any) -> tuple[bool, Any]:
    """Return whether a write replaces the value of a channel, and the new value."""
    if isinstance(value, Overwrite):
        return True, value.value
    if isinstance(value, dict) and (OVERWRITE in value or value.get("type") == OVERWRITE):
        return True, value.get(OVERWRITE, value.get("value"))
    return False, None


def _written_value(value: Any) -> Any:
    is_new, new = _overwriting(value)
    return new if is_new else value


def is_convertible(value: Any) -> bool:
    """Whether a reducer of messages would accept this value."""
    new = _written_value(value)
    return is_empty(new) or bool(to_messages(new))


def to_messages(value: Any) -> list[BaseMessage]:
    """Return what was written as messages; nothing for values that are not messages."""
    try:
        return convert_to_messages(value if isinstance(value, list) else [value])
    except (ValueError, NotImplementedError, TypeError, KeyError):
        return []


def add_ids_to_writes(
    saved: CheckpointTuple, held: Mapping[str, Sequence[BaseMessage]]
) -> CheckpointTuple:
    """Add ids to the messages in pending writes, for which LangGraph would make random ones.

    ``held`` is what the channels of messages hold. A write with anything but messages is left as it
    is.
    """
    seen = {name: list(messages) for name, messages in held.items()}
    writes: list[PendingWrite] = []
    for task, channel, value in saved.pending_writes or ():
        if is_written_as_messages(value):
            known = seen.setdefault(channel, [])
            done: list[BaseMessage] = []
            for part in value if isinstance(value, list) else [value]:
                if part.id is None:
                    known.append(part)
                    known[-1] = add_ids(known, known[:-1], always=True)[-1]
                done.append(known[-1] if part.id is None else part)
            writes.append((task, channel, done if isinstance(value, list) else done[0]))
        else:
            writes.append((task, channel, value))
    return saved._replace(pending_writes=writes)


def work_on(saved: CheckpointTuple) -> PendingWork[Any]:
    """Return what is pending on a checkpoint, by kind."""
    return sort_writes(saved.pending_writes or ())


def input_messages(saved: CheckpointTuple, channel: str) -> list[Any]:
    """Return the messages of an input that no step has taken up yet.

    Only the step that takes the input up can have left writes there, and these then show that it
    did.
    """
    if work_on(saved).returned:
        return []
    whole = saved.checkpoint["channel_values"].get(START)
    fields = input_fields(whole)
    if fields is None:
        return [whole] if holds_messages(whole) else []
    return [add_ids(to_messages(fields[channel]), [])] if channel in fields else []


def input_fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of an input: a mapping, or an object of a schema's class."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str | bytes | list | tuple) or not hasattr(value, "__dict__"):
        return None
    found: Mapping[str, Any] = vars(value)
    return found


def without_input(saved: CheckpointTuple) -> CheckpointTuple:
    """Return a past checkpoint without what a later run began or continued there.

    A caller that goes back to it with something else to say has replaced that. Only the results of
    calls that are open there still matter.
    """
    values = {k: v for k, v in saved.checkpoint["channel_values"].items() if k != START}
    if saved.metadata.get("source") != "input" and leaves_calls_open(values):
        return saved
    checkpoint: Checkpoint = {**saved.checkpoint, "channel_values": values}
    return saved._replace(checkpoint=checkpoint, pending_writes=[])


def results_for(
    calls: Collection[AskedCall], ancestor: CheckpointTuple, channel: str
) -> list[ToolMessage] | None:
    """Return the real results of open calls that were left beside an ancestor.

    None if the ancestor's conversation does not have these calls; then no earlier one has.
    """
    held = unwrap(ancestor.checkpoint["channel_values"].get(channel))
    wanted = set(calls)
    if holds_messages(held):
        known = set(calls_in(held))
        wanted = {asked for asked in calls if not known.isdisjoint({asked, (asked[0], None)})}
        if not wanted:
            return None
    ids = {call for call, _ in wanted}
    return [
        message
        for value in work_on(ancestor).returned_to(channel)
        for message in to_messages(value)
        if isinstance(message, ToolMessage) and message.tool_call_id in ids and is_real(message)
    ]


def is_busy(saved: CheckpointTuple, delta: Mapping[str, Any]) -> bool:
    """Whether anything is pending on a checkpoint that the graph itself has to apply."""
    return bool(saved.pending_writes or delta or triggers(saved.checkpoint["channel_values"]))


# Errors that tools ended with


def failed_results(saved: CheckpointTuple, messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    """Return the errors of a checkpoint's tasks as results of its open calls.

    If one task had several calls, all that is known is that it failed. An error that only says that
    the run was interrupted does not count.
    """
    errors = work_on(saved).errors
    calls = open_calls(map(_step_of, messages)) if errors else {}
    if not calls:
        return []
    sent = saved.checkpoint["channel_values"].get(TASKS) or ()
    sent_calls = [call_in(getattr(one, "arg", None)) for one in sent]
    tasks = [_task_id(saved, str(getattr(one, "node", "")), n) for n, one in enumerate(sent)]
    if len(calls) == 1 and not all(tasks):
        # The tasks cannot be told apart, but no other call could have failed.
        sent_calls = []
    found = failed_calls(
        errors,
        sent_calls,
        lambda task, _, number: task == tasks[number],
        lambda: open_calls(map(_step_of, messages), at_end=True),
    )
    template = BATCH_RESULT if not sent and len(found) > 1 else ERROR_RESULT
    texts = {
        call: error_text(value if isinstance(value, str) else repr(value))
        for call, value in found.items()
        if call in calls
    }
    replies = [message for message in messages if isinstance(message, AIMessage)]
    tools = {call["id"]: call["name"] for reply in replies for call in reply.tool_calls}
    made = [
        ToolMessage(
            template.format(error=text),
            tool_call_id=call,
            name=tools.get(call),
            status="error",
        )
        for call, text in texts.items()
        if text is not None
    ]
    whole = add_ids([*messages, *made], messages, always=True)
    return [one for one in whole[len(messages) :] if isinstance(one, ToolMessage)]


def _task_id(saved: CheckpointTuple, node: str, number: int) -> str:
    """Return the id that LangGraph gives to a task that was sent, computed from its parts.

    If this version computes ids in another way, no error is recognized as that task's.
    """
    hashed = getattr(_algo, "_xxhash_str", None)
    checkpoint = saved.checkpoint["id"].replace("-", "")
    if hashed is None or not _HEX.fullmatch(checkpoint):
        return ""
    above = saved.config["configurable"].get("checkpoint_ns") or ""
    space = f"{above}{WITHIN}{node}" if above else node
    step = str(int(saved.metadata.get("step", -2)) + 1)
    found: str = hashed(unhexlify(checkpoint), space, step, node, PUSH, str(number))
    return found
