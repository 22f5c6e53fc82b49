"""Tell random texts from words and references, and decode texts that are encoded or escaped.

A text that is encoded as a whole (base64, a data URL) is an ``EncodedRun``: it is decoded,
searched, and encoded again. A text with escaped characters has an ``UnescapedView``: the plain
text, with the place in the original of each of its characters.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cached_property
from html import unescape
from typing import NamedTuple

# A threshold: names in camel case have about one piece for four letters, keys one for two.
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
    """Whether letters of both cases and digits are mixed as only a generator mixes them.

    ``share`` is the least number of pieces (words, numbers) for each character.
    """
    if not all(case.search(text) for case in _CASES) or _STRETCH.search(text):
        return False
    if len(set(text)) < min(len(text) * _VARIED, _VARIED_ENOUGH) or is_worded(text):
        return False
    return len(_PIECES.findall(text)) >= share * len(text)


def is_worded(text: str) -> bool:
    """Whether at least half of what stands between separators is words or numbers."""
    pieces = [piece for piece in _SEPARATOR.split(text) if piece]
    words = sum(_WORD.fullmatch(piece) is not None for piece in pieces)
    return len(pieces) > 1 and words * 2 >= len(pieces)


def is_name(text: str) -> bool:
    """Whether this is the name of a header or a parameter: three or more joined words."""
    pieces = [piece for piece in _SEPARATOR.split(text) if piece]
    return len(pieces) >= _SHORTEST_NAME and all(map(_NAME_PIECE.fullmatch, pieces))


def is_hex(text: str) -> bool:
    """Whether this looks like a digest (git, MD5, SHA): a secret only if it is called one."""
    return _HEX.fullmatch(text) is not None


def is_uuid(text: str) -> bool:
    """Whether this is a UUID, which is a secret only if it is called one."""
    return _UUID.fullmatch(text) is not None


def is_id(text: str) -> bool:
    """Whether this is an id of a provider, or a checksum, judging by its prefix."""
    return _IDS.match(text) is not None


def is_words(text: str) -> bool:
    """Whether this consists of plain words, which no key does."""
    if _WORDS.fullmatch(text) is None:
        return False
    # letters that change case as only a generator changes it
    is_mixed = text.isalpha() and len(text) >= _SHORTEST_MIXED
    return not is_mixed or len(_PIECES.findall(text)) < RANDOM * len(text)


def is_reference(text: str) -> bool:
    """Whether this names or masks a secret instead of being one."""
    return (
        text.lower() in _NOTHING
        or _REFERENCE.match(text) is not None
        or _INTERPOLATED.search(text) is not None
    )


# A shorter run cannot be told from a word.
SHORTEST_RUN = 20


def character_table(more: bytes) -> bytes:
    """Return a table that maps letters, digits and some more to "a", and others to a space."""
    return bytes(
        ord("a") if bytes([code]).isalnum() or code in more else ord(" ") for code in range(256)
    )


def find_stretches(data: bytes, table: bytes, shortest: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of at least ``shortest`` characters in a table, at the speed of C."""
    mapped, needle = data.translate(table), b"a" * shortest
    start = mapped.find(needle)
    while start >= 0:
        end = mapped.find(b" ", start)
        end = len(mapped) if end < 0 else end
        yield start, end
        start = mapped.find(needle, end)


_HEAD = 64
_PADDING = re.compile(r"={0,2}")
_RUN_LIKE = character_table(b"+/_-")
_LINES = re.compile(r"(?:[ \t]*+([A-Za-z0-9+/]{60,76})\r?\n)+[ \t]*+[A-Za-z0-9+/]{2,76}={0,2}")
_DATA_URL = re.compile(r"data:[^,\s;]{0,100}(?:;[^,\s;]{1,100}){0,4};base64,")
_SPACE = re.compile(r"\s+")
_WORDY = re.compile(r"[A-Za-z]{3}")


