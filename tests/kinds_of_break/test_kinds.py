"""Every kind of break in every dialect: valid afterwards, and nothing lost that could be kept."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

import lockstitch
from tests.dump import dump
from tests.oracles import problems
from tests.together import Together

from .conversations import BROKEN, HEALTHY, PLACEHOLDER, Conversation, Done, Result, Turn
from .pairs import calls, pairs
from .render import FORMS

pytestmark = pytest.mark.filterwarnings("error")
each = Together()

# Where a provider has no call ids, or does not mind that one comes back, 08 is no break.
# An output of the Responses API may come late, so 05 and 16 are none there.
FINE = {"openai-responses": ("05", "16")} | {
    form: ("08",) for form in FORMS if form.startswith(("langchain", "gemini", "openai-chat"))
}

# Edits are about plain data, so they are not for lists of message objects.
PLAIN_FORMS = [form for form in FORMS if form != "langchain-objects"]

PLACEHOLDERS = (
    (
        "[openclaw] missing tool result in session history; "
        "inserted synthetic error result for transcript repair."
    ),
    (
        "Tool call read_file with id call00001 was cancelled - "
        "another message came in before it could be completed."
    ),
    "[Tool execution was interrupted]",
    "[System: Tool execution skipped/interrupted by user. No result provided for tool 'a'.]",
    "Tool was interrupted.",
    "aborted",
)


def _render(form: str, conversation: Conversation) -> tuple[str, list[Any]]:
    dialect, render = FORMS[form]
    return dialect, render(conversation.turns)


def _is_broken_there(form: str, conversation: Conversation) -> bool:
    return conversation.name[:2] not in FINE.get(form, ())


@pytest.fixture(params=BROKEN, ids=lambda conversation: conversation.name)
def conversation(request: pytest.FixtureRequest) -> Conversation:
    chosen: Conversation = request.param
    return chosen


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@each.check
def the_oracle_sees_the_break(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    assert bool(problems(dialect, messages)) == _is_broken_there(form, conversation)


@each.check
def healed_is_valid(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    assert problems(dialect, lockstitch.heal(messages, dialect)) == []


@each.check
def checked_is_found(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    errors = [f for f in lockstitch.check(messages, dialect) if f.severity == "error"]
    assert bool(errors) == _is_broken_there(form, conversation)


@each.check
def nothing_is_lost(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    plan = lockstitch.plan(messages, dialect)
    left = dump(plan.messages)
    assert [mark for mark in conversation.kept if mark not in left] == []
    beside = left + dump(plan.quarantine)
    assert [mark for mark in conversation.spare if mark not in beside] == []


@each.check
def pairs_stay_together(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    found = pairs(dialect, lockstitch.heal(messages, dialect))
    for result, call in conversation.belongs.items():
        assert [call for text, answer in found if call in text and result in answer] == [call]


@each.check
def orphans_survive_as_text(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    healed = lockstitch.heal(messages, dialect)
    answers = " ".join(answer for _, answer in pairs(dialect, healed))
    assert [mark for mark in conversation.text if mark in answers] == []


@each.check
def no_call_is_invented(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    said = sum(len(getattr(turn, "calls", ())) for turn in conversation.turns)
    assert len(calls(dialect, lockstitch.heal(messages, dialect))) == said


@each.check
def healing_twice_changes_nothing_more(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    healed = lockstitch.heal(messages, dialect)
    assert lockstitch.heal(healed, dialect) is healed
    assert lockstitch.check(healed, dialect) == []


@each.check
def the_input_is_left_alone(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    before = deepcopy(messages)
    lockstitch.heal(messages, dialect)
    assert messages == before


@each.check
def a_body_is_healed_around_its_list(form: str, conversation: Conversation) -> None:
    dialect, messages = _render(form, conversation)
    key = {"openai-responses": "input", "gemini": "contents"}.get(dialect, "messages")
    metadata: dict[str, str] = {}
    body = {"temperature": 1, key: messages, "metadata": metadata}
    healed = lockstitch.heal(body, dialect)
    assert problems(dialect, healed) == []
    assert list(healed)[:3] == list(body)
    assert healed["metadata"] is metadata
    assert [mark for mark in conversation.kept if mark not in dump(healed)] == []
    assert lockstitch.heal(healed, dialect) is healed


def test_every_kind_in_every_form(form: str, conversation: Conversation) -> None:
    each.made(form, conversation)


@pytest.mark.parametrize("form", PLAIN_FORMS)
def test_edits_give_the_healed_list(form: str, conversation: Conversation) -> None:
    from lockstitch.repair.edits import apply

    dialect, messages = _render(form, conversation)
    plan = lockstitch.plan(messages, dialect)
    assert apply(plan.edits, messages) == plan.messages


def test_healthy_comes_back_as_it_is(form: str) -> None:
    dialect, messages = _render(form, HEALTHY)
    assert problems(dialect, messages) == []
    assert lockstitch.check(messages, dialect) == []
    assert lockstitch.heal(messages, dialect) is messages
    assert set(HEALTHY.belongs) == {
        mark for mark in HEALTHY.belongs for _, answer in pairs(dialect, messages) if mark in answer
    }


def _with_placeholder(turn: Turn, text: str) -> Turn:
    if not isinstance(turn, Done):
        return turn
    return Done(
        tuple(Result(r.id, r.text.replace(PLACEHOLDER, text), r.name) for r in turn.results)
    )


@pytest.mark.parametrize("text", PLACEHOLDERS, ids=lambda text: text[:24])
def test_a_real_result_beats_a_foreign_placeholder(form: str, text: str) -> None:
    conversation = next(c for c in BROKEN if c.name.startswith("13"))
    dialect, render = FORMS[form]
    messages = render(_with_placeholder(turn, text) for turn in conversation.turns)
    healed = lockstitch.heal(messages, dialect)
    assert problems(dialect, healed) == []
    for result, call in conversation.belongs.items():
        assert any(call in said and result in got for said, got in pairs(dialect, healed))
