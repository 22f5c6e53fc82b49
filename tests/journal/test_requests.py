"""A request that goes on from the last one is the request made from scratch, whatever happens."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.journal import requests
from lockstitch.journal.projection import wanted_blobs
from lockstitch.journal.records import Large
from lockstitch.journal.requests import RequestCache, project
from lockstitch.journal.state import JournalState, JournalView

from .replies import DIALECTS, Asked, Speech, reply_of
from .sessions import Session, Writer, sessions
from .shown import DIALECT_RECEIVERS, OTHER_RECEIVERS, Receiver

ALL_RECEIVERS = (*DIALECT_RECEIVERS, *OTHER_RECEIVERS)
FEWER = settings(max_examples=max(1, settings().max_examples // 3))


def _text(messages: Any) -> str:
    return json.dumps(messages, default=repr)


class Beside:
    """Requests of a session, each made from the last one and from scratch."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.requests = RequestCache()
        self.shared = 0

    def check(self, view: JournalView, receiver: Receiver) -> list[Any]:
        profile, model, provider = receiver
        options: dict[str, Any] = {"model": model, "provider": provider}
        more = self.requests.make(view, profile, large=Large(self.session.blobs), **options)
        self.shared += getattr(more, "_shared", 0)
        whole = project(view, profile, blobs=self.fetched(wanted_blobs(view)), **options)
        assert _text(more) == _text(whole), receiver
        return more

    def fetched(self, names: list[str]) -> dict[str, bytes]:
        return {name: self.session.blobs[name] for name in names}


def _walk(session: Session, receivers: tuple[Receiver, ...], fresh: int, skip: int) -> int:
    state, beside = JournalState(), {receiver: Beside(session) for receiver in receivers}
    with patch.object(requests, "_FRESH", fresh):
        for count, record in enumerate(session.records):
            state.apply(record)
            if count % (skip + 1) == 0:
                for receiver in receivers:
                    beside[receiver].check(state.view, receiver)
    return sum(one.shared for one in beside.values())


class Patient(Writer):
    """Draws sessions in which most turns end well, and what is odd comes now and then."""

    def any_step(self) -> None:
        often = (Writer.say, Writer.reply, Writer.reply, Writer.reply, Writer.run, Writer.run)
        odd = (
            *(Writer.finish, Writer.approval, Writer.conclude, Writer.start, Writer.stream),
            *(Writer.crash, Writer.end, Writer.note, Patient.shorten, Writer.compact),
        )
        if not self.chance(6):
            self.pick(*often)(self)
        elif self.chance(9):
            self.rewind()
        else:
            self.pick(*odd)(self)

    def shorten(self) -> None:
        fields = {"through": self.pick(0, self.place()), "limit": self.pick(0, 3, 40)}
        self.put("compacted", self.mark("S"), shortened=self.place(), **fields)


@st.composite
def patient_sessions(draw: st.DrawFn) -> Session:
    """A long session, often in one dialect."""
    spoken = draw(st.sampled_from([DIALECTS, *((dialect,) for dialect in DIALECTS)]))
    return Patient(draw, spoken, wild=False).write(draw(st.integers(15, 40)))


receivers = st.lists(st.sampled_from(ALL_RECEIVERS), min_size=3, max_size=3, unique=True)


@FEWER
@given(
    session=sessions(most=24) | sessions(wild=True, most=24),
    others=receivers,
    fresh=st.integers(1, 2),
    skip=st.integers(0, 2),
)
def test_going_on_gives_what_starting_anew_gives(
    session: Session, others: list[Receiver], fresh: int, skip: int
) -> None:
    _walk(session, (*DIALECT_RECEIVERS, *others), fresh, skip)


@FEWER
@given(session=patient_sessions(), others=receivers, fresh=st.integers(1, 2))
def test_a_long_session_goes_on_and_on(
    session: Session, others: list[Receiver], fresh: int
) -> None:
    _walk(session, (*DIALECT_RECEIVERS, *others), fresh, 0)


class Talk:
    """A conversation of plain turns in one dialect, to which facts are added by hand."""

    def __init__(self, dialect: str = "anthropic") -> None:
        self.dialect, self.session, self.state = dialect, Session(), JournalState()
        self.beside = Beside(self.session)
        self.turns = 0

    def add(self, event: dict[str, Any]) -> int:
        seq = self.session.add(event)
        self.state.apply(self.session.records[-1])
        return seq

    def turn(self, *, outcome: dict[str, Any] | None = None) -> int:
        """Ask, call and answer; gives the record of the reply that called."""
        self.turns += 1
        self.add({"kind": "said", "payload": f"question {self.turns}"})
        reply = self.reply((Asked(f"call_{self.turns}", "grep", "x"),))
        told = outcome or {"kind": "finished", "payload": f"output {self.turns}"}
        self.add({**told, "reply": reply})
        self.reply(())
        return reply

    def reply(self, calls: tuple[Asked, ...]) -> int:
        speech = Speech(self.turns * 2 + bool(calls), f"words {self.turns}", calls)
        payload = reply_of(self.dialect, speech).response
        asked = [{"id": call.id, "name": call.name} for call in calls]
        fields = {"dialect": self.dialect, "calls": asked, "provider": "x", "model": "m"}
        return self.add({"kind": "replied", "payload": payload, **fields})

    def request(self, receiver: str = "") -> list[Any]:
        return self.beside.check(self.state.view, (receiver or self.dialect, None, None))

    @property
    def shared(self) -> int:
        """How many messages the next request shares with the last one."""
        return len(next(iter(self.beside.requests.kept.values())).messages)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("receiver", DIALECTS)
