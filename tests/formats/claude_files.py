"""Claude Code session files, written record by record the way the program writes them.

Two layouts: ``linear`` (1.0 and 2.0: results chained behind the last call) and ``tree``
(2.1: each result hangs on its own call, the next turn on the last result).
Ids and times are counted, never random, and every text carries a mark of its own
(``MARK-<kind>-07``), so that what is lost is counted, not guessed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

Json = dict[str, Any]

CWD = "/home/ada/project"
START = datetime(2026, 9, 1, 10, 0, tzinfo=UTC)
# The lines of one layout follow each other at once, those of the other with a person's pauses.
STEPS = {"linear": timedelta(milliseconds=1237), "tree": timedelta(milliseconds=23741)}
VERSIONS = {"linear": "2.0.50", "tree": "2.1.325"}
LAYOUTS = ("linear", "tree")
MARK = re.compile(r"MARK-[0-9a-z_]+-\d\d")
LONE = re.compile("[\ud800-\udfff]")

INTERRUPTED = (
    "[Tool call interrupted: the session ended before this call's result was recorded, "
    "so its outcome is unknown. The command may have run in part or in full.]"
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it stands in the file: its record, its id, the mark in its input."""

    record: Json
    id: str
    mark: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One API message of the assistant, spread over one record a block."""

    records: list[Json]
    calls: list[Call]


@dataclass(frozen=True, slots=True)
class Case:
    """One session file, and what must be true of it once it is mended.

    ``history`` are the marks that a resume must send, ``spare`` those that may be in the
    quarantine instead, ``aside`` those that are rightly not sent but must stay in the file.
    ``pairs`` maps the mark of a result to the mark of the call that it answers.
    ``side`` are the files beside the session, by their path relative to its folder.
    ``touched`` is how many of the original lines may lose their bytes, None where it depends.
    ``noted`` is a session with nothing but notes, which is healthy, too.
    """

    name: str
    layout: str
    session: str
    data: bytes
    history: tuple[str, ...]
    spare: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    pairs: Mapping[str, str] = field(default_factory=dict)
    side: Mapping[str, bytes] = field(default_factory=dict)
    healthy: bool = False
    noted: bool = False
    touched: int | None = None

    def __str__(self) -> str:
        return f"{self.name}-{self.layout}"


def dumped(record: Any) -> bytes:
    """JSON as JavaScript writes it: no spaces, text as UTF-8, half a pair of surrogates escaped."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def counted_uuid(*names: object) -> str:
    """A UUID of version 4 that depends on *names* alone."""
    digest = hashlib.sha256(" ".join(map(str, names)).encode()).digest()
    return str(UUID(bytes=digest[:16], version=4))


def counted_id(prefix: str, *names: object) -> str:
    """An id as the API hands them out: a prefix and 24 letters and digits."""
    digest = hashlib.sha256(" ".join(map(str, names)).encode()).hexdigest()
    return f"{prefix}_01{digest[:22]}"


