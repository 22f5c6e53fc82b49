"""What LangGraph puts, as records, and records as what LangGraph gets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.base import DeltaChannelHistory as History

from lockstitch.formats.langgraph.snapshot import START, TASKS
from lockstitch.journal.checkpoints import ABSENT, NO_LIST, Node, Put, Thread, Write, Wrote

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from msgspec import Raw

    from lockstitch.integrations.langgraph.run_ids import ThreadPlace
    from lockstitch.integrations.langgraph.saving.values import Encoder, Objects

# What a checkpoint holds besides; everything else in it is kept as it is.
_APART = frozenset({"id", "channel_values", "channel_versions", "versions_seen"})
_LIST = re.compile(rb'\{"(?:s":\{")?l":(\d+)\}')
_EMPTY = Node("", "", {}, {}, {}, {}, {})


class Putting:
    """A checkpoint on its way into a thread, as far as it differs from its parent."""

    def __init__(
        self,
        config: RunnableConfig,
        checkpoint: Mapping[str, Any],
        metadata: Any,
        new: Mapping[str, Any],
    ) -> None:
        self._checkpoint = checkpoint
        self._metadata = get_checkpoint_metadata(config, metadata)
        self._new = new

    def line(self, place: ThreadPlace, thread: Thread, encoder: Encoder) -> Put:
        """Code it; ``place`` is its parent's."""
        parent = place.checkpoint or ""
        base = thread.node(place.namespace, parent) or _EMPTY
        versions = dict(self._checkpoint["channel_versions"])
        body = {name: one for name, one in self._checkpoint.items() if name not in _APART}
        seen = {node: dict(one) for node, one in self._checkpoint["versions_seen"].items()}
        ran = _more(base.seen, seen)
        # The input was dealt out, and nothing that was sent has run besides.
        is_sent = versions.get(TASKS) != base.versions.get(TASKS)
        encoder.is_untouched = ran.keys() == {START} and not is_sent
        encoder.space, encoder.is_checkpoint = place.namespace, True
        values = self._values(base, versions, encoder)
        changed, lost = _fields(base.body, body, encoder)
        more, less = _fields(base.meta, self._metadata, encoder)
        return Put(
            id=self._checkpoint["id"],
            ns=place.namespace,
            parent=parent,
            values=values,
            versions=_more(base.versions, versions),
            unversioned=_less(base.versions, versions),
            seen=ran,
            unseen=_less(base.seen, seen),
            body=changed,
            bodiless=lost,
            meta=more,
            metaless=less,
            items=tuple(encoder.items),
            lists=tuple(encoder.lists),
            blobs=tuple(encoder.blobs),
        )

    def _values(self, base: Node, versions: Mapping[str, Any], encoder: Encoder) -> dict[str, Raw]:
        """Code what is new: a channel that has its parent's version has its value, too."""
        given = self._checkpoint["channel_values"]
        coded: dict[str, Raw] = {}
        for name, version in versions.items():
            if name not in self._new and base.versions.get(name) == version:
                continue
            if name in given:
                value = encoder.value(given[name], _list_in(base.values.get(name)), channel=True)
                if base.values.get(name) != value:
                    coded[name] = value
            elif name in base.values:
                coded[name] = ABSENT
        return coded


def _list_in(raw: Raw | None) -> int:
    """Give the number of the list that a channel's value is, if it is one."""
    found = _LIST.fullmatch(bytes(raw)) if raw is not None else None
    return int(found[1]) if found else NO_LIST


def _fields(
    base: Mapping[str, Raw], fields: Mapping[str, Any], encoder: Encoder
) -> tuple[dict[str, Raw], tuple[str, ...]]:
    coded = {name: encoder.value(one) for name, one in fields.items()}
    return _more(base, coded), _less(base, coded)


def _more(base: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in now.items() if name not in base or base[name] != one}


def _less(base: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in base if name not in now)


def written(
    place: ThreadPlace, writes: Sequence[tuple[str, Any]], task: tuple[str, str], encoder: Encoder,
    thread: Thread,
) -> Wrote | None:  # fmt: skip
    """Code the writes of a task; None if all of them are there already."""
    known = thread.writes.get((place.namespace, place.checkpoint or ""), {})
    name, path = task
    encoder.space = place.namespace
    coded: list[Write] = []
    for count, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, count)
        if index < 0 or (name, index) not in known:
            coded.append(Write(index, channel, encoder.value(value)))
    if not coded:
        return None
    return Wrote(
        id=place.checkpoint or "",
        ns=place.namespace,
        task=name,
        path=path,
        writes=tuple(coded),
        items=tuple(encoder.items),
        lists=tuple(encoder.lists),
        blobs=tuple(encoder.blobs),
    )


def config_of(thread: Any, namespace: str, checkpoint: str) -> RunnableConfig:
    """Give the config that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint,
        }
    }


def tuple_of(thread_id: Any, namespace: str, node: Node, objects: Objects) -> CheckpointTuple:
    """Read a checkpoint with all that belongs to it."""
    thread = objects.thread
    checkpoint: Any = {
        **{name: objects.value(raw) for name, raw in node.body.items()},
        "id": node.id,
        "channel_values": {name: objects.value(raw) for name, raw in node.values.items()},
        "channel_versions": dict(node.versions),
        "versions_seen": {name: dict(seen) for name, seen in node.seen.items()},
    }
    return CheckpointTuple(
        config=config_of(thread_id, namespace, node.id),
        checkpoint=checkpoint,
        metadata=metadata_of(node, objects),
        parent_config=config_of(thread_id, namespace, node.parent) if node.parent else None,
        pending_writes=[
            (one.task, one.channel, objects.value(one.value))
            for one in thread.pending(namespace, node.id)
        ],
    )


def metadata_of(node: Node, objects: Objects) -> Any:
    """Read what is said about a checkpoint."""
    return {name: objects.value(raw) for name, raw in node.meta.items()}


def is_about(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Tell whether metadata has what is wanted; a name with dots is one inside another."""
    return all(_found(metadata, name) == value for name, value in wanted.items())


def _found(metadata: Any, name: str) -> Any:
    if name in metadata or "." not in name:
        return metadata.get(name)
    for part in name.split("."):
        metadata = metadata.get(part) if isinstance(metadata, Mapping) else None
    return metadata


def histories(
    namespace: str, checkpoint: str, channels: Sequence[str], objects: Objects
) -> dict[str, History]:
    """Give what a channel was made of: the nearest stored value, and all that was written since."""
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
