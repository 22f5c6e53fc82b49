"""Every prefix of every session makes a request that every provider takes, and nothing is lost."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.journal.projection import wanted_blobs
from lockstitch.journal.requests import project
from lockstitch.journal.state import JournalState, JournalView, fold

from .sessions import Session, sessions
from .shown import DIALECT_RECEIVERS, OTHER_RECEIVERS, Receiver, claims, refused, text_of

FEWER = settings(max_examples=max(1, settings().max_examples // 3))


def _projected(view: JournalView, session: Session, receiver: Receiver) -> list[Any]:
    profile, model, provider = receiver
    blobs = {name: session.blobs[name] for name in wanted_blobs(view)}
    messages = project(view, profile, model=model, provider=provider, blobs=blobs)
    assert lockstitch.check(messages, profile, model=model) == [], receiver
    assert refused(profile, messages) == [], receiver
    return messages


def _receivers(count: int) -> tuple[Receiver, ...]:
    """Every dialect, and some of the other receivers by turns."""
    some = len(OTHER_RECEIVERS)
    return (*DIALECT_RECEIVERS, *(OTHER_RECEIVERS[(count * 4 + n) % some] for n in range(4)))


@FEWER
@given(session=sessions())
def test_every_prefix_is_valid_and_whole(session: Session) -> None:
    state = JournalState()
    for count, record in enumerate(session.records, 1):
        state.apply(record)
        claim = claims(session, count)
        before = deepcopy(state.view)
        for receiver in _receivers(count):
            claim.check(receiver[0], _projected(state.view, session, receiver))
        assert state.view == before


@FEWER
@given(session=sessions(wild=True))
def test_every_prefix_of_anything_is_valid(session: Session) -> None:
    state = JournalState()
    for count, record in enumerate(session.records, 1):
        state.apply(record)
        said = claims(session, count).said()
        for receiver in _receivers(count):
            text = text_of(_projected(state.view, session, receiver))
            assert [mark for mark in said if mark not in text] == []


@FEWER
@given(session=sessions(wild=True))
def test_without_its_large_values_it_is_still_valid(session: Session) -> None:
    view = fold(session.records).view
    for profile, model, _ in DIALECT_RECEIVERS:
        messages = project(view, profile, model=model)
        assert lockstitch.check(messages, profile) == []
        assert refused(profile, messages) == []


@FEWER
@given(session=sessions(), data=st.data())
def test_a_compaction_taken_back_leaves_no_trace(session: Session, data: st.DataObject) -> None:
    session.add({"kind": "compacted", "through": 0})
    before = [_projected(fold(session.records).view, session, r) for r in DIALECT_RECEIVERS]
    through = data.draw(st.integers(1, len(session.records)))
    session.add({"kind": "compacted", "through": through, "payload": "in short"})
    session.add({"kind": "compacted", "through": 0})
    after = [_projected(fold(session.records).view, session, r) for r in DIALECT_RECEIVERS]
    assert after == before
