"""What opencode sends of a session, whether it comes from its database or from an export.

A call and its result are one part of a message, so neither can be without the other; what breaks is
a part that stays in a running state for ever. Reasoning is left out of the history: it is bound to
the provider that wrote it, and no repair here touches what comes before it on the wire.

The module also finds the messages and parts at which opencode fails, or which it skips, and what to
put there. What opencode needs was found by removing it field by field: without these fields it
opens no session, sends nothing, or silently leaves the part out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from lockstitch.conversation.parts import Path
from lockstitch.dialects import ANTHROPIC
from lockstitch.dialects.placeholders import PARTIAL, UNKNOWN_OUTCOME, is_placeholder
from lockstitch.formats.interface import Fields, History, medium, words_block
from lockstitch.formats.records import as_dict, as_list, substitute_text

USER = "user"
ASSISTANT = "assistant"
OPEN = ("pending", "running")
INTERRUPTED = "[Tool execution was interrupted]"
CLEARED = "[Old tool result content cleared]"

_SUMMARISED = "What did we do so far?"
_SUBTASK = "The following tool was executed by the user"
_ABORTED = "MessageAbortedError"
_NO_ID = re.compile(r"[^a-zA-Z0-9_-]")
_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,", re.ASCII)
# The text of the prompt contains files of these kinds as well.
_AS_TEXT = ("text/plain", "application/x-directory")


class OpenCodePiece(Struct, eq=False):
    """A part of a message, where it is stored, and when it was last written (milliseconds)."""

    id: str
    data: Fields
    number: int
    path: Path
    seen: int = 0


class OpenCodeEntry(Struct, eq=False):
    """A message with its parts, and where it is stored."""

    id: str
    info: Fields
    number: int
    path: Path
    pieces: list[OpenCodePiece]


class OpenCodeThread(Struct):
    """A session as it is sent: the history, and the part that each of its blocks comes from.

    ``owners`` has the stored message for each message of the history. ``homes`` has the part of
    each block, and ``entry_of`` the message of each part, both by identity. ``calls`` has the part
    of each call, by its id in the history.
    """

    history: History
    sent: list[OpenCodeEntry]
    owners: list[OpenCodeEntry] = field(default_factory=list)
    homes: dict[int, OpenCodePiece] = field(default_factory=dict)
    calls: dict[str, OpenCodePiece] = field(default_factory=dict)
    entry_of: dict[int, OpenCodeEntry] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        """The number of prompts that are sent."""
        owners = {id(owner) for owner in self.owners if owner.info.get("role") == USER}
        return len(owners)

    def before_signed(self) -> set[int]:
        """Return the identities of the parts that are sent before the last signed reasoning."""
        parts = [part for entry in self.sent for part in entry.pieces]
        signed = (
            at
            for at, part in enumerate(parts)
            if part.data.get("type") == "reasoning" and part.data.get("metadata")
        )
        return {id(part) for part in parts[: max(signed, default=0)]}


def build_thread(entries: Sequence[OpenCodeEntry], revert: Any = None) -> OpenCodeThread:
    """Return what a resume sends of the stored messages."""
    sent = [entry for entry in _drop_summarised(_drop_reverted(entries, revert)) if _is_sent(entry)]
    thread = OpenCodeThread(History(ANTHROPIC, model=_model(sent)), sent)
    thread.entry_of = {id(piece): entry for entry in sent for piece in entry.pieces}
    for entry in sent:
        if entry.info.get("role") == USER:
            asked = [
                (piece, block) for piece in entry.pieces for block in _prompt_blocks(piece.data)
            ]
            _add(thread, entry, USER, asked)
        elif entry.info.get("role") == ASSISTANT:
            _answer(thread, entry)
    return thread


# Which messages are sent


def _drop_reverted(entries: Sequence[OpenCodeEntry], revert: Any) -> list[OpenCodeEntry]:
    """Leave out what the next prompt removes because the person went back."""
    if type(revert) is not dict:
        return [*entries]
    names = [entry.id for entry in entries]
    if revert.get("messageID") not in names:
        return [*entries]
    at = names.index(revert["messageID"])
    target, part = entries[at], revert.get("partID")
    if not part:
        return [*entries[:at]]
    pieces = [piece.id for piece in target.pieces]
    stop = pieces.index(part) if part in pieces else len(pieces)
    short = OpenCodeEntry(target.id, target.info, target.number, target.path, target.pieces[:stop])
    return [*entries[:at], short]


def _drop_summarised(entries: Sequence[OpenCodeEntry]) -> list[OpenCodeEntry]:
    """Leave out what a finished compaction has replaced by a summary."""
    done = {
        str(entry.info.get("parentID")): entry
        for entry in entries
        if entry.info.get("summary") and entry.info.get("finish") and not entry.info.get("error")
    }
    marks = [n for n, e in enumerate(entries) if e.id in done and _compaction(e) is not None]
    if not marks:
        return [*entries]
    at = marks[-1]
    tail = (_compaction(entries[at]) or {}).get("tail_start_id")
    rest = [*entries[at:]]
    starts = [n for n, entry in enumerate(entries[:at]) if entry.id == tail]
    if not starts:
        return [*entries] if tail else rest
    place = next((n for n, e in enumerate(rest) if e is done[entries[at].id]), 0)
    return [*rest[: place + 1], *entries[starts[0] : at], *rest[place + 1 :]]


def _compaction(entry: OpenCodeEntry) -> Fields | None:
    if entry.info.get("role") != USER:
        return None
    found = (piece.data for piece in entry.pieces if piece.data.get("type") == "compaction")
    return next(found, None)


def _is_sent(entry: OpenCodeEntry) -> bool:
    error = entry.info.get("error")
    if not error or entry.info.get("role") != ASSISTANT:
        return True
    is_aborted = type(error) is dict and error.get("name") == _ABORTED
    said = (piece.data.get("type") for piece in entry.pieces)
    return is_aborted and any(kind not in ("step-start", "reasoning") for kind in said)


def _model(entries: Sequence[OpenCodeEntry]) -> str | None:
    """Return the model if the history is checked by its own rules."""
    for entry in reversed(entries):
        if entry.info.get("role") == ASSISTANT:
            model = entry.info.get("modelID")
            is_own = entry.info.get("providerID") == "anthropic" and type(model) is str
            return model if is_own else None
    return None


# What is sent of a message


def _prompt_blocks(data: Fields) -> Iterator[Fields]:
    kind = data.get("type")
    if kind == "text" and _is_said(data.get("text")) and not data.get("ignored"):
        yield words_block(data["text"])
    elif kind == "file" and data.get("mime") not in _AS_TEXT:
        yield _medium(data)
    elif kind in ("compaction", "subtask"):
        yield words_block(_SUMMARISED if kind == "compaction" else _SUBTASK)


def _is_said(text: Any) -> bool:
    return type(text) is str and bool(text.strip())


def _medium(data: Fields) -> Fields:
    """Return a file as the provider gets it, or as a line that names it."""
    mime, url = str(data.get("mime")), str(data.get("url"))
    match = _DATA.match(url)
    inner = url[match.end() :] if match else ""
    address = url if url.startswith(("https://", "http://")) else ""
    named = f"[Attached {mime}: {data.get('filename') or 'file'}]"
    return medium(mime, inner, address) or words_block(named)


def _answer(thread: OpenCodeThread, entry: OpenCodeEntry) -> None:
    """Add an answer step by step: what is said, the calls, then their results."""
    said: list[tuple[OpenCodePiece, Fields]] = []
    results: list[tuple[OpenCodePiece, Fields]] = []

    def flush() -> None:
        _add(thread, entry, ASSISTANT, said)
        _add(thread, entry, USER, results)
        said.clear()
        results.clear()

    calling = False
    for piece in entry.pieces:
        kind = piece.data.get("type")
        if kind == "tool" and _status(piece) is not None:
            own, state = _call_id(thread, piece), state_of(piece)
            call = {"id": own, "name": str(piece.data.get("tool")), "input": state.get("input", {})}
            said.append((piece, {"type": "tool_use", **call}))
            if not is_open(piece):
                content, failed = _outcome(state)
                block = {"type": "tool_result", "tool_use_id": own, "content": content}
                results.append((piece, {**block, "is_error": True} if failed else block))
            calling = True
        elif kind == "step-start" or (kind == "text" and _is_said(piece.data.get("text"))):
            # a step ends with the results of its calls
            if calling:
                flush()
                calling = False
            if kind == "text":
                said.append((piece, words_block(piece.data["text"])))
    flush()


def _add(
    thread: OpenCodeThread,
    entry: OpenCodeEntry,
    role: str,
    blocks: Sequence[tuple[OpenCodePiece, Fields]],
) -> None:
    if not blocks:
        return
    message = {"role": role, "content": [block for _, block in blocks]}
    paths = [
        (*piece.path, "state") if "tool_use_id" in block or "input" in block else piece.path
        for piece, block in blocks
    ]
    thread.history.add(message, [piece.number for piece, _ in blocks], paths)
    thread.owners.append(entry)
    thread.homes.update({id(block): piece for piece, block in blocks})


def state_of(piece: OpenCodePiece) -> Fields:
    """Return the state of a tool's part."""
    return as_dict(piece.data.get("state"))


