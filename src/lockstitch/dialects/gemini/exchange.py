"""Gemini's side of an exchange: responses, streams, and requests made from other dialects.

Every chunk of a stream is a response of its own, whose parts continue those before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lockstitch.conversation.parts import ASSISTANT, REASONING, TOOL, USER, Part
from lockstitch.dialects.base import as_text, keep_if_same
from lockstitch.dialects.exchange import (
    Accumulator,
    Exchange,
    Fields,
    Spoken,
    TextResult,
    fields_at,
    is_worded,
    list_at,
    number_at,
    read_each,
    text_at,
    with_raw,
    without,
)
from lockstitch.dialects.gemini import CHUNK_MARKS, SIGNATURES, signature_of
from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.script import (
    NEVER,
    Block,
    GroupedWriter,
    NeutralCall,
    NeutralResult,
    Picture,
    Piece,
    TextPiece,
    as_object,
)

_CALLS = ("functionCall", "function_call")
_MORE = ("willContinue", "will_continue")
_PIECES = ("partialArgs", "partial_args")
_FINISH = ("finishReason", "finish_reason")
_FEEDBACK = ("promptFeedback", "prompt_feedback")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(?:'([^']*)'|\"([^\"]*)\"|(\d{1,9}))\]")


class GeminiStream(Accumulator):
    """Gathers chunks, in either spelling."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._outer: Fields = {}
        self._candidates: dict[int, Fields] = {}
        self._parts: dict[int, list[Fields]] = {}

    def take(self, event: Fields) -> None:
        if not CHUNK_MARKS.intersection(event):
            return
        outer = {k: v for k, v in event.items() if k != "candidates" and v is not None}
        self._outer.update(outer)
        for candidate in list_at(event, "candidates"):
            if not isinstance(candidate, dict):
                continue
            index = number_at(candidate, "index", 0)
            known = self._candidates.setdefault(index, {})
            known.update({k: v for k, v in candidate.items() if k != "content" and v is not None})
            parts = self._parts.setdefault(index, [])
            for part in list_at(fields_at(candidate, "content"), "parts"):
                if isinstance(part, dict) and not _continue_call(parts, part):
                    # Append a part; a text continues the text before it, unless one of them is
                    # signed.
                    before = parts[-1] if parts else {}
                    plain = {"text", "thought"}
                    joins = (
                        before.keys() == part.keys() and "text" in part and not part.keys() - plain
                    )
                    if joins and before.get("thought") == part.get("thought"):
                        parts[-1] = {
                            **before,
                            "text": text_at(before, "text") + text_at(part, "text"),
                        }
                    elif part:
                        parts.append(part)
        first = self._candidates.get(0, {})
        blocked = not self._candidates and any(self._outer.get(key) for key in _FEEDBACK)
        self.complete = blocked or any(first.get(key) for key in _FINISH)
        parts = self._parts.get(0, [])
        # the last part may still grow
        self.blocks_closed = len(parts) - (bool(parts) and not self.complete)

    def response_so_far(self) -> Fields:
        candidates: list[Fields] = []
        for index in sorted(self._candidates):
            parts = self._parts[index]
            content = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
            candidates.append({**content, **self._candidates[index]})
        return {**self._outer, **({"candidates": candidates} if candidates else {})}

    def part_to_keep(self) -> Fields | None:
        parts = [part for part in self._parts.get(0, []) if _may_be_kept(part)]
        while parts and parts[-1].get("thought") is True:
            parts.pop()
        says = any(part.get("thought") is not True and part.get("text") != "" for part in parts)
        return {"role": "model", "parts": parts} if says else None


def _call_in(part: Fields) -> str:
    return next((key for key in _CALLS if isinstance(part.get(key), dict)), "")


def _first(fields: Fields, keys: tuple[str, ...]) -> Any:
    return next((fields[key] for key in keys if fields.get(key) is not None), None)


def _continue_call(parts: list[Fields], part: Fields) -> bool:
    """Add to a call whose arguments are streamed; return whether the part was such a piece."""
    key = _call_in(part)
    if not key:
        return False
    open_call = fields_at(parts[-1], key) if parts else {}
    piece = part[key]
    if not _first(open_call, _MORE):
        if _first(piece, _MORE) or _first(piece, _PIECES):
            parts.append({**part, key: _add_arguments({}, piece)})
            return True
        return False
    parts[-1] = {**parts[-1], **part, key: _add_arguments(open_call, piece)}
    return True


def _add_arguments(call: Fields, piece: Fields) -> Fields:
    """Return a call with a piece of its arguments added; the last piece announces no more."""
    left = {*_MORE, *_PIECES, "args"}
    grown = {key: value for key, value in call.items() if key not in left}
    grown |= {key: value for key, value in piece.items() if key not in left and value}
    args = {**fields_at(call, "args"), **fields_at(piece, "args")}
    for value in list_at({"": _first(piece, _PIECES)}, ""):
        path = text_at(value, "jsonPath") or text_at(value, "json_path")
        steps = [m[1] or m[2] or m[3] or int(m[4] or 0) for m in _STEP.finditer(path)]
        if not steps or not isinstance(steps[0], str):
            continue
        # a value stands under the name of its type, and so does null
        found = (v for k, v in value.items() if k.endswith(("Value", "_value")) and v is not None)
        args = _put_at(args, steps, next((None if v == "NULL_VALUE" else v for v in found), None))
    return {**grown, "args": args, **({"willContinue": True} if _first(piece, _MORE) else {})}


