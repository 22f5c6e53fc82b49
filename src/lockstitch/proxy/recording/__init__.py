"""``--record URL``: every conversation that goes through the proxy becomes a session in a store.

Everything that may wait runs outside the proxy's event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec import Raw, Struct, structs

from lockstitch.conversation.parts import TEXT, USER
from lockstitch.dialects.exchange import (
    accumulator_for,
    calls_in,
    exchange_of,
    messages_in,
    provider_of,
)
from lockstitch.dialects.profiles import VIEWS, new_dialect, profile_named
from lockstitch.errors import Held, Moved, Unreadable, UsageError
from lockstitch.journal import events as about
from lockstitch.journal.events import (
    NOTHING,
    AskedCall,
    Described,
    Ended,
    Event,
    Forked,
    Instructed,
    Noted,
    Partial,
    Replied,
    entry_of,
    text_payload,
    value_of,
)
from lockstitch.journal.records import NEW, JournalEntry, blob_name
from lockstitch.journal.state import ROLES
from lockstitch.proxy.recording.facts import (
    HashChain,
    Linking,
    NewFact,
    ParsedRequest,
    beginning,
    digest_of_instructions,
    digest_of_response,
    facts_of,
    is_wrapped,
    links_of_reply,
    parse_request,
    tag_of,
)
from lockstitch.proxy.recording.keeping import (
    FIELD,
    Keeper,
    Relation,
    SessionBranch,
    SessionPlacement,
    instructions_key,
    node_key,
)
from lockstitch.session.replies import json_payload, reply_event
from lockstitch.session.writing import new_name
from lockstitch.stores.base import Backend
from lockstitch.stores.leases import now
from lockstitch.stores.opening import open_given

# The name of a note that holds a response which is not a reply.
UNREAD = "reply"
_REFUSED = 400


class ReceivedReply(Struct, frozen=True):
    """A reply, or a note of what came instead; ``messages`` are what a client will send back."""

    event: Replied | Partial | Noted
    messages: list[Any]
    response: str = ""

    @property
    def is_refusal(self) -> bool:
        """Whether nothing came that anybody said."""
        return isinstance(self.event, Noted) and self.event.payload == NOTHING


def read_reply(
    dialect: str, data: bytes, status: int, model: str, *, complete: bool
) -> ReceivedReply:
    """Return a response as the event to keep; of a refusal only the fact that it was one."""
    if status >= _REFUSED:
        return ReceivedReply(Noted(name=UNREAD, label=f"status {status}"), [])
    events = list(exchange_of(dialect).events_in(data))
    if events:
        gathered = accumulator_for(dialect)
        for event in events:
            gathered.feed(event)
        if gathered.complete:
            return _new_reply(reply_event(gathered.whole(), dialect), model)
        message = gathered.closed()
        if message is None:
            return ReceivedReply(Noted(name=UNREAD, label="cut off before anything arrived"), [])
        asked = calls_in(dialect, messages_in(dialect, message))
        part = Partial(
            payload=json_payload(message),
            dialect=dialect,
            provider=provider_of(dialect),
            model=_text(gathered.whole(), "model") or model,
            calls=tuple(AskedCall(*call) for call in asked),
        )
        return _new_reply(part, model)
    try:
        return _new_reply(reply_event(data, dialect), model)
    except UsageError:
        how = f"status {status}" if complete else f"status {status}, cut off"
        text = text_payload(data.decode("utf-8", "replace"))
        return ReceivedReply(Noted(name=UNREAD, label=how, payload=text), [])


def _new_reply(event: Replied | Partial, model: str) -> ReceivedReply:
    named = event if event.model or not model else structs.replace(event, model=model)
    value = value_of(event.payload, inner=True)
    response = _text(value, "id") if VIEWS[event.dialect].previous_key else ""
    return ReceivedReply(named, messages_in(event.dialect, value), response)


def _text(value: Any, key: str) -> str:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


TAG = "proxy"
# From this size on, values are stored once for all sessions, because instructions and tools repeat.
_SHARED = 1024
_LONGEST_TITLE = 60
_LONGEST_NAME = 200
_LAST_CALLS = 256


class KeptRequest(Struct, frozen=True):
    """Where a request was stored; its reply follows that record of the session."""

    session: str
    seq: int
    chain: HashChain
    dialect: str
    model: str = ""
    step: Relation = Relation.NEW


def keep_unread(keeper: Keeper, body: bytes, dialect: str, client: str = "") -> KeptRequest:
    """Store a request without readable messages, as a text."""
    text = text_payload(body.decode("utf-8", "replace"))
    described = _describe("", (TAG,), {"dialect": dialect, "client": client})
    entries = [_entry(described), _share(Noted(name=FIELD, label="unread", payload=text))]
    name = new_session_name()

    def kept() -> KeptRequest:
        if keeper.backend.head(name) is None:
            keeper.backend.add(name, entries, NEW)
        return KeptRequest(name, len(entries), beginning(dialect, f"unread {name}"), dialect)

    return keeper.patiently(kept)


class _RequestRecording:
    """Stores one request, without repeating what is stored already."""

    def __init__(self, keeper: Keeper, asking: ParsedRequest, client: str) -> None:
        self.keeper = keeper
        self.asking = asking
        self.client = client
        self.instructions = digest_of_instructions(asking.instructions)
        links = (linked.links for linked in asking.linked)
        # the end of the response that the provider continues from, if it is known
        self.base: tuple[SessionBranch, bytes] | None = None
        if asking.previous:
            response = digest_of_response(asking.previous)
            self.base = keeper.answered(response, _response_tag(response))
        if self.base is None:
            self.chain = beginning(asking.dialect, asking.previous).extend(links)
        else:
            branch, end = self.base
            self.chain = HashChain(end, branch.nodes[end].length).extend(links)

    def record(self) -> KeptRequest:
        is_looked_for, is_held = False, False
        while True:
            decision = self._decide()
            if not decision.is_sure and not is_looked_for:
                self.keeper.look(self.chain)
                is_looked_for = True
                continue
            try:
                kept = self._write(decision, apart=is_held)
            except Held:
                is_held = True
            except Moved:
                if decision.branch is not None:
                    self.keeper.refresh(decision.branch.name)
            else:
                if kept is not None:
                    return kept

    def _decide(self) -> SessionPlacement:
        """Decide by the messages, or by a response's id if only the provider has the messages."""
        chain, replies = self.chain, self.asking.replies
        if self.base is None:
            return self.keeper.decide(chain, self.instructions, replies)
        whole = structs.replace(chain, ends=[self.base[1], *chain.ends])
        found = self.keeper.decide(whole, self.instructions, [True, *replies])
        return structs.replace(found, matched=max(found.matched - 1, 0))

    def _write(self, decision: SessionPlacement, *, apart: bool) -> KeptRequest | None:
        """Write what is new; return None if the session meant to hold it is gone."""
        branch, step = decision.branch, decision.step
        if branch is None:
            return self._add(SessionBranch(new_session_name()), decision)
        if step is Relation.REPEATS:
            if self.keeper.backend.head(branch.name) is None:
                self.keeper.refresh(branch.name)
                return None
            return self._kept_in(branch, decision.seq, step)
        if step is Relation.CONTINUES and not apart:
            return self._add(branch, decision)
        fork = self.keeper.fork(branch, decision.seq, new_session_name())
        forked = structs.replace(decision, step=Relation.FORKS, head=fork.head)
        return self._add(fork, forked, branch.name)

    def _add(
        self, branch: SessionBranch, decision: SessionPlacement, source: str = ""
    ) -> KeptRequest:
        entries = self._entries(branch, decision, source)
        seq = self.keeper.add(branch, entries, decision.head)
        return self._kept_in(branch, seq, decision.step)

    def _kept_in(self, branch: SessionBranch, seq: int, step: Relation) -> KeptRequest:
        asking = self.asking
        return KeptRequest(branch.name, seq, self.chain, asking.dialect, asking.model, step)

    def _entries(
        self, branch: SessionBranch, decision: SessionPlacement, source: str
    ) -> list[JournalEntry]:
        seq = decision.head.seq
        entries = [_entry(Forked(source=source, at=decision.seq))] if source else []
        described = self._description(branch, decision.step)
        entries += [_entry(described)] if described is not None else []
        if self.instructions != branch.instructions_at(seq):
            instructions = self.asking.instructions
            if branch.instructions_at(seq):
                # an empty text removes instructions that are gone
                by_role = {event.role: event for event in instructions}
                empty = text_payload("")
                instructions = [
                    by_role.get(role) or Instructed(payload=empty, role=role) for role in ROLES
                ]
            entries += [
                _share(event, instructions_key(self.instructions, new_name()))
                for event in instructions
            ]
        entries += _fields(self.asking.beside, branch.fields_at(seq))
        known = branch.calls_at(seq)[-_LAST_CALLS if self.asking.previous else 0 :]
        facts = facts_of(self.asking, decision.matched, known, seq + len(entries) + 1)
        return entries + self._mark_facts(facts, branch)

    def _description(self, branch: SessionBranch, step: Relation) -> Described | None:
        tags = {TAG, *map(tag_of, self.chain.marks.values())}
        had = about.about_from(branch.about)
        if step is Relation.NEW:
            names = {"dialect": self.asking.dialect, "model": self.asking.model}
            return _describe(_title(self.asking), tags, {**names, "client": self.client})
        if step is Relation.CONTINUES and tags <= set(had.tags):
            return None
        # the part that only the provider has got its tags earlier
        kept = had.tags if step is Relation.CONTINUES or self.base else ()
        return structs.replace(branch.about or Described(), tags=_tags({*tags, *kept}))

    def _mark_facts(self, facts: Sequence[NewFact], branch: SessionBranch) -> list[JournalEntry]:
        """Return entries for facts.

        The last one of each message has the state of the chain in its key.
        """
        entries: list[JournalEntry] = []
        chain, seen = self.chain, set(branch.nodes)
        for fact in facts:
            key = ""
            if fact.ends >= 0 and chain.ends[fact.ends] not in seen:
                seen.add(chain.ends[fact.ends])
                key = node_key(chain.ends[fact.ends], chain.lengths[fact.ends])
            entries.append(_entry(fact.event, key))
        return entries