def _status(piece: OpenCodePiece) -> str | None:
    status = state_of(piece).get("status")
    return status if status in (*OPEN, "completed", "error") else None


def is_open(piece: OpenCodePiece) -> bool:
    """Whether a part is a call without a result."""
    return piece.data.get("type") == "tool" and _status(piece) in OPEN


def _call_id(thread: OpenCodeThread, piece: OpenCodePiece) -> str:
    """Return a unique id for a call, as opencode spells it for strict providers."""
    name = _NO_ID.sub("_", str(piece.data.get("callID") or piece.id)) or "call"
    own, count = name, 1
    while own in thread.calls:
        count += 1
        own = f"{name}_{count}"
    thread.calls[own] = piece
    return own


def _outcome(state: Fields) -> tuple[Any, bool]:
    """Return what the model gets for a finished call, and whether it gets that as an error."""
    if state["status"] == "error":
        metadata = as_dict(state.get("metadata"))
        partial = metadata.get("output")
        if type(partial) is str and metadata.get("interrupted") is True:
            return partial, False
        return str(state.get("error") or ""), True
    if type(state.get("time")) is dict and state["time"].get("compacted"):
        return CLEARED, False
    text = state.get("output")
    media = [_medium(a) for a in as_list(state.get("attachments")) if type(a) is dict]
    if not media:
        return text if type(text) is str else "", False
    return [*([words_block(str(text))] if _is_said(text) else []), *media], False


