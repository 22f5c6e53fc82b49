"""Values that are kept apart from the facts that carry them, and read as little as will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

_decode = msgspec.json.Decoder(str).decode
# No character takes more bytes in a JSON string, and no escape is longer.
WIDEST = 6
# So near to a cut a place is looked for at which a character begins.
_NEAR = 200
_CONTINUES = 0b1000_0000
_MASK = 0b1100_0000


class Large:
    """Large values that are in memory; one that is not there is nothing."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self._values = values

    def whole(self, name: str) -> bytes:
        """Return all of a value."""
        return self._values.get(name, b"null")

    def sizes(self, names: list[str]) -> Mapping[str, int]:
        """Return the lengths of values."""
        return {name: len(self.whole(name)) for name in names}

    def ends(self, name: str, head: int, tail: int) -> tuple[bytes, bytes]:
        """Return the first and the last bytes of a value."""
        value = self.whole(name)
        return value[:head], value[len(value) - tail :]


class Stored(Large):
    """Large values in a store, of which nothing is kept but how large they are.

    The first time a value is read, all of it is, so that its checksum is verified.
    """

    def __init__(
        self,
        fetch: Callable[[list[str]], Mapping[str, bytes]],
        sizes: Callable[[list[str]], Mapping[str, int]],
        ends: Callable[[str, int, int], tuple[bytes, bytes]],
    ) -> None:
        super().__init__({})
        self._fetch, self._sizes, self._ends = fetch, sizes, ends
        self._known: dict[str, int] = {}
        self._verified: set[str] = set()

    def whole(self, name: str) -> bytes:
        return self._fetch([name])[name]

    def sizes(self, names: list[str]) -> Mapping[str, int]:
        unknown = [name for name in names if name not in self._known]
        if unknown:
            self._known.update(self._sizes(unknown))
        return {name: self._known[name] for name in names}

    def ends(self, name: str, head: int, tail: int) -> tuple[bytes, bytes]:
        if name in self._verified:
            return self._ends(name, head, tail)
        value = self.whole(name)
        self._verified.add(name)
        return value[:head], value[len(value) - tail :]


def text_ends(large: Large, name: str, head: int, tail: int) -> tuple[str, str] | None:
    """Return the first and the last characters of a text without reading what is between.

    None for what is no JSON string, and for one that is better read as a whole.
    """
    for width in (1.2, 2, WIDEST):
        first, last = large.ends(name, int(width * (head + 200)), int(width * (tail + 200)))
        if first[:1] != b'"' or last[-1:] != b'"':
            return None
        before, behind = _beginning(first[1:]), _end(last[:-1])
        if before is None or behind is None:
            return None
        if len(before) >= head and len(behind) >= tail:
            return before[:head], behind[len(behind) - tail :]
    return None


def _beginning(raw: bytes) -> str | None:
    """Decode what a JSON string begins with, up to the last place that is no escape's."""
    for stop in range(len(raw) - 1, max(len(raw) - _NEAR, 0), -1):
        if raw[stop] & _MASK != _CONTINUES and b"\\" not in raw[max(stop - WIDEST, 0) : stop]:
            return _decoded(raw[:stop])
    return None


def _end(raw: bytes) -> str | None:
    """Decode what a JSON string ends with, from the first place that is no escape's."""
    for start in range(WIDEST, min(len(raw), _NEAR)):
        if raw[start] & _MASK != _CONTINUES and b"\\" not in raw[start - WIDEST : start]:
            return _decoded(raw[start:])
    return None


def _decoded(raw: bytes) -> str | None:
    try:
        return _decode(b'"%b"' % raw)
    except ValueError:
        return None
