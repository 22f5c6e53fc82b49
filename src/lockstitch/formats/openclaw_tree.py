"""The tree of an OpenClaw transcript, as OpenClaw itself reads it.

Entries are pi's, and four things are more than pi has. A ``leaf`` says where the conversation goes
on; an entry with ``appendMode`` "side" is no part of it; after a ``reset`` all that hangs on what
came before hangs on it; and an entry whose parent is missing hangs on the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lockstitch.formats.graph import Node
from lockstitch.formats.pi_session import COMPACTION, Session
from lockstitch.formats.records import Record

RESET, LEAF = "reset", "leaf"
_TYPES = frozenset(
    {
        *("message", "thinking_level_change", "model_change", COMPACTION, RESET),
        *("branch_summary", "custom", "custom_message", "label", "session_info"),
    }
)


class Tree(Session):
    """The events of a session, and those that the next request is made of.

    ``stale`` numbers the events whose parent is not there.
    """

    cuts = (COMPACTION, RESET)

    def __init__(self, records: Sequence[Record]) -> None:
        self.end: str | None = None
        self.stale: list[int] = []
        super().__init__(records)

    def leaf(self) -> Node | None:
        return self.last.get(self.end) if self.end else None

    def nodes(self) -> Iterator[Node]:
        reader = _Reader()
        for number in self.entries:
            node = reader.read(number, self.records[number].value)
            if node is not None:
                yield node
        self.end, self.stale = reader.leaf, reader.stale


class _Reader:
    """Reads event after event; ``under`` holds all that hangs on the last reset."""

    def __init__(self) -> None:
        self.leaf: str | None = None
        self.known: set[str] = set()
        self.targets: dict[str, str | None] = {}
        self.reset: str | None = None
        self.under: set[str] = set()
        self.stale: list[int] = []

    def read(self, number: int, value: dict[str, Any]) -> Node | None:
        own = value.get("id")
        if type(own) is not str or not own.strip():
            return None
        if value.get("type") == LEAF:
            return self._control(number, own, value)
        kind = value.get("type")
        if type(kind) is not str or kind not in _TYPES:
            # it is no part of the conversation, but may be a link of its chain
            self.known.add(own)
            return Node(number, own, _text(value.get("parentId")))
        parent = self._parent(number, value)
        self.known.add(own)
        if value["type"] == RESET:
            self.reset, self.under = own, {own}
        elif parent in self.under:
            self.under.add(own)
        if not _is_aside(value):
            self.leaf = own
        return Node(number, own, parent)

    def _control(self, number: int, own: str, value: dict[str, Any]) -> Node | None:
        target = _text(value.get("targetId"))
        if target is not None and target not in self.known:
            return None
        if self.reset is not None and target not in self.under:
            target = self.leaf
        self.known.add(own)
        self.targets[own] = self.leaf = target
        return Node(number, own, target)

    def _parent(self, number: int, value: dict[str, Any]) -> str | None:
        parent = _text(value.get("parentId")) if "parentId" in value else self.leaf
        if parent is not None and parent not in self.known and self.known:
            self.stale.append(number)
        if not _is_aside(value):
            is_before = self.reset is not None and parent not in self.under
            is_stale = parent is not None and parent not in self.known and self.leaf is not None
            parent = self.leaf if is_before or is_stale else parent
        seen: set[str] = set()
        while parent is not None and parent in self.targets and parent not in seen:
            seen.add(parent)
            parent = self.targets[parent]
        return parent


def _is_aside(value: dict[str, Any]) -> bool:
    return value.get("appendMode") == "side"


def _text(value: Any) -> str | None:
    return value if type(value) is str and value.strip() else None