class Book:
    """A session file under construction; what is written hangs on ``tip`` unless told otherwise."""

    def __init__(self, name: str, layout: str, *, version: str | None = None) -> None:
        self.name, self.layout = name, layout
        self.session = counted_uuid(name, layout, "session")
        self.seed = self.session
        self.version = version or VERSIONS[layout]
        self.records: list[Json] = []
        self.marks: list[str] = []
        self.thoughts: list[str] = []
        self.pairs: dict[str, str] = {}
        self.tip: str | None = None
        self.now = START
        self._messages = 0
        self._tokens: dict[str | None, int] = {None: 0}

    @property
    def is_tree(self) -> bool:
        return self.layout == "tree"

    def words(self, text: str) -> str:
        """The text with a new mark behind it."""
        self.marks.append(f"MARK-{self.name}-{len(self.marks):02d}")
        return f"{text} {self.marks[-1]}"

    @property
    def last(self) -> str:
        """The mark that was made last."""
        return self.marks[-1]

    def add(self, record: Json) -> Json:
        """Write a record as it is."""
        self.records.append(record)
        return record

    def stamp(self) -> str:
        """The next point in time."""
        self.now += STEPS[self.layout]
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def wait(self, seconds: float) -> None:
        """Let time pass; the next record is this much later than the last one, and no more."""
        self.now += timedelta(seconds=seconds) - STEPS[self.layout]

    def link(self, kind: str, **fields: Any) -> Json:
        """Write a record of the chain, with the fields that all of them have."""
        uuid = counted_uuid(self.seed, len(self.records), len(self.marks))
        where = {
            "cwd": CWD,
            "sessionId": self.session,
            "version": self.version,
            "gitBranch": "main",
        }
        head = {"parentUuid": self.tip, "isSidechain": False}
        tail = {"uuid": uuid, "timestamp": self.stamp()}
        if self.is_tree:
            who = {"userType": "external", "entrypoint": "cli"}
            record = {**head, "type": kind, **fields, **tail, **who, **where}
        else:
            record = {**head, "userType": "external", **where, "type": kind, **fields, **tail}
        # A picture takes fewer tokens than its bytes look like.
        said = min(len(dumped(fields.get("message", ""))), 6000)
        self._tokens[uuid] = self._tokens.get(self.tip, 0) + said // 4
        self.tip = uuid
        return self.add(record)

    # What people and models say

    def ask(self, text: str, **fields: Any) -> Json:
        """A prompt of the user."""
        content = self.words(text)
        prompt = {"promptId": counted_uuid(self.session, self.last)} if self.is_tree else {}
        return self.link("user", **prompt, message={"role": "user", "content": content}, **fields)

    def say(
        self, text: str | None, *calls: str, thinking: str | None = None, **fields: Any
    ) -> Turn:
        """One API message: thinking, a text, and a call of a tool for each of *calls*."""
        blocks: list[Json] = []
        marks: list[str] = []
        if thinking is not None:
            blocks.append(_thought(self.words(thinking)))
            self.thoughts.append(self.last)
        if text is not None:
            blocks.append({"type": "text", "text": self.words(text)})
        for words in calls:
            blocks.append(self.call(words))
            marks.append(self.last)
        records = self.blocks(*blocks, **fields)
        callers = records[len(records) - len(calls) :]
        return Turn(
            records,
            [
                Call(record, record["message"]["content"][0]["id"], mark)
                for record, mark in zip(callers, marks, strict=True)
            ],
        )

    def call(self, words: str, name: str = "Bash", **given: Any) -> Json:
        """A block that calls a tool; its mark is in the input."""
        command = self.words(f"echo {words}")
        call_id = counted_id("toolu", self.session, self.last)
        arguments = given or {"command": command, "description": words}
        return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}

    def blocks(self, *blocks: Json, message_id: str | None = None, **fields: Any) -> list[Json]:
        """One API message of these blocks, a record for each, all under one message id."""
        self._messages += 1
        message_id = message_id or counted_id("msg", self.seed, self._messages)
        calls = any(block["type"] == "tool_use" for block in blocks)
        stop = ("tool_use" if calls else "end_turn") if self.is_tree else None
        return [
            self.link(
                "assistant",
                message=_message(message_id, [block], stop, self._tokens.get(self.tip, 0)),
                requestId=counted_id("req", message_id),
                **fields,
            )
            for block in blocks
        ]

    def answer(self, call: Call, text: str, *, marked: bool = True, **fields: Any) -> Json:
        """The result of a call, where this layout puts it."""
        content = self.words(text) if marked else text
        if marked:
            self.pairs[self.last] = call.mark
        if self.is_tree:
            self.tip = call.record["uuid"]
        return self.result(call.id, content, call.record["uuid"], **fields)

    def result(self, call_id: str, content: Any, source: str | None, **fields: Any) -> Json:
        """A result behind the tip; *source* is the record of its call, where there is one."""
        block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
        extra: Json = {"toolUseResult": {"stdout": content, "stderr": "", "interrupted": False}}
        if self.is_tree and source is not None:
            extra["sourceToolAssistantUUID"] = source
        message = {"role": "user", "content": [block]}
        return self.link("user", message=message, **extra, **fields)

    def work(self, ask: str, *calls: str, done: str = "Done.") -> Turn:
        """A whole healthy turn: prompt, calls, their results, the closing words."""
        self.ask(ask)
        turn = self.say(f"I start with: {ask}", *calls)
        for call in turn.calls:
            self.answer(call, "exit status 0")
        self.say(done)
        return turn

    # What the program notes for itself

    def attach(self, kind: str, **fields: Any) -> Json:
        """An attachment: context that the program injected; part of the chain."""
        return self.link("attachment", attachment={"type": kind, **fields})

    def progress(self, call: Call) -> Json:
        """A progress record of a hook; part of the chain while a tool runs."""
        data = {"type": "hook_progress", "hookEvent": "PreToolUse", "hookName": "PreToolUse:Bash"}
        return self.link("progress", data=data, toolUseID=call.id, parentToolUseID=call.id)

    def system(self, subtype: str, **fields: Any) -> Json:
        """A control record of the program; part of the chain, never sent."""
        return self.link("system", subtype=subtype, isMeta=False, level="info", **fields)

    def note(self, kind: str, **fields: Any) -> Json:
        """A record outside the chain."""
        return self.add({"type": kind, **fields, "sessionId": self.session})

    def snapshot(self, record: Json) -> Json:
        """The state of the files at a prompt; carries the prompt's id under another name."""
        uuid = record["uuid"]
        state = {"messageId": uuid, "trackedFileBackups": {}, "timestamp": record["timestamp"]}
        kind = "file-history-snapshot"
        kept = {"messageId": uuid, "snapshot": state, "isSnapshotUpdate": False}
        return self.add({"type": kind, **kept})

    def boundary(self, kept: Iterable[Json] = ()) -> Json:
        """The first record of a compaction; *kept* are the records that outlive it."""
        uuids = [record["uuid"] for record in kept]
        logical, self.tip = self.tip, None
        meta: Json = {"trigger": "manual", "preTokens": 155031}
        record = self.link(
            "system",
            subtype="compact_boundary",
            content="Conversation compacted",
            isMeta=False,
            level="info",
            logicalParentUuid=logical,
            compactMetadata=meta,
        )
        if uuids:
            anchor = counted_uuid(self.seed, len(self.records), len(self.marks) + 1)
            meta["preservedSegment"] = {
                "headUuid": uuids[0],
                "anchorUuid": anchor,
                "tailUuid": uuids[-1],
            }
            meta["preservedMessages"] = {
                "anchorUuid": anchor,
                "uuids": uuids,
                "allUuids": uuids,
            }
        return record

    def summary(self, text: str) -> Json:
        """The second record of a compaction: what came before, in the user's role."""
        content = self.words(text)
        message = {"role": "user", "content": content}
        shown = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        return self.link("user", message=message, **shown)

    # Out

    def lines(self) -> list[bytes]:
        """The records as lines without their line ends."""
        return [dumped(record) for record in self.records]

    def case(
        self,
        data: bytes | None = None,
        *,
        spare: Iterable[str] = (),
        aside: Iterable[str] = (),
        **fields: Any,
    ) -> Case:
        """What was written, as a case; all marks that are not named belong into the history.

        Thinking is bound to what stands before it, so it may always go with a repair.
        """
        spare, aside = (*spare, *self.thoughts), tuple(aside)
        history = tuple(mark for mark in self.marks if mark not in {*spare, *aside})
        pairs = {
            result: call
            for result, call in self.pairs.items()
            if result in history and call in history
        }
        if data is None:
            data = joined(self.lines())
        return Case(
            **{"pairs": pairs, **fields},
            name=self.name,
            layout=self.layout,
            session=self.session,
            data=data,
            history=history,
            spare=spare,
            aside=aside,
        )


