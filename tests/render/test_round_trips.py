"""There and back again: texts, calls and results come home."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.dialects.profiles import DIALECTS
from lockstitch.dialects.render import render as rendered
from tests.kinds_of_break.render import FORMS
from tests.property.strategies import bent, mutated, structured

from .gist import Gist, gist, histories

every_source = pytest.mark.parametrize("source", DIALECTS)
FEWER = settings(max_examples=settings().max_examples // 3)
PLAIN_FORMS = [form for form in FORMS if form != "langchain-objects"]


def _assert_home(before: Gist, after: Gist) -> None:
    """Every text and call is there again, in order; what was added are labels and notes."""
    left = iter(text for _, text in after.texts)
    assert [text for _, text in before.texts if text not in left] == []
    assert len(after.calls) == len(before.calls)
    for (name, value, result), (called, regained, answer) in zip(
        before.calls, after.calls, strict=True
    ):
        assert name in (None, called)
        assert value in (None, regained)
        assert (result is None) == (answer is None)
        assert (result or "") in (answer or "")


def _there_and_back(messages: list[Any], source: str, target: str) -> list[Any]:
    return rendered(rendered(messages, source, target), target, source)


@every_source
@FEWER
@given(data=st.data())
def test_healed_lists(source: str, data: st.DataObject) -> None:
    messages = lockstitch.plan(data.draw(structured(source) | mutated(source)), source).messages
    for target in DIALECTS:
        back = _there_and_back(messages, source, target)
        assert lockstitch.check(back, source) == []
        _assert_home(gist(messages, source), gist(back, source))


@every_source
@pytest.mark.parametrize("target", DIALECTS)
def test_real_histories(source: str, target: str) -> None:
    for messages in histories(source).values():
        back = _there_and_back(messages, source, target)
        assert lockstitch.check(back, source) == []
        _assert_home(gist(messages, source), gist(back, source))


@pytest.mark.parametrize("form", PLAIN_FORMS)
@FEWER
@given(data=st.data())
def test_plain_conversations_come_back_the_same(form: str, data: st.DataObject) -> None:
    turns, _ = data.draw(bent(0))
    source, render = FORMS[form]
    messages = render(turns)
    for target in DIALECTS:
        back = _there_and_back(messages, source, target)
        assert gist(back, source) == gist(messages, source)


@given(data=st.data())
def test_once_around_all_dialects(data: st.DataObject) -> None:
    turns, _ = data.draw(bent(0))
    form = data.draw(st.sampled_from(PLAIN_FORMS))
    source, render = FORMS[form]
    messages = first = render(turns)
    here = source
    for there in [*data.draw(st.permutations(DIALECTS)), source]:
        messages = rendered(messages, here, there)
        here = there
    assert gist(messages, source) == gist(first, source)
