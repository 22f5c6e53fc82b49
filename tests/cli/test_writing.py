from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.sources.lists import MessageDocument, encode_document

texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.just("\ud83d")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
messages = st.dictionaries(texts, values, max_size=3)
styles = st.sampled_from(
    [{}, {"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}, {"ensure_ascii": False}]
)


def document(value: Any, text: str, *, lines: bool = False) -> MessageDocument:
    return MessageDocument("-", text.encode("utf-8", "surrogatepass"), value, lines)


@st.composite
def edited(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """A list, and another that shares some of its elements in any order."""
    old = draw(st.lists(messages, max_size=6))
    kept = draw(st.permutations(old).map(lambda some: some[: len(some) // 2])) if old else []
    fresh = draw(st.lists(messages, max_size=2))
    return old, draw(st.permutations([*kept, *fresh]))


@given(edited(), styles)
def test_a_woven_list_means_the_new_value(lists: Any, style: dict[str, Any]) -> None:
    old, new = lists
    woven = encode_document(document(old, json.dumps(old, **style)), new)
    assert json.loads(woven.decode("utf-8", "surrogatepass")) == new


@given(edited(), styles)
def test_a_woven_body_means_the_new_value(lists: Any, style: dict[str, Any]) -> None:
    old, new = ({"model": "m", "messages": some, "stream": True} for some in lists)
    woven = encode_document(document(old, json.dumps(old, **style)), new)
    assert json.loads(woven.decode("utf-8", "surrogatepass")) == new


@given(edited())
def test_woven_lines_mean_the_new_value(lists: Any) -> None:
    old, new = lists
    text = "".join(f"{json.dumps(message)}\n" for message in old)
    woven = encode_document(document(old, text, lines=True), new)
    if old:
        assert [json.loads(line) for line in woven.decode().split("\n") if line] == new


ODD = """{"model": "m" ,
  "messages":[ {"role":"user",  "content":"caf\\u00e9 é \\/"},
      {"n": 1.0, "e": 1E5}
 , {"role":"assistant"} ] , "stream":true }
"""


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_an_insertion_leaves_every_other_byte(position: int) -> None:
    old = json.loads(ODD)
    inserted = [*old["messages"]]
    inserted.insert(position, {"role": "new"})
    woven = encode_document(document(old, ODD), {**old, "messages": inserted}).decode()
    before, _, after = woven.partition('{"role":"new"}')
    assert ODD.startswith(before.rstrip(", \n"))
    assert ODD.endswith(after.lstrip(", \n"))
    assert json.loads(woven)["messages"] == inserted


def test_a_replacement_leaves_every_other_byte() -> None:
    old = json.loads(ODD)
    replaced = [old["messages"][0], {"new": 1}, old["messages"][2]]
    woven = encode_document(document(old, ODD), {**old, "messages": replaced}).decode()
    assert woven == ODD.replace('{"n": 1.0, "e": 1E5}', '{"new":1}')


def test_a_new_message_is_indented_like_its_neighbours() -> None:
    old = {"messages": [{"role": "user", "content": "a"}]}
    new = {"messages": [*old["messages"], {"role": "assistant", "content": ["b"]}]}
    for indent in (2, 4, "\t"):
        text = json.dumps(old, indent=indent)
        assert encode_document(document(old, text), new).decode() == json.dumps(new, indent=indent)


def test_a_key_that_appears_twice_is_not_woven_into_the_wrong_one() -> None:
    text = '{"messages": [1], "messages": [2]}'
    old = json.loads(text)
    assert json.loads(encode_document(document(old, text), {"messages": [3]})) == {"messages": [3]}


def test_a_key_that_is_added() -> None:
    old = {"messages": [{"role": "user"}]}
    new = {**old, "tools": []}
    assert json.loads(encode_document(document(old, json.dumps(old)), new)) == new


def test_a_byte_order_mark_does_not_shift_the_pieces() -> None:
    old: list[Any] = [{"role": "user"}, {"role": "x"}]
    data = json.dumps(old).encode("utf-8-sig")
    assert json.loads(encode_document(MessageDocument("-", data, old), old[:1])) == old[:1]
