"""Replies of every shape, in one piece and as the events that a stream of them is made of.

``SPEAKERS[dialect]`` says the same pieces both ways. An event comes with the words it brings and
the block they belong to, so that a test knows at every cut what had been said.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st


@dataclass(frozen=True)
class Thought:
    text: str
    signature: str


@dataclass(frozen=True)
class Said:
    text: str


@dataclass(frozen=True)
class Asked:
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Searched:
    """Something that the provider runs itself."""

    id: str
    query: str


Piece = Thought | Said | Asked | Searched


@dataclass(frozen=True)
class Sent:
    """An event, and the words in it, if any, of the block at ``place``."""

    event: dict[str, Any]
    place: int = -1
    words: str = ""


texts = st.text(st.sampled_from('ab "\\{}[]:,\né😀 '), max_size=12)
arguments = st.dictionaries(
    st.sampled_from(["path", "é", "n"]),
    st.one_of(texts, st.integers(-3, 3), st.none(), st.lists(texts, max_size=2)),
    max_size=3,
)


@st.composite
def replies(draw: st.DrawFn) -> list[Piece]:
    """A reply as models give them: thoughts and words, then calls; maybe nothing at all."""
    numbers = iter(range(100))
    pieces: list[Piece] = []
    for kind in draw(st.lists(st.sampled_from("tws"), max_size=4)):
        if kind == "t":
            pieces.append(Thought(draw(texts) or "hm", f"c2ln{next(numbers):04}"))
        elif kind == "w":
            pieces.append(Said(draw(st.one_of(texts, st.sampled_from(("", " ", "\n\n"))))))
        else:
            pieces.append(Searched(f"srvtoolu_{next(numbers)}", draw(texts)))
    asked = draw(st.lists(arguments, max_size=3))
    pieces += [Asked(f"toolu_{next(numbers)}", "look", given) for given in asked]
    while pieces and isinstance(pieces[-1], Thought):
        pieces.pop()
    return pieces


SPLITS = 5


def bits(text: str, size: int) -> Iterator[str]:
    """The pieces a text is sent in: some are empty, and some servers cut characters in two."""
    if size % 2:
        yield ""
    if size == SPLITS:
        units = text.encode("utf-16-le")
        text = "".join(chr(units[n] + 256 * units[n + 1]) for n in range(0, len(units), 2))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one kind as one, for formats that cannot tell them apart."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, Said) and isinstance(last, Said):
            found[-1] = Said(last.text + piece.text)
        elif isinstance(piece, Thought) and isinstance(last, Thought):
            found[-1] = Thought(last.text + piece.text, piece.signature)
        else:
            found.append(piece)
    return found


class Speaker(ABC):
    """How one provider gives a reply."""

    dialect: str
    searches = False

    def fitting(self, pieces: list[Piece]) -> list[Piece]:
        """What of a reply this provider could have said."""
        return [p for p in pieces if self.searches or not isinstance(p, Searched)]

    @abstractmethod
    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        """The response in one piece."""

    @abstractmethod
    def events(self, pieces: list[Piece], size: int) -> Iterator[Sent]:
        """The same as a stream."""


OPENING = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-fable-5"}


class Anthropic(Speaker):
    dialect = "anthropic"
    searches = True

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        content = [block for piece in pieces for block in self._blocks(piece)]
        usage = {"input_tokens": 3, "output_tokens": 9}
        ending = {"stop_reason": "end_turn", "stop_sequence": None}
        return {**OPENING, "content": content, **ending, "usage": usage}

    def _blocks(self, piece: Piece) -> list[dict[str, Any]]:
        if isinstance(piece, Thought):
            return [{"type": "thinking", "thinking": piece.text, "signature": piece.signature}]
        if isinstance(piece, Said):
            return [{"type": "text", "text": piece.text}]
        if isinstance(piece, Asked):
            block = {"type": "tool_use", "id": piece.id, "name": piece.name}
            return [{**block, "input": piece.arguments}]
        call = {"type": "server_tool_use", "id": piece.id, "name": "web_search"}
        page = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "E"}
        page["page_age"] = None  # type: ignore[assignment]
        result = {"type": "web_search_tool_result", "tool_use_id": piece.id, "content": [page]}
        return [{**call, "input": {"query": piece.query}}, result]

    def events(self, pieces: list[Piece], size: int) -> Iterator[Sent]:
        usage = {"input_tokens": 3, "output_tokens": 1}
        start = {**OPENING, "content": [], "stop_reason": None, "stop_sequence": None}
        yield Sent({"type": "message_start", "message": {**start, "usage": usage}})
        yield Sent({"type": "ping"})
        blocks = [block for piece in pieces for block in self._blocks(piece)]
        for index, block in enumerate(blocks):
            yield from self._block(index, block, size)
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        yield Sent({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}})
        yield Sent({"type": "message_stop"})

    def _block(self, index: int, block: dict[str, Any], size: int) -> Iterator[Sent]:
        empty = {"text": "", "thinking": "", "signature": "", "input": {}}
        fresh = {key: empty.get(key, value) for key, value in block.items()}
        yield Sent({"type": "content_block_start", "index": index, "content_block": fresh})
        for delta, words in self._deltas(block, size):
            event = {"type": "content_block_delta", "index": index, "delta": delta}
            yield Sent(event, index, words)
        yield Sent({"type": "content_block_stop", "index": index})

    def _deltas(self, block: dict[str, Any], size: int) -> Iterator[tuple[dict[str, Any], str]]:
        if block["type"] == "text":
            for bit in bits(block["text"], size):
                yield {"type": "text_delta", "text": bit}, bit
        elif block["type"] == "thinking":
            for bit in bits(block["thinking"], size):
                yield {"type": "thinking_delta", "thinking": bit}, ""
            yield {"type": "signature_delta", "signature": block["signature"]}, ""
        elif "input" in block:
            text = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
            for bit in bits(text, size):
                yield {"type": "input_json_delta", "partial_json": bit}, ""


class Chat(Speaker):
    dialect = "openai-chat"

    def fitting(self, pieces: list[Piece]) -> list[Piece]:
        order = (Thought, Said, Asked)
        return joined([p for kind in order for p in super(Chat, self).fitting(pieces)
                       if isinstance(p, kind)])  # fmt: skip

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        calls = []
        for piece in pieces:
            if isinstance(piece, Thought):
                message["reasoning_content"] = piece.text
            elif isinstance(piece, Said):
                message["content"] = piece.text
            elif isinstance(piece, Asked):
                calls.append(self._call(piece, json.dumps(piece.arguments)))
        if calls:
            message["tool_calls"] = calls
        reason = "tool_calls" if calls else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return {**self._outer("chat.completion"), "choices": [choice], "usage": USAGE}

    def _outer(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": kind, "created": 7, "model": "gpt-5"}

    def _call(self, piece: Asked, text: str) -> dict[str, Any]:
        function = {"name": piece.name, "arguments": text}
        return {"id": piece.id, "type": "function", "function": function}

    def events(self, pieces: list[Piece], size: int) -> Iterator[Sent]:
        yield self._chunk({"role": "assistant", "content": None})
        index = 0
        for piece in pieces:
            if isinstance(piece, Thought):
                for bit in bits(piece.text, size):
                    yield self._chunk({"reasoning_content": bit})
            elif isinstance(piece, Said):
                for bit in bits(piece.text or "", size) if piece.text else ("",):
                    yield self._chunk({"content": bit}, bit)
            elif isinstance(piece, Asked):
                yield self._chunk({"tool_calls": [{"index": index, **self._call(piece, "")}]})
                for bit in bits(json.dumps(piece.arguments), size):
                    delta = {"index": index, "function": {"arguments": bit}}
                    yield self._chunk({"tool_calls": [delta]})
                index += 1
        yield self._chunk({}, reason="tool_calls" if index else "stop")
        yield Sent({**self._outer("chat.completion.chunk"), "choices": [], "usage": USAGE})

    def _chunk(self, delta: dict[str, Any], words: str = "", reason: str | None = None) -> Sent:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        outer = self._outer("chat.completion.chunk")
        return Sent({**outer, "choices": [choice], "usage": None}, 0, words)


USAGE = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}


class Responses(Speaker):
    dialect = "openai-responses"
    searches = True

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        output = [self._item(number, piece) for number, piece in enumerate(pieces)]
        return {**self._response("completed"), "output": output, "usage": {"total_tokens": 9}}

    def _response(self, status: str) -> dict[str, Any]:
        outer = {"id": "resp_1", "object": "response", "created_at": 7.0, "model": "gpt-5"}
        rest = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "error": None}
        return {**outer, "status": status, "output": [], **rest}

    def _item(self, number: int, piece: Piece) -> dict[str, Any]:
        if isinstance(piece, Thought):
            summary = [{"type": "summary_text", "text": piece.text}]
            item = {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
            return {**item, "encrypted_content": piece.signature}
        if isinstance(piece, Said):
            text = {"type": "output_text", "text": piece.text, "annotations": [], "logprobs": []}
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
            return {**item, "status": "completed", "content": [text]}
        if isinstance(piece, Asked):
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": piece.id}
            said = {"name": piece.name, "arguments": json.dumps(piece.arguments)}
            return {**item, **said, "status": "completed"}
        action = {"type": "search", "query": piece.query}
        return {"type": "web_search_call", "id": piece.id, "status": "completed", "action": action}

    def events(self, pieces: list[Piece], size: int) -> Iterator[Sent]:
        yield self._event("response.created", response=self._response("in_progress"))
        yield self._event("response.in_progress", response=self._response("in_progress"))
        for index, piece in enumerate(pieces):
            item = self._item(index, piece)
            empty = {"content": [], "arguments": "", "summary": [], "status": "in_progress"}
            fresh = {key: empty.get(key, value) for key, value in item.items()}
            yield self._event("response.output_item.added", output_index=index, item=fresh)
            for bit in bits(piece.text, size) if isinstance(piece, Said) else ():
                fields = {"output_index": index, "content_index": 0, "item_id": item["id"]}
                event = self._event("response.output_text.delta", **fields, delta=bit, logprobs=[])
                yield Sent(event.event, index, bit)
            for bit in bits(item.get("arguments", ""), size):
                fields = {"output_index": index, "item_id": item["id"], "delta": bit}
                yield self._event("response.function_call_arguments.delta", **fields)
            yield self._event("response.output_item.done", output_index=index, item=item)
        yield self._event("response.completed", response=self.whole(pieces))

    def _event(self, kind: str, **fields: Any) -> Sent:
        return Sent({"type": kind, "sequence_number": 0, **fields})


class Gemini(Speaker):
    dialect = "gemini"

    def fitting(self, pieces: list[Piece]) -> list[Piece]:
        kept = [p for p in super().fitting(pieces) if not isinstance(p, Said) or p.text]
        return joined(kept)

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        parts = [self._part(piece) for piece in pieces]
        content = {"content": {"role": "model", "parts": parts}} if parts else {}
        candidate = {**content, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "modelVersion": "gemini-3-pro", "usageMetadata": {}}

    def _part(self, piece: Piece) -> dict[str, Any]:
        if isinstance(piece, Thought):
            return {"text": piece.text, "thought": True}
        if isinstance(piece, Said):
            return {"text": piece.text}
        assert isinstance(piece, Asked)
        call = {"name": piece.name, "args": piece.arguments, "id": piece.id}
        return {"functionCall": call, "thoughtSignature": "c2lnbmVk"}

    def events(self, pieces: list[Piece], size: int) -> Iterator[Sent]:
        for place, piece in enumerate(pieces):
            part = self._part(piece)
            if "text" not in part:
                yield self._chunk([part])
                continue
            for bit in filter(None, bits(part["text"], size)):
                words = "" if "thought" in part else bit
                yield Sent(self._chunk([{**part, "text": bit}]).event, place, words)
        yield self._chunk([], {"finishReason": "STOP"})

    def _chunk(self, parts: list[Any], rest: dict[str, Any] | None = None) -> Sent:
        content = {"content": {"role": "model", "parts": parts}} if parts else {}
        candidate = {**content, "index": 0, **(rest or {})}
        outer = {"modelVersion": "gemini-3-pro", "usageMetadata": {}}
        return Sent({"candidates": [candidate], **outer})


class Bedrock(Speaker):
    dialect = "bedrock"

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        blocks = [self._block(piece) for piece in pieces]
        message = {"role": "assistant", "content": [b for b in blocks if b != {"text": None}]}
        rest = {"usage": {"totalTokens": 9}, "metrics": {"latencyMs": 5}}
        return {"output": {"message": message}, "stopReason": "end_turn", **rest}

    def _block(self, piece: Piece) -> dict[str, Any]:
        if isinstance(piece, Thought):
            thought = {"text": piece.text, "signature": piece.signature}
            return {"reasoningContent": {"reasoningText": thought}}
        if isinstance(piece, Said):
            return {"text": piece.text}
        assert isinstance(piece, Asked)
        call = {"toolUseId": piece.id, "name": piece.name, "input": piece.arguments}
        return {"toolUse": call}

    def events(self, pieces: list[Piece], size: int) -> Iterator[Sent]:
        yield Sent({"messageStart": {"role": "assistant"}})
        for index, piece in enumerate(pieces):
            if isinstance(piece, Asked):
                start = {"toolUse": {"toolUseId": piece.id, "name": piece.name}}
                yield Sent({"contentBlockStart": {"start": start, "contentBlockIndex": index}})
            for delta, words in self._deltas(piece, size):
                event = {"contentBlockDelta": {"delta": delta, "contentBlockIndex": index}}
                yield Sent(event, index, words)
            yield Sent({"contentBlockStop": {"contentBlockIndex": index}})
        yield Sent({"messageStop": {"stopReason": "end_turn"}})
        metadata = {"usage": {"totalTokens": 9}, "metrics": {"latencyMs": 5}}
        yield Sent({"metadata": metadata})

    def _deltas(self, piece: Piece, size: int) -> Iterator[tuple[dict[str, Any], str]]:
        if isinstance(piece, Thought):
            for bit in bits(piece.text, size):
                yield {"reasoningContent": {"text": bit}}, ""
            yield {"reasoningContent": {"signature": piece.signature}}, ""
        elif isinstance(piece, Said):
            for bit in bits(piece.text, size) if piece.text else ("",):
                yield {"text": bit}, bit
        elif isinstance(piece, Asked):
            text = json.dumps(piece.arguments) if piece.arguments else ""
            for bit in bits(text, size):
                yield {"toolUse": {"input": bit}}, ""


class LangChain(Speaker):
    """A chat model of OpenAI's kind: text in one string."""

    dialect = "langchain"

    def fitting(self, pieces: list[Piece]) -> list[Piece]:
        return Chat().fitting([p for p in pieces if not isinstance(p, Thought)])

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        texts = [piece.text for piece in pieces if isinstance(piece, Said)]
        return {**self._message(pieces), "content": "".join(texts)}

    def _message(self, pieces: list[Piece]) -> dict[str, Any]:
        calls = [
            {"name": piece.name, "args": piece.arguments, "id": piece.id, "type": "tool_call"}
            for piece in pieces
            if isinstance(piece, Asked)
        ]
        return {
            "type": "ai",
            "id": "lc_run--1",
            "tool_calls": calls,
            "invalid_tool_calls": [],
            "additional_kwargs": {},
            "response_metadata": {"model_name": "gpt-5", "finish_reason": "stop"},
        }

    def events(self, pieces: list[Piece], size: int) -> Iterator[Sent]:
        yield self._chunk(content="")
        number = 0
        for place, piece in enumerate(pieces):
            if isinstance(piece, Asked):
                yield from self._calling(piece, number, size)
                number += 1
            else:
                yield from self._saying(piece, place, size)
        yield self._chunk(
            content="",
            response_metadata={"model_name": "gpt-5", "finish_reason": "stop"},
            chunk_position="last",
        )

    def _saying(self, piece: Piece, place: int, size: int) -> Iterator[Sent]:
        assert isinstance(piece, Said)
        for bit in bits(piece.text, size):
            yield Sent(self._chunk(content=bit).event, 0, bit)

    def _calling(self, piece: Asked, number: int, size: int) -> Iterator[Sent]:
        first = {"name": piece.name, "args": "", "id": piece.id}
        yield self._chunk(content="", tool_call_chunks=[self._call(number, **first)])
        for bit in bits(json.dumps(piece.arguments), size):
            yield self._chunk(content="", tool_call_chunks=[self._call(number, args=bit)])

    def _call(self, index: int, **fields: Any) -> dict[str, Any]:
        empty = {"name": None, "args": None, "id": None}
        return {**empty, **fields, "index": index, "type": "tool_call_chunk"}

    def _chunk(self, **fields: Any) -> Sent:
        return Sent({"type": "AIMessageChunk", "id": "lc_run--1", **fields})


