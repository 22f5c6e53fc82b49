"""What hangs on a checkpoint: the conversation in it, finished results beside it, questions open.

LangGraph keeps the input of a run and what finished tasks returned beside the checkpoint until
the whole step is done. A new input hides all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.naming import (
    COUNTERS,
    INTERRUPT,
    JOIN,
    MESSAGES,
    NO_TASK,
    OVERWRITE,
    START,
    TASKS,
    is_control,
    is_trigger,
    waiting,
)
from lockstitch.integrations.langgraph.repairing.healing import is_real
from lockstitch.integrations.langgraph.repairing.identity import named

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple


Write = tuple[str, str, Any]
# A call by its id, and by the id of the reply that it is in.
Asked = tuple[str, str | None]


def messages_channel(values: Mapping[str, Any], named: str | None = None) -> str | None:
    """Find the channel that holds the conversation; None if there is none."""
    holding = [name for name, value in values.items() if _holds_messages(value)]
    if named is not None:
        if named in values and not (named in holding or opened(values[named]) == []):
            raise UsageError(f"channel {named!r} holds no list of messages")
        return named
    if isinstance(opened(values.get(MESSAGES)), list):
        return MESSAGES
    return holding[0] if len(holding) == 1 else None


def leaves_calls_open(values: Mapping[str, Any], named: str | None = None) -> bool:
    """Tell whether the last reply of the conversation asked for what nothing in it answers."""
    answered: set[str] = set()
    messages = opened(values.get(named or MESSAGES))
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return bool({call["id"] for call in message.tool_calls} - answered)
    return False


def opened(value: Any) -> Any:
    """Give the value of a channel that is stored as a snapshot of changes."""
    return value.value if type(value).__name__ == "_DeltaSnapshot" else value


def _holds_messages(value: Any) -> bool:
    found = opened(value)
    if not isinstance(found, list) or not found:
        return False
    return all(isinstance(item, BaseMessage) for item in found)


def wanted_histories(saved: CheckpointTuple, named: str | None = None) -> list[str]:
    """Name the channels that may hold the conversation, but have it spread over ancestors."""
    checkpoint = saved.checkpoint
    names = {*counters(saved.metadata), named or MESSAGES}
    return [
        name
        for name in checkpoint["channel_versions"]
        if name in names and name not in checkpoint["channel_values"]
    ]


def counters(metadata: Any) -> dict[str, tuple[int, int]]:
    """Give what LangGraph counts for channels that store only changes."""
    found: dict[str, tuple[int, int]] = metadata.get(COUNTERS) or {}
    return {name: (int(count[0]), int(count[1])) for name, count in found.items()}


def replayed(history: Mapping[str, Any]) -> list[BaseMessage]:
    """Compute a conversation from the last stored one and what was written since."""
    return added(opened(history.get("seed", [])), [write[2] for write in history["writes"]])


def added(left: Any, writes: Iterable[Any]) -> list[BaseMessage]:
    """Merge writes into a conversation as LangGraph would; what it would refuse is left out."""
    found: list[BaseMessage] = list(left) if isinstance(left, list) else []
    for value in writes:
        is_new, new = _overwriting(value)
        found = list(new or []) if is_new else _merged(found, value)
    return found


def _overwriting(value: Any) -> tuple[bool, Any]:
    if isinstance(value, Overwrite):
        return True, value.value
    if isinstance(value, dict) and (OVERWRITE in value or value.get("type") == OVERWRITE):
        return True, value.get(OVERWRITE, value.get("value"))
    return False, None


def _merged(left: list[BaseMessage], value: Any) -> list[BaseMessage]:
    """Merge one write by ids; messages that nothing is said about stay the very objects."""
    found: list[BaseMessage] = list(left)
    places = {message.id: at for at, message in enumerate(found) if message.id}
    for item in converted(value):
        if isinstance(item, RemoveMessage):
            goes_all = item.id == REMOVE_ALL_MESSAGES
            found = [] if goes_all else [message for message in found if message.id != item.id]
            places = {message.id: at for at, message in enumerate(found) if message.id}
        elif item.id in places:
            found[places[item.id]] = item
        else:
            places |= {item.id: len(found)} if item.id else {}
            found.append(item)
    return found


def converted(value: Any) -> list[BaseMessage]:
    """Make messages of what was written; of what is no message, none."""
    try:
        return convert_to_messages(value if isinstance(value, list) else [value])
    except (ValueError, NotImplementedError, TypeError, KeyError):
        return []


def stamped(saved: CheckpointTuple, held: Sequence[BaseMessage]) -> CheckpointTuple:
    """Give the messages in pending writes ids, which LangGraph would draw by lot otherwise."""
    seen = list(held)
    writes: list[Write] = []
    for task, channel, value in saved.pending_writes or ():
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, BaseMessage) and not part.id for part in parts):
            done = [_stamped(part, seen) for part in parts]
            writes.append((task, channel, done if isinstance(value, list) else done[0]))
        else:
            writes.append((task, channel, value))
    return saved._replace(pending_writes=writes)


def _stamped(part: Any, seen: list[BaseMessage]) -> Any:
    """Give one message an id that none of those before it has, and remember it."""
    if not isinstance(part, BaseMessage):
        return part
    seen.append(part)
    seen[-1] = named(seen, seen[:-1])[-1]
    return seen[-1]


def asked(saved: CheckpointTuple) -> set[str]:
    """Give the tasks that wait for a person."""
    return waiting((task, channel) for task, channel, _ in saved.pending_writes or ())


def finished(saved: CheckpointTuple) -> list[Write]:
    """Give what finished tasks returned, without what only steers the run."""
    return [
        write
        for write in saved.pending_writes or ()
        if write[0] != NO_TASK and not is_control(write[1])
    ]


def commanded(saved: CheckpointTuple) -> list[Write]:
    """Give what a ``Command`` wrote to channels."""
    return [
        write
        for write in saved.pending_writes or ()
        if write[0] == NO_TASK and not is_control(write[1])
    ]


def begun(saved: CheckpointTuple, channel: str) -> list[Any]:
    """Give the messages of an input that no step has taken up yet.

    The step that takes it up is the only one that can have left writes there, which then say it.
    """
    if finished(saved):
        return []
    given = fields_of(saved.checkpoint["channel_values"].get(START))
    if given is not None:
        return [named(converted(given[channel]), [])] if channel in given else []
    whole = saved.checkpoint["channel_values"].get(START)
    return [whole] if _holds_messages(whole) else []


def fields_of(given: Any) -> Mapping[str, Any] | None:
    """Give an input by its fields: a mapping, or an object that a schema was made of."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str | bytes | list | tuple) or not hasattr(given, "__dict__"):
        return None
    found: Mapping[str, Any] = vars(given)
    return found


