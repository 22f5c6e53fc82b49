"""Which run a write of LangGraph belongs to, and whether it forked on purpose.

A saver sees loads and writes, but no runs. LangGraph merges the config that a load returns into
the config of everything the run writes later, so a load hands out a *ticket* in that config, and
every write brings it back: ``head`` if the run was given the newest checkpoint, so that it must
still be the newest when the run writes, or ``named`` if the caller asked for that very checkpoint
(time travel, a fork), where a second branch is what was asked for. A thread without checkpoints
has no config to return; for that, and for whoever drops the ticket, ``Lineage`` remembers the
last load and the last writer of every checkpoint, up to a number of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

# With LangGraph's own prefix it takes this key out of what it streams, and a saver, since it
# begins with two underscores, does not copy it into the metadata.
TICKET = "__pregel_lockstitch_run"
LIMIT = 20_000

_PLACE = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map"})


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint, or with no id the beginning of a thread, in one namespace."""

    thread: str
    namespace: str
    checkpoint: str | None
    # What else a saver may need to find the thread: whatever the application put in the config.
    more: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def at(self, checkpoint: str | None) -> Place:
        """Give the place of another checkpoint of the same thread and namespace."""
        return replace(self, checkpoint=checkpoint)

    @property
    def config(self) -> RunnableConfig:
        """The config that names this place, or, without an id, asks for the newest checkpoint."""
        conf = {**self.more, "thread_id": self.thread, "checkpoint_ns": self.namespace}
        if self.checkpoint:
            conf["checkpoint_id"] = self.checkpoint
        return {"configurable": conf}


@dataclass(frozen=True, slots=True)
class Ticket:
    """A run, from its load on: a name of its own, and whether its start was asked for by id."""

    run: str
    named: bool = False

    @property
    def text(self) -> str:
        return f"{'named' if self.named else 'head'}:{self.run}"


# A put of a guard, which has decided already whether it may build where it does.
DECIDED = Ticket("decided by a guard", named=True)


def place_of(config: RunnableConfig) -> Place:
    """Give the place that a config names: what is loaded, or the parent of what is put."""
    conf: Mapping[str, Any] = config["configurable"]
    thread, namespace = str(conf["thread_id"]), conf.get("checkpoint_ns") or ""
    more = {key: conf[key] for key in conf if key not in _PLACE and not key.startswith("__")}
    return Place(thread, namespace, conf.get("checkpoint_id") or None, more)


def ticket_of(config: RunnableConfig) -> Ticket | None:
    """Give the ticket that a config brings, None if it brings none."""
    text = config.get("configurable", {}).get(TICKET)
    if not isinstance(text, str):
        return None
    kind, _, run = text.partition(":")
    return Ticket(run, kind == "named") if run and kind in {"head", "named"} else None


def ticketed(config: RunnableConfig, ticket: Ticket | None) -> RunnableConfig:
    """Give the config with this ticket, or without any."""
    conf = {key: value for key, value in config.get("configurable", {}).items() if key != TICKET}
    if ticket:
        conf[TICKET] = ticket.text
    return cast("RunnableConfig", {**config, "configurable": conf})


class Lineage:
    """The loads and writes of the runs in this process; safe between threads, bounded.

    ``loaded`` is told every load that may begin a run, ``wrote`` every checkpoint that a run has
    put. ``ticket`` says for the config of a put or of writes which run it is, and ``deliberate``
    whether its branch was asked for. What was forgotten, or was never loaded here, has no ticket.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._lock = Lock()
        # Apart: that somebody reads a checkpoint does not make him its writer.
        self._loads: OrderedDict[Place, Ticket] = OrderedDict()
        self._writes: OrderedDict[Place, Ticket] = OrderedDict()

    def loaded(self, place: Place, *, named: bool = False) -> Ticket:
        """Begin a run at a place, given out as the head or asked for by its id."""
        ticket = Ticket(uuid4().hex, named)
        self._remember(self._loads, place, ticket)
        return ticket

    def handed_out(self, saved: CheckpointTuple, *, named: bool = False) -> CheckpointTuple:
        """Begin a run at a checkpoint that is loaded; the tuple for the run, with its ticket."""
        ticket = self.loaded(place_of(saved.config), named=named)
        return saved._replace(config=ticketed(saved.config, ticket))

    def wrote(self, place: Place, ticket: Ticket) -> None:
        """Remember that a run has put the checkpoint at a place."""
        self._remember(self._writes, place, ticket)

    def ticket(self, config: RunnableConfig) -> Ticket | None:
        """Say which run a put or a write is of: by its ticket, else by the place it builds on."""
        return ticket_of(config) or self.last(place_of(config))

    def last(self, place: Place) -> Ticket | None:
        """Give the run that wrote a checkpoint, else the one that loaded it last."""
        with self._lock:
            return self._writes.get(place) or self._loads.get(place)

    def writer(self, place: Place) -> Ticket | None:
        """Give the run that wrote a checkpoint, if it was one of this process."""
        with self._lock:
            return self._writes.get(place)

    def deliberate(self, config: RunnableConfig) -> bool:
        """Tell whether what is put under this config forks on purpose, so is no conflict."""
        ticket = self.ticket(config)
        return ticket is not None and ticket.named

    def _remember(self, kept: OrderedDict[Place, Ticket], place: Place, ticket: Ticket) -> None:
        with self._lock:
            kept[place] = ticket
            kept.move_to_end(place)
            while len(kept) > self._limit:
                kept.popitem(last=False)
