"""Message lists: every rule's broken list n times over, and lists that are long in one way."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import lockstitch
from tests.kinds_of_break.conversations import (
    BROKEN,
    HEALTHY,
    Ask,
    Call,
    Conversation,
    Done,
    Result,
    Say,
    Turn,
)
from tests.kinds_of_break.render import FORMS
from tests.rules.case import Case
from tests.rules.cases import CASES

from .dimension import Dimension, Work, renamed

_LISTS = ("messages", "input", "contents")


def dimensions() -> Iterator[Dimension]:
    """All of them."""
    seen: dict[str, int] = {}
    for case in CASES:
        number = seen[case.name] = seen.get(case.name, 0) + 1
        name = case.name if number == 1 else f"{case.name} ({number})"
        for ids in ("own ids", "same ids"):
            make = _repeated(case, own=ids == "own ids")
            yield from _both(f"rule {name}, {ids}", make, case.dialect, case.model)
    for form, (dialect, write) in FORMS.items():
        for talk in (HEALTHY, *BROKEN):
            for ids in ("own ids", "same ids"):
                turns = _said_again(talk, own=ids == "own ids")
                name = f"conversation {talk.name} {form}, {ids}"
                yield from _both(name, _written(write, turns), dialect)
        for name, shape in SHAPES.items():
            yield from _both(f"shape {name} {form}", _written(write, shape), dialect)
    for (name, dialect), blocks in PARTS.items():
        yield from _both(f"shape {name} {dialect}", blocks, dialect)


def _both(
    name: str, make: Callable[[int], Any], dialect: str, model: str | None = None
) -> Iterator[Dimension]:
    def healing(count: int, _folder: Path) -> Work:
        given = make(count)

        def heal() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                plan = lockstitch.plan(given, dialect, model=model)
                assert plan.messages is not None
                assert plan.edits is not None

        return heal

    def checking(count: int, _folder: Path) -> Work:
        given = make(count)
        return lambda: lockstitch.check(given, dialect, model=model)

    yield Dimension(f"heal: {name}", healing)
    yield Dimension(f"check: {name}", checking)


# Every rule


def _repeated(case: Case, *, own: bool) -> Callable[[int], Any]:
    def make(count: int) -> Any:
        body = case.broken if isinstance(case.broken, dict) else None
        key = next((key for key in _LISTS if body is not None and key in body), "")
        messages = body[key] if body is not None else case.broken
        if not isinstance(messages, list):
            return case.broken
        copies = [_copied(messages, copy, own=own) for copy in range(count)]
        joined = [message for copied in copies for message in copied]
        return joined if body is None else {**body, key: joined}

    return make


def _copied(messages: list[Any], copy: int, *, own: bool) -> list[Any]:
    """The messages once more, with ids of their own, or only as objects of their own."""
    try:
        text = json.dumps(messages).encode()
    except (TypeError, ValueError, RecursionError):
        return list(messages)
    copied: list[Any] = json.loads(renamed(text, copy) if own else text)
    return copied


# Every conversation, in every form


def _written(
    write: Callable[[Iterable[Turn]], Any], turns: Callable[[int], list[Turn]]
) -> Callable[[int], Any]:
    return lambda count: write(turns(count))


def _said_again(talk: Conversation, *, own: bool) -> Callable[[int], list[Turn]]:
    def make(count: int) -> list[Turn]:
        return [_of_copy(turn, copy if own else 0) for copy in range(count) for turn in talk.turns]

    return make


def _of_copy(turn: Turn, copy: int) -> Turn:
    def own(name: str) -> str:
        return f"{name[:4]}{int(name[4:]) + 10 * copy:05d}"

    if isinstance(turn, Say):
        calls = (Call(own(call.id), call.mark, call.name, call.cut) for call in turn.calls)
        return Say(turn.text, tuple(calls))
    if isinstance(turn, Done):
        return Done(tuple(Result(own(one.id), one.text, one.name) for one in turn.results))
    return turn


# Lists that are long in one way only


def _id(number: int) -> str:
    return f"call{number:05d}"


def _batch(calls: Iterable[int], results: Iterable[int]) -> list[Turn]:
    made = tuple(Call(_id(number), "path") for number in calls)
    given = tuple(Result(_id(number), "text") for number in results)
    return [Ask("Go."), Say("I go.", made), *([Done(given)] if given else []), Ask("And?")]


def _late(count: int) -> list[Turn]:
    turns: list[Turn] = []
    for number in range(count):
        turns += [Ask("Go."), Say("I go.", (Call(_id(number), "path"),))]
    for number in range(count):
        turns += [Ask("Well?"), Done((Result(_id(number), "text"),)), Say("I see.")]
    return turns


def _early(count: int) -> list[Turn]:
    half = [Done((Result(_id(number), "text"),)) for number in range(count)]
    return [Ask("Go."), *half, *(Say("I go.", (Call(_id(n), "p"),)) for n in range(count))]


def _one_by_one(count: int) -> list[Turn]:
    calls = tuple(Call(_id(number), "path") for number in range(count))
    turns: list[Turn] = [Ask("Go."), Say("I go.", calls)]
    for number in reversed(range(count)):
        turns += [Ask("Well?"), Done((Result(_id(number), "text"),))]
    return turns


SHAPES: dict[str, Callable[[int], list[Turn]]] = {
    "parallel calls": lambda n: _batch(range(n), range(n)),
    "parallel calls without results": lambda n: _batch(range(n), ()),
    "parallel calls with half the results": lambda n: _batch(range(n), range(0, n, 2)),
    "parallel calls of one id": lambda n: _batch([1] * n, [1] * n),
    "parallel calls of one id without results": lambda n: _batch([1] * n, ()),
    "results in another order": lambda n: _batch(range(n), reversed(range(n))),
    "results of one call": lambda n: _batch([1], [1] * n),
    "results without calls": lambda n: _batch((), range(n)),
    "results without calls of one id": lambda n: _batch((), [1] * n),
    "results after each other without calls": lambda n: [
        Ask("Go."),
        *(Done((Result(_id(number), "text"),)) for number in range(n)),
    ],
    "results long after their calls": _late,
    "results before their calls": _early,
    "results of one batch in turns of their own": _one_by_one,
    "prompts in a row": lambda n: [Ask("Go.")] * n,
    "answers in a row": lambda n: [Ask("Go."), *[Say("I go.")] * n],
    "open calls in a row": lambda n: [
        Ask("Go."),
        *(Say("I go.", (Call(_id(number), "path"),)) for number in range(n)),
    ],
    "open turns": lambda n: [
        turn
        for number in range(n)
        for turn in (Ask("Go."), Say("I go.", (Call(_id(number), "path"),)))
    ],
    "empty messages": lambda n: [turn for _ in range(n) for turn in (Ask(""), Say(""))],
    "one id in every turn": lambda n: [
        turn
        for _ in range(n)
        for turn in (Ask("Go."), Say("I go.", (Call(_id(1), "p"),)), Done((Result(_id(1), "t"),)))
    ],
}


def _anthropic(*blocks: Any) -> list[Any]:
    return [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": list(blocks)},
        {"role": "user", "content": "And?"},
    ]


_THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
_TEXT = {"type": "text", "text": "Well."}
_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
_ITEM = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAA"}


def _system(count: int) -> list[Any]:
    messages = []
    for _ in range(count):
        messages += [{"role": "user", "content": "Go."}, {"role": "system", "content": "Be kind."}]
    return messages


PARTS: dict[tuple[str, str], Callable[[int], Any]] = {
    ("texts in one message", "anthropic"): lambda n: _anthropic(*[_TEXT] * n),
    ("empty texts in one message", "anthropic"): lambda n: _anthropic(
        *[{"type": "text", "text": ""}] * n
    ),
    ("thoughts in one message", "anthropic"): lambda n: _anthropic(*[_THOUGHT] * n),
    ("unsigned thoughts in one message", "anthropic"): lambda n: _anthropic(
        *[{"type": "thinking", "thinking": "Hm."}] * n
    ),
    ("messages of nothing but thinking", "anthropic"): lambda n: [
        message
        for _ in range(n)
        for message in (
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [dict(_THOUGHT)]},
        )
    ],
    ("messages of nothing but unsigned thinking", "anthropic"): lambda n: [
        message
        for _ in range(n)
        for message in (
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]},
        )
    ],
    ("thinking in a row", "anthropic"): lambda n: [
        {"role": "user", "content": "Go."},
        *({"role": "assistant", "content": [dict(_THOUGHT)]} for _ in range(n)),
    ],
    ("bad images in one message", "anthropic"): lambda n: [
        {"role": "user", "content": [dict(_IMAGE) for _ in range(n)]}
    ],
    ("bad images in one result", "anthropic"): lambda n: [
        *_anthropic({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}})[:2],
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [dict(_IMAGE) for _ in range(n)],
                }
            ],
        },
    ],
    ("cache marks in one message", "anthropic"): lambda n: _anthropic(
        *({**_TEXT, "cache_control": {"type": "ephemeral"}} for _ in range(n))
    ),
    ("unknown blocks in one message", "anthropic"): lambda n: _anthropic(*[{"type": "odd"}] * n),
    ("values that are no message", "anthropic"): lambda n: [*[None] * n, *_anthropic(_TEXT)],
    ("bare texts", "anthropic"): lambda n: [*["text"] * n, *_anthropic(_TEXT)],
    ("text of one message", "anthropic"): lambda n: _anthropic(
        {"type": "text", "text": "NUL \0 and so on. " * n}
    ),
    ("system messages in the middle", "anthropic"): _system,
    ("system messages in the middle", "openai-chat:mistral"): _system,
    ("system messages in the middle", "openai-chat"): _system,
    ("reasoning in a row", "openai-responses"): lambda n: [
        {"role": "user", "content": "Go."},
        *({**_ITEM, "id": f"rs_{number}"} for number in range(n)),
    ],
    ("reasoning of one id in a row", "openai-responses"): lambda n: [
        {"role": "user", "content": "Go."},
        *(dict(_ITEM) for _ in range(n)),
    ],
    ("reasoning before each answer", "openai-responses"): lambda n: [
        item
        for number in range(n)
        for item in (
            {**_ITEM, "id": f"rs_{number}"},
            {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": []},
        )
    ],
    ("references to nothing", "openai-responses"): lambda n: {
        "store": False,
        "input": [
            {"role": "user", "content": "Go."},
            *({"type": "item_reference", "id": f"msg_{number}"} for number in range(n)),
        ],
    },
    ("tools of one name", "anthropic"): lambda n: {
        "tools": [{"name": "bash", "input_schema": {"type": "object"}} for _ in range(n)],
        "messages": _anthropic(_TEXT),
    },
    ("unsigned calls", "gemini"): lambda n: [
        {"role": "user", "parts": [{"text": "Go."}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "f", "args": {}}} for _ in range(n)],
        },
    ],
    ("models in a row", "gemini"): lambda n: [
        {"role": "user", "parts": [{"text": "Go."}]},
        *(
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
            for _ in range(n)
        ),
    ],
    ("responses among texts", "gemini"): lambda n: [
        {
            "role": "user",
            "parts": [{"text": "Go."}, {"functionResponse": {"name": "f", "response": {}}}] * n,
        },
    ],
}
