"""Docstrings as Markdown."""

from __future__ import annotations

import inspect
import re

_ROLE = re.compile(r":(?:meth|class|func|attr|mod|data):`~?([^`]+)`")
_LITERAL = re.compile(r"``([^`]+)``")
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z`])")


def prose(doc: str | None) -> str:
    """Turn a docstring into paragraphs, a sentence a line."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(doc or ""))
    return "\n\n".join(_block(block) for block in blocks if block.strip())


def _block(block: str) -> str:
    if block.startswith(">>>"):
        plain = [re.sub(r"^(>>>|\.\.\.) ?", "", line) for line in block.splitlines()]
        code = [re.sub(r" {2,}#", "  #", line) for line in plain]
        return "\n".join(["```python", *code, "```"])
    joined = " ".join(line.strip() for line in block.splitlines())
    return _SENTENCE.sub("\n", _LITERAL.sub(r"`\1`", _ROLE.sub(r"`\1`", joined)))


def cell(text: str) -> str:
    """Make a text fit into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Write a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell(one) for one in row)} |" for row in lines)
