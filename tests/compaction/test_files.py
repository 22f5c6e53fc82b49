"""Other programs' files made shorter: valid, undoable, and what is kept keeps its bytes."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch import sessions
from lockstitch.errors import LockstitchError, Unmet, Unreadable, UsageError
from lockstitch.files import backup
from lockstitch.journal.projection import SUMMARY
from tests.compaction.files import (
    BUDGET,
    LAST_CODEX_TURN,
    LAST_TURN,
    LONG,
    claude_book,
    claude_file,
    codex_file,
    list_file,
    messages,
)
from tests.formats.claude_files import LAYOUTS, Book, joined
from tests.formats.stored import marks_in

DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock")
NOTES = "Requests: eight tasks, each of them long. Done: all but the last of them, by commands."


def history(path: Path) -> list[Any]:
    [source] = sessions.sources(str(path))
    return sessions.opened(source).transcript.history.messages


def require_clean(path: Path) -> None:
    [source] = sessions.sources(str(path))
    report = sessions.check(source)
    assert (report.error, report.findings) == (None, [])


def kept_marks(sent: list[Any], known: list[str]) -> list[str]:
    """The marks behind the summary, which quotes some itself."""
    at = next(n for n, message in enumerate(sent) if SUMMARY in json.dumps(message))
    return [mark for mark in marks_in(sent[at + 1 :]) if mark in known]


class TestClaudeCode:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_only_appends_and_sends_the_summary_and_the_tail(
        self, tmp_path: Path, layout: str
    ) -> None:
        path, book = claude_file(tmp_path, layout)
        before = path.read_bytes()
        done = sessions.compact(str(path), budget=BUDGET)
        assert path.read_bytes().startswith(before)
        assert (done.done.rung, done.turns, done.changes) == ("digest", 7, [])
        assert done.done.after.tokens <= BUDGET < done.done.before.tokens
        require_clean(path)
        sent = history(path)
        assert sent[0]["content"].startswith(SUMMARY)
        assert kept_marks(sent, book.marks) == book.marks[-LAST_TURN:]

    def test_content_of_what_is_kept_keeps_its_bytes(self, tmp_path: Path) -> None:
        path, _ = claude_file(tmp_path)
        before = path.read_bytes().splitlines()
        sessions.compact(str(path), budget=BUDGET)
        new = path.read_bytes().splitlines()[len(before) + 2 :]
        assert len(new) == LAST_TURN
        old = {content(line) for line in before[-LAST_TURN:]}
        assert {content(line) for line in new} == old

    def test_records_have_ids_and_times_of_their_own(self, tmp_path: Path) -> None:
        path, book = claude_file(tmp_path)
        sessions.compact(str(path), budget=BUDGET)
        records = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert len({record["uuid"] for record in records}) == len(records)
        new = records[len(book.records) :]
        assert [record["parentUuid"] for record in new[1:]] == [r["uuid"] for r in new[:-1]]
        times = [record["timestamp"] for record in records]
        assert times == sorted(times)
        ids = {r["message"].get("id") for r in book.records} - {None}
        assert not ids & {r["message"].get("id") for r in new[1:]}
        callers = {r.get("sourceToolAssistantUUID") for r in new} - {None}
        assert callers <= {record["uuid"] for record in new}

    def test_boundary_is_as_the_program_writes_it(self, tmp_path: Path) -> None:
        path, book = claude_file(tmp_path)
        sessions.compact(str(path), budget=BUDGET)
        lines = path.read_bytes().splitlines()[len(book.records) :]
        boundary, summary = json.loads(lines[0]), json.loads(lines[1])
        assert (boundary["type"], boundary["subtype"]) == ("system", "compact_boundary")
        assert (boundary["parentUuid"], boundary["logicalParentUuid"]) == (None, book.tip)
        assert boundary["compactMetadata"]["trigger"] == "manual"
        assert summary["isCompactSummary"]
        assert summary["isVisibleInTranscriptOnly"]
        assert summary["sessionId"] == boundary["sessionId"] == book.session

    def test_a_second_compaction_carries_the_first_on(self, tmp_path: Path) -> None:
        path, book = claude_file(tmp_path)
        sessions.compact(str(path), lambda _: NOTES, budget=BUDGET)
        asked: list[str] = []
        sessions.compact(str(path), lambda p: asked.append(p) or NOTES, budget=900)
        require_clean(path)
        sent = history(path)
        assert json.dumps(sent).count(SUMMARY) == 1
        assert NOTES in sent[0]["content"]
        assert kept_marks(sent, book.marks)[0] == book.marks[-LAST_TURN]
        assert not asked or NOTES in asked[0]

    def test_an_open_call_is_answered_on_the_way(self, tmp_path: Path) -> None:
        book = claude_book()
        book.ask("One more.")
        book.say("I start it.", "open")
        path = tmp_path / f"{book.session}.jsonl"
        path.write_bytes(joined(book.lines()))
        before = path.read_bytes()
        done = sessions.compact(str(path), budget=BUDGET)
        assert done.changes
        require_clean(path)
        assert book.marks[-1] in kept_marks(history(path), book.marks)
        backup.undo_backup(path)
        assert path.read_bytes() == before

    def test_what_was_typed_meanwhile_and_what_was_attached_is_kept(self, tmp_path: Path) -> None:
        book = claude_book()
        book.ask("Look at the file.")
        book.attach("file", filename="a.txt", content={"text": book.words("attached")})
        turn = book.say("I look.", "look")
        book.answer(turn.calls[0], "here")
        book.attach("queued_command", prompt=book.words("and hurry"))
        book.say("Done.")
        path = tmp_path / f"{book.session}.jsonl"
        path.write_bytes(joined(book.lines()))
        before = path.read_bytes()
        sessions.compact(str(path), budget=BUDGET)
        require_clean(path)
        new = path.read_bytes()[len(before) :]
        assert b"attached MARK" in new
        assert any("and hurry" in json.dumps(message) for message in history(path))

    def test_lines_that_are_written_meanwhile_are_neither_lost_nor_summed_up(
        self, tmp_path: Path
    ) -> None:
        path, book = claude_file(tmp_path)
        count = len(book.records)

        def slow(_prompt: str) -> str:
            if len(book.records) == count:
                book.work("Something new.", "new")
                with path.open("ab") as file:
                    file.write(joined(book.lines()[count:]))
            return NOTES

        sessions.compact(str(path), slow, budget=BUDGET)
        require_clean(path)
        assert kept_marks(history(path), book.marks)[-5:] == book.marks[-5:]


def content(line: bytes) -> bytes:
    """The bytes of a record's content, as they stand in the line."""
    start = line.index(b'"content":')
    return line[start : line.index(b"]", start) if b'"content":[' in line else None][:400]


