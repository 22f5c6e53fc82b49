"""A session that is open for writing: it holds the lease, and has recovered from the last crash.

``decisions`` decides which events to add, and ``writing`` adds them. Methods may wait for the
store, so a session on an event loop (``async_session``) runs them in threads.
"""

from __future__ import annotations

import inspect
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Self, Unpack

from msgspec import structs

from lockstitch.compaction.ladder import Compaction
from lockstitch.compaction.running import (
    Actions,
    Apart,
    CompactOptions,
    CompactSettings,
    Summarize,
    compact_settings,
    perform,
)
from lockstitch.conversation.steps import drive
from lockstitch.dialects import ANTHROPIC
from lockstitch.errors import Busy, Held, LockstitchError, Moved, Unmet, UsageError
from lockstitch.journal.events import (
    About,
    Compacted,
    Event,
    Finished,
    Instructed,
    Noted,
    Rewound,
    Role,
    Said,
    about_from,
    as_stored,
    check_tags,
    text_payload,
)
from lockstitch.journal.projection import wanted_blobs
from lockstitch.journal.records import check_name
from lockstitch.journal.state import CHECKPOINT, ROLES, Checkpoint, JournalState
from lockstitch.session import decisions
from lockstitch.session.compacting import compacting_actions, is_over
from lockstitch.session.decisions import Call, Recovered, Turn
from lockstitch.session.listing import Parent, delivered_outcome
from lockstitch.session.reader import SessionReads, advise_repair, end_of
from lockstitch.session.replies import (
    Stream,
    StreamRecorder,
    json_payload,
    reply_event,
    said_payload,
)
from lockstitch.session.tool_run import (
    Abort,
    Policy,
    Tool,
    ToolRun,
    check_timeout,
    read_tools,
    run_in_threads,
)
from lockstitch.session.writing import DeferredSignals, Inbox, SessionWriter, named_key, reason_of
from lockstitch.stores.base import Backend

MOMENT = 0.25
# How long one wait for deliveries lasts; short, so that an approval is noticed soon, too.
LISTENING = 0.25


