"""OpenAI Agents SDK: items in rows, by hand-made databases and by the SDK itself."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockstitch.formats import repair
from lockstitch.formats.interface import Context, Transcript
from lockstitch.formats.openai_agents import OpenAIAgents
from lockstitch.formats.repair import RepairOptions, RepairPlan
from lockstitch.sources import rows
from tests.oracles.openai_responses import problems

from .databases import AgentsBook

FORM = OpenAIAgents()


def transcript(path: Path, session: str) -> Transcript:
    return FORM.parse(rows.load_rows(path, FORM, session), Context(b"", session))


def mended(path: Path, session: str, **options: Any) -> RepairPlan:
    found = repair.plan_repair(FORM, transcript(path, session), RepairOptions(**options))
    if found.changed:
        rows.write_rows(path, FORM, found.before.records, found.after.records, "run")
    assert repair.findings_in(FORM, transcript(path, session)) == []
    return found


def items(path: Path, session: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as live:
        query = "select message_data from agent_messages where session_id = ? order by id"
        return [json.loads(text) for (text,) in live.execute(query, (session,))]


@pytest.fixture
def book() -> AgentsBook:
    return AgentsBook("own")


def written(book: AgentsBook, folder: Path) -> Path:
    path = folder / "agents.db"
    book.write(path)
    return path


def kinds(found: list[Any]) -> list[str]:
    return [item.get("type") or item["role"] for item in found]


def test_items_are_the_very_objects_of_the_rows(book: AgentsBook, tmp_path: Path) -> None:
    book.work("Read the settings.", "settings")
    read = transcript(written(book, tmp_path), book.session)
    values = [row.value.get("message_data") for row in read.records[1:]]
    assert all(a is b for a, b in zip(read.history.messages, values, strict=True))
    assert read.turns == 1


def test_an_open_call_in_the_middle(book: AgentsBook, tmp_path: Path) -> None:
    book.ask("Run the build.")
    book.call("build")
    book.work("Are you there?", "status")
    path = written(book, tmp_path)
    before = items(path, book.session)
    found = mended(path, book.session)
    assert [(f.code, f.severity) for f in found.findings] == [("LS101", "warning")]
    after = items(path, book.session)
    assert [item for item in after if item in before] == before
    assert kinds(after)[:4] == ["user", "function_call", "function_call_output", "user"]
    assert problems(after) == []


def test_parallel_calls_of_which_one_is_open(book: AgentsBook, tmp_path: Path) -> None:
    book.ask("Run both.")
    book.call("one")
    book.answer(book.call("two"), "2")
    book.say("Done.")
    path = written(book, tmp_path)
    mended(path, book.session)
    assert problems(items(path, book.session)) == []


def test_other_sessions_keep_their_rows(book: AgentsBook, tmp_path: Path) -> None:
    book.ask("Run the build.")
    book.call("build")
    book.work("Are you there?", "status")
    path = written(book, tmp_path)
    with closing(sqlite3.connect(path)) as live, live:
        live.execute("insert into agent_sessions (session_id) values ('other')")
        live.execute(
            "insert into agent_messages (session_id, message_data) values ('other', '{\"x\":1}')"
        )
    mended(path, book.session)
    with closing(sqlite3.connect(path)) as live:
        found = live.execute("select id, message_data from agent_messages where session_id='other'")
        assert found.fetchall() == [(7, '{"x":1}')]


@pytest.mark.parametrize("text", ['{"role": "user"', "[1]", "null", "7", ""], ids=repr)
def test_rows_without_an_item(book: AgentsBook, tmp_path: Path, text: str) -> None:
    book.work("Read the settings.", "settings")
    book.items.insert(2, text)
    path = written(book, tmp_path)
    found = mended(path, book.session)
    assert [f.code for f in found.findings] == ["LS610"]
    readable = text in ("[1]", "null", "7")
    assert found.findings[0].severity == ("error" if readable else "warning")
    assert [kept.value for kept in found.quarantine] == [text]
    assert len(items(path, book.session)) == 4


def test_a_changed_item_keeps_its_other_bytes(book: AgentsBook, tmp_path: Path) -> None:
    book.ask("Read the settings.")
    key = book.call("settings")
    book.items[-1] = book.items[-1].replace('"arguments": ', '"n":1e2,  "arguments": ')
    book.answer(key, "port = 8080")
    broken = json.loads(book.items[-2])["arguments"][:-2]
    book.items[-2] = json.dumps(json.loads(book.items[-2]) | {"arguments": broken})
    book.items[-2] = book.items[-2].replace('"n": 100.0', '"n":1e2')
    path = written(book, tmp_path)
    mended(path, book.session)
    with closing(sqlite3.connect(path)) as live:
        [(text,)] = live.execute("select message_data from agent_messages where id = 2").fetchall()
    assert '"n":1e2' in text
    json.loads(json.loads(text)["arguments"])


def test_a_rollback_takes_rows_away(book: AgentsBook, tmp_path: Path) -> None:
    book.work("Read the settings.", "settings")
    book.ask("Run the build.")
    book.call("build")
    path = written(book, tmp_path)
    mended(path, book.session, strategy="rollback")
    assert len(items(path, book.session)) == 4


def test_tables_with_branches_are_not_taken() -> None:
    tables = ["agent_messages", "agent_sessions", "sqlite_sequence"]
    assert FORM.claims("a.db", tables)
    assert not FORM.claims("a.db", [*tables, "message_structure", "turn_usage"])
    assert not FORM.claims("a.db", ["agent_messages"])


# The SDK itself


def test_the_sdk_goes_on_with_a_mended_session(tmp_path: Path) -> None:
    agents = pytest.importorskip("agents")
    path = tmp_path / "sdk.db"
    call = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}
    ask = {"role": "user", "content": "Run it."}
    more = {"role": "user", "content": "Are you there?"}

    async def talk() -> None:
        session = agents.SQLiteSession("ticket", path)
        await session.add_items([ask, call])
        await session.add_items([more])
        session.close()

    async def go_on() -> list[Any]:
        session = agents.SQLiteSession("ticket", path)
        await session.add_items([{"role": "user", "content": "Go on."}])
        found: list[Any] = await session.get_items()
        assert await session.get_items(limit=1) == found[-1:]
        assert await session.pop_item() == found[-1]
        session.close()
        return found

    asyncio.run(talk())
    assert [row.id for row in rows.list_sessions(path, FORM)] == ["ticket"]
    mended(path, "ticket")
    found = asyncio.run(go_on())
    assert kinds(found) == ["user", "function_call", "function_call_output", "user", "user"]
    assert found[1] == call
    assert problems(found) == []


def test_an_open_session_of_the_sdk_sees_the_repair(tmp_path: Path) -> None:
    agents = pytest.importorskip("agents")
    path = tmp_path / "sdk.db"
    call = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}

    async def live() -> list[Any]:
        session = agents.SQLiteSession("ticket", path)
        await session.add_items([{"role": "user", "content": "Run it."}, call])
        await asyncio.to_thread(mended, path, "ticket")
        await session.add_items([{"role": "user", "content": "Go on."}])
        found: list[Any] = await session.get_items()
        session.close()
        return found

    found = asyncio.run(live())
    assert kinds(found) == ["user", "function_call", "function_call_output", "user"]
