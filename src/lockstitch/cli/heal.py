"""``lockstitch heal``: a conversation in, one that the provider accepts out."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

import lockstitch
from lockstitch.cli import render, terminal
from lockstitch.cli.options import DIALECT, JSON, MODEL, OVERWRITE, Command, Operand, option
from lockstitch.cli.render import STDIN
from lockstitch.cli.terminal import CLEAN, FINDINGS
from lockstitch.conversation.json_text import dump, member_spans, replace_items
from lockstitch.dialects.recognize import confirm_dialect
from lockstitch.errors import Unreadable, UsageError
from lockstitch.files.read import read_file, read_stream, reading_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch import Plan


_MANY = (
    "it holds a request on every line: `lockstitch repair` repairs each of them in place, and heal "
    "takes one of them, in a file of its own"
)


def run(  # noqa: PLR0913 - one keyword an option
    *,
    file: str | None,
    dialect: str | None,
    model: str | None,
    output: str | None,
    force: bool,
    diff: bool,
    as_json: bool,
) -> int:
    """Heal one conversation, print it and what was done, and return the exit status."""
    if diff and as_json:
        raise UsageError("--diff and --json exclude each other")
    [target] = input_names([file] if file else [])
    if output is not None:
        from lockstitch.cli.targets import write_copy

        write_copy(output, None, target, force=force)
    try:
        document = read_document(target)
        if document.requests:
            raise Unreadable(_MANY)  # noqa: TRY301 - named below, like any other
        with limits_as_errors():
            named = confirm_dialect(document.value, dialect)
            plan = lockstitch.plan(document.value, named, model=model)
            data = encode_document(document, plan.messages)
            shown = _difference(document, plan.messages) if diff else data
            if as_json:
                shown = render.encode_json(
                    target=target,
                    dialect=plan.dialect,
                    changed=plan.changed,
                    findings=plan.findings,
                    edits=plan.edits,
                    changes=plan.changes,
                    quarantine=plan.quarantine,
                    remaining=plan.remaining,
                )
    except Unreadable as error:
        error.about(render.target_name(target))
        raise
    if output is not None:
        write_copy(output, data, target, force=force)
    if diff:
        terminal.emit(shown)
    elif output is None or as_json:
        terminal.emit_json(shown)
    _print_summary(target, plan)
    return FINDINGS if plan.remaining else CLEAN


def _difference(document: MessageDocument, healed: object) -> bytes:
    """Return a unified diff of both as indented JSON, whatever the line breaks of the file."""
    if healed is document.value:
        return b""
    from difflib import unified_diff

    old, new = (dump(value, indent=2).splitlines() for value in (document.value, healed))
    name = render.target_name(document.target)
    text = ""
    for line in unified_diff(old, new, name, f"{name} (healed)", lineterm=""):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[0])
        safe = terminal.escape_controls(line)
        text += f"{terminal.paint(safe, style) if style else safe}\n"
    return text.encode("utf-8", "backslashreplace")


def _print_summary(target: str, plan: Plan) -> None:
    """Print what was done, or why nothing could be, on stderr."""
    for found in plan.remaining:
        terminal.note(render.describe_finding(target, plan.dialect, found))
    if not plan.healed:
        terminal.note(
            f"Not healed; the original is unchanged. Left: {render.count_findings(plan.remaining)}."
        )
        return
    for made in plan.changes:
        terminal.note(render.describe_change(target, made))
    for kept in plan.quarantine:
        terminal.note(render.describe_quarantined(target, kept))
    repaired = render.count_findings([found for found in plan.findings if found.fixable])
    if plan.changed:
        terminal.note(f"Healed {repaired}.")
    elif not plan.remaining:
        terminal.note("All clean.")
    if plan.remaining:
        terminal.note(f"Left: {render.count_findings(plan.remaining)}.")


# A message list or request body: what cannot be read is refused in one clear sentence, and what was
# not healed keeps its bytes

LIST_KEYS = ("messages", "input", "contents")
_OWN_STREAM = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/\d+")


class MessageDocument(msgspec.Struct, frozen=True):
    """What was read: the bytes, and the list of messages or request body they hold.

    ``lines`` says that the bytes are one JSON value a line (JSONL).
    """

    target: str
    data: bytes
    value: Any
    lines: bool = False

    @property
    def messages(self) -> int:
        """How many messages the conversation has."""
        value = self.value
        if isinstance(value, dict):
            value = value[list_key(value)]
        return len(value) if isinstance(value, list) else 1

    @property
    def requests(self) -> list[tuple[int, dict[str, Any]]]:
        """The requests of a document of which every line is one, each with its line; or none."""
        is_body = (
            isinstance(body, dict) and "role" not in body and list_key(body) for body in self.value
        )
        if not self.lines or not all(is_body):
            return []
        numbers = [number for number, _ in numbered_lines(self.data)]
        return list(zip(numbers, self.value, strict=True))


def list_key(body: dict[str, Any]) -> str | None:
    """Return the key under which a request body holds its messages, if it is one."""
    return next((key for key in LIST_KEYS if key in body), None)


def input_names(files: list[str]) -> list[str]:
    """Return what to read: the files named, or stdin unless a person would have to type it."""
    if not files and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("nothing to read: give a FILE, or pipe JSON in")
    return files or [STDIN]


def read_document(target: str) -> MessageDocument:
    """Read a file, or stdin for ``-``, once; raises Unreadable."""
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
    """Turn the limits of this machine, reached by a hostile or huge input, into Unreadable."""
    try:
        yield
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except MemoryError:
        raise Unreadable("it needs more memory than this machine has left") from None


def _read_bytes(target: str) -> bytes:
    if target == STDIN:
        if sys.stdin is None:
            raise Unreadable("stdin is closed")
        return read_stream(sys.stdin.buffer)
    if _OWN_STREAM.fullmatch(target):
        # What a shell makes of <(…) is a stream of this process, as its standard input is.
        with reading_errors(), open(target, "rb", buffering=0) as file:  # noqa: PTH123 - start-up time
            return read_stream(file)
    return read_file(target)


def _decode(data: bytes) -> tuple[Any, bool]:
    try:
        return _json(data), False
    except json.JSONDecodeError as error:
        # a whole value on the first line, and more on the next
        before = error.doc[: error.pos]
        gap = before[len(before.rstrip()) :]
        if error.msg == "Extra data" and "\n" in gap and "\n" not in before.strip():
            return _decode_lines(data), True
        size = len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
        where = f"line {error.lineno} column {error.colno} (byte {size})"
        raise Unreadable(f"it is not JSON: {_parser_words(error)} at {where}") from None


def _json(data: bytes) -> Any:
    """Decode with msgspec, or with the standard library what msgspec refuses.

    That is lone surrogates, NaN, numbers beyond a float and encodings other than UTF-8.
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
    """Return the parser's words, of which some end with the "at" that follows here."""
    return error.msg.removesuffix(" at")


def numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a JSONL document that hold something, with their numbers."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield number, line


def decode_text(data: bytes) -> str:
    """Return the bytes of a JSON document as text, in the encoding that JSON's own rules find."""
    encoding = json.detect_encoding(data)
    if encoding == "utf-8" and b"\0" in data[:4096]:
        raise Unreadable("it is binary, not JSON")
    try:
        return data.decode(encoding, "surrogatepass")
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is binary, or not UTF-8 (byte {error.start})") from None


_FULL_LINE = re.compile(r"^[^\n]*[^\s][^\n]*$", re.MULTILINE)


def encode_document(document: MessageDocument, healed: Any) -> bytes:
    """Return the bytes of the healed value: the document's own wherever nothing was changed."""
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


COMMAND = Command(
    name="heal",
    run=run,
    details=(
        "Prints the healed JSON on stdout and every change on stderr. What was not wrong keeps "
        "its bytes; if nothing was, the output is the input. Nothing is lost on the way: what "
        "had to leave the list is named, and --json holds it. If something cannot be healed, "
        "the original is printed and the exit status is 1."
    ),
    examples=(
        "lockstitch heal conversation.json > healed.json",
        "lockstitch heal conversation.json --diff",
        "lockstitch heal conversation.json -o healed.json",
        "curl -s $URL | lockstitch heal --dialect gemini - | jq .contents",
    ),
    operand=Operand("file", "FILE", "File to heal; - or none for stdin."),
    options=(
        DIALECT,
        MODEL,
        option(
            "--output -o FILE", "Write the healed JSON to a file, atomically, instead of stdout."
        ),
        OVERWRITE,
        option("--diff", "Print a unified diff instead of the healed JSON."),
        JSON,
    ),
)
