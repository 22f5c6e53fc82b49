"""What hangs on a checkpoint: the conversation in it, finished results beside it, questions open.

LangGraph keeps the input of a run and what finished tasks returned beside the checkpoint until
the whole step is done. A new input hides all of it.

Errors that tools ended with, recorded beside a checkpoint: told as the results that they are.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.pregel import _algo
from langgraph.types import Overwrite

from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.snapshot import (
    COUNTERS,
    ERROR,
    INTERRUPT,
    JOIN,
    MESSAGES,
    NO_TASK,
    OVERWRITE,
    PREVIOUS,
    PUSH,
    START,
    TASKS,
    error_text,
    is_control,
    is_trigger,
    waiting_tasks,
)
from lockstitch.integrations.langgraph.message_repair import add_live_ids, is_real
from lockstitch.redaction import redact_value

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple


_TURNS_LOOKED_AT = 2
PendingWrite = tuple[str, str, Any]
# A call by its id, and by the id of the reply that it is in.
AskedCall = tuple[str, str | None]


def message_channels(values: Mapping[str, Any]) -> list[str]:
    """Name the channels that hold messages and nothing else, of values by their channels.

    A list with anything else in it, dicts and texts included, is not understood: only the graph
    knows what its reducer makes of them.
    """
    return [name for name, value in values.items() if is_state(name) and holds_messages(value)]


def main_channel(
    values: Mapping[str, Any], holding: Collection[str], named: str | None = None
) -> str | None:
    """Choose the channel of the conversation among those that hold messages; None if none is."""
    if named is not None:
        if named in values and not (named in holding or is_empty(values[named])):
            raise UsageError(f"channel {named!r} holds no list of messages")
        return named
    if MESSAGES in holding or (MESSAGES in values and is_empty(values[MESSAGES])):
        return MESSAGES
    return next(iter(holding)) if len(holding) == 1 else None


def looks_like_messages(value: Any) -> bool:
    """Whether this is a list with messages in it, or dicts that LangChain would take for some."""
    found = unwrap(value)
    if not isinstance(found, list):
        return False
    return any(
        isinstance(item, BaseMessage)
        or (isinstance(item, dict) and isinstance(item.get("role"), str))
        for item in found
    )


def is_state(name: str) -> bool:
    """Whether a channel is one of the state, or what a workflow keeps for its next run."""
    steers = is_trigger(name) or name.startswith((JOIN, "__"))
    return not steers or name in {"__root__", PREVIOUS}


def may_be_broken(saved: CheckpointTuple) -> bool:
    """Whether a head may be other than a run leaves it that ended well; reads only its end."""
    values = saved.checkpoint["channel_values"]
    due = (bool(value) if name == TASKS else is_trigger(name) for name, value in values.items())
    if saved.pending_writes or any(due):
        return True
    return leaves_calls_open(values) or holds_stand_ins(values)


def leaves_calls_open(values: Mapping[str, Any]) -> bool:
    """Whether the last reply in any channel of messages asked for what nothing answers."""
    return any(_leaves_open(values[name]) for name in message_channels(values))


def _leaves_open(value: Any) -> bool:
    answered: set[str] = set()
    for message in reversed(unwrap(value)):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return bool({call["id"] for call in message.tool_calls} - answered)
    return False


def ends_with_calls(values: Mapping[str, Any]) -> bool:
    """Whether a channel of messages ends with calls that are still open: tools are due there."""
    return any(
        not unanswered(_last_turn(values[name])).isdisjoint(unanswered(unwrap(values[name])))
        for name in message_channels(values)
    )


def _last_turn(value: Any) -> list[BaseMessage]:
    """Give the last reply with the results behind it; nothing if something else was said since."""
    found: list[BaseMessage] = []
    for message in reversed(unwrap(value)):
        found.insert(0, message)
        if not isinstance(message, ToolMessage):
            break
    return found


def holds_stand_ins(values: Mapping[str, Any]) -> bool:
    """Whether one of the last two turns has a text in the place of a result.

    The real one may have been written since. What is older was looked for before.
    """
    return any(_holds_stand_in(values[name]) for name in message_channels(values))


def _holds_stand_in(value: Any) -> bool:
    turns = 0
    for message in reversed(unwrap(value)):
        turns += isinstance(message, HumanMessage)
        if turns > _TURNS_LOOKED_AT:
            return False
        if isinstance(message, ToolMessage) and not is_real(message):
            return True
    return False


def unwrap(value: Any) -> Any:
    """Give the value of a channel that is stored as a snapshot of changes."""
    return value.value if type(value).__name__ == "_DeltaSnapshot" else value


def holds_messages(value: Any) -> bool:
    """Whether this is a list of messages, at least one, and of nothing else."""
    found = unwrap(value)
    if not isinstance(found, list) or not found:
        return False
    return all(isinstance(item, BaseMessage) for item in found)


def is_empty(value: Any) -> bool:
    """Whether a channel holds nothing, or a list of nothing."""
    found = unwrap(value)
    return found is None or (isinstance(found, list) and not found)


def wanted_histories(saved: CheckpointTuple, named: str | None = None) -> list[str]:
    """Name the channels that may hold the conversation, but have it spread over ancestors."""
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
    """Give what LangGraph counts for channels that store only changes."""
    found: dict[str, tuple[int, int]] = metadata.get(COUNTERS) or {}
    return {name: (int(count[0]), int(count[1])) for name, count in found.items()}


def replay(history: Mapping[str, Any]) -> list[BaseMessage] | None:
    """Compute a conversation from the last stored one and what was written since.

    None if anything but messages is in it: what a reducer makes of that, only the graph knows.
    """
    seed, writes = unwrap(history.get("seed")), [write[2] for write in history["writes"]]
    given = [_overwriting(value)[1] if _overwriting(value)[0] else value for value in writes]
    if not all(is_empty(value) or is_written_as_messages(value) for value in (seed, *given)):
        return None
    return apply_updates(seed or [], writes)


def is_written_as_messages(value: Any) -> bool:
    """Whether this is a message, or a list of messages and of nothing else."""
    return isinstance(value, BaseMessage) or (type(value) is list and holds_messages(value))


def apply_updates(left: Any, writes: Iterable[Any]) -> list[BaseMessage]:
    """Merge writes into a conversation as LangGraph would; what it would refuse is left out."""
    found: list[BaseMessage] = list(left) if isinstance(left, list) else []
    for value in writes:
        is_new, new = _overwriting(value)
        found = list(new or []) if is_new else _merge(found, value)
    return found


def _overwriting(value: Any) -> tuple[bool, Any]:
    if isinstance(value, Overwrite):
        return True, value.value
    if isinstance(value, dict) and (OVERWRITE in value or value.get("type") == OVERWRITE):
        return True, value.get(OVERWRITE, value.get("value"))
    return False, None


def _merge(left: list[BaseMessage], value: Any) -> list[BaseMessage]:
    """Merge one write by ids; messages that nothing is said about stay the very objects."""
    found: list[BaseMessage] = list(left)
    places = {message.id: at for at, message in enumerate(found) if message.id}
    for item in to_messages(value):
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


def is_convertible(value: Any) -> bool:
    """Whether a reducer of messages would take this."""
    given = _overwriting(value)[1] if _overwriting(value)[0] else value
    return is_empty(given) or bool(to_messages(given))


def to_messages(value: Any) -> list[BaseMessage]:
    """Make messages of what was written; of what is no message, none."""
    try:
        return convert_to_messages(value if isinstance(value, list) else [value])
    except (ValueError, NotImplementedError, TypeError, KeyError):
        return []


def add_ids_to_writes(
    saved: CheckpointTuple, held: Mapping[str, Sequence[BaseMessage]]
) -> CheckpointTuple:
    """Give the messages in pending writes ids, which LangGraph would draw by lot otherwise.

    ``held`` is what the channels of messages hold. What is written with anything else than
    messages in it is left as it is.
    """
    seen = {name: list(messages) for name, messages in held.items()}
    writes: list[PendingWrite] = []
    for task, channel, value in saved.pending_writes or ():
        if is_written_as_messages(value):
            known = seen.setdefault(channel, [])
            parts = value if isinstance(value, list) else [value]
            done = [part if part.id else _stamped(part, known) for part in parts]
            writes.append((task, channel, done if isinstance(value, list) else done[0]))
        else:
            writes.append((task, channel, value))
    return saved._replace(pending_writes=writes)


def _stamped(part: BaseMessage, seen: list[BaseMessage]) -> BaseMessage:
    """Give one message an id that none of those before it has, and remember it."""
    seen.append(part)
    seen[-1] = add_live_ids(seen, seen[:-1])[-1]
    return seen[-1]


def asking_tasks(saved: CheckpointTuple) -> set[str]:
    """Give the tasks that wait for a person."""
    return waiting_tasks((task, channel) for task, channel, _ in saved.pending_writes or ())


def finished_writes(saved: CheckpointTuple) -> list[PendingWrite]:
    """Give what finished tasks returned, without what only steers the run."""
    return [
        write
        for write in saved.pending_writes or ()
        if write[0] != NO_TASK and not is_control(write[1])
    ]


def command_writes(saved: CheckpointTuple) -> list[PendingWrite]:
    """Give what a ``Command`` wrote to channels."""
    return [
        write
        for write in saved.pending_writes or ()
        if write[0] == NO_TASK and not is_control(write[1])
    ]


def input_messages(saved: CheckpointTuple, channel: str) -> list[Any]:
    """Give the messages of an input that no step has taken up yet.

    The step that takes it up is the only one that can have left writes there, which then say it.
    """
    if finished_writes(saved):
        return []
    given = fields_of(saved.checkpoint["channel_values"].get(START))
    if given is not None:
        return [add_live_ids(to_messages(given[channel]), [])] if channel in given else []
    whole = saved.checkpoint["channel_values"].get(START)
    return [whole] if holds_messages(whole) else []


def fields_of(given: Any) -> Mapping[str, Any] | None:
    """Give an input by its fields: a mapping, or an object that a schema was made of."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str | bytes | list | tuple) or not hasattr(given, "__dict__"):
        return None
    found: Mapping[str, Any] = vars(given)
    return found


