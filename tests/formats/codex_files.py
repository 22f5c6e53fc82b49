"""Codex rollouts: one line an item, an event or a note about the turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.oracles.openai_responses import problems as refused

from .stored import (
    Json,
    Marks,
    Stored,
    counted,
    counted_uuid7,
    dumped,
    joined,
    of_file,
    read_lines,
    torn,
)

START = datetime(2026, 9, 1, 10, 0, tzinfo=UTC)
USER_EVENT = "user_message"


class Rollout(Marks):
    """A rollout under construction; ``paginated`` files count their lines."""

    def __init__(self, name: str, *, paginated: bool = False) -> None:
        super().__init__(f"codex_{name}")
        self.session = counted_uuid7(name, paginated)
        self.paginated = paginated
        self.lines: list[Json] = []
        self.turn = ""
        self.add("session_meta", **self.meta())

    def meta(self) -> Json:
        return {
            "id": self.session,
            "session_id": self.session,
            "timestamp": "2026-09-01T10:00:00.000Z",
            "cwd": "/home/ada/project",
            "originator": "codex_cli_rs",
            "cli_version": "0.166.0" if self.paginated else "0.142.5",
            "source": "cli",
            "model_provider": "openai",
            "history_mode": "paginated" if self.paginated else "legacy",
        }

    def add(self, kind: str, **payload: Any) -> Json:
        when = START + timedelta(milliseconds=731 * len(self.lines))
        line: Json = {"timestamp": when.isoformat(timespec="milliseconds")[:23] + "Z"}
        if self.paginated:
            line["ordinal"] = len(self.lines)
        line |= {"type": kind, "payload": payload}
        self.lines.append(line)
        return line

    def item(self, kind: str, **fields: Any) -> Json:
        """Something that the model sees."""
        return self.add("response_item", type=kind, **fields)

    def event(self, kind: str, **fields: Any) -> Json:
        return self.add("event_msg", type=kind, **fields)

    def ask(self, text: str) -> Json:
        self.turn = counted_uuid7(self.session, len(self.lines))
        self.event("task_started", turn_id=self.turn, model_context_window=258400)
        self.add("turn_context", turn_id=self.turn, cwd="/home/ada/project", model="gpt-5.5")
        words = self.words(text)
        content = [{"type": "input_text", "text": words}]
        line = self.item("message", role="user", content=content)
        self.event(USER_EVENT, message=words, images=[])
        return line

    def say(self, text: str) -> Json:
        words = self.words(text)
        self.event("agent_message", message=words)
        own = f"msg_{counted(40, self.session, len(self.lines))}"
        content = [{"type": "output_text", "text": words}]
        return self.item("message", id=own, role="assistant", content=content)

    def think(self) -> Json:
        own = f"rs_{counted(40, self.session, len(self.lines))}"
        return self.item("reasoning", id=own, summary=[], encrypted_content="gAAAAAB" + own)

    def call(self, words: str) -> str:
        """A command; its id."""
        arguments = json.dumps({"cmd": self.words(f"echo {words}"), "yield_time_ms": 1000})
        own = f"fc_{counted(40, self.session, len(self.lines))}"
        key = f"call_{counted(24, self.session, len(self.lines))}"
        self.item("function_call", id=own, name="exec_command", arguments=arguments, call_id=key)
        return key

    def answer(self, key: str, text: str) -> Json:
        return self.item("function_call_output", call_id=key, output=self.words(text))

    def done(self) -> Json:
        return self.event("task_complete", turn_id=self.turn, last_agent_message=None)

    def work(self, ask: str, words: str) -> str:
        """A whole healthy turn."""
        self.ask(ask)
        self.think()
        key = self.call(words)
        self.answer(key, "exit status 0")
        self.say("Done.")
        self.done()
        return key

    def stored(self, name: str, data: bytes | None = None, **fields: Any) -> Stored:
        day = ".codex/sessions/2026/09/01"
        if data is None:
            data = joined([dumped(line) for line in self.lines])
        return of_file(
            name,
            format="codex",
            path=f"{day}/rollout-2026-09-01T10-00-00-{self.session}.jsonl",
            session=self.session,
            data=data,
            problems=violations,
            sent=sent,
            marks=self,
            **fields,
        )


def sent(data: bytes) -> list[Json]:
    """The items that a resume sends: the newest replacement, and all that came after it."""
    items: list[Json] = []
    for line in read_lines(data)[0]:
        payload = line.get("payload") or {}
        if not _is_read(line, payload):
            continue
        if line.get("type") == "compacted" and payload.get("replacement_history") is not None:
            items = deepcopy(payload["replacement_history"])
        elif line.get("type") == "response_item":
            items.append(payload)
        elif payload.get("type") == "thread_rolled_back":
            items = _rolled_back(items, payload["num_turns"])
    return items


def violations(data: bytes) -> list[str]:
    """What is wrong with the file, and what the API would refuse in what a resume sends."""
    lines, found = read_lines(data)
    if not lines or lines[0].get("type") != "session_meta":
        found.append("does not start with session metadata")
    head = lines[0].get("payload") or {} if lines else {}
    if not {"id", "timestamp", "cwd", "originator", "cli_version"} <= head.keys():
        found.append("the session metadata lack what they must have")
    paginated = head.get("history_mode") == "paginated"
    if paginated and not isinstance(lines[-1].get("ordinal"), int):
        found.append("the last line is missing an ordinal")
    if paginated and sum(line.get("type") == "session_meta" for line in lines) > 1:
        found.append("a second session_meta hides what is before it")
    return found + refused(sent(data))


def _is_read(line: Json, payload: Json) -> bool:
    """Whether the program takes a line; what it does not know it skips without a word."""
    if "timestamp" not in line or not isinstance(line.get("ordinal", 0), int | None):
        return False
    if line.get("type") != "response_item":
        return True
    is_message = payload.get("type") == "message"
    return isinstance(payload.get("type"), str) and not (
        is_message and not isinstance(payload.get("content"), list)
    )


def _rolled_back(items: list[Json], turns: int) -> list[Json]:
    starts = [index for index, item in enumerate(items) if item.get("role") == "user"]
    return items[: starts[-turns]] if turns <= len(starts) else []


def _open_at_tail() -> Iterable[Stored]:
    for paginated in (False, True):
        name = f"open_call_at_tail{'_paginated' * paginated}"
        book = Rollout(name, paginated=paginated)
        book.work("Read the settings.", "settings")
        book.ask("Run the build.")
        book.call("build")
        yield book.stored(name)


def _open_in_middle() -> Iterable[Stored]:
    for paginated in (False, True):
        name = f"open_call_in_middle{'_paginated' * paginated}"
        book = Rollout(name, paginated=paginated)
        book.ask("Run the build.")
        book.call("build")
        book.work("Are you there?", "status")
        yield book.stored(name)


def _finished_but_not_answered() -> Iterable[Stored]:
    """The command had ended; only the line for the model is missing."""
    book = Rollout("finished_item", paginated=True)
    book.work("Read the settings.", "settings")
    book.ask("Run the build.")
    key = book.call("build")
    item = {
        "type": "CommandExecution",
        "id": key,
        "command": "make",
        "aggregated_output": book.words("built"),
        "exit_code": 0,
        "status": "completed",
    }
    book.event("item_completed", turn_id=book.turn, item=item, thread_id=book.session)
    yield book.stored("finished_item")
    book = Rollout("finished_command")
    book.work("Read the settings.", "settings")
    book.ask("Run the build.")
    key = book.call("build")
    output = book.words("built")
    ended = {"aggregated_output": output, "stdout": output, "stderr": "", "exit_code": 0}
    book.event("exec_command_end", call_id=key, turn_id=book.turn, **ended)
    yield book.stored("finished_command")


def _orphan_output() -> Iterable[Stored]:
    book = Rollout("orphan_output")
    book.ask("Read the settings.")
    book.answer("call_nobodymadethis", "late output")
    book.say("I see.")
    book.done()
    yield book.stored("orphan_output")


def _doubled() -> Iterable[Stored]:
    for what in ("output", "call", "pair"):
        book = Rollout(f"doubled_{what}")
        book.ask("Read the settings.")
        key = book.call("settings")
        call = book.lines[-1]
        output = book.answer(key, "port = 8080")
        book.lines += {"output": [output], "call": [call], "pair": [call, output]}[what]
        book.say("The port is 8080.")
        yield book.stored(f"doubled_{what}")


def _output_before_call() -> Iterable[Stored]:
    book = Rollout("output_before_call")
    book.ask("Read the settings.")
    book.answer(book.call("settings"), "port = 8080")
    book.lines[-2], book.lines[-1] = book.lines[-1], book.lines[-2]
    book.say("The port is 8080.")
    yield book.stored("output_before_call")


def _bytes() -> Iterable[Stored]:
    book = Rollout("torn")
    book.work("Read the settings.", "settings")
    book.ask("Tell me more.")
    book.say("This is more.")
    *lines, last = [dumped(line) for line in book.lines]
    yield book.stored("torn", joined(lines) + torn(last, book.last), spare=(book.last,))
    for name, change in _CHANGES.items():
        book = Rollout(name)
        book.work("Read the settings.", "settings")
        book.work("Run the build.", "build")
        yield book.stored(name, change([dumped(line) for line in book.lines]))


_CHANGES: dict[str, Callable[[list[bytes]], bytes]] = {
    "glued": lambda lines: joined([*lines[:3], lines[3] + lines[4], *lines[5:]]),
    "nuls": lambda lines: joined([*lines[:3], b"\0" * 300 + lines[3], *lines[4:]]),
    "bad_byte": lambda lines: joined(lines).replace(b"Read the", b"Read\xff the"),
    "byte_order_mark": lambda lines: b"\xef\xbb\xbf" + joined(lines),
    "null_line": lambda lines: joined([*lines[:3], b"null", *lines[3:]]),
}


def _headless() -> Iterable[Stored]:
    """The first line is lost, torn or lacks what Codex cannot do without."""
    for paginated in (False, True):
        for what in ("lost", "torn", "malformed"):
            name = f"head_{what}{'_paginated' * paginated}"
            book = Rollout(name, paginated=paginated)
            book.work("Read the settings.", "settings")
            book.work("Run the build.", "build")
            head, *lines = [dumped(line) for line in book.lines]
            del book.lines[0]["payload"]["originator"]
            first = {"lost": [], "torn": [head[:-40]], "malformed": [dumped(book.lines[0])]}[what]
            yield book.stored(name, joined([*first, *lines]))
    book = Rollout("uncounted", paginated=True)
    book.work("Read the settings.", "settings")
    for line in book.lines:
        del line["ordinal"]
    yield book.stored("uncounted")


def _second_meta() -> Iterable[Stored]:
    book = Rollout("second_meta", paginated=True)
    book.work("Read the settings.", "settings")
    book.add("session_meta", **book.meta())
    book.work("Run the build.", "build")
    yield book.stored("second_meta")


def _healthy() -> Iterable[Stored]:
    for paginated in (False, True):
        name = f"healthy{'_paginated' * paginated}"
        book = Rollout(name, paginated=paginated)
        book.work("Read the settings.", "settings")
        book.event("token_count", info=None, rate_limits={"primary": None})
        book.work("Run the build.", "build")
        yield book.stored(name, healthy=True)
    book = Rollout("compacted")
    book.ask("Run the build.")
    book.call("build")
    old = tuple(book.made)
    summary = {"type": "input_text", "text": book.words("We started the build.")}
    history = [{"type": "message", "role": "user", "content": [summary]}]
    book.add("compacted", message="", replacement_history=history)
    book.work("Go on.", "status")
    yield book.stored("compacted", aside=old, healthy=True)
    book = Rollout("rolled_back")
    book.work("Read the settings.", "settings")
    before = len(book.made)
    book.work("Run the build.", "build")
    given_up = tuple(book.made[before:])
    book.event("thread_rolled_back", num_turns=1)
    book.work("Run the tests.", "tests")
    yield book.stored("rolled_back", aside=given_up, healthy=True)


CASES: list[Stored] = [
    case
    for build in (
        _open_at_tail,
        _open_in_middle,
        _finished_but_not_answered,
        _orphan_output,
        _doubled,
        _output_before_call,
        _bytes,
        _headless,
        _second_meta,
        _healthy,
    )
    for case in build()
]
