"""Convert between what LangGraph puts and gets and the records of a thread's journal.

Every message is stored once, and a list is stored as its changes. Readers get objects of their own.
Writing recognizes stored objects and does not serialize them again, however long the conversation
is.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import is_
from typing import TYPE_CHECKING, Any

import msgspec
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.base import DeltaChannelHistory as History
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send
from msgspec import Raw

from lockstitch.errors import Unreadable
from lockstitch.formats.langgraph.journal import (
    ABSENT,
    NO_LIST,
    NO_NODE,
    CheckpointLine,
    CheckpointNode,
    Fetch,
    ListChange,
    TaskWrite,
    ThreadJournal,
    ValueDecoder,
    WritesLine,
)
from lockstitch.formats.langgraph.snapshot import START, TASKS
from lockstitch.integrations.langgraph.run_ids import ThreadPlace
from lockstitch.integrations.langgraph.saver.change_detection import (
    CLASSES,
    KINDS,
    KnownList,
    ObjectImage,
    ThreadMemory,
)
from lockstitch.journal.events import INLINE
from lockstitch.journal.records import blob_name

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.serde.base import SerializerProtocol


_TRIED = 4
# How many of a list's last objects are checked when no node has run since the list was read.
_LOOKED_AT = 64
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_NONE = KnownList(NO_LIST, [])


def is_plain(value: Any) -> bool:
    """Whether JSON keeps a value exactly as LangGraph's own form would."""
    kind = type(value)
    if kind is str or value is None or kind is int or kind is bool:
        return True
    if kind is float:
        return bool(value - value == 0)
    if kind is dict:
        return all(type(name) is str and is_plain(one) for name, one in value.items())
    return (kind is list or kind is tuple) and all(map(is_plain, value))


