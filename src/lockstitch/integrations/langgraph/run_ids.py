"""Find out which run calls a checkpointer, and what that run builds on.

LangGraph asks a checkpointer for a checkpoint and gives it new ones, but never says whose run that
is, or what input the run was given. The graph knows: every run goes through ``Pregel.stream`` or
``Pregel.astream``, and every manual update through ``bulk_update_state`` or its async twin.
``announce`` wraps these four methods, once in a process. Whatever a run calls, from any thread or
task that it starts, finds its ``GraphRun`` in the context, because LangGraph copies the context
into all of them. So it does not matter through which subclass or wrapper a checkpointer is called.
There is one exception: the writes of tasks that ran in threads are handed over by a thread without
that context. Such a call is recognized by the ``Runtime`` in its config, an object that each run
has of its own.

For every thread and namespace, a checkpointer remembers in a ``RunRegistry`` which checkpoints each
run was given as the newest, and which it has put. When a checkpoint is put on one of those, that
one must still be the newest. A checkpoint that is put anywhere else (time travel, a replay, a copy,
a fork) is a branch that somebody asked for.

A caller without a run (a wrapper that changes threads and loses the context, a subclass of
``Pregel`` with its own ``stream``) is recognized only by the place: it is taken for the last one
that has loaded or put that place and has not built on it yet. That is enough to detect a second
writer. It is not enough to know the input of a run, so nothing is healed then, and
``RunRegistry.note_input`` warns about that once.
"""

from __future__ import annotations

import inspect
import logging
import os
import time
import warnings
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import id as ids
from langgraph.pregel import Pregel
from langgraph.types import Command

from lockstitch.errors import Conflict
from lockstitch.formats.langgraph.snapshot import EPOCH, START, ticks_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple


_MARK = "__lockstitch_announces__"
_RESUMING = "__pregel_resuming"
_RUNTIME = "__pregel_runtime"
_LAST = "_last_v6_timestamp"
# In the ticks of such an id, which are 100 nanoseconds long.
_DAY = 24 * 3_600 * 10**7


class GraphRun:
    """One call of a graph, from its first step to its last; or one manual update of a state.

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
        "takes_input_up",
    )

    def __init__(
        self, graph: Any = None, argument: Any = None, config: Any = None, durability: Any = None
    ) -> None:
        self.name = f"{_process_prefix()}{uuid4().hex}"
        self.graph = graph
        self.input = argument
        # What to do when the run has ended, in whatever way.
        self.ends: list[Callable[[], None]] = []
        # What LangGraph puts into all configs of the run, once it is known.
        self.runtime: Any = None
        above = _CURRENT.get()
        # A weak reference: a task started by the run before would otherwise keep all earlier runs
        # alive.
        self._parent = None if above is None else ref(above)
        # The config that names the thread, merged the way LangGraph does it.
        configs = (config, getattr(graph, "config", None), var_child_runnable_config.get())
        found = [{**(one or {}), **((one or {}).get("configurable") or {})} for one in configs]
        named = (conf for conf in found if conf.get("thread_id") is not None)
        self._conf: Mapping[str, Any] = next(named, found[0])
        self._run_id = ((config or {}).get("metadata") or {}).get("run_id")
        self.durability = durability or self._conf.get("__pregel_durability")
        # Whether another checkpoint certainly follows the one with the input, before any node runs.
        self.takes_input_up = False

    @property
    def parent(self) -> GraphRun | None:
        """The run whose node called this graph, while that run is active."""
        return None if self._parent is None else self._parent()

    @property
    def thread(self) -> str | None:
        """The thread that the graph was called on, as its caller named it."""
        found = self._conf.get("thread_id")
        return None if found is None else str(found)

    def is_loading(self, config: Mapping[str, Any]) -> bool:
        """Whether the run itself loads with this config, and not somebody who only looks.

        A subgraph's load does not begin anything. A wrapper may have renamed the thread; the config
        then still has what LangGraph gave the run.
        """
        conf = config.get("configurable") or {}
        is_own = str(conf.get("thread_id")) == self.thread or _RUNTIME in conf
        return is_own and not conf.get("checkpoint_ns")

    def brings_input(self, config: Mapping[str, Any], saved: CheckpointTuple) -> bool:
        """Whether the run begins with new input and does not continue open tasks.

        LangGraph makes the same distinction: with new input it throws away what the last run left
        open. A run that has the id of the run which wrote the checkpoint continues as well.
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
    """Return the run that calls with a config; None if no run was announced."""
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
    """Whether the caller is a guard, which has made all decisions itself."""
    return _CURRENT.get() is GUARD


