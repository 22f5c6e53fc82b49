"""Render a list of one dialect in another.

Words, calls, results and their pairing are carried over, and images where both sides know them.
Reasoning is bound to its issuer and stays behind; tools that a provider ran itself become labelled
text. A list without findings becomes a list without findings, whoever receives it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from lockstitch.conversation.pairing import ANSWER, FLAT, Zone, pair_messages
from lockstitch.conversation.parts import (
    ASSISTANT,
    BROKEN,
    CALL,
    MEDIA,
    REASONING,
    RESULT,
    TEXT,
    USER,
    Message,
    Part,
    Path,
    Place,
)
from lockstitch.dialects.base import Dialect, as_json, as_text, text_of_blocks
from lockstitch.dialects.exchange import exchange_of
from lockstitch.dialects.fast import encoded_size
from lockstitch.dialects.media import ACCEPTED, head_of, images_in, is_decodable, sniff
from lockstitch.dialects.profiles import Profile, new_dialect, profile_named
from lockstitch.dialects.script import (
    NOT_CARRIED,
    UNNAMED,
    Ids,
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Picture,
    Piece,
    TextPiece,
    TurnWriter,
    drop_pictures,
    fit_turns,
    inline_size,
    is_blank_text,
    join_texts,
)

_IMAGES = ("image", "image_url", "input_image")
_DOCUMENT = "[document]\n{text}"
_LABELS = ("media_type", "mimeType", "mime_type", "format")
_PAYLOADS = ("data", "bytes", "base64", "file_data")
_ADDRESSES = ("url", "uri", "fileUri", "file_uri", "file_id", "image_url", "file_url")
_WEB = ("https://", "http://")
_NESTED = 3


def piece_of_media(part: Part, place: str) -> tuple[Piece, bool]:
    """Return a media part as a piece, and whether more than its name is kept."""
    raw = part.raw if isinstance(part.raw, dict) else {}
    data: str | bytes = next((image.data for image in images_in(part)), "")
    if not data and part.flavor == "image":
        # LangChain has two spellings of its own for inline data
        own = raw.get("base64") or (raw.get("data") if raw.get("source_type") == "base64" else "")
        data = own if isinstance(own, str) else ""
    kind = sniff(head_of(data)) if data else ""
    if kind in ACCEPTED and is_decodable(data):
        plain = b64encode(data).decode() if isinstance(data, bytes) else "".join(data.split())
        return Picture(place=place, kind=kind, data=plain), True
    fields = _flat(raw, _NESTED)
    url = _address(fields) if part.flavor in _IMAGES and not data else ""
    if url.startswith(_WEB):
        return Picture(place=place, url=url), True
    text = _document_text(raw)
    if text:
        return TextPiece(_DOCUMENT.format(text=text)), True
    return TextPiece(NOT_CARRIED.format(what=_describe(part.flavor, fields))), False


def _flat(value: dict[str, Any], depth: int) -> dict[Any, Any]:
    """Return the fields of a block and of the objects in it; those further out win."""
    inner = [field for field in value.values() if isinstance(field, dict)] if depth else []
    fields = {key: field for key, field in value.items() if not isinstance(field, dict)}
    for nested in inner:
        fields = {**_flat(nested, depth - 1), **fields}
    return fields


def _address(fields: dict[Any, Any]) -> str:
    return next((fields[key] for key in _ADDRESSES if isinstance(fields.get(key), str)), "")


def _document_text(raw: dict[str, Any]) -> str:
    """Return the words of a document that is text, "" for any other."""
    inner = raw.get("document")
    source = (inner if isinstance(inner, dict) else raw).get("source")
    if not isinstance(source, dict):
        return ""
    text = source.get("data") if source.get("type") == "text" else source.get("text")
    content = source.get("content")
    return text if isinstance(text, str) else text_of_blocks(content or None)


def _describe(flavor: str, fields: dict[Any, Any]) -> str:
    """Name media by their type and size, or by where they are."""
    label = next((fields[key] for key in _LABELS if isinstance(fields.get(key), str)), flavor)
    payload = next(
        (fields[key] for key in _PAYLOADS if isinstance(fields.get(key), str | bytes)), ""
    )
    if payload:
        return f"{label}, {inline_size(payload)}"
    address = _address(fields)
    return f"{label} at {address}" if address and not address.startswith("data:") else label


_DECODE = msgspec.json.Decoder().decode
_NUL = re.compile("\x00")
# State that only its issuer can read, and marks that mean nothing to a model.
_BOUND = ("item_reference", "compaction_trigger")
_MARKS = ("cachePoint",)
_UNSAID = ("type", "cache_control")
_SIGNATURES = ("thoughtSignature", "thought_signature")
_SEALED = ("encrypted_content", "encrypted_index", "signature", *_SIGNATURES)
# A text this long without any other character is a payload, not words.
_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]{4096,}")
_SPOKEN = ("refusal", "citationsContent", "guardContent")
_NATURAL_NAMES = {
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
    "computer_call": "computer",
    "tool_search_call": "tool_search",
}
_NATIVE_ARGUMENTS = ("action", "operation", "arguments", "actions")


class TurnReader:
    """Reads one list into ``turns``; ``gone`` has the places of what is left out."""

    def __init__(self, dialect: Dialect, list_key: str, raw: Sequence[Any]) -> None:
        self.dialect = dialect
        self.list_key = list_key
        self.messages = dialect.read(raw)
        paired = pair_messages(self.messages, dialect.layout, dialect)
        self.calls = {id(one.part): one for one in paired.calls}
        self.answering = {id(one.part) for one in paired.results if one.verdict == ANSWER}
        self.turns: list[NeutralTurn] = []
        # the batch to which the calls of the last turn belong
        self.zone: Zone | None = None
        self.gone: list[str] = []

    def run(self) -> list[NeutralTurn]:
        """Read the whole list, and return its turns."""
        for message in self.messages:
            self._message(message)
        for turn in self.turns:
            turn.answers.sort(key=lambda answer: answer.order)
        return self.turns

    def _message(self, message: Message) -> None:
        if message.flaw and not message.parts:
            # a value that is no message is kept only if it is a text
            if isinstance(message.raw, str):
                self.turns.append(NeutralTurn(USER, [TextPiece(message.raw)]))
            else:
                self._leave_out(message.index, ())
            return
        role, label = self.dialect.speaker(message)
        pieces: list[Piece] = [TextPiece(label)] if label else []
        for part in message.parts:
            if part.kind != CALL and id(part) not in self.answering:
                pieces += self._pieces(part, message)
        pieces += self._beside(message)
        calls = [part for part in message.parts if part.kind == CALL]
        if calls:
            self._add_calls(pieces, calls)
        elif pieces or not message.parts:
            self.turns.append(NeutralTurn(role, pieces))

    def _add_calls(self, pieces: list[Piece], parts: list[Part]) -> None:
        """Add calls to the turn they belong to; a batch may span several messages."""
        zone = self.calls[id(parts[0])].zone
        turn = self.turns[-1] if self.turns else NeutralTurn(USER, [])
        continues = self.zone is zone if turn.calls else self.dialect.layout == FLAT
        if turn.role != ASSISTANT or not continues:
            turn = NeutralTurn(ASSISTANT, [])
            self.turns.append(turn)
        self.zone = zone
        turn.pieces += pieces
        for part in parts:
            self._note_signature(part)
            name = part.name or _NATURAL_NAMES.get(part.flavor, UNNAMED)
            call = NeutralCall(part.id or "", name, arguments_of(self.dialect, part))
            turn.calls.append(call)
            answer = self.calls[id(part)].answer
            if answer is not None:
                result = answer.part
                pieces, failed = (
                    join_texts(self._payload_pieces(result)),
                    is_failed(self.dialect, result),
                )
                turn.answers.append(NeutralResult(call, answer.order, pieces, failed))

    def _payload_pieces(self, part: Part) -> list[Piece]:
        """Return the payload of a result: its blocks if it has any, else its text and its media."""
        payload = self.dialect.payload(part)
        if not isinstance(payload, list):
            media = [self._media(inner, part) for inner in self.dialect.result_media(part)]
            text = self.dialect.result_text(part)
            return [TextPiece(text), *media] if text or not media else media
        pieces: list[Piece] = []
        for block in self.dialect.read([{"role": "user", "content": payload}])[0].parts:
            if block.kind == TEXT:
                pieces.append(TextPiece(block.text))
            elif block.kind == MEDIA:
                pieces.append(self._media(block, part))
            else:
                pieces.append(self._describe(block, part))
        return pieces

    def _describe(self, part: Part, holder: Part) -> Piece:
        text, is_whole = describe_block(part)
        if not is_whole:
            self._leave_out(holder.home, holder.at)
        return TextPiece(text)

    def _pieces(self, part: Part, message: Message) -> list[Piece]:
        if part.kind == TEXT:
            self._note_signature(part)
            return [TextPiece(part.text)]
        if part.kind == MEDIA:
            return [self._media(part, part)]
        if part.kind == RESULT:
            return [TextPiece(f"[tool result {part.id or ''}]"), *self._payload_pieces(part)]
        # LangChain's content repeats the calls that ``tool_calls`` lists
        is_twin = part.flavor in ("twin", "raw-twin") and any(
            other.kind == CALL and other.id == part.id for other in message.parts
        )
        if part.flavor in _MARKS or is_twin:
            return []
        raw = part.raw if isinstance(part.raw, dict) else {}
        is_sealed = bool(raw.get("encrypted_content")) and not isinstance(raw.get("content"), str)
        if part.kind in (REASONING, BROKEN) or part.flavor in _BOUND or is_sealed:
            self._leave_out(part.home, part.at)
            return []
        return [self._describe(part, part)]

    def _media(self, part: Part, holder: Part) -> Piece:
        piece, kept = piece_of_media(
            part, str(Place.in_list(self.list_key, holder.home, holder.at))
        )
        if not kept:
            self._leave_out(holder.home, holder.at)
        return piece

    def _leave_out(self, home: int, at: Path) -> None:
        self.gone.append(str(Place.in_list(self.list_key, home, at)))

    def _note_signature(self, part: Part) -> None:
        """List the signature of a thought as left out: Gemini puts it on the part it led to."""
        if isinstance(part.raw, dict):
            for key in self.dialect.signature_keys:
                if part.raw.get(key):
                    self._leave_out(part.home, (*part.at, key))

    def _beside(self, message: Message) -> list[Piece]:
        """Return what an assistant says outside the content, in formats that have such fields."""
        fields, path = self.dialect.beside_content(message)
        pieces: list[Piece] = []
        if isinstance(fields.get("refusal"), str) and fields["refusal"]:
            pieces.append(TextPiece(fields["refusal"]))
        if isinstance(fields.get("function_call"), dict):
            pieces.append(TextPiece(f"[function_call] {as_json(fields['function_call'])}"))
        if fields.get("audio"):
            pieces.append(TextPiece(NOT_CARRIED.format(what="audio")))
        for key in ("audio", "reasoning_content"):
            if fields.get(key):
                self._leave_out(message.index, (*path, key))
        return pieces


def arguments_of(dialect: Dialect, part: Part) -> Any:
    """Return a call's decoded arguments; free text and native actions become an object."""
    value = dialect.arguments(part)
    if value is UNSET:
        raw = part.raw
        custom = raw.get("custom")
        text = custom.get("input") if isinstance(custom, dict) else raw.get("input")
        if text is not None:
            return {"input": text}
        found = next((key for key in _NATIVE_ARGUMENTS if raw.get(key)), None)
        native = raw[found] if found else {}
        return native if isinstance(native, dict) else {found: native}
    if part.flavor == "invalid_tool_calls":
        value = part.raw.get("args")
    if not isinstance(value, str):
        return value
    try:
        decoded = _DECODE(value)
        return _without_nul(decoded) if "\\u0000" in value else decoded
    except (ValueError, RecursionError, UnicodeError):
        return value


