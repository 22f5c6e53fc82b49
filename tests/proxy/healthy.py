"""Healthy requests by the thousand: conversations of every dialect, spelled in every way."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.proxy.bodies import CASES, TOOLS, Case

WORDS = (
    "hello",
    'a "quoted" word',
    "back\\slash",
    "tab\tand\nline",
    "grüße",
    "🧵 thread",
    "\u2028 and \x7f",
    "<|end|>",
    "\\u0041 is not an escape",
    "]}",
    "data: [DONE]",
)


def made(random: Random) -> tuple[Case, bytes]:
    """A request that its provider takes, and where it goes."""
    case = random.choice(CASES)
    body = case.around(_MESSAGES[case.form](_Maker(random)))
    if random.random() < 0.3:
        body["x_unknown"] = {"n": 12345678901234567890123, "f": 1.5e300, "z": None, "": ""}
    if random.random() < 0.3:
        body["stream"] = random.choice((True, False))
    return case, _spelled(random, body)


def _spelled(random: Random, body: dict[str, Any]) -> bytes:
    style = random.choice(
        ({}, {"separators": (",", ":")}, {"indent": 2}, {"separators": (" , ", " : ")})
    )
    text = json.dumps(body, ensure_ascii=random.random() < 0.5, **style)
    if random.random() < 0.3:
        text = text.replace("1.5e+300", "15.0E0299").replace("/", "\\/")
    if random.random() < 0.2:
        text = '{"x_twice": 1, "x_twice": 2, ' + text[1:]
    if random.random() < 0.2:
        text = f" \n{text}\r\n"
    return text.encode()


class _Maker:
    """Makes the pieces of a conversation; no id comes twice."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.calls = 0
        self.steps = random.choice((0, 1, 1, 2, 3, 8, 20))

    def words(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, 6)))

    def maybe(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def asked(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Some calls: their ids, names and arguments."""
        found = []
        for _ in range(self.random.randint(1, 3)):
            self.calls += 1
            arguments = {"path": self.words(), "deep": [{"n": 1.0, "e": {}}, [], None]}
            found.append((f"call_{self.calls}", self.random.choice(TOOLS), arguments))
        return found


def _anthropic(make: _Maker) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": make.words()}]
    for _ in range(make.steps):
        said: list[Any] = []
        if make.maybe(0.4):
            said.append({"type": "thinking", "thinking": make.words(), "signature": "c2lnbmVk"})
        if make.maybe():
            said.append({"type": "text", "text": make.words()})
        calls = make.asked() if make.maybe(0.7) else []
        said += [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in calls]
        if not said or said[-1]["type"] == "thinking":
            said.append({"type": "text", "text": make.words()})
        messages.append({"role": "assistant", "content": said})
        answers: list[Any] = [
            {"type": "tool_result", "tool_use_id": i, "content": _anthropic_result(make)}
            for i, _, _ in calls
        ]
        if not answers or make.maybe(0.2):
            answers.append({"type": "text", "text": make.words()})
        messages.append({"role": "user", "content": answers})
    if make.maybe(0.4) and type(messages[-1]["content"]) is list:
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return messages


def _anthropic_result(make: _Maker) -> Any:
    if make.maybe(0.7):
        return make.words() if make.maybe(0.9) else ""
    return [{"type": "text", "text": make.words()} for _ in range(make.random.randint(1, 2))]


def _chat(make: _Maker) -> list[Any]:
    messages: list[Any] = [{"role": "system", "content": make.words()}] if make.maybe() else []
    messages.append({"role": "user", "content": make.words()})
    for _ in range(make.steps):
        calls = make.asked() if make.maybe(0.7) else []
        message: dict[str, Any] = {"role": "assistant", "content": make.words()}
        if calls:
            if make.maybe(0.3):
                message["content"] = None
            message["tool_calls"] = [
                {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
                for i, n, a in calls
            ]
        messages.append(message)
        answers = [(i, make.words()) for i, _, _ in calls]
        if make.maybe(0.2):
            make.random.shuffle(answers)
        messages += [{"role": "tool", "tool_call_id": i, "content": text} for i, text in answers]
        if not calls or make.maybe(0.2):
            blocks = [{"type": "text", "text": make.words()}]
            messages.append({"role": "user", "content": blocks if make.maybe() else make.words()})
    return messages


def _responses(make: _Maker) -> list[Any]:
    items: list[Any] = [{"role": "user", "content": make.words()}]
    for number in range(make.steps):
        calls = make.asked() if make.maybe(0.7) else []
        if make.maybe(0.3) and calls:
            summary = [{"type": "summary_text", "text": make.words()}]
            items.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary})
        items += [
            {"type": "function_call", "call_id": i, "name": n, "arguments": json.dumps(a)}
            for i, n, a in calls
        ]
        items += [
            {"type": "function_call_output", "call_id": i, "output": make.words()}
            for i, _, _ in calls
        ]
        if not calls:
            text = {"type": "output_text", "text": make.words(), "annotations": []}
            items.append({"type": "message", "role": "assistant", "content": [text]})
        if make.maybe(0.4):
            text = {"type": "input_text", "text": make.words()}
            items.append({"type": "message", "role": "user", "content": [text]})
    return items


def _gemini(make: _Maker) -> list[Any]:
    return _gemini_spelled(make, "functionCall", "functionResponse")


def _gemini_snake(make: _Maker) -> list[Any]:
    return _gemini_spelled(make, "function_call", "function_response")


def _gemini_spelled(make: _Maker, call: str, response: str) -> list[Any]:
    contents: list[Any] = [{"role": "user", "parts": [{"text": make.words()}]}]
    for _ in range(make.steps):
        with_ids = make.maybe()
        calls = make.asked() if make.maybe(0.7) else []
        parts: list[Any] = [{"text": make.words()}] if make.maybe() or not calls else []
        own = [{"id": i} if with_ids else {} for i, _, _ in calls]
        for (_, name, arguments), ident in zip(calls, own, strict=True):
            parts.append({call: {**ident, "name": name, "args": arguments}})
        contents.append({"role": "model", "parts": parts})
        answers = [
            {response: {**ident, "name": name, "response": {"output": make.words()}}}
            for (_, name, _), ident in zip(calls, own, strict=True)
        ]
        contents.append({"role": "user", "parts": answers or [{"text": make.words()}]})
    return contents


def _bedrock(make: _Maker) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": [{"text": make.words()}]}]
    for _ in range(make.steps):
        calls = make.asked() if make.maybe(0.7) else []
        said: list[Any] = [{"text": make.words()}] if make.maybe() or not calls else []
        said += [{"toolUse": {"toolUseId": i, "name": n, "input": a}} for i, n, a in calls]
        messages.append({"role": "assistant", "content": said})
        answers: list[Any] = [
            {"toolResult": {"toolUseId": i, "content": [{"text": make.words()}]}}
            for i, _, _ in calls
        ]
        if not answers or make.maybe(0.2):
            answers.append({"text": make.words()})
        messages.append({"role": "user", "content": answers})
    return messages


_MESSAGES = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
    "gemini-snake": _gemini_snake,
    "bedrock": _bedrock,
}
