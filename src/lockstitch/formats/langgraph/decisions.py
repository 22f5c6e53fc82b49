"""Decisions that the repair of a stored thread shares with that of a running graph.

One works on rows that were read, and its messages are dicts. The other works on the objects of a
live checkpointer. Both use these decisions: which writes count, whether a person is waited for,
what a workflow is, and what makes a node run next; which messages are the same, which ids new ones
get, and how updates are merged; which calls are open and which failed; and what the metadata of the
added checkpoint says.

Nothing is random: repairing the same conversation twice gives the same ids and the same bytes, and
an answer has the same id whoever writes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid5

from msgspec import Struct, field

from lockstitch.dialects.langchain import BARE, envelope_of, fields_of, type_of
from lockstitch.formats.langgraph.codec import REMOVED
from lockstitch.formats.langgraph.snapshot import (
    COUNTERS,
    END,
    ERROR,
    INTERRUPT,
    JOIN,
    NO_TASK,
    OWN,
    PREVIOUS,
    RETURN,
    START,
    TASKS,
    Version,
    is_control,
    is_trigger,
)
from lockstitch.redaction import redact_value

M = TypeVar("M")
V = TypeVar("V")
W = TypeVar("W")

BREAKPOINT = "breakpoint"
QUESTION = "interrupt"
REMOVE_ALL = "__remove_all__"
# The namespace of the ids that are derived here.
_SPACE = UUID("6c6f636b-7374-5974-8368-6d6573736167")
_SAME = ("content", "tool_calls", "invalid_tool_calls", "tool_call_id")
_ANSWERS = frozenset({"tool", "ToolMessageChunk"})
# The keys under which a task finds its call, in several versions.
_CALL_KEYS = ("tool_call", "lg_tool_call", "toolCall")
# What ends a tool from outside, so that it is unknown whether the tool did its work.
_BROKEN_OFF = frozenset(
    {"CancelledError", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "AbortError"}
)
_NAME = re.compile(r"\w*")


# Writes attached to a checkpoint


class PendingWork(Struct, Generic[W]):
    """The writes of a checkpoint, sorted by kind, without control writes.

    ``asking`` are the tasks that ask a person and have returned nothing. ``commands`` is what a
    ``Command`` wrote to the state, ``returned`` is what finished tasks returned to it, and
    ``errors`` is what tasks failed with. Each entry is a task, a channel, and what was written.
    ``has_run`` says that a task of the step has left something.
    """

    asking: set[str] = field(default_factory=set)
    commands: list[tuple[str, str, W]] = field(default_factory=list)
    returned: list[tuple[str, str, W]] = field(default_factory=list)
    errors: list[tuple[str, str, W]] = field(default_factory=list)
    has_run: bool = False

    def written_to(self, channel: str) -> list[W]:
        """Return what is merged into a channel, in order: a command comes before all tasks."""
        return [one for _, name, one in (*self.commands, *self.returned) if name == channel]

    def returned_to(self, channel: str) -> list[W]:
        """Return what finished tasks returned to a channel."""
        return [one for _, name, one in self.returned if name == channel]


def sort_writes(writes: Iterable[tuple[str, str, W]]) -> PendingWork[W]:
    """Sort writes by kind; each is given with its task and its channel."""
    work: PendingWork[W] = PendingWork()
    done: set[str] = set()
    for write in writes:
        task, channel, _ = write
        work.has_run |= task != NO_TASK
        if channel == INTERRUPT:
            # A task that was answered once may ask again, so an existing answer does not prove that
            # nobody is being asked any more.
            work.asking.add(task)
        elif channel == ERROR:
            work.errors.append(write)
        elif not is_control(channel):
            (work.commands if task == NO_TASK else work.returned).append(write)
            done |= {task} - {NO_TASK}
    work.asking -= done
    return work


def reason_to_wait(
    work: PendingWork[Any], seen: Any, *, is_due: bool, has_open_calls: Callable[[], bool]
) -> str:
    """Return why a checkpoint waits for a person, a question or a breakpoint; "" if not.

    A breakpoint leaves no trace of its own. A thread may be at one if it was resumed before, as
    ``versions_seen`` says, and has open calls before a batch of which nothing has run.
    """
    if work.asking:
        return QUESTION
    may_be = isinstance(seen, Mapping) and INTERRUPT in seen and is_due and not work.has_run
    return BREAKPOINT if may_be and has_open_calls() else ""


def is_workflow(
    versions: Collection[str], values: Collection[str], writes: Iterable[tuple[str, str]]
) -> bool:
    """Whether a checkpoint surely belongs to a workflow of the functional API (``@entrypoint``).

    ``versions`` are the channels with a version, ``values`` those with a value, and ``writes`` has
    the channel and the path of each write (an unknown path is empty). Until one of its tasks has
    finished, the first input of a workflow looks like that of any graph: see ``is_first_input``.
    """
    if END in versions or PREVIOUS in versions:
        return True
    # In a graph of states, only the node that takes the input up runs before the input is removed.
    # But its nodes may call tasks, too, which leave what they return under the same name.
    return START in values and any(
        channel in {RETURN, END, PREVIOUS}
        or (channel == ERROR and path and not path.endswith(START))
        for channel, path in writes
    )


def is_first_input(channels: Iterable[str], written: Iterable[str]) -> bool:
    """Whether a checkpoint holds only an input, so that its kind of graph is unknown.

    A graph of states takes an input up at once. A workflow keeps it until it has ended, and can be
    resumed only as long as it is there.
    """
    return set(channels) == {START} and all(map(is_control, set(written) - {RETURN}))


def makes_due(
    channel: str, is_task_sent: Callable[[], bool], names_in: Callable[[], Collection[str]]
) -> bool:
    """Whether the value of a channel makes a node run next, in a graph of states.

    ``is_task_sent`` looks into the list of sent tasks. ``names_in`` looks into the value of an edge
    from several nodes, which is due once all nodes in its name have arrived.
    """
    if channel == TASKS:
        return is_task_sent()
    if channel.startswith(JOIN):
        return names_in() == set(channel.removeprefix(JOIN).rsplit(":", 1)[0].split("+"))
    return is_trigger(channel)


# Messages


def fields_in(message: Any) -> Mapping[str, Any]:
    """Return the fields of a message, a dict or an object; an empty mapping for anything else."""
    found: Mapping[str, Any]
    found = fields_of(message) if type(message) is dict else getattr(message, "__dict__", {})
    return found


def kind_of(message: Any) -> str:
    """Return the type of a message as LangChain spells it."""
    return type_of(message) if type(message) is dict else str(getattr(message, "type", ""))


def id_of(message: Any) -> str | None:
    """Return the id of a message; None if it has none."""
    found = fields_in(message).get("id")
    return found if type(found) is str and found else None


def with_id(message: Any, new: str) -> Any:
    """Return a message with another id."""
    if type(message) is not dict:
        return message.model_copy(update={"id": new})
    envelope = envelope_of(message)
    fields = {**fields_of(message), "id": new}
    return fields if envelope == BARE else {**message, envelope: fields}


def is_copy(one: Any, other: Any) -> bool:
    """Whether two messages say the same, whatever came with them."""
    if kind_of(one) != kind_of(other):
        return False
    here, there = fields_in(one), fields_in(other)
    return all(here.get(name) == there.get(name) for name in _SAME)


def repeated_ids(messages: Sequence[Any]) -> list[int]:
    """Return the places of messages whose id another one before them has."""
    seen: set[str] = set()
    found: list[int] = []
    for place, message in enumerate(messages):
        own = id_of(message)
        if own is not None and own in seen:
            found.append(place)
        elif own is not None:
            seen.add(own)
    return found


def make_distinct(messages: Sequence[M]) -> list[tuple[int, M]]:
    """Make ids distinct: equal copies of a message become one, others get a derived id.

    Return each message that stays with its number in the list.
    """
    seen: dict[str, M] = {}
    kept: list[tuple[int, M]] = []
    for number, message in enumerate(messages):
        own = id_of(message)
        if own is None or own not in seen:
            kept.append((number, message))
        elif not is_copy(seen[own], message):
            own = derive_id(f"again:{own}", set(seen))
            message = with_id(message, own)  # noqa: PLW2901 - the one to remember
            kept.append((number, message))
        if own is not None:
            seen.setdefault(own, message)
    return kept


def add_ids(messages: Sequence[M], known: Sequence[M], *, always: bool = False) -> list[M]:
    """Add ids to new messages, derived from their call and from which answer to it they are.

    Old messages keep what they have. If none of them has an id, new ones get none either, unless
    ``always`` is set.
    """
    if known and not always and not any(map(id_of, known)):
        return list(messages)
    old = {id(message) for message in known}
    taken = {own for own in map(id_of, messages) if own is not None}
    count: Counter[str] = Counter()
    out: list[M] = []
    for message in messages:
        fields = fields_in(message)
        is_new = not fields.get("id") and bool(fields) and id(message) not in old
        is_answer = kind_of(message) in _ANSWERS
        if is_new or is_answer:
            call, content = fields.get("tool_call_id"), fields.get("content")
            source = f"answer:{call}" if is_answer else f"{kind_of(message)}:{content!r}"
            count[source] += 1
            if is_new:
                new = derive_id(f"{source}:{count[source]}", taken)
                message = with_id(message, new)  # noqa: PLW2901 - in its place
        out.append(message)
    return out


def derive_id(source: str, taken: set[str]) -> str:
    """Derive an id from a text that is not taken yet, and take it."""
    number = 0
    source = source.encode("utf-8", "replace").decode()
    while (found := str(uuid5(_SPACE, f"{source}:{number}" if number else source))) in taken:
        number += 1
    taken.add(found)
    return found


def merge_messages(left: Sequence[M], right: Sequence[M]) -> list[M]:
    """Merge an update like LangGraph's reducer: known ids keep their place, others are appended.

    Messages are objects with a ``type`` and an ``id``. The removal of a message that is not there,
    which LangGraph refuses, does nothing.
    """
    update: Sequence[Any] = right
    whole = [n for n, one in enumerate(update) if one.type == REMOVED and one.id == REMOVE_ALL]
    if whole:
        left, update = (), update[whole[-1] + 1 :]
    out: list[Any] = list(left)
    places = {one.id: place for place, one in enumerate(out) if one.id is not None}
    gone: set[str | None] = set()
    for one in update:
        if one.type == REMOVED:
            gone |= {one.id} & places.keys()
        elif one.id in places:
            out[places[one.id]] = one
            gone.discard(one.id)
        else:
            if one.id is not None:
                places[one.id] = len(out)
            out.append(one)
    return [one for one in out if one.id is None or one.id not in gone]


def fold_updates(left: Sequence[M], updates: Iterable[tuple[bool, Sequence[M]]]) -> list[M]:
    """Merge updates one after the other; each says whether it replaces what was there."""
    found = list(left)
    for replaces, new in updates:
        found = list(new) if replaces else merge_messages(found, new)
    return found


# Calls


def open_calls(
    messages: Iterable[tuple[str | None, bool, Iterable[str]]], *, at_end: bool = False
) -> dict[str, str | None]:
    """Return the calls that no later result answers, each with the id of its reply.

    A message is given as its id, whether it is a result, and the calls that it answers or makes. An
    id may be used again in a later reply, and is then another call. With ``at_end``, only calls
    count after which nothing but results was said.
    """
    found: dict[str, str | None] = {}
    for own, is_result, calls in messages:
        if is_result:
            for call in calls:
                found.pop(call, None)
            continue
        if at_end:
            found.clear()
        found |= dict.fromkeys(calls, own)
    return found


def error_text(text: str) -> str | None:
    """Return a recorded error as a model may read it; None if it was not a tool's error.

    LangGraph records the ``repr`` of whatever ended a task, and LangGraph.js its name and text,
    even if it only says that the run was interrupted from outside. Secrets in it, such as the
    password in the address of a server that did not answer, are replaced.
    """
    found = _NAME.match(text)
    if found is not None and found.group() in _BROKEN_OFF:
        return None
    clean: str = redact_value(text)[0]
    return clean


def failed_calls(
    errors: Sequence[tuple[str, str, W]],
    sent: Sequence[str | None],
    is_task: Callable[[str, W, int], bool],
    at_end: Callable[[], Collection[str]],
) -> dict[str, W]:
    """Return the calls to which the errors of a step belong, each with its error; none if in doubt.

    ``sent`` has the calls that were sent to the tasks of the step. ``is_task`` says whether a
    failed task is the one with a given number among these. ``at_end`` returns the open calls with
    which the conversation ended. If tasks were sent nothing, one node ran all of these open calls
    together, and its error is the error of each. That holds only for a single error: with several
    errors, or if calls are open only further up, an error may come from any node, such as the
    model's.
    """
    found: dict[str, W] = {}
    for task, _, error in errors:
        for number, call in enumerate(sent):
            if call is not None and is_task(task, error, number):
                found[call] = error
    return found if sent or len(errors) != 1 else dict.fromkeys(at_end(), errors[0][2])


def call_in(argument: Any) -> str | None:
    """Return the id of the one call in a task's argument: alone, in a list, or with a state."""
    found = argument[0] if type(argument) is list and len(argument) == 1 else argument
    if type(found) is not dict:
        return None
    found = next((found[key] for key in _CALL_KEYS if type(found.get(key)) is dict), found)
    call = found.get("id")
    return call if type(call) is str else None


