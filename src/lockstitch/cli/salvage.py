"""Repairing sessions in stores of Lockstitch's own, for ``lockstitch repair`` and ``undo``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch.cli import render, terminal
from lockstitch.cli.targets import is_own_store, naming_target
from lockstitch.cli.terminal import CLEAN, FAILED, FINDINGS
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.sources.source import OWN, Report
from lockstitch.sources.targets import SCHEMES, brief, is_postgres, pasted, public
from lockstitch.transcript import several

if TYPE_CHECKING:
    from lockstitch.journal.salvage import Salvage


class SalvageOptions(Struct, frozen=True):
    """How the repair of a store was asked for."""

    yes: bool
    diff: bool
    as_json: bool
    output: str | None = None


def is_store(target: str, form: str | None) -> bool:
    """Whether a target is a store of Lockstitch's own; a folder is one only if that is said."""
    is_folder = os.path.isdir(target)  # noqa: PTH112 - start-up time
    return (form == OWN or not is_folder) and is_own_store(target, form)


def repair(target: str, session: str | None, how: SalvageOptions) -> int:
    """Repair the damaged sessions of a store, and return the exit status."""
    from lockstitch import stored

    if how.output is not None:
        return _copied(target, how.output)
    with naming_target(target):
        found = list(stored.damaged(target, session))
    for one in found:
        _show(target, one)
    if not found:
        terminal.note("All clean.")
    writes = bool(found) and not how.diff and (how.yes or (not how.as_json and _is_agreed()))
    done = [_written(target, one, writes=writes) for one in found]
    if how.as_json:
        terminal.emit(render.encode_json(sessions=done))
    if any(one["error"] for one in done):
        return FAILED
    return CLEAN if all(one["applied"] for one in done) else FINDINGS


def _is_agreed() -> bool:
    question = "Rewrite what can be read? The damaged session is kept next to it."
    return terminal.confirm(question, "--yes applies this plan")


def _show(target: str, found: Salvage) -> None:
    from lockstitch import stored

    name = render.session_name(public(target), OWN, found.session)
    for one in stored.findings_of(found):
        terminal.note(render.describe_finding(name, "", one, sys.stderr))
    terminal.note(f"{render.target_name(name)}: {stored.summary_of(found)}.")


def _written(target: str, found: Salvage, *, writes: bool) -> dict[str, Any]:
    """Write one session anew, if that is wanted, and say what became of it."""
    from lockstitch import stored

    findings = stored.findings_of(found)
    report = Report(public(target), OWN, found.session, findings=findings)
    fields: dict[str, Any] = {"edits": [], "backup": None, "applied": False, "error": None}
    left = findings
    if writes:
        try:
            done = stored.repair(target, found.session)
        except LockstitchError as error:
            report.error = fields["error"] = brief(str(error), target, found.session)
            terminal.complain(f"{render.target_name(render.report_name(report))}: {report.error}")
        else:
            left = []
            fields |= {"backup": done.aside, "applied": True}
            name = render.target_name(render.report_name(report))
            terminal.note(f"{name}: repaired; the damaged one is kept as {done.aside}.")
            again = f"{pasted(public(target))} --session {pasted(found.session)}"
            terminal.note(f"To undo it: lockstitch undo {again}")
    return {**render.report_fields(report), **fields, "remaining": left}


def _copied(target: str, output: str) -> int:
    """Write all sessions of a store, as far as they can be read, into a new one."""
    from lockstitch import stored

    url = output if output.startswith(SCHEMES) else f"sqlite:///{output}"
    lost = count = 0
    with naming_target(target):
        for one in stored.copy(target, url):
            count += 1
            lost += one.lost
    terminal.note(
        f"Wrote {several(count, 'session')} to {render.target_name(output)}; {lost} pieces lost."
    )
    return CLEAN


def takes_back(target: str) -> bool:
    """Whether a target is a store of Lockstitch's own to take a repair back in.

    A PostgreSQL may hold LangGraph's checkpoints as well, and their repairs.
    """
    from lockstitch import stored

    return is_store(target, None) and (not is_postgres(target) or stored.can_undo(target))


def undo(target: str, session: str | None, *, as_json: bool) -> int:
    """Take the last repair of a session back, and return the exit status."""
    from lockstitch import stored

    with naming_target(target):
        done = stored.undo(target, session)
    terminal.note(
        f"{render.target_name(public(target))}:{done.session}: as it was before its repair; what "
        f"it had become is kept as {done.aside}."
    )
    if as_json:
        fields = {"target": public(target), "session": done.session, "restored": done.session}
        terminal.emit(render.encode_json(sessions=[{**fields, "aside": done.aside, "error": None}]))
    return CLEAN


def require_alone(targets: list[str]) -> None:
    """Refuse other targets beside a store: each has a plan of its own."""
    if len(targets) > 1:
        raise UsageError("a store of Lockstitch's own is repaired alone: give one target")
