"""A checkpointer on Lockstitch's stores: linear in size and time, verified, with one true head.

A run that brings a new message finds a valid conversation, whatever the last run left behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import WeakSet

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from lockstitch.errors import Closed, Conflict, LockstitchError, Unreadable, UsageError
from lockstitch.formats.langgraph.journal import session_of
from lockstitch.integrations.langgraph.pending_writes import may_be_broken, without_input
from lockstitch.integrations.langgraph.reconciler import Reconciler, run_reconciler
from lockstitch.integrations.langgraph.report import CounterBook, Counters
from lockstitch.integrations.langgraph.run_ids import (
    GraphRun,
    Overtaken,
    RunProgress,
    RunRegistry,
    ThreadPlace,
    announce,
    announcing,
    calling_run,
    is_guarded,
    place_of,
)
from lockstitch.integrations.langgraph.saver.codec import (
    ValueEncoder,
    encode_checkpoint,
    encode_writes,
    histories,
    is_about,
    metadata_of,
    tuple_of,
)
from lockstitch.integrations.langgraph.saver.serializer import (
    GraphSchemas,
    SafeSerializer,
    connect_graphs,
)
from lockstitch.integrations.langgraph.saver.threads import (
    LiveThread,
    LiveThreads,
    PreparedLine,
    Spot,
    last_checkpoints,
    list_thread_ids,
    newest_checkpoints,
    newest_threads,
    other_checkpoints,
    require_whole,
    sweep_threads,
)
from lockstitch.stores.memory import MemoryBackend
from lockstitch.stores.opening import open_given

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from lockstitch.stores.base import Backend, Lease


WAIT = 10.0
CACHE = 64 * 1024 * 1024
_CHUNK = 16
_LOG = logging.getLogger("lockstitch.langgraph")
_MOST_THREADS = 16
# How many calls from event loops may wait at once; further ones wait for those.
_WAITING = 64
P = ParamSpec("P")
T = TypeVar("T")
# LangGraph Server's name for "delete" is "delete_all".
_STRATEGIES = ("keep_latest", "delete", "delete_all")


def _in_thread(
    method: Callable[Concatenate[Saver, P], T],
) -> Callable[Concatenate[Saver, P], Coroutine[Any, Any, T]]:
    """Return the async twin of a method of ``Saver``, which runs that method in a thread."""

    @wraps(method)
    async def twin(self: Saver, /, *args: P.args, **options: P.kwargs) -> T:
        # Look it up by name, because a subclass may override it.
        return await self._executor.run(getattr(self, method.__name__), *args, **options)

    twin.__name__ = f"a{method.__name__}"
    twin.__qualname__ = f"Saver.{twin.__name__}"
    return twin


class Saver(BaseCheckpointSaver[Any]):
    """A LangGraph checkpointer that keeps every thread as a session in a Lockstitch store.

    >>> with Saver("sqlite:///agent.db") as saver:                # or postgresql://…
    ...     graph = builder.compile(checkpointer=saver)

    Every message is stored once, and a checkpoint stores only what it changes. When ``put`` or
    ``put_writes`` return, the data is durable. After a crash the next run with a new message begins
    on a repaired conversation, as ``reconcile`` makes it, unless ``reconcile`` is false; a question
    that waits for a person stays.

    ``put`` raises ``Conflict`` if somebody else has written to the thread since the run read it,
    unless the run began at a checkpoint named by its id, which makes a fork. With ``turn_wait`` a
    run has its thread to itself, across processes: another run waits up to that many seconds for it
    to end, and then raises ``Held``. Writes also raise ``Unsure`` if their outcome is unknown, and
    ``Closed`` after :meth:`close`.

    ``allow`` lists classes that may be built from stored values, besides those that LangGraph
    considers safe and those named by the schemas of graphs that use this saver; any other class
    raises ``Unreadable``. ``serde`` replaces the serializer for all values. ``ttl`` is after how
    many seconds without a change :meth:`sweep` deletes a thread, ``wait`` how many seconds to wait
    for a thread that is being deleted or pruned, and ``cache`` how many bytes of journals to keep
    in memory.
    """

    def __init__(  # noqa: PLR0913 - options by name
        self,
        url: str,
        *,
        allow: Iterable[tuple[str, ...] | type] = (),
        serde: SerializerProtocol | None = None,
        ttl: float | None = None,
        wait: float = WAIT,
        turn_wait: float = 0.0,
        cache: int = CACHE,
        reconcile: bool = True,
    ) -> None:
        if ttl is not None and not ttl > 0:
            raise UsageError("ttl must be a number of seconds greater than 0")
        self.schemas = GraphSchemas()
        super().__init__(serde=serde or SafeSerializer(allow, self.schemas))
        connect_graphs()
        self.ttl = ttl
        self.reconcile = reconcile
        self._backend = open_given(url)
        self._counting = CounterBook()
        self._turns = RunTurns(self._backend, turn_wait)
        self._threads = LiveThreads(self._backend, wait, cache, self._counting, self._turns.leases)
        announce()
        self._runs = RunRegistry(RunProgress)
        self._executor = CallExecutor()

    def __repr__(self) -> str:
        """Name the store by its address, without a password."""
        return f"<{type(self).__name__} {self._backend.url}>"

    def __enter__(self) -> Self:
        """Return the saver itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the saver."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the saver itself."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Close the saver."""
        await asyncio.to_thread(self.close)

    @property
    def store(self) -> Backend:
        """The store that keeps the threads, each as a session."""
        return self._backend

    @property
    def counters(self) -> Counters:
        """What this saver has healed, refused and retried so far."""
        return self._counting.counters()

    def close(self) -> None:
        """Close files and connections. May be called more than once."""
        self._turns.close()
        self._backend.close()
        self._executor.close()

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, or the last one of the thread, or None.

        At the beginning of a run with new input, the thread is repaired first. Raises ``Held`` if
        another run has its turn for longer than ``turn_wait``, and ``Unreadable`` if a value must
        not be built.
        """
        self._turns.take(config)
        return self._loaded(config)

    def _loaded(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint; if a run with new input begins on it, repair it first."""
        if is_guarded():
            return self._saved(config)[0]
        run = self._runs.begins(config) if self.reconcile else None
        saved, is_head = self._saved(config)
        if run and saved and run.brings_input(config, saved):
            after = self._reconcile(run.graph, saved, is_head=is_head)
            if after is not None:
                # Only a run that names its checkpoint makes a fork. Any other one begins at the
                # end of the thread, which somebody else may have continued since.
                is_named = place_of(config).checkpoint is not None
                saved, is_head = self._saved(after if is_named else config)
        place = place_of(config if saved is None else saved.config)
        self._runs.note_load(config, place, is_head=is_head)
        return saved

    def _reconcile(
        self, graph: Any, saved: CheckpointTuple, *, is_head: bool
    ) -> RunnableConfig | None:
        """Repair a checkpoint before a run with new input begins on it.

        Return the place of the repaired checkpoint, which an earlier run may have made; None if
        nothing is wrong.
        """
        thread, own = saved.config["configurable"]["thread_id"], place_of(saved.config)
        loaded = saved if is_head else without_input(saved)
        # The heads of the subgraphs that keep their own history.
        below = (
            head
            for name in (self.namespaces(thread) if is_head else ())
            if name and ":" not in name
            for head in self.list(ThreadPlace(thread, name, None).config, limit=1)
        )
        if not (may_be_broken(loaded) or any(map(may_be_broken, below))):
            return None
        # A checkpoint named by its id counts as a past one, whose subgraphs are left alone.
        place = ThreadPlace(thread, own.namespace, None if is_head else own.checkpoint)
        # When something new is said, LangGraph drops whatever waits for a person.
        task = Reconciler(
            graph,
            place.config,
            channel=None,
            force=True,
            saver=self,
            loaded=None if is_head else loaded,
        )
        with announcing(None):
            report = run_reconciler(task)
        if report.changed:
            self._counting.heal(report)
        is_same = report.after is None or place_of(report.after).checkpoint == own.checkpoint
        return None if is_same else report.after

    def _saved(self, config: RunnableConfig) -> tuple[CheckpointTuple | None, bool]:
        """Return a checkpoint or None, and whether that is the end of the thread."""
        place = place_of(config)
        live = self._threads.get(place.thread)
        with live.lock:
            thread = live.current()
            latest = thread.latest(place.namespace)
            node = thread.node(place.namespace, place.checkpoint or latest)
            is_head = place.checkpoint in {None, latest}
            if node is None:
                return None, is_head
            id_, objects = config["configurable"]["thread_id"], live.objects(self.serde)
            return tuple_of(id_, place.namespace, node, objects), is_head

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first."""

        def spots(thread: Any, namespace: str | None = None, own: str | None = None) -> list[Spot]:
            live = self._threads.get(str(thread))
            with live.lock:
                return [
                    (thread, space, node)
                    for space, nodes in live.current().spaces.items()
                    if namespace is None or space == namespace
                    for node in nodes
                    if not own or node == own
                ]

        def matching(thread: Any, namespace: str, checkpoint: str) -> CheckpointTuple | None:
            live = self._threads.get(str(thread))
            with live.lock:
                if live.thread.node(namespace, checkpoint) is None:
                    live.catch_up()
                node = live.thread.node(namespace, checkpoint)
                objects = live.objects(self.serde)
                if node is None or (filter and not is_about(metadata_of(node, objects), filter)):
                    return None
                return tuple_of(thread, namespace, node, objects)

        wanted: Iterable[Spot]
        if config is None:
            wanted = newest_checkpoints(newest_threads(self._backend), spots)
        else:
            self._runs.note_look(config)
            conf = config["configurable"]
            found = spots(conf["thread_id"], conf.get("checkpoint_ns"), conf.get("checkpoint_id"))
            wanted = sorted(found, key=lambda spot: spot[2], reverse=True)
        border = get_checkpoint_id(before) if before else None
        older = (spot for spot in wanted if not border or spot[2] < border)
        return islice((saved for spot in older if (saved := matching(*spot)) is not None), limit)

    def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread, including subgraphs, as of the last read."""
        live = self._threads.get(str(thread_id))
        with live.lock:
            return list(live.thread.spaces)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        """Return the values and writes that delta channels consist of at a checkpoint."""
        place = place_of(config)
        live = self._threads.get(place.thread)
        with live.lock:
            node = live.thread.node(place.namespace, place.checkpoint or "")
            if node is None:
                live.catch_up()
            checkpoint = place.checkpoint or live.thread.latest(place.namespace)
            return histories(place.namespace, checkpoint, channels, live.objects(self.serde))

    # Writing.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint after its parent, durably.

        Raises ``Conflict``, without storing anything, if another writer has continued the thread.
        """
        place = place_of(config)
        about = get_checkpoint_metadata(config, metadata)
        run = None if is_guarded() else self._runs.find_writer(config, is_put=True)
        self._runs.note_input(run if self.reconcile else None, place, metadata)

        def prepare(live: LiveThread) -> PreparedLine:
            latest = live.thread.latest(place.namespace)
            if run is not None and (place.checkpoint or "") != latest:
                is_new = live.thread.node(place.namespace, checkpoint["id"]) is None
                if is_new and not run.is_branch(place):
                    # It would hide another writer's turn.
                    raise _conflict_of(run, place, latest)
            encoder = self._encoder(live)
            line = encode_checkpoint(place, (checkpoint, about), new_versions, encoder, live.thread)
            return PreparedLine(line, encoder)

        self._threads.get(place.thread).write(prepare)
        if run is not None:
            self._runs.note_put(run, place.at(checkpoint["id"]), place)
            run.stored = checkpoint["id"]
        thread = config["configurable"]["thread_id"]
        return ThreadPlace(thread, place.namespace, checkpoint["id"]).config

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, durably."""
        place = place_of(config)

        def prepare(live: LiveThread) -> PreparedLine | None:
            is_there = live.thread.node(place.namespace, place.checkpoint or "") is not None
            if not is_there and self._runs.is_known(place):
                # Writes to a checkpoint that was deleted must not outlive it.
                raise Conflict(
                    f"thread {place.thread}{place.within}: checkpoint"
                    f" {place.checkpoint} was removed since this run read it; nothing was written"
                )
            encoder = self._encoder(live)
            line = encode_writes(place, writes, (task_id, task_path), encoder, live.thread)
            return None if line is None else PreparedLine(line, encoder)

        # A store in memory has no commits that two writes could share.
        is_patient = not isinstance(self._backend, MemoryBackend)
        self._threads.get(place.thread).write(prepare, is_patient=is_patient)

    def _encoder(self, live: LiveThread) -> ValueEncoder:
        return ValueEncoder(live.objects(self.serde), plain=isinstance(self.serde, SafeSerializer))

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version after another one.

        Versions that are texts, as other savers write, continue.
        """
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}.{random.random():016}"  # noqa: S311
        return 1 if current is None else current + 1

    # Removing and copying.

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its checkpoints and writes."""
        self._threads.get(str(thread_id)).delete()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, in all threads; this reads the whole store.

        Raises ``Conflict``, without deleting anything, if a later checkpoint needs what such a run
        wrote (``DeltaChannel``).
        """
        wanted = set(map(str, run_ids))
        found = []
        for name in list_thread_ids(self._backend) if wanted else ():
            live = self._threads.get(name)
            with live.lock:
                thread = live.current()
                objects = live.objects(self.serde)
                gone = {
                    (space, node.id)
                    for space, nodes in thread.spaces.items()
                    for node in nodes.values()
                    if metadata_of(node, objects).get("run_id") in wanted
                }
                require_whole(thread, gone)
            if gone:
                found.append((live, gone))
        for live, gone in found:
            live.keep_only(partial(other_checkpoints, gone=gone))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread into a new one; raise ``Conflict`` if that exists."""
        target = self._threads.get(str(target_thread_id))
        self._threads.get(str(source_thread_id)).copy_to(target)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the last checkpoint of each namespace (``keep_latest``), or everything.

        What a ``DeltaChannel`` of a last checkpoint consists of is kept, too.
        """
        if strategy not in _STRATEGIES:
            raise UsageError("strategy must be 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy != _STRATEGIES[0]:
                self.delete_thread(thread_id)
            else:
                self._threads.get(str(thread_id)).keep_only(last_checkpoints)

    def sweep(self) -> int:
        """Delete the threads that have not changed for ``ttl`` seconds; return how many."""
        if self.ttl is None:
            raise UsageError("say how long threads are kept: Saver(url, ttl=seconds)")
        border = int((time.time() - self.ttl) * 1000)
        return sweep_threads(self._backend, border)

    # The same for asyncio; each of these runs in a thread.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, as :meth:`get_tuple` does, in an event loop."""
        await self._turns.atake(config)
        return await self._executor.run(self._loaded, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, newest first, in an event loop."""
        found = await self._executor.run(
            self.list, config, filter=filter, before=before, limit=limit
        )
        while chunk := await self._executor.run(lambda: [*islice(found, _CHUNK)]):
            for saved in chunk:
                yield saved

    aput = _in_thread(put)
    aput_writes = _in_thread(put_writes)
    aget_delta_channel_history = _in_thread(get_delta_channel_history)
    adelete_thread = _in_thread(delete_thread)
    adelete_for_runs = _in_thread(delete_for_runs)
    acopy_thread = _in_thread(copy_thread)
    aprune = _in_thread(prune)
    asweep = _in_thread(sweep)


def _conflict_of(run: RunProgress, place: ThreadPlace, latest: str) -> Conflict:
    """Return the error for a run whose thread went on, or was deleted, since it was read."""
    what = "was continued" if latest else "was removed"
    error = Overtaken(
        f"thread {place.thread}{place.within}: it {what} since this run read it"
        f" (this one builds on {place.checkpoint or 'nothing'}, the thread ends with"
        f" {latest or 'nothing'}): another writer was quicker"
    )
    return run.describe(error) if latest else error


# Runs that take turns, and threads for calls from event loops.


class CallExecutor:
    """Threads for the calls of one saver, started as needed, that do nothing else.

    An event loop's own threads also run an application's functions. If all of these waited for
    something that needs a checkpoint first, nothing could ever go on.
    """

    def __init__(self, threads: int = _MOST_THREADS) -> None:
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(threads, "lockstitch-saver")

    def start(self, call: Callable[[], None]) -> None:
        """Start a call in a thread, without waiting for it."""
        self._begun(call)

    async def run(self, call: Callable[P, T], *words: P.args, **options: P.kwargs) -> T:
        """Make a call in a thread, in the context of the caller."""
        made = partial(copy_context().run, call, *words, **options)
        return await asyncio.wrap_future(self._begun(made))

    def _begun(self, made: Callable[[], T]) -> Future[T]:
        # A forked child has the pool but none of its threads.
        if self._process != os.getpid():
            raise Closed("the saver was opened by another process, before a fork")
        try:
            return self._executor.submit(made)
        except RuntimeError as error:
            raise Closed("the saver was closed") from error

    def close(self, *, wait: bool = True) -> None:
        """Accept no more calls; with ``wait``, wait for those that are running."""
        if self._process == os.getpid():
            self._executor.shutdown(wait, cancel_futures=not wait)


class RunTurns:
    """The leases of runs that have a turn; with a ``wait`` of 0 no run takes one.

    A run holds the lease of its session from its beginning to its end, which its graph announces.
    The store keeps the lease alive meanwhile, and takes it from a process that is gone.
    """

    def __init__(self, backend: Backend, wait: float) -> None:
        self.leases: dict[str, Lease] = {}
        self._backend = backend
        self._wait = wait
        self._lock = Lock()
        self._seen: WeakSet[GraphRun] = WeakSet()
        self._holders: dict[str, GraphRun] = {}
        # Not the saver's own threads, because the run that has the turn needs one of those to
        # continue.
        self._executor = CallExecutor(_WAITING)
        # Not the threads that wait for a turn either, because they may be waiting for this release.
        self._returning = CallExecutor(1)

    def take(self, config: RunnableConfig) -> None:
        """Wait for the turn of a run that begins with this load.

        Raise ``Held`` when the time is up.
        """
        run = calling_run(config) if self._wait else None
        if run is None or not run.is_loading(config):
            return
        session = session_of(place_of(config).thread)
        with self._lock:
            # If an outer run has the turn, this one would wait for itself.
            holder, above = self._holders.get(session), run.parent
            while above is not None and above is not holder:
                above = above.parent
            is_due = run not in self._seen and above is None
            self._seen.add(run)
        if not is_due:
            return
        try:
            lease = self._backend.acquire(session, wait=self._wait, create=False)
        except Unreadable:
            # The thread does not exist yet, or reading it will report what is wrong.
            return
        with self._lock:
            self.leases[session] = lease
            self._holders[session] = run
        run.ends.append(partial(self._give_back, session, lease))

    async def atake(self, config: RunnableConfig) -> None:
        """Wait for the turn, in an event loop."""
        if self._wait:
            await self._executor.run(self.take, config)

    def close(self) -> None:
        """Stop waiting for turns, and release those that are still to be released."""
        self._returning.close()
        self._executor.close(wait=False)

    def _give_back(self, session: str, lease: Lease) -> None:
        with self._lock:
            if self.leases.get(session) is lease:
                del self.leases[session]
                del self._holders[session]
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._release(lease)
        else:
            self._returning.start(partial(self._release, lease))

    def _release(self, lease: Lease) -> None:
        try:
            self._backend.release(lease)
        except LockstitchError as error:
            # The turn itself is done, and the lease will expire.
            _LOG.warning("the turn on %s was not released: %s", lease.session, error)
