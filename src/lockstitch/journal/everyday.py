"""The everyday parts of a request, written at once: words, replies as they came, results of text.

A long conversation is made of little else. All of it could be written the long way round, by what
knows every case; what is written here is the same, and whatever is not everyday is left to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from msgspec import Struct

from lockstitch.conversation.parts import ASSISTANT, USER

Fields = dict[str, Any]
_CHAT = frozenset({"role", "content", "tool_calls"})
_CHAT_NULLS = ("refusal", "audio", "function_call")
_SEALED = "encrypted_content"
_PLAIN_ITEM = frozenset({"id", "type", "role", "content", "status"})
_PLAIN_CALL = frozenset({"id", "type", "call_id", "name", "arguments"})


class Result(NamedTuple):
    """The result of a call: the call's id and name, the text, and whether it failed."""

    id: str
    name: str
    text: str
    failed: bool


def _not_everyday(_: Any) -> None:
    return None


class Spelling(Struct, frozen=True):
    """How a dialect spells what is everyday.

    ``spoken`` writes a message of the user's with a text that is not blank. ``replied`` gives the
    messages in what a provider answered, None if a longer look is needed. ``results`` writes
    results of text for calls that have ids; where ``takes_blank`` is not set, none of blank text.
    ``asked`` gives the ids and names of the calls in messages where results go by those.
    """

    spoken: Callable[[str], Fields]
    replied: Callable[[Any], list[Fields] | None] = _not_everyday
    results: Callable[[Iterable[Result]], list[Fields]] | None = None
    asked: Callable[[list[Fields]], list[tuple[str, str]]] | None = None
    needs_ids: bool = True
    takes_blank: bool = True


def _anthropic_reply(value: Any) -> list[Fields] | None:
    if type(value) is not dict or value.get("role") != ASSISTANT or value.get("type") == "error":
        return None
    content = value.get("content")
    if type(content) is not list or not content or type(content[0]) is not dict:
        return None
    first = content[0]
    if first.get("type") != "tool_use" and not _is_text(first.get("text")):
        return None
    return [value if len(value) == 2 else {"role": ASSISTANT, "content": content}]  # noqa: PLR2004


def _chat_reply(value: Any) -> list[Fields] | None:
    """Take a message that holds words, calls or both, and nothing else but what says nothing."""
    message = value
    if type(value) is dict and "choices" in value:
        choices = value["choices"]
        found = choices[0] if type(choices) is list and choices else None
        message = found.get("message") if type(found) is dict else None
    if type(message) is not dict or message.get("role") != ASSISTANT:
        return None
    if not message.keys() <= _CHAT:
        if not all(map(_says_nothing, message.items())):
            return None
        message = {"role": ASSISTANT, **{k: v for k, v in message.items() if k in _CHAT}}
    content = message.get("content")
    if "tool_calls" not in message:
        return [message] if _is_text(content) else None
    calls = message["tool_calls"]
    if type(calls) is not list or not calls or not (content is None or _is_text(content)):
        return None
    return [message] if all(map(_is_plain_call, calls)) else None


def _says_nothing(field: tuple[str, Any]) -> bool:
    """Whether a field is one of a message's own, or one that is not handed back."""
    key, value = field
    return key in _CHAT or key == "annotations" or (key in _CHAT_NULLS and value is None)


def _is_plain_call(call: Any) -> bool:
    """Whether a call has nothing that is left behind: no place in a stream, no parsed form."""
    body = call.get("function") if type(call) is dict and "index" not in call else None
    return type(body) is dict and "parsed_arguments" not in body


def _is_text(value: Any) -> bool:
    return type(value) is str and value != ""


def _responses_reply(value: Any) -> list[Fields] | None:
    """Take the items of a response in which only calls have lost their status."""
    items = value.get("output") if type(value) is dict and "type" not in value else None
    if type(items) is not list:
        return None
    found: list[Fields] = []
    for item in items:
        kind = item.get("type") if type(item) is dict else None
        if kind == "message" and item.keys() <= _PLAIN_ITEM:
            blocks = item.get("content")
            if type(blocks) is not list or not blocks or not _is_worded(blocks[0]):
                return None
            found.append(item)
        elif kind == "function_call":
            kept = {key: inner for key, inner in item.items() if key != "status"}
            if not kept.keys() <= _PLAIN_CALL:
                return None
            found.append(kept)
        elif kind == "reasoning":
            kept = {key: inner for key, inner in item.items() if key != "status"}
            if "created_by" in kept or None in (kept.get("content", 0), kept.get(_SEALED, 0)):
                return None
            found.append(kept)
        else:
            return None
    return found or None


