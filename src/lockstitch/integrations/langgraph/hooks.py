"""What goes to a model, healed: for graphs that let a function look at it before.

Two things are apart. What is sent is healed on every call, because only then is it known what
is sent. The state is repaired once, with results that the thread has beside its checkpoints, so
that the next call finds nothing to do: the same messages with the same ids, and so the same bytes
for the provider's cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage, SystemMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_config
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.decisions import add_ids
from lockstitch.formats.langgraph.snapshot import MESSAGES
from lockstitch.heal import plan
from lockstitch.integrations.langgraph import pending_writes
from lockstitch.integrations.langgraph.checkpoint_repair import MessageChannel, are_same
from lockstitch.integrations.langgraph.message_repair import (
    DIALECT,
    RepairedMessages,
    drop_partial,
)
from lockstitch.repair.turns import START

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

# The packages whose providers want the user to speak first.
_OPENED = frozenset({"langchain_anthropic", "langchain_aws", "langchain_google_genai"})
# The packages whose providers have rules of their own.
_PROFILES = {
    "langchain_mistralai": "langchain:mistral",
    "langchain_anthropic": "langchain:anthropic",
    "langchain_openai": "langchain:openai",
}
_SAVER = "__pregel_checkpointer"
_FURTHEST = 100
_OPENING = "lockstitch-beginning"


def heal_hook(
    state: Any = None,
    *,
    dialect: str | None = None,
    model: str | None = None,
    channel: str = MESSAGES,
) -> Any:
    """Repair the state before a model is called: the ``pre_model_hook`` of ``create_react_agent``.

    Use it as the hook itself, or call it with options to make one: ``heal_hook(dialect=...)`` names
    a profile such as ``langchain:mistral``, ``model`` a version that rules depend on. The options
    apply to what is sent, which then goes to the model as a separate list. ``channel`` names the
    messages in the state.
    """

    def hook(current: Any) -> dict[str, Any]:
        held = current[channel] if isinstance(current, Mapping) else getattr(current, channel)
        search = ResultSearch(held, channel)
        search.look()
        update = {channel: search.update() or []}
        if dialect is None and model is None:
            return update
        return update | {"llm_input_messages": sendable(search.repair().messages, dialect, model)}

    checked_dialect(dialect)
    return hook if state is None else hook(state)


class ResultSearch:
    """Results for the open calls of a state, looked for in the thread that the state is of.

    A message that came after an interrupt has left them beside the checkpoint before it. A text
    in the place of a result is looked for again at the beginning of the next two turns.
    """

    def __init__(self, held: Sequence[BaseMessage], channel: str = MESSAGES) -> None:
        self._channel = MessageChannel(channel, held)
        self._calls: set[pending_writes.AskedCall] = set()
        begins = bool(held) and isinstance(held[-1], HumanMessage)
        values = {channel: list(held)}
        if pending_writes.unanswered(held) or (begins and pending_writes.holds_stand_ins(values)):
            self._calls = self._channel.open_calls()

    def look(self) -> None:
        """Look for results in the checkpoints of the run that this is called in, if it is."""
        saver, place = _thread()
        if saver is None or not self._calls:
            return
        found: Any = saver.list(place, limit=_FURTHEST)
        for saved in found:
            if not self._take(saved):
                break
        # What holds a lock while it is read lets go of it now, and not when it is collected.
        if hasattr(found, "close"):
            found.close()

    async def alook(self) -> None:
        """Do what ``look`` does, in an event loop."""
        saver, place = _thread()
        if saver is None or not self._calls:
            return
        found: Any = saver.alist(place, limit=_FURTHEST)
        async for saved in found:
            if not self._take(saved):
                break
        if hasattr(found, "aclose"):
            await found.aclose()

    def _take(self, saved: CheckpointTuple) -> bool:
        """Take results from beside a checkpoint; False if there is no use in looking further."""
        return self._channel.take(saved, self._calls) and bool(self._calls)

    def repair(self) -> RepairedMessages:
        """Return the conversation with what was found, made valid."""
        self._channel.align()
        return self._channel.repaired

    def update(self) -> list[BaseMessage] | None:
        """Return the update that makes the state's messages valid, as small as can be, or None."""
        held, done = self._channel.held, self.repair()
        new = done.messages
        if not done.healed or are_same(new, held, is_):
            return None
        if are_same(new[: len(held)], held, is_):
            return new[len(held) :]
        return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *new]


def _thread() -> tuple[BaseCheckpointSaver[Any] | None, RunnableConfig]:
    """Return the checkpointer of the run that this is called in, and the namespace of its graph."""
    try:
        conf = get_config().get("configurable", {})
    except RuntimeError:
        return None, {}
    saver = conf.get(_SAVER)
    thread, space = conf.get("thread_id"), str(conf.get("checkpoint_ns") or "")
    if not isinstance(saver, BaseCheckpointSaver) or thread is None:
        return None, {}
    above = space.rpartition("|")[0]
    keep = {key: conf[key] for key in conf if not key.startswith(("__", "checkpoint_"))}
    return saver, {"configurable": {**keep, "thread_id": thread, "checkpoint_ns": above}}


def checked_dialect(dialect: str | None) -> None:
    """Raise ``UsageError`` for a dialect that is not spoken here: messages are LangChain's."""
    if dialect is not None and profile_named(dialect).dialect != DIALECT:
        raise UsageError(f"the messages here are LangChain messages: {DIALECT}, or a profile of it")


def sendable(
    messages: list[BaseMessage],
    dialect: str | None = None,
    model: str | None = None,
    *,
    is_opened: bool = False,
) -> list[BaseMessage]:
    """Return a list that the provider accepts; one in which nothing is wrong is the same object.

    With ``is_opened`` it begins with words of the user's, behind those of the system.
    """
    whole, _ = drop_partial(messages)
    kept = messages if are_same(whole, messages, is_) else whole
    made = plan(kept, dialect or DIALECT, model=model)
    sent = add_ids(made.messages, kept, always=True) if made.healed and made.changed else kept
    spoken = (n for n, one in enumerate(sent) if not isinstance(one, SystemMessage))
    first = next(spoken, len(sent)) if is_opened else len(sent)
    if first == len(sent) or isinstance(sent[first], HumanMessage):
        return sent
    # The beginning was cut off.
    return [*sent[:first], HumanMessage(START, id=_OPENING), *sent[first:]]


def opens_with_user(model: Any) -> bool:
    """Whether a chat model's provider refuses a conversation that it would begin itself."""
    module = type(getattr(model, "bound", model)).__module__.partition(".")[0]
    return module in _OPENED


def model_name(model: Any) -> str | None:
    """Read the name of a chat model off it, whatever its class calls it."""
    inner = getattr(model, "bound", model)
    for key in ("model_name", "model", "model_id"):
        found = getattr(inner, key, None)
        if isinstance(found, str) and found:
            return found
    return None


def dialect_for(model: Any) -> str | None:
    """Choose the profile of who receives the messages, where it has rules of its own."""
    package = type(getattr(model, "bound", model)).__module__.partition(".")[0]
    return _PROFILES.get(package)
