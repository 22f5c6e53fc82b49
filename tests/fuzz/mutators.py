"""Changes to session files, small and large, of what a crash, a bug or an attacker leaves.

``mutated(data, dice, other)`` stacks some of them. Everything comes from the random numbers that
are passed in. Texts that were said (they carry a mark) are never put where an id or a name
belongs: ids are printed, and what was said must not be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

Mutator = Callable[[bytes, Random], bytes | None]
Spot = tuple[Any, Any]  # a list or a map, and the index or key in it

RAW = {  # what no Python value is written as
    '"@huge@"': b"1" + b"0" * 400,
    '"@digits@"': b"7" * 4500,
    '"@inf@"': b"1e999",
    '"@minus@"': b"-1e999",
    '"@tiny@"': b"1e-999",
    '"@deep@"': b"[" * 300 + b"]" * 300,
    '"@deeper@"': b'{"a":' * 1500 + b"1" + b"}" * 1500,
    '"@lone@"': b'"\\ud83d half"',
    '"@nul@"': b'"nul \\u0000 nul"',
    '"@escape@"': b'"\\u001b[2J\\u202e\\u009b31m"',
    '"@bytes@"': b'"caf\xe9 \xff\xfe"',
    '"@raw@"': b'"raw \x01\x1b[31m\ttab"',
    '"@nan@"': b"NaN",
}
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 0.5, -0.0, 1e308, "", " ", "\n",
    "x", [], {}, [None], [[]], [{}], {"": None}, {"type": None}, [0], "null", "{}", "0",
    *(word.strip('"') for word in RAW), *(word.strip('"') for word in RAW),
)  # fmt: skip
WORDS = (
    "user", "assistant", "system", "tool", "model", "human", "ai", "developer", "text", "thinking",
    "tool_use", "tool_result", "function_call", "function_call_output", "reasoning", "message",
    "response_item", "event_msg", "session_meta", "compacted", "turn_context", "summary", "session",
    "attachment", "progress", "queue-operation", "file-history-snapshot", "toolCall", "toolResult",
    "compaction", "leaf", "branch_summary", "info", "gemini", "error", "custom", "running",
    "pending", "completed", "step-start", "image", "redacted_thinking", "stop", "end_turn",
)  # fmt: skip
TIMES: tuple[Any, ...] = (
    "", "yesterday", "2026-99-99T99:99:99Z", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59.999Z",
    "1970-01-01T00:00:00Z", "2026-09-01T10:00:00", "2026-09-01T10:00:00+99:00", "-1", 0, -1, 1e300,
    253402300800, 253402300800000, 2**63, None, [], {}, True, "2026-09-01T10:00:00.000000000001Z",
    "@huge@", "@inf@", "@nul@",
)  # fmt: skip
NAMES_OF_IDS = ("id", "uuid", "parent", "key", "ref")
NAMES_OF_TIMES = ("time", "stamp", "created", "updated", "start", "end", "completed")
PLACES = ("content", "message", "type", "role", "id", "uuid", "parentUuid", "input", "text", "x")


def mutated(data: bytes, dice: Random, other: bytes = b"") -> tuple[bytes, bool]:
    """Return the bytes of a file with some changes; ``other`` is a session to splice in.

    Also whether all changes left every text in its own place: once bytes are gone, the end of one
    text may be the end of another.
    """
    whole = True
    is_document = data.lstrip()[:1] in (b"[", b"{") and _is_whole(data)
    pool = DOCUMENT if is_document else LINES
    chosen, weights = zip(*pool, strict=True)
    for _ in range(dice.choices((1, 2, 3, 5, 9), (38, 28, 18, 12, 4))[0]):
        change = dice.choices(chosen, weights)[0]
        whole = whole and change not in TORN
        # a value that Python cannot read again stays as it is
        with suppress(ValueError, RecursionError, TypeError):
            data = (
                _spliced(data, dice, other) if change is _spliced else change(data, dice)
            ) or data
    return data, whole


def _is_whole(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


# Bytes


def _cut_short(data: bytes, dice: Random) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def _headless(data: bytes, dice: Random) -> bytes:
    return data[dice.randrange(min(len(data), 400) + 1) :]


def _flipped(data: bytes, dice: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8)) if changed else 0):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def _inserted(data: bytes, dice: Random) -> bytes:
    odd = (
        b"\0", b"\0" * 300, b"\xef\xbb\xbf", b"\r\n", b"\n", b"\n\n\n", b"\r", b"\xff\xfe", b"\xc3",
        b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\x1b[31m", b"\x7f", b'"', b"\\", b"{", b"}", b"]", b",",
        b"null", b"\xf4\x90\x80\x80", b" " * 200, b"\x1a", b"\x0b\x0c\x85", b"{}", b"[]\n",
    )  # fmt: skip
    place = dice.choice((0, len(data), dice.randrange(len(data) + 1), _at_a_break(data, dice)))
    return data[:place] + dice.choice(odd) + data[place:]


def _at_a_break(data: bytes, dice: Random) -> int:
    breaks = [place for place, byte in enumerate(data) if byte == 10]
    return dice.choice(breaks) + 1 if breaks else 0


def _removed(data: bytes, dice: Random) -> bytes:
    place = dice.randrange(len(data) + 1)
    return data[:place] + data[place + dice.choice((1, 1, 2, 7, 60, 900)) :]


def _doubled(data: bytes, dice: Random) -> bytes:
    first = dice.randrange(len(data) + 1)
    last = min(first + dice.choice((1, 9, 90, 900)), len(data))
    place = dice.randrange(len(data) + 1)
    return data[:place] + data[first:last] + data[place:]


def _breaks(data: bytes, dice: Random) -> bytes:
    """Other line breaks, all of them or the last."""
    kind = dice.randrange(4)
    if kind == 0:
        return data.replace(b"\n", b"\r\n")
    if kind == 1:
        return data.replace(b"\n", b"\r")
    return data.rstrip(b"\n") if kind == 2 else data + b"\n" * dice.choice((1, 2, 50))


def _wiped(data: bytes, dice: Random) -> bytes:
    """NUL bytes over what was there, as after a loss of power."""
    place = dice.randrange(len(data) + 1)
    size = min(dice.choice((1, 64, 512, 4096)), len(data) - place)
    return data[:place] + b"\0" * size + data[place + size :]


# Lines


def _lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")[: -1 if data.endswith(b"\n") else None]


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _rearranged(data: bytes, dice: Random) -> bytes | None:
    """Drop, write twice, swap, move, reverse or shuffle lines."""
    lines = _lines(data)
    if not lines:
        return None
    at, to = dice.randrange(len(lines)), dice.randrange(len(lines))
    few = slice(at, at + dice.choice((1, 1, 2, 3, 8)))
    kind = dice.randrange(9)
    if kind < 2:
        del lines[few]
    elif kind == 2:
        lines[few.stop : few.stop] = lines[few]
    elif kind == 3:
        lines[to:to] = lines[few]
    elif kind == 4:
        lines[at], lines[to] = lines[to], lines[at]
    elif kind == 5:
        moved = lines[few]
        del lines[few]
        lines[to:to] = moved
    elif kind == 6:
        lines[few] = lines[few][::-1]
    elif kind == 7:
        some = lines[at : at + 6]
        dice.shuffle(some)
        lines[at : at + 6] = some
    else:
        lines += lines[-dice.randint(1, 5) :]
    return _joined(lines)


def _torn(data: bytes, dice: Random) -> bytes | None:
    """Cut a line in the middle, break it in two, or join it with the next."""
    lines = _lines(data)
    if not lines:
        return None
    at = dice.randrange(len(lines))
    line = lines[at]
    place = dice.randrange(len(line) + 1)
    kind = dice.randrange(5)
    if kind == 0:
        lines[at] = line[:place]
    elif kind == 1:
        lines[at] = line[place:]
    elif kind == 2:
        lines[at : at + 1] = [line[:place], line[place:]]
    else:
        half = line[:place] if kind == 3 else line
        lines[at : at + 2] = [half + b"".join(lines[at + 1 : at + 2])]
    return _joined(lines)


def _spliced(data: bytes, dice: Random, other: bytes) -> bytes:
    """Two sessions in one file: one behind the other, head and tail, or line by line."""
    mine, others = _lines(data), _lines(other)
    kind = dice.randrange(4)
    if kind == 0:
        return data + other
    if kind == 1:
        return _joined(mine[: dice.randint(0, len(mine))] + others[dice.randint(0, len(others)) :])
    if kind == 2:
        for line in others[: dice.randint(1, 4)]:
            mine.insert(dice.randint(0, len(mine)), line)
        return _joined(mine)
    mixed: list[bytes] = []
    while mine or others:
        mixed.append((mine or others if dice.random() < 0.5 else others or mine).pop(0))
    return _joined(mixed)


# Values


def _records(data: bytes) -> list[Any]:
    """Return the values of a file; what is no JSON is given as bytes."""
    with suppress(ValueError, RecursionError):
        return [json.loads(data)]
    found: list[Any] = []
    for line in _lines(data):
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            found.append(line)
    return found


def _written(records: list[Any], data: bytes) -> bytes:
    if len(records) == 1 and _is_whole(data):
        return _dumped(records[0])
    return _joined([one if isinstance(one, bytes) else _dumped(one) for one in records])


def _dumped(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    data = text.encode("utf-8", "surrogatepass")
    if b'"@' in data:
        for word, raw in RAW.items():
            data = data.replace(word.encode(), raw)
    return data


def _spots(value: Any) -> Iterator[Spot]:
    """Give every place in a value."""
    todo = [value]
    while todo:
        one = todo.pop()
        places = list(one) if isinstance(one, dict) else range(len(one))
        for place in places:
            yield one, place
            if isinstance(one[place], dict | list):
                todo.append(one[place])


def _spot(records: list[Any], dice: Random, wanted: tuple[str, ...] = ()) -> Spot | None:
    """Return a place in some record, of a key with such a name if any are given."""
    values = [one for one in records if isinstance(one, dict | list)]
    if not values:
        return None
    for _ in range(3):
        found = [spot for spot in _spots(dice.choice(values)) if _is_named(spot, wanted)]
        if found:
            return dice.choice(found)
    return None


def _is_named(spot: Spot, wanted: tuple[str, ...]) -> bool:
    key = spot[1]
    return not wanted or (isinstance(key, str) and any(word in key.lower() for word in wanted))


def _is_said(value: Any) -> bool:
    return "MARK" in json.dumps(value)


def _valued(data: bytes, dice: Random) -> bytes | None:
    """Another value in some place."""
    records = _records(data)
    spot = _spot(records, dice)
    if spot is None:
        return None
    home, place = spot
    old = home[place]
    kind = dice.randrange(8)
    if kind == 0 and not _is_said(old):
        home[place] = dice.choice(WORDS)
    elif kind == 1:
        home[place] = [old]
    elif kind == 2:
        home[place] = {dice.choice(PLACES): old} if not _is_said(old) else {"text": old}
    elif kind == 3 and isinstance(old, str):
        home[place] = old * dice.choice((0, 2, 30))
    elif kind == 4 and isinstance(old, str):
        home[place] = old[: dice.randrange(len(old) + 1)]
    else:
        home[place] = dice.choice(ODD)
    return _written(records, data)


def _keyed(data: bytes, dice: Random) -> bytes | None:
    """A key that is gone, has another name, or is there twice."""
    records = _records(data)
    spot = _spot(records, dice)
    if spot is None or not isinstance(spot[0], dict):
        return None
    home, key = spot
    kind = dice.randrange(4)
    if kind == 0:
        del home[key]
    elif kind == 1:
        is_said = _is_said(home[key])
        name = dice.choice((f"{key}_", "", "@nul@", "é") if is_said else (*PLACES, f"{key}_", ""))
        home[name] = home.pop(key)
    elif kind == 2:
        return _key_twice(records, dice)
    else:
        home[dice.choice(("extra", "", "__proto__", "toString"))] = dice.choice(ODD)
    return _written(records, data)


def _key_twice(records: list[Any], dice: Random) -> bytes | None:
    """Write a key of a record once more, with another value."""
    maps = [at for at, one in enumerate(records) if isinstance(one, dict) and one]
    if not maps:
        return None
    at = dice.choice(maps)
    key = dice.choice(list(records[at]))
    more = json.dumps(key).encode() + b":" + _dumped(dice.choice(ODD))
    line = _dumped(records[at])
    twice = b"{" + more + b"," + line[1:] if dice.random() < 0.5 else line[:-1] + b"," + more + b"}"
    return twice if len(records) == 1 else _written([*records[:at], twice, *records[at + 1 :]], b"")


def _named(data: bytes, dice: Random) -> bytes | None:
    """Another id: that of another record, its own parent, a cycle, none, an odd or a long one."""
    records = _records(data)
    spot = _spot(records, dice, NAMES_OF_IDS)
    if spot is None:
        return None
    home, key = spot
    other = _spot(records, dice, NAMES_OF_IDS)
    kind = dice.randrange(7)
    if _is_said(home[key]) or (other and _is_said(other[0][other[1]])):
        return None
    if kind < 2 and other:
        home[key] = other[0][other[1]]
    elif kind == 2 and other:
        home[key], other[0][other[1]] = other[0][other[1]], home[key]
    elif kind == 3:
        names = [name for name in home if _is_named((home, name), NAMES_OF_IDS)]
        home[key] = home[dice.choice(names)]
    elif kind == 4:
        home[key] = str(home[key]) + dice.choice(("2", " ", "\u202e", "x" * 5000, "é", "/../x"))
    elif kind == 5:
        return _cycle(records, data, dice)
    else:
        home[key] = dice.choice((None, "", "unknown", 0, [], {}, "@nul@", "@lone@", "@escape@"))
    return _written(records, data)


def _cycle(records: list[Any], data: bytes, dice: Random) -> bytes | None:
    """Make an earlier record the child of a later one."""
    names = (("parentUuid", "uuid"), ("parentId", "id"), ("parentID", "id"), ("parent_id", "id"))
    maps = [one for one in records if isinstance(one, dict)]
    for parent, own in names:
        tree = [one for one in maps if parent in one and own in one]
        if tree:
            first, last = (dice.choice(tree) for _ in range(2))
            first[parent] = last[own]
            if dice.random() < 0.5:
                last[parent] = first[own]
            return _written(records, data)
    return None


def _timed(data: bytes, dice: Random) -> bytes | None:
    records = _records(data)
    spot = _spot(records, dice, NAMES_OF_TIMES)
    if spot is None or _is_said(spot[0][spot[1]]):
        return None
    other = _spot(records, dice, ("timestamp",))
    home, key = spot
    if other and dice.random() < 0.3 and not _is_said(other[0][other[1]]):
        home[key] = other[0][other[1]]
    else:
        home[key] = dice.choice(TIMES)
    return _written(records, data)


def _listed(data: bytes, dice: Random) -> bytes | None:
    """Parts of a message, calls or results that are lost, there twice, moved or turned round."""
    records = _records(data)
    lists = [
        home[key]
        for value in records
        if isinstance(value, dict | list)
        for home, key in [([value], 0), *_spots(value)]
        if isinstance(home[key], list) and home[key]
    ]
    if not lists:
        return None
    here, there = dice.choice(lists), dice.choice(lists)
    at = dice.randrange(len(here))
    kind = dice.randrange(7)
    if kind == 0:
        del here[at]
    elif kind == 1:
        here.insert(dice.randint(0, len(here)), here[at])
    elif kind == 2:
        here.reverse()
    elif kind == 3:
        there.insert(dice.randint(0, len(there)), json.loads(json.dumps(here.pop(at))))
    elif kind == 4:
        there.insert(dice.randint(0, len(there)), json.loads(json.dumps(here[at])))
    elif kind == 5:
        here.clear()
    else:
        here.insert(at, dice.choice(ODD))
    return _written(records, data)


BYTES: list[tuple[Any, int]] = [
    (_cut_short, 4),
    (_headless, 1),
    (_flipped, 4),
    (_inserted, 6),
    (_removed, 3),
    (_doubled, 2),
    (_breaks, 2),
    (_wiped, 2),
]
TORN = {_torn, *(change for change, _ in BYTES)}
VALUES: list[tuple[Any, int]] = [
    (_valued, 16),
    (_keyed, 9),
    (_named, 12),
    (_timed, 4),
    (_listed, 10),
]
LINES = [*BYTES, *VALUES, (_rearranged, 16), (_torn, 7), (_spliced, 4)]
DOCUMENT = [*BYTES, *[(change, 2 * weight) for change, weight in VALUES], (_spliced, 1)]
