"""Replies as six providers write them, each with what a later request must hand back.

Nothing here is taken from the engine. Every text, argument, thought and signature carries a mark
of its own, so that what is lost, doubled or shown to the wrong provider is counted, not guessed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DIALECTS = (
    "anthropic",
    "openai-chat",
    "openai-responses",
    "gemini",
    "bedrock",
    "langchain",
)
MODELS = {
    "anthropic": "claude-opus-4-8",
    "openai-chat": "gpt-5.2",
    "openai-responses": "gpt-5.2-codex",
    "gemini": "gemini-3-pro",
    "bedrock": "anthropic.claude-sonnet-4-5-v1:0",
    "langchain": "gpt-5.2",
}

Json = Any


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as the model wrote it; ``mark`` is its argument, of a ``custom`` tool a bare text."""

    id: str
    name: str
    mark: str
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Speech:
    """What a model said, in no provider's words.

    ``thought`` is the mark of its reasoning and ``seal`` the mark of what only its issuer can
    read: a signature or sealed content. Both are "" where there is none. ``served`` is a search
    that the provider ran itself; ``paused`` says that it broke off while running one.
    """

    number: int
    text: str = ""
    calls: tuple[Asked, ...] = ()
    thought: str = ""
    seal: str = ""
    redacted: bool = False
    served: bool = False
    paused: bool = False


@dataclass(slots=True)
class Reply:
    """A provider's response, and the messages that stand for it in a later request."""

    dialect: str
    response: Json
    messages: list[Json] = field(default_factory=list)

    @property
    def message(self) -> Json:
        """The message inside the response, as JSON has it."""
        if self.dialect == "bedrock":
            return self.response["output"]["message"]
        return self.messages[0] if self.messages else {}


def reply_of(dialect: str, speech: Speech) -> Reply:
    """Write a speech as the provider of ``dialect`` would have sent it."""
    return _WRITERS[dialect](speech)


