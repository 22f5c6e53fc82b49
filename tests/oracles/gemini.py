"""What the Gemini API refuses, in camelCase (REST) and in snake_case (the Python SDK)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from .common import filled, unsendable, unwrap

DATA = [
    "text",
    "inlineData",
    "inline_data",
    "fileData",
    "file_data",
    "functionCall",
    "function_call",
    "functionResponse",
    "function_response",
    "executableCode",
    "executable_code",
    "codeExecutionResult",
    "code_execution_result",
    "toolCall",
    "tool_call",
    "toolResponse",
    "tool_response",
]
DECORATION = [
    "thought",
    "thoughtSignature",
    "thought_signature",
    "videoMetadata",
    "video_metadata",
    "partMetadata",
    "part_metadata",
    "mediaResolution",
    "media_resolution",
    "audioTranscription",
    "audio_transcription",
    "mediaProcessing",
    "media_processing",
    "speechMetadata",
    "speech_metadata",
]

Part = dict[str, Any]


def problems(value: Any) -> list[str]:
    """What the API would refuse in a list of contents or a request body."""
    contents, _ = unwrap(value, "contents")
    if isinstance(contents, str):
        return list(unsendable(contents, "contents"))
    if not isinstance(contents, list):
        return ["contents: not a list"]
    found = list(unsendable(contents, "contents"))
    contents = [_unfolded(content) for content in contents]
    for index, content in enumerate(contents):
        found += _shape(content, f"contents.{index}")
    if any(not isinstance(content, dict) for content in contents):
        return found
    found += _order(contents)
    return found


def _unfolded(content: Any) -> Any:
    """A bare string is short for what the user says."""
    return {"role": "user", "parts": [{"text": content}]} if isinstance(content, str) else content


def _is_model(content: dict[str, Any]) -> bool:
    return content.get("role") == "model"


def _parts(content: dict[str, Any]) -> list[Part]:
    parts = content.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _field(part: Part, camel: str, snake: str) -> Any:
    return part.get(camel) if part.get(camel) is not None else part.get(snake)


def _call(part: Part) -> Any:
    return _field(part, "functionCall", "function_call")


def _response(part: Part) -> Any:
    return _field(part, "functionResponse", "function_response")


def _shape(content: Any, place: str) -> Iterator[str]:
    if not isinstance(content, dict):
        yield f"{place}: not an object"
        return
    if content.get("role") not in ("user", "model", "function", None):
        yield f"{place}.role: {content.get('role')!a}"
    parts = content.get("parts")
    if not isinstance(parts, list) or not parts:
        yield f"{place}.parts: empty"
        return
    for index, part in enumerate(parts):
        yield from _part_shape(part, _is_model(content), f"{place}.parts.{index}")


def _part_shape(part: Any, model: bool, place: str) -> Iterator[str]:
    if not isinstance(part, dict):
        yield f"{place}: not an object"
        return
    known = any(part.get(key) is not None for key in DATA)
    unknown = any(key not in DATA and key not in DECORATION for key in part)
    if not known and not unknown:
        yield f"{place}: no data"
    signed = _field(part, "thoughtSignature", "thought_signature")
    text = part.get("text")
    if text is not None and not isinstance(text, str):
        yield f"{place}.text: not a string"
    if text == "" and not signed and _only_text(part):
        yield f"{place}.text: empty"
    if _call(part) is not None:
        yield from _call_shape(_call(part), model, place)
    if _response(part) is not None:
        yield from _response_shape(_response(part), model, place)


def _only_text(part: Part) -> bool:
    return not any(part.get(key) is not None for key in DATA if key != "text")


def _call_shape(call: Any, model: bool, place: str) -> Iterator[str]:
    if not model:
        yield f"{place}: a function call outside a model turn"
    if not isinstance(call, dict) or not filled(call.get("name")):
        yield f"{place}: a function call without a name"
    elif call.get("args") is not None and not isinstance(call["args"], dict):
        yield f"{place}.args: not an object"


def _response_shape(response: Any, model: bool, place: str) -> Iterator[str]:
    if model:
        yield f"{place}: a function response in a model turn"
    if not isinstance(response, dict) or not filled(response.get("name")):
        yield f"{place}: a function response without a name"
    elif not isinstance(response.get("response"), dict):
        yield f"{place}.response: not an object"


def _order(contents: list[dict[str, Any]]) -> Iterator[str]:
    if contents and _is_model(contents[0]):
        yield "contents.0: starts with the model"
    open_calls: list[Any] = []
    for index, content in enumerate(contents):
        calls = [_call(part) for part in _parts(content) if _call(part) is not None]
        responses = [_response(part) for part in _parts(content) if _response(part) is not None]
        place = f"contents.{index}"
        if calls and index and _is_model(contents[index - 1]):
            yield f"{place}: a call turn after a model turn"
        if responses and len(responses) != len(_parts(content)):
            yield f"{place}: a response turn that holds something else"
        if responses and not open_calls:
            yield f"{place}: a response turn without a call turn before it"
        elif len(responses) != len(open_calls):
            yield f"{place}: {len(responses)} responses to {len(open_calls)} calls"
        elif responses:
            yield from _same(open_calls, responses, place)
        open_calls = calls
    if open_calls:
        yield "a call turn at the end"


def _same(calls: list[Any], responses: list[Any], place: str) -> Iterator[str]:
    """A response with the id of a call belongs to it; the others go by their names."""
    shared = _values(calls, "id") & _values(responses, "id")
    left = _values(_without(calls, shared), "name")
    if left != _values(_without(responses, shared), "name"):
        yield f"{place}: responses that belong to no call"


def _without(things: list[Any], ids: Counter[str]) -> list[Any]:
    left, ids = [], Counter(ids)
    for thing in things:
        key = thing.get("id") if isinstance(thing, dict) else None
        if isinstance(key, str) and ids[key] > 0:
            ids[key] -= 1
        else:
            left.append(thing)
    return left


def _values(things: list[Any], key: str) -> Counter[str]:
    values = [thing.get(key) for thing in things if isinstance(thing, dict)]
    return Counter(value for value in values if isinstance(value, str) and value)
