"""opencode: messages and parts that it cannot open, or passes over, made whole again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME

from .databases import NOON, OpencodeBook
from .stored import Json
from .test_opencode import Told, codes

TOOL = 3


def without(value: Json, *path: str) -> Json:
    """The value with one of its fields gone."""
    head, *rest = path
    if not rest:
        return {key: own for key, own in value.items() if key != head}
    return {**value, head: without(value[head], *rest)}


@pytest.fixture
def told(tmp_path: Path) -> Told:
    book = OpencodeBook("flawed")
    book.work("Read the settings.", "settings")
    book.work("Run the build.", "build")
    return Told(book, tmp_path)


def damage(told: Told, number: int, data: Any) -> Json:
    """Put something else in the place of a part, and give the part."""
    own, _, part = told.book.parts[number]
    told.execute("update part set data = ? where id = ?", json.dumps(data), own)
    return part


def log(told: Told, kind: str, seq: int, **data: Any) -> None:
    told.execute(
        "insert into event (id, aggregate_id, seq, type, data) values (?, ?, ?, ?, ?)",
        f"evt_{seq}",
        told.book.session,
        seq,
        kind,
        json.dumps({"sessionID": told.book.session, **data}),
    )


FLAWS = [
    ("state",),
    ("state", "status"),
    ("state", "input"),
    ("state", "output"),
    ("state", "time"),
    ("callID",),
    ("type",),
]


@pytest.mark.parametrize("path", FLAWS, ids=".".join)
def test_the_log_of_events_gives_a_part_back(told: Told, path: tuple[str, ...]) -> None:
    own, message, whole = told.book.parts[TOOL]
    before = told.sent()
    damage(told, TOOL, without(whole, *path))
    ids = {"id": own, "sessionID": told.book.session, "messageID": message}
    log(told, "message.part.updated.1", 1, part={**ids, **whole, "state": {"status": "pending"}})
    log(told, "message.part.updated.1", 2, part={**ids, **whole})
    mended = told.mended()
    assert ("LS610", "error") in codes(mended)
    assert told.part(TOOL) == whole
    assert told.sent() == before


@pytest.mark.parametrize("path", FLAWS, ids=".".join)
def test_without_the_log_as_much_is_kept_as_can_be(told: Told, path: tuple[str, ...]) -> None:
    whole = damage(told, TOOL, without(told.book.parts[TOOL][2], *path))
    mended = told.mended()
    assert ("LS610", "error") in codes(mended)
    part = told.part(TOOL)
    if path in {("state", "input"), ("state",)}:
        assert part["type"] == "text"
    else:
        assert (part["tool"], part["state"]["input"]) == (whole["tool"], whole["state"]["input"])
    if path == ("state", "output"):
        assert (part["state"]["status"], part["state"]["error"]) == ("error", UNKNOWN_OUTCOME)
    elif path != ("state",):
        assert whole["state"]["output"] in json.dumps(part)
    if path == ("state", "time"):
        assert part["state"]["time"] == {"start": NOON + TOOL, "end": NOON + TOOL}


def test_the_screen_may_have_kept_the_output(told: Told) -> None:
    part = told.book.parts[TOOL][2]
    state = {**part["state"], "metadata": {"output": "as shown"}}
    damage(told, TOOL, without({**part, "state": state}, "state", "output"))
    told.mended()
    assert told.part(TOOL)["state"]["output"] == "as shown"


def test_a_text_without_words_says_so(told: Told) -> None:
    damage(told, 2, {"type": "text"})
    assert ("LS610", "error") in codes(told.mended())
    assert told.part(2)["text"].startswith("[lockstitch]")


@pytest.mark.parametrize("path", [("time",), ("role",)])
@pytest.mark.parametrize("logged", [True, False])
def test_a_message_gets_back_what_it_lacks(told: Told, path: tuple[str, ...], logged: bool) -> None:
    own, whole = told.book.messages[1]
    before = told.sent()
    data = json.dumps(without(whole, *path))
    told.execute("update message set data = ? where id = ?", data, own)
    if logged:
        info = {"id": own, "sessionID": told.book.session, **whole}
        log(told, "message.updated.1", 1, info=info)
    assert ("LS610", "error") in codes(told.mended())
    assert told.sent() == before
    assert told.message(1)["time"] == {"created": NOON + 1, "completed": NOON + 1}
    if logged:
        assert told.message(1) == whole


def test_parts_of_kinds_that_are_not_known_are_left_alone(told: Told) -> None:
    damage(told, 2, {"type": "mystery"})
    assert not told.mended().changed


def test_of_a_healthy_session_no_event_is_read(told: Told) -> None:
    own, message, whole = told.book.parts[TOOL]
    ids = {"id": own, "sessionID": told.book.session, "messageID": message}
    log(told, "message.part.updated.1", 1, part={**ids, **whole})
    assert {row.table for row in told.transcript().records} == {"session", "message", "part"}
