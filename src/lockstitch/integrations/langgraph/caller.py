"""What LangGraph does not tell a saver: which run is loading, and the ids that it will take.

Both are looked up in LangGraph's own objects, here and nowhere else. If a version of LangGraph
has them elsewhere, nothing breaks: a guard then does not reconcile at load, and says so once; and
a machine whose clock is behind gets a Conflict where it could have gone on.
"""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph.checkpoint.base import id as ids
from langgraph.pregel import Pregel
from langgraph.types import Command

from lockstitch.formats.langgraph.naming import ticks_of

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

_ENTERING = frozenset({"__enter__", "__aenter__"})
_UPDATING = frozenset({"perform_superstep", "aperform_superstep"})
_LOOKING = frozenset({"get_state", "aget_state"})
_RESUMING = "__pregel_resuming"
_LAST = "_last_v6_timestamp"
# In the ticks of such an id, of 100 nanoseconds, from 1582 on.
_DAY = 24 * 3_600 * 10**7
_EPOCH = 0x01B21DD213814000


class Caller(NamedTuple):
    """Who loads a checkpoint: the loop of a run, or somebody who is known not to bring any."""

    loop: Any | None = None
    recognised: bool = False
    # The graph that the loop belongs to, if it was found.
    graph: Any | None = None
    # Whoever only looks at the state is shown a config without a ticket.
    looks: bool = False


def loading_run(saver: Any) -> Caller:
    """Say who calls the method of a saver that calls this.

    Only a direct call counts: on its way in, a loop also reads the newest checkpoint to compare.
    """
    frame = sys._getframe(2)  # noqa: SLF001 - a saver is not told who loads
    name = frame.f_code.co_name
    if name not in _ENTERING:
        return Caller(recognised=name in _UPDATING, looks=name in _LOOKING)
    loop = frame.f_locals.get("self")
    known = getattr(loop, "checkpointer", None) is saver and hasattr(loop, "input")
    return Caller(loop, recognised=True, graph=_graph_of(frame)) if known else Caller()


def _graph_of(frame: FrameType) -> Any | None:
    """Give the graph whose method enters a loop: with it, all its channels can be settled."""
    above = frame.f_back
    found = above.f_locals.get("self") if above else None
    return found if isinstance(found, Pregel) else None


def brings_input(loop: Any, saved: CheckpointTuple | None = None) -> bool:
    """Tell whether a loop begins with something new to say, and does not go on with its tasks.

    This is LangGraph's own distinction, which throws away whatever the last run left open. With
    a checkpoint, a run that comes back under the id of the run that wrote it goes on, too.
    """
    if loop.input is None or isinstance(loop.input, Command) or loop.is_nested:
        return False
    if loop.config.get("configurable", {}).get(_RESUMING):
        return False
    run = (loop.config.get("metadata") or {}).get("run_id")
    return saved is None or run is None or run != saved.metadata.get("run_id")


def follow(checkpoint: str) -> None:
    """Make every id that this process takes from now on sort behind a checkpoint's.

    LangGraph takes the greatest id for the newest. A machine whose clock is behind that of the
    one before it would write a turn that nobody finds. An id of more than a day ahead is no
    clock's, and is not followed: it would spread to every thread.
    """
    ticks = ticks_of(checkpoint)
    last = getattr(ids, _LAST, 0) or 0
    if ticks is not None and hasattr(ids, _LAST) and last < ticks < _now() + _DAY:
        setattr(ids, _LAST, ticks)


def _now() -> int:
    return time.time_ns() // 100 + _EPOCH
