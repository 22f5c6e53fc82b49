"""``lockstitch explain``: the meaning of a code; also generates the pages under ``docs/rules``."""

from __future__ import annotations

import re
import sys
import textwrap
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import lockstitch
from lockstitch.cli import render, terminal
from lockstitch.cli.options import JSON, Command, Operand
from lockstitch.cli.terminal import CLEAN, escape_controls, paint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch import Rule


# Wider lines are hard to read.
_WIDEST = 100


def run(*, code: str | None, as_json: bool) -> int:
    """Print one rule, or all of them as a list, and return the exit status."""
    rules = [lockstitch.explain(code)] if code else all_rules()
    if as_json:
        terminal.emit(render.encode_json(rules=rules))
        return CLEAN
    markdown = rule_page(rules[0]) if code else rule_table(rules)
    # laid out on a terminal or if colours are requested, and plain in a pipe
    if terminal.is_terminal(sys.stdout) or terminal.shows_colour(sys.stdout):
        for line in render_markdown(markdown, min(get_terminal_size().columns, _WIDEST)):
            terminal.say(line)
    else:
        terminal.emit(markdown.encode())
    return CLEAN


def all_rules() -> list[Rule]:
    """Return all rules in the order of their codes."""
    return [lockstitch.RULES[code] for code in sorted(lockstitch.RULES)]


def rule_page(rule: Rule) -> str:
    """Return the rule as a page of Markdown."""
    facts = {
        "Severity": rule.severity,
        "Dialects": ", ".join(rule.dialects),
        "Formats": ", ".join(rule.formats),
        "Fixable": _fixable(rule),
        "Known for": rule.known,
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in facts.items() if value)
    parts = [
        f"# {rule.code} {rule.name}",
        f"{rule.summary[:1].upper()}{rule.summary[1:]}.",
        f"| | |\n|---|---|\n{table}",
        f"## What it is\n\n{split_sentences(rule.what)}",
        *([f"## What the {'program' if rule.formats else 'provider'} says"] if rule.errors else []),
        *(f"{who}:\n\n```text\n{said}\n```" for who, said in rule.errors),
        f"## What causes it\n\n{split_sentences(rule.cause)}",
        f"## What {'repair' if rule.formats else 'heal'} does\n\n{split_sentences(rule.repair)}",
    ]
    return "\n\n".join(parts) + "\n"


def rule_table(rules: list[Rule], link: str = "{code}") -> str:
    """Return all rules as a Markdown table; ``link`` turns a code into the text of its column."""
    rows = [
        f"| {link.format(code=rule.code)} | {rule.name} | {rule.severity} | {_fixable(rule)} "
        f"| {rule.summary} |"
        for rule in rules
    ]
    heads = ["| Code | Name | Severity | Fixable | What is wrong |", "|---|---|---|---|---|"]
    return "\n".join([*heads, *rows]) + "\n"


def split_sentences(text: str) -> str:
    """Return a paragraph with each sentence on its own line, as in this project's Markdown."""
    return re.sub(r"(?<=[.!?]) (?=[A-Z`])", "\n", text)


def _fixable(rule: Rule) -> str:
    if not rule.fixable:
        return "no"
    return "yes, with loss" if rule.lossy else "yes"


COMMAND = Command(
    name="explain",
    run=run,
    details="Takes a code (LS101) or a name (orphan-call); without one it lists all rules.",
    examples=(
        "lockstitch explain LS101",
        "lockstitch explain orphan-call --json",
        "lockstitch explain",
    ),
    operand=Operand(
        "code",
        "CODE",
        "Code or name of a rule.",
        is_target=False,
        known=tuple(rule.code for rule in all_rules()),
    ),
    options=(JSON,),
)


_FENCE = re.compile(r"^```\w*\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")
# The last column of a table is never narrower than this.
_NARROWEST_COLUMN = 24


def render_markdown(page: str, width: int) -> Iterator[str]:
    """Yield the lines of a page, none longer than ``width`` unless it is a single word."""
    # Every second piece is the content of a code block.
    for number, piece in enumerate(_FENCE.split(page)):
        if number % 2:
            yield from (paint(f"    {escape_controls(line)}", "dim") for line in piece.split("\n"))
            yield ""
            continue
        for block in re.split(r"\n{2,}", piece.strip("\n")):
            if block.startswith("|"):
                yield from _render_table(block.split("\n"), width)
            elif block.startswith("#"):
                yield paint(escape_controls(block.lstrip("# ")), "bold", "cyan")
            elif block:
                yield from _wrap_markdown(" ".join(block.split("\n")), width)
            yield from [""] if block else ()


def _render_table(lines: list[str], width: int) -> Iterator[str]:
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    rows = [row for row in cells if any(cell.strip("-| ") for cell in row)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    indent = sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = max(width - indent, _NARROWEST_COLUMN)
    for row in rows:
        start = "  ".join(
            cell.ljust(size) for cell, size in zip(row[:-1], widths[:-1], strict=True)
        )
        for line in _wrap_markdown(row[-1], room):
            yield f"{start.ljust(indent)}{line}".rstrip()
            start = ""


def _wrap_markdown(text: str, width: int) -> Iterator[str]:
    for line in textwrap.wrap(
        escape_controls(text), width, break_long_words=False, break_on_hyphens=False
    ):
        yield _CODE.sub(lambda found: paint(found[0], "cyan"), line)
