"""What a repair wrote in place of a result is known again by the next one, in every format."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockstitch.conversation.parts import RESULT
from lockstitch.dialects.profiles import new_dialect
from lockstitch.formats import repair
from lockstitch.formats.claude_code import ClaudeCode
from lockstitch.formats.codex import Codex
from lockstitch.formats.gemini_cli import GeminiCli
from lockstitch.formats.goose import Goose
from lockstitch.formats.interface import Context, Format, Transcript
from lockstitch.formats.openai_agents import OpenAIAgents
from lockstitch.formats.opencode import OpenCode
from lockstitch.formats.pi import Pi
from lockstitch.sources import rows

from .claude_files import Book, Call
from .codex_files import Rollout
from .databases import AgentsBook, GooseBook, OpencodeBook
from .gemini_files import Chat
from .pi_files import Session
from .stored import dumped, joined
from .surgery import mend

LATE = "what the tool had said"


def told(transcript: Transcript) -> list[tuple[str, bool]]:
    """The results that are sent, and which of them stand in for one."""
    dialect = new_dialect(transcript.history.dialect)
    parts = [p for m in dialect.read(transcript.history.messages) for p in m.parts]
    return [(dialect.result_text(p), dialect.is_placeholder(p)) for p in parts if p.kind == RESULT]


# Files: the late result is one more line


def _claude() -> tuple[Book, Call]:
    book = Book("neutral", "tree")
    book.ask("Run it.")
    (call,) = book.say("I run it.", "build").calls
    book.ask("Are you there?")
    book.say("Yes.")
    return book, call


def _claude_line(book: Book, call: Call) -> Any:
    """The client hangs it on the call, beside what came since."""
    return book.answer(call, LATE)


def _codex() -> tuple[Rollout, str]:
    book = Rollout("neutral")
    book.ask("Run it.")
    key = book.call("build")
    book.ask("Are you there?")
    book.say("Yes.")
    return book, key


def _codex_line(book: Rollout, key: str) -> Any:
    return book.answer(key, LATE)


def _codex_event(book: Rollout, key: str) -> Any:
    output = book.words(LATE)
    ended = {"aggregated_output": output, "stdout": output, "stderr": "", "exit_code": 0}
    return book.event("exec_command_end", call_id=key, turn_id=book.turn, **ended)


def _pi() -> tuple[Session, str]:
    book = Session("neutral")
    book.ask("Run it.")
    (key,) = book.say("I run it.", "build")
    book.ask("Are you there?")
    book.say("Yes.")
    return book, key


def _pi_line(book: Session, key: str) -> Any:
    return book.answer(key, LATE)


def _gemini() -> tuple[Chat, str]:
    book = Chat("neutral")
    book.ask("Run it.")
    call = book.call("build", None)
    book.say("I run it.", call)
    book.ask("Are you there?")
    book.say("Yes.")
    return book, call["id"]


def _gemini_line(book: Chat, key: str) -> Any:
    response = {"id": key, "name": "run_shell_command", "response": {"output": book.words(LATE)}}
    return book.message("user", [{"functionResponse": response}])


FILES: dict[str, tuple[Format, Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "claude code, a branch": (ClaudeCode(), _claude, _claude_line),
    "codex, a late line": (Codex(), _codex, _codex_line),
    "codex, an event": (Codex(), _codex, _codex_event),
    "pi, a late line": (Pi(), _pi, _pi_line),
    "gemini, a late line": (GeminiCli(), _gemini, _gemini_line),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_line_that_comes_after_the_repair(kind: str) -> None:
    form, make, late = FILES[kind]
    book, key = make()
    lines = book.lines() if isinstance(book, Book) else [dumped(line) for line in book.lines]
    first = mend(form, joined(lines))
    assert [stands_in for _, stands_in in told(first.again)] == [True]
    line = dumped(late(book, key))
    if form.name == "pi":
        tip = json.loads(first.lines[-2])["id"]
        line = dumped({**json.loads(line), "parentId": tip})
    second = mend(form, first.data + line + b"\n")
    assert [(LATE in text, stands_in) for text, stands_in in told(second.again)] == [(True, False)]
    assert second.remaining == []


# Databases: one more row


def _changed(path: Path, query: str, *given: Any) -> None:
    with closing(sqlite3.connect(path)) as live, live:
        live.execute(query, given)


def _repaired(form: Any, path: Path, session: str) -> Transcript:
    before = form.parse(rows.load_rows(path, form, session), Context(b"", session))
    mended = repair.plan_repair(form, before, repair.RepairOptions())
    if mended.changed:
        rows.write_rows(path, form, mended.before.records, mended.after.records, "run")
    after: Transcript = form.parse(rows.load_rows(path, form, session), Context(b"", session))
    assert repair.findings_in(form, after) == []
    return after


def _goose(path: Path) -> tuple[Any, str, Callable[[], None]]:
    book = GooseBook("neutral")
    book.message("user", book.text("Run it."))
    request = book.request("build")
    book.message("assistant", request)
    book.message("user", book.text("Are you there?"))
    book.message("assistant", book.text("Yes."))
    book.write(path)

    def late() -> None:
        _changed(
            path,
            "insert into messages (message_id, session_id, role, content_json, created_timestamp,"
            " metadata_json) values ('late', ?, 'user', ?, 2000000000, '{}')",
            book.session,
            json.dumps([book.response(request["id"], LATE)]),
        )

    return Goose(), book.session, late


def _agents(path: Path) -> tuple[Any, str, Callable[[], None]]:
    book = AgentsBook("neutral")
    book.ask("Run it.")
    key = book.call("build")
    book.ask("Are you there?")
    book.say("Yes.")
    book.write(path)

    def late() -> None:
        item = {"type": "function_call_output", "call_id": key, "output": book.words(LATE)}
        insert = "insert into agent_messages (session_id, message_data) values (?, ?)"
        _changed(path, insert, book.session, json.dumps(item))

    return OpenAIAgents(), book.session, late


def _opencode(path: Path) -> tuple[Any, str, Callable[[], None]]:
    return _opencode_with(path, None)


def _opencode_partly(path: Path) -> tuple[Any, str, Callable[[], None]]:
    """A call that had shown a part of its output, without an end."""
    return _opencode_with(path, {"output": LATE[:8]})


def _opencode_gone_on(path: Path) -> tuple[Any, str, Callable[[], None]]:
    """The model has answered since: opencode's own words stand for the result."""
    return _opencode_with(path, None, gone_on=True)


