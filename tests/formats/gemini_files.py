"""Chat files of the Gemini CLI: a header, then messages; one that comes again replaces itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from .stored import Json, Marks, Stored, counted, dumped, joined, of_file, read_lines, torn

START = datetime(2026, 9, 1, 10, 0, tzinfo=UTC)


class Chat(Marks):
    """A chat under construction."""

    def __init__(self, name: str) -> None:
        super().__init__(f"gemini_{name}")
        digits = counted(32, "gemini", name)
        self.session = (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"
        )
        self.lines: list[Json] = []
        header = {"sessionId": self.session, "projectHash": counted(64, "project")}
        times = {"startTime": self.time(), "lastUpdated": self.time()}
        self.lines.append({**header, **times, "kind": "main"})

    def time(self) -> str:
        when = START + timedelta(milliseconds=611 * len(self.lines))
        return when.isoformat(timespec="milliseconds")[:23] + "Z"

    def message(self, kind: str, content: Any, **fields: Any) -> Json:
        own = counted(12, self.session, len(self.lines))
        line = {"id": own, "timestamp": self.time(), "type": kind, "content": content, **fields}
        self.lines.append(line)
        return line

    def ask(self, text: str) -> Json:
        return self.message("user", [{"text": self.words(text)}])

    def say(self, text: str, *calls: Json) -> Json:
        fields: Json = {"model": "gemini-3-pro", "thoughts": []}
        if calls:
            fields["toolCalls"] = list(calls)
        return self.message("gemini", self.words(text), **fields)

    def call(self, words: str, answer: str | None) -> Json:
        """A finished call; without an answer its result is missing."""
        own = f"run_shell_command-{counted(10, self.session, self.made)}"
        name, args = "run_shell_command", {"command": self.words(f"echo {words}")}
        call: Json = {"id": own, "name": name, "args": args, "status": "success"}
        if answer is not None:
            response = {"id": own, "name": name, "response": {"output": self.words(answer)}}
            call["result"] = [{"functionResponse": response}]
        return {**call, "timestamp": self.time()}

    def work(self, ask: str, words: str) -> None:
        """A whole healthy turn."""
        self.ask(ask)
        self.say("I look.", self.call(words, "exit status 0"))
        self.say("Done.")

    def stored(self, name: str, data: bytes | None = None, **fields: Any) -> Stored:
        folder = ".gemini/tmp/project/chats"
        if data is None:
            data = joined([dumped(line) for line in self.lines])
        return of_file(
            name,
            format="gemini-cli",
            path=f"{folder}/session-2026-09-01T10-00-{self.session[:8]}.jsonl",
            session=self.session,
            data=data,
            problems=violations,
            sent=sent,
            marks=self,
            **fields,
        )


def sent(data: bytes) -> list[Json]:
    """The messages as they are last: replaced under their id, cut before the one taken back."""
    messages: dict[str, Json] = {}
    for line in read_lines(data)[0][1:]:
        if "$rewindTo" in line:
            ids = list(messages)
            cut = ids.index(line["$rewindTo"]) if line["$rewindTo"] in ids else 0
            messages = {key: messages[key] for key in ids[:cut]}
        elif isinstance(line.get("id"), str):
            messages[line["id"]] = line
    return [one for one in messages.values() if one.get("type") in {"user", "gemini"}]


def violations(data: bytes) -> list[str]:
    """What is wrong with the file, and with what a resume sends."""
    lines, found = read_lines(data)
    if not lines or "sessionId" not in lines[0]:
        found.append("no header")
    return found + list(_answers(sent(data)))


def _answers(messages: list[Json]) -> Iterator[str]:
    for index, message in enumerate(messages):
        for call in message.get("toolCalls") or []:
            parts = call.get("result") or []
            answers = [part for part in parts if "functionResponse" in part]
            if len(answers) != 1:
                yield f"messages.{index}: {len(answers)} responses for one call"


def _cases() -> Iterable[Stored]:
    book = Chat("result_missing")
    book.ask("Run everything.")
    book.say("All at once.", book.call("build", "built"), book.call("tests", None))
    book.say("Done.")
    yield book.stored("result_missing")
    book = Chat("torn")
    book.work("Read the settings.", "settings")
    book.ask("Tell me more.")
    book.say("This is more.")
    *lines, last = [dumped(line) for line in book.lines]
    yield book.stored("torn", joined(lines) + torn(last, book.last), spare=(book.last,))
    for name, change in _CHANGES.items():
        book = Chat(name)
        book.work("Read the settings.", "settings")
        book.work("Run the build.", "build")
        yield book.stored(name, change([dumped(line) for line in book.lines]))
    book = Chat("healthy")
    book.work("Read the settings.", "settings")
    updated = book.ask("Tell me")
    book.lines.append({**updated, "content": [{"text": f"{book.last} more."}]})
    book.say("This is more.")
    book.message("info", "Checkpoint saved.")
    book.lines.append({"$set": {"lastUpdated": book.time()}})
    yield book.stored("healthy", healthy=True)
    book = Chat("rewound")
    book.work("Read the settings.", "settings")
    at, before = len(book.lines), len(book.made)
    book.work("Run the build.", "build")
    given_up = tuple(book.made[before:])
    book.lines.append({"$rewindTo": book.lines[at]["id"]})
    book.work("Run the tests.", "tests")
    yield book.stored("rewound", aside=given_up, healthy=True)


_CHANGES: dict[str, Callable[[list[bytes]], bytes]] = {
    "glued": lambda lines: joined([*lines[:2], lines[2] + lines[3], *lines[4:]]),
    "nuls": lambda lines: joined([*lines[:2], b"\0" * 300 + lines[2], *lines[3:]]),
}

CASES: list[Stored] = list(_cases())
