"""Valid JSON that nobody here can read is no damage: it is named, and keeps its bytes."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import lockstitch
from lockstitch.conversation import json_text
from lockstitch.conversation.json_text import dump
from lockstitch.conversation.parts import Place
from lockstitch.dialects.profiles import traits_of
from lockstitch.formats import records
from lockstitch.formats.claude_code import ClaudeCode
from lockstitch.formats.claude_code.chain import version_of
from lockstitch.formats.interface import DOCUMENT, LINES
from lockstitch.formats.records import encode_record
from lockstitch.formats.repair import (
    RepairOptions,
    RepairPlan,
    file_bytes,
    findings_in,
    parse_file,
    plan_repair,
)
from lockstitch.sources.operations import check
from lockstitch.sources.source import Source
from lockstitch.sources.targets import sources_in

from . import codex_files, databases, gemini_files, pi_files, plain_files
from .claude_cases import CASES as CLAUDE
from .stored import Stored

LONG = b"9" * 5000
VALUES = {
    "a long integer": LONG,
    "a long negative integer": b"-" + LONG,
    "deep lists": b"[" * 3000 + b"]" * 3000,
    "deep objects": b'{"a":' * 3000 + b"null" + b"}" * 3000,
    "long and deep": b"[" * 1500 + LONG + b"]" * 1500,
}
# Where a program puts what a tool was given, and the same inside of a string.
INSIDE = (b'"input":{', b'"args":{', b'"arguments":{')
IN_TEXT = b'"arguments":"{'


def _file_cases() -> Iterator[tuple[str, str, str, bytes]]:
    for case in CLAUDE[::4]:
        yield str(case), "claude-code", LINES, case.data
    for module in (codex_files, pi_files, gemini_files, plain_files):
        for stored in module.CASES:
            yield str(stored), stored.format, "", _data(stored)


def _data(stored: Stored) -> bytes:
    path = Path(stored.path)
    held: list[bytes] = []

    class Target(type(path)):  # type: ignore[misc]
        def write_bytes(self, data: bytes) -> int:  # type: ignore[override]
            held.append(data)
            return len(data)

    stored.write(Target(path))
    return held[0]


FILES = list(_file_cases())


def _planted(line: bytes, value: bytes, *, inside: bool) -> bytes:
    """A line with a value in it: among its fields, or among those that a tool was given."""
    for place in INSIDE if inside else ():
        if place in line:
            return line.replace(place, b'%s"unread":%s,' % (place, value), 1).replace(b",}", b"}")
    if inside and IN_TEXT in line:
        written = json.dumps('"unread":' + value.decode() + ",").encode()[1:-1]
        return line.replace(IN_TEXT, IN_TEXT + written, 1).replace(b',}"', b'}"')
    return line.replace(b"{", b'{"unread":%s,' % value, 1).replace(b",}", b"}")


def _understood(form: str, data: bytes, kind: str) -> RepairPlan:
    source = Source(f"x.{'json' if kind == DOCUMENT else 'jsonl'}", form, kind)
    return plan_repair(
        source.form, parse_file(source.form, source.kind, source.path, data), RepairOptions()
    )


def _whole_lines(data: bytes, form: str) -> list[int]:
    """The lines that are one good record each."""
    found = records.read_lines(data, Source("", form, LINES).form.is_record)
    alone = Counter(record.place for record in found)
    return [
        int(record.place) - 1
        for record in found
        if record.is_record and alone[record.place] == 1 and not set(record.codes) - {"LS608"}
    ]


@pytest.mark.parametrize(
    ("name", "form", "data"),
    [pytest.param(name, form, data, id=name) for name, form, _, data in FILES],
)
def test_a_line_that_cannot_be_read_is_as_good_as_one_that_can(
    name: str, form: str, data: bytes
) -> None:
    dice = random.Random(name)  # noqa: S311 - repeatable
    rows = data.split(b"\n")
    whole = _whole_lines(data, form) if form != "list" or b"\n" in data.strip() else []
    for number in dice.sample(whole, min(2, len(whole))):
        value, inside = dice.choice(list(VALUES.values())), dice.random() < 0.6
        plain = [*rows]
        plain[number] = _planted(rows[number], b"17", inside=inside)
        odd = [*rows]
        odd[number] = _planted(rows[number], value, inside=inside)
        expected = _understood(form, b"\n".join(plain), LINES)
        found = _understood(form, b"\n".join(odd), LINES)
        in_text = inside and IN_TEXT in rows[number] and not any(p in rows[number] for p in INSIDE)
        notes = [f for f in found.findings if f.code == "LS613"]
        assert len(notes) == (not in_text), (name, number)
        assert Counter(f.code for f in found.findings if f.code != "LS613") == Counter(
            f.code for f in expected.findings
        ), (name, number)
        out = file_bytes(found.after).split(b"\n")
        if plain[number] in file_bytes(expected.after).split(b"\n"):
            assert odd[number] in out
            assert found.changed == expected.changed
        elif not in_text:
            assert not found.changed
            assert any("cannot be read here" in note for note in found.before.notes)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_keeps_what_cannot_be_read(
    value: bytes, indent: int | None, tmp_path: Path
) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"unread": "HERE"}}
    open_call = {"type": "tool_use", "id": "toolu_2", "name": "bash", "input": {}}
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [call, open_call]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}],
        },
    ]
    data = json.dumps(messages, indent=indent).encode().replace(b'"HERE"', value)
    path = tmp_path / "messages.json"
    path.write_bytes(data)
    [source] = sources_in(str(path))
    done = plan_repair(source.form, source.open().transcript, RepairOptions())
    assert done.changed
    assert [f.code for f in done.remaining] == ["LS613"]
    assert b'"unread": ' + value in file_bytes(done.after)
    assert plan_repair(source.form, done.after, RepairOptions()).after is done.after


@pytest.mark.parametrize("case", databases.CASES, ids=str)
def test_a_row_keeps_what_cannot_be_read(case: Stored, tmp_path: Path) -> None:
    path = tmp_path / Path(case.path).name
    case.write(path)
    column = {
        "opencode": ("part", "data"),
        "goose": ("messages", "content_json"),
        "openai-agents": ("agent_messages", "message_data"),
    }[case.format]
    dice = random.Random(str(case))  # noqa: S311 - repeatable
    with closing(sqlite3.connect(path)) as base, base:
        select = f"select rowid, {column[1]} from {column[0]}"  # noqa: S608 - our own names
        held = [row for row in base.execute(select) if "{" in row[1] and _is_json(row[1])]
        rowid, text = dice.choice(held)
        value = dice.choice(list(VALUES.values()))
        odd = _planted(text.encode(), value, inside=False).decode()
        update = f"update {column[0]} set {column[1]} = ? where rowid = ?"  # noqa: S608 - as above
        base.execute(update, (_planted(text.encode(), b"17", inside=False).decode(), rowid))
        base.commit()
        plain = [_codes_of(path, case)]
        base.execute(update, (odd, rowid))
        base.commit()
    codes = _codes_of(path, case)
    assert "LS613" in codes
    assert [code for code in codes if code != "LS613"] == plain[0]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _codes_of(path: Path, case: Stored) -> list[str]:
    [source] = [one for one in sources_in(str(path)) if one.session == case.session]
    found = source.open(search=True)
    done = plan_repair(source.form, found.transcript, RepairOptions())
    assert done.remaining is not None
    return [finding.code for finding in findings_in(source.form, found.transcript)]


def test_a_number_beyond_a_float_keeps_its_digits() -> None:
    value, codes = records.read_json(b'{"a":1e999,"b":-1E+4000,"c":1.5}')
    assert codes == ()
    assert encode_record(value) == b'{"a":1e999,"b":-1E+4000,"c":1.5}'


def test_a_whole_record_behind_a_torn_one_is_found_however_deep_it_is() -> None:
    good = b'{"type":"user","x":%s}' % VALUES["deep objects"]
    for torn in (b'{"type":"user","x":', b'{"type":"us', b'{"a":' * 5):
        found = records.read_lines(torn + good + b"\n", lambda value: value.get("type") == "user")
        assert [record.codes for record in found] == [("LS601",), ("LS602", "LS613")]
        assert records.write_lines(torn + good, found[1:]).strip() == good


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 5000, "[" * 5000 + "]" * 4999, "[" * 3000 + "1,]" + "]" * 2999, '{"a":' * 3000),
        *('{"a" 1}', "[" * 2000 + "nul" + "]" * 2000, "[" * 2000 + '"\n"' + "]" * 2000),
        *(
            "[" * 2000 + "01" + "]" * 2000,
            "[" * 2000 + "]" * 2000 + "x",
            "[" * 2000 + "]" * 1999 + "}",
        ),
        *('{"a":' * 2000 + "1" + ",}" * 2000, "[" * 2000 + "{1:2}" + "]" * 2000),
    ],
)
def test_what_is_no_json_is_not_taken_for_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Extra|nested deeply"):
        json_text.decode(text)


def test_a_deep_value_is_read_as_json_reads_it_down_to_where_it_is_left() -> None:
    inner = '{"k":[1,-2.5e3,true,false,null,"a\\"\\u00e9\\ud83d\\ude00"],"e":{},"l":[ ]}'
    deep = "[" * 5000 + "]" * 5000
    text = f'\n{{"first": {inner}, "deep": {deep} , "last" : {inner}}}\n'
    value = json_text.decode(text)
    assert value["first"] == value["last"] == json.loads(inner)
    assert [*json_text.raw_pieces(value)] == [deep[99:-99].encode()]
    assert json.loads(dump({**value, "deep": 0})) == {
        "first": json.loads(inner),
        "deep": 0,
        "last": json.loads(inner),
    }
    assert dump(value["deep"], separators=(",", ":")) == deep


def test_runs_of_digits_are_seen_wherever_they_start() -> None:
    for at in (0, 1, 4095, 4096, 5000, 100_000):
        text = b"x" * at + b"7" * 4301 + b"x" * 5000
        assert json_text.has_long_number(text)
        assert not json_text.has_long_number(text.replace(b"7" * 4301, b"7" * 4300))


def test_a_claude_file_with_a_long_number_is_not_waved_through(tmp_path: Path) -> None:
    case = next(case for case in CLAUDE if ClaudeCode().quick(_written(tmp_path, case.data)))
    rows = case.data.split(b"\n")
    for value in VALUES.values():
        odd = b"\n".join([_planted(rows[0], value, inside=False), *rows[1:]])
        path = _written(tmp_path, odd)
        assert ClaudeCode().quick(path) is None
        assert [f.code for f in check(Source(path, "claude-code", LINES)).findings] == ["LS613"]


def _written(folder: Path, data: bytes) -> str:
    path = folder / "session.jsonl"
    path.write_bytes(data)
    return str(path)


def test_a_repair_that_would_have_to_change_it_is_declined() -> None:
    record = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "input": {}}]}
    call = json.dumps(record).encode().replace(b"{}}]", b'{"n":%s}}]' % LONG)
    data = b'{"role":"user","content":"Go."}\n' + call + b"\n"
    found = _understood("list", data, LINES)
    assert not found.changed
    assert any("2, which holds a value" in note for note in found.before.notes)
    assert len(str(found.before.notes)) < 500


def test_a_key_of_digits_is_no_place(tmp_path: Path) -> None:
    arguments = {"9" * 5000: {"a": [{}]}, "²": 1}
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": arguments}
    messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": [call]}]
    path = _written(tmp_path, json.dumps(messages).encode())
    assert {f.code for f in check(Source(path, "list", DOCUMENT)).findings} == {"LS101"}
    longest, third = Place.parse("messages." + "9" * 5000), Place.parse("messages.3")
    assert longest.order > third.order
    assert traits_of("claude-opus-" + "9" * 5000) is not None
    assert version_of({"version": "9" * 5000}) == ()


def test_arguments_in_a_string_may_hold_what_cannot_be_read() -> None:
    for value in VALUES.values():
        function = {"name": "f", "arguments": f'{{"n": {value.decode()}}}'}
        call = {"id": "c1", "type": "function", "function": function}
        messages = [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        ]
        assert lockstitch.check(messages, "openai-chat") == []
        assert lockstitch.heal(messages, "openai-chat") == messages
        text = function["arguments"]
        # cut off, or with what only Python writes, it is no JSON
        for broken in (text[:-1], f'{text[:-1]}, "m": NaN}}'):
            call["function"] = {**function, "arguments": broken}
            assert [f.code for f in lockstitch.check(messages, "openai-chat")] == ["LS207"]
