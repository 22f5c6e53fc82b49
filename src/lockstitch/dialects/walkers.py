"""Quick walkers over the everyday shapes of a dialect.

They trade generality for speed: what they pass is certainly fine under the dialect's own profile,
what they fail goes through the full rules. They know texts, calls and results, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

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

    def _says(  # noqa: C901 - one flat loop: calls would cost more than what they check
        self, content: Any, waiting: list[str], index: int
    ) -> bool:
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

    def run(  # noqa: C901 - one flat loop: calls would cost more than what they check
        self, raw: Sequence[Any], start: int, seams: list[int]
    ) -> int:
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
