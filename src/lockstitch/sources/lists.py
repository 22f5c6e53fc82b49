"""Message lists and request bodies, in a file or on stdin: read once, checked, encoded again.

If the input cannot be read, one sentence says where and why. Parts that were not healed keep their
bytes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import structs

from lockstitch.conversation.json_text import dump, member_spans, replace_items
from lockstitch.dialects.recognize import confirm_dialect, messages_of
from lockstitch.errors import Unreadable, UsageError
from lockstitch.files.read import read_file, read_stream, reading_errors
from lockstitch.formats.interface import DOCUMENT, LINES
from lockstitch.formats.plain import Requests, dialect_in, doubt_of
from lockstitch.formats.repair import parse_file
from lockstitch.heal import check as check_list
from lockstitch.sources.source import Opened, Report, Source, Survey
from lockstitch.sources.targets import unknown_program

_STDIN = "-"

LIST_KEYS = ("messages", "input", "contents")
_OWN_STREAM = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/\d+")


class MessageDocument(msgspec.Struct, frozen=True):
    """A document: its bytes, and the list of messages or request body in them.

    ``lines`` says that the bytes are one JSON value for each line (JSONL).
    """

    target: str
    data: bytes
    value: Any
    lines: bool = False

    @property
    def messages(self) -> int:
        """The number of messages in the conversation."""
        value = self.value
        if isinstance(value, dict):
            value = value[list_key(value)]
        return len(value) if isinstance(value, list) else 1

    @property
    def requests(self) -> list[tuple[int, dict[str, Any]]]:
        """The requests in a document with one on every line, each with its line number; or none."""
        is_body = (
            isinstance(body, dict) and "role" not in body and list_key(body) for body in self.value
        )
        if not self.lines or not all(is_body):
            return []
        numbers = [number for number, _ in numbered_lines(self.data)]
        return list(zip(numbers, self.value, strict=True))


def list_key(body: dict[str, Any]) -> str | None:
    """Return the key of the messages in a request body; None if it is not one."""
    return next((key for key in LIST_KEYS if key in body), None)


def read_document(target: str) -> MessageDocument:
    """Read a file, or stdin for ``-``, once; raise ``Unreadable`` if that fails."""
    with limits_as_errors():
        data = _read_bytes(target)
        if not data or data.isspace():
            raise Unreadable("it is empty")
        value, lines = _decode(data)
        if isinstance(value, list) or (isinstance(value, dict) and list_key(value)):
            return MessageDocument(target, data, value, lines)
        is_message = isinstance(value, dict) and ("role" in value or "type" in value)
        if is_message and b"\n" not in data.strip():
            return MessageDocument(target, data, [value], lines=True)
        raise Unreadable(
            "it holds JSON, but neither a list of messages nor a request body "
            "with messages, input or contents"
        )


@contextmanager
def limits_as_errors() -> Iterator[None]:
    """Turn an error about this machine's limits, caused by huge input, into ``Unreadable``."""
    try:
        yield
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except MemoryError:
        raise Unreadable("it needs more memory than this machine has left") from None


def _read_bytes(target: str) -> bytes:
    if target == _STDIN:
        if sys.stdin is None:
            raise Unreadable("stdin is closed")
        return read_stream(sys.stdin.buffer)
    if _OWN_STREAM.fullmatch(target):
        # A shell's <(…) names a pipe of this process, just as standard input is one.
        with reading_errors(), open(target, "rb", buffering=0) as file:  # noqa: PTH123 - start-up time
            return read_stream(file)
    return read_file(target)


def _decode(data: bytes) -> tuple[Any, bool]:
    try:
        return _json(data), False
    except json.JSONDecodeError as error:
        # a whole value on the first line, and more values after it
        before = error.doc[: error.pos]
        gap = before[len(before.rstrip()) :]
        if error.msg == "Extra data" and "\n" in gap and "\n" not in before.strip():
            return _decode_lines(data), True
        size = len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
        where = f"line {error.lineno} column {error.colno} (byte {size})"
        raise Unreadable(f"it is not JSON: {_parser_words(error)} at {where}") from None


