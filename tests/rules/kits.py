"""The few messages a case is made of, in the words of each dialect.

Every function gives a list of messages, so that a conversation is written as one list of stars.
Ids have nine letters and digits: all providers take them, Mistral no others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Messages = list[Any]

A, B = "call00001", "call00002"
TOOL = "ls"


def arguments(call: str) -> dict[str, Any]:
    return {"path": f"/{call}"}


def output(call: str) -> str:
    return f"files of {call}"


class Kit:
    """One dialect's spelling.

    Calls are ids, results are ids or pairs of an id and a text.
    """

    dialect: str
    key = "messages"

    def user(self, text: str = "Look.") -> Messages:
        raise NotImplementedError

    def assistant(self, text: str = "I looked.") -> Messages:
        raise NotImplementedError

    def calls(self, *calls: str) -> Messages:
        raise NotImplementedError

    def results(self, *results: str | tuple[str, str]) -> Messages:
        raise NotImplementedError

    def at_call(self, message: int, number: int = 0) -> str:
        return f"{self.key}.{message}.{self.call_list}.{number}"

    def at_result(self, message: int, number: int = 0) -> str:
        return f"{self.key}.{message}.{self.result_list}.{number}"

    call_list = "content"
    result_list = "content"


def pairs(results: Sequence[str | tuple[str, str]]) -> list[tuple[str, str]]:
    return [(each, output(each)) if isinstance(each, str) else each for each in results]


class Anthropic(Kit):
    dialect = "anthropic"

    def user(self, text: str = "Look.") -> Messages:
        return [{"role": "user", "content": text}]

    def assistant(self, text: str = "I looked.") -> Messages:
        return [{"role": "assistant", "content": text}]

    def call(self, call: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call, "name": TOOL, "input": arguments(call)}

    def result(self, call: str, text: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call, "content": text}

    def calls(self, *calls: str) -> Messages:
        return [{"role": "assistant", "content": [self.call(call) for call in calls]}]

    def results(self, *results: str | tuple[str, str]) -> Messages:
        return [{"role": "user", "content": [self.result(*pair) for pair in pairs(results)]}]


class Chat(Kit):
    call_list = "tool_calls"

    def __init__(self, dialect: str = "openai-chat") -> None:
        self.dialect = dialect

    def user(self, text: str = "Look.") -> Messages:
        return [{"role": "user", "content": text}]

    def assistant(self, text: str = "I looked.") -> Messages:
        return [{"role": "assistant", "content": text}]

    def call(self, call: str) -> dict[str, Any]:
        function = {"name": TOOL, "arguments": json.dumps(arguments(call))}
        return {"id": call, "type": "function", "function": function}

    def calls(self, *calls: str) -> Messages:
        message = {"role": "assistant", "content": "", "tool_calls": [self.call(c) for c in calls]}
        return [message]

    def results(self, *results: str | tuple[str, str]) -> Messages:
        return [
            {"role": "tool", "tool_call_id": call, "content": text} for call, text in pairs(results)
        ]

    def at_result(self, message: int, number: int = 0) -> str:
        return f"messages.{message + number}"


class Responses(Kit):
    dialect = "openai-responses"
    key = "input"

    def user(self, text: str = "Look.") -> Messages:
        return [{"role": "user", "content": text}]

    def assistant(self, text: str = "I looked.") -> Messages:
        block = {"type": "output_text", "text": text, "annotations": []}
        return [{"type": "message", "role": "assistant", "content": [block]}]

    def call(self, call: str) -> dict[str, Any]:
        fields = {"name": TOOL, "arguments": json.dumps(arguments(call))}
        return {"type": "function_call", "call_id": call, **fields}

    def calls(self, *calls: str) -> Messages:
        return [self.call(call) for call in calls]

    def results(self, *results: str | tuple[str, str]) -> Messages:
        return [
            {"type": "function_call_output", "call_id": call, "output": text}
            for call, text in pairs(results)
        ]

    def at_call(self, message: int, number: int = 0) -> str:
        return f"input.{message + number}"

    at_result = at_call


class Gemini(Kit):
    dialect = "gemini"
    key = "contents"
    call_list = result_list = "parts"

    def user(self, text: str = "Look.") -> Messages:
        return [{"role": "user", "parts": [{"text": text}]}]

    def assistant(self, text: str = "I looked.") -> Messages:
        return [{"role": "model", "parts": [{"text": text}]}]

    def call(self, call: str) -> dict[str, Any]:
        return {"functionCall": {"id": call, "name": TOOL, "args": arguments(call)}}

    def result(self, call: str, text: str) -> dict[str, Any]:
        return {"functionResponse": {"id": call, "name": TOOL, "response": {"output": text}}}

    def calls(self, *calls: str) -> Messages:
        return [{"role": "model", "parts": [self.call(call) for call in calls]}]

    def results(self, *results: str | tuple[str, str]) -> Messages:
        return [{"role": "user", "parts": [self.result(*pair) for pair in pairs(results)]}]


class Bedrock(Kit):
    dialect = "bedrock"

    def user(self, text: str = "Look.") -> Messages:
        return [{"role": "user", "content": [{"text": text}]}]

    def assistant(self, text: str = "I looked.") -> Messages:
        return [{"role": "assistant", "content": [{"text": text}]}]

    def call(self, call: str) -> dict[str, Any]:
        return {"toolUse": {"toolUseId": call, "name": TOOL, "input": arguments(call)}}

    def result(self, call: str, text: str) -> dict[str, Any]:
        return {"toolResult": {"toolUseId": call, "content": [{"text": text}]}}

    def calls(self, *calls: str) -> Messages:
        return [{"role": "assistant", "content": [self.call(call) for call in calls]}]

    def results(self, *results: str | tuple[str, str]) -> Messages:
        return [{"role": "user", "content": [self.result(*pair) for pair in pairs(results)]}]


class LangChain(Kit):
    call_list = "tool_calls"

    def __init__(self, dialect: str = "langchain") -> None:
        self.dialect = dialect

    def user(self, text: str = "Look.") -> Messages:
        return [{"type": "human", "content": text}]

    def assistant(self, text: str = "I looked.") -> Messages:
        return [{"type": "ai", "content": text}]

    def call(self, call: str) -> dict[str, Any]:
        return {"name": TOOL, "args": arguments(call), "id": call, "type": "tool_call"}

    def calls(self, *calls: str) -> Messages:
        return [{"type": "ai", "content": "", "tool_calls": [self.call(call) for call in calls]}]

    def results(self, *results: str | tuple[str, str]) -> Messages:
        return [
            {"type": "tool", "content": text, "tool_call_id": call} for call, text in pairs(results)
        ]

    def at_result(self, message: int, number: int = 0) -> str:
        return f"messages.{message + number}"


def thoughtful(messages: Messages) -> Messages:
    """With the reasoning that DeepSeek wants back beside its calls, and others do not mind."""
    return [m | ({"reasoning_content": "Hm."} if _is_chat_call(m) else {}) for m in messages]


def _is_chat_call(message: Any) -> bool:
    return "tool_calls" in message and message.get("role") == "assistant"


ANTHROPIC = Anthropic()
CHAT = Chat()
MISTRAL = Chat("openai-chat:mistral")
STRICT = Chat("openai-chat:strict")
RESPONSES = Responses()
GEMINI = Gemini()
BEDROCK = Bedrock()
LANGCHAIN = LangChain()
KITS = {
    kit.dialect: kit
    for kit in (ANTHROPIC, CHAT, RESPONSES, GEMINI, BEDROCK, LANGCHAIN, MISTRAL, STRICT)
}
ALL = ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock", "langchain")
