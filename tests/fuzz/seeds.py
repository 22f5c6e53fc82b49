"""What mutants are made of: sessions of every program, healthy and broken in every known way.

They are those of the other tests, made by the same builders; real files can be given instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lockstitch.errors import LockstitchError
from lockstitch.formats.interface import NAMES
from lockstitch.sources.targets import sources_in

from . import sqlite_mutants

FORMATS = NAMES
LARGEST = 200_000  # bytes of a real file: a mutant has to be done in milliseconds


@dataclass(frozen=True, slots=True)
class Seed:
    """A session's file: where its program keeps it below a home, its bytes, and files beside it."""

    name: str
    path: str
    data: bytes
    side: Mapping[str, bytes] = field(default_factory=dict)


def is_base(form: str) -> bool:
    """Whether a format is that of a database."""
    return form in sqlite_mutants.FORMATS


@cache
def seeds(form: str, folder: str = "") -> tuple[Seed, ...]:
    """Return the seeds of a format, of a folder of real files if one is given."""
    found = tuple(_real(form, Path(folder)) if folder else _own(form))
    if not found:
        raise SystemExit(f"no session of {form} to begin with" + f" in {folder}" * bool(folder))
    return found


def _real(form: str, folder: Path) -> Iterator[Seed]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size <= LARGEST:
            try:
                formats = {source.format for source in sources_in(str(path))}
            except LockstitchError:
                continue
            if formats == {form}:
                yield Seed(path.name, f"work/{path.name}", path.read_bytes())


def _own(form: str) -> Iterator[Seed]:
    if is_base(form):
        yield from _databases(form)
    elif form == "claude-code":
        yield from _claude()
    elif form == "requests":
        yield from _requests()
    elif form == "opencode-export":
        yield from _exports()
    else:
        yield from _files(form)
        yield from _lists() if form == "list" else ()


def _databases(form: str) -> Iterator[Seed]:
    places = {
        "opencode": ".local/share/opencode/opencode.db",
        "goose": ".local/share/goose/sessions/sessions.db",
        "openclaw": ".openclaw/agents/main/agent/openclaw-agent.sqlite",
    }
    for number, data in enumerate(sqlite_mutants.seeds(form)):
        yield Seed(f"{form}-{number}", places.get(form, "project/it.db"), data)


def _claude() -> Iterator[Seed]:
    from tests.formats.claude_cases import CASES

    for case in CASES:
        folder = f".claude/projects/-home-ada-{case.name.replace('_', '-')}"
        yield Seed(str(case), f"{folder}/{case.session}.jsonl", case.data, case.side)


def _files(form: str) -> Iterator[Seed]:
    from tests.formats import codex_files, gemini_files, pi_files, plain_files

    files = (codex_files, gemini_files, pi_files, plain_files)
    for case in (case for module in files for case in module.CASES if case.format == form):
        yield Seed(case.name, case.path, _written(case.write))


def _written(write: Callable[[Path], None]) -> bytes:
    with TemporaryDirectory() as folder:
        write(Path(folder, "it"))
        return Path(folder, "it").read_bytes()


def _lists() -> Iterator[Seed]:
    """Message lists in every dialect: all kinds of break, and healthy ones."""
    from tests.healthy.test_healthy import CASES as HEALTHY
    from tests.kinds_of_break.conversations import BROKEN
    from tests.kinds_of_break.render import FORMS

    lists: list[tuple[str, Any]] = [
        (f"{conversation.name}-{form}", render(conversation.turns))
        for form, (_, render) in FORMS.items()
        if form != "langchain-objects"
        for conversation in BROKEN
    ]
    lists += [(f"{dialect}-{name}".replace(":", "-"), found) for dialect, name, found in HEALTHY]
    for number, (name, messages) in enumerate(lists):
        named = f"project/{name.replace('/', '-').replace(' ', '-')[:80]}"
        try:
            document = json.dumps(messages, indent=2 if number % 3 else None).encode()
        except TypeError:  # a healthy list of objects, which no file holds
            continue
        yield Seed(name, f"{named}.json", document)
        if number % 3 == 0 and isinstance(messages, list):
            rows = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
            yield Seed(f"{name}-lines", f"{named}.jsonl", rows)


def _requests() -> Iterator[Seed]:
    from tests.formats.test_plain import LISTS
    from tests.formats.test_requests import requests

    for dialect in LISTS:
        for name, answered in {
            "healthy": (True, True, True),
            "open": (True, False, True, False),
        }.items():
            lines = requests(dialect, *answered)
            data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            yield Seed(f"{dialect}-{name}", f"project/{dialect}-{name}.jsonl", data)


def _exports() -> Iterator[Seed]:
    from tests.formats.databases import OpencodeBook
    from tests.formats.test_opencode import exported

    for count in (1, 2, 4):
        book = OpencodeBook(f"export_{count}")
        for number in range(count):
            book.work(f"Read number {number}.", f"file{number}")
        yield Seed(f"healthy-{count}", f"project/healthy-{count}.json", exported(book))
        book.message("user", book.text("Run the build."))
        book.message("assistant", book.text("I build it."), book.tool("build", None), done=False)
        yield Seed(f"running-{count}", f"project/running-{count}.json", exported(book))
        half = book.tool("again", None, metadata="half")
        book.message("assistant", book.text("Again."), half, book.tool("more", "done"), done=False)
        book.work("Are you there?", "status")
        yield Seed(f"mixed-{count}", f"project/mixed-{count}.json", exported(book))
