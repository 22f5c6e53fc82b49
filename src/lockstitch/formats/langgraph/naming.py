"""The names in a checkpoint: which channels mean work to do, which writes mean a person is asked.

What LangGraph writes under names of its own, and the order of its ids and versions, is written
down once, here: for the databases that are read from outside and for the graphs that run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import UUID

MESSAGES = "messages"
START = "__start__"
TASKS = "__pregel_tasks"
ERROR = "__error__"
# What the path of a task begins with that was sent to a node.
PUSH = "__pregel_push"
SCHEDULED = "__scheduled__"
INTERRUPT = "__interrupt__"
RESUME = "__resume__"
# What a workflow of the functional API keeps for its next run, and what its finished tasks return.
PREVIOUS = "__previous__"
RETURN = "__return__"
END = "__end__"
# What stands behind ``type``, or alone, in a value that replaces what a channel holds.
OVERWRITE = "__overwrite__"
# A channel that waits for several nodes: ``join:one+other:next``.
JOIN = "join:"
# What is counted in the metadata for channels that store only changes.
COUNTERS = "counters_since_delta_snapshot"
# What a guard of ours writes beside a checkpoint.
CLAIM = "__lockstitch_claim__"
# What else stands among the writes without being what a node returned to the state.
_MARKS = ("__no_writes__", RETURN, PREVIOUS, "__error_source_node__")
# Writes that belong to no task: the input of a run, what a ``Command`` says.
NO_TASK = "00000000-0000-0000-0000-000000000000"

# What stands between a thread and a subgraph of it, in the name of a session.
MARK = "#"
# A channel that makes one node run next: ``branch:to:next``.
BRANCH = "branch:"
_TRIGGERS = (BRANCH, "start:")
# What ends a tool from outside: whether it did its work is then not known.
_BROKEN_OFF = frozenset(
    {"CancelledError", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "AbortError"}
)
_NAME = re.compile(r"\w*")
_BY_TIME = 6
_LOW = 0xFFF
_VERSION_WIDTH = 32

Version = str | int | float


def named(thread: str, namespace: str) -> str:
    """Name a thread; a subgraph of it stands behind a mark."""
    if not namespace:
        return thread
    return f"{thread.replace('%', '%25').replace(MARK, '%23')}{MARK}{namespace}"


def is_trigger(channel: str) -> bool:
    """Tell whether a value in this channel makes a node run next, in a graph of states."""
    return channel in {START, TASKS} or channel.startswith(_TRIGGERS)


def is_control(channel: str) -> bool:
    """Tell the writes that steer a run from those that hold what a node returned."""
    own = (ERROR, SCHEDULED, INTERRUPT, RESUME, CLAIM, *_MARKS)
    return channel in own or is_trigger(channel)


def is_workflow(channels: Iterable[str], written: Iterable[str]) -> bool:
    """Whether a checkpoint is that of a workflow of the functional API (``@entrypoint``).

    ``channels`` are those that have a version in it, ``written`` those of the writes beside it.
    The first input of a workflow, while none of its tasks has finished, looks like that of any
    graph: see ``is_first_input``.
    """
    return PREVIOUS in set(channels) or RETURN in set(written)


def is_first_input(channels: Iterable[str], written: Iterable[str]) -> bool:
    """Whether a checkpoint holds an input and nothing else, so that nobody can tell whose it is.

    A graph of states takes an input up at once. A workflow keeps it until it has ended, and can
    be resumed only as long as it is there.
    """
    return set(channels) == {START} and all(map(is_control, set(written) - {RETURN}))


def error_told(text: str) -> str | None:
    """Return a recorded error as it is told to a model; None if it was no error of a tool.

    LangGraph records the ``repr`` of whatever a task ended with, LangGraph.js its name and text,
    also of what only says that the run was broken off from outside.
    """
    found = _NAME.match(text)
    return None if found is not None and found.group() in _BROKEN_OFF else text


def waiting(writes: Iterable[tuple[str, str]]) -> set[str]:
    """Give the tasks that ask a person and have returned nothing, of pairs of task and channel.

    A task that was answered once may ask again, so an answer that stands there is no proof that
    nobody is asked any more.
    """
    asking: set[str] = set()
    returned: set[str] = set()
    for task, channel in writes:
        if channel == INTERRUPT:
            asking.add(task)
        elif not is_control(channel) and task != NO_TASK:
            returned.add(task)
    return asking - returned


def successor(checkpoint: str) -> str | None:
    """Give the id that sorts right behind a checkpoint's; None for an id that is no time.

    A repair takes this one and not that of the moment: a run that is still alive has a later id
    for whatever it writes next, so that its turn is never hidden behind a repair.
    """
    time = ticks_of(checkpoint)
    if time is None or str(UUID(checkpoint)) != checkpoint:
        return None
    ticks = time + 1
    rest = UUID(checkpoint).int & ((1 << 64) - 1)
    return str(UUID(int=(ticks >> 12) << 80 | _BY_TIME << 76 | (ticks & _LOW) << 64 | rest))


def ticks_of(checkpoint: str) -> int | None:
    """Give the time in a checkpoint's id, in steps of 100 nanoseconds; None if it is no time."""
    try:
        found = UUID(checkpoint).int
    except ValueError:
        return None
    # By its digit: the ids of LangGraph.js need not have the variant that makes it a version.
    return found >> 80 << 12 | found >> 64 & _LOW if found >> 76 & 0xF == _BY_TIME else None


def next_version(versions: Iterable[Version]) -> Version:
    """Give the version behind all versions of a checkpoint, in the way in which they are written.

    The savers of LangGraph write numbers, or texts of a number with leading zeros and a fraction.
    """
    known = list(versions)
    texts = [version for version in known if isinstance(version, str)]
    if texts:
        last = max(texts)
        whole, dot, fraction = last.partition(".")
        width = max(len(whole), _VERSION_WIDTH if dot else 0)
        return f"{int(whole) + 1:0{width}}{dot}{fraction}"
    numbers = [version for version in known if not isinstance(version, str)]
    return max(numbers, default=0) + 1
