"""Write a conversation in a dialect's spelling: one small writer each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.render_script import (
    Answer,
    Call,
    Picture,
    Piece,
    Turn,
    Words,
    arguments_text,
    as_object,
    is_blank,
    joined,
)
from lockstitch.model.parts import ASSISTANT, SYSTEM, USER

Block = dict[str, Any]


class Writer(ABC):
    """Writes turns that were fitted to a receiver."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.messages: list[Any] = []

    def write(self, turns: Iterable[Turn]) -> list[Any]:
        """Give the list."""
        for turn in turns:
            self.speech(turn)
            if turn.answers:
                self.results(turn.answers)
        return self.messages

    @abstractmethod
    def speech(self, turn: Turn) -> None:
        """Write what is said in a turn, and its calls."""

    @abstractmethod
    def results(self, answers: list[Answer]) -> None:
        """Write the results of a turn's calls."""

    @abstractmethod
    def block(self, piece: Piece, role: str) -> Block:
        """Write one piece for a message of this role."""

    def blocks(self, pieces: Iterable[Piece], role: str) -> list[Block]:
        """Write pieces."""
        return [self.block(piece, role) for piece in pieces]

    def content(self, pieces: list[Piece], role: str) -> Any:
        """Write content: one text is a string, anything else a list of blocks."""
        if not pieces:
            return ""
        alone = pieces[0] if len(pieces) == 1 else None
        return alone.text if isinstance(alone, Words) else self.blocks(pieces, role)

    def arguments(self, call: Call) -> str:
        """Write a call's arguments as JSON text."""
        return arguments_text(as_object(call.arguments))


class GroupedWriter(Writer):
    """Shared by formats in which the results of a turn stand in one message of the user."""

    container = "content"
    assistant = "assistant"

    def speech(self, turn: Turn) -> None:
        blocks = self.blocks(turn.pieces, turn.role) + [self.call(call) for call in turn.calls]
        self.put(self.assistant if turn.role == ASSISTANT else turn.role, blocks)

    def results(self, answers: list[Answer]) -> None:
        self.messages.append({"role": USER, self.container: [self.result(a) for a in answers]})

    def put(self, role: str, blocks: list[Block]) -> None:
        """Add a message; what the user says behind results stands in their message."""
        before = self.messages[-1] if self.messages else None
        if before is not None and before["role"] == role == USER:
            before[self.container] += blocks
        else:
            self.messages.append({"role": role, self.container: blocks})

    @abstractmethod
    def call(self, call: Call) -> Block:
        """Write a call."""

    @abstractmethod
    def result(self, answer: Answer) -> Block:
        """Write a result."""

    def shown(self, answer: Answer) -> list[Block]:
        """Write what a result carries as blocks, without the blank ones."""
        pieces = joined(answer.pieces)
        kept = [p for p in pieces if isinstance(p, Picture) or not is_blank(p.text)]
        return self.blocks(kept, USER)


class AnthropicWriter(GroupedWriter):
    """Writes ``text``, ``image``, ``tool_use`` and ``tool_result`` blocks."""

    def speech(self, turn: Turn) -> None:
        super().speech(turn)
        if turn.calls and self.profile.reasoning_required:
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            self.messages[-1]["content"].insert(0, empty)

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, Words):
            return {"type": "text", "text": piece.text}
        source = {"type": "url", "url": piece.url}
        if piece.data:
            source = {"type": "base64", "media_type": piece.kind, "data": piece.data}
        return {"type": "image", "source": source}

    def call(self, call: Call) -> Block:
        given = as_object(call.arguments)
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}

    def result(self, answer: Answer) -> Block:
        pictured = any(isinstance(piece, Picture) for piece in answer.pieces)
        content = self.shown(answer) if pictured else answer.text
        block = {"type": "tool_result", "tool_use_id": answer.call.id, "content": content}
        return {**block, "is_error": True} if answer.failed else block


class BedrockWriter(GroupedWriter):
    """Writes ``text``, ``image``, ``toolUse`` and ``toolResult`` blocks."""

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, Words):
            return {"text": piece.text}
        kind = piece.kind.removeprefix("image/")
        return {"image": {"format": kind, "source": {"bytes": piece.data}}}

    def call(self, call: Call) -> Block:
        given = as_object(call.arguments)
        return {"toolUse": {"toolUseId": call.id, "name": call.name, "input": given}}

    def result(self, answer: Answer) -> Block:
        block = {"toolUseId": answer.call.id, "content": self.shown(answer)}
        return {"toolResult": {**block, "status": "error"} if answer.failed else block}


