"""Heal what is sent to a model, in graphs that call a function before the model.

Two things are separate. The list that is sent is healed on every call, because only then is it
known. The state is repaired once, with results that the thread has beside its checkpoints, so that
the next call finds nothing to do: the messages and ids stay the same, and so do the bytes for the
provider's cache.
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

# The packages of providers that require the user to speak first.
_OPENED = frozenset({"langchain_anthropic", "langchain_aws", "langchain_google_genai"})
# The packages of providers that have their own rules.
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
    """Repair the state before a model is called; a ``pre_model_hook`` of ``create_react_agent``.

    Pass ``heal_hook`` itself, or call it with options to make a hook. ``dialect`` names a profile
    such as ``langchain:mistral``, and ``model`` a version that some rules depend on. They apply to
    what is sent, which then goes to the model as a separate list. ``channel`` names the channel of
    the messages in the state. Raises ``UsageError`` for a dialect that is not one of LangChain
    messages.
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
    """Searches the thread of a state for results of the calls that are open in it.

    A message that came after an interrupt has left such results beside the checkpoint before it.
    For a call that has only a placeholder, the search is repeated at the beginning of the next two
    turns.
    """

    def __init__(self, held: Sequence[BaseMessage], channel: str = MESSAGES) -> None:
        self._channel = MessageChannel(channel, held)
        self._calls: set[pending_writes.AskedCall] = set()
        begins = bool(held) and isinstance(held[-1], HumanMessage)
        values = {channel: list(held)}
        if pending_writes.unanswered(held) or (begins and pending_writes.has_placeholders(values)):
            self._calls = self._channel.open_calls()

    def look(self) -> None:
        """Look for results in the checkpoints of the current run, if there is one."""
        saver, place = _thread()
        if saver is None or not self._calls:
            return
        found: Any = saver.list(place, limit=_FURTHEST)
        for saved in found:
            if not self._take(saved):
                break
        # A saver that holds a lock while it is read releases it now, not when it is garbage
        # collected.
        if hasattr(found, "close"):
            found.close()

    async def alook(self) -> None:
        """Do what :meth:`look` does, in an event loop."""
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
        """Take results from beside a checkpoint; return False if it is useless to look further."""
        return self._channel.take(saved, self._calls) and bool(self._calls)

    def repair(self) -> RepairedMessages:
        """Return the conversation made valid, with the results that were found."""
        self._channel.align()
        return self._channel.repaired

    def update(self) -> list[BaseMessage] | None:
        """Return the smallest update that makes the state's messages valid, or None."""
        held, done = self._channel.held, self.repair()
        new = done.messages
        if not done.healed or are_same(new, held, is_):
            return None
        if are_same(new[: len(held)], held, is_):
            return new[len(held) :]
        return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *new]


def _thread() -> tuple[BaseCheckpointSaver[Any] | None, RunnableConfig]:
    """Return the checkpointer of the current run, and the config of its graph's namespace."""
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
    """Raise ``UsageError`` for a dialect that is not one of LangChain messages."""
    if dialect is not None and profile_named(dialect).dialect != DIALECT:
        raise UsageError(f"the messages here are LangChain messages: {DIALECT}, or a profile of it")


def sendable(
    messages: list[BaseMessage],
    dialect: str | None = None,
    model: str | None = None,
    *,
    is_opened: bool = False,
) -> list[BaseMessage]:
    """Return a list that the provider accepts; a list without errors is returned as it is.

    With ``is_opened`` the list begins, after any system messages, with a message of the user.
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
    """Whether a chat model's provider refuses a conversation that begins with the assistant."""
    module = type(getattr(model, "bound", model)).__module__.partition(".")[0]
    return module in _OPENED


def model_name(model: Any) -> str | None:
    """Return the name of a chat model, under whatever attribute its class keeps it."""
    inner = getattr(model, "bound", model)
    for key in ("model_name", "model", "model_id"):
        found = getattr(inner, key, None)
        if isinstance(found, str) and found:
            return found
    return None


def dialect_for(model: Any) -> str | None:
    """Return the profile of a chat model's provider if it has rules of its own, or None."""
    package = type(getattr(model, "bound", model)).__module__.partition(".")[0]
    return _PROFILES.get(package)
