"""What goes to a model, healed: for graphs that let a function look at it before.

Two things are apart. What is sent is healed on every call, because only then is it known what
is sent. The state is mended once, so that the next call finds nothing to do: the same messages
with the same ids, and so the same bytes for the provider's cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage, SystemMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.naming import MESSAGES
from lockstitch.integrations.langgraph.repairing.healing import DIALECT, Mended, mended
from lockstitch.integrations.langgraph.repairing.identity import named
from lockstitch.integrations.langgraph.repairing.partial import completed
from lockstitch.lists import plan
from lockstitch.repair.turns import START

# The packages whose providers want the user to speak first.
_OPENED = frozenset({"langchain_anthropic", "langchain_aws", "langchain_google_genai"})
# The packages whose providers have rules of their own.
_PROFILES = {
    "langchain_mistralai": "langchain:mistral",
    "langchain_anthropic": "langchain:anthropic",
    "langchain_openai": "langchain:openai",
}
_OPENING = "lockstitch-beginning"


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

    checked_dialect(dialect)
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


def checked_dialect(dialect: str | None) -> None:
    """Raise ``UsageError`` for a dialect that is not spoken here: messages are LangChain's."""
    if dialect is not None and profile_named(dialect).dialect != DIALECT:
        raise UsageError(f"what is seen here are messages of LangChain: {DIALECT}, or a profile")


def sendable(
    messages: list[BaseMessage],
    dialect: str | None = None,
    model: str | None = None,
    *,
    is_opened: bool = False,
) -> list[BaseMessage]:
    """Give a list that the provider accepts; one in which nothing is wrong is the same object.

    With ``is_opened`` it begins with words of the user's, behind those of the system.
    """
    whole, _ = completed(messages)
    given = messages if _are(whole, messages) else whole
    made = plan(given, dialect or DIALECT, model=model)
    sent = named(made.messages, given) if made.healed and made.changed else given
    return _opened(sent) if is_opened else sent


def _opened(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Put words of the user's first where the beginning was cut off."""
    spoken = (n for n, one in enumerate(messages) if not isinstance(one, SystemMessage))
    first = next(spoken, len(messages))
    if first == len(messages) or isinstance(messages[first], HumanMessage):
        return messages
    return [*messages[:first], HumanMessage(START, id=_OPENING), *messages[first:]]


def opens_with_user(model: Any) -> bool:
    """Tell whether a chat model's provider refuses a conversation that it would begin itself."""
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


def _are(one: Sequence[BaseMessage], other: Sequence[BaseMessage]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
