"""JSON that breaks off: what of it is whole, and the text that closes it there."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lockstitch.formats.base import Pattern
from lockstitch.formats.lines import decode

_SIGN = re.compile(r'"(?:[^"\\]|\\.)*"|["{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_CLOSERS = {"{": "}", "[": "]"}


class Closed(Struct, frozen=True):
    """A document that was cut off: its whole value, its bytes, and where the torn rest starts."""

    value: Any
    data: bytes
    end: int


class _Open(Struct):
    """A list or an object that has not ended; ``key`` is that of the member being read."""

    opener: str
    key: str | None = None
    named: bool = False


def close(data: bytes, lists: Sequence[Pattern]) -> Closed | None:
    """Return the document up to the last whole element of one of some lists, None without one.

    Which lists may end early is for the format to say: what stands in an object behind such a
    list is lost with the rest.
    """
    scan = _Scan(lists)
    # Latin-1 keeps every byte at its own index, and all signs of JSON are ASCII.
    for match in _SIGN.finditer(data.decode("latin-1")):
        if not scan.takes(match[0], match.end()):
            break
    if not scan.end:
        return None
    try:
        whole = data[: scan.end] + scan.closers.encode()
        return Closed(decode(whole), whole, scan.end)
    except (ValueError, RecursionError):
        return None


class _Scan:
    """A walk over the signs of a document; ``end`` is behind the last element that is whole."""

    def __init__(self, lists: Sequence[Pattern]) -> None:
        self.lists = lists
        self.stack: list[_Open] = []
        self.end = 0
        self.closers = ""

    def takes(self, sign: str, end: int) -> bool:
        """Take the next sign; False if it cannot stand there."""
        if sign in _CLOSERS:
            self.stack.append(_Open(sign))
            return self._ended(end)
        if sign in _CLOSERS.values():
            opened = self.stack.pop().opener if self.stack else ""
            return _CLOSERS.get(opened) == sign and bool(self.stack) and self._ended(end)
        # a quotation mark alone opens the text in which the document breaks off
        if not self.stack or sign == '"':
            return False
        inner = self.stack[-1]
        if sign == ",":
            inner.named = False
        elif inner.opener == "{" and not inner.named and sign != ":":
            inner.key, inner.named = _name(sign), True
        elif sign.startswith('"'):
            # a number or a word might have gone on; a text has its end
            return self._ended(end)
        return True

    def _ended(self, end: int) -> bool:
        """Note the end of an element, or the start of a list, where the document may end."""
        if self.stack[-1].opener == "[":
            path = tuple(None if one.opener == "[" else one.key for one in self.stack[:-1])
            if path in self.lists:
                self.end = end
                self.closers = "".join(_CLOSERS[one.opener] for one in reversed(self.stack))
        return True


def _name(sign: str) -> str:
    try:
        return str(json.loads(sign))
    except ValueError:
        return sign