def results_for(
    calls: Collection[AskedCall], ancestor: CheckpointTuple, channel: str
) -> list[ToolMessage] | None:
    """Give the real results of open calls that were left beside an ancestor.

    None if its conversation does not have these calls: then none before it has.
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
        for _, name, value in finished_writes(ancestor)
        if name == channel
        for message in to_messages(value)
        if isinstance(message, ToolMessage) and message.tool_call_id in ids and is_real(message)
    ]


def calls_in(messages: Iterable[BaseMessage]) -> list[AskedCall]:
    """Give all calls in a conversation; an id alone may be used again in a later reply."""
    replies = [message for message in messages if isinstance(message, AIMessage)]
    return [(call["id"], reply.id) for reply in replies for call in reply.tool_calls if call["id"]]


def unanswered(messages: Iterable[BaseMessage]) -> set[AskedCall]:
    """Give the calls of a conversation that no result behind them answers, made up or not."""
    still_open: dict[str, AskedCall] = {}
    for message in messages:
        if isinstance(message, AIMessage):
            still_open |= {asked[0]: asked for asked in calls_in([message])}
        elif isinstance(message, ToolMessage):
            still_open.pop(message.tool_call_id, None)
    return set(still_open.values())


def nodes_due(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the nodes that run next, as far as the channels say it."""
    found: list[str] = []
    for name in triggers(values):
        if name == TASKS:
            found += [str(getattr(sent, "node", "")) for sent in values[TASKS]]
        else:
            found.append(name if name == START else name.rsplit(":", 1)[-1])
    return tuple(dict.fromkeys(filter(None, found)))


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


