"""The conversation in a file of pi: the way from the last entry to the root, after a compaction.

pi stops at a parent that is not in the file, so that all before it is left behind; an id that is
there twice means the later entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from lockstitch.conversation.parts import Path
from lockstitch.formats.graph import CYCLE, DANGLING, Break, Graph, Node
from lockstitch.formats.history import COMPACTED, LEFT, LOST, Aside, History
from lockstitch.formats.pi_blocks import (
    ASSISTANT,
    RESULT,
    TOOL_RESULT,
    USER,
    Block,
    blocks_in,
    message_of,
    role_of,
    wire_id,
)
from lockstitch.formats.pi_head import HEADER, is_header
from lockstitch.formats.records import Record

COMPACTION = "compaction"


def is_prompt(value: dict[str, Any]) -> bool:
    """Tell whether a person said this."""
    return message_of(value).get("role") == USER


class Session:
    """The entries of a file, and those that a resume reads, in order.

    ``path`` numbers the entries from the root to the last one, ``broken`` is the link that ends
    it too early, and ``sent`` numbers the entries that go to the model. ``cuts`` are the types of
    entries from which on a request is made.
    """

    cuts: tuple[str, ...] = (COMPACTION,)

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.headers = [n for n, r in enumerate(records) if r.is_record and is_header(r.value)]
        self.head = records[self.headers[0]].value if self.headers else {}
        self.entries = [
            n for n, r in enumerate(records) if r.is_record and r.value.get("type") != HEADER
        ]
        self.is_linear = not any("id" in records[n].value for n in self.entries)
        self.graph = Graph(list(self.nodes()))
        self.last = {node.id: node for node in self.graph.nodes}
        self.broken: Break | None = None
        self.path = self.entries if self.is_linear else self._walk()
        self.kept: dict[int, tuple[int, Path]] = {}
        self.history = self._history()

    def value(self, number: int) -> dict[str, Any]:
        """Give the value of a record."""
        found: dict[str, Any] = self.records[number].value
        return found

    def nodes(self) -> Iterator[Node]:
        """Return the entries that have an id, each with its parent."""
        for number in self.entries:
            value = self.records[number].value
            name, parent = value.get("id"), value.get("parentId")
            if type(name) is str:
                yield Node(number, name, parent if type(parent) is str else None)

    def leaf(self) -> Node | None:
        """Return the entry that the conversation ends with: the last one in the file."""
        return self.graph.nodes[-1] if self.graph.nodes else None

    def _walk(self) -> list[int]:
        node = self.leaf()
        path: list[int] = []
        seen: set[int] = set()
        while node is not None:
            path.append(node.number)
            seen.add(node.number)
            parent = self.last.get(node.parent) if node.parent else None
            if node.parent and (parent is None or parent.number in seen):
                why = DANGLING if parent is None else CYCLE
                self.broken = Break(node.number, why, -1)
                break
            node = parent
        return path[::-1]

    @cached_property
    def cut(self) -> int:
        """Give the position of the last compaction on the path, -1 if there is none."""
        for position in range(len(self.path) - 1, -1, -1):
            if self.value(self.path[position]).get("type") in self.cuts:
                return position
        return -1

    @cached_property
    def sent(self) -> list[int]:
        """Give the entries that go to the model, in the order in which they are sent."""
        path, cut = self.path, self.cut
        if cut >= 0:
            path = [path[cut], *self.kept_before, *path[cut + 1 :]]
        return [number for number in path if role_of(self.value(number))]

    @cached_property
    def kept_before(self) -> list[int]:
        """Give the entries before the last compaction that it keeps."""
        value, before = self.value(self.path[self.cut]), self.path[: max(self.cut, 0)]
        if self.is_linear:
            index = value.get("firstKeptEntryIndex")
            start = index if type(index) is int else len(self.records)
            lines = [n for n, r in enumerate(self.records) if r.is_record]
            return [n for n in before if n in set(lines[start:])]
        names = [self.value(number).get("id") for number in before]
        first = value.get("firstKeptEntryId")
        return before[names.index(first) :] if first in names else []

    def _history(self) -> History:
        """Build what is sent; results in a row are one message, as pi sends them."""
        history = History("anthropic", [], [], [], self._model())
        results = False
        for number in self.sent:
            value = self.value(number)
            found = list(blocks_in(value))
            if not found:
                continue
            is_result = message_of(value).get("role") == RESULT
            for path, block in found:
                self.kept[id(block)] = (number, path)
            if is_result and results:
                history.messages[-1]["content"] += [block for _, block in found]
                history.sources[-1] += [number] * len(found)
                history.paths[-1] += [path for path, _ in found]
            else:
                message = {"role": role_of(value), "content": [block for _, block in found]}
                history.add(message, [number] * len(found), [path for path, _ in found])
            results = is_result
        return history

    def asides(self) -> Iterator[Aside]:
        """Give what a compaction cut off, and the branches off the path, by where they hang."""
        path = {*self.path}
        kept = {*self.kept_before} if self.cut >= 0 else set()
        earlier = [number for number in self.path[: max(self.cut, 0)] if number not in kept]
        if earlier:
            yield Aside(COMPACTED, earlier[0], -1, self._told(earlier), "summed up by a compaction")
        pieces: dict[int, list[int]] = {}
        tops: dict[int, int] = {}
        for node in self.graph.nodes:
            if node.number not in path:
                parent = self.last.get(node.parent) if node.parent else None
                tops[node.number] = tops.get(parent.number, node.number) if parent else node.number
                pieces.setdefault(tops[node.number], []).append(node.number)
        for top, numbers in pieces.items():
            parent = self.last.get(self.graph.by_number[top].parent or "")
            behind = parent.number if parent and parent.number in path else -1
            kind = LOST if self.broken else LEFT
            yield Aside(kind, top, behind, self._told(numbers), "on another branch of the tree")

    def _told(self, numbers: list[int]) -> History:
        """Build what entries say that are not sent."""
        history = History("anthropic", [], [], [])
        for number in numbers:
            found = list(blocks_in(self.value(number)))
            if found and role_of(self.value(number)):
                message = {"role": role_of(self.value(number)), "content": [b for _, b in found]}
                history.add(message, [number] * len(found), [path for path, _ in found])
        return history

    def _model(self) -> str | None:
        for number in reversed(self.path):
            message = message_of(self.value(number))
            if message.get("role") == ASSISTANT:
                model, api = message.get("model"), message.get("api")
                return model if type(model) is str and api == "anthropic-messages" else None
        return None

    def ids(self) -> dict[str, str]:
        """Give, by the id on the wire, the id that the file has for a call."""
        found: dict[str, str] = {}
        for number in self.path:
            content = message_of(self.value(number)).get("content")
            for item in content if type(content) is list else ():
                if type(item) is dict and item.get("type") == "toolCall":
                    name = item.get("id")
                    if type(name) is str:
                        found[wire_id(name)] = name
        return found

    def names(self) -> dict[str, Any]:
        """Give, by the id on the wire, the tool that a call names."""
        return {
            str(block.get("id")): block.get("name")
            for message in self.history.messages
            for block in message["content"]
            if block.get("type") == "tool_use"
        }


def is_result(block: Block) -> bool:
    """Tell whether a block is a result."""
    return block.get("type") == TOOL_RESULT
