"""JSON as text: read whatever is in it, and change it so that everything else keeps its bytes.

An integer of thousands of digits, a number beyond a float and lists within a thousand lists are
valid JSON. Other programs read them, but no decoder here does. Such a piece becomes a
``msgspec.Raw`` of its own bytes, which msgspec and ``dump`` write back as it was; everything around
it is decoded as usual. So a piece that cannot be read here keeps its bytes and does not count as
damaged.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from json import JSONDecodeError, JSONDecoder
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from msgspec import Raw

# Python refuses to convert longer integers, since that takes time by the square of their length.
LONGEST = 4300
# Deeper than any program nests its own records; the arguments of a tool may be deeper.
DEEPEST = 100

_DIGIT = re.compile(rb"\d")
_DIGITS = re.compile(rb"\d*+")
# Less than ``LONGEST``, so that every run that is too long covers a sampled byte.
_STEP = 4096
# A number of this many digits still fits into 64 bits.
_LONGEST_INDEX = 18

_SPACE = re.compile(r"[ \t\r\n]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(\.\d++)?([eE][-+]?\d++)?", re.ASCII)
_WORDS = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_CLOSERS = {"{": "}", "[": "]"}


def decode(text: str, *, strict: bool = True, constants: bool = True) -> Any:
    """Return the value of a JSON text, with pieces that cannot be read left as ``Raw``.

    Raises ValueError if the text is not JSON. Without ``constants`` that includes ``NaN`` and
    ``Infinity``, which Python writes and no provider takes.
    """
    value, end = raw_decode(text, skip_space(text, 0), strict=strict, constants=constants)
    end = skip_space(text, end)
    if end != len(text):
        raise JSONDecodeError("Extra data", text, end)
    return value


class TooDeep(ValueError):
    """A deeply nested value is not JSON, or was not read; ``reached`` is where reading ended."""

    def __init__(self, reached: int) -> None:
        super().__init__("the value that starts here is nested deeply, and was not read to its end")
        self.reached = reached


def raw_decode(
    text: str, at: int = 0, *, strict: bool = True, deep: bool = True, constants: bool = True
) -> tuple[Any, int]:
    """Return the value that starts at a position in a text, and where it ends.

    Without ``strict`` a string may hold raw control characters. Without ``deep`` no deeply nested
    value is read. Raises ValueError if no value starts there, and TooDeep if a deeply nested one is
    broken or not to be read.
    """
    try:
        return _DECODERS[strict, constants].raw_decode(text, at)
    except RecursionError:
        pass
    try:
        if deep:
            return _JsonReader(text, strict).read(at)
    except JSONDecodeError as error:
        raise TooDeep(error.pos) from None
    raise TooDeep(at)


def is_json(text: str) -> bool:
    """Whether a text is JSON, however long and deep it is."""
    try:
        decode(text)
    except ValueError:
        return False
    return True


def raw_pieces(value: Any) -> Iterator[bytes]:
    """Yield the pieces of a value that were left as ``Raw``, in no particular order."""
    rest = [value]
    while rest:
        one = rest.pop()
        if type(one) is dict:
            rest += one.values()
        elif type(one) is list:
            rest += one
        elif type(one) is Raw:
            yield bytes(one)


def has_unread(value: Any) -> bool:
    """Whether part of a value is left as text because it is too long or nested too deeply.

    A number beyond a float is left as text, too, but does not count.
    """
    return any(piece[:1] in b"[{" or len(piece) > LONGEST for piece in raw_pieces(value))


def has_long_number(data: bytes) -> bool:
    """Whether so many digits stand in a row that they may be an integer too long to read.

    A run of more than ``LONGEST`` digits covers at least one of the sampled bytes, so only the runs
    at samples are measured.
    """
    for sample in _DIGIT.finditer(data[::_STEP]):
        at = sample.start() * _STEP
        before = data[max(0, at - LONGEST) : at]
        run = _DIGITS.match(data, at)
        behind = run.end() - at if run else 0
        if len(before) - len(before.rstrip(b"0123456789")) + behind > LONGEST:
            return True
    return False


def is_index(text: str) -> bool:
    """Whether a text is a number that counts something: digits, and few enough not to be a key.

    Python refuses to convert long ones, and ``str.isdigit`` accepts characters that are not
    numbers.
    """
    return len(text) <= _LONGEST_INDEX and text.isdecimal()


def _parse_integer(digits: str) -> int | Raw:
    return int(digits) if len(digits) <= LONGEST else Raw(digits.encode())


def _parse_fraction(digits: str) -> float | Raw:
    number = float(digits)
    return number if math.isfinite(number) else Raw(digits.encode())


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


_DECODERS = {
    (strict, constants): JSONDecoder(
        strict=strict,
        parse_int=_parse_integer,
        parse_float=_parse_fraction,
        parse_constant=None if constants else _refuse_constant,
    )
    for strict in (True, False)
    for constants in (True, False)
}


def skip_space(text: str, at: int) -> int:
    """Return the first position from here on that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