class GeminiWriter(GroupedWriter):
    """Writes ``text``, ``inlineData``, ``functionCall`` and ``functionResponse`` parts."""

    container = "parts"
    assistant = "model"

    def put(self, role: str, blocks: list[Block]) -> None:
        self.messages.append({"role": role, "parts": blocks})

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, Words):
            return {"text": piece.text}
        return {"inlineData": {"mimeType": piece.kind, "data": piece.data}}

    def call(self, call: Call) -> Block:
        given = as_object(call.arguments)
        return {"functionCall": {"id": call.id, "name": call.name, "args": given}}

    def result(self, answer: Answer) -> Block:
        call, key = answer.call, "error" if answer.failed else "output"
        block: Block = {"id": call.id, "name": call.name, "response": {key: answer.text}}
        pictures = [piece for piece in answer.pieces if isinstance(piece, Picture)]
        if pictures:
            block["parts"] = self.blocks(pictures, USER)
        return {"functionResponse": block}


class ChatWriter(Writer):
    """Writes ``tool_calls`` beside the content, and a message of role ``tool`` for each result."""

    def speech(self, turn: Turn) -> None:
        message: Block = {"role": turn.role, "content": self.content(turn.pieces, turn.role)}
        if turn.calls:
            if not turn.pieces and self.profile.null_content != "never":
                message["content"] = None
            message["tool_calls"] = [self.call(call) for call in turn.calls]
            if self.profile.reasoning_required:
                message["reasoning_content"] = ""
        self.messages.append(message)

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, Words):
            return {"type": "text", "text": piece.text}
        return {"type": "image_url", "image_url": {"url": address_of(piece)}}

    def call(self, call: Call) -> Block:
        """Write a call."""
        function = {"name": call.name, "arguments": self.arguments(call)}
        return {"id": call.id, "type": "function", "function": function}

    def results(self, answers: list[Answer]) -> None:
        self.messages += [
            {"role": "tool", "tool_call_id": answer.call.id, "content": answer.text}
            for answer in answers
        ]


class ResponsesWriter(Writer):
    """Writes an item for each message, call and output."""

    def speech(self, turn: Turn) -> None:
        if turn.pieces or not turn.calls:
            content = self.blocks(turn.pieces, turn.role) or ""
            self.messages.append({"type": "message", "role": turn.role, "content": content})
        self.messages += [self.call(call) for call in turn.calls]

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, Picture):
            return {"type": "input_image", "image_url": address_of(piece)}
        if role == ASSISTANT:
            return {"type": "output_text", "text": piece.text, "annotations": []}
        return {"type": "input_text", "text": piece.text}

    def call(self, call: Call) -> Block:
        """Write a call."""
        return {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": self.arguments(call),
        }

    def results(self, answers: list[Answer]) -> None:
        for answer in answers:
            output = self.content(joined(answer.pieces), USER)
            item = {"type": "function_call_output", "call_id": answer.call.id, "output": output}
            self.messages.append(item)


class LangChainWriter(Writer):
    """Writes bare dicts of type ``human``, ``ai``, ``system`` and ``tool``."""

    def speech(self, turn: Turn) -> None:
        content = self.content(turn.pieces, turn.role)
        message: Block = {"type": _LANGCHAIN[turn.role], "content": content}
        if turn.role == ASSISTANT:
            message["tool_calls"] = [self.call(call) for call in turn.calls]
        self.messages.append(message)

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, Words):
            return {"type": "text", "text": piece.text}
        return {"type": "image_url", "image_url": {"url": address_of(piece)}}

    def call(self, call: Call) -> Block:
        """Write a call."""
        given = as_object(call.arguments)
        return {"name": call.name, "args": given, "id": call.id, "type": "tool_call"}

    def results(self, answers: list[Answer]) -> None:
        for answer in answers:
            self.messages.append(
                {
                    "type": "tool",
                    "content": self.content(joined(answer.pieces), USER),
                    "tool_call_id": answer.call.id,
                    "name": answer.call.name,
                    "status": "error" if answer.failed else "success",
                }
            )


_LANGCHAIN = {USER: "human", ASSISTANT: "ai", SYSTEM: "system"}


def address_of(picture: Picture) -> str:
    """Give a picture's address, which for an inline one is a data URL."""
    return picture.url or f"data:{picture.kind};base64,{picture.data}"


WRITERS: dict[str, type[Writer]] = {
    "anthropic": AnthropicWriter,
    "openai-chat": ChatWriter,
    "openai-responses": ResponsesWriter,
    "gemini": GeminiWriter,
    "bedrock": BedrockWriter,
    "langchain": LangChainWriter,
}