def results_for(
    calls: Collection[Asked], ancestor: CheckpointTuple, channel: str
) -> list[ToolMessage] | None:
    """Give the real results of open calls that were left beside an ancestor.

    None if its conversation does not have these calls: then none before it has.
    """
    held = opened(ancestor.checkpoint["channel_values"].get(channel))
    wanted = set(calls)
    if isinstance(held, list):
        known = set(calls_in(held))
        wanted = {asked for asked in calls if not known.isdisjoint({asked, (asked[0], None)})}
        if not wanted:
            return None
    ids = {call for call, _ in wanted}
    return [
        message
        for _, name, value in finished(ancestor)
        if name == channel
        for message in converted(value)
        if isinstance(message, ToolMessage) and message.tool_call_id in ids and is_real(message)
    ]


def calls_in(messages: Iterable[BaseMessage]) -> list[Asked]:
    """Give all calls in a conversation; an id alone may be used again in a later reply."""
    replies = [message for message in messages if isinstance(message, AIMessage)]
    return [(call["id"], reply.id) for reply in replies for call in reply.tool_calls if call["id"]]


def triggers(values: Mapping[str, Any]) -> list[str]:
    """Name the channels whose values make a node run next."""
    return [name for name, value in values.items() if _is_due(name, value)]


def _is_due(name: str, value: Any) -> bool:
    if name == TASKS:
        return bool(value)
    if name.startswith(JOIN):
        return isinstance(value, set | frozenset) and value == _joined(name)
    return is_trigger(name)


def _joined(name: str) -> set[str]:
    """Give the nodes that an edge from several nodes waits for; its name lists them."""
    return set(name.removeprefix(JOIN).rsplit(":", 1)[0].split("+"))


def was_resumed(saved: CheckpointTuple) -> bool:
    """Tell whether the thread was ever taken up again: then it may stand at a breakpoint."""
    return INTERRUPT in saved.checkpoint["versions_seen"]


def ran_since(saved: CheckpointTuple) -> bool:
    """Tell whether any task of the step has left something: then nobody was asked before it."""
    return any(task != NO_TASK for task, _, _ in saved.pending_writes or ())


def other_channels(writes: Sequence[Write], channel: str | None) -> Iterator[str]:
    """Name the channels beside the conversation that these writes are for."""
    return (name for _, name, _ in writes if name != channel)


def is_busy(saved: CheckpointTuple, delta: Mapping[str, Any]) -> bool:
    """Tell whether anything hangs on a checkpoint that a graph has to have a say in."""
    return bool(saved.pending_writes or delta or triggers(saved.checkpoint["channel_values"]))
