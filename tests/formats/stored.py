"""A stored session of any program, and what must be true of it once it is mended."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

MARK = re.compile(r"MARK-[0-9a-z_]+-\d\d")


@dataclass(frozen=True, slots=True)
class Stored:
    """One session; files and databases differ only in how they are written and read.

    ``state`` gives what must be the same again after an undo: the bytes, or every row.
    ``problems`` and ``sent`` look at what a resume would send.
    """

    name: str
    format: str
    path: str
    session: str
    write: Callable[[Path], None]
    state: Callable[[Path], Any]
    problems: Callable[[Path], list[str]]
    sent: Callable[[Path], Any]
    history: tuple[str, ...]
    spare: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    healthy: bool = False

    def __str__(self) -> str:
        return f"{self.format}:{self.name}"

    def marks(self, path: Path) -> set[str]:
        """The marks in what a resume would send."""
        return set(marks_in(self.sent(path)))


class Marks:
    """The marks of one session, made one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made: list[str] = []

    def words(self, text: str) -> str:
        """The text with a new mark behind it."""
        self.made.append(f"MARK-{self.name}-{len(self.made):02d}")
        return f"{text} {self.made[-1]}"

    @property
    def last(self) -> str:
        return self.made[-1]


def marks_in(value: Any) -> Iterator[str]:
    """Every mark in a JSON value."""
    if isinstance(value, str):
        yield from MARK.findall(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from marks_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from marks_in(item)


def of_file(
    name: str,
    *,
    format: str,  # noqa: A002  the word for it everywhere else
    path: str,
    session: str,
    data: bytes,
    problems: Callable[[bytes], list[str]],
    sent: Callable[[bytes], Any],
    marks: Marks,
    spare: tuple[str, ...] = (),
    aside: tuple[str, ...] = (),
    healthy: bool = False,
) -> Stored:
    """A session that is one file."""
    return Stored(
        name=name,
        format=format,
        path=path,
        session=session,
        write=lambda target: _write(target, data),
        state=Path.read_bytes,
        problems=lambda target: problems(target.read_bytes()),
        sent=lambda target: sent(target.read_bytes()),
        history=tuple(mark for mark in marks.made if mark not in {*spare, *aside}),
        spare=spare,
        aside=aside,
        healthy=healthy,
    )


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def dumped(value: Any) -> bytes:
    """JSON as most programs write it to a line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def joined(lines: list[bytes]) -> bytes:
    """Lines as a file."""
    return b"".join(line + b"\n" for line in lines)


def torn(line: bytes, mark: str, more: int = 3) -> bytes:
    """The line up to a few bytes behind the mark."""
    return line[: line.index(mark.encode()) + len(mark) + more]


def counted(length: int, *names: object) -> str:
    """Hexadecimal digits that depend on *names* alone."""
    return hashlib.sha256(" ".join(map(str, names)).encode()).hexdigest()[:length]


def counted_uuid7(*names: object) -> str:
    """A UUID of version 7 that depends on *names* alone."""
    text = counted(32, *names)
    return f"019f{text[:4]}-{text[4:8]}-7{text[8:11]}-8{text[11:14]}-{text[14:26]}"


def read_lines(data: bytes) -> tuple[list[Json], list[str]]:
    """The objects of a line file, and what is wrong with its bytes and lines."""
    wrong = []
    if data.startswith(b"\xef\xbb\xbf"):
        wrong.append("byte order mark")
    if b"\0" in data:
        wrong.append("NUL bytes")
    if not data.endswith(b"\n"):
        wrong.append("no final newline")
    found = []
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            value = json.loads(line.decode())
        except ValueError:
            wrong.append(f"line {number}: can not be read")
            continue
        if isinstance(value, dict):
            found.append(value)
        else:
            wrong.append(f"line {number}: not an object")
    return found, wrong
