"""What can be said of a whole raw list at the speed of C.

Quick walkers over the everyday shapes of a dialect.

They trade generality for speed: what they pass is certainly fine under the dialect's own profile,
what they fail goes through the full rules. They know texts, calls and results, nothing else.

Quick proofs that a list is fine, for every dialect: only of what is new, and only of its shape.

They are for lists that were made here from everyday parts. Unlike the walkers that a repair goes
by they let reasoning pass, since nothing is going to be changed before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from lockstitch.conversation.narrowing import Excerpt, find_excerpt
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.profiles import Profile

_ENCODER = msgspec.json.Encoder()
# Below this no result can be a giant one.
_UNREMARKABLE = 10 * 1024 * 1024
# So many messages are encoded at once, in memory that is at hand.
_CHUNK = 64


def encoded_size(raw: Any) -> int:
    """Give the size of a value as JSON, or -1 if it is not certainly clean text throughout."""
    try:
        encoded = _ENCODER.encode(raw)
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return -1
    return -1 if b"\\u0000" in encoded else len(encoded)


def narrow(
    dialect: Dialect,
    profile: Profile,
    raw: Sequence[Any],
    *,
    with_ends: bool = False,
    clean: bool = False,
) -> Excerpt | None:
    """Give the part of a list that needs a look, or None if all of it does.

    Only for a dialect's own profile: variants have rules the walkers do not know. ``clean`` says
    that the list is known to be clean text within all limits.
    """
    walker = None if profile.name else dialect.walker()
    if walker is None or not raw:
        return None
    found = find_excerpt(raw, walker, with_ends=with_ends)
    if found is None or len(found.numbers) * 2 > len(raw):
        return None
    return found if clean or _is_small(raw, profile) else None


def _is_small(raw: Sequence[Any], profile: Profile) -> bool:
    """Tell whether a list is clean text within its receiver's limit, and no message is a giant."""
    sizes = [encoded_size(raw[start : start + _CHUNK]) for start in range(0, len(raw), _CHUNK)]
    if min(sizes) < 0 or (max(sizes) > _UNREMARKABLE and _has_a_giant(raw)):
        return False
    return sum(sizes) <= max(profile.max_bytes or sum(sizes), _UNREMARKABLE)


def _has_a_giant(raw: Sequence[Any]) -> bool:
    return any(encoded_size(message) > _UNREMARKABLE for message in raw)


_PLAIN_IDS = re.compile(r"[a-zA-Z0-9_-]*")
_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DECODE = msgspec.json.Decoder().decode
SEVERAL = -1


class AnthropicWalker:
    """Walks ``{"role", "content"}`` with text, tool_use and tool_result blocks.

    Where it ``thinks``, signed thinking may stand before them.
    """

    thinks = False

    def __init__(self) -> None:
        self.homes: dict[str, int] = {}
        self.names: set[str] = set()

    def run(self, raw: Sequence[Any], start: int, seams: list[int]) -> int:
        """Walk from a seam to the first message that is not plain; give its index."""
        index = start
        waiting: list[str] = []
        try:
            for index in range(start, len(raw)):
                message = raw[index]
                if type(message) is not dict:
                    return index
                role, content = message["role"], message["content"]
                if role == "assistant":
                    if waiting or not index or not self._says(content, waiting, index):
                        return index
                elif role != "user" or not _answers(content, waiting):
                    return index
                elif waiting:
                    waiting = []
                else:
                    seams.append(index)
        except KeyError:
            return index
        return len(raw) - 1 if waiting else len(raw)

    def _says(self, content: Any, waiting: list[str], index: int) -> bool:
        """Tell whether an assistant's content is plain; notes the calls it makes."""
        if type(content) is str:
            return content != "" and not content.isspace()
        if type(content) is not list or not content:
            return False
        homes = self.homes
        for block in content:
            if type(block) is not dict or "cache_control" in block:
                return False
            kind = block["type"]
            if kind == "text":
                text = block["text"]
                if waiting or type(text) is not str or not text or text.isspace():
                    return False
            elif kind == "tool_use":
                call, name = block["id"], block["name"]
                if type(call) is not str or call in homes or type(name) is not str:
                    return False
                if type(block["input"]) is not dict:
                    return False
                homes[call] = index
                waiting.append(call)
                self.names.add(name)
            elif waiting or not self.thinks or not _is_signed(block, kind):
                return False
        return kind in ("text", "tool_use")

    def is_prompt(self, message: Any) -> bool:
        """Tell whether this is a user's message that holds no results."""
        if type(message) is not dict or message.get("role") != "user":
            return False
        content = message.get("content")
        if type(content) is str:
            return True
        return type(content) is list and not any(
            type(block) is dict and block.get("type") == "tool_result" for block in content
        )

    def is_quiet(self, message: Any) -> bool:
        """Tell whether this is an assistant's message without calls."""
        if type(message) is not dict or message.get("role") != "assistant":
            return False
        content = message.get("content")
        if type(content) is str:
            return True
        return type(content) is list and not any(
            type(block) is dict and block.get("type") == "tool_use" for block in content
        )

    def ids_in(self, message: Any) -> list[str]:
        """Give the ids of calls and results in a message."""
        content = message.get("content") if type(message) is dict else None
        blocks = content if type(content) is list else []
        ids = [
            block.get("id") or block.get("tool_use_id") for block in blocks if type(block) is dict
        ]
        return [call for call in ids if type(call) is str]

    def note(self, message: Any, index: int) -> None:
        """Remember the ids of a message that failed, so that later uses of them fail too."""
        for call in self.ids_in(message):
            self.homes.setdefault(call, index)

    def is_sound(self) -> bool:
        """Tell whether all ids and names fit the provider's alphabet."""
        if "" in self.homes or not _PLAIN_IDS.fullmatch("".join(self.homes)):
            return False
        return all(_PLAIN_NAME.fullmatch(name) for name in self.names)

    def ids(self) -> Iterable[str]:
        """Give every id met on the walk."""
        return self.homes

    def home_of(self, call: str) -> int | None:
        """Give the index of the message that made a call."""
        return self.homes.get(call)


