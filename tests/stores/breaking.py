"""Records that are damaged behind a store's back, the way a disk or a hand does it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg

from lockstitch.sources.own_stores import path_of
from tests.stores.contract import Place
from tests.stores.sqlite.spoiling import PARTS, spoil

# What is done to a record: its body, key, digest or number changes, or it goes.
DAMAGES = ("bit of the body", "bit of the digest", "key", "garbage", "gone")
_MIDDLE = 25


def broken(place: Place, damage: str, seq: int) -> None:
    """Damage one record of the session ``talk``, or the large value that it names."""
    {"sqlite": _sqlite, "jsonl": _jsonl, "postgres": _postgres}[place.kind](place.url, damage, seq)


def _sqlite(url: str, damage: str, seq: int) -> None:
    if damage == "large value":
        with closing(sqlite3.connect(path_of(url))) as base, base:
            base.execute("update blobs set body = substr(body, 1, 1000)")
        return
    spoil(path_of(url), "talk", seq, lambda data: _spoilt(damage, data))


def _spoilt(damage: str, data: bytes) -> bytes:
    """Give the bytes of a record as they are afterwards."""
    body = PARTS["body"] if data[0] == 0 else PARTS["long body"] + data[PARTS["long body"] - 1]
    match damage:
        case "gone":
            return bytes(len(data))
        case "bit of the body":
            return flip(data, body + (len(data) - body) // 2)
        case "bit of the digest":
            return flip(data, (PARTS["digest"] if data[0] == 0 else PARTS["long digest"]) + 3)
        case "key":
            return flip(data, PARTS["key"] + 2 if data[0] == 0 else body - 1)
        case _:
            return data[:body] + b"garbage" + data[body + 7 :]


def changed(damage: str, key: str, digest: bytes, body: bytes) -> tuple[str, bytes, bytes]:
    """Give a record's parts as they are afterwards."""
    match damage:
        case "bit of the body":
            return key, digest, flip(body, len(body) // 2)
        case "bit of the digest":
            return key, flip(digest, 3), body
        case "key":
            return f"{key[:-1]}{chr(ord(key[-1]) ^ 1)}", digest, body
        case _:
            return key, digest, b"garbage" + body[_MIDDLE:]


def flip(data: bytes, place: int) -> bytes:
    changed_ = bytearray(data)
    changed_[place] ^= 4
    return bytes(changed_)


def _jsonl(url: str, damage: str, seq: int) -> None:
    folder = Path(path_of(url))
    path = folder / "talk.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if line.startswith(b'{"seq":%d,' % seq))
    line = lines[number]
    match damage:
        case "gone":
            # The last line of a file that is gone is what a crash leaves.
            lines[number] = b"" if number + 1 < len(lines) else line[:-3] + b"???"
        case "bit of the body":
            lines[number] = flip(line, line.index(b'"body":') + _MIDDLE)
        case "bit of the digest":
            lines[number] = flip(line, line.index(b'"digest":"') + 12)
        case "key":
            lines[number] = flip(line, line.index(b'"key":"') + 8)
        case "large value":
            [blob] = (folder / "blobs").glob("*/*")
            blob.write_bytes(blob.read_bytes()[:1000])
        case _:
            start = line.index(b'"body":') + 7
            lines[number] = line[:start] + b"garbage" + line[start + 7 :]
    path.write_bytes(b"".join(lines))


def _postgres(url: str, damage: str, seq: int) -> None:
    with psycopg.connect(url) as base:
        where = (
            "WHERE seq = %s AND session ="
            " (SELECT id FROM lockstitch.sessions WHERE session = 'talk')"
        )
        if damage == "gone":
            base.execute(f"DELETE FROM lockstitch.records {where}", (seq,))  # noqa: S608
        elif damage == "large value":
            base.execute("UPDATE lockstitch.blobs SET body = substring(body FROM 1 FOR 1000)")
        else:
            found = base.execute(
                f"SELECT key, digest, body FROM lockstitch.records {where}",  # noqa: S608
                (seq,),
            ).fetchone()
            assert found
            parts = changed(damage, found[0], bytes(found[1]), bytes(found[2]))
            base.execute(
                f"UPDATE lockstitch.records SET key = %s, digest = %s, body = %s {where}",  # noqa: S608
                (*parts, seq),
            )