# Results that survived


def find_evidence(thread: OpenCodeThread, events: Mapping[str, Fields]) -> dict[str, Fields]:
    """Return results of open calls that were stored, by the call's id in the history.

    A call that was closed with a text in place of its result counts as open, too. ``events`` has
    the last known states of parts, from the program's log. A result is not used if the model has
    reasoned on without it: signed reasoning is valid only after exactly what the model had before
    it.
    """
    found: dict[str, Fields] = {}
    signed = thread.before_signed()
    for own, piece in thread.calls.items():
        if not (is_open(piece) or _has_placeholder(piece)) or id(piece) in signed:
            continue
        outcome = _recorded_outcome(events.get(piece.id))
        if outcome is None and is_open(piece):
            outcome = _streamed_outcome(state_of(piece))
        if outcome is not None:
            block = {"type": "tool_result", "tool_use_id": own, "content": outcome[0]}
            found[own] = {**block, "is_error": True} if outcome[1] else block
    return found


def _has_placeholder(piece: OpenCodePiece) -> bool:
    """Whether a call was closed with a text in place of its result."""
    state = state_of(piece)
    if piece.data.get("type") != "tool" or _status(piece) not in ("completed", "error"):
        return False
    content = _outcome(state)[0]
    return type(content) is str and is_placeholder(content)


def _recorded_outcome(state: Fields | None) -> tuple[Any, bool] | None:
    if state is None or state.get("status") not in ("completed", "error"):
        return None
    content, failed = _outcome(state)
    if not content or (type(content) is str and is_placeholder(content)):
        return None
    return content, failed


def _streamed_outcome(state: Fields) -> tuple[str, bool] | None:
    """Return the output that a tool had shown, marked as partial unless its exit is known."""
    metadata = as_dict(state.get("metadata"))
    output = metadata.get("output")
    if type(output) is not str or not output.strip():
        return None
    if type(metadata.get("exit")) is int:
        return output, False
    return f"{output}\n\n{PARTIAL}", True


_STOPS = "so the session cannot be opened"
_PASSED = "so it is skipped"
_STATES = (*OPEN, "completed", "error")
_OUTPUT = "[lockstitch] A call of the tool {tool} was stored here, damaged. This was its output:\n"
# The fields that opencode gives every part and every message, and keeps outside the JSON.
_KEYS = ("id", "sessionID", "messageID")