CALLS_FROM = 50


class LangChainBlocks(LangChain):
    """A chat model of Anthropic's kind: blocks, the calls among them."""

    def fitting(self, pieces: list[Piece]) -> list[Piece]:
        return [p for p in pieces if not isinstance(p, Searched)]

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        calls = iter(range(CALLS_FROM, 100))
        places = (next(calls) if isinstance(p, Asked) else n for n, p in enumerate(pieces))
        blocks = [self._block(place, piece) for place, piece in zip(places, pieces, strict=True)]
        return {**self._message(pieces), "content": blocks or ""}

    def _block(self, place: int, piece: Piece) -> dict[str, Any]:
        if isinstance(piece, Thought):
            thought = {"type": "thinking", "thinking": piece.text, "signature": piece.signature}
            return {**thought, "index": place}
        if isinstance(piece, Said):
            return {"type": "text", "text": piece.text, "index": place}
        assert isinstance(piece, Asked)
        call = {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
        return {**call, "index": place, "partial_json": json.dumps(piece.arguments)}

    def _saying(self, piece: Piece, place: int, size: int) -> Iterator[Sent]:
        assert isinstance(piece, Thought | Said)
        key = "text" if isinstance(piece, Said) else "thinking"
        for bit in bits(piece.text, size) if piece.text else ("",):
            words = bit if key == "text" else ""
            block = {"type": key, key: bit, "index": place}
            yield Sent(self._chunk(content=[block]).event, place, words)
        if isinstance(piece, Thought):
            signed = {"type": "thinking", "signature": piece.signature, "index": place}
            yield self._chunk(content=[signed])

    def _calling(self, piece: Asked, number: int, size: int) -> Iterator[Sent]:
        place = number + CALLS_FROM
        block = {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
        first = {"name": piece.name, "args": "", "id": piece.id}
        begun = [{**block, "index": place}]
        yield self._chunk(content=begun, tool_call_chunks=[self._call(place, **first)])
        for bit in bits(json.dumps(piece.arguments), size):
            more = [{"type": "input_json_delta", "partial_json": bit, "index": place}]
            yield self._chunk(content=more, tool_call_chunks=[self._call(place, args=bit)])


SPEAKERS: dict[str, Speaker] = {
    "anthropic": Anthropic(),
    "openai-chat": Chat(),
    "openai-responses": Responses(),
    "gemini": Gemini(),
    "bedrock": Bedrock(),
    "langchain": LangChain(),
    "langchain-blocks": LangChainBlocks(),
}
