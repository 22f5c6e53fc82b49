"""The conversation in a pi file: the path from the root to the last entry, after a compaction.

pi stops at a parent that is not in the file, and leaves behind everything before it. If an id
occurs twice, the later entry counts. What pi leaves out of a request (blank texts, thinking of
another provider, messages that ended in an error) is left out here, too, and stays in the file.

pi does not read a file whose first line is not its head. The only thing it needs from there is the
id of the session, which is also in the name of the file. If the head names no folder, pi uses the
one it is started in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

from lockstitch.conversation.parts import Path
from lockstitch.dialects import ANTHROPIC
from lockstitch.formats.interface import COMPACTED, LEFT, LOST, Aside, Context, History, Transcript
from lockstitch.formats.records import Record, as_list, as_str, torn_fields
from lockstitch.formats.write_back import CYCLE, DANGLING, BrokenLink, RecordTree, TreeNode

HEADER = "session"
# The version of files whose entries have ids; pi converts older files to it.
_VERSION = 3
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-(\d{3}Z)_")
_FIELD = re.compile(r'"(id|timestamp|cwd|parentSession)"\s*:\s*"((?:[^"\\]|\\.)*)"')


def is_header(value: dict[str, Any]) -> bool:
    """Whether a record is the head of a session's file."""
    return value.get("type") == HEADER and type(value.get("id")) is str


def id_in(name: str) -> str:
    """Return the id of the session from the name of a file."""
    stem = name.removesuffix(".jsonl")
    match = _UUID.search(stem)
    return match[0] if match else stem.rpartition("_")[2]


def rebuild_head(records: Sequence[Record], data: bytes, name: str) -> dict[str, Any] | None:
    """Return a new head for a file, None if the id of its session is unknown.

    What is left of the old head is used first, then the name of the file, then its entries.
    """
    known: dict[str, Any] = {}
    heads = (r.value for r in records if r.is_record and r.value.get("type") == HEADER)
    nameless = next((head for head in heads if not is_header(head)), None)
    if nameless is not None:
        known = {key: value for key, value in nameless.items() if key not in ("type", "id")}
    else:
        known = torn_fields(data, f'"type"\\s*:\\s*"{HEADER}"', _FIELD)
    own = known.pop("id", None) or id_in(name)
    if not own:
        return None
    entries = [record.value for record in records if record.is_record]
    version = {"version": _VERSION} if any("parentId" in value for value in entries) else {}
    match = _TIME.match(name)
    when = f"{match[1]}T{match[2]}:{match[3]}:{match[4]}.{match[5]}" if match else None
    times = (value.get("timestamp") for value in entries)
    when = when or next((time for time in times if type(time) is str), None)
    time = {"timestamp": when} if when else {}
    return {"type": HEADER, **version, "id": own, **time, **known}


USER, ASSISTANT, RESULT = "user", "assistant", "toolResult"
TOOL_RESULT = "tool_result"
SKIPPED = ("error", "aborted")
_ANTHROPIC = "anthropic-messages"
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_ID_LIMIT = 64
# How pi introduces a summary, by the type of its entry.
_LEADS = {
    "compaction": (
        "The conversation history before this point was compacted into the following summary:"
    ),
    "branch_summary": (
        "The following is a summary of a branch that this conversation came back from:"
    ),
}

Block = dict[str, Any]


def message_of(value: dict[str, Any]) -> dict[str, Any]:
    """Return the message of an entry; empty if it has none."""
    message = value.get("message")
    return message if value.get("type") == "message" and type(message) is dict else {}


def wire_id(name: Any) -> Any:
    """Return the id of a call as pi sends it to Anthropic."""
    return _UNFIT.sub("_", name)[:_ID_LIMIT] if type(name) is str else name


def role_of(value: dict[str, Any]) -> str:
    """Return the role on the wire of an entry; empty if it is not sent."""
    message, kind = message_of(value), value.get("type")
    role = message.get("role")
    if role == ASSISTANT:
        return "" if message.get("stopReason") in SKIPPED else ASSISTANT
    if role == "bashExecution":
        return "" if message.get("excludeFromContext") else USER
    speaks = role in (USER, RESULT, "custom", "hookMessage")
    return USER if speaks or kind in ("custom_message", "branch_summary", "compaction") else ""