class ChatWalker:
    """Walks OpenAI Chat messages with texts, function calls and tool messages."""

    def __init__(self) -> None:
        self.homes: dict[str, int] = {}
        self.noted: set[str] = set()
        self.names: set[str] = set()

    def run(self, raw: Sequence[Any], start: int, seams: list[int]) -> int:
        """Walk from a seam to the first message that is not plain; give its index."""
        index = start
        waiting: list[str] = []
        try:
            for index in range(start, len(raw)):
                message = raw[index]
                if type(message) is not dict:
                    return index
                role, content = message["role"], message["content"]
                if role == "tool":
                    if not waiting or type(content) is not str or "tool_calls" in message:
                        return index
                    if message["tool_call_id"] != waiting.pop():
                        return index
                elif waiting:
                    return index
                elif "tool_calls" in message:
                    if role != "assistant" or not _is_text_or_none(content):
                        return index
                    if not self._calls(message["tool_calls"], waiting, index):
                        return index
                elif type(content) is not str or not content or role not in _SPEAKERS:
                    return index
                elif role == "user":
                    seams.append(index)
        except (KeyError, ValueError, RecursionError):
            return index
        return len(raw) - 1 if waiting else len(raw)

    def _calls(self, calls: Any, waiting: list[str], index: int) -> bool:
        """Note the calls of a message; what is missing or does not parse raises."""
        if type(calls) is not list or not calls:
            return False
        for call in reversed(calls):
            function = call["function"] if type(call) is dict else None
            if type(function) is not dict or call["type"] != "function":
                return False
            number, name, arguments = call["id"], function["name"], function["arguments"]
            if type(number) is not str or type(name) is not str or type(arguments) is not str:
                return False
            if not number or number in waiting or number in self.noted:
                return False
            if type(_DECODE(arguments)) is not dict:
                return False
            self.homes[number] = SEVERAL if number in self.homes else index
            waiting.append(number)
            self.names.add(name)
        return True

    def is_prompt(self, message: Any) -> bool:
        """Tell whether this is a user's message."""
        return type(message) is dict and message.get("role") == "user"

    def is_quiet(self, message: Any) -> bool:
        """Tell whether this is an assistant's message without calls."""
        return (
            type(message) is dict
            and message.get("role") == "assistant"
            and "tool_calls" not in message
        )

    def ids_in(self, message: Any) -> list[str]:
        """Give the ids of calls and results in a message."""
        if type(message) is not dict:
            return []
        calls = message.get("tool_calls")
        calls = calls if type(calls) is list else []
        ids = [call.get("id") for call in calls if type(call) is dict]
        return [call for call in (*ids, message.get("tool_call_id")) if type(call) is str]

    def note(self, message: Any, index: int) -> None:
        """Remember the ids of a message that failed, so that later uses of them fail too."""
        for call in self.ids_in(message):
            self.noted.add(call)
            self.homes.setdefault(call, index)

    def is_sound(self) -> bool:
        """Tell whether all names fit the provider's pattern."""
        return all(_PLAIN_NAME.fullmatch(name) for name in self.names)

    def ids(self) -> Iterable[str]:
        """Give every id met on the walk."""
        return self.homes

    def home_of(self, call: str) -> int | None:
        """Give the index of the message that made a call, -1 if several did."""
        return self.homes.get(call)


