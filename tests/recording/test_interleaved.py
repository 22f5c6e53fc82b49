"""Clients that share prefixes, retry, edit, go back and are cut off, in any order, in two workers.

The words are few, so that conversations meet and part all the time. Whatever happens: each request
and reply that was acknowledged can be shown in a conversation of its own, and no session holds
anything but what one client sent and heard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockstitch.proxy.recording import StoreExchange
from lockstitch.stores.memory import MemoryBackend
from tests.recording.talking import Client, Heard, answer, streamed, whole

WORDS = st.sampled_from(["a", "b"])
DIALECT = st.sampled_from(["anthropic", "openai-responses"])
WHO = st.integers(0, 2)
WORKER = st.integers(0, 1)


@dataclass
class Asked:
    """A request on its way, and what was said up to there."""

    exchange: StoreExchange
    lines: tuple[str, ...]
    dialect: str
    worker: int
    client: int


@dataclass
class Person:
    """A client as it knows its conversation itself."""

    client: Client
    lines: list[str] = field(default_factory=list)


class Interleaved(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        backend = MemoryBackend()
        self.workers = [Heard(backend), Heard(backend)]
        self.people = [Person(Client(d)) for d in ("anthropic", "anthropic", "openai-responses")]
        self.open: list[Asked] = []
        self.acknowledged: set[tuple[str, ...]] = set()
        self.numbers = iter(range(1, 10_000))

    def teardown(self) -> None:
        for worker in self.workers:
            worker.close()

    @rule(who=WHO, word=WORDS, worker=WORKER)
    def ask(self, who: int, word: str, worker: int) -> None:
        """Say something and ask, or ask once more."""
        person = self.people[who]
        if not person.lines or person.lines[-1].startswith("assistant"):
            person.client.say(word)
            person.lines.append(f"user: {word}")
        exchange = self.workers[worker].begin(person.client)
        lines = tuple(person.lines)
        self.acknowledged.add(lines)
        self.open.append(Asked(exchange, lines, person.client.dialect, worker, who))

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 5), word=WORDS, hears=st.sampled_from([True, True, False]))
    def reply(self, at: int, word: str, hears: bool) -> None:
        asked = self.open.pop(at % len(self.open))
        reply = answer(asked.dialect, next(self.numbers), word)
        self.workers[asked.worker].commit(asked.exchange, whole(reply))
        lines = (*asked.lines, f"assistant: {word}")
        self.acknowledged.add(lines)
        person = self.people[asked.client]
        if hears and tuple(person.lines) == asked.lines:
            person.client.hear(reply)
            person.lines.append(lines[-1])

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 5), cut=st.integers(-4, 12))
    def fail(self, at: int, cut: int) -> None:
        """The provider refuses, or its stream breaks off."""
        asked = self.open.pop(at % len(self.open))
        worker = self.workers[asked.worker]
        if cut < 0:
            worker.commit(asked.exchange, b"{}", 529)
            return
        chunks, _ = streamed(asked.dialect, "a long reply that does not come to its end")
        worker.commit(asked.exchange, chunks[: min(cut, len(chunks) - 3)], complete=False)

    @precondition(lambda self: any(len(person.lines) > 2 for person in self.people))
    @rule(who=WHO, back=st.integers(1, 3))
    def go_back(self, who: int, back: int) -> None:
        person = self.people[who]
        if len(person.lines) <= back:
            return
        # one message a line, in both dialects
        del person.client.messages[-back:]
        del person.lines[-back:]

    @precondition(lambda self: any(len(person.lines) > 2 for person in self.people))
    @rule(who=WHO, at=st.integers(0, 6), word=WORDS)
    def edit(self, who: int, at: int, word: str) -> None:
        person = self.people[who]
        if not person.lines:
            return
        at %= len(person.lines)
        role = person.lines[at].partition(":")[0]
        dialect = person.client.dialect
        made = Client(dialect)
        if role == "user":
            made.say(word)
        else:
            made.hear(answer(dialect, next(self.numbers), word))
        person.client.messages[at : at + 1] = made.messages
        person.lines[at] = f"{role}: {word}"

    @rule(one=WHO, other=WHO)
    def copy(self, one: int, other: int) -> None:
        """A second client opens the same conversation."""
        left, right = self.people[one], self.people[other]
        if left.client.dialect == right.client.dialect and left is not right:
            right.client.messages = list(left.client.messages)
            right.lines = list(left.lines)

    @invariant()
    def everything_can_be_shown_and_nothing_is_mixed(self) -> None:
        worker = self.workers[0]
        sessions = [tuple(worker.said(name)) for name in worker.sessions()]
        prefixes = {lines[:n] for lines in sessions for n in range(1, len(lines) + 1)}
        assert self.acknowledged <= prefixes
        allowed = self.acknowledged | {()}
        assert all(lines in allowed for lines in sessions)


Interleaved.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestInterleaved = Interleaved.TestCase


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(WHO, WORDS, WORDS), max_size=12), DIALECT)
def test_each_client_has_a_conversation_of_its_own(
    turns: list[tuple[int, str, str]], dialect: str
) -> None:
    """Without retries and edits: every conversation is a session from its beginning to its end."""
    heard = Heard(MemoryBackend())
    people = [Person(Client(dialect)) for _ in range(3)]
    for number, (who, word, reply) in enumerate(turns):
        person = people[who]
        person.client.say(word)
        heard.turn(person.client, answer(dialect, number, reply))
        person.lines += [f"user: {word}", f"assistant: {reply}"]
    shown = {tuple(heard.said(name)) for name in heard.sessions()}
    own = {tuple(person.lines) for person in people if person.lines}
    assert own <= shown
    # what two had in common may be there by itself
    assert shown <= {lines[:n] for lines in own for n in range(1, len(lines) + 1)}
    heard.close()