class _JsonReader:
    """Reads one value without recursion; a value nested too deeply is only checked."""

    def __init__(self, text: str, strict: bool) -> None:
        self.text = text
        self.strict = strict
        # The open containers, the closing bracket of each, and the key for the next value of each.
        self.values: list[Any] = []
        self.closers: list[str] = []
        self.keys: list[str] = []
        # Where the outermost container that is too deep starts; -1 outside of one.
        self.deep = -1

    def read(self, at: int) -> tuple[Any, int]:
        """Return the value that starts here, and where it ends."""
        while True:
            value, at, is_open = self._value(at)
            if is_open:
                continue
            while True:
                if not self.closers:
                    return value, at
                self._put(value)
                at = skip_space(self.text, at)
                sign = self.text[at : at + 1]
                if sign == ",":
                    at = self._member(at + 1)
                    break
                if sign != self.closers[-1]:
                    raise JSONDecodeError(f"Expecting ',' or {self.closers[-1]!r}", self.text, at)
                at += 1
                value = self._close_container(at)

    def _value(self, at: int) -> tuple[Any, int, bool]:
        """Read a value or the start of a container; return it, its end, and whether it is open."""
        at = skip_space(self.text, at)
        sign = self.text[at : at + 1]
        if sign in _CLOSERS:
            return self._open_container(sign, at)
        if sign == '"':
            value, end = scanstring(self.text, at + 1, self.strict)
            return value, end, False
        word, value = _WORDS.get(sign, ("", None))
        if word and self.text.startswith(word, at):
            return value, at + len(word), False
        number = _NUMBER.match(self.text, at)
        if number is None:
            raise JSONDecodeError("Expecting value", self.text, at)
        is_whole = number[1] is None and number[2] is None
        return (_parse_integer if is_whole else _parse_fraction)(number[0]), number.end(), False

    def _open_container(self, sign: str, at: int) -> tuple[Any, int, bool]:
        value: Any = {} if sign == "{" else []
        end = skip_space(self.text, at + 1)
        if self.text.startswith(_CLOSERS[sign], end):
            return value, end + 1, False
        if len(self.closers) == DEEPEST:
            self.deep = at
        self.closers.append(_CLOSERS[sign])
        if self.deep < 0:
            self.values.append(value)
            self.keys.append("")
        return value, self._member(end), True

    def _member(self, at: int) -> int:
        """Return where the next member's value starts, after its key if it has one."""
        if self.closers[-1] == "]":
            return at
        at = skip_space(self.text, at)
        if not self.text.startswith('"', at):
            raise JSONDecodeError("Expecting property name in double quotes", self.text, at)
        key, end = scanstring(self.text, at + 1, self.strict)
        end = skip_space(self.text, end)
        if not self.text.startswith(":", end):
            raise JSONDecodeError("Expecting ':' delimiter", self.text, end)
        if self.deep < 0:
            self.keys[-1] = key
        return end + 1

    def _put(self, value: Any) -> None:
        if self.deep >= 0:
            return
        around = self.values[-1]
        if type(around) is dict:
            around[self.keys[-1]] = value
        else:
            around.append(value)

    def _close_container(self, end: int) -> Any:
        """Return the value that ends here."""
        self.closers.pop()
        if self.deep < 0:
            self.keys.pop()
            return self.values.pop()
        if len(self.closers) > DEEPEST:
            return None
        start, self.deep = self.deep, -1
        return Raw(self.text[start:end].encode("utf-8", "surrogatepass"))


Spans = list[tuple[int, int]]


