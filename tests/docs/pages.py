"""The blocks of a page of documentation, to be run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from lockstitch import cli

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """Every block with its first line and its language."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start()) + 2, found[1], found[2])
        for found in _BLOCK.finditer(text)
    ]


def run_page(page: Path, names: dict[str, Any]) -> None:
    """Run the Python and the commands of a page in order; every command must end with 0."""
    for line, language, code in blocks(page):
        if language == "python":
            source = "\n" * (line - 1) + code
            exec(compile(source, str(page), "exec"), names)  # noqa: S102 - our own page
        elif language == "console":
            _commands(code)


def _commands(code: str) -> None:
    for line in code.splitlines():
        if line.startswith("$ "):
            assert cli.run(shlex.split(line.removeprefix("$ lockstitch "))) == 0, line