_SPEAKERS = ("user", "assistant", "system")


def _is_signed(block: dict[str, Any], kind: Any) -> bool:
    """Tell whether this is thinking that can be handed back."""
    if kind == "redacted_thinking":
        return type(block["data"]) is str and block["data"] != ""
    if kind != "thinking" or type(block["thinking"]) is not str:
        return False
    return type(block["signature"]) is str and block["signature"] != ""


def _answers(content: Any, waiting: list[str]) -> bool:
    """Tell whether a user's content answers just the calls that wait, and holds only text else."""
    if type(content) is str:
        return not waiting and content != "" and not content.isspace()
    if type(content) is not list or not content:
        return False
    answered = 0
    for block in content:
        if type(block) is not dict or "cache_control" in block:
            return False
        kind = block["type"]
        if kind == "tool_result":
            if answered == len(waiting) or block["tool_use_id"] != waiting[answered]:
                return False
            if type(block["content"]) is not str:
                return False
            answered += 1
        elif kind != "text" or answered != len(waiting) or is_blank(block["text"]):
            return False
    return answered == len(waiting)


def _is_text_or_none(content: Any) -> bool:
    return content is None or type(content) is str


def is_blank(text: Any) -> bool:
    """Tell whether this is not a text with something in it."""
    return type(text) is not str or not text or text.isspace()


_DECODE_ARGUMENTS = msgspec.json.Decoder().decode
_LONGEST_ID = 64
PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_BEDROCK_IDS = re.compile(r"[a-zA-Z0-9_.:-]*")
_GEMINI_TEXT = ({"text"}, {"text", "thoughtSignature"})
_GEMINI_CALL = ({"functionCall"}, {"functionCall", "thoughtSignature"})
_LANGCHAIN_CALL = {"name", "args", "id", "type"}
_LANGCHAIN_AI = ({"type", "content", "tool_calls"}, {"type", "content"})
_ITEM_KEYS = {"type", "role", "content", "id", "status"}
_CALL_KEYS = {"type", "call_id", "name", "arguments", "id", "status"}


class QuickProof(Protocol):
    """Walks over raw messages of one dialect."""

    def run(self, raw: Sequence[Any], start: int, seams: list[int]) -> int:
        """Walk from a place at which nothing is open to the first message that is not plain."""

    def ids_in(self, message: Any) -> Iterable[str]:
        """Give the ids in a message."""

    def is_sound(self) -> bool:
        """Tell whether what was gathered (ids, names) is fine."""

    def ids(self) -> Iterable[str]:
        """Give every id that may not come again."""


class AnthropicProof(AnthropicWalker):
    """Anthropic's walk, with signed thinking before the words and calls that it led to."""

    thinks = True


class PlainProof:
    """What the proofs below share: one message after the other, ids and names."""

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}
        self.names: set[str] = set()
        self.waiting: list[Any] = []

    def run(self, raw: Sequence[Any], start: int, seams: list[int]) -> int:
        """Walk from a place at which nothing is open to the first message that is not plain."""
        index = start
        before: Any = raw[start - 1] if start else None
        try:
            for index in range(start, len(raw)):
                message = raw[index]
                if type(message) is not dict or not self.passes(message, before):
                    return index
                before = message
        except (KeyError, ValueError, RecursionError, TypeError, AttributeError):
            return index
        return len(raw) - 1 if self.is_open else len(raw)

    @property
    def is_open(self) -> bool:
        """Tell whether something is missing at the end."""
        return bool(self.waiting)

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        """Tell whether a message is plain behind another one, None for the first."""
        raise NotImplementedError

    def ids_in(self, message: Any) -> Iterable[str]:
        """Give the ids in a message; what has none to keep gives none."""
        return ()

    def is_sound(self) -> bool:
        """Tell whether all names are ones that everybody takes."""
        return all(PLAIN_NAME.fullmatch(name) for name in self.names)

    def ids(self) -> Iterable[str]:
        """Give every id that may not come again."""
        return self.seen

    def is_new(self, name: Any) -> bool:
        """Tell whether an id is a short one that was not there before, and note it."""
        if type(name) is not str or not name or len(name) > _LONGEST_ID or name in self.seen:
            return False
        self.seen[name] = None
        return True