def test_all_but_the_end_of_a_request_is_shared(dialect: str, receiver: str) -> None:
    talk = Talk(dialect)
    for _ in range(12):
        talk.turn()
        talk.add({"kind": "said", "payload": "go on"})
        messages = talk.request(receiver)
    assert talk.shared > len(messages) - 10


LATER: dict[str, dict[str, Any]] = {
    "late result": {"kind": "finished", "payload": "at last"},
    "started again": {"kind": "started"},
    "compacted": {"kind": "compacted", "through": 12, "payload": "in short"},
    "shortened": {"kind": "compacted", "shortened": 12, "limit": 3},
    "rewound": {"kind": "rewound", "to": 9},
    "forgotten": {"kind": "rewound", "to": 0},
}


@pytest.mark.parametrize("what", LATER)
@pytest.mark.parametrize("receiver", ["anthropic", "gemini"])
def test_what_changes_the_past_is_seen(what: str, receiver: str) -> None:
    talk = Talk()
    concluded = {"kind": "finished", "synthetic": True, "outcome": "unknown"}
    first = talk.turn(outcome=concluded)
    for _ in range(8):
        talk.turn()
        before = talk.request(receiver)
    assert talk.shared
    event = LATER[what]
    talk.add({**event, "reply": first} if event["kind"] in {"finished", "started"} else event)
    after = talk.request(receiver)
    changed = what != "started again"
    assert (_text(after[: len(before)]) != _text(before)) is changed
    for _ in range(3):
        talk.turn()
        talk.request(receiver)


def test_an_approval_of_long_ago_is_seen() -> None:
    talk = Talk()
    first = talk.turn(outcome={"kind": "waiting"})
    for event in ({"kind": "approved"}, {"kind": "started"}, {"kind": "finished", "payload": "x"}):
        for _ in range(6):
            talk.turn()
            talk.request()
        assert talk.shared
        talk.add({**event, "reply": first})
        talk.request()


def test_thinking_that_a_late_result_unbinds_goes_from_the_shared_part() -> None:
    """Models that mind another past get their thinking back only where that is unchanged."""
    receiver = ("anthropic", "claude-fable-5-1", None)
    talk = Talk()
    first = talk.turn(outcome={"kind": "finished", "synthetic": True, "outcome": "unknown"})
    for number in range(8):
        talk.add({"kind": "said", "payload": "and?"})
        speech = Speech(900 + number, "words", thought="<R1>", seal=f"SEAL{number:04d}")
        payload = reply_of("anthropic", speech).response
        fields = {"dialect": "anthropic", "model": "claude-fable-5-1", "provider": "x"}
        talk.add({"kind": "replied", "payload": payload, **fields})
        talk.add({"kind": "said", "payload": "go on"})
        before = talk.beside.check(talk.state.view, receiver)
    assert talk.shared
    assert "SEAL0001" in _text(before)
    talk.add({"kind": "finished", "payload": "at last", "reply": first})
    assert "SEAL" not in _text(talk.beside.check(talk.state.view, receiver))


def test_another_model_makes_the_request_anew() -> None:
    talk = Talk()
    for _ in range(8):
        talk.turn()
        talk.request()
    shared = talk.shared
    speech = Speech(99, "words", thought="<R1>", seal="SEAL0001")
    payload = reply_of("anthropic", speech).response
    fields = {"dialect": "anthropic", "provider": "y", "model": "n"}
    talk.add({"kind": "replied", "payload": payload, **fields})
    talk.add({"kind": "said", "payload": "go on"})
    talk.request()
    assert talk.shared >= shared


def test_an_id_of_long_ago_that_comes_again_is_found() -> None:
    talk = Talk()
    for _ in range(8):
        talk.turn()
        talk.request()
    talk.turns = 0
    talk.turn()
    messages = talk.request()
    assert lockstitch.check(messages, "anthropic") == []


def test_words_behind_an_empty_reply_join_those_before_it() -> None:
    talk = Talk()
    for _ in range(4):
        talk.turn()
        talk.add({"kind": "said", "payload": "go on"})
        talk.add({"kind": "replied", "dialect": "anthropic"})
        for words in ("now", "and now"):
            talk.request()
            talk.add({"kind": "said", "payload": words})
        talk.request()


def test_words_before_a_reply_that_was_replaced_join_the_results_before_them() -> None:
    """What came of a stream is taken out when more comes, and stands behind what was said then."""
    talk = Talk()
    with patch.object(requests, "_FRESH", 1):
        for number in range(4):
            talk.add({"kind": "said", "payload": "question"})
            reply = talk.reply((Asked(f"call_{number}", "grep", "x"),))
            talk.add({"kind": "finished", "reply": reply, "payload": "output"})
            for words in ("some", "more", "all"):
                payload = reply_of("anthropic", Speech(50 + number, words)).response
                fields = {"dialect": "anthropic", "stream": f"s{number}", "payload": payload}
                talk.add({"kind": "partial", **fields})
                talk.request()
                talk.add({"kind": "said", "payload": f"behind {words}"})
                talk.request()


def test_only_so_many_requests_are_kept() -> None:
    talk = Talk()
    for _ in range(8):
        talk.turn()
        for receiver in DIALECTS:
            talk.request(receiver)
    assert len(talk.beside.requests.kept) == 2
