"""What must hold for every conversation, however broken."""

from __future__ import annotations

import re
import warnings
from copy import deepcopy
from dataclasses import dataclass
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
from tests.together import Together

from .marks import marks
from .pieces import json_values
from .strategies import DIALECTS, bent, mutated, structured, with_junk

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
every_form = pytest.mark.parametrize("form", FORMS)


def _heal(messages: Any, dialect: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lockstitch.Unhealed)
        return lockstitch.heal(messages, dialect)


@dataclass(frozen=True)
class Case:
    """A list, and what is made of it."""

    dialect: str
    messages: list[Any]
    before: list[Any]
    plan: lockstitch.Plan

    @classmethod
    def of(cls, dialect: str, messages: list[Any]) -> Case:
        before = deepcopy(messages)
        return cls(dialect, messages, before, lockstitch.plan(messages, dialect))


# To make a list takes longer than to check it: each is made once, and all promises are checked.
broken, spoiled = Together(), Together()


@every_dialect
@given(data=st.data())
def test_every_promise_for_broken_lists(dialect: str, data: st.DataObject) -> None:
    broken.made(Case.of(dialect, data.draw(structured(dialect))))


@every_dialect
@given(data=st.data())
def test_every_promise_for_junk(dialect: str, data: st.DataObject) -> None:
    spoiled.made(Case.of(dialect, data.draw(with_junk(dialect))))


@broken.check
def healed_is_valid(case: Case) -> None:
    assert case.plan.remaining == []
    assert problems(case.dialect, case.plan.messages) == []


@spoiled.check
def healed_junk_is_valid_or_said_not_to_be(case: Case) -> None:
    if not [f for f in case.plan.remaining if f.severity == "error"]:
        assert problems(case.dialect, case.plan.messages) == []
    lost = marks(case.messages) - marks(case.plan.messages) - marks(case.plan.quarantine)
    assert {mark for mark in lost if not mark.startswith("<U")} == set()


@broken.check
def a_plan_is_what_healing_does(case: Case) -> None:
    assert lockstitch.heal(case.messages, case.dialect) == case.plan.messages


@broken.check
@spoiled.check
def healing_twice_changes_nothing_more(case: Case) -> None:
    healed = _heal(case.messages, case.dialect)
    assert _heal(healed, case.dialect) is healed


@broken.check
def without_findings_it_is_the_very_same_object(case: Case) -> None:
    if not lockstitch.check(case.messages, case.dialect):
        assert problems(case.dialect, case.messages) == []
        assert lockstitch.heal(case.messages, case.dialect) is case.messages


@broken.check
def what_stands_before_the_first_finding_is_kept(case: Case) -> None:
    messages, plan = case.messages, case.plan
    places = [re.search(r"\d+", finding.place) for finding in plan.findings]
    first = min((int(place[0]) if place else 0 for place in places), default=len(messages))
    # Where roles must alternate, what is mended may join the message before it.
    joined = case.dialect in ("bedrock", "openai-chat:mistral") and plan.changed
    for index in range(first - 1 if joined else first):
        assert plan.messages[index] is messages[index]


@broken.check
def no_text_is_lost(case: Case) -> None:
    plan = case.plan
    assert marks(case.messages) - marks(plan.messages) - marks(plan.quarantine) == set()


@broken.check
def findings_and_changes_show_no_content(case: Case) -> None:
    assert marks([case.plan.findings, case.plan.changes]) == set()


@broken.check
@spoiled.check
def edits_give_the_healed_list(case: Case) -> None:
    assert apply(case.plan.edits, case.messages) == case.plan.messages


# Behind all the others, which must not change it, either.
@broken.check
@spoiled.check
def the_input_is_never_changed(case: Case) -> None:
    assert case.messages == case.before


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
def test_results_stay_with_their_calls_also_within_a_body(form: str, data: st.DataObject) -> None:
    turns, belongs = data.draw(bent())
    dialect, render = FORMS[form]
    messages = render(turns)
    healed = lockstitch.heal(messages, dialect)
    assert problems(dialect, healed) == []
    found = pairs(dialect, healed)
    for result, call in belongs.items():
        assert [said for said, got in found if result in got and call in said], (result, call)
    assert marks(messages) - marks(healed) == set()
    _check_body(form, dialect, messages)


def _check_body(form: str, dialect: str, messages: Any) -> None:
    key = {"openai-responses": "input", "gemini": "contents"}.get(dialect, "messages")
    body = {"temperature": 0.5, key: messages}
    plan = lockstitch.plan(body, dialect)
    assert plan.remaining == []
    assert problems(dialect, plan.messages) == []
    assert marks(body) - marks(plan.messages) == set()
    assert form == "langchain-objects" or apply(plan.edits, body) == plan.messages
    assert (plan.messages is body) == (plan.messages == body)
    assert lockstitch.heal(plan.messages, dialect) is plan.messages