@contextmanager
def announcing(run: GraphRun | None) -> Iterator[None]:
    """Attribute all calls in the block to a run, or to none."""
    token = _CURRENT.set(run)
    try:
        yield
    finally:
        # A stream that is abandoned in the middle of a step is closed in a context that never had
        # the run.
        with suppress(ValueError):
            _CURRENT.reset(token)


def _process_prefix() -> str:
    """Return the prefix of the names of all runs in this process; a forked child has its own."""
    if _PROCESS[0] != os.getpid():
        _PROCESS[:] = [os.getpid(), uuid4().hex[:12]]
    return str(_PROCESS[1])


def is_here(name: str) -> bool:
    """Whether a run is or was one of this process."""
    return name.startswith(_process_prefix())


def is_running(name: str) -> bool:
    """Whether a run of this process has not ended yet."""
    return name in _RUNNING


@contextmanager
def _under_way(run: GraphRun) -> Iterator[GraphRun]:
    """Count a run as active during the block."""
    _RUNNING.add(run.name)
    try:
        yield run
    finally:
        _RUNNING.discard(run.name)
        for end in run.ends:
            end()


def announce() -> None:
    """Make LangGraph's graphs announce their runs from now on; may be called repeatedly.

    Other packages may wrap the same methods, before or after.
    """
    with _INSTALLING:
        for name, wrap in _WRAPPERS.items():
            real = getattr(Pregel, name)
            inner = inspect.unwrap(real, stop=lambda one: _MARK in vars(one))
            if not getattr(inner, _MARK, False):
                made = wrap(real)
                setattr(made, _MARK, True)
                setattr(Pregel, name, made)


def _wrap_stream(real: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Any]:
    @wraps(real)
    def stream(self: Any, *args: Any, **options: Any) -> Generator[Any, Any, Any]:
        inner = real(self, *args, **options)
        step: Callable[[], Any] = inner.__next__
        with _under_way(_begin_run(self, *args, **options)) as run:
            while True:
                try:
                    # Not around the yield, because the code that reads the stream is not part of
                    # the run.
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


def _wrap_astream(real: Callable[..., AsyncGenerator[Any, Any]]) -> Callable[..., Any]:
    @wraps(real)
    async def astream(self: Any, *args: Any, **options: Any) -> AsyncGenerator[Any, Any]:
        inner = real(self, *args, **options)
        step: Callable[[], Any] = inner.__anext__
        with _under_way(_begin_run(self, *args, **options)) as run:
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


