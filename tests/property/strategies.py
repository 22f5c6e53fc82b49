"""Conversations of each dialect with everything that is known to go wrong in them.

``structured(dialect)`` gives lists in which every message and block has a shape the dialect knows.
``with_junk(dialect)`` mixes in values that no program should ever have written.
``mutated(dialect)`` joins real histories and damages them in a few places.
``bent()`` gives healthy conversations that were bent afterwards: it is known what belongs where.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.healthy import (
    anthropic,
    bedrock,
    gemini,
    langchain,
    openai_chat,
    openai_responses,
)
from tests.kinds_of_break.conversations import Ask, Call, Done, Result, Say, Turn

from . import shapes
from .marks import number
from .pieces import crooked, json_values, junk_messages

HISTORIES: dict[str, dict[str, Any]] = {
    "anthropic": anthropic.HISTORIES,
    "openai-chat": openai_chat.HISTORIES | openai_chat.MISTRAL,
    "openai-responses": openai_responses.HISTORIES,
    "gemini": gemini.HISTORIES,
    "bedrock": bedrock.HISTORIES,
    "langchain": langchain.HISTORIES,
}
DIALECTS = (
    "anthropic",
    "openai-chat",
    "openai-chat:mistral",
    "openai-responses",
    "gemini",
    "bedrock",
    "langchain",
)


@st.composite
def structured(draw: st.DrawFn, dialect: str) -> list[Any]:
    """A list of messages of *dialect*, numbered; now and then one of them comes twice."""
    message = shapes.MESSAGES[dialect.partition(":")[0]]
    messages: list[Any] = number(draw(st.lists(message, max_size=8)))
    if messages and draw(st.integers(0, 4)) == 0:
        again = draw(st.integers(0, len(messages) - 1))
        messages.insert(draw(st.integers(0, len(messages))), deepcopy(messages[again]))
    form = draw(st.sampled_from(LANGCHAIN_FORMS))
    return form(messages) if dialect == "langchain" else messages


def _as_dicts(messages: list[Any]) -> list[Any]:
    return [{"type": m["type"], "data": m} for m in messages]


def _as_constructors(messages: list[Any]) -> list[Any]:
    path = ["langchain", "schema", "messages"]
    return [
        {"lc": 1, "type": "constructor", "id": [*path, CLASSES[m["type"]]], "kwargs": m}
        for m in messages
    ]


def _as_they_are(messages: list[Any]) -> list[Any]:
    return messages


LANGCHAIN_FORMS = (_as_they_are, _as_dicts, _as_constructors)
CLASSES = {
    "human": "HumanMessage",
    "ai": "AIMessage",
    "tool": "ToolMessage",
    "system": "SystemMessage",
}


@st.composite
def with_junk(draw: st.DrawFn, dialect: str) -> list[Any]:
    """Messages of *dialect* with junk between and inside them, or nothing but junk."""
    messages: list[Any] = draw(st.booleans().flatmap(lambda junk: _start(dialect, junk)))
    for _ in range(draw(st.integers(1, 3))):
        spoil = draw(crooked() | json_values)
        if draw(st.booleans()) and messages:
            _spoil(draw, messages, number(spoil))
        else:
            messages.insert(draw(st.integers(0, len(messages))), number(spoil))
    return messages


def _start(dialect: str, junk: bool) -> st.SearchStrategy[list[Any]]:
    return junk_messages.map(number) if junk else structured(dialect)


def _spoil(draw: st.DrawFn, messages: list[Any], junk: Any) -> None:
    """Put *junk* in the place of some value inside a message."""
    holder: Any = messages
    for _ in range(draw(st.integers(1, 4))):
        keys = list(range(len(holder))) if isinstance(holder, list) else sorted(holder)
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        inner = holder[key]
        if not isinstance(inner, list | dict) or not inner:
            holder[key] = junk
            return
        holder = inner
    if isinstance(holder, list):
        holder.append(junk)


@st.composite
def mutated(draw: st.DrawFn, dialect: str) -> list[Any]:
    """Valid histories one after the other, with some messages and blocks dropped or displaced."""
    messages: list[Any] = []
    for _ in range(draw(st.integers(1, 2))):
        messages += deepcopy(draw(st.sampled_from(_histories(dialect))))
    for _ in range(draw(st.integers(0, 3))):
        places = [messages, *(inner for message in messages for inner in _lists(message))]
        _displace(draw, draw(st.sampled_from([place for place in places if place] or [[None]])))
    return messages


def _histories(dialect: str) -> list[Any]:
    name = dialect.partition(":")[0]
    key = {"openai-responses": "input", "gemini": "contents"}.get(name, "messages")
    lists = [h.get(key) if isinstance(h, dict) else h for h in HISTORIES[name].values()]
    return [messages for messages in lists if isinstance(messages, list) and messages]


def _lists(message: Any) -> list[list[Any]]:
    inner = [message.get(key) for key in ("content", "parts", "tool_calls")]
    return [value for value in inner if isinstance(value, list) and value]


def _displace(draw: st.DrawFn, place: list[Any]) -> None:
    item = place[at := draw(st.integers(0, len(place) - 1))]
    how = draw(st.sampled_from(["drop", "double", "move", "cut"]))
    if how == "cut":
        del place[at:]
    elif how != "double":
        del place[at]
    if how in ("double", "move"):
        place.insert(draw(st.integers(0, len(place))), deepcopy(item))


@st.composite
def bent(draw: st.DrawFn, most: int = 4) -> tuple[list[Turn], dict[str, str]]:
    """Turns that were healthy before some were dropped, doubled or moved, and what belongs where.

    Ids are unique, so there is one right answer to which result belongs to which call.
    """
    turns = draw(_healthy_turns())
    belongs = _belongs(turns)
    for _ in range(draw(st.integers(0, most))):
        turns = draw(_bend(turns))
    left = {r.text for turn in turns if isinstance(turn, Done) for r in turn.results}
    said = {c.mark for turn in turns if isinstance(turn, Say) for c in turn.calls}
    return turns, {r: c for r, c in belongs.items() if r in left and c in said}


@st.composite
def _healthy_turns(draw: st.DrawFn) -> list[Turn]:
    turns: list[Turn] = []
    serial = 0
    for index in range(draw(st.integers(1, 4))):
        turns.append(Ask(f"<T{index}1>"))
        for step in range(draw(st.integers(0, 2))):
            calls, results = [], []
            for _ in range(draw(st.integers(1, 3))):
                serial += 1
                key, tool = f"call{serial:05d}", f"tool_{serial}"
                calls.append(Call(key, f"<A{serial}>", tool))
                results.append(Result(key, f"<T{serial}00>", tool))
            turns += [Say(f"<T{index}{step}2>", tuple(calls)), Done(tuple(results))]
        turns.append(Say(f"<T{index}9>"))
    return turns


def _belongs(turns: list[Turn]) -> dict[str, str]:
    marks = {c.id: c.mark for turn in turns if isinstance(turn, Say) for c in turn.calls}
    results = [r for turn in turns if isinstance(turn, Done) for r in turn.results]
    return {result.text: marks[result.id] for result in results}


@st.composite
def _bend(draw: st.DrawFn, turns: list[Turn]) -> list[Turn]:
    if not turns:
        return turns
    turns = list(turns)
    at = draw(st.integers(0, len(turns) - 1))
    turn = turns[at]
    how = draw(st.sampled_from(["drop", "double", "move", "thin", "split", "swap", "cut_off"]))
    if how == "drop":
        del turns[at]
    elif how == "double" and isinstance(turn, Done):
        turns.insert(draw(st.integers(0, len(turns))), turn)
    elif how == "move":
        turns.insert(draw(st.integers(0, len(turns) - 1)), turns.pop(at))
    elif how == "thin" and isinstance(turn, Done):
        turns[at] = replace(turn, results=turn.results[:-1] or turn.results)
    elif how == "split" and isinstance(turn, Done) and len(turn.results) > 1:
        halves: list[Turn] = [Done(turn.results[:1]), Ask(f"<T77{at}>"), Done(turn.results[1:])]
        turns[at : at + 1] = halves
    elif how == "swap" and isinstance(turn, Done):
        turns[at] = Done(tuple(reversed(turn.results)))
    elif how == "cut_off":
        del turns[at + 1 :]
    return turns
