"""What a text looks like, random, words, or a reference, and texts written in another way.

What is encoded as a whole (base64, a data URL) is an ``EncodedRun``: it is decoded, looked at, and
encoded again. What is escaped character by character has an ``UnescapedView``: the plain text, in
which every place is known in the text as it is written.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

# Between the two: a camel-cased name has about one piece in four letters, a key one in two.
RANDOM = 0.36
RANDOM_NEAR_A_NAME = 0.3

_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CASES = tuple(re.compile(case) for case in ("[a-z]", "[A-Z]", r"\d"))
_STRETCH = re.compile(r"[a-z]{10}|[A-Z]{12}|\d{12}")
_SEPARATOR = re.compile(r"[-_/+=.~]+")
_WORD = re.compile(r"[A-Z]?[a-z]+\d{0,2}|[A-Z]+\d{0,2}|\d+|[a-z]{3,}(?:[A-Z][a-z]{2,})+")
_NAME_PIECE = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:\d{1,2}[a-z]*)?|\d{1,3}")
_SHORTEST_NAME = 3
_SHORTEST_MIXED = 10
_VARIED = 0.4
_VARIED_ENOUGH = 16

_WORDS = re.compile(r"_{0,2}[A-Za-z]+(?:[ _./:-]+[A-Za-z]+)*[.:!?]?")
_HEX = re.compile(r"[0-9a-f]{32,128}|[0-9A-F]{32,128}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IDS = re.compile(
    r"(?:toolu|srvtoolu|tooluse|call|msg|req|resp|rs|fc|ctc|lsh|run|step|thread|asst|item|conv"
    r"|cmpl|chatcmpl|gen|batch|evt|org|sha\d{1,3})[_-]"
)
_REFERENCE = re.compile(
    r"\$(?:[{(]|\w+$)|<[^>]*>?$|[\[{|:]|%(?:[sdr(]|\w+%$)"
    r"|[xX]{3,}$|[a-z+]{2,12}://|\W?\*{3,}|[*.\u2022\u2026_-]{2,}"
    r"|(?i:your[-_ ])"
    r"|(?:process|os|env|environ|config|settings|self|this|args|options|secrets)(?:\.|\[|->)"
    r"|[A-Za-z_][\w.]*\("
    r"|[\w/+]{4,80}EXAMPLE(?:KEY)?$|0[xob][0-9a-fA-F]{1,16}$|.{0,40}(?:\.\.\.|\u2026)$"
    r"|(?:[A-Za-z_]+\.)+[A-Za-z_]+$|\w+_(?i:credentials?|token|secret|key|password|pwd|str)$"
)
_INTERPOLATED = re.compile(r"[$#]\{|\{\{|\{[A-Za-z_][^{}]*\}")
_NOTHING = frozenset(
    (
        *("none", "null", "nil", "true", "false", "undefined", "string", "str", "bytes", "int"),
        *("number", "boolean", "bool", "required", "optional", "any", "object", "secret"),
        *("password", "passwd", "pass", "token", "key", "apikey", "api_key", "unknown", "empty"),
        *("missing", "hidden", "redacted", "default", "sensitive", "disabled", "enabled"),
        *("changed", "invalid", "expired", "text", "hash", "credential", "credentials", "bearer"),
        *("basic"),
    )
)


def is_random(text: str, share: float = RANDOM) -> bool:
    """Whether a token is mixed as only a generator mixes letters of both cases and digits.

    ``share`` is the least number of pieces (words, numbers) a character.
    """
    if not all(case.search(text) for case in _CASES) or _STRETCH.search(text):
        return False
    if len(set(text)) < min(len(text) * _VARIED, _VARIED_ENOUGH) or is_worded(text):
        return False
    return len(_PIECES.findall(text)) >= share * len(text)


def is_worded(text: str) -> bool:
    """Whether half of what stands between separators is words or numbers."""
    pieces = [piece for piece in _SEPARATOR.split(text) if piece]
    words = sum(_WORD.fullmatch(piece) is not None for piece in pieces)
    return len(pieces) > 1 and words * 2 >= len(pieces)


def is_name(text: str) -> bool:
    """Whether this is the name of a header or a parameter: three words or more, joined."""
    pieces = [piece for piece in _SEPARATOR.split(text) if piece]
    return len(pieces) >= _SHORTEST_NAME and all(map(_NAME_PIECE.fullmatch, pieces))


def is_hex(text: str) -> bool:
    """Whether this is a digest (git, MD5, SHA): a secret only if something calls it one."""
    return _HEX.fullmatch(text) is not None


def is_uuid(text: str) -> bool:
    """Whether this is a UUID: a secret only if something calls it one."""
    return _UUID.fullmatch(text) is not None


def is_id(text: str) -> bool:
    """Whether this is an id of a provider, or a checksum, by its prefix."""
    return _IDS.match(text) is not None


def is_words(text: str) -> bool:
    """Whether this is plain words, which no key is."""
    if _WORDS.fullmatch(text) is None:
        return False
    # letters of both cases that change as only a generator changes them
    is_mixed = text.isalpha() and len(text) >= _SHORTEST_MIXED
    return not is_mixed or len(_PIECES.findall(text)) < RANDOM * len(text)


def is_reference(text: str) -> bool:
    """Whether this names a secret, or masks one, instead of being it."""
    return (
        text.lower() in _NOTHING
        or _REFERENCE.match(text) is not None
        or _INTERPOLATED.search(text) is not None
    )


# A shorter one cannot be distinguished from a word.
SHORTEST_RUN = 20
_HEAD = 64
_PADDING = re.compile(r"={0,2}")
_RUN_LIKE = bytes(
    ord("a") if bytes([code]).isalnum() or code in b"+/_-" else ord(" ") for code in range(256)
)
_NEEDLE = b"a" * SHORTEST_RUN
_LINES = re.compile(r"(?:[ \t]*+([A-Za-z0-9+/]{60,76})\r?\n)+[ \t]*+[A-Za-z0-9+/]{2,76}={0,2}")
_DATA_URL = re.compile(r"data:[^,\s;]{0,100}(?:;[^,\s;]{1,100}){0,4};base64,")
_SPACE = re.compile(r"\s+")
_WORDY = re.compile(r"[A-Za-z]{3}")


class EncodedRun(NamedTuple):
    """A stretch of base64 that is readable text: where it is, and the text."""

    start: int
    end: int
    text: str
    written: str

    def encoded(self, text: str) -> str:
        """Return another text as this one is written: alphabet, padding and width of lines."""
        plain = _SPACE.sub("", self.written)
        is_url = "-" in plain or "_" in plain
        encode = base64.urlsafe_b64encode if is_url else base64.b64encode
        new = encode(text.encode("utf-8", "surrogatepass")).decode()
        new = new if plain.endswith("=") or not len(plain) % 4 else new.rstrip("=")
        first, end, _ = self.written.partition("\n")
        if not end:
            return new
        width = len(first.strip())
        indent = first[: len(first) - len(first.lstrip())]
        pieces = [new[at : at + width] for at in range(0, len(new), width)]
        return f"\n{indent}".join(pieces)


def find_runs(text: str) -> Iterator[EncodedRun]:
    """Return the stretches of a text that are base64 of readable text."""
    mapped = text.encode("latin-1", "replace").translate(_RUN_LIKE)
    start = mapped.find(_NEEDLE)
    while start >= 0:
        end = mapped.find(b" ", start)
        end = len(text) if end < 0 else end
        if _is_readable(text[start : min(end, start + _HEAD)].encode("latin-1", "replace")):
            lines = _LINES.match(text, start)
            padding = _PADDING.match(text, end)
            end = lines.end() if lines else padding.end() if padding else end
            if run := _run(text, start, end):
                yield run
        start = mapped.find(_NEEDLE, end)


def decode_whole(text: str) -> EncodedRun | None:
    """Return the readable text that a base64 text or a data URL is, None if it is none."""
    url = _DATA_URL.match(text)
    start = url.end() if url else 0
    head = _SPACE.sub("", text[start : start + 2 * _HEAD])[:_HEAD]
    if not head or not head.isascii() or not _is_readable(head.encode()):
        return None
    return _run(text, start, len(text))


def _run(text: str, start: int, end: int) -> EncodedRun | None:
    written = text[start:end]
    decoded = _decode(_SPACE.sub("", written).encode("latin-1", "replace"))
    try:
        plain = None if decoded is None else decoded.decode()
    except UnicodeDecodeError:
        return None
    if plain is None or not _is_text(plain):
        return None
    return EncodedRun(start, end, plain, written)


def _is_readable(head: bytes) -> bool:
    """Whether the beginning of a stretch decodes to the beginning of a text."""
    decoded = _decode(head[: len(head) // 4 * 4]) or b""
    return _is_text(decoded.decode("utf-8", "ignore"), len(decoded))


def _is_text(text: str, size: int = 0) -> bool:
    """Whether this is a text that a person or a program wrote, and not what bytes happen to say."""
    if len(text) < size - 3 or not text:
        return False
    plain = text.translate(_LAYOUT)
    return plain.isprintable() and _WORDY.search(plain) is not None


_LAYOUT = dict.fromkeys(map(ord, "\n\r\t\x1b"), " ")


def _decode(data: bytes) -> bytes | None:
    data = data.rstrip(b"=")
    if len(data) % 4 == 1:
        return None
    try:
        return base64.b64decode(
            data.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(data) % 4), validate=True
        )
    except binascii.Error:
        return None


# One character each, or none: of JSON and other languages, of URLs, of HTML, of terminals.
_ESCAPE = re.compile(
    r"\\++u(?P<u>[0-9a-fA-F]{4})|\\++x(?P<x>[0-9a-fA-F]{2})|%(?P<p>[0-9a-fA-F]{2})"
    r"|(?P<h>&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|quot|amp|lt|gt|apos);)"
    r"|\x1b\[[0-9;?]{0,32}[A-Za-z]"
)
# The same by their first characters, for which a search is quick.
_SIGNS = tuple(
    re.compile(sign)
    for sign in (
        *(r"\\u[0-9a-fA-F]{4}", r"\\x[0-9a-fA-F]{2}", "%[0-9a-fA-F]{2}"),
        *("&[#a-z]", r"\x1b\["),
    )
)
_ROUNDS = 3
# What an escape may be a part of stands near it.
_NEAR = 400
_LIMIT = 64
_BREAK = re.compile(r"\s")


class UnescapedView:
    """A stretch of a text without its escapes, and where each of its characters is written."""

    def __init__(self, text: str, offset: int, before: UnescapedView | None = None) -> None:
        self.before = before
        pieces: list[str] = []
        # By piece: where it starts here and there, and the end there of what is one escape.
        self.here: list[int] = []
        self.there: list[int] = []
        self.ends: list[int] = []
        at = size = 0

        def add(piece: str, start: int, end: int) -> None:
            nonlocal size
            if piece:
                pieces.append(piece)
                self.here.append(size)
                self.there.append(offset + start)
                self.ends.append(end and offset + end)
                size += len(piece)

        for found in _ESCAPE.finditer(text):
            add(text[at : found.start()], at, 0)
            add(_character(found), found.start(), found.end())
            at = found.end()
        add(text[at:], at, 0)
        self.text = "".join(pieces)
        self.is_other = bool(at)

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Return where a stretch of the plain text is written."""
        first, last = self._at(start)[0], self._at(end - 1)[1]
        return (first, last) if self.before is None else self.before.place(first, last)

    def _at(self, place: int) -> tuple[int, int]:
        number = bisect_right(self.here, place) - 1
        if self.ends[number]:
            return self.there[number], self.ends[number]
        start = self.there[number] + place - self.here[number]
        return start, start + 1


