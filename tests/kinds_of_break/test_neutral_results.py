"""A text of ours that stands for a result is known again: a real result found later replaces it."""

from __future__ import annotations

from typing import Any

import pytest

import lockstitch
from lockstitch.conversation.parts import RESULT
from lockstitch.dialects import placeholders
from lockstitch.dialects.openai_responses import CALL_KINDS
from lockstitch.dialects.placeholders import PARTIAL, is_placeholder, vendor_of
from lockstitch.dialects.profiles import new_dialect
from lockstitch.journal.messages import import_events
from tests.dump import dump
from tests.oracles import problems

from .conversations import Ask, Call, Done, Result, Say, Turn
from .pairs import pairs
from .render import FORMS

pytestmark = pytest.mark.filterwarnings("error")

CALLED = Say("looking", (Call("call00001", "<first>", "read"), Call("call00002", "<second>", "ls")))
FIRST = Result("call00001", "<the first file>", "read")
SECOND = Result("call00002", "<the listing>", "ls")
ASKED: list[Turn] = [Ask("look"), CALLED]
LATER: list[Turn] = [Ask("and now?"), Say("done"), Ask("go on")]

# Every text that Lockstitch writes where a result is missing, from whatever place it does.
OWN = {
    name: text
    for name, text in vars(placeholders).items()
    if name.isupper() and isinstance(text, str)
}


def _render(form: str, turns: list[Turn]) -> tuple[str, list[Any]]:
    dialect, render = FORMS[form]
    return dialect, render(turns)


def _answer(dialect: str, messages: list[Any], mark: str) -> str:
    (found,) = (got for call, got in pairs(dialect, messages) if mark in call)
    return found


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", OWN)
def test_each_of_our_own_texts_is_known_as_ours(name: str) -> None:
    assert vendor_of(OWN[name]) == "lockstitch"


@pytest.mark.parametrize("waiting", [(), ("call00001", "call00002")], ids=["open", "waiting"])
@pytest.mark.parametrize("where", ["beside", "behind the turn", "in a later turn", "at the end"])
def test_a_real_result_found_later_replaces_what_heal_wrote(
    form: str, where: str, waiting: tuple[str, ...]
) -> None:
    dialect, messages = _render(form, ASKED + LATER)
    closed = lockstitch.heal(messages, dialect, waiting=waiting)
    answered = len(closed) - len(_render(form, LATER)[1])
    at = {"beside": answered, "behind the turn": answered + 1, "in a later turn": -1}
    late = _render(form, [Done((FIRST, SECOND))])[1]
    cut = at.get(where, len(closed))
    healed = lockstitch.heal([*closed[:cut], *late, *closed[cut:]], dialect)
    assert problems(dialect, healed) == []
    assert FIRST.text in _answer(dialect, healed, "<first>")
    assert SECOND.text in _answer(dialect, healed, "<second>")
    assert [text for text in OWN.values() if text in dump(healed)] == []
    assert lockstitch.heal(healed, dialect) is healed


@pytest.mark.parametrize("name", OWN)
def test_a_real_result_replaces_each_of_our_texts(form: str, name: str) -> None:
    stand_ins = Done((Result(FIRST.id, OWN[name], FIRST.name), SECOND))
    dialect, messages = _render(form, [*ASKED, stand_ins, *LATER, Done((FIRST,))])
    healed = lockstitch.heal(messages, dialect)
    assert problems(dialect, healed) == []
    assert FIRST.text in _answer(dialect, healed, "<first>")
    assert OWN[name] not in dump(healed)


def test_what_had_been_shown_of_an_output_is_replaced_and_never_lost(form: str) -> None:
    part = f"<the first\n\n{PARTIAL}"
    assert is_placeholder(part)
    shown = Done((Result(FIRST.id, part, FIRST.name), SECOND))
    dialect, messages = _render(form, [*ASKED, shown, *LATER, Done((FIRST,))])
    healed = lockstitch.heal(messages, dialect)
    assert FIRST.text in _answer(dialect, healed, "<first>")
    assert PARTIAL not in dump(healed)
    other = Done((Result(FIRST.id, f"other words\n\n{PARTIAL}", FIRST.name), SECOND))
    dialect, messages = _render(form, [*ASKED, other, *LATER, Done((FIRST,))])
    healed = lockstitch.heal(messages, dialect)
    assert FIRST.text in _answer(dialect, healed, "<first>")
    assert "other words" in dump(healed)
    assert problems(dialect, healed) == []


@pytest.mark.parametrize("kind", [kind for kind in CALL_KINDS if kind != "computer_call"])
def test_every_kind_of_output_that_is_written_is_known_again(kind: str) -> None:
    call = {"type": kind, "call_id": "c1", "name": "x", "arguments": "{}", "input": ""}
    if kind == "tool_search_call":
        call |= {"execution": "client"}
    closed = lockstitch.heal([{"role": "user", "content": "a"}, call], "openai-responses")
    dialect = new_dialect("openai-responses")
    parts = [part for message in dialect.read(closed) for part in message.parts]
    assert [dialect.is_placeholder(p) for p in parts if p.kind == RESULT] == [True]
    real = {"type": CALL_KINDS[kind].outputs[0], "call_id": "c1", "output": "<real>"}
    if kind == "tool_search_call":
        real = {**real, "execution": "client", "tools": [{"name": "<real>"}]}
    healed = lockstitch.heal([*closed, {"role": "user", "content": "b"}, real], "openai-responses")
    results = [item for item in healed if str(item.get("type")).endswith("_output")]
    assert len(results) == 1
    assert "<real>" in dump(results)


# Journals take plain data.
@pytest.mark.parametrize("form", [form for form in FORMS if form != "langchain-objects"])
def test_an_imported_text_of_ours_is_an_outcome_that_was_concluded(form: str) -> None:
    dialect, messages = _render(form, ASKED + LATER)
    closed = lockstitch.heal(messages, dialect)
    facts = [
        event for event in import_events(closed, dialect).events if hasattr(event, "synthetic")
    ]
    assert [fact.synthetic for fact in facts] == [True, True]
