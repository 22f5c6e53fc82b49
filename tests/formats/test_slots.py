from __future__ import annotations

import json
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.conversation.json_text import dump_like, replace_list
from lockstitch.formats.records import Record
from lockstitch.formats.write_back import longest_kept_run
from lockstitch.formats.write_back import replace_list as relisted

origins = st.lists(st.integers(-1, 7), max_size=7)


@given(origins)
def test_what_stays_rises_and_nothing_longer_does(numbers: list[int]) -> None:
    kept = [numbers[place] for place in sorted(longest_kept_run(numbers))]
    assert kept == sorted({*kept})
    assert -1 not in kept
    known = [number for number in numbers if number >= 0]
    longer = combinations(known, len(kept) + 1)
    assert not any(list(some) == sorted({*some}) for some in longer)


@given(st.permutations(range(6)), st.sampled_from([None, 2, "\t"]))
def test_a_list_deep_inside_is_rewoven(order: list[int], indent: Any) -> None:
    old = [{"n": number, "odd": 1.0} for number in range(6)]
    value = {"a": [0, {"list": old}], "b": 10**30}
    text = json.dumps(value, indent=indent).replace("1.0", "1.00")
    new = [old[number] for number in order[:4]]
    woven = replace_list(text, ("a", 1, "list"), old, new)
    assert json.loads(woven) == {"a": [0, {"list": new}], "b": 10**30}
    assert woven.count("1.00") == 4


def test_an_unchanged_list_gives_the_same_record() -> None:
    data = b'{"list": [1, {"a": 2}]}'
    record = Record("1", json.loads(data), start=0, end=len(data))
    assert relisted(data, record, ("list",), list(record.value["list"])) is record
    fresh = relisted(data, record, ("list",), record.value["list"][1:])
    assert (fresh.value, fresh.fresh) == ({"list": [{"a": 2}]}, b'{"list": [{"a": 2}]}')
    assert record.value == {"list": [1, {"a": 2}]}


def test_a_line_is_written_as_its_neighbour_is() -> None:
    assert dump_like('{"a": 1}', {"b": [1, 2]}) == '{"b": [1, 2]}'
    assert dump_like('{"a":1}', {"b": [1, 2]}) == '{"b":[1,2]}'
