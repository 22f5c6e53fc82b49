"""What opencode sends of a session, whether it comes from its database or from an export.

A call and its result are one part of a message, so that the two cannot be told apart: what breaks
is a part that is left running for ever. Reasoning is left out of the history: it is bound to the
provider that wrote it, and no repair here touches what comes before it on the wire.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from lockstitch.conversation.parts import Path
from lockstitch.dialects.placeholders import PARTIAL, is_placeholder
from lockstitch.formats.blocks import Fields, medium, words_block
from lockstitch.formats.history import History

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
# Files of these kinds stand in the text of the prompt as well.
_AS_TEXT = ("text/plain", "application/x-directory")


class Piece(Struct, eq=False):
    """A part of a message, where it is stored, and when it was last written (milliseconds)."""

    id: str
    data: Fields
    number: int
    path: Path
    seen: int = 0


class Entry(Struct, eq=False):
    """A message with its parts, and where it is stored."""

    id: str
    info: Fields
    number: int
    path: Path
    pieces: list[Piece]


class Telling(Struct):
    """A session as it is sent: the history, and which part each of its blocks is from.

    ``owners`` gives, message by message of the history, the stored message; ``homes`` the part of
    a block and ``entry_of`` the message of a part, both by identity; ``calls`` the part of a call
    by its id in the history.
    """

    history: History
    sent: list[Entry]
    owners: list[Entry] = field(default_factory=list)
    homes: dict[int, Piece] = field(default_factory=dict)
    calls: dict[str, Piece] = field(default_factory=dict)
    entry_of: dict[int, Entry] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        """How many prompts are sent."""
        owners = {id(owner) for owner in self.owners if owner.info.get("role") == USER}
        return len(owners)

    def before_signed(self) -> set[int]:
        """Return the parts that signed reasoning is sent after, by identity."""
        parts = [part for entry in self.sent for part in entry.pieces]
        last = max((at for at, part in enumerate(parts) if _is_signed(part)), default=0)
        return {id(part) for part in parts[:last]}


def told(entries: Sequence[Entry], revert: Any = None) -> Telling:
    """Work out what a resume sends."""
    sent = [entry for entry in _compacted(_kept(entries, revert)) if _is_sent(entry)]
    telling = Telling(History("anthropic", [], [], [], _model(sent)), sent)
    telling.entry_of = {id(piece): entry for entry in sent for piece in entry.pieces}
    for entry in sent:
        if entry.info.get("role") == USER:
            _ask(telling, entry)
        elif entry.info.get("role") == ASSISTANT:
            _answer(telling, entry)
    return telling


# Which messages are sent


def _kept(entries: Sequence[Entry], revert: Any) -> list[Entry]:
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
    short = Entry(target.id, target.info, target.number, target.path, target.pieces[:stop])
    return [*entries[:at], short]


def _compacted(entries: Sequence[Entry]) -> list[Entry]:
    """Leave out what a finished compaction has put a summary in the place of."""
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


def _compaction(entry: Entry) -> Fields | None:
    if entry.info.get("role") != USER:
        return None
    found = (piece.data for piece in entry.pieces if piece.data.get("type") == "compaction")
    return next(found, None)


def _is_sent(entry: Entry) -> bool:
    error = entry.info.get("error")
    if not error or entry.info.get("role") != ASSISTANT:
        return True
    is_aborted = type(error) is dict and error.get("name") == _ABORTED
    said = (piece.data.get("type") for piece in entry.pieces)
    return is_aborted and any(kind not in ("step-start", "reasoning") for kind in said)


def _model(entries: Sequence[Entry]) -> str | None:
    """Name the model if it is one whose own rules the history is checked by."""
    for entry in reversed(entries):
        if entry.info.get("role") == ASSISTANT:
            model = entry.info.get("modelID")
            is_own = entry.info.get("providerID") == "anthropic" and type(model) is str
            return model if is_own else None
    return None


# What is sent of a message


def _ask(telling: Telling, entry: Entry) -> None:
    blocks = [(piece, block) for piece in entry.pieces for block in _asked(piece.data)]
    _add(telling, entry, USER, blocks)


def _asked(data: Fields) -> Iterator[Fields]:
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
    """Give a file as the provider gets it, or as a line that names it."""
    mime, url = str(data.get("mime")), str(data.get("url"))
    match = _DATA.match(url)
    inner = url[match.end() :] if match else ""
    address = url if url.startswith(("https://", "http://")) else ""
    named = f"[Attached {mime}: {data.get('filename') or 'file'}]"
    return medium(mime, inner, address) or words_block(named)


def _answer(telling: Telling, entry: Entry) -> None:
    """Tell an answer step by step: what is said, the calls, then their results."""
    said: list[tuple[Piece, Fields]] = []
    results: list[tuple[Piece, Fields]] = []

    def flush() -> None:
        _add(telling, entry, ASSISTANT, said)
        _add(telling, entry, USER, results)
        said.clear()
        results.clear()

    calling = False
    for piece in entry.pieces:
        kind = piece.data.get("type")
        if kind == "tool" and _status(piece) is not None:
            own = _call_id(telling, piece)
            said.append((piece, _call(own, piece)))
            results += [(piece, result) for result in _results(own, piece)]
            calling = True
        elif kind == "step-start" or (kind == "text" and _is_said(piece.data.get("text"))):
            if calling:
                flush()
                calling = False
            if kind == "text":
                said.append((piece, words_block(piece.data["text"])))
    flush()


def _add(telling: Telling, entry: Entry, role: str, blocks: Sequence[tuple[Piece, Fields]]) -> None:
    if not blocks:
        return
    message = {"role": role, "content": [block for _, block in blocks]}
    paths = [_path(piece, block) for piece, block in blocks]
    telling.history.add(message, [piece.number for piece, _ in blocks], paths)
    telling.owners.append(entry)
    telling.homes.update({id(block): piece for piece, block in blocks})


def _path(piece: Piece, block: Fields) -> Path:
    return (*piece.path, "state") if "tool_use_id" in block or "input" in block else piece.path


def state_of(piece: Piece) -> Fields:
    """Give the state of a tool's part."""
    state = piece.data.get("state")
    return state if type(state) is dict else {}


