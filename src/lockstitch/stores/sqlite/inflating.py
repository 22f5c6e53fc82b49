"""Compressed bytes made plain again, up to a limit: a few of them can stand for gigabytes.

A store may come from anywhere. What is compressed in it says nothing of how much it will be, so
that it is unpacked no further than what can be right.
"""

from __future__ import annotations

import zlib

from lockstitch.errors import Damaged

# What a large value may unpack to, and what the records of a session may, at least.
MOST = 1 << 29
MOST_OF_RECORDS = 1 << 26
# So many times its size anything may unpack to.
RATIO = 32
# A byte that is compressed never stands for more.
DENSEST = 1040
_STEP = 1 << 20


class Overfull(zlib.error):
    """What is compressed stands for more bytes than it may."""


def inflated(body: bytes, most: int) -> bytes:
    """Return compressed bytes as they were; raises Overfull above a limit, or ``zlib.error``."""
    if len(body) * DENSEST > most:
        # It may be too much: that is found out without keeping what comes.
        _require_less(body, most)
    return zlib.decompress(body)


def _require_less(body: bytes, most: int) -> None:
    unpacking, count = zlib.decompressobj(), 0
    while not unpacking.eof:
        count += len(unpacking.decompress(body, _STEP))
        body = unpacking.unconsumed_tail
        if count > most:
            raise Overfull(most)
        if not body:
            return


def beginning(body: bytes, most: int) -> bytes:
    """Return what stands before the damage in compressed bytes, up to a limit."""
    unpacking, found, count = zlib.decompressobj(), list[bytes](), 0
    try:
        for place in range(0, len(body), 64):
            found.append(unpacking.decompress(body[place : place + 64], max(most - count, 1)))
            count += len(found[-1])
            if count >= most:
                break
    except zlib.error:
        pass
    return b"".join(found)


def too_much(where: str, what: str, most: int) -> Damaged:
    """Say that something stands for more than it may."""
    return Damaged(
        f"{where}: {what} unpacks to more than {most:,} bytes, which nothing that was written here"
        " does; nothing was changed"
    )
