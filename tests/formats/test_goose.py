"""goose: what it sends of a session, what it cannot load, and rows in the order of seconds."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME
from lockstitch.formats import records as lines
from lockstitch.formats import repair
from lockstitch.formats.goose import Goose
from lockstitch.formats.interface import Context, Transcript
from lockstitch.formats.repair import RepairOptions, RepairPlan
from lockstitch.sources import rows
from lockstitch.sources import rows as row_undo

from .databases import NOON, GooseBook
from .databases import rows as every_row
from .stored import Json, dumped, joined

FORM = Goose()
ERROR = {"status": "error", "error": "no such tool"}


class Told:
    """A session in a database, read and mended."""

    def __init__(self, book: GooseBook, folder: Path, times: list[int] | None = None) -> None:
        self.book = book
        self.path = folder / "sessions.db"
        book.write(self.path)
        for number, time in enumerate(times or (), start=1):
            when = NOON // 1000 + time
            self.execute("update messages set created_timestamp = ? where id = ?", when, number)

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

    def items(self) -> list[tuple[str, list[str]]]:
        """Roles, and the types of items, as goose reads them."""
        with closing(sqlite3.connect(self.path)) as live:
            found = live.execute(
                "select role, content_json from messages order by created_timestamp, id"
            )
            return [(role, [item["type"] for item in json.loads(text)]) for role, text in found]


@pytest.fixture
def book() -> GooseBook:
    return GooseBook("own")


def codes(mended: RepairPlan) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in mended.findings]


def test_an_open_request_at_the_end(book: GooseBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", book.text("I run it."), book.request("build"))
    told = Told(book, tmp_path)
    assert codes(told.mended()) == [("LS101", "warning")]
    last = told.transcript().records[-1].value
    [item] = last["content_json"]
    assert item["id"] == json.loads(book.rows[1][1])[1]["id"]
    value = item["toolResult"]["value"]
    assert value == {"content": [{"type": "text", "text": UNKNOWN_OUTCOME}], "isError": True}
    assert json.loads(last["metadata_json"]) == {"userVisible": True, "agentVisible": True}
    assert last["created_timestamp"] == NOON // 1000 + 1


@pytest.mark.parametrize("times", [[0, 0, 0, 0], [0, 1, 1, 2], [0, 1, 2, 3]], ids=str)
def test_a_result_is_read_right_behind_its_request(
    book: GooseBook, tmp_path: Path, times: list[int]
) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", book.request("build"))
    book.message("user", book.text("Are you there?"))
    book.message("assistant", book.text("Yes."))
    told = Told(book, tmp_path, times)
    state = every_row(told.path)
    told.mended()
    kinds = [items[0] for _, items in told.items()]
    assert kinds == ["text", "toolRequest", "toolResponse", "text", "text"]
    from lockstitch.files import backup

    backup.undo_backup(told.path, restore=row_undo.restore_rows)
    assert every_row(told.path) == state


def test_results_in_rows_of_their_own_are_one_answer(book: GooseBook, tmp_path: Path) -> None:
    first, second = book.request("one"), book.request("two")
    book.message("user", book.text("Run both."))
    book.message("assistant", first)
    book.message("assistant", second)
    book.message("user", book.response(first["id"], "1"))
    book.message("user", book.response(second["id"], "2"))
    told = Told(book, tmp_path)
    assert not told.mended().changed
    assert [len(m["content"]) for m in told.transcript().history.messages] == [1, 2, 2]


def test_one_of_two_results_is_missing(book: GooseBook, tmp_path: Path) -> None:
    first, second = book.request("one"), book.request("two")
    book.message("user", book.text("Run both."))
    book.message("assistant", first, second)
    book.message("user", book.response(first["id"], "1"))
    book.message("assistant", book.text("Done."))
    told = Told(book, tmp_path)
    told.mended()
    assert [items for _, items in told.items()][2:] == [
        ["toolResponse"],
        ["toolResponse"],
        ["text"],
    ]


def test_a_late_result_goes_back_to_its_request(book: GooseBook, tmp_path: Path) -> None:
    request = book.request("one")
    book.message("user", book.text("Run it."))
    book.message("assistant", request)
    book.message("user", book.text("And?"))
    book.message("assistant", book.text("Wait."))
    note = {"type": "systemNotification", "notificationType": "inlineMessage", "msg": "x"}
    book.message("user", book.response(request["id"], "late"), note)
    told = Told(book, tmp_path)
    assert [severity for _, severity in codes(told.mended())] == ["error"]
    kinds = [items for _, items in told.items()]
    assert kinds[2] == ["toolResponse"]
    assert ["systemNotification"] in kinds


def test_what_was_put_aside_is_not_sent_and_not_touched(book: GooseBook, tmp_path: Path) -> None:
    book.message("assistant", book.request("old"), seen=False)
    book.message("user", book.text("Summary."))
    told = Told(book, tmp_path)
    assert not told.mended().changed
    assert len(told.transcript().history.messages) == 1


def test_ids_of_other_providers_are_no_fault(book: GooseBook, tmp_path: Path) -> None:
    request = {**book.request("one"), "id": "functions.shell:0"}
    request["toolCall"]["value"]["name"] = "a.b/c"
    book.message("user", book.text("Run it."))
    book.message("assistant", request)
    book.message("user", book.response("functions.shell:0", "1"))
    assert not Told(book, tmp_path).mended().changed


def test_an_id_of_another_provider_is_answered_by_its_name(book: GooseBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", {**book.request("one"), "id": "functions.shell:0"})
    told = Told(book, tmp_path)
    told.mended()
    assert told.transcript().records[-1].value["content_json"][0]["id"] == "functions.shell:0"


def test_the_answer_to_a_request_that_is_never_sent(book: GooseBook, tmp_path: Path) -> None:
    request = {**book.request("one"), "toolCall": ERROR}
    book.message("user", book.text("Run it."))
    book.message("assistant", book.text("I run it."), request)
    answer = {"type": "toolResponse", "id": request["id"], "toolResult": ERROR}
    book.message("user", answer)
    book.message("assistant", book.text("It failed."))
    told = Told(book, tmp_path)
    assert codes(told.mended()) == [("LS103", "error")]
    assert "no such tool" in json.dumps(told.transcript().history.messages)


def test_unreadable_content(book: GooseBook, tmp_path: Path) -> None:
    book.work("Read the settings.", "settings")
    told = Told(book, tmp_path)
    cut = "update messages set content_json = substr(content_json, 1, length(content_json) - 8)"
    told.execute(f"{cut} where id = 1")
    mended = told.mended()
    assert ("LS610", "error") in codes(mended)
    [kept] = mended.quarantine
    assert "Read the settings." in kept.value
    text = told.transcript().history.messages[0]["content"][0]["text"]
    assert text.startswith("[lockstitch] What was stored here was damaged")
    assert "Read the settings." in text


@pytest.mark.parametrize(
    "item",
    [
        None,
        "words",
        {"type": "text"},
        {"type": "toolRequest", "id": "a", "toolCall": {}},
        {"type": "toolRequest", "id": "a", "toolCall": {"status": "success", "value": {}}},
        {"type": "toolResponse", "id": "a"},
        {"type": "thinking", "thinking": "Hm."},
    ],
    ids=str,
)
def test_items_that_cannot_be_loaded(book: GooseBook, tmp_path: Path, item: Any) -> None:
    book.message("user", book.text("Hello."), item)
    told = Told(book, tmp_path)
    mended = told.mended()
    assert codes(mended) == [("LS610", "error")]
    assert mended.findings[0].place == "messages.1.content_json.1"
    assert told.items() == [("user", ["text", "text"])]
    assert [kept.value for kept in mended.quarantine] == [item]


def test_items_of_types_that_are_not_known_stay(book: GooseBook, tmp_path: Path) -> None:
    book.message("user", book.text("Hello."), {"type": "hologram", "data": 1})
    assert not Told(book, tmp_path).mended().changed


def test_signed_thinking_is_sent_and_other_thinking_not(book: GooseBook, tmp_path: Path) -> None:
    book.message("user", book.text("Hello."))
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "EqMBsigned"}
    bare = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    hidden = {"type": "text", "text": "x", "annotations": {"audience": ["user"]}}
    book.message("assistant", bare, signed, hidden, book.text("Hi."))
    history = Told(book, tmp_path).transcript().history
    assert [block["type"] for block in history.messages[1]["content"]] == ["thinking", "text"]


def test_pictures(book: GooseBook, tmp_path: Path) -> None:
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    request = book.request("one")
    book.message("user", book.text("See."), picture, {**picture, "mimeType": "image/bmp"})
    book.message("assistant", request)
    answer = book.response(request["id"], "seen")
    answer["toolResult"]["value"]["content"].append(picture)
    book.message("user", answer)
    messages = Told(book, tmp_path).transcript().history.messages
    assert [block["type"] for block in messages[0]["content"]] == ["text", "image", "text"]
    inner = messages[2]["content"][0]["content"]
    assert [block["type"] for block in inner] == ["text", "image"]


def test_a_rollback_takes_rows_away(book: GooseBook, tmp_path: Path) -> None:
    book.work("Read the settings.", "settings")
    book.message("user", book.text("Run it."))
    book.message("assistant", book.request("build"))
    told = Told(book, tmp_path)
    told.mended(strategy="rollback")
    assert len(told.items()) == 4


# Files, as before 1.10


def lined(book: GooseBook) -> bytes:
    head: Json = {"working_dir": "/home/ada/project", "description": "Work", "message_count": 2}
    messages = [
        {"id": f"m{n}", "role": role, "created": NOON // 1000 + n, "content": json.loads(content)}
        for n, (role, content, _) in enumerate(book.rows)
    ]
    return joined([dumped(head), *map(dumped, messages)])


def read(data: bytes) -> Transcript:
    return FORM.parse(
        lines.read_lines(data, FORM.is_record), Context(data, "20260901_120000.jsonl")
    )


def test_a_healthy_file_keeps_every_byte(book: GooseBook) -> None:
    book.work("Read the settings.", "settings")
    data = lined(book)
    values = [json.loads(line) for line in data.splitlines()]
    assert FORM.claims("20260901_120000.jsonl", values)
    assert not FORM.claims("x.jsonl", [{"role": "user", "content": "x"}])
    transcript = read(data)
    assert (transcript.session, transcript.project) == ("20260901_120000", "/home/ada/project")
    mended = repair.plan_repair(FORM, transcript, RepairOptions())
    assert (mended.findings, mended.changed) == ([], False)


def test_an_open_request_in_a_file(book: GooseBook) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", book.request("build"))
    book.message("user", book.text("Are you there?"))
    data = lined(book)
    mended = repair.plan_repair(FORM, read(data), RepairOptions())
    new = repair.file_bytes(mended.after)
    assert repair.findings_in(FORM, read(new)) == []
    old_lines, new_lines = data.splitlines(), new.splitlines()
    assert [line for line in new_lines if line in old_lines] == old_lines
    assert json.loads(new_lines[3])["content"][0]["type"] == "toolResponse"


def test_tables_of_goose_are_known() -> None:
    assert FORM.claims("sessions.db", ["messages", "schema_version", "sessions"])
    assert not FORM.claims("x.db", ["messages", "sessions"])


def test_a_later_repair_makes_messages_of_its_own(book: GooseBook, tmp_path: Path) -> None:
    book.message("user", book.text("Run it."))
    book.message("assistant", book.request("build"))
    book.message("user", book.text("Are you there?"))
    told = Told(book, tmp_path)
    told.mended()
    call = json.dumps([book.request("more")])
    told.execute(
        "insert into messages (message_id, session_id, role, content_json, created_timestamp,"
        " metadata_json) select 'msg_more', session_id, role, ?, created_timestamp + 9,"
        " metadata_json from messages where id = 2",
        call,
    )
    told.mended()
    values = [record.value for record in told.transcript().records]
    names = [value["message_id"] for value in values if "message_id" in value]
    assert len(names) == len(set(names)) == 6
