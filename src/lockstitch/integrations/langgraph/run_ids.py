"""What a run builds on: the head that it was given, what it has put, or a branch it asked for.

A checkpointer sees loads and writes. Of each run (``caller.Run``) it remembers here, for every
thread and namespace, which checkpoints the run was given as the newest, and which it has put.
What is put on one of those must still find it the newest; what is put anywhere else (time travel,
a replay, a copy, a fork) is a branch that somebody asked for.

Whoever calls without a run is known again only by the place: the last one who has loaded or put
it, and has not built on it yet. That is enough to be told of a second writer; it is not enough to
know what a run brings, so that nothing is healed then, and ``Lineage.note_input`` says so, once.
"""

from __future__ import annotations

import logging
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet

from lockstitch.errors import Conflict
from lockstitch.integrations.langgraph.caller import GraphRun, calling_run

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

LIMIT = 10_000
_RECENT = 4

_LOG = logging.getLogger("lockstitch.langgraph")
_PLACE = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map"})


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """A checkpoint, or with no id the beginning of a thread, in one namespace."""

    thread: str
    namespace: str
    checkpoint: str | None
    # What else a saver may need to find the thread: whatever the application put in the config.
    more: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def at(self, checkpoint: str | None) -> ThreadPlace:
        """Return the place of another checkpoint of the same thread and namespace."""
        return replace(self, checkpoint=checkpoint)

    @property
    def config(self) -> RunnableConfig:
        """The config that names this place, or, without an id, asks for the newest checkpoint."""
        conf = {**self.more, "thread_id": self.thread, "checkpoint_ns": self.namespace}
        if self.checkpoint:
            conf["checkpoint_id"] = self.checkpoint
        return {"configurable": conf}


def place_of(config: RunnableConfig) -> ThreadPlace:
    """Return the place that a config names: what is loaded, or the parent of what is put."""
    conf: Mapping[str, Any] = config["configurable"]
    thread, namespace = str(conf["thread_id"]), conf.get("checkpoint_ns") or ""
    more = {key: conf[key] for key in conf if key not in _PLACE and not key.startswith("__")}
    return ThreadPlace(thread, namespace, conf.get("checkpoint_id") or None, more)