def _json(data: bytes) -> Any:
    """Decode with msgspec, or with the standard library if msgspec refuses.

    It refuses lone surrogates, NaN, numbers beyond a float and encodings other than UTF-8.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = decode_text(data)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        raise Unreadable("it holds an integer too long to read") from None


def _decode_lines(data: bytes) -> list[Any]:
    values: list[Any] = []
    for number, line in numbered_lines(data):
        try:
            values.append(_json(line))
        except json.JSONDecodeError as error:
            where = f"line {number} column {error.colno}"
            raise Unreadable(f"it is not JSONL: {_parser_words(error)} at {where}") from None
    return values


def _parser_words(error: json.JSONDecodeError) -> str:
    """Return the parser's message without a final "at", which the caller adds."""
    return error.msg.removesuffix(" at")


def numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the non-empty lines of a JSONL document, with their numbers."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield number, line


def decode_text(data: bytes) -> str:
    """Return the text of a JSON document, in the encoding that JSON's rules determine."""
    encoding = json.detect_encoding(data)
    if encoding == "utf-8" and b"\0" in data[:4096]:
        raise Unreadable("it is binary, not JSON")
    try:
        return data.decode(encoding, "surrogatepass")
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is binary, or not UTF-8 (byte {error.start})") from None


_FULL_LINE = re.compile(r"^[^\n]*[^\s][^\n]*$", re.MULTILINE)


def encode_document(document: MessageDocument, healed: Any) -> bytes:
    """Return the bytes of the healed value, keeping the document's own where nothing changed."""
    if healed is document.value:
        return document.data
    text = decode_text(document.data)
    if document.lines:
        spans = [match.span() for match in _FULL_LINE.finditer(text)]
        text = replace_items(text, spans, document.value, healed)
    elif isinstance(healed, dict):
        text = _encode_body(text, document.value, healed)
    else:
        text = replace_items(text, member_spans(text), document.value, healed)
    return text.encode("utf-8", "surrogatepass")


def _encode_body(text: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    spans = member_spans(text)
    if len(spans) != len(old) or new.keys() != old.keys():
        return dump(new, indent=2 if "\n" in text.strip() else None)
    for key, (start, end) in reversed(list(zip(old, spans, strict=True))):
        if new[key] is old[key]:
            continue
        part = text[start:end]
        both_lists = isinstance(new[key], list) and isinstance(old[key], list)
        part = (
            replace_items(part, member_spans(part), old[key], new[key])
            if both_lists
            else dump(new[key])
        )
        text = text[:start] + part + text[end:]
    return text


class ListSource(Source, frozen=True):
    """One message list, one request, or a request on every line; its path may be ``-`` for stdin.

    It is checked as something about to be sent, in the dialect and for the model of the survey.
    """

    def open(self, *, follow_symlinks: bool = False, search: bool = False) -> Opened:
        document = read_document(self.path)
        kind = LINES if document.lines else DOCUMENT
        return Opened(self, parse_file(self.form, kind, self.path, document.data))

    def reports(self, survey: Survey, title: str = "Checking") -> Iterator[Report]:
        try:
            with limits_as_errors():
                yield self._report(read_document(self.path), survey)
        except (Unreadable, UsageError) as error:
            yield Report(self.path, error=str(error))

    def _report(self, document: MessageDocument, survey: Survey) -> Report:
        """Check a document, as a whole or line by line."""
        dialect, value, requests = survey.dialect, document.value, document.requests
        if dialect is None:
            like = Requests().doubt(value) if requests else doubt_of(value)
            if like:
                return Report(self.path, error=unknown_program(like))
        if not requests:
            dialect, count = confirm_dialect(value, dialect), document.messages
            findings = check_list(value, dialect, model=survey.model)
            report = Report(self.path, "list", messages=count, reachable=count, findings=findings)
        else:
            dialect, report = dialect or dialect_in(value), Report(self.path, "requests")
            report.messages = sum(len(messages_of(body)) for _, body in requests)
            report.reachable = len(requests)
            report.findings = [
                structs.replace(found, place=f"{line}.{found.place}")
                for line, body in requests
                for found in check_list(body, dialect, model=survey.model)
            ]
        report.dialect = dialect
        return report
