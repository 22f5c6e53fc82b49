"""A compaction in a Codex rollout: one record, which lists anew all that is sent from there on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from lockstitch.formats.codex.repair import renumbered
from lockstitch.formats.codex.thread import (
    COMPACTED,
    EVENT,
    CodexThread,
    payload_of,
    setting_of,
    summary_in,
)
from lockstitch.formats.history import NEW
from lockstitch.sources.compaction import Shortened, Sorting
from lockstitch.sources.interface import Transcript
from lockstitch.sources.records import Record, new_record

# How the program introduces a summary, and knows it again.
PREFIX = (
    "Another language model started to solve this problem and produced a summary of its thinking "
    "process. You also have access to the state of the tools that were used by that language "
    "model. Use this to build on the work that has already been done and avoid duplicating work. "
    "Here is the summary produced by the other language model, use the information in this "
    "summary to assist with your own analysis:"
)
# A summary that only the provider can read; it stands for what it stands for.
_SEALED = ("compaction", "compaction_summary", "context_compaction")


def sorting(transcript: Transcript) -> Sorting:
    """Return the summary in force, and what the program says of the surroundings."""
    thread: CodexThread = transcript.state
    items = thread.items
    latest = {setting_of(item): n for n, item in enumerate(items) if setting_of(item)}
    sealed = {n for n, item in enumerate(items) if item.get("type") in _SEALED}
    summaries = [n for n, item in enumerate(items) if thread.homes[n].bound or summary_in(item)]
    last = summaries[-1] if summaries else NEW
    return Sorting(
        setup=frozenset({*latest.values(), *sealed}),
        aside=frozenset(
            n
            for n, item in enumerate(items)
            if n in summaries[:-1] or (setting_of(item) and n not in latest.values())
        ),
        summary=last,
        previous=_words(items[last]) if summaries else "",
        usage=tuple(_usage(thread)),
    )


def _words(item: dict[str, Any]) -> str:
    blocks = item.get("content")
    texts = [b.get("text") for b in blocks or () if type(b) is dict]
    text = "\n".join(text for text in texts if type(text) is str)
    return text.removeprefix(PREFIX).strip()


def _usage(thread: CodexThread) -> Iterator[tuple[int, int]]:
    """Return what requests cost, and how many of the items they had."""
    homes = [home.number for home in thread.homes]
    for number, record in enumerate(thread.records):
        if record.is_record and record.value.get("type") == EVENT:
            tokens = _tokens(payload_of(record.value))
            if tokens:
                yield bisect_left(homes, number), tokens


def _tokens(event: dict[str, Any]) -> int:
    info = event.get("info") if event.get("type") == "token_count" else None
    last = info.get("last_token_usage") if type(info) is dict else None
    tokens = last.get("input_tokens") if type(last) is dict else None
    return tokens if type(tokens) is int else 0


def compacted(transcript: Transcript, out: Shortened) -> list[Record]:
    """Return the records of the rollout with the compaction behind them."""
    records = list(transcript.records)
    text = f"{PREFIX}\n{out.summary}"
    summary = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    }
    front = [transcript.history.messages[number] for number in out.setup]
    items = [*front, summary, *(message for _, message in out.kept)]
    payload = {"message": text, "replacement_history": items}
    near = _last(records)
    ordinal = {"ordinal": near["ordinal"]} if "ordinal" in near else {}
    time = {"timestamp": near.get("timestamp")}
    value = {**time, **ordinal, "type": COMPACTED, "payload": payload}
    return renumbered(CodexThread([*records, new_record("", value)]), transcript.context.data)


def _last(records: Sequence[Record]) -> dict[str, Any]:
    """Return the last record that has a time."""
    values = (record.value for record in reversed(records) if record.is_record)
    return next((value for value in values if type(value.get("timestamp")) is str), {})
