"""How a dialect talks to its provider, beyond the view of a list: one subclass in each package.

That is what a response says, how a stream is gathered, how turns of another dialect are written,
and the everyday parts of a request. Those are written at once: a long conversation is made of
little else, and what knows every case would write the same.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lockstitch.conversation.parts import Message, Part
from lockstitch.dialects.base import Dialect, copy_part
from lockstitch.dialects.script import TurnWriter
from lockstitch.dialects.streams import Accumulator, events_in

Fields = dict[str, Any]
# The words of a reply, and the id, name and arguments of each call in it.
Spoken = tuple[list[Any], list[tuple[Any, Any, Any]]]
_SPEAKERS = ("user", "assistant", "system", "developer", "tool", "model", "function")
_SEALED = ("encrypted_content", "encrypted_index", "encrypted_stdout")


class TextResult(NamedTuple):
    """The result of a call: the call's id and name, the text, and whether it failed."""

    id: str
    name: str
    text: str
    failed: bool


class Exchange(ABC):
    """What a dialect's provider is told and what it answers.

    ``provider`` serves the dialect where nobody says otherwise. ``results_by_id`` says that a
    result names its call by nothing but the id, ``marks_failures`` that it says whether the call
    failed. Results of text can be written at once where ``writes_results`` is set; of blank text
    only with ``takes_blank``, without ids only where ``needs_ids`` is not set.
    """

    provider: str
    writer: type[TurnWriter]
    stream: type[Accumulator]
    results_by_id = False
    marks_failures = False
    joins_user_messages = False
    has_typed_blocks = True
    writes_results = True
    needs_ids = True
    takes_blank = True

    @abstractmethod
    def messages_in(self, value: Any) -> list[Any]:
        """Return the messages to replay of a response, a message, or a list of either."""

    @abstractmethod
    def text_message(self, text: str) -> Fields:
        """Return a message of the user's with a text that is not blank."""

    def user_message(self, content: Any) -> Fields:
        """Return a message of the user's around content in this spelling."""
        return {"role": "user", "content": content}

    def plain_messages(self, value: Any) -> list[Fields] | None:
        """Return the messages in an everyday response, None if a longer look is needed."""
        return None

    def words_and_calls(self, messages: list[Any]) -> Spoken:
        """Read everyday messages of a reply; raise ValueError for what is not everyday."""
        raise ValueError("no reply of this dialect is read at once")

    def asked_in(self, messages: list[Fields]) -> list[tuple[str, str]]:
        """Return the ids and names of the calls; asked for where results go by more than ids."""
        return []

    def plain_results(self, results: Iterable[TextResult]) -> list[Fields]:
        """Return the messages with results of text."""
        raise NotImplementedError

    def leading_messages(self, texts: Mapping[Any, str], *, is_own: bool) -> list[Fields]:
        """Return the instructions that stand before all messages, by the role that gives them.

        ``is_own`` says that the dialect's author serves it, not another vendor.
        """
        return []

    def system_parameter(self, text: str) -> Any:
        """Return the parameter with the instructions beside the messages; None if it has none."""
        return None

    def events_in(self, data: bytes) -> Iterator[Any]:
        """Return the events in the body of a stream, as far as they came."""
        return events_in(data)

    def unbind(self, view: Dialect, message: Message) -> Any:
        """Return an assistant's message without what is bound to its issuer; None if empty then.

        Reasoning and signatures are refused by everybody else, sealed content says nothing to
        them, and the ids of items lead to state that only the issuer keeps. What a provider ran
        itself and tells of only in such a form cannot be told to another one.
        """
        raw = message.raw
        if not isinstance(raw, dict):
            return raw
        freed = (self.free_part(part, message.parts) for part in message.parts)
        parts = [part for part in freed if part is not None]
        beside = self.free_fields(raw)
        same = len(parts) == len(message.parts) and all(map(operator.is_, parts, message.parts))
        if same and beside is raw:
            return raw
        if not parts and not any(beside.get(key) for key in ("refusal", "function_call")):
            return None
        return beside if same else view.rebuild(Message(beside, message.index, message.role, parts))

    def free_part(self, part: Part, parts: list[Part]) -> Part | None:
        """Return a part without what is bound, None if nothing of it is left."""
        return part

    def free_fields(self, raw: Fields) -> Fields:
        """Return a message without what is bound beside its content."""
        return raw


def without(raw: Fields, keys: Iterable[str]) -> Fields:
    """Return an object without some fields; the same one if it has none of them."""
    found = {key for key in keys if key in raw}
    return {key: value for key, value in raw.items() if key not in found} if found else raw


def with_raw(part: Part, raw: Any) -> Part:
    """Return a part over other raw data; the same one if that is the same."""
    return part if raw is part.raw else copy_part(part, raw)


def is_sealed(value: Any) -> bool:
    """Whether a block holds something that only its issuer can open."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            if any(inner.get(key) for key in _SEALED):
                return True
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)
    return False


def unsealed_citations(block: Fields) -> Fields:
    """Return a text block without citations that only their issuer can open."""
    citations = block.get("citations")
    if not isinstance(citations, list):
        return block
    kept = [citation for citation in citations if not is_sealed(citation)]
    if len(kept) == len(citations):
        return block
    return {**block, "citations": kept} if kept else without(block, ("citations",))


def read_each(
    values: list[Any], read: Callable[[Any], list[Any]], wrap: Callable[[list[Any]], Fields]
) -> list[Any]:
    """Read a list of messages, or make one message of a list of its blocks."""
    if any(isinstance(value, dict) and value.get("role") in _SPEAKERS for value in values):
        return [message for value in values for message in read(value)]
    blocks = [value for value in values if isinstance(value, dict)]
    return [wrap(values)] if blocks and len(blocks) == len(values) else []


def is_text(value: Any) -> bool:
    """Whether this is a text that is not empty."""
    return type(value) is str and value != ""


def is_worded(block: Any) -> bool:
    """Whether a block has a text; raises nothing for what is no object."""
    return type(block) is dict and is_text(block.get("text"))
