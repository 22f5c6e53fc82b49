"""Live writers append to a file while it is repaired again and again: how many lines are lost?

``python -m tests.files.soak --megabytes 50 --repairs 20`` is the long run; the tests do a short
one. ``python -m tests.files.soak write HOW NAME FILE`` is one writer: it appends about a hundred
numbered lines a second until its stdin ends, and then prints how many.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from lockstitch.errors import Busy, Conflict
from lockstitch.files import backup, replace

PAUSE = 0.01
TRIES = 200
# Each kind on its own: writers that take several steps for a line spoil each other's lines.
WAYS = ("whole", "halves", "reopened", "hurried")


class Outcome(Struct, frozen=True):
    """What came of it.

    ``carried`` counts the bytes appended during repairs; ``damaged`` lines are not what somebody
    wrote, ``late`` ones stand behind a later line of the same writer.
    """

    repairs: int
    conflicts: int
    written: int
    carried: int
    lost: int
    doubled: int
    damaged: int
    late: int

    @property
    def is_clean(self) -> bool:
        """Whether every line is there, once and whole."""
        return not (self.lost or self.doubled or self.damaged)


def record(name: str, number: int) -> bytes:
    text = json.dumps({"writer": name, "number": number, "text": "x" * (number * 37 % 900)})
    return f"{text}\n".encode()


def append(path: str, *pieces: bytes) -> None:
    """Open, append a line in one or more steps, close: as a harness does for every record."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        for number, piece in enumerate(pieces):
            time.sleep(PAUSE / 4 if number else 0)
            os.write(handle, piece)
    finally:
        os.close(handle)


def write(how: str, name: str, path: str) -> None:
    """Append lines until stdin ends."""
    number = 0
    while not select.select([sys.stdin], [], [], PAUSE / 10 if how == "hurried" else PAUSE)[0]:
        line = record(name, number)
        middle = len(line) // 2
        if how == "halves":
            append(path, line[:middle], line[middle:])
        elif how == "reopened":
            append(path, line[:middle])
            time.sleep(PAUSE / 4)
            append(path, line[middle:])
        else:
            append(path, line)
        number += 1
    print(number)  # noqa: T201


@contextmanager
def writing(how: str, name: str, path: Path, counts: Counter[str]) -> Iterator[None]:
    """A writer beside us; afterwards ``counts`` says how many lines it wrote."""
    command = [sys.executable, "-m", "tests.files.soak", "write", how, name, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        yield
        output, _ = child.communicate(timeout=600)
        counts[name] = int(output)


def repair(path: Path, number: int) -> tuple[int, int]:
    """Replace the first line, which counts the repairs; how many tries, and what was carried."""
    for tried in range(TRIES):
        before = replace.snapshot(path)
        first, _, rest = before.data.partition(b"\n")
        assert json.loads(first)["repairs"] == number
        data = b'{"repairs": %d}\n%s' % (number + 1, rest)
        try:
            _, replaced = backup.replace_with_backup(before, data, f"run-{number}", {})
        except Conflict as error:
            if isinstance(error, Busy) and tried == TRIES - 1:
                raise
            continue
        return tried, replaced.carried
    raise AssertionError("no repair came through")


def soak(folder: Path, how: str, megabytes: float, repairs: int, writers: int = 1) -> Outcome:
    """Repair a file of some size that often, with writers of one kind beside it."""
    path = folder / "session.jsonl"
    filler = json.dumps({"filler": "y" * 2000}).encode() + b"\n"
    path.write_bytes(b'{"repairs": 0}\n' + filler * int(megabytes * 1e6 / len(filler)))
    counts: Counter[str] = Counter()
    names = [f"{how}-{number}" for number in range(writers)]
    conflicts = carried = done = 0
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(writing(how, name, path, counts))
        while not all(b'"%s"' % name.encode() in path.read_bytes() for name in names):
            time.sleep(0.01)
        # More of them if the writers happened to be slow.
        while done < repairs or (not carried and done < repairs * TRIES):
            tried, taken = repair(path, done)
            conflicts += tried
            carried += taken
            done += 1
    found, damaged = lines(path)
    expected = {(name, number) for name, count in counts.items() for number in range(count)}
    return Outcome(
        repairs=done,
        conflicts=conflicts,
        written=len(expected),
        carried=carried,
        lost=len(expected - set(found)),
        doubled=len(found) - len(set(found)),
        damaged=damaged + len(set(found) - expected),
        late=sum(_late(found, name) for name in counts),
    )


def lines(path: Path) -> tuple[list[tuple[str, int]], int]:
    """The lines of the writers in a file, and how many lines are not whole."""
    found = []
    damaged = 0
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            value = json.loads(line)
        except ValueError:
            damaged += 1
            continue
        if "writer" in value:
            found.append((value["writer"], value["number"]))
            damaged += line != record(*found[-1])
    return found, damaged


def _late(found: list[tuple[str, int]], name: str) -> int:
    numbers = [number for writer, number in found if writer == name]
    return sum(one > other for one, other in pairwise(numbers))


def main() -> int:
    """Run the long one and print what came of it; the exit status is 1 if a line was lost."""
    if sys.argv[1:2] == ["write"]:
        write(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--repairs", type=int, default=20)
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--ways", nargs="*", default=WAYS)
    given = parser.parse_args()
    clean = True
    for how in given.ways:
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            outcome = soak(Path(folder), how, given.megabytes, given.repairs, given.writers)
        print(how, outcome, f"{time.monotonic() - start:.1f} s", flush=True)  # noqa: T201
        clean = clean and outcome.is_clean
    return int(not clean)


if __name__ == "__main__":
    sys.exit(main())
