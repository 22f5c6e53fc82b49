"""Single stories whose end is known: what the model is told, word for word where that matters."""

from __future__ import annotations

from typing import Any

import pytest

import lockstitch
from lockstitch.journal.events import Finished, entry_of, payload_of
from lockstitch.journal.projection import wanted_blobs
from lockstitch.journal.records import JournalEntry
from lockstitch.journal.requests import project
from lockstitch.journal.state import fold
from tests.kinds_of_break.pairs import pairs
from tests.oracles import problems

from .replies import DIALECTS, Asked, Speech, reply_of
from .sessions import Session
from .shown import text_of

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def _request(session: Session, dialect: str, **receiver: Any) -> list[Any]:
    messages = project(fold(session.records).view, dialect, blobs=session.blobs, **receiver)
    assert lockstitch.check(messages, dialect) == []
    assert problems(dialect, messages) == []
    return messages


def _asked(session: Session, dialect: str, count: int, **more: Any) -> int:
    """A reply of some calls; gives its position."""
    number = len(session.records)
    calls = tuple(Asked(f"call{number:03d}{n:02d}", "bash", f"<A{n}>") for n in range(count))
    speech = Speech(number, f"<T{number}>", calls, more.pop("thought", ""), more.pop("seal", ""))
    asked = [{"id": call.id, "name": call.name} for call in calls]
    payload = reply_of(dialect, speech).response
    event = {"kind": "replied", "dialect": dialect, "calls": asked, "payload": payload}
    return session.add({**event, **more})


def _told(session: Session, kind: str, reply: int, index: int, **more: Any) -> None:
    session.add({"kind": kind, "reply": reply, "index": index, **more})


@every_dialect
def test_the_model_is_told_where_every_call_stands(dialect: str) -> None:
    session = Session()
    session.add({"kind": "said", "payload": "go"})
    reply = _asked(session, "anthropic", 9)
    _told(session, "started", reply, 1)
    _told(session, "waiting", reply, 2)
    _told(session, "waiting", reply, 3)
    _told(session, "approved", reply, 3)
    _told(session, "waiting", reply, 4)
    _told(session, "denied", reply, 4, payload="not on a Friday")
    for index, outcome in ((5, "cancelled"), (6, "timed-out"), (7, "unknown")):
        _told(session, "started", reply, index)
        _told(session, "finished", reply, index, outcome=outcome, synthetic=True)
    _told(session, "finished", reply, 8, outcome="error", payload="no such file <T90>")
    answers = [answer for _, answer in pairs(dialect, _request(session, dialect))]
    told = ("not started", "running", "waiting", "not started", "not allowed")
    told += ("cancelled", "time", "unknown", "no such file <T90>")
    assert [word for word, answer in zip(told, answers, strict=True) if word not in answer] == []
    assert "not on a Friday" in answers[4]
    assert not any("<T90>" in answer for answer in answers[:8])


@every_dialect
def test_two_of_three_results_outlive_a_crash(dialect: str) -> None:
    session = Session()
    session.add({"kind": "said", "payload": "go"})
    reply = _asked(session, dialect, 3)
    for index in range(3):
        _told(session, "started", reply, index)
    _told(session, "finished", reply, 2, payload="<T92>")
    _told(session, "finished", reply, 0, payload="<T90>")
    _told(session, "finished", reply, 1, outcome="unknown", synthetic=True)
    session.add({"kind": "interrupted", "reason": "crash"})
    answers = [answer for _, answer in pairs(dialect, _request(session, dialect))]
    assert ["<T90>" in answers[0], "unknown" in answers[1], "<T92>" in answers[2]] == [True] * 3
    session.add({"kind": "said", "payload": "go on"})
    _told(session, "finished", reply, 1, payload="<T91>")
    answers = [answer for _, answer in pairs(dialect, _request(session, dialect))]
    assert "<T91>" in answers[1]
    _told(session, "finished", reply, 1, payload="<T93>")
    messages = _request(session, dialect)
    assert "<T91>" in pairs(dialect, messages)[1][1]
    assert text_of(messages).count("<T93>") == 1


@every_dialect
def test_a_result_after_the_summary_is_not_lost(dialect: str) -> None:
    session = Session()
    session.add({"kind": "said", "payload": "go"})
    reply = _asked(session, dialect, 1)
    _told(session, "started", reply, 0)
    _told(session, "finished", reply, 0, outcome="unknown", synthetic=True)
    last = _asked(session, dialect, 0)
    session.add({"kind": "compacted", "through": last, "payload": "<S1>"})
    session.add({"kind": "said", "payload": "<T80>"})
    assert "<A0>" not in text_of(_request(session, dialect))
    _told(session, "finished", reply, 0, payload="<T90>")
    text = text_of(_request(session, dialect))
    assert [text.count(mark) for mark in ("<S1>", "<T80>", "<T90>", "<A0>")] == [1, 1, 1, 0]


MINDFUL, OLDER = "claude-fable-5-1", "claude-opus-4-1"


@pytest.mark.parametrize(("model", "kept"), [(MINDFUL, False), (OLDER, True)])
def test_a_thought_is_left_out_when_its_past_has_changed(model: str, kept: bool) -> None:
    """Some models take a thought back only behind the very past that it was thought in."""
    session = Session()
    issued = {"provider": "anthropic", "model": model}
    session.add({"kind": "said", "payload": "go"})
    first = _asked(session, "anthropic", 1, thought="<R1>", seal="SEAL0001", **issued)
    _told(session, "started", first, 0)
    _told(session, "finished", first, 0, outcome="unknown", synthetic=True)
    _asked(session, "anthropic", 0, thought="<R2>", seal="SEAL0002", **issued)
    session.add({"kind": "said", "payload": "and?"})
    before = text_of(_request(session, "anthropic", **issued))
    assert "SEAL0001" in before
    assert "SEAL0002" in before
    _told(session, "finished", first, 0, payload="<T90>")
    after = text_of(_request(session, "anthropic", **issued))
    assert "<T90>" in after
    assert "SEAL0001" in after, "nothing before it has changed"
    assert ("SEAL0002" in after) is kept


@every_dialect
def test_a_large_result_comes_from_its_blob(dialect: str) -> None:
    session = Session()
    session.add({"kind": "said", "payload": "go"})
    reply = _asked(session, dialect, 1)
    large = '"' + "<T90>" + "x" * 100_000 + '"'
    entry: JournalEntry = entry_of(Finished(reply=reply, payload=payload_of(large)), "large", 0)
    [blob] = entry.blobs
    assert len(entry.body) < 500
    session.add(entry.body)
    [name] = wanted_blobs(fold(session.records).view)
    session.blobs[name] = blob
    [(_, answer)] = pairs(dialect, _request(session, dialect))
    assert "<T90>xxx" in answer


@every_dialect
def test_said_while_tools_run_stands_behind_their_results(dialect: str) -> None:
    session = Session()
    session.add({"kind": "said", "payload": "<T80>"})
    reply = _asked(session, dialect, 2)
    _told(session, "started", reply, 0)
    session.add({"kind": "said", "payload": "<T81>"})
    _told(session, "finished", reply, 0, payload="<T90>")
    text = text_of(_request(session, dialect))
    order = [text.index(mark) for mark in ("<T80>", "<A0>", "<A1>", "<T90>", "<T81>")]
    assert order == sorted(order)