def _gemini_reply(value: Any) -> list[Fields] | None:
    candidates = value.get("candidates") if type(value) is dict else None
    found = candidates[0] if type(candidates) is list and candidates else None
    content = found.get("content") if type(found) is dict and "parts" not in found else None
    if type(content) is not dict or content.get("role") != "model" or len(content) != 2:  # noqa: PLR2004
        return None
    parts = content.get("parts")
    if type(parts) is not list or not parts:
        return None
    plain = all(_is_worded(part) or type(part.get("functionCall")) is dict for part in parts)
    return [content] if plain else None


def _bedrock_reply(value: Any) -> list[Fields] | None:
    output = value.get("output") if type(value) is dict else None
    message = output.get("message") if type(output) is dict else None
    if type(message) is not dict or message.get("role") != ASSISTANT or len(message) != 2:  # noqa: PLR2004
        return None
    content = message.get("content")
    if type(content) is not list or not content:
        return None
    return [message] if all(_is_worded(b) or "toolUse" in b for b in content) else None


def _is_worded(block: Any) -> bool:
    """Whether a block has a text; raises nothing for what is no object."""
    return type(block) is dict and _is_text(block.get("text"))


def _asked_in_items(items: list[Fields]) -> list[tuple[str, str]]:
    calls = (item for item in items if item["type"] == "function_call")
    return [(item.get("call_id", ""), item.get("name", "")) for item in calls]


def _asked_in_parts(messages: list[Fields]) -> list[tuple[str, str]]:
    calls = (part["functionCall"] for part in messages[0]["parts"] if "functionCall" in part)
    return [(call.get("id", ""), call.get("name", "")) for call in calls]


def _anthropic_results(results: Iterable[Result]) -> list[Fields]:
    return [{"role": USER, "content": [_anthropic_result(result) for result in results]}]


def _anthropic_result(result: Result) -> Fields:
    block: Fields = {"type": "tool_result", "tool_use_id": result.id, "content": result.text}
    if result.failed:
        block["is_error"] = True
    return block


def _chat_results(results: Iterable[Result]) -> list[Fields]:
    """Write results for OpenAI Chat, which has no mark for a failed one."""
    return [{"role": "tool", "tool_call_id": r.id, "content": r.text} for r in results]


def _responses_results(results: Iterable[Result]) -> list[Fields]:
    kind = "function_call_output"
    return [{"type": kind, "call_id": result.id, "output": result.text} for result in results]


def _gemini_results(results: Iterable[Result]) -> list[Fields]:
    return [{"role": USER, "parts": [_gemini_result(result) for result in results]}]


def _gemini_result(result: Result) -> Fields:
    said = {"error" if result.failed else "output": result.text}
    response: Fields = {"name": result.name, "response": said}
    return {"functionResponse": {"id": result.id, **response} if result.id else response}


def _bedrock_results(results: Iterable[Result]) -> list[Fields]:
    return [{"role": USER, "content": [_bedrock_result(result) for result in results]}]


def _bedrock_result(result: Result) -> Fields:
    block: Fields = {"toolUseId": result.id, "content": [{"text": result.text}]}
    if result.failed:
        block["status"] = "error"
    return {"toolResult": block}


SPELLINGS: dict[str, Spelling] = {
    "anthropic": Spelling(
        lambda text: {"role": USER, "content": [{"type": "text", "text": text}]},
        _anthropic_reply,
        _anthropic_results,
    ),
    "openai-chat": Spelling(
        lambda text: {"role": USER, "content": text}, _chat_reply, _chat_results
    ),
    "openai-responses": Spelling(
        lambda text: {
            "type": "message",
            "role": USER,
            "content": [{"type": "input_text", "text": text}],
        },
        _responses_reply,
        _responses_results,
        _asked_in_items,
    ),
    "gemini": Spelling(
        lambda text: {"role": USER, "parts": [{"text": text}]},
        _gemini_reply,
        _gemini_results,
        _asked_in_parts,
        needs_ids=False,
    ),
    "bedrock": Spelling(
        lambda text: {"role": USER, "content": [{"text": text}]},
        _bedrock_reply,
        _bedrock_results,
        takes_blank=False,
    ),
    "langchain": Spelling(lambda text: {"type": "human", "content": text}),
}
