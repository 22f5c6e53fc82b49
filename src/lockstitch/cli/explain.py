"""``lockstitch explain``: what a code means; also the source of the pages under ``docs/rules``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import lockstitch
from lockstitch.cli import CLEAN, terminal
from lockstitch.cli.arguments import JSON, Command, Operand

if TYPE_CHECKING:
    from lockstitch import Rule

# Wider lines are hard to read.
_WIDEST = 100


def run(*, code: str | None, as_json: bool) -> int:
    """Print one rule, or all of them as a list, and return the exit status."""
    rules = [lockstitch.explain(code)] if code else catalogue()
    if as_json:
        from lockstitch.cli import machine

        terminal.emit(machine.encode(rules=rules))
    else:
        _show(page(rules[0]) if code else index(rules))
    return CLEAN


def catalogue() -> list[Rule]:
    """All rules in the order of their codes."""
    return [lockstitch.RULES[code] for code in sorted(lockstitch.RULES)]


def page(rule: Rule) -> str:
    """The rule as a page of Markdown."""
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
        f"## What it is\n\n{sentences(rule.what)}",
        *([f"## What the {'program' if rule.formats else 'provider'} says"] if rule.errors else []),
        *(f"{who}:\n\n```text\n{said}\n```" for who, said in rule.errors),
        f"## What causes it\n\n{sentences(rule.cause)}",
        f"## What {'repair' if rule.formats else 'heal'} does\n\n{sentences(rule.repair)}",
    ]
    return "\n\n".join(parts) + "\n"


def index(rules: list[Rule], link: str = "{code}") -> str:
    """All rules as a table of Markdown; ``link`` turns a code into what stands in its column."""
    rows = [
        f"| {link.format(code=rule.code)} | {rule.name} | {rule.severity} | {_fixable(rule)} "
        f"| {rule.summary} |"
        for rule in rules
    ]
    heads = ["| Code | Name | Severity | Fixable | What is wrong |", "|---|---|---|---|---|"]
    return "\n".join([*heads, *rows]) + "\n"


def sentences(text: str) -> str:
    """A paragraph with each sentence on a line of its own, as Markdown is written here."""
    return re.sub(r"(?<=[.!?]) (?=[A-Z`])", "\n", text)


def _fixable(rule: Rule) -> str:
    if not rule.fixable:
        return "no"
    return "yes, with loss" if rule.lossy else "yes"


def _show(markdown: str) -> None:
    """Lay it out on a terminal or where colours are asked for; print it as it is into a pipe."""
    if not (terminal.is_terminal(sys.stdout) or terminal.shows_colour(sys.stdout)):
        terminal.emit(markdown.encode())
        return
    from shutil import get_terminal_size

    from lockstitch.cli.markdown import rendered

    for line in rendered(markdown, min(get_terminal_size().columns, _WIDEST)):
        terminal.say(line)


COMMAND = Command(
    name="explain",
    run=run,
    summary="Explain a code: what it is, what causes it, what heal does about it.",
    details="Takes a code (LS101) or a name (orphan-call); without either it lists all rules.",
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
        known=tuple(rule.code for rule in catalogue()),
    ),
    options=(JSON,),
)
