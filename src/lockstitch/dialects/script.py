"""A conversation in no dialect's spelling: what stands between reading a list and writing one.

Write a conversation in a dialect's spelling: one small writer each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.conversation.parts import ASSISTANT, SYSTEM, USER
from lockstitch.dialects.base import as_json
from lockstitch.dialects.profiles import Profile

NOT_CARRIED = "[{what}, left out]"
UNNAMED = "unknown_tool"


class TextPiece(Struct):
    """A text."""

    text: str


class Picture(Struct, kw_only=True):
    """An image, inline (``kind`` and base64 ``data``) or at an address; ``place`` is its origin."""

    place: str
    kind: str = ""
    data: str = ""
    url: str = ""

    @property
    def note(self) -> str:
        """What stands in its place where it cannot go."""
        what = f"image at {self.url}" if self.url else f"{self.kind}, {inline_size(self.data)}"
        return NOT_CARRIED.format(what=what)


Piece = TextPiece | Picture


class NeutralCall(Struct):
    """A tool call; ``arguments`` is the decoded value, an object nearly always."""

    id: str
    name: str
    arguments: Any


class NeutralResult(Struct):
    """The result of a call; ``order`` is its rank among all results of the conversation."""

    call: NeutralCall
    order: int
    pieces: list[Piece]
    failed: bool = False

    @property
    def text(self) -> str:
        """All its words."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], TextPiece):
            return self.pieces[0].text
        return "\n".join(piece.text for piece in self.pieces if isinstance(piece, TextPiece))


class NeutralTurn(Struct):
    """What one side says at a time; calls stand behind the words, their answers behind the calls.

    ``zone`` tells which batch the calls belong to.
    """

    role: str
    pieces: list[Piece]
    calls: list[NeutralCall] = []
    answers: list[NeutralResult] = []
    zone: int = -1


def text_turn(role: str, text: str) -> NeutralTurn:
    """Make a turn of nothing but words."""
    return NeutralTurn(role, [TextPiece(text)])


def all_pictures(turns: Iterable[NeutralTurn]) -> Iterator[tuple[list[Piece], int, Picture]]:
    """Give every picture with the list and the slot it stands in, oldest first."""
    for turn in turns:
        for pieces in (turn.pieces, *(answer.pieces for answer in turn.answers)):
            for slot, piece in enumerate(pieces):
                if isinstance(piece, Picture):
                    yield pieces, slot, piece


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Join words that follow each other, one line each."""
    whole: list[Piece] = []
    for piece in pieces:
        before = whole[-1] if whole else None
        if isinstance(piece, TextPiece) and isinstance(before, TextPiece):
            whole[-1] = TextPiece(f"{before.text}\n{piece.text}")
        else:
            whole.append(piece)
    return whole


def is_blank_text(text: str) -> bool:
    """Tell whether a text has nothing to read in it."""
    return not text or text.isspace()


def inline_size(data: str | bytes) -> str:
    """Say how much an inline payload weighs."""
    size = len(data) if isinstance(data, bytes) else len(data.rstrip("=")) * 3 // 4
    return f"{size} bytes"


def as_object(arguments: Any) -> dict[str, Any]:
    """Give a call's arguments as an object, all of them."""
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"arguments": arguments}


def arguments_text(arguments: Any) -> str:
    """Give a call's arguments as JSON text; what JSON cannot say is told in a text inside it."""
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, UnicodeError, RecursionError):
        return as_json({"arguments": as_json(arguments)})


Block = dict[str, Any]


class TurnWriter(ABC):
    """Writes turns that were fitted to a receiver."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.messages: list[Any] = []

    def write(self, turns: Iterable[NeutralTurn]) -> list[Any]:
        """Give the list."""
        for turn in turns:
            self.speech(turn)
            if turn.answers:
                self.results(turn.answers)
        return self.messages

    @abstractmethod
    def speech(self, turn: NeutralTurn) -> None:
        """Write what is said in a turn, and its calls."""

    @abstractmethod
    def results(self, answers: list[NeutralResult]) -> None:
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
        return alone.text if isinstance(alone, TextPiece) else self.blocks(pieces, role)

    def arguments(self, call: NeutralCall) -> str:
        """Write a call's arguments as JSON text."""
        return arguments_text(as_object(call.arguments))


class GroupedWriter(TurnWriter):
    """Shared by formats in which the results of a turn stand in one message of the user."""

    container = "content"
    assistant = "assistant"

    def speech(self, turn: NeutralTurn) -> None:
        blocks = self.blocks(turn.pieces, turn.role) + [self.call(call) for call in turn.calls]
        self.put(self.assistant if turn.role == ASSISTANT else turn.role, blocks)

    def results(self, answers: list[NeutralResult]) -> None:
        self.messages.append({"role": USER, self.container: [self.result(a) for a in answers]})

    def put(self, role: str, blocks: list[Block]) -> None:
        """Add a message; what the user says behind results stands in their message."""
        before = self.messages[-1] if self.messages else None
        if before is not None and before["role"] == role == USER:
            before[self.container] += blocks
        else:
            self.messages.append({"role": role, self.container: blocks})

    @abstractmethod
    def call(self, call: NeutralCall) -> Block:
        """Write a call."""

    @abstractmethod
    def result(self, answer: NeutralResult) -> Block:
        """Write a result."""

    def shown(self, answer: NeutralResult) -> list[Block]:
        """Write what a result carries as blocks, without the blank ones."""
        pieces = joined(answer.pieces)
        kept = [p for p in pieces if isinstance(p, Picture) or not is_blank_text(p.text)]
        return self.blocks(kept, USER)


