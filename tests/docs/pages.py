"""The blocks of a page of documentation, run as a reader would run them.

A ``python`` block is run, one with a title is saved as the file of that name, and every line of a
``console`` block that begins with ``$`` is typed. What the page shows below a command, and in a
``text`` block right below one of Python, must be what is printed; ``…`` stands for anything in a
line, and for any lines if it is alone. A command below which nothing is shown may print what it
likes. It must end with 0, or with 1 if it has found something.

``python -m tests.docs`` writes what the commands print now into the pages.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import inprocess

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
# What is another one each time: backups, times, processes.
_VOLATILE = re.compile(
    r"\d{8}T\d{12}Z-[0-9a-f]{12}-[0-9a-f]{12}|\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?"
    r"|(?<=checkpoints\.)[0-9a-f-]{36}|\w+, process \d+ on \S+"
    r'|(?<="at":)\d+|(?<=")[0-9a-f]{24}(?=")|(?<=ticket-42\.)[0-9a-f]{16}'
    r"|(?<=kill -9 )\d+|(?<=--run )[\w-]+"
)
# These end with 1 when they find something, and that is no failure of the page.
_FINDING = {"check", "scan", "show"}


@dataclass
class Block:
    """A block of a page: its first line, its language, the file it is saved as, and its text.

    ``output`` is the text that a block of Python prints, if the page shows it right below.
    """

    line: int
    language: str
    title: str
    code: str
    start: int
    output: str | None = None
    output_start: int = 0


@dataclass
class Shown:
    """What a page shows, where in the page that is, and what was really printed."""

    start: int
    text: str
    printed: str


@dataclass
class Run:
    """Where the blocks of a page are run, and what it showed.

    ``languages`` runs blocks of other languages, ``addresses`` has what stands for those that a
    page names.
    """

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    languages: dict[str, Callable[[str], None]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    shown: list[Shown] = field(default_factory=list)


def pages() -> list[Path]:
    """Every page that a person wrote."""
    found = [*DOCS.glob("*.md"), *DOCS.glob("howto/*.md"), *DOCS.glob("explanation/*.md")]
    return sorted(found)


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """Every block with its first line and its language."""
    return [(one.line, one.language, one.code) for one in _blocks(page.read_text("utf-8"))]


def _blocks(text: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        shown = _BLOCK.match(text, found.end() + 2)
        block = Block(line, found[1], found[2] or "", found[3], found.start(3))
        if shown and shown[1] == "text":
            block.output, block.output_start = shown[3], shown.start(3)
        yield block


def run_page(page: Path, names: dict[str, Any] | Run) -> Run:
    """Run the blocks of a page in order; gives the run, with the console blocks as they are now."""
    run = names if isinstance(names, Run) else Run(Path.cwd(), names)
    for block in _blocks(page.read_text("utf-8")):
        if block.title:
            (run.folder / block.title).write_text(block.code, "utf-8")
        elif block.language == "python":
            _execute(page, block, run)
        elif block.language == "console":
            run.shown.append(Shown(block.start, block.code, _typed(page, block, run)))
        elif block.language in run.languages:
            run.languages[block.language](block.code)
    return run


def _execute(page: Path, block: Block, run: Run) -> None:
    source = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    if block.output is None:
        exec(source, run.names)  # noqa: S102 - our own page
        return
    with redirect_stdout(io.StringIO()) as printed:
        exec(source, run.names)  # noqa: S102 - our own page
    text = printed.getvalue().replace(str(run.folder), "~")
    run.shown.append(Shown(block.output_start, block.output, _VOLATILE.sub("…", text)))


def check_outputs(page: Path, run: Run) -> None:
    """Hold what a page shows against what its commands printed."""
    for one in run.shown:
        assert matches(one.text, one.printed), (
            f"{page.name} shows other words than are printed; `python -m tests.docs` writes them "
            f"anew:\n--- shown\n{one.text}--- printed\n{one.printed}"
        )


def matches(shown: str, printed: str) -> bool:
    """Whether a block of a page is what was printed, with ``…`` for anything."""
    parts = [
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in shown.splitlines()
    ]
    return re.fullmatch("".join(parts), printed) is not None


def _typed(page: Path, block: Block, run: Run) -> str:
    """Run the commands of a console block; gives the block with what they print."""
    written: list[str] = []
    for lines in _commands(block.code):
        words = shlex.split(lines[0].removeprefix("$ "), comments=True)
        status, printed = _result(words, run)
        expected = {0, 1} if words[1:2] and words[1] in _FINDING else {0}
        assert status in expected, f"{page.name}: {lines[0]} ended with {status}:\n{printed}"
        is_shown = any(line.strip() for line in lines[1:])
        written.append(lines[0])
        written += _VOLATILE.sub("…", printed).splitlines() if is_shown else []
        written += [""] if is_shown else []
    text = "\n".join(written).rstrip("\n") + "\n"
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


def _commands(code: str) -> list[list[str]]:
    """The commands of a block, each with what is shown below it."""
    found: list[list[str]] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            found.append([line])
        elif found:
            found[-1].append(line)
    return found


def _result(words: list[str], run: Run) -> tuple[int, str]:
    program, *rest = words
    if program == "lockstitch":
        env = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "HOME": str(run.folder)}
        given = [run.addresses.get(word, word.replace("~", str(run.folder), 1)) for word in rest]
        done = inprocess.command(*given, cwd=run.folder, env=env)
        text = (done.stdout + done.stderr).decode()
        for named, real in {**run.addresses, "~": str(run.folder)}.items():
            text = text.replace(real.partition("?")[0], named.partition("?")[0])
        return done.returncode, text
    assert program == "python", f"no page may ask for {program}"
    finished = subprocess.run(
        [sys.executable, *rest],
        cwd=run.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if finished.returncode == -signal.SIGKILL:
        return 0, finished.stdout + finished.stderr + "Killed\n"  # as a shell says it
    return finished.returncode, finished.stdout + finished.stderr


def rewrite(page: Path, run: Run) -> bool:
    """Write what the commands print into a page; tells whether it changed."""
    before = after = page.read_text("utf-8")
    for one in reversed(run.shown):
        if not matches(one.text, one.printed):
            end = one.start + len(one.text)
            after = f"{after[: one.start]}{one.printed}{after[end:]}"
    if after != before:
        page.write_text(after, "utf-8")
    return after != before