# The checkpoint that is added


def change_channels(
    values: Mapping[str, V],
    versions: Mapping[str, Version],
    changed: Mapping[str, V],
    emptied: Collection[str],
    version: Version,
) -> tuple[dict[str, V], dict[str, Version]]:
    """Return the values and versions of a head after some channels change and others end.

    ``version`` is the new version of all of these; an ended channel makes nothing due any more.
    """
    kept = {name: value for name, value in values.items() if name not in emptied}
    new = dict.fromkeys(sorted({*changed, *emptied}), version)
    return {**kept, **changed}, {**versions, **new}


def count_steps(
    counters: Mapping[str, Any], steps: int, whole: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Count up for channels that store only changes, but not for those now stored ``whole``."""
    return {
        name: (count[0], count[1] + steps)
        for name, count in counters.items()
        if name not in whole
        and isinstance(count, list | tuple)
        and [type(part) for part in count] == [int, int]
    }


def repair_metadata(
    old: Mapping[str, Any], head: str, codes: Iterable[str], counters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the metadata of the checkpoint that a repair adds after a head.

    ``counters`` are those of the channels that store only changes.
    """
    step, parents = old.get("step"), old.get("parents")
    made: dict[str, Any] = {
        "source": "update",
        "step": step + 1 if isinstance(step, int) else 0,
        "parents": dict(parents) if isinstance(parents, Mapping) else {},
        OWN: {"repaired": head, "codes": sorted(set(codes))},
    }
    return {**made, COUNTERS: dict(counters)} if counters else made
