"""Whatever a crash leaves of the end of a file, the acknowledged appends before it count."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstitch.stores.base import Backend
from tests.stores.contract import entries, entry
from tests.stores.jsonl.history import goes_on, history, reopened


def test_cut_at_every_byte(folder: Path) -> None:
    past = history(folder)
    for size in range(len(past.data) + 1):
        with reopened(folder, past.data[:size]) as backend:
            assert list(backend.read("s")) == past.upto(size)
            if size % STEP == 0 or b"\n" in past.data[size - 2 : size + 2]:
                goes_on(backend, folder / "s.jsonl", past.upto(size))


STEP = 1 if os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") else 10
CHANCE = random.Random(1)  # noqa: S311
TAILS: dict[str, Callable[[bytes, int], bytes]] = {
    "one zero": lambda *_: b"\0",
    "a page of zeros": lambda *_: bytes(4096),
    "zeros up to the old size": lambda data, size: bytes(len(data) - size),
    "zeros and a newline": lambda *_: bytes(100) + b"\n",
    "newlines": lambda *_: b"\n\n\n",
    "a foreign line": lambda *_: b'{"type":"user","message":{"content":"hello"}}\n',
    "half a line": lambda data, _: data[:100],
    "the first lines again": lambda data, size: b"".join(data[:size].splitlines(True)[:4]),
    "the last line again": lambda data, size: last_line(data[:size]),
    "the last line again and again": lambda data, size: last_line(data[:size]) * 5,
    "all of it again": lambda data, size: data[:size],
    "random bytes": lambda *_: CHANCE.randbytes(500),
    "random lines": lambda *_: CHANCE.randbytes(5000).replace(b"a", b"\n"),
}


def last_line(data: bytes) -> bytes:
    return data.splitlines(keepends=True)[-1] if data else b""


@pytest.mark.parametrize("name", TAILS)
def test_other_bytes_behind_a_cut(folder: Path, name: str) -> None:
    past = history(folder)
    path = folder / "s.jsonl"
    cuts = {end + near for end, _ in past.acknowledged for near in (-40, -1, 0, 1, 60)}
    for size in sorted(cut for cut in cuts if 0 <= cut <= len(past.data)):
        data = past.data[:size] + TAILS[name](past.data, size)
        # A newline may be all that was missing.
        same = next(
            (at for at, (a, b) in enumerate(zip(past.data, data, strict=False)) if a != b),
            len(data),
        )
        with reopened(folder, data) as backend:
            goes_on(backend, path, past.upto(same))
            goes_on_again(backend, path)


def goes_on_again(backend: Backend, path: Path) -> None:
    """What the next writer said of the torn bytes is understood by all after it."""
    expected = list(backend.read("s"))
    with reopened(path.parent, path.read_bytes()) as another:
        goes_on(another, path, expected)


def test_pages_of_the_last_append_that_never_reached_the_disk(folder: Path) -> None:
    """Without a sync, any of them can be missing after a power failure, in any order."""
    past = history(folder)
    path = folder / "s.jsonl"
    with reopened(folder, past.data) as backend:
        before = path.stat().st_size
        lease = backend.acquire("s")
        start = path.stat().st_size
        large = [entry(f"k{number}", b'"' + b"x" * 3000 + b'"') for number in range(6)]
        backend.append(lease, large, len(past.records))
    whole = path.read_bytes()
    pages = range(start // 4096 * 4096, len(whole), 4096)
    for chosen in range(1, 2 ** len(pages)):
        data = bytearray(whole)
        for number, page in enumerate(pages):
            if chosen >> number & 1:
                first, last = max(page, start), min(page + 4096, len(whole))
                data[first:last] = bytes(last - first)
        with reopened(folder, bytes(data)) as backend:
            assert list(backend.read("s")) == past.records
            if chosen % 4 == 1:
                goes_on(backend, path, past.records)
    assert before < start < len(whole)


def test_the_next_writer_crashes_over_what_a_crash_left(folder: Path) -> None:
    """Both cut at every byte near their ends: nothing of it is damage, and nothing counts."""
    past = history(folder)
    path = folder / "s.jsonl"
    start = past.acknowledged[-2][0]
    for lacking in range(1, 70) if STEP == 1 else (1, 2, 3, 12, 30):
        torn = past.data[:-lacking]
        with reopened(folder, torn) as backend:
            backend.acquire("s")
            whole = path.read_bytes()
        for size in range(len(torn), len(whole) - 1):
            with reopened(folder, whole[:size]) as backend:
                assert list(backend.read("s")) == past.upto(start)
        with reopened(folder, whole[: len(torn) + 1]) as backend:
            goes_on(backend, path, past.upto(start))


def test_torn_again_and_again(folder: Path) -> None:
    past = history(folder)
    path = folder / "s.jsonl"
    path.write_bytes(past.data)
    expected = past.records
    for _ in range(200 // STEP):
        with reopened(folder, path.read_bytes()) as backend:
            goes_on(backend, path, expected)
            expected = list(backend.read("s"))
        whole = path.read_bytes()
        with reopened(folder, whole) as backend:
            lease = backend.acquire("s")
            backend.append(lease, entries("torn", "torn", "torn"), len(expected))
        # The last append is torn; often the opening line before it, too.
        path.write_bytes(whole + path.read_bytes()[len(whole) :][: CHANCE.randrange(700)])
        with reopened(folder, path.read_bytes()) as backend:
            found = list(backend.read("s"))
            assert found[: len(expected)] == expected
            assert len(found) - len(expected) in {0, 3}
            expected = found
