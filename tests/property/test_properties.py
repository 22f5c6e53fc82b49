"""What must hold for every conversation, however broken."""

from __future__ import annotations

import re
import warnings
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstitch
from lockstitch.repair.edits import apply
from tests.dump import dump
from tests.kinds_of_break.pairs import pairs
from tests.kinds_of_break.render import FORMS
from tests.oracles import problems

from .marks import marks
from .pieces import json_values
from .strategies import DIALECTS, bent, mutated, structured, with_junk

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
every_form = pytest.mark.parametrize("form", FORMS)


def _heal(messages: Any, dialect: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lockstitch.Unhealed)
        return lockstitch.heal(messages, dialect)


@every_dialect
@given(data=st.data())
def test_healed_is_valid(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(structured(dialect))
    plan = lockstitch.plan(messages, dialect)
    assert plan.remaining == []
    assert problems(dialect, plan.messages) == []
    assert lockstitch.heal(messages, dialect) == plan.messages


@every_dialect
@given(data=st.data())
def test_damaged_histories_are_healed(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(mutated(dialect))
    plan = lockstitch.plan(messages, dialect)
    assert plan.remaining == []
    assert problems(dialect, plan.messages) == []
    assert lockstitch.heal(plan.messages, dialect) is plan.messages
    assert apply(plan.edits, messages) == plan.messages
    left = dump([plan.messages, plan.quarantine])
    assert [text for text in _texts(messages) if dump(text)[1:-1] not in left] == []


def _texts(value: Any) -> list[str]:
    """Everything that somebody said or a tool returned, wherever the dialects keep it."""
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if not isinstance(value, dict):
        return []
    own = [value.get(key) for key in ("text", "content", "output", "refusal")]
    inner = [text for item in value.values() for text in _texts(item)]
    return [text for text in own if isinstance(text, str) and text.strip()] + inner


@every_dialect
@given(data=st.data())
def test_healed_junk_is_valid_or_said_not_to_be(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(with_junk(dialect))
    plan = lockstitch.plan(messages, dialect)
    if not [f for f in plan.remaining if f.severity == "error"]:
        assert problems(dialect, plan.messages) == []
    lost = marks(messages) - marks(plan.messages) - marks(plan.quarantine)
    assert {mark for mark in lost if not mark.startswith("<U")} == set()


@every_dialect
@given(data=st.data())
def test_healing_twice_changes_nothing_more(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(structured(dialect) | with_junk(dialect))
    healed = _heal(messages, dialect)
    assert _heal(healed, dialect) is healed


@every_dialect
@given(data=st.data())
def test_without_findings_the_very_same_object(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(structured(dialect))
    if not lockstitch.check(messages, dialect):
        assert problems(dialect, messages) == []
        assert lockstitch.heal(messages, dialect) is messages


@every_form
@given(data=st.data())
def test_healthy_conversations_have_no_findings(form: str, data: st.DataObject) -> None:
    turns, _ = data.draw(bent(0))
    dialect, render = FORMS[form]
    messages = render(turns)
    assert problems(dialect, messages) == []
    assert lockstitch.check(messages, dialect) == []
    assert lockstitch.heal(messages, dialect) is messages


@every_dialect
@given(data=st.data())
def test_the_input_is_never_changed(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(structured(dialect) | with_junk(dialect))
    before = deepcopy(messages)
    _heal(messages, dialect)
    assert messages == before


@every_dialect
@given(data=st.data())
def test_what_stands_before_the_first_finding_is_kept(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(structured(dialect))
    plan = lockstitch.plan(messages, dialect)
    places = [re.search(r"\d+", finding.place) for finding in plan.findings]
    first = min((int(place[0]) if place else 0 for place in places), default=len(messages))
    # Where roles must alternate, what is mended may join the message before it.
    joined = dialect in ("bedrock", "openai-chat:mistral") and plan.changed
    for index in range(first - 1 if joined else first):
        assert plan.messages[index] is messages[index]


@every_dialect
@given(data=st.data())
def test_no_text_is_lost(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(structured(dialect))
    plan = lockstitch.plan(messages, dialect)
    assert marks(messages) - marks(plan.messages) - marks(plan.quarantine) == set()


@every_dialect
@given(data=st.data())
def test_findings_and_changes_show_no_content(dialect: str, data: st.DataObject) -> None:
    plan = lockstitch.plan(data.draw(structured(dialect)), dialect)
    assert marks([plan.findings, plan.changes]) == set()


@every_dialect
@given(data=st.data())
def test_edits_give_the_healed_list(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(structured(dialect) | with_junk(dialect))
    plan = lockstitch.plan(messages, dialect)
    assert apply(plan.edits, messages) == plan.messages


@every_dialect
@given(value=json_values)
def test_any_json_is_taken_or_refused_politely(dialect: str, value: Any) -> None:
    for use in (_heal, lockstitch.check, lockstitch.plan):
        try:
            use(value, dialect)
        except lockstitch.UsageError:
            assert not isinstance(value, list)


@given(data=st.data())
def test_detection_fails_only_politely(data: st.DataObject) -> None:
    value = data.draw(with_junk(data.draw(st.sampled_from(DIALECTS))) | json_values)
    try:
        lockstitch.heal(value)
    except lockstitch.UsageError:
        pass
    except lockstitch.Unhealed:
        pass


@every_form
@given(data=st.data())
def test_results_stay_with_their_calls(form: str, data: st.DataObject) -> None:
    turns, belongs = data.draw(bent())
    dialect, render = FORMS[form]
    messages = render(turns)
    healed = lockstitch.heal(messages, dialect)
    assert problems(dialect, healed) == []
    found = pairs(dialect, healed)
    for result, call in belongs.items():
        assert [said for said, got in found if result in got and call in said], (result, call)
    assert marks(messages) - marks(healed) == set()


@every_form
@given(data=st.data())
def test_bodies_are_healed_around_their_lists(form: str, data: st.DataObject) -> None:
    turns, _ = data.draw(bent())
    dialect, render = FORMS[form]
    messages = render(turns)
    key = {"openai-responses": "input", "gemini": "contents"}.get(dialect, "messages")
    body = {"temperature": 0.5, key: messages}
    plan = lockstitch.plan(body, dialect)
    assert plan.remaining == []
    assert problems(dialect, plan.messages) == []
    assert marks(body) - marks(plan.messages) == set()
    assert form == "langchain-objects" or apply(plan.edits, body) == plan.messages
    assert (plan.messages is body) == (plan.messages == body)
    assert lockstitch.heal(plan.messages, dialect) is plan.messages
