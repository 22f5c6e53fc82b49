"""A list of messages that shares: whatever is taken out of it belongs to who took it."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import lockstitch
from lockstitch.conversation.parts import MessageList, copy_plain


def _message(number: int) -> Any:
    return {"role": "user", "content": [{"type": "text", "text": f"{number}"}]}


def _shared() -> tuple[list[Any], MessageList]:
    origin = [_message(number) for number in range(6)]
    return origin, MessageList([*origin[:4], _message(4), _message(5)], 4)


def _first(message: Any, *_rest: Any) -> Any:
    return message


def _unpacked(messages: Any) -> Any:
    one, *_rest = messages
    return one


def _matched(messages: Any) -> Any:
    match messages:
        case [one, *_]:
            return one


def _mixed_in(messages: Any) -> Any:
    mine: list[Any] = []
    mine += messages
    return mine[0]


def _set_in(messages: Any) -> Any:
    mine: list[Any] = [1, 2, 3]
    mine[1:] = messages
    return mine[1]


def _doubled(messages: Any) -> Any:
    messages += messages
    return messages[len(messages) // 2]


def _extended(messages: Any) -> Any:
    messages.extend(messages)
    return messages[6]


def _repeated(messages: Any) -> Any:
    messages *= 2
    return messages[6]


def _sorted(messages: Any) -> Any:
    messages.sort(key=lambda message: message["content"][0]["text"])
    return messages[0]


def _shifted(messages: Any) -> Any:
    messages.insert(0, "system")
    return messages[1]


def _deleted(messages: Any) -> Any:
    del messages[1]
    return messages[0]


def _removed(messages: Any) -> Any:
    messages.remove(_message(1))
    return messages[0]


def _turned(messages: Any) -> Any:
    messages.reverse()
    return messages[-1]


def _popped(messages: Any) -> Any:
    while len(messages) > 1:
        messages.pop()
    return messages.pop()


def _sliced_in(messages: Any) -> Any:
    messages[4:] = []
    return messages[0]


# ruff: noqa: RUF005, RUF015, C417 - how people write it is what is tried here
TAKEN: dict[str, Callable[[Any], Any]] = {
    "index": lambda messages: messages[0],
    "index from the end": lambda messages: messages[-6],
    "index of a numpy kind": lambda messages: messages[True - 1],
    "slice": lambda messages: messages[:2][0],
    "loop": lambda messages: next(iter(messages)),
    "reversed": lambda messages: [*reversed(messages)][-1],
    "list": lambda messages: list(messages)[0],
    "tuple": lambda messages: tuple(messages)[0],
    "star": lambda messages: [*messages][0],
    "call": lambda messages: _first(*messages),
    "sum": lambda messages: (messages + [1])[0],
    "sum before": lambda messages: ([1] + messages)[1],
    "times": lambda messages: (messages * 2)[6],
    "times before": lambda messages: (2 * messages)[6],
    "copy": lambda messages: messages.copy()[0],
    "copy.copy": lambda messages: copy.copy(messages)[0],
    "pop": lambda messages: messages.pop(0),
    "itemgetter": operator.itemgetter(0),
    "map": lambda messages: next(map(lambda m: m, messages)),
    "zip": lambda messages: next(zip(messages, messages, strict=True))[0],
    "min": lambda messages: min(messages, key=lambda m: m["content"][0]["text"]),
    "unpacked": _unpacked,
    "matched": _matched,
    "mixed in": _mixed_in,
    "set in": _set_in,
    "doubled": _doubled,
    "extended": _extended,
    "repeated": _repeated,
    "sorted": _sorted,
    "shifted": _shifted,
    "deleted": _deleted,
    "removed": _removed,
    "turned": _turned,
    "popped": _popped,
    "sliced in": _sliced_in,
}


@pytest.mark.parametrize("way", TAKEN)
def test_what_is_taken_out_is_the_takers_own(way: str) -> None:
    origin, messages = _shared()
    taken = TAKEN[way](messages)
    assert taken == _message(0)
    taken["content"][-1]["cache_control"] = {"type": "ephemeral"}
    taken["content"].append("more")
    taken["role"] = "nobody"
    assert origin == [_message(number) for number in range(6)]


def test_what_was_taken_out_once_stays_the_same_object() -> None:
    _, messages = _shared()
    first, last = messages[1], messages[-1]
    assert messages[1] is first
    assert list(messages)[1] is first
    assert messages[-1] is last
    assert messages[5] is last


def test_what_is_put_in_is_not_copied() -> None:
    _, messages = _shared()
    mine = _message(9)
    messages[0] = mine
    messages[-5] = mine
    messages.append(mine)
    assert [message is mine for message in messages] == [True, True, *[False] * 4, True]
    with pytest.raises(IndexError):
        messages[99] = mine
    with pytest.raises(IndexError):
        messages[99]


def test_it_is_a_list_like_any_other() -> None:
    origin, messages = _shared()
    assert messages == origin
    assert origin == messages
    assert _message(2) in messages
    assert messages.index(_message(2)) == 2
    assert len(messages) == 6
    assert json.loads(json.dumps(messages)) == origin
    assert msgspec.json.decode(msgspec.json.encode(messages)) == origin
    assert repr(messages) == repr(origin)
    for made in (copy.deepcopy(messages), pickle.loads(pickle.dumps(messages)), messages[:]):  # noqa: S301
        assert type(made) is list
        assert made == origin
    messages.clear()
    assert messages == []


def test_it_is_plain_data_for_whoever_heals_or_checks() -> None:
    _, messages = _shared()
    assert lockstitch.check(messages, "anthropic") == []
    assert lockstitch.heal(messages, "anthropic") is messages
    body = {"messages": messages, "model": "m", "max_tokens": 1}
    assert lockstitch.heal(body, "anthropic") is body


def test_a_copy_shares_nothing_that_can_be_changed() -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = [{"a": deep}]
    value = {"deep": deep, "bytes": b"x", "number": 2**70, "half": "\ud83d", "none": None}
    made = copy_plain(value)
    assert made == value
    while isinstance(deep, list):
        assert made["deep"] is not deep
        deep, made = deep[0]["a"], {"deep": made["deep"][0]["a"]}