def _without_nul(value: Any) -> Any:
    """Return a copy of decoded JSON without NULs, which no object may hold."""
    if isinstance(value, str):
        return _NUL.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(inner) for key, inner in value.items()}
    return [_without_nul(inner) for inner in value] if isinstance(value, list) else value


def is_failed(dialect: Dialect, part: Part) -> bool:
    """Whether a result says that its call failed."""
    outcome = dialect.outcome(part)
    if outcome.get("is_error") is True or outcome.get("status") in ("error", "failed"):
        return True
    response = outcome.get("response")
    return isinstance(response, dict) and list(response) == ["error"]


def describe_block(part: Part) -> tuple[str, bool]:
    """Return a block that no other format has as text, and whether that says all of it.

    The text is the block's words, or its fields after its name.
    """
    raw = part.raw if isinstance(part.raw, dict) else {}
    value = raw.get(part.flavor, raw)
    if part.flavor == "json":
        return as_json(value), True
    if isinstance(raw.get("text"), str):
        return raw["text"], True
    cut: list[str] = []
    try:
        words = _words_in(value) if part.flavor in _SPOKEN else ""
        return words or f"[{part.flavor}] {as_text(_slim(value, cut))}", not cut
    except RecursionError:
        return f"[{part.flavor}]", False


def _words_in(value: Any) -> str:
    if isinstance(value, dict):
        return _words_in(value.get("content", value.get("text")))
    return text_of_blocks(value)