def _put_at(holder: Any, steps: list[str | int], new: Any) -> Any:
    """Return a value with something put at a path in it; a text that is there grows."""
    if not steps:
        return holder + new if isinstance(holder, str) and isinstance(new, str) else new
    step, *rest = steps
    if isinstance(step, int):
        items = list(holder) if isinstance(holder, list) else []
        at = min(step, len(items))
        return [*items[:at], _put_at((items[at:] or [None])[0], rest, new), *items[at + 1 :]]
    fields = dict(holder) if isinstance(holder, dict) else {}
    return {**fields, step: _put_at(fields.get(step), rest, new)}


def _may_be_kept(part: Fields) -> bool:
    """Whether a part may be kept: a call must be whole, a text not empty or signed."""
    key = _call_in(part)
    if key:
        return bool(text_at(part[key], "name")) and not _first(part[key], _MORE)
    return text_at(part, "text") != "" or "text" not in part or signature_of(part) is not None


class GeminiWriter(GroupedWriter):
    """Writes ``text``, ``inlineData``, ``functionCall`` and ``functionResponse`` parts."""

    container = "parts"
    assistant = "model"
    picture_roles = (USER, ASSISTANT, TOOL)
    takes_addresses = False
    system_turns = NEVER

    def put(self, role: str, blocks: list[Block]) -> None:
        self.messages.append({"role": role, "parts": blocks})

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"text": piece.text}
        return {"inlineData": {"mimeType": piece.kind, "data": piece.data}}

    def call(self, call: NeutralCall) -> Block:
        arguments = as_object(call.arguments)
        return {"functionCall": {"id": call.id, "name": call.name, "args": arguments}}

    def result(self, answer: NeutralResult) -> Block:
        call, key = answer.call, "error" if answer.failed else "output"
        block: Block = {"id": call.id, "name": call.name, "response": {key: answer.text}}
        pictures = [piece for piece in answer.pieces if isinstance(piece, Picture)]
        if pictures:
            block["parts"] = self.blocks(pictures, USER)
        return {"functionResponse": block}


class GeminiExchange(Exchange):
    """Contents, and parts inside them."""

    provider = "google"
    writer = GeminiWriter
    stream = GeminiStream
    marks_failures = True
    has_typed_blocks = False
    needs_ids = False

    def messages_in(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return read_each(
                value, self.messages_in, lambda parts: {"role": "model", "parts": parts}
            )
        candidates = value.get("candidates") if isinstance(value, dict) else None
        found = candidates[0] if isinstance(candidates, list) and candidates else value
        has_content = isinstance(found, dict) and "parts" not in found
        content = found.get("content") if has_content else found
        if not isinstance(content, dict) or not isinstance(content.get("parts"), list):
            return []
        # without a role the words would count as the user's
        role = content.get("role") or "model"
        return [keep_if_same(content, {"role": role, "parts": content["parts"]})]

    def text_message(self, text: str) -> Fields:
        return {"role": USER, "parts": [{"text": text}]}

    def user_message(self, content: Any) -> Fields:
        parts = content if isinstance(content, list) else [{"text": as_text(content)}]
        return {"role": "user", "parts": parts}

    def plain_messages(self, value: Any) -> list[Fields] | None:
        candidates = value.get("candidates") if type(value) is dict else None
        found = candidates[0] if type(candidates) is list and candidates else None
        content = found.get("content") if type(found) is dict and "parts" not in found else None
        if type(content) is not dict or content.get("role") != "model":
            return None
        parts = content.get("parts")
        is_bare = len(content) == 2  # noqa: PLR2004 - role and parts
        if not is_bare or type(parts) is not list or not parts:
            return None
        plain = all(is_worded(part) or type(part.get("functionCall")) is dict for part in parts)
        return [content] if plain else None

    def words_and_calls(self, messages: list[Any]) -> Spoken:
        words: list[Any] = []
        asked: list[tuple[Any, Any, Any]] = []
        for part in messages[0]["parts"]:
            if part.keys() == {"text"}:
                words.append(part["text"])
            elif part.keys() == {"functionCall"}:
                call = part["functionCall"]
                asked.append((call["id"], call["name"], call["args"]))
            else:
                raise ValueError("another part")
        return words, asked

    def asked_in(self, messages: list[Fields]) -> list[tuple[str, str]]:
        calls = (part["functionCall"] for part in messages[0]["parts"] if "functionCall" in part)
        return [(call.get("id", ""), call.get("name", "")) for call in calls]

    def plain_results(self, results: Iterable[TextResult]) -> list[Fields]:
        parts: list[Fields] = []
        for result in results:
            said = {"error" if result.failed else "output": result.text}
            response: Fields = {"name": result.name, "response": said}
            block = {"id": result.id, **response} if result.id else response
            parts.append({"functionResponse": block})
        return [{"role": USER, "parts": parts}]

    def system_parameter(self, text: str) -> Any:
        return text

    def free_part(self, part: Part, parts: list[Part]) -> Part | None:
        if part.kind == REASONING:
            return None
        return with_raw(part, without(part.raw, SIGNATURES)) if isinstance(part.raw, dict) else part


EXCHANGE = GeminiExchange()
