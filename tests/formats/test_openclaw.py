"""OpenClaw's database: read in every form that it keeps events in, and never written."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import zstandard

from lockstitch.sources.targets import sources_in

from .campaign import Home, session_of
from .stored import Json

SESSION = "11111111-2222-4333-8444-555555555555"
PLACE = ".openclaw/agents/main/agent/openclaw-agent.sqlite"
# What is read of OpenClaw's schema 23, with the checks that tell one form from the other.
SCHEMA = """
CREATE TABLE schema_meta (meta_key TEXT PRIMARY KEY, schema_version INTEGER) STRICT;
CREATE TABLE session_nodes (session_key TEXT PRIMARY KEY, current_session_id TEXT NOT NULL,
  entry_json TEXT NOT NULL, updated_at INTEGER NOT NULL, label TEXT, display_name TEXT) STRICT;
CREATE TABLE session_windows (session_id TEXT PRIMARY KEY, session_key TEXT NOT NULL,
  updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT,
  created_at INTEGER NOT NULL, event_zstd BLOB, event_utf8_bytes INTEGER, navigation_json TEXT,
  PRIMARY KEY (session_id, seq),
  CHECK ((event_json IS NOT NULL) <> (event_zstd IS NOT NULL))) STRICT;
CREATE TABLE session_transcript_cold_archives (session_id TEXT PRIMARY KEY, archive_name TEXT,
  archive_sha256 TEXT, storage TEXT, archive_blob BLOB) STRICT;