def _wrap_update(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def bulk_update_state(self: Any, config: Any, *rest: Any, **options: Any) -> Any:
        with _under_way(GraphRun(self, None, config)) as run, announcing(run):
            return real(self, config, *rest, **options)

    return bulk_update_state


def _wrap_aupdate(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    async def abulk_update_state(self: Any, config: Any, *rest: Any, **options: Any) -> Any:
        with _under_way(GraphRun(self, None, config)) as run, announcing(run):
            return await real(self, config, *rest, **options)

    return abulk_update_state


_WRAPPERS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "stream": _wrap_stream,
    "astream": _wrap_astream,
    "bulk_update_state": _wrap_update,
    "abulk_update_state": _wrap_aupdate,
}


def _begin_run(graph: Any, input: Any, config: Any = None, **options: Any) -> GraphRun:  # noqa: A002
    """Return the run for a call of ``stream`` with these parameters."""
    is_late = options.get("checkpoint_during") is False
    run = GraphRun(graph, input, config, "exit" if is_late else options.get("durability"))
    # A graph with a state has a node for that, and stores it like any step, unless it is asked to
    # stop before that node.
    stops: Any = options.get("interrupt_before") or getattr(graph, "interrupt_before_nodes", ())
    may_stop = START in stops or options.get("control") is not None
    has_node = START in getattr(graph, "nodes", ())
    run.takes_input_up = has_node and not may_stop and run.durability != "exit"
    return run


# The run that calls a checkpointer on behalf of a guard, which has made all decisions itself.
GUARD = GraphRun()


def follow(checkpoint: str) -> None:
    """Make every id that this process creates from now on greater than a checkpoint's.

    LangGraph takes the greatest id for the newest. A machine whose clock is behind that of the
    machine before it would write a turn that nobody finds. An id that is more than a day ahead does
    not come from a clock and is ignored, since it would spread to every thread. If a version of
    LangGraph keeps its last id elsewhere, nothing is changed; such a machine then gets a
    ``Conflict``.
    """
    ticks = ticks_of(checkpoint)
    last = getattr(ids, _LAST, 0) or 0
    now = time.time_ns() // 100 + EPOCH
    if ticks is not None and hasattr(ids, _LAST) and last < ticks < now + _DAY:
        setattr(ids, _LAST, ticks)


LIMIT = 10_000
_RECENT = 4

_LOG = logging.getLogger("lockstitch.langgraph")
_PLACE = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map"})


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """A checkpoint in one namespace of a thread; without an id, the beginning of the thread."""

    thread: str
    namespace: str
    checkpoint: str | None
    # The rest of the application's config, which a saver may need in order to find the thread.
    more: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def at(self, checkpoint: str | None) -> ThreadPlace:
        """Return the place of another checkpoint of the same thread and namespace."""
        return replace(self, checkpoint=checkpoint)

    @property
    def within(self) -> str:
        """The namespace as it follows the name of the thread in an error text."""
        return f" ({self.namespace})" if self.namespace else ""

    @property
    def config(self) -> RunnableConfig:
        """The config that names this place or, without an id, asks for the newest checkpoint."""
        conf = {**self.more, "thread_id": self.thread, "checkpoint_ns": self.namespace}
        if self.checkpoint:
            conf["checkpoint_id"] = self.checkpoint
        return {"configurable": conf}


def place_of(config: RunnableConfig) -> ThreadPlace:
    """Return the place that a config names: the checkpoint to load, or the parent of one to put."""
    conf: Mapping[str, Any] = config["configurable"]
    thread, namespace = str(conf["thread_id"]), conf.get("checkpoint_ns") or ""
    more = {key: conf[key] for key in conf if key not in _PLACE and not key.startswith("__")}
    return ThreadPlace(thread, namespace, conf.get("checkpoint_id") or None, more)


class Overtaken(Conflict):
    """Another writer was faster than a run; ``kept`` says what became of the run's turn."""

    def __init__(
        self, what: str = "", kept: str = "nothing", checkpoint: str | None = None
    ) -> None:
        super().__init__(what, kept, checkpoint)
        self.what = what
        self.kept = kept
        self.checkpoint = checkpoint

    def __str__(self) -> str:
        """Return what happened, what became of the turn, and what to do next."""
        if self.kept == "part":
            return (
                f"{self.what}; the steps before that, up to checkpoint {self.checkpoint}, are in "
                "its history, and so is the message that the turn began with: send it again "
                "only with the same message id, or it will be there twice"
            )
        if self.kept == "beside":
            return (
                f"{self.what}; the turn is stored as checkpoint {self.checkpoint}, which can be"
                " read, but is not in its history: run the turn again"
            )
        return f"{self.what}; nothing was written: run the turn again"


@dataclass(slots=True, eq=False)
class RunProgress:
    """How far one run has come in one namespace of a thread."""

    name: str
    # Whether LangGraph has announced the run, so that its input is known.
    is_announced: bool = False
    # The checkpoints that it was given as the newest; None for a thread that had none.
    heads: set[str | None] = field(default_factory=set)
    # The checkpoints that it has put or claimed.
    owned: set[ThreadPlace] = field(default_factory=set)
    # The checkpoints on which it has put another one.
    built: set[ThreadPlace] = field(default_factory=set)
    # The last checkpoint of its turn that is in the history.
    stored: str | None = None

    def describe(self, error: Conflict) -> Conflict:
        """Return an error of this run, extended by what the thread has of its turn."""
        if self.stored is None or not isinstance(error, Overtaken):
            return error
        return Overtaken(error.what, "part", self.stored)

    def learn(self, run: GraphRun) -> None:
        """Record what an announced run says about itself."""

    def is_branch(self, place: ThreadPlace) -> bool:
        """Whether building on a place begins a branch that somebody asked for."""
        return place not in self.owned and place.checkpoint not in self.heads


P = TypeVar("P", bound=RunProgress)
T = TypeVar("T")


class RunRegistry(Generic[P]):
    """What the runs of this process were given and what they have put; threads may share it.

    It records every load, every look into the history and every checkpoint that was put, and
    ``find_writer`` says who puts one. A place that was forgotten, or never loaded here, belongs to
    no run.
    """

    def __init__(self, make: Callable[[str], P], limit: int = LIMIT) -> None:
        self._make = make
        self._limit = limit
        self._lock = Lock()
        self._runs: WeakKeyDictionary[GraphRun, dict[tuple[str, str], P]] = WeakKeyDictionary()
        self._begun: WeakSet[GraphRun] = WeakSet()
        self._writes: OrderedDict[ThreadPlace, P] = OrderedDict()
        # The runs that have loaded or put a checkpoint, in that order.
        self._recent: OrderedDict[ThreadPlace, list[P]] = OrderedDict()
        self._has_warned = False

    def begins(self, config: RunnableConfig) -> GraphRun | None:
        """Return the run for which this load is its beginning; None for all other loads."""
        run = calling_run(config)
        if run is None or not run.is_loading(config):
            return None
        with self._lock:
            if run in self._begun:
                return None
            self._begun.add(run)
            return run

    def note_load(self, config: RunnableConfig, place: ThreadPlace, *, is_head: bool) -> P:
        """Record that a checkpoint was loaded, or a thread that has none."""
        run = calling_run(config)
        progress = self.of(run, place) if run else self._make(uuid4().hex)
        if run is not None and (run.input is None or place.namespace or run.is_loading(config)):
            progress.is_announced = True
        if is_head:
            progress.heads.add(place.checkpoint)
        self._note(place, progress)
        return progress

    def note_look(self, config: RunnableConfig) -> None:
        """Record a look into the history, after which a replay may begin anywhere in it."""
        if run := calling_run(config):
            self.of(run, place_of(config))

    def note_put(
        self, progress: P, place: ThreadPlace, parent: ThreadPlace, *, counts: bool = True
    ) -> None:
        """Record that a run has put the checkpoint at a place, on another one.

        Without ``counts`` it is not known yet whether that is a part of the history.
        """
        progress.owned.add(place)
        progress.built.add(parent)
        if counts:
            with self._lock:
                remember(self._writes, place, progress, self._limit)
        self._note(place, progress)

    def find_writer(self, config: RunnableConfig, *, is_put: bool = False) -> P | None:
        """Return the run that puts or writes at a place; None if it never loaded anything here."""
        run, place = calling_run(config), place_of(config)
        with self._lock:
            known = self._runs.get(run) if run is not None else None
            found = known.get((place.thread, place.namespace)) if known else None
            recent = [] if found else self._recent.get(place, [])
        if found is not None or not recent:
            return found
        if not is_put:
            return recent[-1]
        # A run builds on a checkpoint once, so the next caller is another run.
        free = [one for one in recent if place not in one.built]
        if free:
            return free[-1]
        another = self._make(uuid4().hex)
        another.heads.add(place.checkpoint)
        return another

    def is_known(self, place: ThreadPlace) -> bool:
        """Whether this process has loaded or put a checkpoint."""
        with self._lock:
            return place in self._recent

    def writer(self, place: ThreadPlace) -> P | None:
        """Return the run of this process that has put a checkpoint, if there is one."""
        with self._lock:
            return self._writes.get(place)

    def note_input(
        self, progress: P | None, place: ThreadPlace, metadata: Mapping[str, Any]
    ) -> None:
        """Warn once if a run has new input but was never announced."""
        is_input = metadata.get("source") == "input" and not place.namespace
        if not is_input or progress is None or progress.is_announced or self._has_warned:
            return
        self._has_warned = True
        text = (
            "a run brings a new message, but its graph did not announce it, so nothing was "
            f"healed before it (thread {place.thread!r}): call graphs through LangGraph's own "
            "stream and invoke; if a wrapped checkpointer calls its methods in another thread, "
            "pass the context on (contextvars.copy_context().run); or call reconcile(graph, "
            "config) before every new message"
        )
        _LOG.warning("%s", text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)

    def of(self, run: GraphRun, place: ThreadPlace) -> P:
        """Return the progress of a run in the thread and namespace of a place."""
        with self._lock:
            known = self._runs.setdefault(run, {})
            key = (place.thread, place.namespace)
            if key not in known:
                known[key] = self._make(uuid4().hex if known else run.name)
                known[key].learn(run)
            return known[key]

    def _note(self, place: ThreadPlace, progress: P) -> None:
        with self._lock:
            recent = [one for one in self._recent.get(place, ()) if one is not progress]
            remember(self._recent, place, [*recent, progress][-_RECENT:], self._limit)


def remember(kept: OrderedDict[ThreadPlace, T], place: ThreadPlace, value: T, limit: int) -> None:
    """Store a value for a place, and forget the oldest values beyond a limit."""
    kept[place] = value
    kept.move_to_end(place)
    while len(kept) > limit:
        kept.popitem(last=False)
