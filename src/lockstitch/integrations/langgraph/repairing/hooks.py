"""What goes to a model, healed: for graphs that let a function look at it before.

Two things are apart. What is sent is healed on every call, because only then is it known what
is sent. The state is mended once, so that the next call finds nothing to do: the same messages
with the same ids, and so the same bytes for the provider's cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from lockstitch.dialects.profiles import profile_named
from lockstitch.formats.langgraph.naming import MESSAGES
from lockstitch.integrations.langgraph.repairing.healing import DIALECT, Mended, mended
from lockstitch.integrations.langgraph.repairing.identity import named
from lockstitch.integrations.langgraph.repairing.partial import completed
from lockstitch.lists import plan


def heal_hook(
    state: Any = None,
    *,
    dialect: str | None = None,
    model: str | None = None,
    channel: str = MESSAGES,
) -> Any:
    """Mend the state before a model is called: the ``pre_model_hook`` of ``create_react_agent``.

    It is the hook itself, and with options it makes one: ``heal_hook(dialect=...)`` names a
    profile such as ``langchain:mistral``, ``model`` a version that rules depend on. Those are for
    what is sent, which then goes to the model as a list of its own. ``channel`` names the
    messages in the state.
    """

    def hook(given: Any) -> dict[str, Any]:
        held = given[channel] if isinstance(given, Mapping) else getattr(given, channel)
        done = mended(held)
        update = {channel: _update(held, done) or []}
        if dialect is None and model is None:
            return update
        return update | {"llm_input_messages": sendable(done.messages, dialect, model)}

    if dialect is not None:
        profile_named(dialect)
    return hook if state is None else hook(state)


def update_for(held: Sequence[BaseMessage]) -> list[BaseMessage] | None:
    """Give the update that makes a state's messages valid, as small as it can be; None if none."""
    return _update(held, mended(held))


def _update(held: Sequence[BaseMessage], done: Mended) -> list[BaseMessage] | None:
    new = done.messages
    if not done.healed or _are(new, held):
        return None
    if _are(new[: len(held)], held):
        return new[len(held) :]
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *new]


def sendable(
    messages: list[BaseMessage], dialect: str | None = None, model: str | None = None
) -> list[BaseMessage]:
    """Give a list that the provider accepts; one in which nothing is wrong is the same object."""
    whole, _ = completed(messages)
    given = messages if _are(whole, messages) else whole
    made = plan(given, dialect or DIALECT, model=model)
    return named(made.messages, given) if made.healed and made.changed else given


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
    inner = getattr(model, "bound", model)
    return "langchain:mistral" if "mistral" in type(inner).__module__ else None


def _are(one: Sequence[BaseMessage], other: Sequence[BaseMessage]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