class ResponsesProof(PlainProof):
    """Walks items of type message, reasoning, function_call and function_call_output."""

    def __init__(self) -> None:
        super().__init__()
        self.leads = False

    @property
    def is_open(self) -> bool:
        """Tell whether a call has no output, or reasoning led to nothing."""
        return bool(self.waiting) or self.leads

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        kind = message["type"]
        if kind == "function_call_output":
            if self.leads or not self.waiting or "id" in message:
                return False
            return message["call_id"] == self.waiting.pop(0) and type(message["output"]) is str
        if kind == "function_call":
            return self._calls(message, before)
        if self.waiting:
            return False
        if kind == "reasoning":
            return self._thinks(message)
        return kind == "message" and self._says(message)

    def _calls(self, item: dict[str, Any], before: Any) -> bool:
        # behind an output it begins another batch, which must wait until all are answered
        if self.waiting and before["type"] != "function_call":
            return False
        call, name, arguments = item["call_id"], item["name"], item["arguments"]
        if not item.keys() <= _CALL_KEYS or not self._is_named(item, "fc"):
            return False
        if not self.is_new(call) or type(name) is not str or type(arguments) is not str:
            return False
        if type(_DECODE_ARGUMENTS(arguments)) is not dict:
            return False
        self.names.add(name)
        self.waiting.append(call)
        self.leads = False
        return True

    def _thinks(self, item: dict[str, Any]) -> bool:
        if "model" in item or "execution" in item or not self._is_named(item, "rs"):
            return False
        summary = item["summary"]
        if type(summary) is not list or not all(map(_is_summary, summary)):
            return False
        self.leads = self.leads or "id" in item
        return True

    def _says(self, item: dict[str, Any]) -> bool:
        role, content = item["role"], item["content"]
        if not item.keys() <= _ITEM_KEYS or not self._is_named(item, "msg"):
            return False
        if role == "assistant":
            kind, self.leads = "output_text", False
        elif role == "user" and not self.leads:
            kind = "input_text"
        else:
            return False
        return _are_texts(content, kind)

    def _is_named(self, item: dict[str, Any], prefix: str) -> bool:
        if "id" not in item:
            return True
        name = item["id"]
        return type(name) is str and name.startswith(prefix) and self.is_new(name)

    def ids_in(self, message: Any) -> Iterable[str]:
        """Give an item's own id, and that of its call."""
        found = (message.get("id"), message.get("call_id")) if type(message) is dict else ()
        return [name for name in found if type(name) is str]


def _are_texts(content: Any, kind: str) -> bool:
    if type(content) is not list or not content:
        return False
    return all(
        type(block) is dict and block["type"] == kind and type(block["text"]) is str
        for block in content
    )


def _is_summary(text: Any) -> bool:
    return type(text) is dict and type(text["text"]) is str and bool(text["type"])


class GeminiProof(PlainProof):
    """Walks ``{"role", "parts"}`` with texts, calls and responses; ids may be missing or repeat."""

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        role, parts = message["role"], message["parts"]
        if type(parts) is not list or not parts or len(message) != 2:  # noqa: PLR2004
            return False
        if role == "model":
            is_second = before is None or before["role"] == "model"
            return not is_second and not self.waiting and self._speaks(parts)
        if role != "user":
            return False
        if self.waiting:
            return self._answers(parts)
        return all(part.keys() == {"text"} and is_text(part["text"]) for part in parts)

    def _speaks(self, parts: list[Any]) -> bool:
        for part in parts:
            keys = part.keys()
            if keys in _GEMINI_CALL:
                block = part["functionCall"]
                name, call = block["name"], block.get("id")
                if type(name) is not str or type(block.get("args", {})) is not dict:
                    return False
                if call is not None and (not is_text(call) or (call, name) in self.waiting):
                    return False
                self.names.add(name)
                self.waiting.append((call, name))
            elif self.waiting or keys not in _GEMINI_TEXT or not is_text(part["text"]):
                return False
        return True

    def _answers(self, parts: list[Any]) -> bool:
        waiting, self.waiting = self.waiting, []
        return len(parts) == len(waiting) and all(
            part.keys() == {"functionResponse"} and _is_response(part["functionResponse"], *asked)
            for part, asked in zip(parts, waiting, strict=True)
        )