"""


def event(name: str, parent: str | None, **fields: Any) -> Json:
    base = {"type": "message", "id": name, "parentId": parent, "timestamp": "2026-09-01T10:00:00Z"}
    return {**base, **fields}


def said(name: str, parent: str | None, role: str, text: str, **fields: Any) -> Json:
    message = {"role": role, "content": [{"type": "text", "text": text}]}
    if role == "assistant":
        message |= {"api": "anthropic-messages", "model": "claude-sonnet-4-5"}
    return event(name, parent, message=message, **fields)


HEAD = {"type": "session", "version": 4, "id": SESSION, "timestamp": "t", "cwd": "/home/ada"}
TURN = [HEAD, said("a", None, "user", "Ask."), said("b", "a", "assistant", "Answer.")]


def packed(text: str) -> bytes:
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(text.encode())


def put(home: Home, *events: Json | bytes, zipped: bool = False) -> Path:
    """A database with one session."""
    return home.make("it", PLACE, lambda path: _write(path, events, zipped=zipped))


def _write(path: Path, events: tuple[Json | bytes, ...], *, zipped: bool) -> None:
    base = sqlite3.connect(path)
    base.executescript(SCHEMA)
    base.execute(
        "INSERT INTO session_nodes VALUES ('agent:main', ?, '{}', 5000, NULL, 'Talk')", [SESSION]
    )
    base.execute("INSERT INTO session_windows VALUES (?, 'agent:main', 5000)", [SESSION])
    for seq, one in enumerate(events):
        text = json.dumps(one) if isinstance(one, dict) else None
        blob = packed(text) if text and zipped and seq else None if text else one
        row = [SESSION, seq, None if blob else text, blob]
        base.execute("INSERT INTO transcript_events VALUES (?, ?, ?, 1, ?, NULL, NULL)", row)
    base.commit()
    base.close()


def told(path: Path) -> list[str]:
    """What the next request says."""
    [source] = sources_in(str(path))
    messages = source.open().transcript.history.messages
    return [block["text"] for message in messages for block in message["content"]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize("zipped", [False, True])
def test_it_is_found_checked_shown_and_exported(home: Home, zipped: bool) -> None:
    path = put(home, *TURN, zipped=zipped)
    ran = home.run("scan", "--json")
    report = session_of(ran, path)
    assert (ran.status, report["status"], report["messages"]) == (0, "ok", 2)
    assert (report["format"], report["session"]) == ("openclaw", SESSION)
    assert session_of(home.run("check", "--json", path), path)["status"] == "ok"
    for command in ("show", "export"):
        ran = home.run(command, path, "--session", SESSION)
        assert b"Answer." in ran.out
        assert ran.changed == ()


def test_it_is_never_written(home: Home) -> None:
    call = {"type": "toolCall", "id": "toolu_1", "name": "exec", "arguments": {}}
    message = {"role": "assistant", "content": [call], "api": "anthropic-messages"}
    path = put(home, *TURN, said("c", "b", "user", "More."), event("d", "c", message=message))
    ran = home.run("repair", "--yes", "--json", path)
    report = session_of(ran, path)
    assert ran.status == 1
    assert ran.changed == ()
    [found] = report["findings"]
    assert (found["code"], found["severity"], found["fixable"]) == ("LS101", "warning", False)
    assert "lockstitch export" in home.run("repair", "--yes", path).err
    assert json.loads(home.run("export", path).out)[-1]["content"][0]["type"] == "tool_result"


def test_a_leaf_says_where_it_goes_on(home: Home) -> None:
    leaf = event("l", "d", type="leaf", targetId="b")
    left = [said("c", "b", "user", "Left."), said("d", "c", "assistant", "Gone.")]
    path = put(home, *TURN, *left, leaf, said("e", "l", "user", "On."))
    assert told(path) == ["Ask.", "Answer.", "On."]


def test_a_leaf_that_leads_nowhere_is_none(home: Home) -> None:
    path = put(home, *TURN, event("l", "b", type="leaf", targetId="nowhere"))
    assert told(path) == ["Ask.", "Answer."]


def test_what_was_written_aside_is_no_part_of_it(home: Home) -> None:
    path = put(home, *TURN, said("c", "b", "user", "Aside.", appendMode="side"))
    assert told(path) == ["Ask.", "Answer."]


def test_nothing_before_a_reset_is_brought_back(home: Home) -> None:
    reset = event("r", "b", type="reset", reason="new")
    path = put(home, *TURN, reset, said("c", "r", "user", "New."), said("d", "b", "user", "Old?"))
    assert told(path) == ["New.", "Old?"]
    report = session_of(home.run("check", "--json", path), path)
    assert (report["status"], report["unreachable"]) == ("ok", 0)


def test_a_reset_may_keep_the_end(home: Home) -> None:
    reset = event("r", "b", type="reset", reason="daily", firstKeptEntryId="b")
    path = put(home, *TURN, reset, said("c", "r", "user", "New."))
    assert told(path) == ["Answer.", "New."]


def test_a_missing_parent_is_bridged_as_openclaw_does(home: Home) -> None:
    path = put(home, *TURN, said("c", "gone", "user", "On."))
    assert told(path) == ["Ask.", "Answer.", "On."]
    ran = home.run("check", "--json", path)
    assert (ran.status, session_of(ran, path)["status"]) == (0, "notes")


@pytest.mark.parametrize("bad", [b"\x28\xb5\x2f\xfdxxxx", packed('{"type": "mess')])
def test_an_event_that_cannot_be_read_is_an_error(home: Home, bad: bytes) -> None:
    path = put(home, *TURN, bad, said("c", "b", "user", "On."))
    report = session_of(home.run("check", "--json", path), path)
    [found] = report["findings"]
    assert (found["code"], found["severity"], found["fixable"]) == ("LS610", "error", False)
    assert found["place"] == "transcript_events.3"
    assert told(path) == ["Ask.", "Answer.", "On."]


@pytest.mark.parametrize("storage", ["sqlite", "file"])
def test_cold_storage_is_read(home: Home, storage: str) -> None:
    path = put(home)
    lines = [{"kind": "header", "version": 1, "sessionId": SESSION, "generation": "g"}]
    for seq, one in enumerate(TURN):
        row = {"seq": seq, "event_json": json.dumps(one), "created_at": 1}
        lines.append({"kind": "event", "row": row})
    blob = packed("".join(f"{json.dumps(line)}\n" for line in lines))
    base = sqlite3.connect(path)
    digest = hashlib.sha256(blob).hexdigest()
    kept = blob if storage == "sqlite" else None
    base.execute(
        "INSERT INTO session_transcript_cold_archives VALUES (?, 'x.jsonl.zst', ?, ?, ?)",
        [SESSION, digest, storage, kept],
    )
    base.commit()
    base.close()
    if storage == "file":
        report = session_of(home.run("check", "--json", path), path)
        assert "its archive x.jsonl.zst is missing" in report["error"]
        cold = path.parents[1] / "sessions" / "cold"
        cold.mkdir(parents=True)
        (cold / "x.jsonl.zst").write_bytes(blob)
    assert told(path) == ["Ask.", "Answer."]


def test_before_events_were_packed_the_table_had_no_such_column(home: Home) -> None:
    path = put(home, *TURN)
    base = sqlite3.connect(path)
    base.executescript(
        "CREATE TABLE old AS SELECT session_id, seq, event_json, created_at FROM transcript_events;"
        "DROP TABLE transcript_events; ALTER TABLE old RENAME TO transcript_events;"
        "DROP TABLE session_nodes; DROP TABLE session_transcript_cold_archives;"
    )
    base.close()
    assert told(path) == ["Ask.", "Answer."]