class TestCodex:
    @pytest.mark.parametrize("paginated", [False, True])
    def test_appends_one_record_that_lists_what_is_sent(
        self, tmp_path: Path, paginated: bool
    ) -> None:
        path, rollout = codex_file(tmp_path, paginated=paginated)
        before = path.read_bytes()
        done = sessions.compact(str(path), budget=BUDGET)
        after = path.read_bytes()
        assert after.startswith(before)
        [line] = after[len(before) :].splitlines()
        record = json.loads(line)
        assert record["type"] == "compacted"
        assert record.get("ordinal") == (len(rollout.lines) if paginated else None)
        assert SUMMARY in record["payload"]["message"]
        require_clean(path)
        assert done.turns == 7
        assert kept_marks(history(path), rollout.made) == rollout.made[-LAST_CODEX_TURN:]
        backup.undo_backup(path)
        assert path.read_bytes() == before

    def test_surroundings_stay_and_are_nobodys_request(self, tmp_path: Path) -> None:
        path, _ = codex_file(tmp_path, paginated=False)
        lines = path.read_bytes().splitlines(keepends=True)
        said = [
            ("developer", "Be brief."),
            ("user", "<environment_context>cwd</environment_context>"),
        ]
        setup = [
            json.dumps(
                {
                    "timestamp": "2026-09-01T10:00:00.000Z",
                    "type": "response_item",
                    "payload": {
                        "type": "message",
                        "role": role,
                        "content": [{"type": "input_text", "text": text}],
                    },
                }
            ).encode()
            + b"\n"
            for role, text in said
        ]
        path.write_bytes(b"".join([lines[0], *setup, *lines[1:]]))
        sessions.compact(str(path), budget=BUDGET)
        require_clean(path)
        sent = history(path)
        assert [item["content"][0]["text"] for item in sent[:2]] == [text for _, text in said]
        assert SUMMARY in sent[2]["content"][0]["text"]
        assert "environment_context" not in sent[2]["content"][0]["text"]

    def test_a_second_compaction_carries_the_first_on(self, tmp_path: Path) -> None:
        path, _ = codex_file(tmp_path, paginated=True)
        sessions.compact(str(path), lambda _: NOTES, budget=BUDGET)
        sessions.compact(str(path), budget=700)
        require_clean(path)
        text = json.dumps(history(path))
        assert text.count(SUMMARY) == 1
        assert NOTES in text


