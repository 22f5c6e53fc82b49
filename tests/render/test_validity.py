"""Whatever is valid in one dialect is valid in every other, and nothing said is lost."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.dialects.profiles import DIALECTS, PROFILES
from lockstitch.dialects.render import find_left_out
from lockstitch.dialects.render import render as rendered
from tests.kinds_of_break.pairs import pairs
from tests.kinds_of_break.render import FORMS
from tests.oracles import problems
from tests.property.marks import marks
from tests.property.strategies import bent, mutated, structured, with_junk

from .gist import gist, histories

every_source = pytest.mark.parametrize("source", DIALECTS)
every_target = pytest.mark.parametrize("target", DIALECTS)
FEWER = settings(max_examples=settings().max_examples // 3)
PLAIN_FORMS = [form for form in FORMS if form != "langchain-objects"]
# The oracles know the authors of the dialects and Mistral, not who else speaks them.
JUDGED = [*DIALECTS, "openai-chat:mistral"]


def _healed(messages: list[Any], dialect: str) -> list[Any]:
    plan = lockstitch.plan(messages, dialect)
    assert plan.remaining == []
    healed: list[Any] = plan.messages
    return healed


def _assert_valid(messages: list[Any], target: str) -> None:
    assert lockstitch.check(messages, target) == []
    if target in JUDGED:
        assert problems(target, messages) == []


@every_source
@given(data=st.data())
def test_rendered_is_valid_and_says_the_same(source: str, data: st.DataObject) -> None:
    messages = _healed(data.draw(structured(source)), source)
    said, thoughts = _said_and_thought(messages, source)
    for target in DIALECTS:
        made = rendered(messages, source, target)
        _assert_valid(made, target)
        assert said - marks(made) == set()
        if target != source and thoughts:
            assert not thoughts & marks(made)
            assert find_left_out(messages, source, target)


def _said_and_thought(messages: list[Any], source: str) -> tuple[set[str], set[str]]:
    """The marks of what must be carried over, and of the reasoning that must not be."""
    found = marks(_without_twins(messages) if source == "langchain" else messages)
    thoughts = {mark for mark in found if mark.startswith("<R")}
    return found - thoughts, thoughts


def _without_twins(value: Any) -> Any:
    """LangChain's content repeats the calls; it is ``tool_calls`` that counts."""
    if isinstance(value, list):
        return [_without_twins(item) for item in value if not _is_twin(item)]
    if isinstance(value, dict):
        return {key: _without_twins(item) for key, item in value.items()}
    return value


def _is_twin(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "tool_use"


@every_source
@FEWER
@given(data=st.data())
def test_rendered_is_valid_for_every_receiver(source: str, data: st.DataObject) -> None:
    messages = _healed(data.draw(structured(source) | mutated(source)), source)
    for target in PROFILES:
        _assert_valid(rendered(messages, source, target), target)


@every_source
@every_target
def test_real_histories(source: str, target: str) -> None:
    for name, messages in histories(source).items():
        before = deepcopy(messages)
        made = rendered(messages, source, target)
        assert lockstitch.check(made, target) == [], name
        assert problems(target, made) == [], name
        assert messages == before


@pytest.mark.parametrize("name", PROFILES)
def test_the_same_name_gives_the_same_object(name: str) -> None:
    for messages in histories(name.partition(":")[0]).values():
        assert rendered(messages, name, name) is messages
        assert find_left_out(messages, name, name) == []


@every_source
@FEWER
@given(data=st.data())
def test_broken_lists_do_no_harm(source: str, data: st.DataObject) -> None:
    messages = data.draw(structured(source) | mutated(source) | with_junk(source))
    before = deepcopy(messages)
    for target in DIALECTS:
        made = rendered(messages, source, target)
        assert isinstance(made, list)
        assert rendered(messages, source, target) == made
        assert all(isinstance(place, str) for place in find_left_out(messages, source, target))
    assert messages == before


@every_source
@FEWER
@given(data=st.data())
def test_words_of_broken_lists_are_kept(source: str, data: st.DataObject) -> None:
    messages = data.draw(mutated(source))
    said = [text for _, text in gist(messages, source).texts]
    for target in DIALECTS:
        kept = str(gist(rendered(messages, source, target), target))
        assert [text for text in said if repr(text)[1:-1] not in kept] == []


@pytest.mark.parametrize("form", PLAIN_FORMS)
@FEWER
@given(data=st.data())
def test_conversations_say_the_same_in_every_dialect(form: str, data: st.DataObject) -> None:
    turns, belongs = data.draw(bent(0))
    source, render = FORMS[form]
    messages = render(turns)
    for target in JUDGED:
        made = rendered(messages, source, target)
        assert problems(target, made) == []
        found = pairs(target, made)
        assert len(found) == len(belongs)
        for result, call in belongs.items():
            assert [call in said for said, answer in found if result in answer] == [True]
        if target != "openai-chat:mistral":
            assert gist(made, target) == gist(messages, source)
