"""Writes a repaired history back into the messages and parts of opencode, wherever they are stored.

An open call gets what opencode itself writes for a tool that failed, or for one that ended if its
output survived. If its message never ended, it ends with the call, as after an interrupt. If the
model has gone on since, the call keeps the words that opencode has sent for it all along, so that
nothing changes on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from lockstitch.conversation.parts import Path
from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME
from lockstitch.formats.interface import NEW, Fields, SourcedMessage, words, words_block
from lockstitch.formats.opencode.history import (
    ASSISTANT,
    INTERRUPTED,
    OpenCodeEntry,
    OpenCodePiece,
    OpenCodeThread,
    is_open,
    state_of,
)


class OpenCodeEditor(Protocol):
    """How a store is changed; nothing is changed before all changes are known."""

    def put(self, what: OpenCodeEntry | OpenCodePiece, path: Path, value: Any) -> None:
        """Set a value in a message's own data or in a part."""

    def drop(self, what: OpenCodeEntry | OpenCodePiece) -> None:
        """Remove a part, or a message with all its parts."""

    def add_part(self, entry: OpenCodeEntry, after: OpenCodePiece | None, data: Fields) -> None:
        """Insert a new part into a message, after another one or at the front."""

    def add_message(self, after: OpenCodeEntry | None, role: str, data: Fields) -> None:
        """Insert a new message with one part, after another message or at the front."""


class OpenCodeWriteBack:
    """Makes the changes through which the repaired history becomes the one that is sent."""

    def __init__(
        self, thread: OpenCodeThread, repaired: Sequence[SourcedMessage], editor: OpenCodeEditor
    ) -> None:
        self.thread = thread
        self.repaired = repaired
        self.editor = editor
        self.kept: set[int] = set()
        self.ends: dict[str, int] = {}

    def write_back(self) -> None:
        """Write the repaired messages, then remove what is left over."""
        last: OpenCodeEntry | None = None
        for sourced in self.repaired:
            entry = self._entry(sourced)
            self._write_message(sourced, entry, last)
            last = entry or last
        for entry in self.thread.sent:
            time = entry.info.get("time")
            if entry.id in self.ends and type(time) is dict and "completed" not in time:
                self.editor.put(entry, ("time", "completed"), self.ends[entry.id])
        sent = {id(piece) for piece in self.thread.homes.values()}
        for entry in self.thread.sent:
            mine = [piece for piece in entry.pieces if id(piece) in sent]
            gone = [piece for piece in mine if id(piece) not in self.kept]
            if gone and len(gone) == len(mine):
                self.editor.drop(entry)
            else:
                for piece in gone:
                    self.editor.drop(piece)

    def _entry(self, sourced: SourcedMessage) -> OpenCodeEntry | None:
        """Return the stored message of a repaired one: that of its parts, or the one it was."""
        for _, block in sourced.parts:
            piece = self._piece(sourced, block)
            if piece is not None:
                return self.thread.entry_of[id(piece)]
        return None if sourced.origin == NEW else self.thread.owners[sourced.origin]

    def _piece(self, sourced: SourcedMessage, block: Fields) -> OpenCodePiece | None:
        """Return the stored part that a block was, or the part of the call that it answers."""
        before = sourced.earlier.get(id(block), block)
        piece = self.thread.homes.get(id(before))
        if piece is None or before is block or "tool_use_id" in block:
            return piece or self._call_part_of(block)
        # a result is stored in its call, where text in its place would become the model's
        owner = self.thread.entry_of[id(piece)]
        return piece if owner.info.get("role") == sourced.message.get("role") else None

    def _write_message(
        self, sourced: SourcedMessage, entry: OpenCodeEntry | None, last: OpenCodeEntry | None
    ) -> None:
        before: OpenCodePiece | None = None
        for _, block in sourced.parts:
            piece = self._piece(sourced, block)
            if piece is None:
                data, role = words_block(words(block)), str(sourced.message.get("role"))
                if entry is not None and entry.info.get("role") == role:
                    self.editor.add_part(entry, before, data)
                else:
                    self.editor.add_message(last, role, data)
                continue
            if id(block) not in self.thread.homes:
                self._write(piece, block)
            self.kept.add(id(piece))
            before = piece

    def _call_part_of(self, block: Fields) -> OpenCodePiece | None:
        """Return the part of the call to which a new result, or a changed call, belongs."""
        own = block.get("tool_use_id") or block.get("id")
        return self.thread.calls.get(own) if type(own) is str else None

    def _write(self, piece: OpenCodePiece, block: Fields) -> None:
        kind = block.get("type")
        if kind == "tool_result":
            self._close(piece, block)
        elif kind == "tool_use":
            self._put(piece, ("tool",), block.get("name"))
            self._put(piece, ("state", "input"), block.get("input"))
        elif kind in ("image", "document"):
            source = block["source"]
            if source.get("type") == "base64":
                self._put(piece, ("mime",), source["media_type"])
                url = f"data:{source['media_type']};base64,{source['data']}"
                self._put(piece, ("url",), url)
        elif piece.data.get("type") == "text":
            self._put(piece, ("text",), words(block))
        else:
            self.editor.put(piece, (), words_block(words(block)))

    def _put(self, what: OpenCodeEntry | OpenCodePiece, path: Path, value: Any) -> None:
        data: Any = what.data if isinstance(what, OpenCodePiece) else what.info
        for step in path:
            data = data.get(step) if type(data) is dict else None
        # for Python 1 equals true, for JSON it does not
        if data != value or type(data) is not type(value):
            self.editor.put(what, path, value)

    def _close(self, piece: OpenCodePiece, block: Fields) -> None:
        """Write a result as opencode does."""
        text, failed = words(block), bool(block.get("is_error"))
        if text == UNKNOWN_OUTCOME and self._went_on(piece):
            text = INTERRUPTED
        state = state_of(piece)
        was_open = is_open(piece)
        self._put(piece, ("state", "status"), "error" if failed else "completed")
        if failed:
            self._put(piece, ("state", "error"), text)
        else:
            self._put(piece, ("state", "output"), text)
            self._put(piece, ("state", "title"), state.get("title", ""))
            self._put(piece, ("state", "metadata"), state.get("metadata", {}))
        if was_open:
            self._end_call(piece, state)

    def _went_on(self, piece: OpenCodePiece) -> bool:
        """Whether the model has answered since, after opencode's own words for the call."""
        own = self.thread.entry_of[id(piece)]
        later = self.thread.sent[self.thread.sent.index(own) + 1 :]
        return any(entry.info.get("role") == ASSISTANT and entry.pieces for entry in later)

    def _end_call(self, piece: OpenCodePiece, state: Fields) -> None:
        entry = self.thread.entry_of[id(piece)]
        time = state.get("time")
        start = _number(time, "start") or _number(entry.info.get("time"), "created")
        end = max(start, piece.seen)
        if type(time) is dict:
            self._put(piece, ("state", "time", "end"), end)
        else:
            self.editor.put(piece, ("state", "time"), {"start": start, "end": end})
        self.ends[entry.id] = max(end, self.ends.get(entry.id, 0))


def _number(times: Any, key: str) -> int:
    found = times.get(key) if type(times) is dict else None
    return found if type(found) is int else 0
