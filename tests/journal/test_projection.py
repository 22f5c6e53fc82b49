"""Every prefix of every session makes a request that every provider takes, and nothing is lost."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.journal.fold import State, fold
from lockstitch.journal.projection import project, wanted
from lockstitch.journal.state import View

from .sessions import Session, sessions
from .shown import DIALECT_RECEIVERS, OTHER_RECEIVERS, Receiver, claims, refused

FEWER = settings(max_examples=max(1, settings().max_examples // 3))


def _projected(view: View, session: Session, receiver: Receiver) -> list[Any]:
    profile, model, provider = receiver
    blobs = {name: session.blobs[name] for name in wanted(view)}
    messages = project(view, profile, model=model, provider=provider, blobs=blobs)
    assert lockstitch.check(messages, profile, model=model) == []
    assert refused(profile, messages) == []
    return messages


every_receiver = pytest.mark.parametrize(
    "receiver", DIALECT_RECEIVERS + OTHER_RECEIVERS, ids=lambda r: " ".join(filter(None, r))
)


@every_receiver
@FEWER
@given(session=sessions())
def test_every_prefix_is_valid_and_whole(receiver: Receiver, session: Session) -> None:
    state = State()
    for count, record in enumerate(session.records, 1):
        state.apply(record)
        before = deepcopy(state.view)
        messages = _projected(state.view, session, receiver)
        assert state.view == before
        claims(session, count).check(receiver[0], messages)


@every_receiver
@FEWER
@given(session=sessions(wild=True))
def test_every_prefix_of_anything_is_valid(receiver: Receiver, session: Session) -> None:
    state = State()
    for record in session.records:
        state.apply(record)
        _projected(state.view, session, receiver)
