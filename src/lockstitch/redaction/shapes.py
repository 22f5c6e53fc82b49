"""What a value looks like: random as only a machine writes it, a word, or a reference."""

from __future__ import annotations

import re

# A key is longer than this only with a format of its own; what is longer is data.
LONGEST_TOKEN = 256
LONGEST_HEX = 128

_LOWER, _UPPER, _DIGIT, _REST = b"l", b"u", b"d", b"."
_CLASSES = bytes(
    ord(
        _LOWER
        if chr(code).islower() and code < 128
        else _UPPER
        if chr(code).isupper() and code < 128
        else _DIGIT
        if chr(code).isdigit() and code < 128
        else _REST
    )
    for code in range(256)
)
_MOST_IN_A_ROW = 10
_SAME = re.compile(rb"(?:l{10}|u{12}|d{12})")
_CHANGE = re.compile(rb"(?:l(?=[ud])|u(?=[ld])|d(?=[lu]))")
_PIECES = re.compile(r"[-_/+=.~]+")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[a-z]+\d{1,2}|[A-Z][a-z]+\d{1,2}|v\d+")

_WORDS = re.compile(r"[A-Za-z]+(?:[ _./:-]+[A-Za-z]+)*[.:!?]?")
_HEX = re.compile(r"[0-9a-f]{32,128}|[0-9A-F]{32,128}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_REFERENCE = re.compile(
    r"""[$<>{}%@&*\[(|#]               # $VAR ${VAR} <your key> {{ key }} %s @file *** [0] (x)
    |(?i:x{3,}|\.{2,}|-+$|_+$)         # masks
    |(?i:your|my)[-_ ](?i:[a-z]+[-_ ])*(?i:key|token|secret|password)
    |(?i:process|os|env|environ|config|settings|self|this|args|options|vars?|secrets|ctx|app)
     (?:\.|\[|->)
    |[A-Za-z_][\w.]*\(                 # a call
    |(?:[A-Za-z_]+\.)+[A-Za-z_]+$      # an attribute
    """,
    re.VERBOSE,
)
_NOTHING = frozenset(
    "none null nil true false undefined string str bytes int number boolean bool required optional "
    "any object secret password passwd token key apikey api_key unknown empty missing hidden "
    "redacted default sensitive disabled enabled changed invalid expired text hash credential "
    "credentials bearer basic".split()
)


def is_random(text: str, *, share: float = 0.38) -> bool:
    """Tell whether a token is mixed as only a generator mixes: letters of both cases and digits.

    ``share`` is the least share of neighbours that are of different classes; words in any case
    style stay below it.
    """
    letters = text.encode("latin-1", "replace").translate(_CLASSES).replace(_REST, b"")
    if not (_LOWER in letters and _UPPER in letters and _DIGIT in letters):
        return False
    if _SAME.search(letters) or _is_worded(text):
        return False
    varied = len(set(text)) >= min(len(text) * 0.4, 16)
    return varied and len(_CHANGE.findall(letters)) >= share * len(letters)


def _is_worded(text: str) -> bool:
    """Tell whether at least half of what separators leave is words, numbers or versions."""
    pieces = [piece for piece in _PIECES.split(text) if piece]
    words = sum(_WORD.fullmatch(piece) is not None for piece in pieces)
    return len(pieces) > 1 and words * 2 >= len(pieces)


def is_hex(text: str) -> bool:
    """Tell whether this is a digest: git, MD5, SHA; a key only if something calls it one."""
    return _HEX.fullmatch(text) is not None


def is_uuid(text: str) -> bool:
    """Tell whether this is a UUID; a key only if something calls it one."""
    return _UUID.fullmatch(text) is not None


def is_words(text: str) -> bool:
    """Tell whether this is made of plain words, which no key is."""
    return _WORDS.fullmatch(text) is not None and not is_random(text)


def is_reference(text: str) -> bool:
    """Tell whether this names a secret, or masks one, instead of being it."""
    return text.lower() in _NOTHING or _REFERENCE.match(text) is not None