class EncodedRun(NamedTuple):
    """A run of base64 that encodes readable text: its place, and the text."""

    start: int
    end: int
    text: str
    written: str

    def encoded(self, text: str) -> str:
        """Return another text encoded in the same way: alphabet, padding and line length."""
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
    """Yield the runs of a text that are base64 of readable text."""
    done = 0
    for start, end in find_stretches(text.encode("latin-1", "replace"), _RUN_LIKE, SHORTEST_RUN):
        head = text[start : min(end, start + _HEAD)].encode("latin-1", "replace")
        if start < done or not _is_readable(head):
            continue
        lines, padding = _LINES.match(text, start), _PADDING.match(text, end)
        done = lines.end() if lines else padding.end() if padding else end
        if run := _run(text, start, done):
            yield run


def decode_whole(text: str) -> EncodedRun | None:
    """Return the readable text in a base64 text or a data URL; None if it is neither."""
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
    """Whether the beginning of a run decodes to the beginning of a text."""
    decoded = _decode(head[: len(head) // 4 * 4]) or b""
    return _is_text(decoded.decode("utf-8", "ignore"), len(decoded))


def _is_text(text: str, size: int = 0) -> bool:
    """Whether this is a real text, and not what random bytes happen to decode to."""
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


# Escapes for one character or none: of JSON and other languages, of URLs, of HTML, of terminals.
_ESCAPE = re.compile(
    r"\\++u(?P<u>[0-9a-fA-F]{4})|\\++x(?P<x>[0-9a-fA-F]{2})|%(?P<p>[0-9a-fA-F]{2})"
    r"|(?P<h>&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|quot|amp|lt|gt|apos);)"
    r"|\x1b\[[0-9;?]{0,32}[A-Za-z]"
)
# The same by their first characters, which are quick to search for.
_SIGNS = tuple(
    re.compile(sign)
    for sign in (
        *(r"\\u[0-9a-fA-F]{4}", r"\\x[0-9a-fA-F]{2}", "%[0-9a-fA-F]{2}"),
        *("&[#a-z]", r"\x1b\["),
    )
)
_ROUNDS = 3
# Only text near an escape can be a part of the same word.
_NEAR = 400
_LIMIT = 64
_BREAK = re.compile(r"\s")


class UnescapedView:
    """A part of a text without its escapes, and the original place of each character."""

    def __init__(self, written: str, start: int) -> None:
        self.written, self.start = written, start
        self.text, self.rounds = written, 0
        while self.rounds < _ROUNDS:
            plain = _ESCAPE.sub(_character, self.text)
            if len(plain) == len(self.text):
                break
            self.text = plain
            self.rounds += 1

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of the plain text stands in the original."""
        return self._spans[start][0], self._spans[end - 1][1]

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        """The original place of each character.

        Computed on demand, because few views contain anything.
        """
        text = self.written
        spans = [(self.start + at, self.start + at + 1) for at in range(len(text))]
        for _ in range(self.rounds):
            left: list[tuple[int, int]] = []
            at = 0
            for found in _ESCAPE.finditer(text):
                left += spans[at : found.start()]
                if _character(found):
                    left.append((spans[found.start()][0], spans[found.end() - 1][1]))
                at = found.end()
            spans = left + spans[at:]
            text = _ESCAPE.sub(_character, text)
        return spans


def _character(found: re.Match[str]) -> str:
    if found.lastgroup == "h":
        return unescape(found[0])[:1]
    return chr(int(found[found.lastgroup], 16)) if found.lastgroup else ""


def find_views(text: str) -> Iterator[UnescapedView]:
    """Yield the parts of a text around escapes, with the escapes decoded.

    Escapes of escapes are decoded, too.
    """
    for start, end in _stretches_around_escapes(text):
        view = UnescapedView(text[start:end], start)
        if view.text:
            yield view


def _stretches_around_escapes(text: str) -> Iterator[tuple[int, int]]:
    escapes = sorted(found.start() for sign in _SIGNS for found in sign.finditer(text))
    at = 0
    while at < len(escapes):
        first = last = escapes[at]
        while at < len(escapes) and escapes[at] <= last + 2 * _NEAR:
            last = escapes[at]
            at += 1
        start, end = max(0, first - _NEAR), min(len(text), last + _NEAR)
        # at white space, if there is some nearby
        gap = _BREAK.search(text, start, min(start + _LIMIT, end)) if start else None
        start = gap.end() if gap else start
        gap = _BREAK.search(text, end, end + _LIMIT)
        yield start, gap.start() if gap else end