def _status(piece: Piece) -> str | None:
    status = state_of(piece).get("status")
    return status if status in (*OPEN, "completed", "error") else None


def is_open(piece: Piece) -> bool:
    """Tell whether a part is a call without a result."""
    return piece.data.get("type") == "tool" and _status(piece) in OPEN


def _call_id(telling: Telling, piece: Piece) -> str:
    """Name a call as opencode does for providers that are strict, once for each part."""
    name = _NO_ID.sub("_", str(piece.data.get("callID") or piece.id)) or "call"
    own, count = name, 1
    while own in telling.calls:
        count += 1
        own = f"{name}_{count}"
    telling.calls[own] = piece
    return own


def _call(own: str, piece: Piece) -> Fields:
    given = state_of(piece).get("input", {})
    return {"type": "tool_use", "id": own, "name": str(piece.data.get("tool")), "input": given}


def _results(own: str, piece: Piece) -> Iterator[Fields]:
    if is_open(piece):
        return
    state = state_of(piece)
    content, failed = _outcome(state)
    block = {"type": "tool_result", "tool_use_id": own, "content": content}
    yield {**block, "is_error": True} if failed else block


def _outcome(state: Fields) -> tuple[Any, bool]:
    """Give what the model is told of a call that ended, and whether it is told as an error."""
    if state["status"] == "error":
        metadata = _metadata(state)
        partial = metadata.get("output")
        if type(partial) is str and metadata.get("interrupted") is True:
            return partial, False
        return str(state.get("error") or ""), True
    if type(state.get("time")) is dict and state["time"].get("compacted"):
        return CLEARED, False
    text = state.get("output")
    attached = state.get("attachments")
    media = [_medium(a) for a in attached if type(a) is dict] if type(attached) is list else []
    if not media:
        return text if type(text) is str else "", False
    return [*([words_block(str(text))] if _is_said(text) else []), *media], False


def _metadata(state: Fields) -> Fields:
    found = state.get("metadata")
    return found if type(found) is dict else {}


# Results that survived


def evidence(telling: Telling, events: Mapping[str, Fields]) -> dict[str, Fields]:
    """Give results of open calls that were stored, by the call's id in the history.

    Open is also a call that was closed with a text in place of its result. ``events`` are the
    last known states of parts, from the program's log. A result is left where
    it is if the model has reasoned on without it: signed reasoning is valid only behind exactly
    what it was given.
    """
    found: dict[str, Fields] = {}
    signed = telling.before_signed()
    for own, piece in telling.calls.items():
        if not (is_open(piece) or _is_stood_in(piece)) or id(piece) in signed:
            continue
        outcome = _recorded(events.get(piece.id))
        if outcome is None and is_open(piece):
            outcome = _streamed(state_of(piece))
        if outcome is not None:
            block = {"type": "tool_result", "tool_use_id": own, "content": outcome[0]}
            found[own] = {**block, "is_error": True} if outcome[1] else block
    return found


def _is_stood_in(piece: Piece) -> bool:
    """Whether a call was closed with a text in place of its result."""
    state = state_of(piece)
    if piece.data.get("type") != "tool" or _status(piece) not in ("completed", "error"):
        return False
    content = _outcome(state)[0]
    return type(content) is str and is_placeholder(content)


def _is_signed(piece: Piece) -> bool:
    return piece.data.get("type") == "reasoning" and bool(piece.data.get("metadata"))


def _recorded(state: Fields | None) -> tuple[Any, bool] | None:
    if state is None or state.get("status") not in ("completed", "error"):
        return None
    content, failed = _outcome(state)
    if not content or (type(content) is str and is_placeholder(content)):
        return None
    return content, failed


def _streamed(state: Fields) -> tuple[str, bool] | None:
    """Give the output that a tool had shown: all of it if its exit is known, else a part."""
    metadata = _metadata(state)
    output = metadata.get("output")
    if type(output) is not str or not output.strip():
        return None
    if type(metadata.get("exit")) is int:
        return output, False
    return f"{output}\n\n{PARTIAL}", True