class ValueEncoder:
    """Encodes the values of one record; ``remember`` is called once the record is stored."""

    def __init__(self, objects: ObjectDecoder, *, plain: bool) -> None:
        self._objects = objects
        self._thread = objects.thread
        self._memory = objects.memory
        self._serde = objects.serde
        self._plain = plain
        self._reader = ValueDecoder(objects.thread, _no_blobs)
        self._met: dict[int, tuple[Any, ObjectImage]] = {}
        self._made: list[ObjectImage] = []
        self._lists: list[KnownList] = []
        self._channels: dict[int, list[Any]] = {}
        self.space = ""
        self.is_checkpoint = False
        # Whether no node has run since the stored values were read.
        self.is_untouched = False
        self.items: list[Raw] = []
        self.lists: list[ListChange] = []
        self.blobs: dict[str, bytes] = {}

    def remember(self) -> None:
        """Remember what was encoded."""
        for image in self._made:
            self._memory.keep_item(image)
        for known in self._lists:
            self._memory.keep_list(known)
        if self.is_checkpoint:
            self._memory.drop(self.space)
            for number, objects in self._channels.items():
                self._memory.reusable.keep(number, objects)
        for value, image in self._met.values():
            self._memory.keep(self.space, value, image)

    def value(self, value: Any, base: int = NO_LIST, *, channel: bool = False) -> Raw:
        """Encode a value; a list as a change of another one, of ``base`` if that saves space."""
        kind = type(value)
        if kind is list and value and (channel or not self._is_json(value)):
            return Raw(b'{"l":%d}' % self.encode_list(value, base, channel=channel))
        if kind is _DeltaSnapshot:
            return Raw(b'{"s":%s}' % bytes(self.value(value.value, base, channel=True)))
        if kind in KINDS or kind is Send:
            return Raw(b"%d" % self._encode_item(value))
        if kind is dict and self._has_items(value):
            fields = {name: self.value(one) for name, one in value.items()}
            return Raw(b'{"d":%s}' % _encode(fields))
        if self._is_json(value):
            data = _json(value)
            if data is not None:
                return Raw(b'{"j":%s}' % data) if len(data) <= INLINE else self._add_blob(data)
        return self._encode_opaque(value)

    def _is_json(self, value: Any) -> bool:
        return self._plain and is_plain(value)

    def _has_items(self, value: dict[Any, Any]) -> bool:
        """Whether a dictionary contains messages that are worth looking for."""
        return all(type(name) is str for name in value) and any(
            type(one) in KINDS or type(one) is Send
            or (type(one) is list and any(type(n) in KINDS or type(n) is Send for n in one))
            or (type(one) is dict and self._has_items(one))
            for one in value.values()
        )  # fmt: skip

    def _add_blob(self, data: bytes) -> Raw:
        name = blob_name(data)
        self.blobs[name] = data
        return Raw(b'{"x":"%s"}' % name.encode())

    def _encode_opaque(self, value: Any) -> Raw:
        tag, data = self._serde.dumps_typed(value)
        if len(data) <= INLINE:
            return Raw(_encode({"t": tag, "b": b64encode(data).decode()}))
        name = blob_name(data)
        self.blobs[name] = bytes(data)
        return Raw(_encode({"t": tag, "x": name}))

    # Lists.

    def encode_list(self, values: Sequence[Any], base: int, *, channel: bool = False) -> int:
        """Encode a list; return its number. The objects of a channel may be handed out again."""
        values = list(values)
        if base != NO_LIST and self._memory.known(base) is None:
            with suppress(Unreadable):
                self._objects.list(base)
        known, head, tail = self._find_nearest(values, base)
        end = len(values) - tail
        if known is not _NONE and head == end == len(known):
            if channel and known.are_items:
                self._channels[known.number] = values
            return known.number
        middle = values[head:end]
        self.lists.append(ListChange(known.number, head, tail, tuple(map(self.value, middle))))
        made = len(self._thread.lists) + len(self.lists) - 1
        images = [self._image_of(one) or ObjectImage(one) for one in middle]
        grown = known.grown(made, head, images, tail)
        self._lists.append(grown)
        if channel and grown.are_items:
            self._channels[made] = values
        return made

    def _find_nearest(self, values: list[Any], base: int) -> tuple[KnownList, int, int]:
        """Return the known list that shares most with this one, and how much at head and tail."""
        best = (_NONE, 0, 0)
        based = self._memory.known(base)
        if self.is_untouched and based is not None and self._is_extended(based, values):
            return based, len(based), 0
        recent = [*self._lists[::-1], *self._memory.last(_TRIED)]
        for known in recent if based is None else [based, *recent]:
            head, tail = known.count_shared(values)
            if head + tail > best[1] + best[2]:
                best = (known, head, tail)
            if head == len(known) <= len(values) and head:
                break
        return best

    def _is_extended(self, known: KnownList, values: list[Any]) -> bool:
        """Whether a list begins with the very objects of a known one, the last ones unchanged."""
        kept = self._memory.reusable.get(known.number)
        if kept is None or len(kept) > len(values) or not all(map(is_, kept, values)):
            return False
        return known.end_with(kept[-_LOOKED_AT:])

    def _image_of(self, value: Any) -> ObjectImage | None:
        found = self._met.get(id(value))
        if found is not None and found[0] is value:
            return found[1]
        return self._memory.image_of(self.space, value)

    # Items.

    def _encode_item(self, value: Any) -> int:
        known = self._image_of(value)
        if known is not None and known.item >= 0 and known.matches(value):
            return known.item
        image = ObjectImage(value)
        found = (
            self._encode_send(value)
            if type(value) is Send
            else self._encode_message(value, image, known)
        )
        if isinstance(found, int):
            image.item = found
        else:
            is_large = len(bytes(found)) > INLINE
            self.items.append(self._add_blob(bytes(found)) if is_large else found)
            image.item = len(self._thread.items) + len(self.items) - 1
            self._made.append(image)
        self._met[id(value)] = (value, image)
        return image.item

    def _encode_send(self, value: Send) -> Raw:
        form: dict[str, Any] = {"send": value.node, "arg": self.value(value.arg)}
        if getattr(value, "timeout", None) is not None:
            form["timeout"] = self._encode_opaque(value.timeout)
        return Raw(_encode(form))

    def _encode_message(
        self, value: BaseMessage, image: ObjectImage, known: ObjectImage | None
    ) -> Raw | int:
        """Encode a message in full or as a change; return a number if it is stored already."""
        kind = KINDS[type(value)]
        data = {**image.state, **(image.extra or {})}
        if known is not None and known.item >= 0 and known.extra == image.extra:
            change = self._encode_change(known.state, image.state, known.item)
            if change is not None:
                return change
        if not self._is_json(data) or (whole := _json({"type": kind, "data": data})) is None:
            # Reading it back may make something else of it.
            image.is_whole = False
            return self._encode_opaque(value)
        # A message of this kind and id may be stored already.
        item = self._memory.named(kind, value.id)
        old: dict[str, Any] | None = None
        if item is not None:
            with suppress(Unreadable):
                form = self._reader.form(item)
                old = form.get("data") if form.get("type") == kind else None
        if item is None or old is None:
            return Raw(whole)
        if _json(old) == _json(data):
            return item
        change = self._encode_change(old, data, item)
        is_short = change is not None and len(bytes(change)) < len(whole) // 2
        return change if change is not None and is_short else Raw(whole)

    def _encode_change(self, old: dict[str, Any], new: dict[str, Any], item: int) -> Raw | None:
        """Encode the change from one message to another; None if JSON cannot express it."""
        fields = {
            name: one for name, one in new.items() if name not in old or not _same(old[name], one)
        }
        gone = [name for name in old if name not in new]
        form: dict[str, Any] = {"of": item, "set": fields}
        if gone:
            form["not"] = gone
        data = _json(form) if self._is_json(fields) else None
        return None if data is None else Raw(data)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return type(one) is type(other) and is_plain(one) and is_plain(other) and (
        _json(one) == _json(other)
    )  # fmt: skip