class TestLists:
    @pytest.mark.parametrize("lines", [False, True])
    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_what_is_kept_keeps_its_bytes(self, tmp_path: Path, dialect: str, lines: bool) -> None:
        value = messages(dialect)
        path = list_file(tmp_path, value, lines=lines)
        before = path.read_bytes()
        done = sessions.compact(str(path), budget=BUDGET)
        require_clean(path)
        sent = history(path)
        assert SUMMARY in json.dumps(sent[0])
        assert len(sent) < len(value)
        assert sent[-1] == value[-1]
        assert "The last words." in json.dumps(sent[-1])
        assert all(message in value for message in sent[1:])
        assert done.done.after.tokens <= BUDGET
        assert lockstitch.check(sent, dialect) == []
        assert tail_of(before, 120) == tail_of(path.read_bytes(), 120)
        backup.undo_backup(path)
        assert path.read_bytes() == before

    def test_instructions_stand_before_the_summary(self, tmp_path: Path) -> None:
        system = {"role": "system", "content": "Be brief."}
        path = list_file(tmp_path, [system, *messages("openai-chat")])
        sessions.compact(str(path), budget=BUDGET)
        sent = history(path)
        assert sent[0] == system
        assert SUMMARY in sent[1]["content"]

    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_old_results_are_shortened_first(self, tmp_path: Path, dialect: str) -> None:
        value = messages(dialect, result="x" * 9000, ask="please")
        path = list_file(tmp_path, value)
        done = sessions.compact(str(path), budget=14_000)
        require_clean(path)
        sent = history(path)
        assert (done.done.rung, done.turns) == ("shortened", 0)
        assert len(sent) == len(value)
        assert b"the file as it was before has all of it" in path.read_bytes()
        assert [a == b for a, b in zip(sent, value, strict=True)].count(False) <= 8

    def test_a_request_body_keeps_all_around_its_messages(self, tmp_path: Path) -> None:
        tools = [{"name": "bash", "input_schema": {"type": "object"}}]
        body = {"model": "claude-opus-4-5", "tools": tools, "messages": messages("anthropic")}
        path = list_file(tmp_path, body)
        sessions.compact(str(path), budget=BUDGET)
        require_clean(path)
        found = json.loads(path.read_bytes())
        assert {**found, "messages": None} == {**body, "messages": None}
        assert SUMMARY in json.dumps(found["messages"][0])

    def test_a_second_compaction_carries_the_first_on(self, tmp_path: Path) -> None:
        path = list_file(tmp_path, messages("anthropic"))
        sessions.compact(str(path), lambda _: NOTES, budget=BUDGET)
        sessions.compact(str(path), budget=1200)
        require_clean(path)
        text = json.dumps(history(path))
        assert text.count(SUMMARY) == 1
        assert NOTES in text


def tail_of(data: bytes, size: int) -> bytes:
    return data[-size:]


class TestModel:
    def test_its_summary_is_data_in_a_users_turn(self, tmp_path: Path) -> None:
        path, _ = claude_file(tmp_path)
        done = sessions.compact(str(path), lambda _: NOTES, budget=BUDGET)
        assert done.done.rung == "summary"
        assert history(path)[0] == {"role": "user", "content": f"{SUMMARY}\n{NOTES}"}

    @pytest.mark.parametrize("answer", ["", "API Error: 529", "x" * 10**6, None])
    def test_a_digest_stands_in_for_it(self, tmp_path: Path, answer: Any) -> None:
        path, _ = claude_file(tmp_path)
        done = sessions.compact(str(path), lambda _: answer, budget=BUDGET, deadline=0.5)
        assert done.done.rung == "digest"
        assert done.done.failures
        require_clean(path)

    def test_is_not_asked_again_when_the_session_went_on(self, tmp_path: Path) -> None:
        path, book = claude_file(tmp_path)
        note = json.dumps({"type": "last-prompt", "lastPrompt": "x", "sessionId": book.session})
        asked: list[str] = []

        def ask(prompt: str) -> str:
            if not asked:
                with path.open("a", encoding="utf-8") as file:
                    file.write(note + "\n")
            asked.append(prompt)
            return NOTES

        done = sessions.compact(str(path), ask, budget=BUDGET)
        assert done.done.rung == "summary"
        assert len(asked) == len(set(asked))
        assert note.encode() in path.read_bytes()