class Session(SessionReads):
    """One conversation, open for writing; get one from :meth:`Store.session`.

    It has a single writer at a time, and any number of threads may share that writer. When a method
    returns, what it was given is durable: it survives a kill of the process and a power failure.

    Use it as a context manager. At the end of the block the lease is released, and a turn that is
    still open stays open for the next run. An ordinary exception or an exit leaves the turn open as
    well; Ctrl-C, or cancelling the task, interrupts it. After a crash, open the session again:
    calls that were running get the outcome ``unknown``, and :attr:`recovered` lists them.

    Every method that writes raises ``Closed`` after the session was closed, ``Fenced`` if another
    writer has taken the session over, ``Unsure`` if a write failed with an unknown outcome, and
    ``Busy`` if the store was busy for too long. After ``Busy`` nothing was written and you can try
    again. After ``Fenced`` or ``Unsure`` nothing more can be written: open the session again.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        *,
        wait: float = 0.0,
        create: bool = True,
        parent: Parent | None = None,
    ) -> None:
        self._runs: set[ToolRun] = set()
        check_name(name)
        until = time.monotonic() + check_wait(wait)
        while not self._is_opened(backend, name, until, create=create):
            pass
        _OPEN[id(backend), name] = self
        if parent is not None and not self.seq:
            self._writer.add(Noted(name=decisions.CHILD, payload=json_payload(parent)))

    def _is_opened(self, backend: Backend, name: str, until: float, *, create: bool) -> bool:
        """Try for a moment to open the session.

        Ctrl-C takes effect between tries, never with a lease.
        """
        left = until - time.monotonic()
        with DeferredSignals(), advise_repair(backend, name):
            try:
                lease = backend.acquire(name, wait=min(max(left, 0.0), MOMENT), create=create)
            except (Busy, Held):
                if time.monotonic() >= until:
                    raise
                return False
            try:
                self._writer = self._view = SessionWriter(backend, lease)
                self._recovered = self._recover()
                self._said_before = self._writer.look(decisions.words_of_turn)
                self._inbox = Inbox(self._writer)
                self._inbox.take_over()
            except BaseException:
                backend.release(lease)
                raise
            self._writer.watch(self)
        return True

    def _recover(self) -> Recovered:
        writer = self._writer
        is_left_open = writer.look(decisions.is_left_open)
        facts = writer.look(decisions.recovery)
        if not facts and not is_left_open:
            return Recovered()
        if facts:
            writer.add(*facts)
        ended = [fact for fact in facts if isinstance(fact, Finished)]
        ran = {(fact.reply, fact.index) for fact in ended if fact.outcome == "unknown"}

        def left(state: JournalState) -> Recovered:
            asks = decisions.belongs_to_turn(state.view)
            batch = [writer.call(call) for call in state.view.batch if asks]
            lost = {call.key for call in batch if call.outcome == "unknown" and not call.is_real}
            return Recovered(
                finished=tuple(call for call in batch if call.outcome and call.is_real),
                unknown=tuple(writer.call(state.view.calls[key]) for key in sorted(ran | lost)),
                never_started=tuple(call for call in batch if call.status == "open"),
                interrupted=is_left_open,
            )

        return writer.look(left)

    @property
    def recovered(self) -> Recovered:
        """What the last writer left when it crashed; false if it ended properly."""
        return self._recovered

    def say(self, content: Any, *, dialect: str = "", key: str | None = None) -> Turn:
        """Add a message of the user: a text, or content blocks in the format of ``dialect``.

        With the same ``key`` the message is added once, however often this is called. Without a
        key, a program that was started again may repeat the messages of the open turn: those that
        are equal and in the same order are not added again. You may call this while tools run; in a
        request the message then comes after their results. Raises ``UsageError`` if the content
        fits in no message, or if the key was used for something else.
        """
        said = Said(payload=said_payload(content, dialect), dialect=dialect)
        if key is None:
            # A program that is started again without keys repeats the messages of the open turn in
            # order. The first message that differs shows that it has gone on.
            before, self._said_before = self._said_before, []
            is_open = self._writer.look(lambda state: bool(state.view.turn))
            if before and is_open and as_stored(said) == before[0]:
                self._said_before = before[1:]
                return self.turn
        self._writer.add(said, key=named_key("say", key))
        return self.turn

    def instruct(self, text: str, *, role: Role = "system") -> None:
        """Set the instructions that the model reads before the conversation.

        They replace earlier instructions of the same role, system or developer. Setting the same
        text again changes nothing, so a program may do it at every start. If the dialect has a
        place for instructions among the messages, :meth:`request` puts them first; otherwise
        :meth:`system` returns them.
        """
        if role not in ROLES or not isinstance(text, str):
            raise UsageError("instructions must be a text from the system or the developer")
        if self._writer.instructions.get(role, "") != text:
            self._writer.add(Instructed(payload=text_payload(text), role=role))

    def record(
        self,
        reply: Any,
        dialect: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> Turn:
        """Add a model's reply: an SDK's response object, its dict, or its JSON as received.

        Returns the turn with the calls that the reply asks for; a reply without calls ends the
        turn. ``dialect`` is recognized if it is not given. With the same ``key`` the reply is added
        once. Raises ``UsageError`` if the value is not a reply, such as a request or an error.
        """
        likely = self._writer.dialect
        event = reply_event(reply, dialect, provider=provider, model=model, likely=likely)
        # Words that were said after the request was made belong after the reply.
        after = self._writer.last_request()
        self._writer.add_reply(structs.replace(event, after=after), key)
        return self.turn

    def stream(
        self,
        source: Any,
        dialect: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> Stream:
        """Record a reply while it arrives: ``with session.stream(client.messages.stream(…)) as s``.

        ``source`` is an SDK's stream, the context manager of one, or any iterator of its events.
        Parts of the reply are stored as they arrive, so a crash loses at most the last moments of
        it. Raises ``UsageError`` if another stream of this session is open.
        """
        recorder = StreamRecorder(
            self._writer, self, dialect, provider=provider, model=model, key=key
        )
        return Stream(recorder, source)

    def request(  # noqa: PLR0913 - options, all by name
        self,
        dialect: str,
        *,
        profile: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        budget: int | None = None,
        summarize: Summarize | None = None,
        **options: Unpack[CompactOptions],
    ) -> list[Any]:
        """Return the messages to send now; they are valid in ``dialect`` at any moment.

        A call that is running, waiting or never started is answered in the request only, with a
        text that tells the model its state; in the session it stays open. ``provider`` and
        ``model`` name the receiver if it is not the one that replied last. Raises ``Unreadable`` if
        no valid request can be made.

        If the request exceeds ``budget`` tokens, the session is compacted first, as by
        :meth:`compact` with the same ``summarize`` and options, which takes no longer than
        ``deadline`` seconds. If no compaction can meet the budget, the shortest possible request is
        returned.
        """
        name = f"{dialect}:{profile}" if profile else dialect
        settings = compact_settings(budget, dialect, options)
        return drive(self._request_actions(name, model, provider, settings, summarize), perform)

    def _request_actions(
        self,
        name: str,
        model: str | None,
        provider: str | None,
        settings: CompactSettings | None,
        summarize: Callable[[str], str | Awaitable[str]] | None,
    ) -> Actions[list[Any]]:
        def request() -> list[Any]:
            self._inbox.take_over()
            return self._writer.request(name, model=model, provider=provider)

        ask = Apart(request, must_end=True)
        messages: list[Any] = yield ask
        if settings is None or not (
            yield Apart(partial(self._is_over, settings, messages), must_end=True)
        ):
            return messages
        # A request that is too long is better than none, so these errors of a compaction are
        # ignored.
        with suppress(Unmet, Moved, Busy):
            try:
                yield from self._compact_actions(summarize, settings)
            except Unmet as error:
                yield from self._compact_actions(None, settings.loosened(error))
            messages = yield ask
        return messages

    def run_tools(
        self,
        tools: Mapping[str, Callable[..., Any] | Tool],
        *,
        timeout: float | None = None,
        approve: Policy | None = None,
        abort: Abort | None = None,
        max_parallel: int | None = None,
    ) -> list[Call]:
        """Run the calls of the last reply in parallel threads; return them with their outcomes.

        These are the calls that never started, calls with an unknown outcome if their tool is
        ``repeatable``, and every approved call. Each start is durable before its tool runs, and
        each outcome as soon as it exists, so a crash never makes a tool run twice that is not
        repeatable. An exception in a tool becomes a failed result.

        ``timeout`` is in seconds for each call; a tool that exceeds it keeps its thread, and its
        result is still recorded if it comes. ``approve``, true or a function of the call, makes
        calls wait for approval instead of running. Setting ``abort`` interrupts the turn, as Ctrl-C
        does. At most ``max_parallel`` tools run at once. Raises ``UsageError`` if a tool is async
        or not callable.
        """
        run = self._tool_run(tools, timeout, max_parallel, can_await=False)
        for candidate, answer in run.questions(approve):
            if inspect.isawaitable(answer):
                # An unawaited coroutine would cause a warning besides the error.
                close = getattr(answer, "close", None)
                if close:
                    close()
                raise UsageError("approve= is async: use a session of async_session()")
            if answer:
                run.hold(candidate)
        with self._running(run):
            run_in_threads(run, abort)
        return run.outcome()

    @contextmanager
    def _running(self, run: ToolRun) -> Iterator[None]:
        self._runs.add(run)
        try:
            yield
        finally:
            run.is_stopped = True
            self._runs.discard(run)

    def _tool_run(
        self,
        tools: Mapping[str, Callable[..., Any] | Tool],
        timeout: float | None,
        max_parallel: int | None,
        *,
        can_await: bool,
    ) -> ToolRun:
        """Return a run of the calls that can run now, after taking over what others delivered."""
        box = read_tools(tools, can_await=can_await)
        seconds = None if timeout is None else check_timeout(timeout)
        self._inbox.take_over()
        run = ToolRun(
            self._writer,
            box,
            timeout=seconds,
            max_parallel=max_parallel,
            interrupt_children=self._interrupt_children,
        )
        if run.lost:
            self._leave_children(run.lost)
        return run

    @property
    def _children(self) -> list[Session]:
        """The sessions of sub-agents that running calls have open in this process."""
        backend = id(self._writer.backend)
        found = [_OPEN.get((backend, Parent(self.name, *call).child)) for call in self._live()]
        return [child for child in found if child is not None]

    def _interrupt_children(self, reason: str) -> None:
        for child in self._children:
            child.interrupt(reason)

    def _leave_children(self, calls: list[decisions.Key]) -> None:
        """Interrupt the sub-agents of calls that will not run again."""
        backend = self._writer.backend
        for call in calls:
            name = Parent(self.name, *call).child
            if backend.head(name) is None:
                continue
            with suppress(Held):  # another writer still has it open
                child = Session(backend, name, create=False)
                if child.turn.state in ("open", "waiting"):
                    child._leave_children([c.key for c in child.calls])
                    child.interrupt("parent")
                child.close()

    def interrupt(self, reason: str = "user") -> Turn:
        """End the turn now: every call that waits for nobody gets an outcome at once.

        A running call becomes ``cancelled`` and its tool's abort signal is set; one that has not
        started becomes ``not-started``. A real result that comes later still counts.
        """
        self._interrupt_children(reason)
        self._writer.decide(lambda state: decisions.interrupt(state, reason, self._live()))
        self._stop()
        return self.turn

    def resume(self) -> Turn:
        """Continue the interrupted turn without a new message; do nothing if none was interrupted.

        The outcomes of its calls stay as they are, and the model decides what to do next.
        """
        self._writer.decide(decisions.resume)
        return self.turn

    def _live(self) -> set[decisions.Key]:
        return {key for one in list(self._runs) for key in one.live}

    def _stop(self) -> None:
        for one in list(self._runs):
            one.stop()

    def approve(self, call: Call | str) -> Call:
        """Allow a waiting call to run with the next :meth:`run_tools`.

        ``call`` is the call itself, or an id that no other waiting call has. Raises ``UsageError``
        if the call does not wait for approval. Approving a call twice changes nothing.
        """
        return self._answer(call, None, allow=True)

    def deny(self, call: Call | str, reason: str | None = None) -> Call:
        """Refuse a waiting call; its result tells the model so, with the reason.

        ``call`` is given as in :meth:`approve`. Raises ``UsageError`` if the call does not wait.
        """
        return self._answer(call, reason, allow=False)

    def _answer(self, which: Call | str, reason: str | None, *, allow: bool) -> Call:
        found: list[decisions.Key] = []

        def decide(state: JournalState) -> list[Event]:
            call = decisions.find_waiting_call(state, which)
            found.append((call.reply, call.index))
            return decisions.decide_approval(call, reason, allow=allow)

        self._writer.decide(decide)
        return self._writer.look(lambda state: self._writer.call(state.view.calls[found[0]]))

    def deliver(self, call: Call | str, result: Any, *, key: str | None = None) -> Turn:
        """Add the result of a call that came from elsewhere: a value, ``Result`` or exception.

        ``call`` is the call itself, its ``effect``, or an id that no other call has. With the same
        ``key`` the result is added once. A process that does not hold the session uses
        :meth:`Store.deliver`. Raises ``UsageError`` if no such call is found.
        """
        event, name = self._writer.look(lambda state: delivered_outcome(state, call, result, key))
        self._writer.add(event, key=name)
        return self.turn

    def wait(self, timeout: float | None = None) -> Turn:
        """Wait while the turn needs nothing but approvals, or results that others deliver.

        Return the turn as soon as there is something to do, or after ``timeout`` seconds.
        """
        until = end_of(timeout)
        while (turn := self._listen(until)) is None:
            pass
        return turn

    def _listen(self, until: float | None) -> Turn | None:
        """Wait for a moment; return the turn if it no longer waits or if the time is up."""
        self._inbox.take_over()
        left = LISTENING if until is None else min(until - time.monotonic(), LISTENING)
        turn = self.turn
        if turn.state != "waiting" or left <= 0:
            return turn
        self._inbox.wait(left)
        return None

    def note(self, name: str, value: Any = None, *, key: str | None = None) -> int:
        """Store a value that no model sees; return the number of its record.

        With the same ``key`` it is stored once. Raises ``UsageError`` for a name that is reserved.
        """
        if not name or name in decisions.RESERVED:
            raise UsageError(f"a note needs a name, other than {' and '.join(decisions.RESERVED)}")
        event = Noted(name=name, payload=json_payload(value))
        added = self._writer.add(event, key=named_key("note", key))
        return added[0].seq if added else self.seq

    def describe(
        self,
        title: str | None = None,
        tags: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> About:
        """Set the session's title, tags and metadata; an argument that is None changes nothing.

        ``title`` is one line. ``tags`` and ``metadata`` replace all earlier ones. Pass "", [] or {}
        to remove them. A listing shows them without opening the session, and a rewind does not undo
        them.
        """
        checked = None if tags is None else check_tags(tags)
        self._writer.decide(lambda state: decisions.describe(state, title, checked, metadata))
        return self._writer.look(lambda state: about_from(state.described))

    def checkpoint(self, label: str) -> int:
        """Give this place a label, to go back to it later; return the number of its record."""
        if not label:
            raise UsageError("a checkpoint needs a label")
        return self._writer.add(Noted(name=CHECKPOINT, label=label))[0].seq

    def rewind(self, to: Checkpoint | str | int, reason: str = "") -> Turn:
        """Go back to an earlier place: a checkpoint, its label, or the number of a record.

        Nothing is deleted, and :meth:`undo_rewind` undoes it. Tools that are running get their
        abort signal if the rewind removed their calls. Raises ``UsageError`` if there is no such
        place.
        """
        return self._rewind(
            lambda state: [Rewound(to=decisions.find_place(state, to), reason=reason)]
        )

    def undo_rewind(self) -> Turn:
        """Undo the last rewind; raise ``UsageError`` if there was none."""
        return self._rewind(decisions.undo_rewind)

    def revert_interrupted(self) -> Turn:
        """Go back to just before the message that began the interrupted turn.

        Raises ``UsageError`` if the last turn was not interrupted, or if something was said since.
        """
        return self._rewind(decisions.revert_interrupted)

    def _rewind(self, decide: Callable[[JournalState], Sequence[Event]]) -> Turn:
        self._writer.decide(decide)
        # A request from before the rewind was not made from what is there now.
        self._writer.asked = 0
        for one in list(self._runs):
            one.abandon()
        live = self._live()
        if self._writer.look(lambda state: decisions.conclude_orphans(state, live)):
            self._writer.decide(lambda state: decisions.conclude_orphans(state, live))
        return self.turn

    def compact(
        self,
        summarize: Summarize | None = None,
        *,
        budget: int,
        dialect: str | None = None,
        **options: Unpack[CompactOptions],
    ) -> Compaction:
        """Shorten what is sent so that it fits ``budget`` tokens, and ``most_bytes`` bytes.

        Old results are shortened first. If that is not enough, ``summarize``, a function from a
        prompt to a text, summarizes the beginning. Without it, or if it fails, a digest of what was
        said and done is used instead. The session can be used meanwhile, and a crash leaves it as
        it was. Nothing is deleted: :meth:`uncompact` undoes it. Raises ``Unmet`` if the budget
        cannot be met, and ``Moved`` if the session was rewound or compacted meanwhile; both leave
        the session as it was.

        After a failure ``summarize`` is not called for a while, which grows with each failure, and
        the digest is used at once; ``unasked`` of the result then says so. ``ignore_pause`` calls
        it all the same. ``deadline`` limits the seconds for all questions together (60),
        ``call_timeout`` those for each. ``counter`` counts tokens, ``window`` is how many tokens
        ``summarize`` accepts at once, and ``on_progress`` is called with the progress.
        """
        settings = CompactSettings(tokens=budget, dialect=dialect, **options)
        return drive(self._compact_actions(summarize, settings), perform)

    def _compact_actions(
        self, summarize: Callable[[str], str | Awaitable[str]] | None, settings: CompactSettings
    ) -> Actions[Compaction]:
        done = yield from compacting_actions(self._writer, settings, summarize)
        for child in (yield Apart(partial(self._long_children, settings), must_end=True)):
            with suppress(Unmet, Moved, Busy):
                yield from compacting_actions(child._writer, settings, summarize)  # noqa: SLF001
        return done

    def uncompact(self) -> None:
        """Undo every compaction, so that the whole conversation is sent again."""
        self._writer.add(Compacted())

    def _is_over(self, settings: CompactSettings, messages: list[Any]) -> bool:
        """Whether a request exceeds the budget and no call is running or about to."""

        def asked(state: JournalState) -> bool:
            blobs = self._writer.fetched(wanted_blobs(state.view))
            return is_over(settings, state.view, messages, blobs)

        return self._writer.look(asked)

    def _long_children(self, settings: CompactSettings) -> list[Session]:
        """Return the sessions of running sub-agents that exceed the budget, too."""

        def is_long(child: Session) -> bool:
            dialect = settings.dialect or child._view.dialect or ANTHROPIC
            messages = child._view.request(dialect, model=None, provider=None)
            return child._is_over(settings, messages)

        return list(filter(is_long, self._children))

    def close(self) -> None:
        """Release the session; an open turn stays open. May be called more than once."""
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        """Release the session.

        ``error`` is the exception that ends it, which may interrupt the turn.
        """
        with DeferredSignals():
            try:
                if self._writer.is_writable:
                    for stream in list(self._writer.streams):
                        stream.end(error)
                    live = self._live()
                    if error is not None or live:
                        reason = reason_of(error) if error else "closed"
                        self._writer.decide(lambda s: decisions.break_off(s, reason, live))
                    else:
                        # not required, but the next writer then knows that nothing crashed
                        with suppress(LockstitchError):
                            self._writer.decide(decisions.pause)
            except LockstitchError:
                # What could not be written is recovered by the next writer of the session.
                if error is None:
                    raise
            finally:
                self._writer.close()
                self._stop()

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Release the session, whatever happened in the block."""
        self._close(error)


# The sessions that are open in this process, so that a parent can find its children.
_OPEN: weakref.WeakValueDictionary[tuple[int, str], Session] = weakref.WeakValueDictionary()


def check_wait(seconds: object) -> float:
    """Return a number of seconds to wait; raise ``UsageError`` if it is not a number."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise UsageError("wait must be a number of seconds")
    return seconds