def _json(value: Any) -> bytes | None:
    try:
        return _encode(value)
    except (UnicodeEncodeError, RecursionError):
        return None


def _no_blobs(_names: list[str]) -> dict[str, bytes]:
    raise Unreadable("large values are not compared")


Values = list[Any]
Images = list[ObjectImage]


class ObjectDecoder(ValueDecoder):
    """Decodes values as objects that belong to the caller and to nobody else."""

    def __init__(
        self, thread: ThreadJournal, memory: ThreadMemory, serde: SerializerProtocol, fetch: Fetch
    ) -> None:
        super().__init__(thread, fetch)
        self.memory = memory
        self.serde = serde

    def list(self, number: int) -> Values:
        known = self.memory.known(number)
        if known is None or not known.are_items:
            values, images = self._read_list(number)
            known = KnownList(number, images)
        else:
            values = self.memory.reusable.take(known) or [
                one.copy() if one.is_whole else None for one in known.images
            ]
            for place in known.unread:
                values[place] = self.item(known.images[place].item)
        self.memory.keep_list(known)
        if known.are_items:
            self.memory.reusable.keep(number, values.copy())
        return values

    def _read_list(self, number: int) -> tuple[Values, Images]:
        coded = [_decode(raw) for raw in self.thread.elements(number)]
        values, images = [], []
        for one in coded:
            value, image = self._read(one) if type(one) is int else (self.coded(one), None)
            values.append(value)
            images.append(image or ObjectImage(value))
        return values, images

    def item(self, number: int) -> Any:
        return self._read(number)[0]

    def _read(self, number: int) -> tuple[Any, ObjectImage | None]:
        """Return an item and, if it is a message, its image."""
        image = self.memory.items.get(number)
        if image is not None and image.is_whole:
            return image.copy(), image
        form = self.form(number)
        if "send" in form:
            return self._read_send(form), None
        if "data" in form:
            made = CLASSES.get(form["type"])
            if made is None:
                raise Unreadable(f"a stored message has an unknown type: {form['type']}")
            value = made(**form["data"])
        else:
            value = self.opaque(form["t"], self._bytes(form))
            if fields := form.get("fields"):
                value = value.model_copy(update=fields)
        if type(value) not in KINDS:
            return value, None
        image = ObjectImage(value, number)
        self.memory.keep_item(image)
        return value, image

    def _read_send(self, form: dict[str, Any]) -> Send:
        arg = self.coded(form["arg"])
        if "timeout" in form:
            return Send(form["send"], arg, timeout=self.coded(form["timeout"]))
        return Send(form["send"], arg)

    def opaque(self, tag: str, data: bytes) -> Any:
        return self.serde.loads_typed((tag, data))

    def snapshot(self, value: Any) -> Any:
        return _DeltaSnapshot(value)


# The fields that a checkpoint has anyway; all others are kept as they are.
_APART = frozenset({"id", "channel_values", "channel_versions", "versions_seen"})
_LIST = re.compile(rb'\{"(?:s":\{")?l":(\d+)\}')


