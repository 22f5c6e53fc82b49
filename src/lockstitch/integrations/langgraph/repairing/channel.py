"""One channel of messages in a checkpoint under repair, with all that hangs on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import eq, is_
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from lockstitch.integrations.langgraph.repairing import pending
from lockstitch.integrations.langgraph.repairing.failures import failed_results
from lockstitch.integrations.langgraph.repairing.healing import Mended, is_real, mended
from lockstitch.integrations.langgraph.repairing.identity import named
from lockstitch.integrations.langgraph.repairing.matching import Aligned, aligned

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple


class MessageChannel:
    """The messages of one channel, what waits to be merged into them, and what they are to be.

    ``held`` is what the checkpoint holds, ``writes`` what is to be merged into it in the order in
    which it happened, ``returned`` the part of it that finished tasks returned. ``by_id`` says
    that calls of ancestors can be known by their ids only. ``applied`` is what the graph itself
    makes of all that, once it is known. ``late`` are results found beside ancestors, ``failed``
    the errors that tools ended with.
    """

    def __init__(
        self,
        name: str,
        held: Sequence[BaseMessage],
        writes: Sequence[Any] = (),
        returned: Sequence[Any] = (),
        *,
        by_id: bool = False,
    ) -> None:
        self.name = name
        self.held: list[BaseMessage] = list(held)
        self.writes = list(writes)
        self.applied: list[BaseMessage] | None = None
        self.late: list[ToolMessage] = []
        self.failed: list[ToolMessage] = []
        self.lined = Aligned([])
        self.synthetic = 0
        self._returned = list(returned)
        self._by_id = by_id
        self._done: tuple[list[BaseMessage], Mended] | None = None

    @property
    def done(self) -> Mended:
        """What the conversation is to be, once it was lined up."""
        return self._mended(self.lined.messages)

    def line_up(self, given: Sequence[Any] | None = None) -> None:
        """Put together what is to be healed: all that is known, or what an application holds."""
        whole = self.whole()
        self.lined = Aligned(whole) if given is None else aligned(given, whole)

    def whole(self) -> list[BaseMessage]:
        """Give the conversation with all that hangs on the checkpoint.

        A graph that was changed since does not know a task of the old one as its own, and does
        not apply what it returned.
        """
        if self.applied is None:
            return [*pending.added(self.held, self.writes), *self.late, *self.failed]
        ids = {message.id for message in self.applied}
        return [
            *self.applied,
            *(found for found in self.beside() if found.id not in ids),
            *self.failed,
        ]

    def bring(self, messages: Sequence[BaseMessage], synthetic: int) -> None:
        """Merge what a subgraph already has, as if the node that it is had returned it.

        ``synthetic`` is how many of its results were made up, which are new here, too.
        """
        self.writes.append(list(messages))
        self._returned.append(list(messages))
        self.synthetic += synthetic

    def add_failed(self, saved: CheckpointTuple) -> None:
        """Add the errors that tasks of the checkpoint ended with, for calls that are open."""
        self.failed += failed_results(saved, self.whole())

    def beside(self) -> list[BaseMessage]:
        """Give the results that are not in the conversation, but beside it or an ancestor."""
        found = [message for value in self._returned for message in pending.converted(value)]
        return [message for message in (*found, *self.late) if is_real(message)]

    def open_calls(self) -> set[pending.Asked]:
        """Give the calls that nothing real in the conversation or beside it answers.

        A call whose id is in use more than once is left out where only ids could tell.
        """
        whole = self.whole()
        used = Counter(call for call, _ in pending.calls_in(whole))
        only_ids = self._by_id or any(message.id is None for message in self.held)
        # What stands in the place of a result may have been put there beside that very result.
        stored = {id(message) for message in whole}
        return {
            (answer.tool_call_id, reply)
            for answer, reply in _made_up(self._mended(whole).messages)
            if used[answer.tool_call_id] == 1 or not (only_ids or id(answer) in stored)
        }

    def take(self, ancestor: CheckpointTuple, calls: set[pending.Asked]) -> bool:
        """Take results for these open calls from beside an ancestor; False to look no further.

        The calls that are answered so are taken out of the set.
        """
        found = pending.results_for(calls, ancestor, self.name)
        for message in found or ():
            answered = {asked for asked in calls if asked[0] == message.tool_call_id}
            if answered:
                calls -= answered
                known = [*self.whole(), message]
                self.late.append(cast("ToolMessage", named(known, known[:-1])[-1]))
        self._take_failed(ancestor, calls)
        return found is not None

    def _take_failed(self, ancestor: CheckpointTuple, calls: set[pending.Asked]) -> None:
        """Take what tools failed with at an ancestor, for calls that have no result there."""
        held = pending.opened(ancestor.checkpoint["channel_values"].get(self.name))
        errors = failed_results(ancestor, held) if pending.holds_messages(held) else ()
        for message in errors:
            answered = {asked for asked in calls if asked[0] == message.tool_call_id}
            if answered:
                calls -= answered
                self.failed.append(message)

    @property
    def is_behind(self) -> bool:
        """Whether the checkpoint holds something else than what the conversation is to be."""
        return bool(self.writes) or not are_same(self.done.messages, self.held)

    @property
    def is_open(self) -> bool:
        """Whether the checkpoint itself holds a call that nothing in it answers."""
        return bool(self._mended(self.held).synthetic)

    def _mended(self, messages: list[BaseMessage]) -> Mended:
        """Mend a list; the one that was mended last is not looked at again."""
        if self._done is None or not are_same(self._done[0], messages, is_):
            self._done = messages, mended(messages)
        return self._done[1]


def _made_up(messages: Iterable[BaseMessage]) -> Iterator[tuple[ToolMessage, str | None]]:
    """Give the texts in place of answers, whoever wrote them, with the reply before each."""
    reply: str | None = None
    for message in messages:
        if isinstance(message, AIMessage):
            reply = message.id
        elif isinstance(message, ToolMessage) and not is_real(message):
            yield message, reply


def are_same(
    one: Sequence[BaseMessage], other: Sequence[BaseMessage], same: Callable[[Any, Any], bool] = eq
) -> bool:
    """Whether two lists have the same messages, as objects or as what they say."""
    return len(one) == len(other) and all(
        new is old or same(new, old) for new, old in zip(one, other, strict=True)
    )