class _ReplyRecording:
    """Stores one reply; a repeated attempt finds what the first one wrote."""

    def __init__(self, keeper: Keeper, kept: KeptRequest, came: ReceivedReply) -> None:
        self.keeper = keeper
        self.request = kept
        self.came = came
        self.fork = new_session_name()
        links = links_of_reply(kept.dialect, came.messages)
        self.chain = kept.chain.extend(links)
        self.response = digest_of_response(came.response) if came.response else ""
        self.is_tried = False
        if isinstance(came.event, Noted):
            self.facts = [_entry(came.event)]
            return
        # a whole reply without calls ends the turn
        is_end = isinstance(came.event, Replied) and not came.event.calls
        *first, last = [came.event, Ended()] if is_end else [came.event]
        # a reply without content is not in the chain, so nothing can be recognized by it
        is_said = self.chain.length > kept.chain.length
        key = node_key(self.chain.last, self.chain.length, self.response) if is_said else ""
        self.facts = [*map(_entry, first), _entry(last, key)]

    def record(self) -> str:
        if self.is_tried:
            for name in (self.request.session, self.fork):
                backend, key = self.keeper.backend, self.facts[0].key
                if backend.head(name) is not None and any(
                    record.key == key for record in backend.read(name)
                ):
                    return name
        self.is_tried = True
        is_held = False
        while True:
            branch = self.keeper.branch(self.request.session)
            if branch is None:
                raise Moved(
                    f"session {self.request.session}: it was removed while its reply was on the "
                    "way, so the reply is not kept"
                )
            try:
                return self._write(branch, apart=is_held)
            except Held:
                is_held = True
            except Moved:
                self.keeper.refresh(branch.name)

    def _write(self, branch: SessionBranch, *, apart: bool) -> str:
        seq = self.request.seq
        end = None if apart else self.keeper.free_end(branch, seq)
        if end is not None:
            self.keeper.add(branch, [*self._description(branch, is_fork=False), *self.facts], end)
            return branch.name
        if self.came.is_refusal:
            return branch.name  # nothing was said, and the conversation has gone on
        self.fork = new_session_name()
        fork = self.keeper.fork(branch, seq, self.fork)
        came_from = _entry(Forked(source=branch.name, at=seq))
        described = self._description(fork, is_fork=True)
        self.keeper.add(fork, [came_from, *described, *self.facts], fork.head)
        return fork.name

    def _description(self, branch: SessionBranch, *, is_fork: bool) -> list[JournalEntry]:
        """Return what the session is found by; empty if that is stored already."""
        event = branch.about or Described()
        tags = set(event.tags) | set(map(tag_of, self.chain.marks.values()))
        if self.response:
            tags = {tag for tag in tags if not tag.startswith(_RESPONSE)}
            tags.add(_response_tag(self.response))
        if not is_fork and tags <= set(event.tags):
            return []
        return [_entry(structs.replace(event, tags=_tags(tags)))]


