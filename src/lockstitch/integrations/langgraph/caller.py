"""What LangGraph does not tell a checkpointer: which run calls it, and the ids that it will take.

A checkpointer is asked for a checkpoint and handed others, but never told whose run that is, nor
what the run was given. The graph knows: every way to run one goes through ``Pregel.stream`` or
``Pregel.astream``, and every update by hand through ``bulk_update_state`` or its async twin.
``announce`` wraps these four, once in a process. Whatever a run calls, from whatever thread or
task it starts, finds its ``Run`` in the context, since LangGraph copies the context into all of
them: so it does not matter through which subclass or wrapper a checkpointer is called. There is
one exception: what tasks write that ran in threads is handed over by a thread that has no context.
Such a call is known by the ``Runtime`` in its config, an object that every run has of its own.

Whoever calls without a context (a wrapper that changes threads and leaves it behind, a subclass
of ``Pregel`` with a ``stream`` of its own) has no ``Run``; ``lineage`` says what is done then.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial, wraps
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakValueDictionary, ref

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import id as ids
from langgraph.pregel import Pregel
from langgraph.types import Command

from lockstitch.formats.langgraph.snapshot import ticks_of

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

_MARK = "__lockstitch_announces__"
_RESUMING = "__pregel_resuming"
_RUNTIME = "__pregel_runtime"
_LAST = "_last_v6_timestamp"
# In the ticks of such an id, of 100 nanoseconds, from 1582 on.
_DAY = 24 * 3_600 * 10**7
_EPOCH = 0x01B21DD213814000


class GraphRun:
    """One call of a graph, from its first step to its last; or one update of a state by hand.

    ``input`` is what the graph was given, None for an update.
    """

    __slots__ = (
        "__weakref__",
        "_conf",
        "_parent",
        "_run_id",
        "durability",
        "ends",
        "graph",
        "input",
        "name",
        "runtime",
    )

    def __init__(
        self, graph: Any = None, given: Any = None, config: Any = None, durability: Any = None
    ) -> None:
        self.name = f"{_here()}{uuid4().hex}"
        self.graph = graph
        self.input = given
        # What is to be done when the run has come to its end, however that is.
        self.ends: list[Callable[[], None]] = []
        # What LangGraph puts in all configs of the run, once it is known.
        self.runtime: Any = None
        above = _CURRENT.get()
        # Not held: a task that is started by the run before it would hold all of them, for ever.
        self._parent = None if above is None else ref(above)
        self._conf = _configured(graph, config)
        self._run_id = ((config or {}).get("metadata") or {}).get("run_id")
        self.durability = durability or self._conf.get("__pregel_durability")

    @property
    def parent(self) -> GraphRun | None:
        """The run whose node called the graph, as long as that goes on."""
        return None if self._parent is None else self._parent()

    @property
    def thread(self) -> str | None:
        """The thread that the graph was called on, as its caller named it."""
        found = self._conf.get("thread_id")
        return None if found is None else str(found)

    def is_loading(self, config: Mapping[str, Any]) -> bool:
        """Whether this config is that of the run's own load, and not of somebody who looks on.

        A subgraph's load is none that begins anything. A wrapper may have renamed the thread; then
        the config still has what LangGraph gave the run.
        """
        conf = config.get("configurable") or {}
        is_own = str(conf.get("thread_id")) == self.thread or _RUNTIME in conf
        return is_own and not conf.get("checkpoint_ns")

    def brings_input(self, config: Mapping[str, Any], saved: CheckpointTuple) -> bool:
        """Whether the run begins with something new to say, and does not go on with open tasks.

        This is LangGraph's own distinction, which throws away whatever the last run left open. A
        run that comes back under the id of the run that wrote the checkpoint goes on, too.
        """
        conf = config.get("configurable") or {}
        if self.input is None or isinstance(self.input, Command) or conf.get(_RESUMING):
            return False
        run = (config.get("metadata") or {}).get("run_id")
        run = run or self._run_id or self._conf.get("run_id")
        return run is None or run != saved.metadata.get("run_id")


_CURRENT: ContextVar[GraphRun | None] = ContextVar("lockstitch_langgraph_run", default=None)
_BY_RUNTIME: WeakValueDictionary[int, GraphRun] = WeakValueDictionary()
_INSTALLING = Lock()
_RUNNING: set[str] = set()
_PROCESS: list[Any] = [0, ""]


def calling_run(config: Mapping[str, Any]) -> GraphRun | None:
    """Return the run that calls with a config, None if nobody has announced one."""
    run = _CURRENT.get()
    runtime = (config.get("configurable") or {}).get(_RUNTIME)
    if runtime is None:
        return run
    if run is None:
        found = _BY_RUNTIME.get(id(runtime))
        return found if found is not None and found.runtime is runtime else None
    if run.runtime is None and run is not GUARD:
        run.runtime = runtime
        _BY_RUNTIME[id(runtime)] = run
    return run


def is_guarded() -> bool:
    """Whether a guard calls, which has decided all that there is to decide."""
    return _CURRENT.get() is GUARD


@contextmanager
def announcing(run: GraphRun | None) -> Iterator[None]:
    """Have everything that is called meanwhile called by a run, or by nobody."""
    token = _CURRENT.set(run)
    try:
        yield
    finally:
        # Thrown away in the middle of a step, a stream is closed in a context that never had it.
        with suppress(ValueError):
            _CURRENT.reset(token)


def _here() -> str:
    """Return what the names of all runs of this process begin with; a fork is another process."""
    if _PROCESS[0] != os.getpid():
        _PROCESS[:] = [os.getpid(), uuid4().hex[:12]]
    return str(_PROCESS[1])


def is_here(name: str) -> bool:
    """Whether a run is, or was, one of this process."""
    return name.startswith(_here())


def is_running(name: str) -> bool:
    """Whether a run of this process has not come to its end."""
    return name in _RUNNING


@contextmanager
def _under_way(run: GraphRun) -> Iterator[GraphRun]:
    """Have a run count as under way meanwhile."""
    _RUNNING.add(run.name)
    try:
        yield run
    finally:
        _RUNNING.discard(run.name)
        for end in run.ends:
            end()


def announce() -> None:
    """Have LangGraph's graphs announce their runs from now on; may be called again and again.

    Another package may wrap the same methods before or after.
    """
    with _INSTALLING:
        for name, wrapped in _WRAPPERS.items():
            real = getattr(Pregel, name)
            inner = inspect.unwrap(real, stop=lambda one: _MARK in vars(one))
            if not getattr(inner, _MARK, False):
                made = wrapped(real)
                setattr(made, _MARK, True)
                setattr(Pregel, name, made)


def _streaming(real: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Any]:
    @wraps(real)
    def stream(self: Any, *given: Any, **options: Any) -> Generator[Any, Any, Any]:
        inner = real(self, *given, **options)
        step: Callable[[], Any] = inner.__next__
        with _under_way(_called(self, *given, **options)) as run:
            while True:
                try:
                    # Not around the yield: whoever reads the stream is not the run.
                    with announcing(run):
                        chunk = step()
                except StopIteration as end:
                    return end.value
                try:
                    sent = yield chunk
                except GeneratorExit:
                    with announcing(run):
                        inner.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is handed on
                    step = partial(inner.throw, error)
                else:
                    step = inner.__next__ if sent is None else partial(inner.send, sent)

    return stream


def _astreaming(real: Callable[..., AsyncGenerator[Any, Any]]) -> Callable[..., Any]:
    @wraps(real)
    async def astream(self: Any, *given: Any, **options: Any) -> AsyncGenerator[Any, Any]:
        inner = real(self, *given, **options)
        step: Callable[[], Any] = inner.__anext__
        with _under_way(_called(self, *given, **options)) as run:
            while True:
                try:
                    with announcing(run):
                        chunk = await step()
                except StopAsyncIteration:
                    return
                try:
                    sent = yield chunk
                except GeneratorExit:
                    with announcing(run):
                        await inner.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is handed on
                    step = partial(inner.athrow, error)
                else:
                    step = inner.__anext__ if sent is None else partial(inner.asend, sent)

    return astream


def _updating(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def bulk_update_state(self: Any, config: Any, *rest: Any, **options: Any) -> Any:
        with _under_way(GraphRun(self, None, config)) as run, announcing(run):
            return real(self, config, *rest, **options)

    return bulk_update_state


def _aupdating(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    async def abulk_update_state(self: Any, config: Any, *rest: Any, **options: Any) -> Any:
        with _under_way(GraphRun(self, None, config)) as run, announcing(run):
            return await real(self, config, *rest, **options)

    return abulk_update_state


_WRAPPERS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "stream": _streaming,
    "astream": _astreaming,
    "bulk_update_state": _updating,
    "abulk_update_state": _aupdating,
}


def _called(graph: Any, input: Any, config: Any = None, **options: Any) -> GraphRun:  # noqa: A002
    """Return the run that a graph is called for, in the words of LangGraph."""
    is_late = options.get("checkpoint_during") is False
    return GraphRun(graph, input, config, "exit" if is_late else options.get("durability"))


def _configured(graph: Any, config: Any) -> Mapping[str, Any]:
    """Return what is configured for a run: where its thread is named, as LangGraph merges it."""
    given = (config, getattr(graph, "config", None), var_child_runnable_config.get())
    found = [{**(one or {}), **((one or {}).get("configurable") or {})} for one in given]
    return next((conf for conf in found if conf.get("thread_id") is not None), found[0])


# Who calls a checkpointer on behalf of a guard, which has decided all that there is to decide.
GUARD = GraphRun()


def follow(checkpoint: str) -> None:
    """Make every id that this process takes from now on sort behind a checkpoint's.

    LangGraph takes the greatest id for the newest. A machine whose clock is behind that of the
    one before it would write a turn that nobody finds. An id of more than a day ahead is no
    clock's, and is not followed: it would spread to every thread. A version of LangGraph that
    keeps its last id elsewhere is left alone: such a machine gets a Conflict then.
    """
    ticks = ticks_of(checkpoint)
    last = getattr(ids, _LAST, 0) or 0
    now = time.time_ns() // 100 + _EPOCH
    if ticks is not None and hasattr(ids, _LAST) and last < ticks < now + _DAY:
        setattr(ids, _LAST, ticks)
