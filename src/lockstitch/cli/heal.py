"""``lockstitch heal``: a conversation in, one that the provider accepts out."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import lockstitch
from lockstitch.cli import render, terminal
from lockstitch.cli.options import DIALECT, JSON, MODEL, OVERWRITE, Command, Operand, option
from lockstitch.cli.render import STDIN
from lockstitch.cli.terminal import CLEAN, FINDINGS
from lockstitch.conversation.json_text import dump
from lockstitch.dialects.recognize import confirm_dialect
from lockstitch.errors import Unreadable, UsageError
from lockstitch.formats.interface import DOCUMENT, LINES, recognize
from lockstitch.sources.lists import (
    MessageDocument,
    encode_document,
    limits_as_errors,
    read_document,
)

if TYPE_CHECKING:
    from lockstitch import Plan


# How many records are examined to find out whose session it is.
_HEAD = 100
_MANY = (
    "it holds a request on every line: `lockstitch repair` repairs them all in place; heal "
    "takes a file with one request"
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
    """Heal one conversation; print it and what was done, and return the exit status."""
    if diff and as_json:
        raise UsageError("--diff and --json cannot be combined")
    [target] = input_names([file] if file else [])
    if output is not None:
        from lockstitch.cli.targets import write_copy

        write_copy(output, None, target, force=force)
    try:
        document = read_document(target)
        if document.requests:
            raise Unreadable(_MANY)  # noqa: TRY301 - named below, like any other
        _require_list(document)
        with limits_as_errors():
            named = confirm_dialect(document.value, dialect)
            plan = lockstitch.plan(document.value, named, model=model)
            data = encode_document(document, plan.messages)
            shown = _difference(document, plan.messages) if diff else data
            if as_json:
                shown = render.encode_json(
                    target=target,
                    dialect=plan.dialect,
                    changed=plan.changed,
                    findings=plan.findings,
                    edits=plan.edits,
                    changes=plan.changes,
                    quarantine=plan.quarantine,
                    remaining=plan.remaining,
                )
    except Unreadable as error:
        error.about(render.target_name(target))
        raise
    if output is not None:
        write_copy(output, data, target, force=force)
    if diff:
        terminal.emit(shown)
    elif output is None or as_json:
        terminal.emit_json(shown)
    _print_summary(target, plan)
    return FINDINGS if plan.remaining else CLEAN


def _require_list(document: MessageDocument) -> None:
    """Raise ``Unreadable`` for a program's session, which would lose most of its records."""
    values = document.value[:_HEAD] if document.lines else [document.value]
    kind = LINES if document.lines else DOCUMENT
    form, _ = recognize(kind, os.path.basename(document.target), values)  # noqa: PTH119 - start-up time
    if form is not None and form.name not in ("list", "requests"):
        raise Unreadable(
            f"it is a {form.title} session, not a message list: `lockstitch repair` repairs it, "
            "and `lockstitch export` writes its healed messages"
        )


def _difference(document: MessageDocument, healed: object) -> bytes:
    """Return a unified diff of both as indented JSON, independent of the file's line breaks."""
    if healed is document.value:
        return b""
    from difflib import unified_diff

    old, new = (dump(value, indent=2).splitlines() for value in (document.value, healed))
    name = render.target_name(document.target)
    text = ""
    for line in unified_diff(old, new, name, f"{name} (healed)", lineterm=""):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[0])
        safe = terminal.escape_controls(line)
        text += f"{terminal.paint(safe, style) if style else safe}\n"
    return text.encode("utf-8", "backslashreplace")


def _print_summary(target: str, plan: Plan) -> None:
    """Print to stderr what was done, or why nothing could be done."""
    for found in plan.remaining:
        terminal.note(render.describe_finding(target, plan.dialect, found))
    if not plan.healed:
        terminal.note(
            f"Not healed; the original is unchanged. Left: {render.count_findings(plan.remaining)}."
        )
        return
    for made in plan.changes:
        terminal.note(render.describe_change(target, made))
    for kept in plan.quarantine:
        terminal.note(render.describe_quarantined(target, kept))
    repaired = render.count_findings([found for found in plan.findings if found.fixable])
    if plan.changed:
        terminal.note(f"Healed {repaired}.")
    elif not plan.remaining:
        terminal.note("All clean.")
    if plan.remaining:
        terminal.note(f"Left: {render.count_findings(plan.remaining)}.")


def input_names(files: list[str]) -> list[str]:
    """Return the named files, or stdin unless that is a terminal."""
    if not files and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("nothing to read: name a FILE, or pipe JSON in")
    return files or [STDIN]


COMMAND = Command(
    name="heal",
    run=run,
    details=(
        "Prints the healed JSON on stdout and every change on stderr. Whatever was not wrong "
        "keeps its bytes; if nothing was, the output is the input. Nothing is lost: whatever "
        "had to be removed from the list is named, and --json includes it. If something cannot "
        "be healed, the original is printed and the exit status is 1."
    ),
    examples=(
        "lockstitch heal conversation.json > healed.json",
        "lockstitch heal conversation.json --diff",
        "lockstitch heal conversation.json -o healed.json",
        "curl -s $URL | lockstitch heal --dialect gemini - | jq .contents",
    ),
    operand=Operand("file", "FILE", "File to heal; - or nothing for stdin."),
    options=(
        DIALECT,
        MODEL,
        option(
            "--output -o FILE", "Write the healed JSON to this file, atomically, instead of stdout."
        ),
        OVERWRITE,
        option("--diff", "Print a unified diff instead of the healed JSON."),
        JSON,
    ),
)