# The same conditions in SQL, or wider ones, to find the rows that the log of events may know
# better.
FLAWED_PART = """
CASE WHEN json_valid(data) THEN coalesce(CASE json_extract(data, '$.type')
  WHEN 'text' THEN json_type(data, '$.text') IS NOT 'text'
  WHEN 'tool' THEN json_type(data, '$.callID') IS NOT 'text'
    OR json_type(data, '$.state.input') IS NOT 'object'
    OR json_extract(data, '$.state.status') NOT IN ('pending', 'running', 'completed', 'error')
    OR (json_extract(data, '$.state.status') = 'completed' AND (
      json_type(data, '$.state.output') IS NOT 'text'
      OR json_type(data, '$.state.time') IS NOT 'object'))
  ELSE json_type(data, '$.type') IS NOT 'text' END, 1) ELSE 1 END
"""
FLAWED_MESSAGE = """
CASE WHEN json_valid(data) THEN json_type(data, '$.role') IS NOT 'text'
  OR json_type(data, '$.time') IS NOT 'object' ELSE 1 END
"""


def message_flaw(info: Any) -> str:
    """Return what a message lacks, "" if it lacks nothing."""
    if type(info) is not dict or type(info.get("role")) is not str:
        return f"lacks its role, {_PASSED}"
    return "" if type(info.get("time")) is dict else f"lacks its time, {_STOPS}"


def part_flaw(data: Any) -> str:
    """Return what a part lacks, "" if it lacks nothing."""
    kind = data.get("type") if type(data) is dict else None
    if type(kind) is not str:
        return f"lacks its type, {_PASSED}"
    if kind == "text" and type(data.get("text")) is not str:
        return f"is a text without words, {_STOPS}"
    return _tool_flaw(data) if kind == "tool" else ""


def _tool_flaw(data: Fields) -> str:
    state = data.get("state")
    if type(state) is not dict:
        return f"is a call without its state, {_STOPS}"
    if state.get("status") not in _STATES:
        return f"is a call without the status of its state, {_PASSED}"
    if type(data.get("callID")) is not str:
        return f"is a call without an id, {_STOPS}"
    if type(state.get("input")) is not dict:
        return "is a call without its input, which providers refuse"
    if state["status"] == "completed":
        if type(state.get("output")) is not str:
            return f"is a call that ended without its output, {_STOPS}"
        if type(state.get("time")) is not dict:
            return f"is a call that ended without its time, {_STOPS}"
    return ""


def without_keys(logged: Any) -> Fields:
    """Return a part or a message from the log as opencode stores it."""
    return {key: own for key, own in as_dict(logged).items() if key not in _KEYS}


def repair_part(data: Any, text: str, own: str, time: int) -> Fields:
    """Return a replacement for a part that is not whole, with as much of it as can be kept.

    A call whose input is lost becomes a text, since its input is never made up.
    """
    is_call = type(data) is dict and type(data.get("tool")) is str
    state = as_dict(data.get("state")) if is_call else {}
    # The output of a tool is kept even if only the copy for the screen has it.
    outputs = (state.get("output"), as_dict(state.get("metadata")).get("output"))
    output: str = next((one for one in outputs if type(one) is str and one), "")
    if type(state.get("input")) is not dict:
        said = _OUTPUT.format(tool=data.get("tool")) + output if output else substitute_text(text)
        return words_block(said)
    known = state.get("time")
    times = known if type(known) is dict else {"start": time, "end": time}
    ended = {**state, "time": times}
    if output and state.get("status") != "error":
        title = {"title": state.get("title", ""), "metadata": state.get("metadata", {})}
        ended |= {"status": "completed", "output": output, **title}
    elif state.get("status") not in (*OPEN, "error"):
        ended |= {"status": "error", "error": UNKNOWN_OUTCOME}
    call = data.get("callID")
    named = call if type(call) is str else f"call_{own}"
    return {**data, "type": "tool", "callID": named, "state": ended}


def repair_time(info: Fields, created: int) -> Fields:
    """Return a message with the time of its row."""
    done = {"completed": created} if info.get("role") == ASSISTANT else {}
    return {**info, "time": {"created": created, **done}}