def _character(found: re.Match[str]) -> str:
    if found.lastgroup == "h":
        return unescape(found[0])[:1]
    return chr(int(found[found.lastgroup], 16)) if found.lastgroup else ""


def find_views(text: str) -> Iterator[UnescapedView]:
    """Return the stretches of a text around its escapes as they read without them.

    Escapes of escapes are taken off, too.
    """
    for start, end in _find_stretches(text):
        view = UnescapedView(text[start:end], start)
        for _ in range(_ROUNDS - 1):
            new = UnescapedView(view.text, 0, view)
            if not new.is_other:
                break
            view = new
        if view.text:
            yield view


def _find_stretches(text: str) -> Iterator[tuple[int, int]]:
    escapes = sorted(found.start() for sign in _SIGNS for found in sign.finditer(text))
    at = 0
    while at < len(escapes):
        first = last = escapes[at]
        while at < len(escapes) and escapes[at] <= last + 2 * _NEAR:
            last = escapes[at]
            at += 1
        yield _round_stretch(text, max(0, first - _NEAR), min(len(text), last + _NEAR))


def _round_stretch(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a stretch that starts and ends at white space, if there is some near."""
    gap = _BREAK.search(text, start, min(start + _LIMIT, end)) if start else None
    start = gap.end() if gap else start
    gap = _BREAK.search(text, end, end + _LIMIT)
    return start, gap.start() if gap else end
