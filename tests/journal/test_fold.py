"""The fold agrees with the words of its contract, and takes whatever comes."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lockstitch.journal.records import JournalRecord
from lockstitch.journal.state import JournalState, JournalView, Late, ModelReply, Spoken, fold
from tests.property.pieces import json_values

from .sessions import Session, _written, sessions
from .words import Seen, seen_in

FEWER = settings(max_examples=max(1, settings().max_examples // 3))
every_session = given(session=sessions() | sessions(wild=True))


def _same(state: JournalState, seen: Seen) -> None:
    view = state.view
    assert [fact.seq for fact in state.line(state.seq)] == seen.line
    assert _items(view) == seen.items
    assert _calls(view) == seen.calls
    points = [(point.seq, point.at, point.kind, point.label) for point in view.checkpoints]
    assert points == seen.checkpoints
    summary = view.summary and (view.summary.seq, view.summary.cut, view.summary.kept)
    assert summary == seen.summary
    assert (view.turn, view.interrupted) == (seen.turn, seen.interrupted)


def _items(view: JournalView) -> list[tuple[str, int]]:
    """The timeline, without a first real outcome that is told by its call as well."""
    kinds = {Spoken: "said", ModelReply: "reply", Late: "note"}
    return [(kinds[type(item)], item.seq) for item in view.items if not _is_first(item)]


def _is_first(item: Any) -> bool:
    if not isinstance(item, Late) or item.call.is_late:
        return False
    return item.call.outcome is not None and item.call.outcome.seq == item.seq


def _calls(view: JournalView) -> dict[tuple[int, int], dict[str, Any]]:
    return {
        place: {
            "id": call.id,
            "name": call.name,
            "status": call.status,
            "attempts": call.attempts,
            "effect": call.effect,
            "outcome": (call.outcome.seq, call.outcome.is_real) if call.outcome else None,
            "news": call.is_late,
            "outside": call.is_outside,
        }
        for place, call in view.calls.items()
    }


@every_session
def test_every_prefix_means_what_the_words_say(session: Session) -> None:
    state = JournalState()
    for count, record in enumerate(session.records, 1):
        state.apply(record)
        _same(state, seen_in(session.records[:count]))


@FEWER
@every_session
def test_calls_are_those_of_the_replies_that_are_seen(session: Session) -> None:
    view = fold(session.records).view
    own = {
        (c.reply, c.index): c
        for item in view.items
        if isinstance(item, ModelReply)
        for c in item.calls
    }
    assert own == view.calls
    assert all(own[place] is call for place, call in view.calls.items())


@FEWER
@every_session
def test_step_by_step_is_the_same_as_at_once(session: Session) -> None:
    state = JournalState()
    for count, record in enumerate(session.records, 1):
        state.apply(record)
        at_once = fold(session.records[:count])
        assert state.view == at_once.view
        assert (state.seq, state.keys, state.facts) == (at_once.seq, at_once.keys, at_once.facts)


@FEWER
@given(session=sessions(wild=True), data=st.data())
def test_a_record_that_comes_again_changes_nothing(session: Session, data: st.DataObject) -> None:
    whole = fold(session.records)
    again = JournalState()
    for count, record in enumerate(session.records, 1):
        again.apply(record)
        again.apply(data.draw(st.sampled_from(session.records[:count])))
    assert (again.view, again.facts, again.keys) == (whole.view, whole.facts, whole.keys)


@FEWER
@given(session=sessions(wild=True), data=st.data())
def test_a_key_that_comes_again_changes_nothing(session: Session, data: st.DataObject) -> None:
    state = fold(session.records)
    view = fold(session.records).view
    record = data.draw(st.sampled_from(session.records))
    seq = session.add(record.body, key=record.key)
    state.apply(session.records[-1])
    assert state.view == view
    assert state.seq == seq
    assert state.keys[record.key] == min(r.seq for r in session.records if r.key == record.key)


@FEWER
@given(session=sessions() | sessions(wild=True), data=st.data())
def test_a_rewind_can_be_taken_back(session: Session, data: st.DataObject) -> None:
    before = fold(session.records)
    last = before.seq
    session.add({"kind": "rewound", "to": data.draw(st.integers(0, last))})
    if data.draw(st.booleans()):
        session.add({"kind": "said", "payload": "off the line"})
        session.add({"kind": "rewound", "to": data.draw(st.integers(0, session.records[-1].seq))})
    session.add({"kind": "rewound", "to": last})
    assert fold(session.records).view == before.view


@FEWER
@given(session=sessions() | sessions(wild=True), data=st.data())
def test_a_rewind_gives_what_was_there(session: Session, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(session.records)))
    then = fold(session.records[:count])
    session.add({"kind": "rewound", "to": session.records[count - 1].seq})
    now = fold(session.records)
    # what a tool gave while its call was off the line counts wherever the call is seen again
    assume(not now.off_line)
    assert now.view == then.view


@FEWER
@given(session=sessions() | sessions(wild=True), data=st.data())
def test_a_compaction_can_be_taken_back(session: Session, data: st.DataObject) -> None:
    session.add({"kind": "compacted", "through": 0})
    before = fold(session.records).view.sent()
    through = data.draw(st.integers(0, len(session.records)))
    session.add({"kind": "compacted", "through": through, "payload": "in short"})
    session.add({"kind": "compacted", "through": 0})
    assert fold(session.records).view.sent() == before


def _json(value: Any) -> bytes:
    return repr(value).encode("utf-8", "replace") if _is_odd(value) else _written(value)


def _is_odd(value: Any) -> bool:
    try:
        _written(value)
    except UnicodeEncodeError:
        return True
    return False


@FEWER
@given(bodies=st.lists(json_values.map(_json) | st.binary(max_size=60), max_size=8))
def test_no_body_makes_it_raise(bodies: list[bytes]) -> None:
    session = Session()
    for body in bodies:
        session.add(body)
    assert fold(session.records).seq == len(bodies)
    assert fold(session.records).view == JournalView()


@FEWER
@given(session=sessions(wild=True), gaps=st.lists(st.integers(1, 3), min_size=200, max_size=200))
def test_gaps_in_the_numbers_are_no_ends(session: Session, gaps: list[int]) -> None:
    """A store never has any; a fold of what is left of one may."""
    seq, records = 0, []
    for record, gap in zip(session.records, gaps, strict=False):
        seq += gap
        records.append(JournalRecord(seq, 1, record.key, record.at, record.body, b""))
    state = fold(records)
    assert state.seq == seq
    _same(state, seen_in(records))
