"""``lockstitch heal``: a conversation in, one that the provider accepts out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import lockstitch
from lockstitch.cli import documents, render, terminal
from lockstitch.cli.options import DIALECT, JSON, MODEL, OVERWRITE, Command, Operand, Option
from lockstitch.cli.terminal import CLEAN, FINDINGS
from lockstitch.conversation.json_text import dump
from lockstitch.dialects.registry import confirm_dialect
from lockstitch.errors import Unreadable, UsageError

if TYPE_CHECKING:
    from lockstitch import Plan
    from lockstitch.cli.documents import MessageDocument


_MANY = (
    "holds a request on every line: `lockstitch repair` repairs each of them in place, and heal "
    "takes one of them, in a file of its own"
)


def run(  # noqa: PLR0913 - one keyword an option
    *,
    file: str | None,
    dialect: str | None,
    model: str | None,
    output: str | None,
    force: bool,
    diff: bool,
    as_json: bool,
) -> int:
    """Heal one conversation, print it and what was done, and return the exit status."""
    if diff and as_json:
        raise UsageError("--diff and --json exclude each other")
    [target] = documents.input_names([file] if file else [])
    if output is not None:
        from lockstitch.cli.targets import write_copy

        write_copy(output, None, target, force=force)
    try:
        document = _read(target)
        with documents.limits_as_errors():
            named = confirm_dialect(document.value, dialect)
            plan = lockstitch.plan(document.value, named, model=model)
            data = documents.encode_document(document, plan.messages)
            shown = _shown(document, plan, data, diff=diff, as_json=as_json)
    except Unreadable as error:
        raise Unreadable(f"{render.target_name(target)}: {error}") from error
    if output is not None:
        write_copy(output, data, target, force=force)
    if diff:
        terminal.emit(shown)
    elif output is None or as_json:
        terminal.emit_json(shown)
    _summarise(target, plan)
    return FINDINGS if plan.remaining else CLEAN


def _read(target: str) -> MessageDocument:
    document = documents.read_document(target)
    if document.requests:
        raise Unreadable(_MANY)
    return document


def _shown(
    document: MessageDocument, plan: Plan, data: bytes, *, diff: bool, as_json: bool
) -> bytes:
    """Return what goes to stdout: the report, the difference, or the healed JSON itself."""
    if as_json:
        return _report(document.target, plan)
    return _difference(document, plan.messages) if diff else data


def _report(target: str, plan: Plan) -> bytes:
    return render.encode_json(
        target=target,
        dialect=plan.dialect,
        changed=plan.changed,
        findings=plan.findings,
        edits=plan.edits,
        changes=plan.changes,
        quarantine=plan.quarantine,
        remaining=plan.remaining,
    )


def _difference(document: MessageDocument, healed: object) -> bytes:
    """Return a unified diff of both as indented JSON, whatever the line breaks of the file."""
    if healed is document.value:
        return b""
    from difflib import unified_diff

    old, new = (dump(value, indent=2).splitlines() for value in (document.value, healed))
    name = render.target_name(document.target)
    lines = unified_diff(old, new, name, f"{name} (healed)", lineterm="")
    return "".join(f"{_coloured(line)}\n" for line in lines).encode("utf-8", "backslashreplace")


def _coloured(line: str) -> str:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(line[0])
    safe = terminal.escape_controls(line)
    return terminal.paint(safe, style) if style else safe


def _summarise(target: str, plan: Plan) -> None:
    """Print what was done, or why nothing could be, on stderr."""
    for found in plan.remaining:
        terminal.note(render.describe_finding(target, plan.dialect, found, sys.stderr))
    if not plan.healed:
        terminal.note(
            f"Not healed; the original is unchanged. Left: {render.count_findings(plan.remaining)}."
        )
        return
    for made in plan.changes:
        terminal.note(render.describe_change(target, made, sys.stderr))
    for kept in plan.quarantine:
        terminal.note(render.describe_quarantined(target, kept, sys.stderr))
    repaired = render.count_findings([found for found in plan.findings if found.fixable])
    if plan.changed:
        terminal.note(f"Healed {repaired}.")
    elif not plan.remaining:
        terminal.note("All clean.")
    if plan.remaining:
        terminal.note(f"Left: {render.count_findings(plan.remaining)}.")


COMMAND = Command(
    name="heal",
    group="requests",
    run=run,
    summary="Make a message list or request body valid, and say what was done.",
    details=(
        "Prints the healed JSON on stdout and every change on stderr. What was not wrong keeps "
        "its bytes; if nothing was, the output is the input. Nothing is lost on the way: what "
        "had to leave the list is named, and --json holds it. If something cannot be healed, "
        "the original is printed and the exit status is 1."
    ),
    examples=(
        "lockstitch heal conversation.json > healed.json",
        "lockstitch heal conversation.json --diff",
        "lockstitch heal conversation.json -o healed.json",
        "curl -s $URL | lockstitch heal --dialect gemini - | jq .contents",
    ),
    operand=Operand("file", "FILE", "File to heal; - or none for stdin."),
    options=(
        DIALECT,
        MODEL,
        Option(
            "output",
            ("--output", "-o"),
            "Write the healed JSON to a file, atomically, instead of stdout.",
            metavar="FILE",
        ),
        OVERWRITE,
        Option("diff", ("--diff",), "Print a unified diff instead of the healed JSON."),
        JSON,
    ),
)
