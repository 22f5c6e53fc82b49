"""A terminal gets nothing that it might obey: from names, ids, manifests, content, anywhere."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockstitch.cli import terminal
from tests.at_terminal import at_terminal
from tests.files.planted import plant
from tests.inprocess import command as here
from tests.sessions import claude
from tests.sessions.test_undo import KINDS

# Move the cursor, ring, set the title (in 7 and in 8 bits), turn the line around, hide, forge.
EVIL = "\x1b[2J\x07\x1b]0;owned\x07\x9b2J\x85\x9d0;x\x9c\u202e\u2066\u2069\u200e\u200f\u061c\u2028"
BAD = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
OURS = re.compile(r"\x1b\[(0|[12]|3[1236])(;([12]|3[1236]))*m")
LIST = [{"role": "user", "content": f"Hello {EVIL}"}, {"role": "assistant", "content": "Hi"}]


HI = {"type": "text", "text": "Hi"}


def assert_harmless(shown: bytes) -> None:
    text = OURS.sub("", shown.decode("utf-8", "surrogateescape").replace("\r\n", "\n"))
    assert "\x1b" not in text, text
    assert BAD.search(text) is None, text


def document(tmp_path: Path, **options: Any) -> Path:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(LIST, ensure_ascii=False, **options), encoding="utf-8")
    return path


def test_healed_and_exported_json_on_a_terminal_means_the_same(tmp_path: Path) -> None:
    path = document(tmp_path, indent=1)
    status, shown = at_terminal("heal", path, "--dialect", "openai-chat")
    assert_harmless(shown)
    assert status == 0
    end = shown.rindex(b"]") + 1
    assert json.loads(shown[shown.index(b"[") : end].replace(b"\r\n", b"\n")) == LIST
    session = tmp_path / "session.jsonl"
    first = json.loads(claude.line(1, None, "user", f"Hello {EVIL}"))
    lines = [json.dumps(first, ensure_ascii=False), claude.line(2, 1, "assistant", [HI])]
    session.write_text("\n".join(lines), encoding="utf-8")
    status, shown = at_terminal("export", session)
    assert_harmless(shown)
    exported = json.loads(shown[: shown.rindex(b"]") + 1].replace(b"\r\n", b"\n"))
    assert exported[0] == {"role": "user", "content": f"Hello {EVIL}"}
    assert here("export", session).stdout.count(EVIL[-5:].encode()) == 1


def test_a_pipe_gets_the_very_bytes(tmp_path: Path) -> None:
    path = document(tmp_path)
    assert here("heal", path, "--dialect", "openai-chat").stdout == path.read_bytes()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("text", [EVIL, "\U000e0041", "\ud800", "\x7f", "plain", "漢字 é"])
def test_escaped_json_is_the_same_json(text: str, encoding: str) -> None:
    if encoding != "utf-8" and text == "\ud800":
        return
    value = {text: [text, 1.5, {"x": text}]}
    data = json.dumps(value, ensure_ascii=False, indent=2).encode(encoding, "surrogatepass")
    shown = terminal.escape_json(data)
    assert json.loads(shown) == value
    assert_harmless(shown)


def test_returns_between_values_are_line_breaks() -> None:
    assert terminal.escape_json(b'[1,\r2,\r\n3,\t"\\r"]') == b'[1,\n2,\r\n3,\t"\\r"]'


def test_names_of_files(tmp_path: Path) -> None:
    place = tmp_path / f"dir{EVIL}"
    place.mkdir()
    session = place / f"s{EVIL}\nforged: All clean.jsonl"
    session.write_text(claude.broken(), encoding="utf-8")
    os.mkfifo(place / f"pipe{EVIL}.jsonl")
    for words in (
        *(["scan"], ["check"], ["repair"], ["repair", "--diff"], ["repair", "--yes"]),
        *(["undo", "--list"], ["undo"], ["undo", "--yes"], ["show", "--all"], ["compact"]),
    ):
        done = here(*words, session if words[0] in {"show", "compact"} else place)
        assert_harmless(done.stdout + done.stderr)
        lines = (done.stdout + done.stderr).splitlines()
        assert not any(line.startswith(b"forged") for line in lines)


@pytest.mark.parametrize(
    "said", [{"run": EVIL}, {"session": EVIL, "rows": {"format": EVIL, "rows": []}}]
)
def test_what_a_manifest_says(tmp_path: Path, said: dict[str, Any]) -> None:
    session = tmp_path / "session.jsonl"
    session.write_text(claude.healthy(), encoding="utf-8")
    plant(session, b"x", said)
    for words in (["undo", "--list"], ["undo"], ["undo", "--force"], ["undo", "--run", EVIL]):
        for target in (session, tmp_path):
            done = here(*words, target)
            assert_harmless(done.stdout + done.stderr)
            assert b"internal error" not in done.stderr


@pytest.mark.parametrize("kind", ["opencode", "goose"])
def test_ids_of_rows_and_sessions(tmp_path: Path, kind: str) -> None:
    path, _ = KINDS[kind](tmp_path)
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("pragma foreign_keys = off")
        for (table,) in base.execute(
            "select name from sqlite_master where type='table'"
        ).fetchall():
            columns = [row[1] for row in base.execute(f"pragma table_info({table})")]
            for column in set(columns) & {"id", "session_id", "message_id", "title", "name"}:
                kinds = dict(base.execute(f"select typeof({column}), 1 from {table}"))  # noqa: S608
                if set(kinds) == {"text"}:
                    base.execute(f"update or ignore {table} set {column} = {column} || ?", (EVIL,))  # noqa: S608
    for words in (
        ["scan"],
        ["check"],
        ["repair", "--diff"],
        ["repair", "--yes"],
        ["undo", "--list"],
    ):
        done = here(*words, path)
        assert_harmless(done.stdout + done.stderr)


def test_a_line_keeps_our_colours_and_nobody_elses() -> None:
    line = terminal.escape_line("\x1b[1;31mlockstitch:\x1b[0m \x1b[8mhidden\x1b[0m\nforged")
    assert line == "\x1b[1;31mlockstitch:\x1b[0m \\x1b[8mhidden\x1b[0m\\nforged"
    assert terminal.escape_line("a: b\n  = help: c") == "a: b\n  = help: c"
