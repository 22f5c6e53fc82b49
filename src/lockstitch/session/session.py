"""What both twins of a session do with the store; the calls may wait, so async runs them apart.

A session as a synchronous program holds it.
"""

from __future__ import annotations

import inspect
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from msgspec import structs

from lockstitch.compaction.ladder import Compaction
from lockstitch.compaction.running import (
    CompactOptions,
    CompactSettings,
    Summarize,
    compact_settings,
    run,
)
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
from lockstitch.journal.queries import Usage
from lockstitch.journal.records import check_name
from lockstitch.journal.state import ROLES, Checkpoint, JournalState
from lockstitch.session import decisions, reader
from lockstitch.session.children import Inbox, Parent, delivered_outcome
from lockstitch.session.compacting import Compacting, is_over
from lockstitch.session.content import json_payload, reply_event, said_payload
from lockstitch.session.decisions import Call, Recovered, Turn
from lockstitch.session.reader import Note, SessionReadMixin, advise_repair, end_of
from lockstitch.session.streaming import Stream, StreamRecorder
from lockstitch.session.tool_run import (
    Abort,
    Policy,
    ThreadWatch,
    Tool,
    ToolRun,
    check_timeout,
    read_tools,
)
from lockstitch.session.writing import DeferredSignals, SessionWriter, named_key, reason_of
from lockstitch.stores.base import Backend

MOMENT = 0.25
# How long one look for what others delivered lasts, so that an approval is seen soon, too.
LISTENING = 0.25


class OpenSessions:
    """The sessions that are open in this process, so that a parent finds its children."""

    def __init__(self) -> None:
        self._found: weakref.WeakValueDictionary[tuple[int, str], Conversation]
        self._found = weakref.WeakValueDictionary()

    def add(self, backend: Backend, name: str, conversation: Conversation) -> None:
        """Remember a session as long as somebody holds it."""
        self._found[id(backend), name] = conversation

    def children(
        self, backend: Backend, session: str, calls: Iterable[tuple[int, int]]
    ) -> list[Conversation]:
        """Return the open sessions that belong to some calls of a session."""
        names = [Parent(session, *call).child for call in calls]
        found = (self._found.get((id(backend), name)) for name in names)
        return [one for one in found if one is not None]


OPENED = OpenSessions()


