"""The everyday parts of a request, written at once: words, replies as they came, results of text.

A long conversation is made of little else. All of it could be written the long way round, by what
knows every case; what is written here is the same, and whatever is not everyday is left to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from lockstitch.model.parts import ASSISTANT, USER

Fields = dict[str, Any]
# The id of a call, the text of its result, and whether it failed.
Result = tuple[str, str, bool]
_CHAT = frozenset({"role", "content", "tool_calls"})


def _not_everyday(_: Any) -> None:
    return None


class Spelling(Struct, frozen=True):
    """How a dialect spells what is everyday.

    ``spoken`` writes a message of the user's with a text that is not blank. ``replied`` gives the
    message in what a provider answered, None if a longer look is needed. ``results`` writes
    results of text for calls that have ids.
    """

    spoken: Callable[[str], Fields]
    replied: Callable[[Any], Fields | None] = _not_everyday
    results: Callable[[Iterable[Result]], list[Fields]] | None = None


def _anthropic_reply(value: Any) -> Fields | None:
    if type(value) is not dict or value.get("role") != ASSISTANT or value.get("type") == "error":
        return None
    content = value.get("content")
    if type(content) is not list or not content or type(content[0]) is not dict:
        return None
    first = content[0]
    if first.get("type") != "tool_use" and not _is_text(first.get("text")):
        return None
    return value if len(value) == 2 else {"role": ASSISTANT, "content": content}  # noqa: PLR2004


def _chat_reply(value: Any) -> Fields | None:
    """Take a message that holds words, calls or both, and nothing else."""
    if type(value) is not dict or not value.keys() <= _CHAT or value.get("role") != ASSISTANT:
        return None
    content = value.get("content")
    if "tool_calls" not in value:
        return value if _is_text(content) else None
    calls = value["tool_calls"]
    if type(calls) is not list or not calls or not (content is None or _is_text(content)):
        return None
    return value if all(map(_is_plain_call, calls)) else None


def _is_plain_call(call: Any) -> bool:
    """Tell whether a call has nothing that is left behind: no place in a stream, no parsed form."""
    body = call.get("function") if type(call) is dict and "index" not in call else None
    return type(body) is dict and "parsed_arguments" not in body


def _is_text(value: Any) -> bool:
    return type(value) is str and value != ""


def _anthropic_results(results: Iterable[Result]) -> list[Fields]:
    return [{"role": USER, "content": [_anthropic_result(*result) for result in results]}]


def _anthropic_result(call: str, text: str, failed: bool) -> Fields:
    block: Fields = {"type": "tool_result", "tool_use_id": call, "content": text}
    if failed:
        block["is_error"] = True
    return block


def _chat_results(results: Iterable[Result]) -> list[Fields]:
    """Write results for OpenAI Chat, which has no mark for a failed one."""
    return [{"role": "tool", "tool_call_id": call, "content": text} for call, text, _ in results]


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
        }
    ),
    "gemini": Spelling(lambda text: {"role": USER, "parts": [{"text": text}]}),
    "bedrock": Spelling(lambda text: {"role": USER, "content": [{"text": text}]}),
    "langchain": Spelling(lambda text: {"type": "human", "content": text}),
}