_RESPONSE = "proxy-response:"


def _response_tag(digest: str) -> str:
    return f"{_RESPONSE}{digest}"


def _describe(title: str, tags: Iterable[str], names: dict[str, str]) -> Described:
    metadata = {key: value[:_LONGEST_NAME] for key, value in names.items() if value}
    return about.describe(about.NO_ABOUT, title, _tags(tags), metadata)


def _tags(tags: Iterable[str]) -> tuple[str, ...]:
    return about.check_tags(sorted(tags)[: about.MOST_TAGS])


def _title(asking: ParsedRequest) -> str:
    """Return the first words of the user's first message."""
    view = new_dialect(asking.dialect)
    for at, linked in enumerate(asking.linked):
        if linked.role != USER:
            continue
        parts = view.read(asking.values(at, at + 1))[0].parts
        texts = [part.text for part in parts if part.kind == TEXT and not is_wrapped(part)]
        words = "".join(c if c.isprintable() else " " for c in " ".join(texts)[:1000]).split()
        title = " ".join(words)
        if title:
            return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"
    return ""


def _fields(beside: dict[str, bytes], had: dict[str, str]) -> list[JournalEntry]:
    """Return entries for the fields of a request that have changed."""
    events = [
        Noted(name=FIELD, label=label, payload=Raw(value))
        for label, value in beside.items()
        if had.get(label) != blob_name(value)
    ]
    nothing = blob_name(bytes(NOTHING))
    gone = [label for label, name in had.items() if label not in beside and name != nothing]
    events += [Noted(name=FIELD, label=label) for label in gone]
    return [_share(event) for event in events]