def _opencode_with(
    path: Path, metadata: Any, *, gone_on: bool = False
) -> tuple[Any, str, Callable[[], None]]:
    book = OpencodeBook("neutral")
    book.message("user", book.text("Run it."))
    tool = book.tool("build", None)
    if metadata is not None:
        tool["state"]["metadata"] = metadata
    book.message("assistant", tool, done=False)
    if gone_on:
        book.message("user", book.text("Are you there?"))
        book.message("assistant", book.text("Yes."))
    book.write(path)

    def late() -> None:
        ended = {"status": "completed", "input": {}, "output": LATE, "title": "x"}
        part = {**book.parts[1][2], "id": book.parts[1][0], "state": ended}
        data = json.dumps({"sessionID": book.session, "part": part})
        insert = "insert into event values ('evt_1', ?, 1, 'message.part.updated.1', ?)"
        _changed(path, insert, book.session, data)

    return OpenCode(), book.session, late


BASES = {
    "goose": _goose,
    "openai-agents": _agents,
    "opencode": _opencode,
    "opencode, a part": _opencode_partly,
    "opencode, gone on": _opencode_gone_on,
}


@pytest.mark.parametrize("kind", BASES)
def test_a_row_that_comes_after_the_repair(kind: str, tmp_path: Path) -> None:
    form, session, late = BASES[kind](tmp_path / "base.db")
    closed = _repaired(form, tmp_path / "base.db", session)
    assert [stands_in for _, stands_in in told(closed)] == [True]
    late()
    after = _repaired(form, tmp_path / "base.db", session)
    assert [(LATE in text, stands_in) for text, stands_in in told(after)] == [(True, False)]
