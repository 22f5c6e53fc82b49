"""What a value looks like: random as only a machine writes it, words, or a reference."""

from __future__ import annotations

import re

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
    """Tell whether a token is mixed as only a generator mixes letters of both cases and digits.

    ``share`` is the least number of pieces (words, numbers) a character.
    """
    if not all(case.search(text) for case in _CASES) or _STRETCH.search(text):
        return False
    if len(set(text)) < min(len(text) * _VARIED, _VARIED_ENOUGH) or is_worded(text):
        return False
    return len(_PIECES.findall(text)) >= share * len(text)


def is_worded(text: str) -> bool:
    """Tell whether half of what stands between separators is words or numbers."""
    pieces = [piece for piece in _SEPARATOR.split(text) if piece]
    words = sum(_WORD.fullmatch(piece) is not None for piece in pieces)
    return len(pieces) > 1 and words * 2 >= len(pieces)


def is_name(text: str) -> bool:
    """Tell whether this is the name of a header or a parameter: three words or more, joined."""
    pieces = [piece for piece in _SEPARATOR.split(text) if piece]
    return len(pieces) >= _SHORTEST_NAME and all(map(_NAME_PIECE.fullmatch, pieces))


def is_hex(text: str) -> bool:
    """Tell whether this is a digest (git, MD5, SHA): a secret only if something calls it one."""
    return _HEX.fullmatch(text) is not None


def is_uuid(text: str) -> bool:
    """Tell whether this is a UUID: a secret only if something calls it one."""
    return _UUID.fullmatch(text) is not None


def is_id(text: str) -> bool:
    """Tell whether this is an id of a provider, or a checksum, by its prefix."""
    return _IDS.match(text) is not None


def is_words(text: str) -> bool:
    """Tell whether this is plain words, which no key is."""
    if _WORDS.fullmatch(text) is None:
        return False
    # letters of both cases that change as only a generator changes them
    is_mixed = text.isalpha() and len(text) >= _SHORTEST_MIXED
    return not is_mixed or len(_PIECES.findall(text)) < RANDOM * len(text)


def is_reference(text: str) -> bool:
    """Tell whether this names a secret, or masks one, instead of being it."""
    return (
        text.lower() in _NOTHING
        or _REFERENCE.match(text) is not None
        or _INTERPOLATED.search(text) is not None
    )