class Conversation(SessionReadMixin):
    """An open session: the lease is held, and what a crash left open was concluded."""

    def __init__(
        self,
        backend: Backend,
        name: str,
        *,
        wait: float,
        create: bool,
        parent: Parent | None = None,
    ) -> None:
        self.batches: set[ToolRun] = set()
        self._said_before: list[Said] = []
        check_name(name)
        until = time.monotonic() + check_wait(wait)
        while not self._is_opened(backend, name, until, create=create):
            pass
        OPENED.add(backend, name, self)
        if parent is not None and not self.seq:
            self.writer.add(Noted(name=decisions.CHILD, payload=json_payload(parent)))

    def _is_opened(self, backend: Backend, name: str, until: float, *, create: bool) -> bool:
        """Try for a moment; Ctrl-C comes through between two tries, never with a lease in hand."""
        left = until - time.monotonic()
        with DeferredSignals(), advise_repair(backend, name):
            try:
                lease = backend.acquire(name, wait=min(max(left, 0.0), MOMENT), create=create)
            except (Busy, Held):
                if time.monotonic() >= until:
                    raise
                return False
            try:
                self.writer = self._seen = SessionWriter(backend, lease)
                self.recovered = self._recover()
                self._said_before = self.writer.look(decisions.words_of_turn)
                self._inbox = Inbox(self.writer)
                self._inbox.take_over()
            except BaseException:
                backend.release(lease)
                raise
            self.writer.watch(self)
        return True

    def _recover(self) -> Recovered:
        is_left_open = self.writer.look(decisions.is_left_open)
        facts = self.writer.look(decisions.recovery)
        if not facts and not is_left_open:
            return Recovered()
        if facts:
            self.writer.add(*facts)
        ended = [fact for fact in facts if isinstance(fact, Finished)]
        ran = {(fact.reply, fact.index) for fact in ended if fact.outcome == "unknown"}
        return self.writer.look(lambda state: self._left(state, ran, is_left_open=is_left_open))

    def _left(
        self, state: JournalState, ran: set[decisions.Key], *, is_left_open: bool
    ) -> Recovered:
        batch = [
            self.writer.call(call)
            for call in state.view.batch
            if decisions.belongs_to_turn(state.view)
        ]
        ran |= {call.key for call in batch if call.outcome == "unknown" and not call.is_real}
        return Recovered(
            finished=tuple(call for call in batch if call.outcome and call.is_real),
            unknown=tuple(self.writer.call(state.view.calls[key]) for key in sorted(ran)),
            never_started=tuple(call for call in batch if call.status == "open"),
            interrupted=is_left_open,
        )

    def say(self, content: Any, *, dialect: str = "", key: str | None = None) -> Turn:
        said = Said(payload=said_payload(content, dialect), dialect=dialect)
        if key is not None or not self._is_said_before(said):
            self.writer.add(said, key=named_key("say", key))
        return self.turn

    def instruct(self, text: str, *, role: Role = "system") -> None:
        if role not in ROLES or not isinstance(text, str):
            raise UsageError("instructions are a text of the system or the developer")
        if self.writer.instructions.get(role, "") != text:
            self.writer.add(Instructed(payload=text_payload(text), role=role))

    def _is_said_before(self, said: Said) -> bool:
        """Whether the same program, started again, says what opened the turn that is still open.

        A program that was given no key repeats its words in their order; with the first other
        words it has gone on.
        """
        before, self._said_before = self._said_before, []
        is_open = self.writer.look(lambda state: bool(state.view.turn))
        if not before or not is_open or as_stored(said) != before[0]:
            return False
        self._said_before = before[1:]
        return True

    def record(
        self,
        reply: Any,
        dialect: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> Turn:
        likely = self.writer.dialect
        event = reply_event(reply, dialect, provider=provider, model=model, likely=likely)
        self.writer.add_reply(structs.replace(event, after=self.writer.last_request()), key)
        return self.turn

    def request(
        self,
        dialect: str,
        *,
        profile: str | None = None,
        model: str | None = None,
        provider: str | None = None,
    ) -> list[Any]:
        name = f"{dialect}:{profile}" if profile else dialect
        self._inbox.take_over()
        return self.writer.request(name, model=model, provider=provider)

    def batch(
        self, tools: Mapping[str, Tool], *, timeout: float | None, max_parallel: int | None
    ) -> ToolRun:
        """Look at the calls that could run now, those among them that others delivered for."""
        self._inbox.take_over()
        batch = ToolRun(self.writer, tools, timeout=timeout, max_parallel=max_parallel)
        batch.interrupt_children = self._interrupt_children
        self._leave_children(batch.lost)
        return batch

    def _interrupt_children(self, reason: str) -> None:
        for child in self.children:
            child.interrupt(reason)

    @property
    def children(self) -> list[Conversation]:
        """The sessions of sub-agents that calls which run now hold open in this process."""
        return OPENED.children(self.writer.backend, self.name, self._live())

    def _leave_children(self, calls: list[decisions.Key]) -> None:
        """End what sub-agents were doing for calls that nobody is going to run again."""
        backend = self.writer.backend
        for call in calls:
            name = Parent(self.name, *call).child
            if backend.head(name) is None:
                continue
            with suppress(Held):  # somebody leads it still
                child = Conversation(backend, name, wait=0.0, create=False)
                if child.turn.state in ("open", "waiting"):
                    child._leave_children([c.key for c in child.calls])
                    child.interrupt("parent")
                child.close()

    def deliver(self, which: Call | str, result: Any, *, key: str | None = None) -> Turn:
        event, name = self.writer.look(lambda state: delivered_outcome(state, which, result, key))
        self.writer.add(event, key=name)
        return self.turn

    def listen(self, until: float | None) -> Turn | None:
        """Wait for a short stretch; returns the turn once it does not wait, or the time is up."""
        self._inbox.take_over()
        left = LISTENING if until is None else min(until - time.monotonic(), LISTENING)
        turn = self.turn
        if turn.state != "waiting" or left <= 0:
            return turn
        self._inbox.wait(left)
        return None

    def interrupt(self, reason: str = "user") -> Turn:
        self._interrupt_children(reason)
        self.writer.decide(lambda state: decisions.interrupt(state, reason, self._live()))
        self._stop()
        return self.turn

    def resume(self) -> Turn:
        self.writer.decide(decisions.resume)
        return self.turn

    def _live(self) -> set[decisions.Key]:
        return {key for batch in list(self.batches) for key in batch.live}

    def _stop(self) -> None:
        for batch in list(self.batches):
            batch.stop()

    def approve(self, call: Call | str) -> Call:
        return self._decided(call, None, allow=True)

    def deny(self, call: Call | str, reason: str | None = None) -> Call:
        return self._decided(call, reason, allow=False)

    def _decided(self, which: Call | str, reason: str | None, *, allow: bool) -> Call:
        found: list[decisions.Key] = []

        def decide(state: JournalState) -> list[Event]:
            call = decisions.find_waiting_call(state, which)
            found.append((call.reply, call.index))
            return decisions.decide_approval(call, reason, allow=allow)

        self.writer.decide(decide)
        return self.writer.look(lambda state: self.writer.call(state.view.calls[found[0]]))

    def note(self, name: str, value: Any = None, *, key: str | None = None) -> int:
        if not name or name in decisions.RESERVED:
            raise UsageError(f"a note has a name, other than {' and '.join(decisions.RESERVED)}")
        event = Noted(name=name, payload=json_payload(value))
        added = self.writer.add(event, key=named_key("note", key))
        return added[0].seq if added else self.seq

    def describe(
        self,
        title: str | None,
        tags: Iterable[str] | None,
        metadata: Mapping[str, Any] | None,
    ) -> About:
        given = None if tags is None else check_tags(tags)
        self.writer.decide(lambda state: decisions.describe(state, title, given, metadata))
        return self.writer.look(lambda state: about_from(state.described))

    def checkpoint(self, label: str) -> int:
        return self.writer.add(decisions.make_checkpoint(label))[0].seq

    def rewind(self, to: Checkpoint | str | int, reason: str = "") -> Turn:
        return self._rewound(
            lambda state: [Rewound(to=decisions.find_place(state, to), reason=reason)]
        )

    def undo_rewind(self) -> Turn:
        return self._rewound(decisions.undo_rewind)

    def revert_interrupted(self) -> Turn:
        return self._rewound(decisions.revert_interrupted)

    def _rewound(self, decide: Callable[[JournalState], Sequence[Event]]) -> Turn:
        self.writer.decide(decide)
        self.writer.asked = 0
        for batch in list(self.batches):
            batch.abandon()
        live = self._live()
        if self.writer.look(lambda state: decisions.conclude_orphans(state, live)):
            self.writer.decide(lambda state: decisions.conclude_orphans(state, live))
        return self.turn

    def compacting(
        self, wish: CompactSettings, summarize: Callable[[str], Any] | None
    ) -> Compacting:
        return Compacting(self.writer, wish, summarize)

    def uncompact(self) -> None:
        self.writer.add(Compacted())

    def is_over(self, wish: CompactSettings, messages: list[Any]) -> bool:
        """Whether a request is over a budget, and this a moment to compact."""

        def asked(state: JournalState) -> bool:
            blobs = self.writer.fetched(wanted_blobs(state.view))
            return is_over(wish, state.view, messages, blobs)

        return self.writer.look(asked)

    def long_children(self, wish: CompactSettings) -> list[Conversation]:
        """Return the sessions of sub-agents that are over a budget, too."""
        found: list[Conversation] = []
        for child in self.children:
            writer = child.writer
            dialect = wish.dialect or writer.dialect or "anthropic"
            if child.is_over(wish, writer.request(dialect, model=None, provider=None)):
                found.append(child)
        return found

    def output(self, call: Call) -> Any:
        return self.writer.output(call)

    def close(self, error: BaseException | None = None) -> None:
        """Leave: on purpose, or because of an exception, which breaks the turn off."""
        with DeferredSignals():
            try:
                if self.writer.is_writable:
                    self._leave(error)
            except LockstitchError:
                # What could not be written is concluded by whoever opens the session next.
                if error is None:
                    raise
            finally:
                self.writer.close()
                self._stop()

    def _leave(self, error: BaseException | None) -> None:
        for stream in list(self.writer.streams):
            stream.settle(error)
        live = self._live()
        if error is None and not live:
            # a courtesy to whoever opens it next: nothing is lost without it
            with suppress(LockstitchError):
                self.writer.decide(decisions.pause)
            return
        reason = reason_of(error) if error else "closed"
        self.writer.decide(lambda state: decisions.break_off(state, reason, live))


def check_wait(seconds: object) -> float:
    """Give a number of seconds to wait back if it is one."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise UsageError("wait is a number of seconds")
    return seconds


class Session(SessionReadMixin):
    """One conversation, open for writing; threads may share it.

    When a method returns, what it was told is durable. Use it as a context manager: at
    its end an open turn is left for later, or interrupted if an exception passes through.
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
        self._inner = Conversation(backend, name, wait=wait, create=create, parent=parent)
        self._seen = self._inner.writer

    @property
    def recovered(self) -> Recovered:
        """What the last writer left when it died; empty, and false, if it ended properly."""
        return self._inner.recovered

    def say(self, content: Any, *, dialect: str = "", key: str | None = None) -> Turn:
        """Say something as the user: a text, or content blocks as ``dialect`` spells them.

        With the same ``key`` it is said once, however often this is called. You may call this
        while tools run: on the wire the message comes after their results.
        """
        return self._inner.say(content, dialect=dialect, key=key)

    def instruct(self, text: str, *, role: Role = "system") -> None:
        """Tell the model something before the conversation, as system or developer.

        It replaces what the same role said before, from now on. Saying the same again changes
        nothing, so a program may do it at every start. Where the dialect has a place for it among
        the messages, ``request`` puts it first; otherwise :meth:`system` returns it.
        """
        self._inner.instruct(text, role=role)

    def record(
        self,
        reply: Any,
        dialect: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> Turn:
        """Keep a model's reply: an SDK's response object, its dict, or its JSON as it came.

        Returns the turn with the calls it asked for; a reply that asks for none ends the turn.
        """
        return self._inner.record(reply, dialect, provider=provider, model=model, key=key)

    def stream(
        self,
        source: Any,
        dialect: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> Stream:
        """Keep a reply while it comes: ``with session.stream(client.messages.stream(…)) as s``.

        ``source`` is an SDK's stream, the manager of one, or any iterator of its events.
        """
        gathering = StreamRecorder(
            self._inner.writer, dialect, provider=provider, model=model, key=key
        )
        return Stream(gathering, source)

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
        """Return the messages to send now, valid in ``dialect`` at every moment.

        A call that runs, waits or never started is answered on the wire only, so that the model
        knows where it stands. ``provider`` and ``model`` say who is asked, if not who was before.
        Over ``budget`` tokens the session is compacted first, as :meth:`compact` does with the same
        ``summarize`` and the same options, and never longer than ``deadline`` seconds. A budget
        that nothing can meet gets the shortest there can be.
        """
        ask = partial(self._inner.request, dialect, profile=profile, model=model, provider=provider)
        wish = compact_settings(budget, dialect, options)
        messages = ask()
        if wish is None or not self._inner.is_over(wish, messages):
            return messages
        with suppress(Unmet, Moved, Busy):
            try:
                self._compacted(summarize, wish)
            except Unmet as error:
                self._compacted(None, wish.loosened(error))
            return ask()
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
        """Run what the model asked for, in parallel threads; returns the calls with their outcomes.

        Runs the calls of the last reply that never started, and every call that was approved.
        Each start is durable before its tool runs, each outcome as soon as it exists. ``timeout``
        is in seconds for every call; ``approve``, or a function of the call, makes calls wait for
        approval instead; a set ``abort`` breaks the turn off, as Ctrl-C does.
        """
        box = read_tools(tools, can_await=False)
        seconds = None if timeout is None else check_timeout(timeout)
        batch = self._inner.batch(box, timeout=seconds, max_parallel=max_parallel)
        for candidate, policy, call in batch.questions(approve):
            if _says_so(policy, call):
                batch.hold(candidate)
        self._inner.batches.add(batch)
        try:
            ThreadWatch(batch, abort).run()
        finally:
            batch.is_stopped = True
            self._inner.batches.discard(batch)
        return batch.outcome()

    def interrupt(self, reason: str = "user") -> Turn:
        """End the turn now: every call that waits for nobody gets an outcome at once."""
        return self._inner.interrupt(reason)

    def resume(self) -> Turn:
        """Continue the turn that was interrupted, without a new message; else change nothing.

        The outcomes of its calls stay as they are: the model is asked what to do.
        """
        return self._inner.resume()

    def approve(self, call: Call | str) -> Call:
        """Let a waiting call run with the next ``run_tools``; the call, or an id only it has."""
        return self._inner.approve(call)

    def deny(self, call: Call | str, reason: str | None = None) -> Call:
        """Refuse a waiting call; the model is told so, with the reason."""
        return self._inner.deny(call, reason)

    def deliver(self, call: Call | str, result: Any, *, key: str | None = None) -> Turn:
        """Deliver a call's result that came from elsewhere: a value, ``Result`` or exception.

        The call is named by itself, by its ``effect``, or by an id that no other call has. The
        same ``key`` again changes nothing. ``store.deliver`` does it without holding the session.
        """
        return self._inner.deliver(call, result, key=key)

    def wait(self, timeout: float | None = None) -> Turn:
        """Wait as long as everything left waits for a result from elsewhere or an approval.

        Returns the turn as soon as there is something to do, and after ``timeout`` seconds.
        """
        until = end_of(timeout)
        while (turn := self._inner.listen(until)) is None:
            pass
        return turn

    def output(self, call: Call) -> Any:
        """Return what a call gave, decoded; None while nothing is known of it."""
        return self._inner.output(call)

    def note(self, name: str, value: Any = None, *, key: str | None = None) -> int:
        """Keep something that no model sees; returns the record's number."""
        return self._inner.note(name, value, key=key)

    def describe(
        self,
        title: str | None = None,
        tags: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> About:
        """Set title, tags and metadata; what is not given stays as it is.

        ``title`` is one line, ``tags`` and ``metadata`` take the place of all there were: "", []
        and {} take them away. A listing shows them without opening the session, and a rewind
        does not take them back.
        """
        return self._inner.describe(title, tags, metadata)

    def notes(self, name: str | None = None, *, rewound: bool = False) -> list[Note]:
        """Return the notes, or those of one name, oldest first; ``rewound`` ones only if asked."""
        return reader.notes(self._seen, name, rewound=rewound)

    def usage(self) -> Usage:
        """Add up what the replies cost, by what their providers said; see :class:`Usage`."""
        return reader.usage(self._seen)

    def checkpoint(self, label: str) -> int:
        """Name this place, to go back to it; returns the record's number."""
        return self._inner.checkpoint(label)

    def rewind(self, to: Checkpoint | str | int, reason: str = "") -> Turn:
        """Continue from an earlier place: a checkpoint, its label, or a record's number.

        Nothing is deleted, and :meth:`undo_rewind` takes it back.
        """
        return self._inner.rewind(to, reason)

    def undo_rewind(self) -> Turn:
        """Undo the last rewind."""
        return self._inner.undo_rewind()

    def revert_interrupted(self) -> Turn:
        """Go back to before the message that began the interrupted turn."""
        return self._inner.revert_interrupted()

    def compact(
        self,
        summarize: Summarize | None = None,
        *,
        budget: int,
        dialect: str | None = None,
        **options: Unpack[CompactOptions],
    ) -> Compaction:
        """Make what is sent shorter, so that it fits ``budget`` tokens, and ``most_bytes`` bytes.

        Old results are shortened first; if that is not enough, ``summarize``, a function from a
        prompt to a text, sums the beginning up; without one, or when it fails, a digest of what
        was said and done stands in. The session can be used meanwhile. Nothing is deleted:
        :meth:`uncompact` takes it back. Raises ``Unmet`` if the budget cannot be met, and
        ``Moved`` if the session was rewound or compacted meanwhile; it is as before then.

        A ``summarize`` that failed is left alone for a while, longer each time, and a digest stands
        in at once; ``unasked`` of what is given back says so. ``deadline`` is how many seconds
        asking may take in all (60), ``call_timeout`` those for each question, ``counter`` counts
        tokens, ``window`` is how many of them ``summarize`` takes at once, ``on_progress`` is told
        how far it is, and ``ignore_pause`` asks whatever failed before.
        """
        return self._compacted(
            summarize, CompactSettings(tokens=budget, dialect=dialect, **options)
        )

    def _compacted(self, summarize: Summarize | None, wish: CompactSettings) -> Compaction:
        done = _shortened(self._inner, summarize, wish)
        for child in self._inner.long_children(wish):
            with suppress(Unmet, Moved, Busy):
                _shortened(child, summarize, wish)
        return done

    def uncompact(self) -> None:
        """Undo every compaction: the whole conversation is sent again."""
        self._inner.uncompact()

    def close(self) -> None:
        """Release the session; an open turn is left for later. May be called twice."""
        self._inner.close()

    def __enter__(self) -> Self:
        """Go in."""
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        """Go out, whatever happened."""
        self._inner.close(error)


def _shortened(
    conversation: Conversation, summarize: Summarize | None, wish: CompactSettings
) -> Compaction:
    work = conversation.compacting(wish, summarize)
    done = run(work.steps, work.summarizer, wish.clock, keep=work.keep, on_progress=wish.show)
    return work.finish(done)


def _says_so(policy: Policy, call: Call) -> bool:
    answer = policy(call) if callable(policy) else policy
    if inspect.isawaitable(answer):
        close = getattr(answer, "close", None)
        if close:
            close()
        raise UsageError("approve= is async: use a session of async_session()")
    return bool(answer)