def encode_checkpoint(
    place: ThreadPlace,
    put: tuple[Mapping[str, Any], Mapping[str, Any]],
    new: Mapping[str, Any],
    encoder: ValueEncoder,
    thread: ThreadJournal,
) -> CheckpointLine:
    """Encode a checkpoint and its metadata as their differences from the parent's."""
    checkpoint, metadata = put
    parent = place.checkpoint or ""
    base = thread.node(place.namespace, parent) or NO_NODE
    versions = dict(checkpoint["channel_versions"])
    seen = {node: dict(one) for node, one in checkpoint["versions_seen"].items()}
    ran = _fields_set(base.seen, seen)
    # The input was distributed, and nothing that was sent has run besides.
    is_sent = versions.get(TASKS) != base.versions.get(TASKS)
    encoder.is_untouched = ran.keys() == {START} and not is_sent
    encoder.space, encoder.is_checkpoint = place.namespace, True
    # Only new values: a channel with its parent's version has its parent's value, too.
    changed = {n for n, one in versions.items() if n in new or base.versions.get(n) != one}
    values: dict[str, Raw] = {}
    for name in versions:
        if name in changed and name in checkpoint["channel_values"]:
            # The list that is the parent's value of the channel, if it is one.
            old = _LIST.fullmatch(bytes(base.values.get(name, b"")))
            number = int(old[1]) if old else NO_LIST
            value = encoder.value(checkpoint["channel_values"][name], number, channel=True)
            if base.values.get(name) != value:
                values[name] = value
        elif name in changed and name in base.values:
            values[name] = ABSENT
    body = {n: encoder.value(one) for n, one in checkpoint.items() if n not in _APART}
    meta = {name: encoder.value(one) for name, one in metadata.items()}
    return CheckpointLine(
        id=checkpoint["id"],
        ns=place.namespace,
        parent=parent,
        values=values,
        versions=_fields_set(base.versions, versions),
        unversioned=_fields_gone(base.versions, versions),
        seen=ran,
        unseen=_fields_gone(base.seen, seen),
        body=_fields_set(base.body, body),
        bodiless=_fields_gone(base.body, body),
        meta=_fields_set(base.meta, meta),
        metaless=_fields_gone(base.meta, meta),
        items=tuple(encoder.items),
        lists=tuple(encoder.lists),
        blobs=tuple(encoder.blobs),
    )


def _fields_set(base: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in now.items() if name not in base or base[name] != one}


def _fields_gone(base: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in base if name not in now)


def encode_writes(
    place: ThreadPlace,
    writes: Sequence[tuple[str, Any]],
    task: tuple[str, str],
    encoder: ValueEncoder,
    thread: ThreadJournal,
) -> WritesLine | None:
    """Encode the writes of a task; None if all of them are stored already."""
    known = thread.writes.get((place.namespace, place.checkpoint or ""), {})
    name, path = task
    encoder.space = place.namespace
    coded: list[TaskWrite] = []
    for count, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, count)
        if index < 0 or (name, index) not in known:
            coded.append(TaskWrite(index, channel, encoder.value(value)))
    if not coded:
        return None
    return WritesLine(
        id=place.checkpoint or "",
        ns=place.namespace,
        task=name,
        path=path,
        writes=tuple(coded),
        items=tuple(encoder.items),
        lists=tuple(encoder.lists),
        blobs=tuple(encoder.blobs),
    )


def tuple_of(
    thread_id: Any, namespace: str, node: CheckpointNode, objects: ObjectDecoder
) -> CheckpointTuple:
    """Return a checkpoint with everything that belongs to it."""
    thread, place = objects.thread, ThreadPlace(thread_id, namespace, node.id)
    checkpoint: Any = {
        **{name: objects.value(raw) for name, raw in node.body.items()},
        "id": node.id,
        "channel_values": {name: objects.value(raw) for name, raw in node.values.items()},
        "channel_versions": dict(node.versions),
        "versions_seen": {name: dict(seen) for name, seen in node.seen.items()},
    }
    return CheckpointTuple(
        config=place.config,
        checkpoint=checkpoint,
        metadata=metadata_of(node, objects),
        parent_config=place.at(node.parent).config if node.parent else None,
        pending_writes=[
            (one.task, one.channel, objects.value(one.value))
            for one in thread.pending(namespace, node.id)
        ],
    )


def metadata_of(node: CheckpointNode, objects: ObjectDecoder) -> Any:
    """Return the metadata of a checkpoint."""
    return {name: objects.value(raw) for name, raw in node.meta.items()}


def is_about(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether metadata matches a filter; a name with dots leads into nested values."""

    def find(name: str) -> Any:
        if name in metadata or "." not in name:
            return metadata.get(name)
        found: Any = metadata
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    return all(find(name) == value for name, value in wanted.items())


def histories(
    namespace: str, checkpoint: str, channels: Sequence[str], objects: ObjectDecoder
) -> dict[str, History]:
    """Return what channels consist of: the nearest stored value, and the writes since."""
    thread = objects.thread
    left = dict.fromkeys(channels)
    writes: dict[str, list[Any]] = {channel: [] for channel in channels}
    found: dict[str, History] = {}
    for node in thread.ancestors(namespace, checkpoint):
        for one in reversed(thread.pending(namespace, node.id)):
            if one.channel in left:
                writes[one.channel].append((one.task, one.channel, objects.value(one.value)))
        for channel in [channel for channel in left if channel in node.values]:
            del left[channel]
            seed = objects.value(node.values[channel])
            found[channel] = History(writes=writes[channel][::-1], seed=seed)
        if not left:
            break
    return {
        channel: found.get(channel) or History(writes=writes[channel][::-1]) for channel in channels
    }
