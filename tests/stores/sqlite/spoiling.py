"""Changes the bytes of one record in a database, the way a disk does it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from lockstitch.stores.sqlite import pieces

# Where the parts of a record begin, with a short head and with a long one.
SHORT = {"tag": 0, "epoch": 1, "size": 3, "time": 5, "digest": 11, "key": 27, "body": 39}
PARTS = {**SHORT, "long digest": 17, "long body": 34}


def spoil(path: str | Path, session: str, seq: int, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of a record that a session, no fork, has in pieces; they stay as many."""
    with closing(sqlite3.connect(path)) as base, base:
        [(number,)] = base.execute("select number from sessions where name = ?", (session,))
        where = (number << 24, number << 24 | 0xFFFFFF)
        rows = base.execute(
            "select id, first, body from pieces where codec = 0 and id between ? and ?", where
        ).fetchall()
        first, data = rows[0][1], b"".join(body for _, _, body in rows)
        begin, end = (pieces.decode_records(data, first - 1, upto)[1] for upto in (seq - 1, seq))
        changed = change(data[begin:end])
        assert len(changed) == end - begin
        assert changed != data[begin:end]
        data = data[:begin] + changed + data[end:]
        for piece, _, body in rows:
            base.execute("update pieces set body = ? where id = ?", (data[: len(body)], piece))
            data = data[len(body) :]


def flip(place: int, bit: int = 1) -> Callable[[bytes], bytes]:
    """Flip bits of the byte at a place."""
    return lambda data: data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