def blocks_in(value: dict[str, Any]) -> Iterator[tuple[Path, Block]]:
    """Yield the blocks that pi sends for an entry, each with its path in the entry."""
    message, kind = message_of(value), value.get("type")
    role = message.get("role")
    path: Path = ("message", "content")
    content: Any = message.get("content")
    if role == RESULT:
        yield ("message",), result_block(message)
        return
    if kind in _LEADS:
        summary = value.get("summary")
        lead = f"{_LEADS[str(kind)]}\n\n<summary>\n{summary}\n</summary>"
        path, content = ("summary",), lead if type(summary) is str else ""
    elif kind == "custom_message":
        path, content = ("content",), value.get("content")
    elif role == "bashExecution":
        output = message.get("output")
        shown = f"```\n{output}\n```" if output else "(no output)"
        path, content = ("message",), f"Ran `{message.get('command')}`\n{shown}"
    if type(content) is str:
        if content.strip():
            yield path, {"type": "text", "text": content}
        return
    for place, item in enumerate(as_list(content)):
        block = None
        if type(item) is dict and role == ASSISTANT and kind != "custom_message":
            block = _assistant_block(item, signs=message.get("api") == _ANTHROPIC)
        elif type(item) is dict:
            block = _user_block(item)
        if block is not None:
            yield (*path, place), block


def _user_block(item: Block) -> Block | None:
    if item.get("type") == "image":
        source = {"type": "base64", "media_type": item.get("mimeType"), "data": item.get("data")}
        return {"type": "image", "source": source}
    text = item.get("text")
    return {"type": "text", "text": text} if type(text) is str and text.strip() else None


def _assistant_block(item: Block, *, signs: bool) -> Block | None:
    kind = item.get("type")
    if kind == "toolCall":
        arguments = item.get("arguments")
        given = {} if arguments is None else arguments
        name = item.get("name")
        return {"type": "tool_use", "id": wire_id(item.get("id")), "name": name, "input": given}
    if kind != "thinking":
        return _user_block(item) if kind == "text" else None
    text, signature = item.get("thinking"), item.get("thinkingSignature")
    if signs and item.get("redacted"):
        return {"type": "redacted_thinking", "data": signature}
    if not signs or type(text) is not str or not text.strip():
        return None
    if type(signature) is str and signature.strip():
        return {"type": "thinking", "thinking": text, "signature": signature}
    return {"type": "text", "text": text}


def result_block(message: dict[str, Any]) -> Block:
    """Return a result as it is sent."""
    content = message.get("content")
    items = [item for item in as_list(content) if type(item) is dict]
    sent: Any = content if type(content) is str else [b for i in items if (b := _user_block(i))]
    if not any(item.get("type") == "image" for item in items) and type(sent) is list:
        sent = "\n".join(str(item.get("text") or "") for item in items)
    name = wire_id(message.get("toolCallId"))
    block = {"type": TOOL_RESULT, "tool_use_id": name, "content": sent}
    return {**block, "is_error": True} if message.get("isError") else block


# And back: blocks that a repair changed or made.


def item_of(block: Block, ids: dict[str, str], old: Any = None) -> Block:
    """Return a block as pi stores it; other fields of the old item stay."""
    kind = block.get("type")
    if kind == "tool_use":
        name = block.get("id")
        known = ids.get(str(name), name)
        fields = {"id": known, "name": block.get("name"), "arguments": block.get("input")}
        item: Block = {"type": "toolCall", **fields}
    elif kind == "thinking":
        said = {"thinking": block.get("thinking"), "thinkingSignature": block.get("signature")}
        item = {"type": "thinking", **said}
    elif kind == "redacted_thinking":
        hidden = {"thinking": "", "thinkingSignature": block.get("data"), "redacted": True}
        item = {"type": "thinking", **hidden}
    elif kind == "image" and type(block.get("source")) is dict:
        source = block["source"]
        item = {"type": "image", "data": source.get("data"), "mimeType": source.get("media_type")}
    else:
        item = {"type": "text", "text": block.get("text")}
    same = type(old) is dict and old.get("type") == item["type"]
    return {**old, **item} if same else item


def items_of(content: Any, ids: dict[str, str]) -> list[Block]:
    """Return the payload of a result as pi stores it."""
    if type(content) is list:
        return [item_of(block, ids) for block in content if type(block) is dict]
    return [{"type": "text", "text": content if type(content) is str else ""}]