class TestNothingIsWritten:
    def test_when_it_fits(self, tmp_path: Path) -> None:
        path, _ = claude_file(tmp_path)
        before = path.read_bytes()
        done = sessions.compact(str(path))
        assert (done.done.rung, done.backup) == ("nothing", None)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("kind", ["claude", "codex", "list"])
    def test_when_the_budget_cannot_be_met(self, tmp_path: Path, kind: str) -> None:
        path = {
            "claude": lambda: claude_file(tmp_path)[0],
            "codex": lambda: codex_file(tmp_path, paginated=True)[0],
            "list": lambda: list_file(tmp_path, messages("anthropic")),
        }[kind]()
        before = path.read_bytes()
        with pytest.raises(Unmet, match=r"\d+ tokens"):
            sessions.compact(str(path), budget=20)
        assert path.read_bytes() == before
        assert [found.name for found in tmp_path.iterdir()] == [path.name]

    @pytest.mark.parametrize("budget", [0, -1])
    def test_for_a_budget_that_is_none(self, tmp_path: Path, budget: int) -> None:
        path, _ = claude_file(tmp_path)
        with pytest.raises(UsageError):
            sessions.compact(str(path), budget=budget)

    @pytest.mark.parametrize("data", [b"", b"\n\n", b"garbage", b"{", b"[]", b"\0" * 100])
    def test_for_what_is_no_session(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "session.jsonl"
        path.write_bytes(data)
        with pytest.raises((LockstitchError, Unreadable)):
            sessions.compact(str(path), budget=BUDGET)
        assert path.read_bytes() == data


def test_a_format_that_cannot_says_which_can(tmp_path: Path) -> None:
    path = tmp_path / "2026.jsonl"
    header = {"type": "session", "version": 3, "id": "a", "timestamp": "2026-09-01T10:00:00Z"}
    path.write_text(json.dumps({**header, "cwd": "/x"}) + "\n", "utf-8")
    with pytest.raises(UsageError, match="Claude Code and Codex"):
        sessions.compact(str(path), budget=BUDGET)


@pytest.mark.parametrize("kind", ["claude", "list"])
def test_images_compact_by_bytes_where_tokens_are_few(tmp_path: Path, kind: str) -> None:
    shown = [
        [{"type": "text", "text": f"Look at {number}."}, picture(200_000)] for number in range(12)
    ]
    if kind == "list":
        said = [
            message
            for blocks in shown
            for message in (
                {"role": "user", "content": blocks},
                {"role": "assistant", "content": "Seen."},
            )
        ]
        path = list_file(tmp_path, [*said, *messages("anthropic", turns=1)])
    else:
        book = Book("images", "tree")
        book.work("Start.", "start")
        for blocks in shown:
            book.link("user", message={"role": "user", "content": blocks})
            book.say("Seen.")
        path = tmp_path / f"{book.session}.jsonl"
        path.write_bytes(joined(book.lines()))
    done = sessions.compact(str(path), most_bytes=1_000_000).done
    assert done.before.tokens < sessions.BUDGET * 0.2
    assert done.after.bytes <= 1_000_000 < done.before.bytes
    require_clean(path)


def picture(size: int) -> dict[str, Any]:
    """A PNG of 800 by 600 pixels that takes about so many bytes."""
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 800, 600, 8, 2, 0, 0, 0))
    data = base64.b64encode(head + chunk(b"IDAT", bytes(size)) + chunk(b"IEND", b"")).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def test_a_history_ten_times_larger_than_the_budget(tmp_path: Path) -> None:
    book = Book("huge", "tree")
    for turn in range(90):
        book.work(f"Task {turn} {LONG}", f"one-{turn}")
    path = tmp_path / f"{book.session}.jsonl"
    path.write_bytes(joined(book.lines()))
    done = sessions.compact(str(path), lambda _: NOTES, budget=4000)
    assert done.done.before.tokens > 10 * 4000
    assert done.done.after.tokens <= 4000
    assert done.done.rung == "summary"
    require_clean(path)
