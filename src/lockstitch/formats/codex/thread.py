"""What a resume of a Codex rollout sends: the items of the file, replayed as the program does.

A compaction with a replacement starts the list anew; one without keeps what the user said and adds
the summary. A rollback drops the last turns. In a paginated file nothing before the last
``session_meta`` is read. Codex silently drops an item that is not spelled as it reads it.

Codex resumes only a file that starts with a readable head, ``session_meta``. All that a head must
have is in the name of the file or in its other lines, so a lost head can be rebuilt. Results of
tools that are not where a resume looks for them may still be in the events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from lockstitch.conversation.json_text import dump
from lockstitch.conversation.parts import Path
from lockstitch.dialects.base import as_json
from lockstitch.formats.interface import COMPACTED as SUMMED_UP
from lockstitch.formats.interface import LEFT, LOST
from lockstitch.formats.records import (
    BLANK,
    BOM,
    NUL,
    TORN,
    Record,
    as_dict,
    as_list,
    torn_fields,
    unescape,
)
from lockstitch.formats.write_back import MessageHome

META = "session_meta"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAME = re.compile(rf"(?:rollout-.*?)?({_UUID.pattern})")
_NEEDED = ("id", "timestamp", "cwd", "originator", "cli_version")
# The fields of a head that come before the long ones, as they stand in the text of a torn head.
_FIELD = re.compile(
    r'"(id|session_id|forked_from_id|timestamp|cwd|originator|cli_version|source|model_provider'
    r'|history_mode)"\s*:\s*"((?:[^"\\]|\\.)*)"'
)
_FOLDER = re.compile(r"<cwd>([^<\n]+)</cwd>")
_UNKNOWN_VERSION = "0.0.0"
_OWN_NAME = "lockstitch"


def id_in(name: str) -> str | None:
    """Return the session's id from the name of a rollout, None if it has none."""
    match = _NAME.match(name)
    return match[1] if match else None


def is_whole(value: dict[str, Any]) -> bool:
    """Whether a line is a head with everything that Codex needs."""
    payload = value.get("payload")
    if value.get("type") != META or type(payload) is not dict:
        return False
    texts = all(type(payload.get(key)) is str for key in _NEEDED)
    return texts and _UUID.fullmatch(payload["id"]) is not None


def rebuild_head(records: Sequence[Record], data: bytes, name: str) -> dict[str, Any] | None:
    """Return a new head for a rollout, None if the id of its session is unknown.

    What is left of the old head is used first, then the name of the file, then its lines.
    """
    known = _rest_of_head(records, data)
    lines = [record.value for record in records if record.is_record]
    own = known.get("id") or id_in(name)
    if own is None:
        return None
    times = (one["timestamp"] for one in lines if type(one.get("timestamp")) is str)
    made = {
        "session_id": own,
        "timestamp": _time_of(own) or next(times, "1970-01-01T00:00:00.000Z"),
        "cwd": _folder(lines) or "/",
        "originator": _OWN_NAME,
        "cli_version": _UNKNOWN_VERSION,
    }
    ordinals = [one["ordinal"] for one in lines if type(one.get("ordinal")) is int]
    mode = {"history_mode": "paginated"} if ordinals else {}
    payload = {"id": own, **made, **mode, **known}
    head: dict[str, Any] = {"timestamp": payload["timestamp"]}
    if ordinals:
        # the ordinal of a line before the first line that has one
        head["ordinal"] = max(ordinals[0] - 1, 0)
    return {**head, "type": META, "payload": payload}


def _rest_of_head(records: Sequence[Record], data: bytes) -> dict[str, Any]:
    """Return what can be read of a head that is torn, or that lacks required fields."""
    for record in records:
        value = record.value if record.is_record else {}
        payload = value.get("payload")
        if value.get("type") == META and type(payload) is dict and not is_whole(value):
            texts = {key for key in _NEEDED if type(payload.get(key)) is not str}
            return _without_bad_ids({key: own for key, own in payload.items() if key not in texts})
    return _without_bad_ids(torn_fields(data, f'"{META}"', _FIELD, behind='"payload"'))


