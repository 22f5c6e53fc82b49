"""Session files of pi: a header, then entries that name their parent; the last one is the leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.oracles.common import repeated

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
SKIPPED = ("error", "aborted")


class Session(Marks):
    """A session under construction; entries hang on ``tip``."""

    def __init__(self, name: str) -> None:
        super().__init__(f"pi_{name}")
        self.session = counted_uuid7("pi", name)
        header = {"type": "session", "version": 3, "id": self.session}
        self.lines: list[Json] = [header | {"timestamp": self.time(), "cwd": "/home/ada/project"}]
        self.tip: str | None = None
        self.entries = 0
        self.entry("model_change", provider="anthropic", modelId="claude-sonnet-4-5")
        self.entry("thinking_level_change", thinkingLevel="off")

    def time(self) -> str:
        count = len(self.lines) if hasattr(self, "lines") else 0
        when = START + timedelta(milliseconds=913 * count)
        return when.isoformat(timespec="milliseconds")[:23] + "Z"

    def entry(self, kind: str, **fields: Any) -> Json:
        self.entries += 1
        own = counted(8, self.session, self.entries)
        line = {"type": kind, "id": own, "parentId": self.tip, "timestamp": self.time(), **fields}
        self.tip = own
        self.lines.append(line)
        return line

    def message(self, role: str, content: list[Json], **fields: Any) -> Json:
        return self.entry("message", message={"role": role, "content": content, **fields})

    def ask(self, text: str) -> Json:
        return self.message("user", [{"type": "text", "text": self.words(text)}])

    def say(self, text: str, *calls: str, stop: str | None = None) -> list[str]:
        """The ids of the calls."""
        content: list[Json] = [{"type": "text", "text": self.words(text)}]
        ids = []
        for words in calls:
            command = {"command": self.words(f"echo {words}")}
            ids.append(f"toolu_{counted(20, self.session, self.last)}")
            content.append(
                {"type": "toolCall", "id": ids[-1], "name": "bash", "arguments": command}
            )
        stop = stop or ("toolUse" if calls else "stop")
        usage = {"input": 12, "output": 34, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 46}
        api = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-4-5"}
        self.message("assistant", content, **api, usage=usage, stopReason=stop)
        return ids

    def answer(self, key: str, text: str) -> Json:
        content = [{"type": "text", "text": self.words(text)}]
        fields = {"toolCallId": key, "toolName": "bash", "isError": False}
        return self.message("toolResult", content, **fields)

    def work(self, ask: str, *calls: str) -> None:
        """A whole healthy turn."""
        self.ask(ask)
        for key in self.say(f"I start with: {ask}", *calls):
            self.answer(key, "exit status 0")
        self.say("Done.")

    def stored(self, name: str, data: bytes | None = None, **fields: Any) -> Stored:
        folder = ".pi/agent/sessions/--home-ada-project--"
        if data is None:
            data = joined([dumped(line) for line in self.lines])
        return of_file(
            name,
            format="pi",
            path=f"{folder}/2026-09-01T10-00-00-000Z_{self.session}.jsonl",
            session=self.session,
            data=data,
            problems=violations,
            sent=sent,
            marks=self,
            **fields,
        )


def sent(data: bytes) -> list[Json]:
    """The messages on the way from the last entry to the root, after the newest compaction."""
    lines, _ = read_lines(data)
    entries = [
        line for line in lines if isinstance(line.get("id"), str) and line.get("type") != "session"
    ]
    chain = _chain(entries)
    cut = max((i for i, one in enumerate(chain) if one["type"] == "compaction"), default=None)
    messages = []
    if cut is not None:
        first = chain[cut]["firstKeptEntryId"]
        start = next((i for i, one in enumerate(chain) if one["id"] == first), cut)
        text = {"type": "text", "text": chain[cut]["summary"]}
        messages.append({"role": "user", "content": [text]})
        chain = [*chain[start:cut], *chain[cut + 1 :]]
    messages += [entry["message"] for entry in chain if entry["type"] == "message"]
    return [message for message in messages if message.get("stopReason") not in SKIPPED]


def _chain(entries: list[Json]) -> list[Json]:
    by_id = {entry["id"]: entry for entry in entries}
    chain: list[Json] = []
    here = entries[-1] if entries else None
    while here is not None and here not in chain:
        chain.append(here)
        here = by_id.get(here["parentId"])
    return chain[::-1]


def violations(data: bytes) -> list[str]:
    """What is wrong with the file, and with what a resume sends."""
    lines, found = read_lines(data)
    if not lines or lines[0].get("type") != "session" or "id" not in lines[0]:
        return [*found, "no header"]
    ids = [line.get("id") for line in lines[1:]]
    found += [f"id {twice} is not unique" for twice in repeated(ids)]
    for line in lines[1:]:
        if line.get("parentId") is not None and line["parentId"] not in ids:
            found.append(f"parent of {line.get('id')} is not in the file")
    roots = [line for line in lines[1:] if line.get("parentId") is None]
    found += [] if roots else ["no root"]
    messages = sent(data)
    if not messages or messages[0]["role"] != "user":
        found.append("does not start with the user")
    return found + list(_pairs(messages))


def _pairs(messages: list[Json]) -> Iterator[str]:
    waiting: list[str] = []
    for index, message in enumerate(messages):
        content = message.get("content")
        if not content:
            yield f"messages.{index}: empty"
        if message["role"] == "toolResult":
            if message["toolCallId"] not in waiting:
                yield f"messages.{index}: result without its call"
            else:
                waiting.remove(message["toolCallId"])
            continue
        if waiting:
            yield f"messages.{index}: calls are open"
        blocks = content if isinstance(content, list) else []
        waiting = [block["id"] for block in blocks if block["type"] == "toolCall"]
    if waiting:
        yield "calls are open at the end"


def _pairing() -> Iterable[Stored]:
    book = Session("open_call_at_tail")
    book.work("Read the settings.", "settings")
    book.ask("Run everything.")
    book.say("All at once.", "build", "tests")
    yield book.stored("open_call_at_tail")
    book = Session("open_call_in_middle")
    book.ask("Run everything.")
    first, _ = book.say("All at once.", "build", "tests")
    book.answer(first, "built")
    book.work("Are you there?", "status")
    yield book.stored("open_call_in_middle")
    book = Session("orphan_result")
    book.work("Read the settings.", "settings")
    book.answer("toolu_nobodymadethis", "late output")
    book.say("I see.")
    yield book.stored("orphan_result")
    book = Session("doubled_result")
    book.ask("Read the settings.")
    (key,) = book.say("I read them.", "settings")
    line = book.answer(key, "port = 8080")
    book.message(**line["message"])
    book.say("The port is 8080.")
    yield book.stored("doubled_result")
    book = Session("aborted_with_results")
    book.work("Read the settings.", "settings")
    book.ask("Run the build.")
    (key,) = book.say("I build it.", "build", stop="aborted")
    # pi skips the aborted message; whether it is sent again is up to the repair
    del book.made[-2:]
    book.name += "_rest"
    book.answer(key, "built in part")
    book.work("Go on.", "status")
    yield book.stored("aborted_with_results")


def _graph() -> Iterable[Stored]:
    book = Session("missing_line")
    book.work("Read the settings.", "settings")
    book.say("One more thing.")
    book.lines.pop()
    book.made.pop()
    book.work("Run the build.", "build")
    yield book.stored("missing_line")
    book = Session("cycle")
    book.work("Read the settings.", "settings")
    book.work("Run the build.", "build")
    book.lines[7]["parentId"] = book.lines[9]["id"]
    yield book.stored("cycle")


def _order() -> Iterable[Stored]:
    """The last line is one that others hang on, so that pi would go on from there."""
    for name in ("ancestor_last", "ancestor_again", "reversed"):
        book = Session(name)
        book.work("Read the settings.", "settings")
        book.work("Run the build.", "build")
        head, *lines = book.lines
        moved = lines[4]
        others = [line for line in lines if line is not moved]
        changed = {"ancestor_last": [*others, moved], "ancestor_again": [*lines, moved]}
        book.lines = [head, *changed.get(name, lines[::-1])]
        yield book.stored(name)


def _headless() -> Iterable[Stored]:
    """The first line is lost, torn or has no id."""
    for what in ("lost", "torn", "malformed"):
        book = Session(f"head_{what}")
        book.work("Read the settings.", "settings")
        book.work("Run the build.", "build")
        head, *lines = [dumped(line) for line in book.lines]
        del book.lines[0]["id"]
        first = {"lost": [], "torn": [head[:-10]], "malformed": [dumped(book.lines[0])]}[what]
        yield book.stored(f"head_{what}", joined([*first, *lines]))


def _bytes() -> Iterable[Stored]:
    book = Session("torn")
    book.work("Read the settings.", "settings")
    book.ask("Tell me more.")
    book.say("This is more.")
    *lines, last = [dumped(line) for line in book.lines]
    yield book.stored("torn", joined(lines) + torn(last, book.last), spare=(book.last,))
    book = Session("malformed")
    book.work("Read the settings.", "settings")
    book.ask("Tell me more.")
    lost = book.last
    book.say("This is more.")
    lines = [dumped(line) for line in book.lines]
    lines[-2] = torn(lines[-2], lost)
    yield book.stored("malformed", joined(lines), spare=(lost,))
    for name, change in _CHANGES.items():
        book = Session(name)
        book.work("Read the settings.", "settings")
        book.work("Run the build.", "build")
        yield book.stored(name, change([dumped(line) for line in book.lines]))


_CHANGES: dict[str, Callable[[list[bytes]], bytes]] = {
    "glued": lambda lines: joined([*lines[:4], lines[4] + lines[5], *lines[6:]]),
    "nuls": lambda lines: joined([*lines[:4], b"\0" * 300 + lines[4], *lines[5:]]),
    "byte_order_mark": lambda lines: b"\xef\xbb\xbf" + joined(lines),
}


def _healthy() -> Iterable[Stored]:
    book = Session("healthy")
    book.work("Read the settings.", "settings", "more settings")
    book.entry("custom", customType="notes", data={"x": 1})
    book.work("Run the build.", "build")
    yield book.stored("healthy", healthy=True)
    book = Session("compacted")
    book.ask("Run the build.")
    book.say("I build it.", "build")
    old = tuple(book.made)
    kept = book.ask("Stop.")["id"]
    book.say("I stopped.")
    summary = book.words("We started the build.")
    book.entry("compaction", summary=summary, firstKeptEntryId=kept, tokensBefore=9000)
    book.work("Go on.", "status")
    yield book.stored("compacted", aside=old, healthy=True)
    book = Session("branched")
    book.work("Read the settings.", "settings")
    fork, before = book.tip, len(book.made)
    book.work("Run the build.", "build")
    given_up = tuple(book.made[before:])
    book.tip = fork
    book.work("Run the tests.", "tests")
    yield book.stored("branched", aside=given_up, healthy=True)


CASES: list[Stored] = [
    case for build in (_pairing, _graph, _order, _headless, _bytes, _healthy) for case in build()
]