def joined(lines: Iterable[bytes]) -> bytes:
    """Lines as a file, a line feed behind each."""
    return b"".join(line + b"\n" for line in lines)


def torn(line: bytes, mark: str, more: int = 3) -> bytes:
    """The line up to a few bytes behind the mark."""
    return line[: line.index(mark.encode()) + len(mark) + more]


def opened(book: Book) -> Book:
    """The same book after a healthy first turn, with what the program notes around it."""
    prompt = book.ask("Read the settings.")
    book.snapshot(prompt)
    if book.is_tree:
        book.attach("skill_listing", content="- notes: keeps notes", skillCount=1, isInitial=True)
        book.attach(
            "agent_listing_delta",
            addedTypes=["Explore"],
            addedLines=["- Explore: looks around"],
            removedTypes=[],
            isInitial=True,
            showConcurrencyNote=False,
        )
        book.note("ai-title", aiTitle="Settings")
    turn = book.say("I look at them.", "the settings")
    book.answer(turn.calls[0], "port = 8080")
    book.say("The port is 8080.")
    if book.is_tree:
        book.note("last-prompt", lastPrompt="Read the settings.", leafUuid=book.tip)
    return book


def spoken(book: Book) -> list[Json]:
    """The records of a book in which somebody says something."""
    return [record for record in book.records if record["type"] in {"user", "assistant"}]


def sidechain(book: Book, agent: str, prompt: str) -> Book:
    """The file of a sub-agent of *book*, empty but for its prompt."""
    side = Book(book.name, book.layout)
    side.session, side.marks, side.now = book.session, book.marks, book.now
    side.seed = f"{book.session} {agent}"
    message = {"role": "user", "content": prompt}
    side.link("user", message=message, agentId=agent)
    return side


def aside_lines(side: Book, agent: str) -> bytes:
    """The file of a sub-agent: every record says so."""
    flags = {"isSidechain": True, "agentId": agent}
    return joined(dumped({**record, **flags}) for record in side.records)


def _thought(text: str) -> Json:
    signature = hashlib.sha512(text.encode()).hexdigest()
    return {"type": "thinking", "thinking": text, "signature": f"Eq{signature}"}


def _message(message_id: str, content: list[Json], stop: str | None, tokens: int) -> Json:
    """A message of the model; the provider counts more of a longer conversation."""
    usage = {
        "input_tokens": 6,
        "cache_creation_input_tokens": 412,
        "cache_read_input_tokens": 15310 + tokens,
        "output_tokens": 87,
        "service_tier": "standard",
    }
    return {
        "model": "claude-sonnet-4-5-20250929",
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }
