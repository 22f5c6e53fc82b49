"""Whether two savers give the same, down to the types: 1, 1.0 and True are three values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

    from lockstitch.integrations.langgraph.saving.values import Serializer

_PLACE = ("thread_id", "checkpoint_ns", "checkpoint_id")
_MOST = 50_000


class Comparison:
    """Compares checkpoints; messages that are the same objects again are compared once."""

    def __init__(self, serde: Serializer) -> None:
        self._serde = serde
        self._known: dict[tuple[int, int], tuple[BaseMessage, BaseMessage]] = {}

    def difference(
        self, one: CheckpointTuple, other: CheckpointTuple | None, *, with_writes: bool = True
    ) -> str:
        """Name what two savers do not give alike of a checkpoint; "" if there is nothing."""
        if other is None:
            return "state"
        pairs: dict[str, tuple[Any, Any]] = {
            "config": (_place(one.config), _place(other.config)),
            "parent": (_place(one.parent_config), _place(other.parent_config)),
            "metadata": (dict(one.metadata), dict(other.metadata)),
            "state": (one.checkpoint, other.checkpoint),
        }
        if with_writes:
            pairs["pending writes"] = (_listed(one), _listed(other))
        return next((what for what, (a, b) in pairs.items() if not self.same(a, b)), "")

    def same(self, one: Any, other: Any) -> bool:
        """Tell whether two values are the same."""
        if one is other:
            return True
        if type(one) is not type(other):
            return False
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(
                self.same(value, other[name]) for name, value in one.items()
            )
        if isinstance(one, list | tuple):
            return self._items(one, other)
        if isinstance(one, BaseMessage):
            return self._messages(one, other)
        if isinstance(one, str | int | float):
            return bool(one == other) or one != one  # noqa: PLR0124 - not a number
        return self._others(one, other)

    def _items(self, one: Sequence[Any], other: Sequence[Any]) -> bool:
        return len(one) == len(other) and all(map(self.same, one, other))

    def _messages(self, one: BaseMessage, other: BaseMessage) -> bool:
        pair = (id(one), id(other))
        if pair in self._known:
            return True
        if len(self._known) > _MOST:
            self._known.clear()
        is_same = self.same(one.__dict__, other.__dict__) and self.same(
            one.__pydantic_extra__, other.__pydantic_extra__
        )
        if is_same:
            # Kept, so that nothing else gets their identities.
            self._known[pair] = (one, other)
        return is_same

    def _others(self, one: Any, other: Any) -> bool:
        """Compare what is neither a container nor a message: by its bytes, else by its own word."""
        if self._serde.dumps_typed(one) == self._serde.dumps_typed(other):
            return True
        try:
            return bool(one == other)
        except Exception:  # noqa: BLE001 - a comparison of whatever class it is
            return False


def _place(config: Any) -> Any:
    conf = (config or {}).get("configurable", {})
    return [conf.get(name) for name in _PLACE]


def _listed(saved: CheckpointTuple) -> list[Any]:
    return [list(write) for write in saved.pending_writes or ()]
