"""opencode: what it sends of a session, and open calls closed as it does itself."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME
from lockstitch.formats import repair
from lockstitch.formats.interface import Context, Transcript
from lockstitch.formats.opencode import OpenCode, OpenCodeExport
from lockstitch.formats.opencode.history import INTERRUPTED
from lockstitch.formats.records import Record
from lockstitch.formats.repair import RepairOptions, RepairPlan
from lockstitch.sources import rows

from .databases import NOON, OpencodeBook
from .stored import Json

FORM = OpenCode()
EXPORT = OpenCodeExport()


class Told:
    """A session in a database, read and mended."""

    def __init__(self, book: OpencodeBook, folder: Path) -> None:
        self.book = book
        self.path = folder / "opencode.db"
        book.write(self.path)

    def execute(self, query: str, *given: Any) -> None:
        with closing(sqlite3.connect(self.path)) as live, live:
            live.execute(query, given)

    def transcript(self) -> Transcript:
        records = rows.load_rows(self.path, FORM, self.book.session)
        return FORM.parse(records, Context(b"", self.book.session))

    def mended(self, **options: Any) -> RepairPlan:
        mended = repair.plan_repair(FORM, self.transcript(), RepairOptions(**options))
        if mended.changed:
            rows.write_rows(self.path, FORM, mended.before.records, mended.after.records, "run")
        assert repair.findings_in(FORM, self.transcript()) == []
        return mended

    def sent(self) -> list[tuple[str, list[str]]]:
        return [
            (message["role"], [_short(block) for block in message["content"]])
            for message in self.transcript().history.messages
        ]

    def part(self, number: int) -> Json:
        return self._data("part")[number]

    def message(self, number: int) -> Json:
        return self._data("message")[number]

    def _data(self, table: str) -> list[Json]:
        with closing(sqlite3.connect(self.path)) as live:
            found = live.execute(f"select data from {table} order by id")  # noqa: S608
            return [json.loads(data) for (data,) in found]


def _short(block: Json) -> str:
    content = block.get("text", block.get("content"))
    return content if isinstance(content, str) else str(block["type"])


@pytest.fixture
def book() -> OpencodeBook:
    return OpencodeBook("own")


def bare(book: OpencodeBook, status: str = "running", **state: Any) -> Json:
    """A call that has not ended."""
    tool = book.tool("build", None)
    tool["state"] |= {"status": status, **state}
    return tool


def codes(mended: RepairPlan) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in mended.findings]


def test_an_open_call_at_the_end(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", {"type": "step-start"}, bare(book), done=False)
    told = Told(book, tmp_path)
    before = told.part(2)
    assert codes(told.mended()) == [("LS101", "warning")]
    state = told.part(2)["state"]
    assert (state["status"], state["error"]) == ("error", UNKNOWN_OUTCOME)
    assert state["input"] == before["state"]["input"]
    assert state["time"] == {"start": NOON, "end": NOON + 2}
    assert told.message(1)["time"]["completed"] == NOON + 2
    assert told.sent()[-1] == ("user", [UNKNOWN_OUTCOME])


def test_a_call_that_was_never_started(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    tool = book.tool("build", None)
    tool["state"] = {"status": "pending", "input": {}, "raw": ""}
    book.message("assistant", tool, done=False)
    told = Told(book, tmp_path)
    told.mended()
    times = {"start": NOON + 1, "end": NOON + 1}
    assert told.part(1)["state"]["time"] == times
    assert told.part(1)["state"]["raw"] == ""


def test_where_the_model_went_on_its_words_stay(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book), done=False)
    book.work("Are you there?", "status")
    told = Told(book, tmp_path)
    told.mended()
    assert told.part(1)["state"]["error"] == INTERRUPTED


def test_the_bytes_of_the_rest_of_a_part_stay(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book), done=False)
    told = Told(book, tmp_path)
    text = '{ "type":"tool","callID":"c", "tool":"bash","state":{"input":{"n":1e2,"z":"\\u00e9"},'
    odd = text + '"status":"running"} }'
    key = book.parts[1][0]
    told.execute("update part set data = ? where id = ?", odd, key)
    told.mended()
    with closing(sqlite3.connect(told.path)) as live:
        [(now,)] = live.execute("select data from part where id = ?", (key,)).fetchall()
    assert now.startswith(text + '"status":"error"')


@pytest.mark.parametrize(
    ("metadata", "status", "text"),
    [
        ({"output": "all of it", "exit": 0}, "completed", "all of it"),
        ({"output": "a part of"}, "error", "a part of"),
        ({"output": ""}, "error", UNKNOWN_OUTCOME),
    ],
    ids=["ended", "running", "nothing"],
)
def test_output_that_was_streamed(
    book: OpencodeBook, tmp_path: Path, metadata: Json, status: str, text: str
) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book, metadata=metadata), done=False)
    told = Told(book, tmp_path)
    mended = told.mended()
    assert ("LS708", "error") in codes(mended) or not metadata["output"]
    state = told.part(1)["state"]
    assert state["status"] == status
    assert state["metadata"] == metadata
    assert (state["output"] if status == "completed" else state["error"]).startswith(text)
    assert ("outcome is unknown" in json.dumps(state)) == (status == "error")


def test_signed_reasoning_keeps_what_it_was_given(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book, metadata={"output": "real"}), done=False)
    book.message("user", book.text("And?"))
    signed = {"type": "reasoning", "text": "Hm.", "metadata": {"anthropic": {"signature": "x"}}}
    book.message("assistant", signed, book.text("So."))
    told = Told(book, tmp_path)
    assert codes(told.mended()) == [("LS101", "warning")]
    assert told.part(1)["state"]["error"] == INTERRUPTED


def test_a_result_in_the_log(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book), done=False)
    told = Told(book, tmp_path)
    ended = {"status": "completed", "input": {}, "output": "logged", "title": "x"}
    part = {**book.parts[1][2], "id": book.parts[1][0], "state": ended}
    data = json.dumps({"sessionID": book.session, "part": part})
    insert = "insert into event values ('evt_1', ?, 1, 'message.part.updated.1', ?)"
    told.execute(insert, book.session, data)
    assert ("LS708", "error") in codes(told.mended())
    assert told.part(1)["state"]["output"] == "logged"
    assert told.sent()[-1] == ("user", ["logged"])


def test_a_database_without_a_log(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book), done=False)
    told = Told(book, tmp_path)
    told.execute("drop table event")
    told.mended()


def test_rows_that_cannot_be_decoded(book: OpencodeBook, tmp_path: Path) -> None:
    book.work("Read the settings.", "settings")
    told = Told(book, tmp_path)
    told.execute("update part set data = substr(data, 1, length(data) - 4) where id = ?", key(book))
    told.execute("update message set data = 'x' where id = ?", book.messages[1][0])
    mended = told.mended()
    assert codes(mended).count(("LS610", "error")) == 2
    assert mended.quarantine[0].value == "x"
    assert told.message(1)["role"] == "assistant"
    assert told.message(1)["modelID"] == "claude-sonnet-4-5"
    roles = [role for role, _ in told.sent()]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert told.sent()[0][1][0].startswith("[lockstitch] What was stored here was damaged")
    assert "Read the settings." in told.sent()[0][1][0]


def key(book: OpencodeBook, number: int = 0) -> str:
    return book.parts[number][0]


def test_what_a_message_that_failed_holds_is_not_sent(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book), done=False)
    book.messages[-1][1]["error"] = {"name": "APIError", "data": {}}
    told = Told(book, tmp_path)
    assert [role for role, _ in told.sent()] == ["user"]
    assert not told.mended().changed


def test_what_an_interrupt_cut_short_is_sent(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    tool = bare(book, "error", error="Tool execution aborted")
    tool["state"]["metadata"] = {"output": "half", "interrupted": True}
    book.message("assistant", tool)
    book.messages[-1][1]["error"] = {"name": "MessageAbortedError", "data": {}}
    assert Told(book, tmp_path).sent()[-1] == ("user", ["half"])


def compacted(book: OpencodeBook, **fields: Any) -> None:
    book.message("user", {"type": "compaction", "auto": True, **fields})
    book.message("assistant", book.text("We did much."))
    book.messages[-1][1].update(summary=True, finish="stop")


def test_open_calls_before_a_compaction_are_left_alone(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book), done=False)
    compacted(book)
    book.message("user", book.text("Go on."))
    told = Told(book, tmp_path)
    assert not told.mended().changed
    assert told.sent()[0] == ("user", ["What did we do so far?"])
    assert len(told.sent()) == 3


def test_the_tail_that_a_compaction_keeps(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("First."))
    book.message("user", book.text("Second."))
    tail = book.messages[-1][0]
    book.message("assistant", book.text("Kept."))
    compacted(book, tail_start_id=tail)
    book.message("user", book.text("Go on."))
    texts = [blocks[0].split(" MARK")[0] for _, blocks in Told(book, tmp_path).sent()]
    expected = ["What did we do so far?", "We did much.", "Second.", "Kept.", "Go on."]
    assert texts == expected


def test_what_the_person_went_back_from_is_not_sent(book: OpencodeBook, tmp_path: Path) -> None:
    book.work("Read the settings.", "settings")
    book.message("user", book.text("Wrong."))
    book.message("assistant", bare(book), done=False)
    told = Told(book, tmp_path)
    revert = json.dumps({"messageID": book.messages[3][0]})
    told.execute("update session set revert = ?", revert)
    assert not told.mended().changed
    assert len(told.sent()) == 4
    told.execute("update session set revert = ?", json.dumps({"messageID": "msg_gone"}))
    assert len(told.sent()) == 6


def test_repeated_and_odd_ids_of_calls_are_no_fault(book: OpencodeBook, tmp_path: Path) -> None:
    book.work("Read the settings.", "settings")
    book.work("Read them again.", "settings")
    for _, _, data in book.parts:
        if data["type"] == "tool":
            data["callID"] = "functions.bash:0"
    assert not Told(book, tmp_path).mended().changed


def test_files_in_prompts_and_results(book: OpencodeBook, tmp_path: Path) -> None:
    pixel = "data:image/png;base64,iVBORw0KGgo="
    file = {"type": "file", "mime": "image/png", "url": pixel, "filename": "a.png"}
    sound = {"type": "file", "mime": "audio/ogg", "url": "data:audio/ogg;base64,AA=="}
    text = {"type": "file", "mime": "text/plain", "url": "file:///a"}
    book.message("user", book.text("See."), file, sound, text)
    tool = book.tool("x", "seen")
    tool["state"]["attachments"] = [file]
    book.message("assistant", tool)
    history = Told(book, tmp_path).transcript().history
    kinds = [block["type"] for block in history.messages[0]["content"]]
    assert kinds == ["text", "image", "text"]
    result = history.messages[2]["content"][0]
    assert [block["type"] for block in result["content"]] == ["text", "image"]


def test_a_rollback_takes_whole_messages(book: OpencodeBook, tmp_path: Path) -> None:
    book.work("Read the settings.", "settings")
    book.message("user", book.text("Run it."))
    book.message("assistant", {"type": "step-start"}, bare(book), done=False)
    told = Told(book, tmp_path)
    mended = told.mended(strategy="rollback")
    assert len(told.sent()) == 4
    with closing(sqlite3.connect(told.path)) as live:
        counts = live.execute(
            "select (select count(*) from message), (select count(*) from part)"
        ).fetchone()
    assert counts == (3, 5)
    assert mended.quarantine


def test_a_session_that_starts_with_the_model(book: OpencodeBook, tmp_path: Path) -> None:
    book.message("user", book.text("Lost."))
    book.message("assistant", book.text("Hello."))
    told = Told(book, tmp_path)
    told.execute("delete from part where message_id = ?", book.messages[0][0])
    told.execute("delete from message where id = ?", book.messages[0][0])
    told.mended()
    assert [role for role, _ in told.sent()] in (["user", "assistant"], ["assistant"])


# Exports


def document(book: OpencodeBook) -> Json:
    messages = [
        {
            "info": {**info, "id": own, "sessionID": book.session},
            "parts": [
                {**data, "id": part, "sessionID": book.session, "messageID": own}
                for part, home, data in book.parts
                if home == own
            ],
        }
        for own, info in book.messages
    ]
    info = {"id": book.session, "directory": "/home/ada/project", "version": "1.18.33"}
    return {"info": info, "messages": messages}


def parsed(data: bytes) -> Transcript:
    record = Record("1", json.loads(data), start=0, end=len(data), ending=b"")
    return EXPORT.parse([record], Context(data, "export.json"))


def exported(book: OpencodeBook) -> bytes:
    return json.dumps(document(book), indent=2, ensure_ascii=False).encode()


def test_an_export_is_known(book: OpencodeBook) -> None:
    book.work("Read the settings.", "settings")
    assert EXPORT.claims("x.json", [document(book)])
    assert not EXPORT.claims("x.json", [{"messages": []}, [], {"info": {}, "messages": [{}]}])
    transcript = parsed(exported(book))
    assert (transcript.session, transcript.project) == (book.session, "/home/ada/project")
    assert transcript.turns == 1


def test_a_healthy_export_keeps_every_byte(book: OpencodeBook) -> None:
    book.work("Read the settings.", "settings")
    data = exported(book)
    mended = repair.plan_repair(EXPORT, parsed(data), RepairOptions())
    assert mended.findings == []
    assert repair.file_bytes(mended.after) == data


def test_an_open_call_in_an_export(book: OpencodeBook) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book), bare(book, metadata={"output": "half"}), done=False)
    data = exported(book)
    mended = repair.plan_repair(EXPORT, parsed(data), RepairOptions())
    new = repair.file_bytes(mended.after)
    assert repair.findings_in(EXPORT, parsed(new)) == []
    first, second = json.loads(new)["messages"][1]["parts"]
    assert first["state"]["error"] == UNKNOWN_OUTCOME
    assert second["state"]["error"].startswith("half")
    assert json.loads(new)["messages"][1]["info"]["time"]["completed"] == NOON
    old_lines, new_lines = data.splitlines(), new.splitlines()
    assert len(old_lines) == len(new_lines)
    assert sum(a != b for a, b in zip(old_lines, new_lines, strict=True)) < 10


def test_a_rollback_of_an_export(book: OpencodeBook) -> None:
    book.work("Read the settings.", "settings")
    healthy = exported(book)
    book.message("user", book.text("Run it."))
    book.message("assistant", bare(book), done=False)
    mended = repair.plan_repair(EXPORT, parsed(exported(book)), RepairOptions(strategy="rollback"))
    assert repair.file_bytes(mended.after).rstrip() == healthy


@pytest.mark.parametrize("value", [None, 3, "x", [], {}], ids=repr)
@pytest.mark.parametrize("place", ["state", "data", "info", "time", "parts", "input"])
def test_odd_values_are_no_exception(book: OpencodeBook, place: str, value: Any) -> None:
    book.message("user", book.text("Run it."))
    tool = bare(book)
    book.message("assistant", tool, done=False)
    made = document(book)
    last = made["messages"][1]
    if place == "data":
        last["parts"][0] = value
    elif place in ("state", "time", "input"):
        home = last["parts"][0] if place == "state" else last["parts"][0]["state"]
        home[place] = value
    else:
        last[place] = value
    data = json.dumps(made).encode()
    mended = repair.plan_repair(EXPORT, parsed(data), RepairOptions())
    again = parsed(repair.file_bytes(mended.after))
    assert not any(f.severity == "error" for f in repair.findings_in(EXPORT, again))