def _entry(event: Event, key: str = "") -> JournalEntry:
    return entry_of(event, key or new_name(), now())


def _share(event: Event, key: str = "") -> JournalEntry:
    """Return an entry for an event whose value many sessions have, so that it is stored once."""
    value = bytes(event.payload)
    if len(value) < _SHARED:
        return _entry(event, key)
    lean = structs.replace(event, payload=NOTHING, blob=blob_name(value))
    return structs.replace(_entry(lean, key), blobs=(value,))


def new_session_name() -> str:
    """Return a name for a session; names sort by the time of day."""
    return time.strftime("proxy-%Y-%m-%d-%H%M%S-", time.gmtime()) + new_name()[:6]


T = TypeVar("T")
# How many requests and replies are written together.
_THREADS = 16
_STORES = ("sqlite", "postgresql", "postgres")


def open_recorder(url: str) -> StoreRecorder:
    """Open the store for conversations; raise ``UsageError`` if it is not valid."""
    scheme = url.partition(":")[0]
    if scheme not in _STORES:
        raise UsageError(
            "conversations are recorded in a store: use --record sqlite:///conversations.db or "
            "--record postgresql://…"
        )
    return StoreRecorder(open_given(url))


class StoreRecorder:
    """Keeps every conversation that goes through the proxy as a session in a store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._keeper = Keeper(backend)
        self._linking = Linking()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lockstitch recorder")

    async def begin(
        self, dialect: str, body: bytes, *, streamed: bool, model: str = "", client: str = ""
    ) -> StoreExchange:
        """Store a request durably, as the client sent it; return an object for its reply.

        The proxy calls this before the first byte of the reply goes to the client. A request that
        is there already is not written again. ``model`` is for APIs whose address names it;
        ``client`` is what the client calls itself.
        """
        name = profile_named(dialect).dialect
        kept = await self._beside(lambda: self._keep(name, body, model, client))
        return StoreExchange(self, kept)

    def _keep(self, dialect: str, body: bytes, model: str, client: str) -> KeptRequest:
        try:
            asking = parse_request(dialect, body, self._linking, model)
        except Unreadable:
            return keep_unread(self._keeper, body, dialect, client)
        keeper = self._keeper
        return keeper.patiently(lambda: _RequestRecording(keeper, asking, client).record())

    async def commit(self, kept: KeptRequest, data: bytes, status: int, *, complete: bool) -> str:
        """Store a reply durably; return the name of its session."""

        def work() -> str:
            came = read_reply(kept.dialect, data, status, kept.model, complete=complete)
            return self._keeper.patiently(_ReplyRecording(self._keeper, kept, came).record)

        return await self._beside(work)

    async def close(self) -> None:
        """Write what is pending, and close the store."""
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._backend.close)

    async def _beside(self, work: Callable[[], T]) -> T:
        """Do work that may wait in a thread; if the task is cancelled, the work still completes."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._threads, work))


class StoreExchange:
    """One request and its reply, while they go through the proxy."""

    def __init__(self, recorder: StoreRecorder, kept: KeptRequest) -> None:
        self.kept = kept
        self.session = kept.session
        self._recorder = recorder
        self._chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        """Take a chunk of the reply's decoded body, in the order of arrival."""
        self._chunks.append(chunk)

    async def commit(self, status: int, *, complete: bool) -> None:
        """Store the reply durably: when this returns, it survives a crash.

        The proxy calls this once, before the last bytes of the reply go to the client. ``complete``
        is false if the provider or the client disconnected; what arrived is stored.
        """
        data = b"".join(self._chunks)
        self._chunks = []
        self.session = await self._recorder.commit(self.kept, data, status, complete=complete)