def set_value(text: str, path: tuple[str | int, ...], value: Any) -> str:
    """Set the value at a path of a JSON text; a new key goes last."""
    step, rest = path[0], path[1:]
    found = dict(_members(text))
    if rest:
        start, end = found[step]
        return f"{text[:start]}{set_value(text[start:end], rest, value)}{text[end:]}"
    written = dump(value, separators=(",", ":"))
    if step in found:
        start, end = found[step]
        return f"{text[:start]}{written}{text[end:]}"
    close = len(text.rstrip()) - 1
    comma = "," if found else ""
    return f"{text[:close]}{comma}{dump(step)}:{written}{text[close:]}"


def dump(value: Any, *, ascii_only: bool = False, **style: Any) -> str:
    """Return JSON text that can always be encoded: escaped if it has lone surrogates.

    A piece that was left as text when it was read is written back as it was.
    """
    left: dict[str, str] = {}

    def mark(piece: Any) -> str:
        from uuid import uuid4  # noqa: PLC0415 - hardly ever needed, and slow to load

        if type(piece) is not Raw:
            raise TypeError(f"a {type(piece).__name__} is not a JSON value")
        name = f"left as text {uuid4().hex}"
        left[json.dumps(name)] = bytes(piece).decode("utf-8", "surrogatepass")
        return name

    text = json.dumps(value, ensure_ascii=ascii_only, default=mark, **style)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, default=mark, **style)
    if not left:
        return text
    return re.sub("|".join(left), lambda found: left[found[0]], text)


def member_spans(text: str) -> Spans:
    """Return where the values directly inside an array or an object start and end."""
    return [span for _, span in _members(text)]


def replace_items(text: str, spans: Spans, old: list[Any], new: list[Any]) -> str:
    """Turn the text of ``old``, whose elements stand at ``spans``, into a text of ``new``.

    An element that is the same object in both keeps its text and the gap before it.
    """
    if not spans:
        return dump(new)
    numbers = {id(value): number for number, value in enumerate(old)}
    gaps = [text[a[1] : b[0]] for a, b in pairwise(spans)]
    opening = text[: spans[0][0]]
    # A single element shows no gap, so the text before it has to serve.
    usual = gaps[0] if gaps else opening.replace("[", ",", 1) or "\n"
    style = _style(text, spans, opening)
    out = [opening]
    for place, value in enumerate(new):
        number = numbers.get(id(value))
        if place:
            out.append(gaps[number - 1] if number else usual)
        out.append(_dump_nested(value, **style) if number is None else text[slice(*spans[number])])
    return "".join([*out, text[spans[-1][1] :]])


def _style(text: str, spans: Spans, opening: str) -> dict[str, Any]:
    """Return how the document writes a message, as options of ``_dump_nested``."""
    sample = text[slice(*spans[0])]
    if "\n" not in sample:
        return {"separators": (", ", ": ") if '": ' in sample else (",", ":")}
    base = opening.rpartition("\n")[2]
    step = sample.split("\n", 2)[1]
    step = step[len(base) : len(step) - len(step.lstrip())]
    return {"indent": step or 2, "base": base}


def dump_like(sample: str, value: Any) -> str:
    """Return a value as JSON text, spaced as a sample is."""
    return _dump_nested(value, **_style(sample, [(0, len(sample))], ""))


def _dump_nested(value: Any, base: str = "", **style: Any) -> str:
    return dump(value, **style).replace("\n", f"\n{base}")


def replace_list(text: str, path: tuple[str | int, ...], old: list[Any], new: list[Any]) -> str:
    """Replace the list at a path of a JSON text by one that shares elements with it."""
    if not path:
        return replace_items(text, member_spans(text), old, new)
    start, end = dict(_members(text))[path[0]]
    return f"{text[:start]}{replace_list(text[start:end], path[1:], old, new)}{text[end:]}"


def _members(text: str) -> list[tuple[str | int, tuple[int, int]]]:
    """Return the key and span of every member; if a key is repeated, the last one counts."""
    at = skip_space(text, 0)
    keyed = text[at] == "{"
    at = skip_space(text, at + 1)
    found: list[tuple[str | int, tuple[int, int]]] = []
    while text[at] not in "]}":
        key: str | int = len(found)
        if keyed:
            key, end = raw_decode(text, at, strict=False)
            at = skip_space(text, skip_space(text, end) + 1)
        end = raw_decode(text, at, strict=False)[1]
        found.append((key, (at, end)))
        at = skip_space(text, end)
        if text[at] == ",":
            at = skip_space(text, at + 1)
    return found