def _without_bad_ids(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without invalid ids, for which Codex would refuse a head."""
    ids = ("id", "session_id", "forked_from_id")
    wrong = {key for key in ids if key in payload and not _UUID.fullmatch(str(payload[key]))}
    return {key: value for key, value in payload.items() if key not in wrong}


def _time_of(own: str) -> str | None:
    """Return the time at the beginning of an id of version 7."""
    if own[14] != "7":
        return None
    # its first 48 bits are milliseconds since 1970
    when = datetime.fromtimestamp(int(own[:8] + own[9:13], 16) / 1000, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def _folder(lines: Iterable[dict[str, Any]]) -> str | None:
    """Return the first working directory that is named in the lines, None if there is none."""
    for value in lines:
        payload = value.get("payload")
        if value.get("type") == "turn_context" and type(payload) is dict:
            folder = payload.get("cwd")
            if type(folder) is str and folder:
                return folder
        elif value.get("type") == "response_item":
            match = _FOLDER.search(dump(payload))
            if match:
                return unescape(match[1])
    return None


def find_opening(records: Sequence[Record]) -> int:
    """Return the number of the first piece of a file that Codex must be able to read, or -1.

    Torn pieces and NUL bytes have findings of their own.
    """
    other = (BLANK, BOM, NUL, TORN)
    return next((n for n, record in enumerate(records) if record.kind not in other), -1)


_OUTPUT_KINDS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def is_readable(item: dict[str, Any]) -> bool:
    """Whether Codex reads an item when it loads a rollout, as far as is known."""
    kind, content = item.get("type"), item.get("content")
    if kind in _OUTPUT_KINDS:
        return kind != _OUTPUT_KINDS[2] and type(item.get("output")) in (str, list)
    if kind == "message" or (kind is None and "role" in item):
        plain = any(type(b) is str or as_dict(b).get("type") == "text" for b in as_list(content))
        return kind is not None and type(content) is not str and not plain
    return True


def respell(item: Any) -> Any:
    """Return an item as Codex spells it; the same object if it is so already."""
    if type(item) is not dict or is_readable(item):
        return item
    if item.get("type") in _OUTPUT_KINDS:
        kind = "custom_tool_call_output" if item["type"] == _OUTPUT_KINDS[1] else _OUTPUT_KINDS[0]
        kept = {key: value for key, value in item.items() if key not in ("type", "id", "output")}
        return {"type": kind, **kept, "output": _words(item.get("output"))}
    content = item.get("content")
    blocks = content if type(content) is list else [content]
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    rest = {key: value for key, value in item.items() if key not in ("type", "content")}
    return {"type": "message", **rest, "content": [_block(block, kind) for block in blocks]}


def _block(block: Any, kind: str) -> Any:
    if type(block) is str:
        return {"type": kind, "text": block}
    if type(block) is dict and block.get("type") == "text":
        return {**block, "type": kind}
    return block


def _words(output: Any) -> Any:
    """Return the words of an output, which older versions kept in an object."""
    if type(output) in (str, list):
        return output
    content = output.get("content") if type(output) is dict else None
    if type(content) is str:
        return content
    return "" if output is None else as_json(output)


ITEM, EVENT, COMPACTED = "response_item", "event_msg", "compacted"
TYPES = frozenset(
    {
        *(META, ITEM, EVENT, COMPACTED),
        *("turn_context", "world_state", "token_usage_record"),
        *("inter_agent_communication", "inter_agent_communication_metadata"),
    }
)
_PAYLOAD = ("payload",)
_REPLACEMENT = ("payload", "replacement_history")
# What the program itself puts into user and developer messages; no turn starts there.
_CONTEXT = (
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<environment_context>",
    "<environments",
    "<external_",
    "<skill>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<codex_internal_context",
    "<goal_context>",
    "<recommended_plugins>",
    "<hook_prompt",
)
# The ones that hold for the whole session.
_SETTING = _CONTEXT[:4]
_SUMMARY = "Another language model started to solve this problem"
_NO_SUMMARY = "(no summary available)"


def payload_of(value: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of a line; empty if it has none."""
    return as_dict(value.get("payload"))


def is_read(value: dict[str, Any]) -> bool:
    """Whether the program reads a line at all: it needs a time, and no odd ordinal."""
    if "payload" not in value:
        return True
    ordinal = value.get("ordinal")
    return type(value.get("timestamp")) is str and (ordinal is None or type(ordinal) is int)


def is_bare_item(value: dict[str, Any]) -> bool:
    """Whether a line is an item without an envelope, as in the first versions."""
    return "payload" not in value and type(value.get("type")) is str


def find_misspelled(value: dict[str, Any]) -> list[Path]:
    """Return the paths to items that the program cannot read, for which it skips the line."""
    payload = payload_of(value)
    if value.get("type") == ITEM:
        return [] if is_readable(payload) else [_PAYLOAD]
    replacement = payload.get("replacement_history") if value.get("type") == COMPACTED else None
    return [
        (*_REPLACEMENT, place)
        for place, item in enumerate(as_list(replacement))
        if type(item) is dict and not is_readable(item)
    ]


def find_metas(records: Sequence[Record]) -> list[int]:
    """Return the numbers of the records with the session's own data that the program reads."""
    return [
        number
        for number, record in enumerate(records)
        if record.is_record and is_whole(record.value) and is_read(record.value)
    ]


def is_prompt(item: dict[str, Any]) -> bool:
    """Whether an item starts a turn: words of a person or of another agent."""
    if item.get("type") == "agent_message":
        return True
    return _is_message(item, "user") and not _is_context(item)


def setting_of(item: dict[str, Any]) -> str:
    """Return which surroundings an item describes, such as the working directory; "" for none."""
    if not _is_message(item, "user"):
        return ""
    texts = [text.lstrip() for text in texts_of(item)]
    return next((tag for tag in _SETTING for text in texts if text.startswith(tag)), "")


def summary_in(item: dict[str, Any]) -> str:
    """Return the words of a summary that the program wrote, "" for any other item."""
    if not _is_message(item, "user"):
        return ""
    return next((text for text in texts_of(item) if text.startswith(_SUMMARY)), "")


def _is_message(item: dict[str, Any], role: str) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == role


def _is_context(item: dict[str, Any]) -> bool:
    return any(text.lstrip().startswith(_CONTEXT) for text in texts_of(item))


def texts_of(item: dict[str, Any]) -> list[str]:
    """Return the texts of a message."""
    content = item.get("content")
    if type(content) is str:
        return [content]
    texts = [block.get("text") for block in as_list(content) if type(block) is dict]
    return [text for text in texts if type(text) is str]


class CodexThread:
    """The items that a resume sends, and the place of each.

    ``hidden`` has the numbers of the records that the program never sees, ``dropped`` counts the
    turns that were rolled back.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.metas = find_metas(records)
        self.meta = payload_of(records[self.metas[0]].value) if self.metas else {}
        self.is_paginated = self.meta.get("history_mode") == "paginated"
        self.items: list[dict[str, Any]] = []
        self.homes: list[MessageHome] = []
        self.dropped = 0
        self.start = self.metas[-1] if self.is_paginated else 0
        for number in range(self.start, len(records)):
            record = records[number]
            if record.is_record and is_read(record.value) and not find_misspelled(record.value):
                self._replay(number, record.value)

    @cached_property
    def hidden(self) -> list[int]:
        """The records with items that come before the last ``session_meta``."""
        return [
            number
            for number, record in enumerate(self.records[: self.start])
            if record.is_record and record.value.get("type") in (ITEM, COMPACTED)
        ]

    def unsent(self) -> Iterator[tuple[str, str, list[int]]]:
        """Yield the records with items that are not sent, and why."""
        sent = {home.number for home in self.homes}
        kinds = [r.value.get("type") if r.is_record else "" for r in self.records]
        items = [n for n, kind in enumerate(kinds) if kind == ITEM and n not in sent]
        last = max((n for n, kind in enumerate(kinds) if kind == COMPACTED), default=-1)
        yield (
            LOST,
            "written before a second session_meta",
            [number for number in items if number < self.start],
        )
        yield (
            SUMMED_UP,
            "summarized by a compaction",
            [number for number in items if self.start <= number < last],
        )
        yield LEFT, "rolled back", [number for number in items if number >= max(self.start, last)]

    def _replay(self, number: int, value: dict[str, Any]) -> None:
        kind, payload = value.get("type"), payload_of(value)
        if is_bare_item(value):
            self._add(value, MessageHome(number))
        elif kind == ITEM and payload:
            self._add(payload, MessageHome(number, _PAYLOAD))
        elif kind == COMPACTED:
            self._compact(number, payload)
        elif kind == EVENT and payload.get("type") == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))

    def _add(self, item: dict[str, Any], home: MessageHome) -> None:
        self.items.append(item)
        self.homes.append(home)

    def _compact(self, number: int, payload: dict[str, Any]) -> None:
        replacement = payload.get("replacement_history")
        if type(replacement) is list:
            self.items, self.homes = [], []
            for place, item in enumerate(replacement):
                if type(item) is dict:
                    self._add(item, MessageHome(number, (*_REPLACEMENT, place), listed=True))
            return
        kept = [place for place, item in enumerate(self.items) if self._is_kept(item)]
        self.items = [self.items[place] for place in kept]
        self.homes = [self.homes[place] for place in kept]
        text = payload.get("message")
        text = text if type(text) is str and text else _NO_SUMMARY
        block = {"type": "input_text", "text": text}
        summary = {"type": "message", "role": "user", "content": [block]}
        self._add(summary, MessageHome(number, ("payload", "message"), bound=True))

    def _is_kept(self, item: dict[str, Any]) -> bool:
        said = _is_message(item, "user") and not _is_context(item)
        return said and not any(text.startswith(_SUMMARY) for text in texts_of(item))

    def _roll_back(self, turns: Any) -> None:
        starts = [place for place, item in enumerate(self.items) if is_prompt(item)]
        if not starts or type(turns) is not int or turns <= 0:
            return
        cut = starts[-turns] if turns < len(starts) else starts[0]
        # context that the program put before the prompt goes with it
        while cut > starts[0] and self._leads_in(self.items[cut - 1]):
            cut -= 1
        self.dropped += min(turns, len(starts))
        del self.items[cut:], self.homes[cut:]

    def _leads_in(self, item: dict[str, Any]) -> bool:
        return _is_message(item, "developer") or (_is_message(item, "user") and _is_context(item))


_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "function_call_output",
}


def evidence_of(
    records: Sequence[Record], items: Iterable[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Gather, by call id, the outputs in events for calls among the items."""
    calls = [item for item in items if str(item.get("type")) in _OUTPUTS]
    kinds = {str(call.get("call_id")): _OUTPUTS[call["type"]] for call in calls}
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if not record.is_record or record.value.get("type") != EVENT:
            continue
        for call, text in _finished_calls(payload_of(record.value)):
            kind = kinds.get(call)
            if kind is not None and text:
                found.setdefault(call, {"type": kind, "call_id": call, "output": text})
    return found


def _finished_calls(event: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the call that an event ends, and its outcome."""
    kind, call = event.get("type"), event.get("call_id")
    if kind == "item_completed":
        item = as_dict(event.get("item"))
        if item.get("type") == "CommandExecution":
            call = item.get("call_id") or item.get("id")
            if type(call) is str and item.get("status") not in ("in_progress", "declined"):
                yield call, _command(item)
    elif type(call) is not str:
        return
    elif kind == "exec_command_end":
        yield call, _command(event)
    elif kind == "mcp_tool_call_end":
        yield call, _answer(event.get("result"))
    elif kind == "patch_apply_end":
        yield call, _join_streams(event)


def _command(event: dict[str, Any]) -> str:
    """Return the outcome of a command, as the program sent it to the model or would have."""
    seen = event.get("formatted_output")
    if type(seen) is str and seen:
        return seen
    output = event.get("aggregated_output")
    text = output if type(output) is str and output else _join_streams(event)
    code = event.get("exit_code")
    return f"Exit code: {code}\nOutput:\n{text}" if type(code) is int else text


def _join_streams(event: dict[str, Any]) -> str:
    streams = (event.get("stdout"), event.get("stderr"))
    return "".join(text for text in streams if type(text) is str)


def _answer(result: Any) -> str:
    """Return the words of an MCP server's answer, or its error."""
    if type(result) is not dict:
        return ""
    if type(result.get("Err")) is str:
        return f"err: {result['Err']}"
    blocks = as_dict(result.get("Ok")).get("content")
    texts = [b.get("text") for b in blocks or () if type(b) is dict]
    return "\n".join(text for text in texts if type(text) is str)
