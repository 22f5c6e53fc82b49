"""A compaction in a Claude Code file: a boundary, the summary, and what is kept, all appended.

What is kept is copied behind the summary in one line, with ids and times of its own. Newer versions
can keep records where they are, by their names, but older ones then leave them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from lockstitch.compaction.plan import usage_in
from lockstitch.dialects.base import text_of_blocks
from lockstitch.formats.claude_code.chain import (
    ASSISTANT,
    ATTACHMENT,
    BOUNDARY,
    TICK,
    ClaudeChain,
    derived_uuid,
    message_of,
    newest,
    queued_words,
    stamp,
)
from lockstitch.formats.history import NEW, parts_of
from lockstitch.sources.compaction import Shortened, Sorting
from lockstitch.sources.interface import Transcript
from lockstitch.sources.records import Record, amend_record, new_record

_BEFORE = ("isSidechain", "agentId")
_BEHIND = ("userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "slug", "teamName")


def sorting(transcript: Transcript, chain: ClaudeChain) -> Sorting:
    """Return the summary in force, and what the program itself put into the user's mouth."""
    homes = [chain.value(row[0]) if row else {} for row in transcript.history.sources]
    summaries = [n for n, value in enumerate(homes) if value.get("isCompactSummary")]
    usages = [(n, usage_in(message_of(value))) for n, value in enumerate(homes)]
    last = summaries[-1] if summaries else NEW
    content = message_of(homes[last]).get("content") if summaries else ""
    return Sorting(
        aside=frozenset(n for n, value in enumerate(homes) if value.get("isMeta")),
        summary=last,
        previous=content if type(content) is str else text_of_blocks(content),
        usage=tuple((n, tokens) for n, tokens in usages if tokens),
    )


def compacted(transcript: Transcript, chain: ClaudeChain, out: Shortened) -> list[Record]:
    """Return the records of the file with the compaction behind them."""
    return [*transcript.records, *_CompactionWriter(transcript, chain, out).records()]


class _CompactionWriter:
    """Writes one compaction behind the last record."""

    def __init__(self, transcript: Transcript, chain: ClaudeChain, out: Shortened) -> None:
        self.data = transcript.context.data
        self.history = transcript.history
        self.chain = chain
        self.out = out
        self.leaf = self.chain.value(self.chain.walk.path[-1])
        values = (self.chain.value(node.number) for node in self.chain.graph.nodes)
        self.time = newest(values) or datetime.fromtimestamp(0, UTC)
        self.seed = (str(transcript.session), str(self.leaf.get("uuid")))
        self.tip: str | None = None
        self.minted = 0

    def records(self) -> Iterator[Record]:
        yield self._boundary()
        yield self._summary()
        names: dict[str, str] = {}
        for number, message in self.out.kept:
            named = derived_uuid(*self.seed, "message", str(number)).replace("-", "")
            for source, parts in self._sources(number, message):
                yield self._copy(source, parts, names, f"msg_{named[:24]}")
                for behind in self._attached(source):
                    yield self._copy(behind, None, names, "")

    def _next(self) -> dict[str, Any]:
        """Return the id and the time of the next record, and let later ones hang on it."""
        self.minted += 1
        self.time += TICK
        self.tip = derived_uuid(*self.seed, "compaction", str(self.minted))
        return {"uuid": self.tip, "timestamp": stamp(self.time)}

    def _line(self, parent: str | None, kind: str, **fields: Any) -> Record:
        head = {"isSidechain": False, **{k: self.leaf[k] for k in _BEFORE if k in self.leaf}}
        tail = {key: self.leaf[key] for key in _BEHIND if key in self.leaf}
        value = {"parentUuid": parent, **head, "type": kind, **fields, **self._next(), **tail}
        return new_record("", value)

    def _boundary(self) -> Record:
        done = self.out.done
        figures = {"preTokens": done.before.tokens, "postTokens": done.after.tokens}
        return self._line(
            None,
            "system",
            subtype=BOUNDARY,
            content="Conversation compacted",
            isMeta=False,
            level="info",
            logicalParentUuid=self.leaf.get("uuid"),
            compactMetadata={"trigger": "manual", **figures},
        )

    def _summary(self) -> Record:
        message = {"role": "user", "content": self.out.summary}
        flags = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        return self._line(self.tip, "user", message=message, **flags)

    def _sources(self, number: int, message: Any) -> Iterator[tuple[int, list[Any] | None]]:
        """Return the records of a message, with the blocks that are kept; None for all."""
        old = self.history.messages[number]
        sources = self.history.sources[number]
        kept = {id(part) for part in parts_of(message)}
        for source in dict.fromkeys(sources):
            pairs = zip(parts_of(old), sources, strict=True)
            parts = [part for part, home in pairs if home == source]
            left = parts if message is old else [part for part in parts if id(part) in kept]
            if left:
                yield source, None if len(left) == len(parts) else left

    def _attached(self, source: int) -> Iterator[int]:
        """Return what the program attached behind a record, such as a file that was named."""
        order = self.chain.order
        for number in order[order.index(source) + 1 :] if source in order else ():
            value = self.chain.value(number)
            if value.get("type") != ATTACHMENT:
                return
            if queued_words(value) is None:
                yield number

    def _copy(
        self, source: int, parts: list[Any] | None, names: dict[str, str], message_id: str
    ) -> Record:
        """Copy a record; all but its links, its time and what is left out keeps its bytes."""
        record, parent = self.chain.records[source], self.tip
        value = record.value
        changes: dict[tuple[str, ...], Any] = {("parentUuid",): parent}
        changes |= {(key,): new for key, new in self._next().items()}
        names[str(value.get("uuid"))] = str(self.tip)
        if parts is not None:
            changes["message", "content"] = parts
        if value.get("type") == ASSISTANT and "id" in message_of(value):
            # records of one id are read as one message, also across a boundary
            changes["message", "id"] = message_id
        caller = names.get(str(value.get("sourceToolAssistantUUID")))
        if caller is not None:
            changes["sourceToolAssistantUUID",] = caller
        for path, new in changes.items():
            record = amend_record(self.data, record, path, new)
        return structs.replace(record, place="", start=-1, end=-1, ending=b"\n", codes=())