class Overtaken(Conflict):
    """Another writer was quicker than a run; ``kept`` says what became of the turn of that."""

    def __init__(
        self, what: str = "", kept: str = "nothing", checkpoint: str | None = None
    ) -> None:
        super().__init__(what, kept, checkpoint)
        self.what = what
        self.kept = kept
        self.checkpoint = checkpoint

    def __str__(self) -> str:
        """Return what happened, what became of the turn, and what to do."""
        if self.kept == "part":
            return (
                f"{self.what}; the steps before that, up to checkpoint {self.checkpoint}, are in"
                " its history, and the message that the turn began with: send it again only with"
                " the same message id, or it is there twice"
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
    # Whether LangGraph has announced the run, so that it is known what it was given.
    is_announced: bool = False
    # The checkpoints that it was given as the newest; None for a thread that had none.
    heads: set[str | None] = field(default_factory=set)
    # The checkpoints that it has put or claimed.
    owned: set[ThreadPlace] = field(default_factory=set)
    # The checkpoints that it has put another one on.
    built: set[ThreadPlace] = field(default_factory=set)
    # The last checkpoint of its turn that is in the history.
    stored: str | None = None

    def describe(self, error: Conflict) -> Conflict:
        """Return a conflict of this run that says what the thread has of its turn."""
        if self.stored is None or not isinstance(error, Overtaken):
            return error
        return Overtaken(error.what, "part", self.stored)

    def learn(self, run: GraphRun) -> None:
        """Take note of what the run that was announced says of itself."""

    def is_branch(self, place: ThreadPlace) -> bool:
        """Whether building on a place begins a branch, which somebody has asked for."""
        return place not in self.owned and place.checkpoint not in self.heads


P = TypeVar("P", bound=RunProgress)
T = TypeVar("T")


class RunRegistry(Generic[P]):
    """What the runs of this process were given, and what they have put; safe between threads.

    ``loaded`` is told every load, ``looked`` every look into the history, ``wrote`` every
    checkpoint that was put. ``writing`` says who puts. What was forgotten, or never loaded here,
    is nobody's.
    """

    def __init__(self, make: Callable[[str], P], limit: int = LIMIT) -> None:
        self._make = make
        self._limit = limit
        self._lock = Lock()
        self._runs: WeakKeyDictionary[GraphRun, dict[tuple[str, str], P]] = WeakKeyDictionary()
        self._begun: WeakSet[GraphRun] = WeakSet()
        self._writes: OrderedDict[ThreadPlace, P] = OrderedDict()
        # Who has loaded or put a checkpoint, the last of them last.
        self._recent: OrderedDict[ThreadPlace, list[P]] = OrderedDict()
        self._has_warned = False

    def begins(self, config: RunnableConfig) -> GraphRun | None:
        """Return the run that loads what it begins with; None for whoever looks on, or goes on."""
        run = calling_run(config)
        if run is None or not run.is_loading(config):
            return None
        with self._lock:
            if run in self._begun:
                return None
            self._begun.add(run)
            return run

    def loaded(self, config: RunnableConfig, place: ThreadPlace, *, is_head: bool) -> P:
        """Take note of a load: of a checkpoint, or of a thread that has none."""
        run = calling_run(config)
        progress = self.of(run, place) if run else self._make(uuid4().hex)
        if run is not None and (run.input is None or place.namespace or run.is_loading(config)):
            progress.is_announced = True
        if is_head:
            progress.heads.add(place.checkpoint)
        self._note(place, progress)
        return progress

    def looked(self, config: RunnableConfig) -> None:
        """Take note of a look into the history, from which a replay may take what it begins at."""
        if run := calling_run(config):
            self.of(run, place_of(config))

    def wrote(self, progress: P, place: ThreadPlace, parent: ThreadPlace) -> None:
        """Remember that somebody has put the checkpoint at a place, on another one."""
        progress.owned.add(place)
        progress.built.add(parent)
        with self._lock:
            remember(self._writes, place, progress, self._limit)
        self._note(place, progress)

    def writing(self, config: RunnableConfig, *, is_put: bool = False) -> P | None:
        """Return who puts or writes somewhere; None if whoever does never loaded anything here."""
        run, place = calling_run(config), place_of(config)
        with self._lock:
            known = self._runs.get(run) if run is not None else None
            found = known.get((place.thread, place.namespace)) if known else None
            recent = [] if found else self._recent.get(place, [])
        if found is not None or not recent:
            return found
        if not is_put:
            return recent[-1]
        # A run builds once on a checkpoint: whoever comes after it is another one.
        free = [one for one in recent if place not in one.built]
        if free:
            return free[-1]
        another = self._make(uuid4().hex)
        another.heads.add(place.checkpoint)
        return another

    def is_known(self, place: ThreadPlace) -> bool:
        """Whether somebody of this process has loaded or put a checkpoint."""
        with self._lock:
            return place in self._recent

    def writer(self, place: ThreadPlace) -> P | None:
        """Return who has put a checkpoint, if it was somebody of this process."""
        with self._lock:
            return self._writes.get(place)

    def note_input(
        self, progress: P | None, place: ThreadPlace, metadata: Mapping[str, Any]
    ) -> None:
        """Warn once, and loudly, that a run brings something new which nobody has announced."""
        is_input = metadata.get("source") == "input" and not place.namespace
        if not is_input or progress is None or progress.is_announced or self._has_warned:
            return
        self._has_warned = True
        text = (
            "a run brings a new message, but its graph did not say so, and nothing was healed"
            f" before it (thread {place.thread!r}): call graphs through LangGraph's own stream and"
            " invoke; where a checkpointer is wrapped and its methods are called in another"
            " thread, take the context along (contextvars.copy_context().run); or call"
            " reconcile(graph, config) before every new message"
        )
        _LOG.warning("%s", text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)

    def of(self, run: GraphRun, place: ThreadPlace) -> P:
        """Return how far a run has come in the thread and namespace of a place."""
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
    """Keep a value for a place, and no more of them than a number, the latest."""
    kept[place] = value
    kept.move_to_end(place)
    while len(kept) > limit:
        kept.popitem(last=False)