def result_of(block: Block, ids: dict[str, str], names: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a new result."""
    wire = str(block.get("tool_use_id"))
    return {
        "role": RESULT,
        "toolCallId": ids.get(wire, wire),
        "toolName": names.get(wire) or "",
        "content": items_of(block.get("content"), ids),
        "isError": bool(block.get("is_error")),
    }


COMPACTION = "compaction"


def is_prompt(value: dict[str, Any]) -> bool:
    """Whether a person said this."""
    return message_of(value).get("role") == USER


class PiSession:
    """The entries of a file, and those that a resume reads, in order.

    ``path`` has the numbers of the entries from the root to the last one, and ``broken`` is the
    link that ends it too early. ``sent`` has the numbers of the entries that go to the model.
    ``cuts`` are the types of entries after which a request begins.
    """

    cuts: tuple[str, ...] = (COMPACTION,)

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.headers = [n for n, r in enumerate(records) if r.is_record and is_header(r.value)]
        self.head = records[self.headers[0]].value if self.headers else {}
        self.entries = [
            n for n, r in enumerate(records) if r.is_record and r.value.get("type") != HEADER
        ]
        # files of the first version: entries without ids, in a row
        self.is_linear = not any("id" in records[n].value for n in self.entries)
        self.graph = RecordTree(list(self.nodes()))
        self.last = {node.id: node for node in self.graph.nodes}
        self.broken: BrokenLink | None = None
        self.path = self.entries if self.is_linear else self._walk()
        self.kept: dict[int, tuple[int, Path]] = {}
        self.history = self._history()

    def value(self, number: int) -> dict[str, Any]:
        """Return the value of a record."""
        found: dict[str, Any] = self.records[number].value
        return found

    def nodes(self) -> Iterator[TreeNode]:
        """Yield the entries that have an id, each with its parent."""
        for number in self.entries:
            value = self.records[number].value
            name, parent = value.get("id"), value.get("parentId")
            if type(name) is str:
                yield TreeNode(number, name, parent if type(parent) is str else None)

    def leaf(self) -> TreeNode | None:
        """Return the entry with which the conversation ends: the last one in the file."""
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
                self.broken = BrokenLink(node.number, why, None)
                break
            node = parent
        return path[::-1]

    @cached_property
    def cut(self) -> int:
        """The position of the last compaction on the path, -1 if there is none."""
        for position in range(len(self.path) - 1, -1, -1):
            if self.value(self.path[position]).get("type") in self.cuts:
                return position
        return -1

    @cached_property
    def sent(self) -> list[int]:
        """The entries that go to the model, in the order in which they are sent."""
        path, cut = self.path, self.cut
        if cut >= 0:
            path = [path[cut], *self.kept_before, *path[cut + 1 :]]
        return [number for number in path if role_of(self.value(number))]

    @cached_property
    def kept_before(self) -> list[int]:
        """The entries before the last compaction that it keeps."""
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
        """Build what is sent; neighbouring results form one message, as pi sends them."""
        history = History(ANTHROPIC, model=self._model())
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
                history.extend([b for _, b in found], number, [path for path, _ in found])
            else:
                message = {"role": role_of(value), "content": [block for _, block in found]}
                history.add(message, [number] * len(found), [path for path, _ in found])
            results = is_result
        return history

    def transcript(self, context: Context, name: str) -> Transcript:
        """Return a transcript of the session, which gets ``name`` if its head is lost."""
        path = set(self.path)
        away = [number for number in self.entries if number not in path]
        return Transcript(
            context,
            self.records,
            self.history,
            session=as_str(self.head.get("id")) or name,
            project=as_str(self.head.get("cwd")),
            turns=sum(is_prompt(self.value(number)) for number in self.sent),
            left=sum(is_prompt(self.value(number)) for number in away),
            left_size=sum(self.records[number].size for number in away),
            version=str(self.head.get("version", "")),
            state=self,
        )

    def asides(self) -> Iterator[Aside]:
        """Yield what a compaction cut off, and the branches off the path, by their parents."""
        path = {*self.path}
        kept = {*self.kept_before} if self.cut >= 0 else set()
        earlier = [number for number in self.path[: max(self.cut, 0)] if number not in kept]
        if earlier:
            yield Aside(
                COMPACTED, earlier[0], -1, self._history_of(earlier), "summarized by a compaction"
            )
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
            yield Aside(
                kind, top, behind, self._history_of(numbers), "on another branch of the tree"
            )

    def _history_of(self, numbers: list[int]) -> History:
        """Build the messages of entries that are not sent."""
        history = History(ANTHROPIC)
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
        """Return the id of each call in the file, by its id on the wire."""
        found: dict[str, str] = {}
        for number in self.path:
            content = message_of(self.value(number)).get("content")
            for item in as_list(content):
                if type(item) is dict and item.get("type") == "toolCall":
                    name = item.get("id")
                    if type(name) is str:
                        found[wire_id(name)] = name
        return found


def is_result(block: Block) -> bool:
    """Whether a block is a result."""
    return block.get("type") == TOOL_RESULT


def new_id(session: PiSession, *names: object) -> str:
    """Return an id as pi makes them that no entry has, the same in every run of one repair."""
    known = session.graph.by_id
    for count in range(len(known) + 1):
        text = ":".join(map(str, ("lockstitch", session.head.get("id"), *names, count)))
        name = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        if name not in known:
            return name
    raise AssertionError("more ids than entries were tried")
