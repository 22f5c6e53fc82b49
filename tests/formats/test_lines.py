"""Files of lines taken apart and put together again, whatever is in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.formats import records as lines
from lockstitch.formats.records import JSON, Record, amend_record, record_bytes


def is_record(value: dict[str, Any]) -> bool:
    return "uuid" in value


def record(number: int, text: str = "hello") -> bytes:
    inner = {"role": "user", "content": [{"type": "text", "text": text}]}
    return json.dumps({"uuid": str(number), "message": inner}, separators=(",", ":")).encode()


def whole(records: list[Record]) -> list[str]:
    return [one.value["uuid"] for one in records if one.is_record]


def codes(records: list[Record]) -> list[str]:
    return [code for one in records for code in one.codes]


PIECES = st.sampled_from(
    [
        record(1),
        record(2, "é\u2028{"),
        record(3)[:-7],
        record(4)[9:],
        b"\n",
        b"\r\n",
        b"\0\0\0",
        b"\xef\xbb\xbf",
        b"\xff",
        b"{",
        b'{"uuid":',
        b"null",
        b"[1]",
        b" ",
        b'"',
    ]
)


@given(st.lists(PIECES, max_size=12).map(b"".join) | st.binary(max_size=200))
def test_every_file_is_tiled(data: bytes) -> None:
    found = lines.read_lines(data, is_record)
    assert b"".join(data[one.start : one.end] + one.ending for one in found) == data
    at = 0
    for one in found:
        assert one.start == at
        at = one.end + len(one.ending)
    for one in found:
        if one.is_record:
            assert json.loads(record_bytes(data, one), strict=False) == one.value


@given(st.lists(PIECES, max_size=12).map(b"".join))
def test_whole_lines_are_always_read(data: bytes) -> None:
    good = [record(7), record(8)]
    found = lines.read_lines(b"\n".join([data, *good, b""]), is_record)
    assert whole(found)[-1] == "8"


@pytest.mark.parametrize(
    ("data", "names", "flaws"),
    [
        (record(1) + b"\n" + record(2) + b"\n", ["1", "2"], []),
        (record(1) + b"\n" + record(2), ["1", "2"], ["LS608"]),
        (record(1) + b"\n" + record(2)[:-9], ["1"], ["LS601"]),
        (record(1) + record(2) + b"\n", ["1", "2"], ["LS602"]),
        (record(1)[:-9] + record(2) + b"\n", ["2"], ["LS601", "LS602"]),
        (record(1)[:40] + record(2) + record(3) + b"\n", ["2", "3"], ["LS601", "LS602", "LS602"]),
        (b"\0" * 9 + record(1) + b"\n", ["1"], ["LS603"]),
        (record(1) + b"\n" + b"\0" * 9, ["1"], ["LS603"]),
        (b"\xef\xbb\xbf" + record(1) + b"\n", ["1"], ["LS604"]),
        (record(1).replace(b"hello", b"h\xffllo") + b"\n", ["1"], ["LS605"]),
        (b"null\n" + record(1) + b"\n", ["1"], ["LS606"]),
        (
            record(1).replace(b"hello", b"hel\nlo") + b"\n" + record(2) + b"\n",
            ["1", "2"],
            ["LS609"],
        ),
        (record(1).replace(b"hello", b"hel\tlo") + b"\n", ["1"], ["LS609"]),
        (record(1) + b"\r\n\r\n" + record(2) + b"\r\n", ["1", "2"], []),
    ],
)
def test_what_can_be_read_is_read(data: bytes, names: list[str], flaws: list[str]) -> None:
    found = lines.read_lines(data, is_record)
    assert whole(found) == names
    assert codes(found) == flaws


def test_an_object_inside_a_torn_record_is_no_record() -> None:
    found = lines.read_lines(record(1)[:-1] + b"\n", is_record)
    assert whole(found) == []
    assert codes(found) == ["LS601"]


def test_a_hostile_line_costs_little() -> None:
    data = b'{"a":' * 200_000 + b"\n" + record(1) + b"\n"
    assert whole(lines.read_lines(data, is_record)) == ["1"]


def test_one_value_changes_and_the_rest_keeps_its_bytes() -> None:
    data = b'{ "uuid" : "1",  "n":1.50, "big": 123456789012345678901234567890, "x": [1,  2] }'
    [one] = lines.read_lines(data, is_record)
    assert one.kind == JSON
    changed = amend_record(data, one, ("uuid",), "2")
    assert record_bytes(data, changed) == data.replace(b'"1"', b'"2"')
    assert changed.value["uuid"] == "2"
    deeper = amend_record(data, changed, ("x", 1), {"é": None})
    assert record_bytes(data, deeper) == data.replace(b'"1"', b'"2"').replace(
        b",  2", ',  {"é":null}'.encode()
    )
    new = amend_record(data, one, ("new",), True)
    assert json.loads(record_bytes(data, new)) == {**one.value, "new": True}