def _slim(value: Any, cut: list[str]) -> Any:
    """Return a copy of a value without sealed content, and with payloads named by their size."""
    if isinstance(value, dict):
        cut += [key for key in value if key in _SEALED]
        unsaid = (*_UNSAID, *_SEALED)
        return {key: _slim(inner, cut) for key, inner in value.items() if key not in unsaid}
    if isinstance(value, list):
        return [_slim(inner, cut) for inner in value]
    if isinstance(value, bytes) or (isinstance(value, str) and _ENCODED.fullmatch(value)):
        cut.append(NOT_CARRIED.format(what=inline_size(value)))
        return cut[-1]
    return value


def render(raw: Sequence[Any], source: str, target: str) -> list[Any]:
    """Render a list of dialect ``source`` as a list of dialect ``target``.

    The same name on both sides gives the same list; another profile of the same dialect is another
    receiver. Values inside, such as arguments, are shared with the original list.
    """
    if source == target:
        return raw if isinstance(raw, list) else list(raw)
    return _render(raw, source, target)[0]


def find_left_out(raw: Sequence[Any], source: str, target: str) -> list[str]:
    """Return the places that ``render`` leaves out or replaces by their size."""
    if source == target:
        return []
    return _render(raw, source, target)[1]


def read_turns(raw: Sequence[Any], source: str) -> list[NeutralTurn]:
    """Read a list of dialect ``source`` as turns in no dialect's spelling."""
    issuer = profile_named(source)
    return TurnReader(new_dialect(issuer.dialect), issuer.list_key, raw).run()