def _anthropic(speech: Speech) -> Reply:
    content: list[Json] = []
    if speech.seal and speech.redacted:
        content.append({"type": "redacted_thinking", "data": speech.seal})
    elif speech.thought:
        thought = {"type": "thinking", "thinking": speech.thought}
        content.append({**thought, "signature": speech.seal} if speech.seal else thought)
    if speech.served:
        content += [_search(f"srvtoolu_{speech.number}"), _found(f"srvtoolu_{speech.number}")]
    if speech.text:
        content.append({"type": "text", "text": speech.text, "citations": None})
    if speech.paused and not speech.calls:
        content.append(_search(f"srvtoolu_{speech.number}_p"))
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": {"q": call.mark}}
        for call in speech.calls
    ]
    message = {"role": "assistant", "content": content}
    envelope = {
        "id": f"msg_{speech.number}",
        "type": "message",
        "model": MODELS["anthropic"],
        "stop_reason": "tool_use" if speech.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    return Reply("anthropic", {**envelope, **message}, [message])


def _search(key: str) -> Json:
    asked = {"query": "weather"}
    return {"type": "server_tool_use", "id": key, "name": "web_search", "input": asked}


def _found(key: str) -> Json:
    page = {"type": "web_search_result", "url": "https://example.org/", "title": "Weather"}
    sealed = {**page, "encrypted_content": "EqgfCioIARgBIiQ3YTAwMjY1Mi1mZjM5LTQ1NGUt"}
    return {"type": "web_search_tool_result", "tool_use_id": key, "content": [sealed]}


def _openai_chat(speech: Speech) -> Reply:
    message: Json = {"role": "assistant", "content": speech.text or None}
    if speech.thought:
        message["reasoning_content"] = speech.thought
    if speech.calls:
        message["tool_calls"] = [_chat_call(call) for call in speech.calls]
    sent = {**message, "refusal": None, "annotations": []}
    response = {
        "id": f"chatcmpl-{speech.number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODELS["openai-chat"],
        "choices": [{"index": 0, "message": sent, "finish_reason": "stop", "logprobs": None}],
        "usage": {"total_tokens": 15},
    }
    return Reply("openai-chat", response, [message])


def _chat_call(call: Asked) -> Json:
    if call.custom:
        custom = {"name": call.name, "input": call.mark}
        return {"id": call.id, "type": "custom", "custom": custom}
    function = {"name": call.name, "arguments": json.dumps({"q": call.mark})}
    return {"id": call.id, "type": "function", "function": function}


def _openai_responses(speech: Speech) -> Reply:
    items: list[Json] = []
    number = speech.number
    if speech.thought or speech.seal:
        summary = [{"type": "summary_text", "text": speech.thought}] if speech.thought else []
        thought: Json = {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
        items.append({**thought, "encrypted_content": speech.seal} if speech.seal else thought)
    if speech.text:
        text = {"type": "output_text", "text": speech.text, "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
        items.append({**item, "status": "completed", "content": [text]})
    if speech.served:
        action = {"type": "search", "query": "weather"}
        item = {"type": "web_search_call", "id": f"ws_{number}", "status": "completed"}
        items.append({**item, "action": action})
    items += [_item(call, number, index) for index, call in enumerate(speech.calls)]
    output = [
        {**item, "status": "completed"} if item["type"] == "function_call" else item
        for item in items
    ]
    response = {
        "id": f"resp_{number}",
        "object": "response",
        "model": MODELS["openai-responses"],
        "status": "completed",
        "error": None,
        "output": output,
        "usage": {"total_tokens": 15},
    }
    return Reply("openai-responses", response, items)


def _item(call: Asked, number: int, index: int) -> Json:
    known = {"call_id": call.id, "name": call.name}
    if call.custom:
        place = {"type": "custom_tool_call", "id": f"ctc_{number}_{index}"}
        return {**place, **known, "input": call.mark}
    place = {"type": "function_call", "id": f"fc_{number}_{index}"}
    return {**place, **known, "arguments": json.dumps({"q": call.mark})}


def _gemini(speech: Speech) -> Reply:
    parts: list[Json] = []
    if speech.thought:
        parts.append({"text": speech.thought, "thought": True})
    if speech.served:
        parts.append({"executableCode": {"language": "PYTHON", "code": "print(1)"}})
        parts.append({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}})
    if speech.text:
        parts.append({"text": speech.text})
    for call in speech.calls:
        asked = {"name": call.name, "args": {"q": call.mark}}
        parts.append({"functionCall": {"id": call.id, **asked} if call.id else asked})
    if speech.seal and parts:
        # The signature stands on the first call, or on the last part where there is none.
        place = next((n for n, part in enumerate(parts) if "functionCall" in part), -1)
        parts[place]["thoughtSignature"] = speech.seal
    message = {"role": "model", "parts": parts}
    response = {
        "candidates": [{"content": message, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"totalTokenCount": 15},
        "modelVersion": MODELS["gemini"],
        "responseId": f"r{speech.number}",
    }
    return Reply("gemini", response, [message])


def _bedrock(speech: Speech) -> Reply:
    content: list[Json] = []
    if speech.seal and speech.redacted:
        content.append({"reasoningContent": {"redactedContent": speech.seal}})
    elif speech.thought:
        thought = {"text": speech.thought}
        text = {**thought, "signature": speech.seal} if speech.seal else thought
        content.append({"reasoningContent": {"reasoningText": text}})
    if speech.text:
        content.append({"text": speech.text})
    content += [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": {"q": call.mark}}}
        for call in speech.calls
    ]
    message = {"role": "assistant", "content": content}
    sent = {"role": "assistant", "content": [_as_bytes(block) for block in content]}
    response = {
        "ResponseMetadata": {"HTTPStatusCode": 200},
        "output": {"message": message},
        "stopReason": "tool_use" if speech.calls else "end_turn",
        "usage": {"totalTokens": 15},
    }
    return Reply("bedrock", response, [sent])


def _as_bytes(block: Json) -> Json:
    """What JSON spells as base64 is bytes in the hands of botocore."""
    sealed = block.get("reasoningContent", {}).get("redactedContent")
    if sealed is None:
        return block
    return {"reasoningContent": {"redactedContent": base64.b64decode(sealed)}}


def _langchain(speech: Speech) -> Reply:
    message = {
        "type": "ai",
        "content": speech.text,
        "additional_kwargs": {},
        "response_metadata": {"finish_reason": "stop"},
        "id": f"run--{speech.number}",
        "tool_calls": [
            {"name": call.name, "args": {"q": call.mark}, "id": call.id, "type": "tool_call"}
            for call in speech.calls
        ],
        "invalid_tool_calls": [],
    }
    return Reply("langchain", message, [message])


_WRITERS: dict[str, Callable[[Speech], Reply]] = {
    "anthropic": _anthropic,
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "langchain": _langchain,
}


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURES: dict[str, Json] = {
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
    },
    "openai-chat": {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{PIXEL}"},
    },
    "openai-responses": {
        "type": "input_image",
        "image_url": f"data:image/png;base64,{PIXEL}",
    },
    "gemini": {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
    "bedrock": {"image": {"format": "png", "source": {"bytes": PIXEL}}},
    "langchain": {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{PIXEL}"},
    },
}


def said_in(dialect: str, text: str) -> Json:
    """What a user said, as the content of a message in a dialect's spelling."""
    return {
        "anthropic": [{"type": "text", "text": text}],
        "openai-chat": [{"type": "text", "text": text}],
        "openai-responses": [{"type": "input_text", "text": text}],
        "gemini": [{"text": text}],
        "bedrock": [{"text": text}],
        "langchain": [{"type": "text", "text": text}],
    }[dialect]


def given_in(dialect: str, text: str) -> Json:
    """What a tool gave, as the content of a result in a dialect's spelling."""
    return {
        "anthropic": [{"type": "text", "text": text}],
        "openai-chat": [{"type": "text", "text": text}],
        "openai-responses": [{"type": "input_text", "text": text}],
        "gemini": {"output": text},
        "bedrock": [{"text": text}],
        "langchain": [{"type": "text", "text": text}],
    }[dialect]
