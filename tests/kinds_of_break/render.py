"""Neutral conversations in the words of each provider, and pairs read back from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

from .conversations import Ask, Call, Done, Result, Say, Turn

Messages = list[Any]


def _input(call: Call) -> Any:
    """The arguments as an object, or as what is left of their text when the stream was cut."""
    return _arguments(call) if call.cut else {"path": call.mark}


def _arguments(call: Call) -> str:
    text = json.dumps({"path": call.mark})
    return text[:-2] if call.cut else text


def anthropic(turns: Iterable[Turn]) -> Messages:
    """One message a turn; results that arrive together share a user message."""
    return [_anthropic(turn) for turn in turns]


def _anthropic(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, Ask):
        return {"role": "user", "content": turn.text}
    if isinstance(turn, Done):
        content = [
            {"type": "tool_result", "tool_use_id": r.id, "content": r.text} for r in turn.results
        ]
        return {"role": "user", "content": content}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.text}]
    for call in turn.calls:
        use = {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)}
        blocks.append(use)
    return {"role": "assistant", "content": blocks}


def openai_chat(turns: Iterable[Turn]) -> Messages:
    """A message a turn and one for every single result."""
    messages: Messages = []
    for turn in turns:
        if isinstance(turn, Ask):
            messages.append({"role": "user", "content": turn.text})
        elif isinstance(turn, Done):
            messages += [
                {"role": "tool", "tool_call_id": r.id, "content": r.text} for r in turn.results
            ]
        else:
            messages.append(_chat_assistant(turn))
    return messages


def _chat_assistant(turn: Say) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in turn.calls
        ]
    return message


def openai_responses(turns: Iterable[Turn]) -> Messages:
    """Items: messages, calls and outputs side by side."""
    items: Messages = []
    for turn in turns:
        if isinstance(turn, Ask):
            text = {"type": "input_text", "text": turn.text}
            items.append({"type": "message", "role": "user", "content": [text]})
        elif isinstance(turn, Done):
            items += [
                {"type": "function_call_output", "call_id": r.id, "output": r.text}
                for r in turn.results
            ]
        else:
            items += _responses_assistant(turn)
    return items


def _responses_assistant(turn: Say) -> Messages:
    text = {"type": "output_text", "text": turn.text, "annotations": []}
    items: Messages = [{"type": "message", "role": "assistant", "content": [text]}]
    for call in turn.calls:
        items.append(
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": _arguments(call),
            }
        )
    return items


def gemini(turns: Iterable[Turn]) -> Messages:
    """Contents as the REST interface has them, with call ids."""
    return [_gemini(turn, "functionCall", "functionResponse", ids=True) for turn in turns]


def gemini_snake(turns: Iterable[Turn]) -> Messages:
    """Contents as the Python SDK writes them, without call ids."""
    return [_gemini(turn, "function_call", "function_response", ids=False) for turn in turns]


def _gemini(turn: Turn, call_key: str, response_key: str, *, ids: bool) -> dict[str, Any]:
    if isinstance(turn, Ask):
        return {"role": "user", "parts": [{"text": turn.text}]}
    parts: list[dict[str, Any]]
    if isinstance(turn, Done):
        parts = [{response_key: _with_id(_gemini_response(r), r.id, ids)} for r in turn.results]
        return {"role": "user", "parts": parts}
    parts = [{"text": turn.text}]
    for call in turn.calls:
        parts.append({call_key: _with_id({"name": call.name, "args": _input(call)}, call.id, ids)})
    return {"role": "model", "parts": parts}


def _gemini_response(result: Result) -> dict[str, Any]:
    return {"name": result.name, "response": {"output": result.text}}


def _with_id(value: dict[str, Any], key: str, ids: bool) -> dict[str, Any]:
    return {"id": key, **value} if ids else value


def bedrock(turns: Iterable[Turn]) -> Messages:
    """Roles must alternate, so neighbours of one role share a message."""
    messages: Messages = []
    for turn in turns:
        message = _bedrock(turn)
        if messages and messages[-1]["role"] == message["role"]:
            messages[-1]["content"] += message["content"]
        else:
            messages.append(message)
    return messages


def _bedrock(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, Ask):
        return {"role": "user", "content": [{"text": turn.text}]}
    if isinstance(turn, Done):
        results = [{"toolUseId": r.id, "content": [{"text": r.text}]} for r in turn.results]
        return {"role": "user", "content": [{"toolResult": result} for result in results]}
    content: list[dict[str, Any]] = [{"text": turn.text}]
    for call in turn.calls:
        use = {"toolUseId": call.id, "name": call.name, "input": _input(call)}
        content.append({"toolUse": use})
    return {"role": "assistant", "content": content}


def langchain_plain(turns: Iterable[Turn]) -> Messages:
    """The dicts that ``model_dump`` gives."""
    messages: Messages = []
    for turn in turns:
        if isinstance(turn, Ask):
            messages.append(_lc("human", turn.text))
        elif isinstance(turn, Done):
            messages += [_lc("tool", r.text, tool_call_id=r.id, name=r.name) for r in turn.results]
        else:
            messages.append(_lc_ai(turn))
    return messages


def _lc(kind: str, content: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "content": content, "additional_kwargs": {}, **more}


def _lc_ai(turn: Say) -> dict[str, Any]:
    good = [c for c in turn.calls if not c.cut]
    bad = [c for c in turn.calls if c.cut]
    return _lc(
        "ai",
        turn.text,
        tool_calls=[
            {"name": c.name, "args": _input(c), "id": c.id, "type": "tool_call"} for c in good
        ],
        invalid_tool_calls=[
            {
                "name": c.name,
                "args": _arguments(c),
                "id": c.id,
                "error": None,
                "type": "invalid_tool_call",
            }
            for c in bad
        ],
    )


def langchain_dict(turns: Iterable[Turn]) -> Messages:
    """The form of ``message_to_dict``."""
    return [{"type": m["type"], "data": m} for m in langchain_plain(turns)]


CLASSES = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}


def langchain_constructor(turns: Iterable[Turn]) -> Messages:
    """The form of ``dumpd``."""
    return [
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", CLASSES[m["type"]]],
            "kwargs": m,
        }
        for m in langchain_plain(turns)
    ]


def langchain_objects(turns: Iterable[Turn]) -> Messages:
    """Real message objects."""
    from langchain_core.messages import messages_from_dict

    return list(messages_from_dict(langchain_dict(turns)))


FORMS: dict[str, tuple[str, Callable[[Iterable[Turn]], Messages]]] = {
    "anthropic": ("anthropic", anthropic),
    "openai-chat": ("openai-chat", openai_chat),
    "mistral": ("openai-chat:mistral", openai_chat),
    "openai-responses": ("openai-responses", openai_responses),
    "gemini": ("gemini", gemini),
    "gemini-snake": ("gemini", gemini_snake),
    "bedrock": ("bedrock", bedrock),
    "langchain-plain": ("langchain", langchain_plain),
    "langchain-dict": ("langchain", langchain_dict),
    "langchain-constructor": ("langchain", langchain_constructor),
}
if find_spec("langchain_core"):
    FORMS["langchain-objects"] = ("langchain", langchain_objects)