def is_busy(saved: CheckpointTuple, delta: Mapping[str, Any]) -> bool:
    """Tell whether anything hangs on a checkpoint that a graph has to have a say in."""
    return bool(saved.pending_writes or delta or triggers(saved.checkpoint["channel_values"]))


_HEX = re.compile("([0-9a-fA-F]{2})+")
# What LangGraph's own tool node tells a model.
ERROR_RESULT = "Error: {error}\n Please fix your mistakes."
BATCH_RESULT = "Error: the step that ran this call failed, and kept no result of it: {error}"


def failed_results(saved: CheckpointTuple, messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    """Return the errors of a checkpoint's tasks as results of the calls that are open in it.

    An error is that of a call if the task was sent that call, or if there is no other call that
    it could be of. Where one task had several calls, all that is known is that it failed.
    """
    errors = _errors(saved)
    calls = {asked[0]: asked for asked in unanswered(messages)} if errors else {}
    if not calls:
        return []
    sent = saved.checkpoint["channel_values"].get(TASKS) or ()
    told = {call: errors[task] for task, call in _sent_calls(saved, sent) if task in errors}
    template = ERROR_RESULT
    is_one = len(errors) == 1 and ends_with_calls({MESSAGES: list(messages)})
    if not told and is_one and len(calls) == 1:
        told = dict(zip(calls, errors.values(), strict=True))
    elif not told and is_one and not sent:
        told, template = dict.fromkeys(calls, *errors.values()), BATCH_RESULT
    tools = {
        call["id"]: call["name"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    made = [
        ToolMessage(
            template.format(error=redact_value(text)[0]),
            tool_call_id=call,
            name=tools.get(call),
            status="error",
        )
        for call, text in told.items()
        if call in calls
    ]
    found = add_live_ids([*messages, *made], messages)
    return [one for one in found[len(messages) :] if isinstance(one, ToolMessage)]


def _errors(saved: CheckpointTuple) -> dict[str, str]:
    """Give the texts of errors by task, without what only says that a run was broken off."""
    texts = {
        task: error_text(value if isinstance(value, str) else repr(value))
        for task, channel, value in saved.pending_writes or ()
        if channel == ERROR
    }
    return {task: text for task, text in texts.items() if text is not None}


def _sent_calls(saved: CheckpointTuple, sent: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Give the task of every call that was sent to one of its own."""
    for number, one in enumerate(sent):
        call = _call_of(getattr(one, "arg", None))
        if call is not None:
            yield _task_id(saved, str(getattr(one, "node", "")), number), call


def _call_of(given: Any) -> str | None:
    """Give the id of the one call in what was sent: the call itself, in a list, or with a state."""
    found = given[0] if isinstance(given, list) and len(given) == 1 else given
    if not isinstance(found, dict):
        return None
    call = found.get("tool_call", found)
    known = isinstance(call, dict) and "name" in call and isinstance(call.get("id"), str)
    return str(call["id"]) if known else None


def _task_id(saved: CheckpointTuple, node: str, number: int) -> str:
    """Compute the id that LangGraph gives to a task that was sent, from what it is made of.

    Nothing if this version makes ids in another way: then no error is known to be that task's.
    """
    hashed = getattr(_algo, "_xxhash_str", None)
    checkpoint = saved.checkpoint["id"].replace("-", "")
    if hashed is None or not _HEX.fullmatch(checkpoint):
        return ""
    above = saved.config["configurable"].get("checkpoint_ns") or ""
    space = f"{above}|{node}" if above else node
    step = str(int(saved.metadata.get("step", -2)) + 1)
    found: str = hashed(unhexlify(checkpoint), space, step, node, PUSH, str(number))
    return found