def write_turns(
    turns: list[NeutralTurn], target: str, *, opens: bool = True, ids: Ids | None = None
) -> list[Any]:
    """Write turns for dialect ``target``; unless they open a list, any role may begin.

    ``ids`` holds the ids of what was written before these turns, and receives theirs.
    """
    receiver = profile_named(target)
    if len(turns) == 1 and turns[0].role == USER and len(turns[0].pieces) == 1:
        words = turns[0].pieces[0]
        if isinstance(words, TextPiece) and not is_blank_text(words.text):
            # every receiver takes a single text of the user as it is
            return _writer(receiver).write(turns)
    gone: list[str] = []
    fitted = fit_turns(turns, _writer(receiver), gone, opens=opens, ids=ids)
    return _write_within_limit(fitted, receiver, gone)


def _render(raw: Sequence[Any], source: str, target: str) -> tuple[list[Any], list[str]]:
    issuer, receiver = profile_named(source), profile_named(target)
    reader = TurnReader(new_dialect(issuer.dialect), issuer.list_key, raw)
    turns = fit_turns(reader.run(), _writer(receiver), reader.gone)
    return _write_within_limit(turns, receiver, reader.gone), list(dict.fromkeys(reader.gone))


def _write_within_limit(turns: list[NeutralTurn], receiver: Profile, gone: list[str]) -> list[Any]:
    """Write turns, with fewer pictures if the list would be too large."""
    written = _writer(receiver).write(turns)
    over = encoded_size(written) - receiver.max_bytes if receiver.max_bytes else 0
    if over <= 0:
        return written
    drop_pictures(turns, over, gone)
    return _writer(receiver).write(turns)


def _writer(receiver: Profile) -> TurnWriter:
    return exchange_of(receiver.dialect).writer(receiver)