def _is_response(block: Any, call: str | None, name: str) -> bool:
    if block.get("id") != call or block["name"] != name or "parts" in block:
        return False
    return type(block["response"]) is dict


def is_text(text: Any) -> bool:
    """Whether this is a text with something in it, if only white space."""
    return type(text) is str and text != ""


class BedrockProof(PlainProof):
    """Walks ``{"role", "content"}`` with text, toolUse, toolResult and signed reasoning."""

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        role, content = message["role"], message["content"]
        if type(content) is not list or not content or len(message) != 2:  # noqa: PLR2004
            return False
        if role == "assistant":
            is_second = before is None or before["role"] == role
            return not is_second and not self.waiting and self._speaks(content)
        if role != "user" or (before is not None and before["role"] == role):
            return False
        return self._answers(content)

    def _speaks(self, content: list[Any]) -> bool:
        is_last = False
        for block in content:
            if type(block) is not dict or len(block) != 1:
                return False
            is_last = False
            if "toolUse" in block:
                call = block["toolUse"]
                name, number = call["name"], call["toolUseId"]
                if type(name) is not str or type(call["input"]) is not dict or "type" in call:
                    return False
                if not self.is_new(number):
                    return False
                self.names.add(name)
                self.waiting.append(number)
            elif self.waiting:
                return False
            elif "reasoningContent" in block:
                said = block["reasoningContent"]["reasoningText"]
                if type(said["text"]) is not str or not is_text(said["signature"]):
                    return False
                is_last = True
            elif is_blank(block["text"]):
                return False
        return not is_last

    def _answers(self, content: list[Any]) -> bool:
        waiting, self.waiting = self.waiting, []
        results, texts = content[: len(waiting)], content[len(waiting) :]
        if len(results) != len(waiting):
            return False
        for block, call in zip(results, waiting, strict=True):
            if block.keys() != {"toolResult"} or not _is_bedrock_result(block["toolResult"], call):
                return False
        return all(block.keys() == {"text"} and not is_blank(block["text"]) for block in texts)

    def is_sound(self) -> bool:
        """Tell whether all ids and names fit the provider's alphabet."""
        return super().is_sound() and bool(_BEDROCK_IDS.fullmatch("".join(self.seen)))

    def ids_in(self, message: Any) -> Iterable[str]:
        """Give the ids of calls and results."""
        content = message.get("content") if type(message) is dict else None
        for block in content if type(content) is list else ():
            for kind in ("toolUse", "toolResult"):
                if type(block) is dict and type(block.get(kind)) is dict:
                    yield str(block[kind].get("toolUseId"))


def _is_bedrock_result(block: Any, call: str) -> bool:
    content = block["content"]
    if block["toolUseId"] != call or "type" in block or type(content) is not list or not content:
        return False
    return all(part.keys() == {"text"} and not is_blank(part["text"]) for part in content)


class LangChainProof(PlainProof):
    """Walks bare dicts of type human, ai and tool; ids may repeat across turns."""

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        kind = message["type"]
        if type(message["content"]) is not str:
            return False
        if kind == "tool":
            if not self.waiting or message["status"] not in ("success", "error"):
                return False
            return bool(message["tool_call_id"] == self.waiting.pop(0))
        if self.waiting:
            return False
        if kind == "human":
            return len(message) == 2  # noqa: PLR2004
        if kind != "ai" or message.keys() not in _LANGCHAIN_AI:
            return False
        return all(map(self._asks, message.get("tool_calls", ())))

    def _asks(self, call: Any) -> bool:
        number, name = call["id"], call["name"]
        if call.keys() != _LANGCHAIN_CALL or call["type"] != "tool_call":
            return False
        if not is_text(number) or number in self.waiting or type(call["args"]) is not dict:
            return False
        self.names.add(name)
        self.waiting.append(number)
        return type(name) is str


PROOFS: dict[str, Callable[[], QuickProof]] = {
    "anthropic": AnthropicProof,
    "openai-chat": ChatWalker,
    "openai-responses": ResponsesProof,
    "gemini": GeminiProof,
    "bedrock": BedrockProof,
    "langchain": LangChainProof,
}