class AnthropicWriter(GroupedWriter):
    """Writes ``text``, ``image``, ``tool_use`` and ``tool_result`` blocks."""

    def speech(self, turn: NeutralTurn) -> None:
        super().speech(turn)
        if turn.calls and self.profile.reasoning_required:
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            self.messages[-1]["content"].insert(0, empty)

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"type": "text", "text": piece.text}
        source = {"type": "url", "url": piece.url}
        if piece.data:
            source = {"type": "base64", "media_type": piece.kind, "data": piece.data}
        return {"type": "image", "source": source}

    def call(self, call: NeutralCall) -> Block:
        given = as_object(call.arguments)
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}

    def result(self, answer: NeutralResult) -> Block:
        pictured = any(isinstance(piece, Picture) for piece in answer.pieces)
        content = self.shown(answer) if pictured else answer.text
        block = {"type": "tool_result", "tool_use_id": answer.call.id, "content": content}
        return {**block, "is_error": True} if answer.failed else block


class BedrockWriter(GroupedWriter):
    """Writes ``text``, ``image``, ``toolUse`` and ``toolResult`` blocks."""

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"text": piece.text}
        kind = piece.kind.removeprefix("image/")
        return {"image": {"format": kind, "source": {"bytes": piece.data}}}

    def call(self, call: NeutralCall) -> Block:
        given = as_object(call.arguments)
        return {"toolUse": {"toolUseId": call.id, "name": call.name, "input": given}}

    def result(self, answer: NeutralResult) -> Block:
        block = {"toolUseId": answer.call.id, "content": self.shown(answer)}
        return {"toolResult": {**block, "status": "error"} if answer.failed else block}


class GeminiWriter(GroupedWriter):
    """Writes ``text``, ``inlineData``, ``functionCall`` and ``functionResponse`` parts."""

    container = "parts"
    assistant = "model"

    def put(self, role: str, blocks: list[Block]) -> None:
        self.messages.append({"role": role, "parts": blocks})

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"text": piece.text}
        return {"inlineData": {"mimeType": piece.kind, "data": piece.data}}

    def call(self, call: NeutralCall) -> Block:
        given = as_object(call.arguments)
        return {"functionCall": {"id": call.id, "name": call.name, "args": given}}

    def result(self, answer: NeutralResult) -> Block:
        call, key = answer.call, "error" if answer.failed else "output"
        block: Block = {"id": call.id, "name": call.name, "response": {key: answer.text}}
        pictures = [piece for piece in answer.pieces if isinstance(piece, Picture)]
        if pictures:
            block["parts"] = self.blocks(pictures, USER)
        return {"functionResponse": block}


class ChatWriter(TurnWriter):
    """Writes ``tool_calls`` beside the content, and a message of role ``tool`` for each result."""

    def speech(self, turn: NeutralTurn) -> None:
        message: Block = {"role": turn.role, "content": self.content(turn.pieces, turn.role)}
        if turn.calls:
            if not turn.pieces and self.profile.null_content != "never":
                message["content"] = None
            message["tool_calls"] = [self.call(call) for call in turn.calls]
            if self.profile.reasoning_required:
                message["reasoning_content"] = ""
        self.messages.append(message)

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"type": "text", "text": piece.text}
        return {"type": "image_url", "image_url": {"url": address_of(piece)}}

    def call(self, call: NeutralCall) -> Block:
        """Write a call."""
        function = {"name": call.name, "arguments": self.arguments(call)}
        return {"id": call.id, "type": "function", "function": function}

    def results(self, answers: list[NeutralResult]) -> None:
        self.messages += [
            {"role": "tool", "tool_call_id": answer.call.id, "content": answer.text}
            for answer in answers
        ]


class ResponsesWriter(TurnWriter):
    """Writes an item for each message, call and output."""

    def speech(self, turn: NeutralTurn) -> None:
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

    def call(self, call: NeutralCall) -> Block:
        """Write a call."""
        return {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": self.arguments(call),
        }

    def results(self, answers: list[NeutralResult]) -> None:
        for answer in answers:
            output = self.content(joined(answer.pieces), USER)
            item = {"type": "function_call_output", "call_id": answer.call.id, "output": output}
            self.messages.append(item)


class LangChainWriter(TurnWriter):
    """Writes bare dicts of type ``human``, ``ai``, ``system`` and ``tool``."""

    def speech(self, turn: NeutralTurn) -> None:
        content = self.content(turn.pieces, turn.role)
        message: Block = {"type": _LANGCHAIN[turn.role], "content": content}
        if turn.role == ASSISTANT:
            message["tool_calls"] = [self.call(call) for call in turn.calls]
        self.messages.append(message)

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"type": "text", "text": piece.text}
        return {"type": "image_url", "image_url": {"url": address_of(piece)}}

    def call(self, call: NeutralCall) -> Block:
        """Write a call."""
        given = as_object(call.arguments)
        return {"name": call.name, "args": given, "id": call.id, "type": "tool_call"}

    def results(self, answers: list[NeutralResult]) -> None:
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


WRITERS: dict[str, type[TurnWriter]] = {
    "anthropic": AnthropicWriter,
    "openai-chat": ChatWriter,
    "openai-responses": ResponsesWriter,
    "gemini": GeminiWriter,
    "bedrock": BedrockWriter,
    "langchain": LangChainWriter,
}
