"""The outcome for a person and for programs. Never shows what a session says, only places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .sent import Piece
from .trial import HEALTHY, Trial, where
from .verdict import HARMFUL, HARMLESS, TRUE, UNSURE

Json = dict[str, Any]
_SEVERITIES = ("error", "warning", "note")


def precision(trials: Iterable[Trial]) -> list[Json]:
    """Return a row for each severity and each code: classes of files, and how many are right."""
    counted: dict[tuple[str, str], Counter[str]] = {}
    for trial in trials:
        by_severity = {severity: "*" for _, severity in trial.codes}
        rows = {(code, severity) for code, severity in trial.codes}
        rows |= {(name, severity) for severity, name in by_severity.items()}
        for row in rows:
            count = counted.setdefault(row, Counter())
            # A note says nothing about what a repair for another reason does.
            is_aside = row[1] == "note" and trial.is_flagged
            count["not asked" if is_aside else trial.verdict or "not asked"] += 1
            if is_aside:
                continue
            count["right"] += trial.is_right(row[1])
    listed = []
    for code, severity in sorted(counted, key=lambda row: (_SEVERITIES.index(row[1]), row[0])):
        count = counted[code, severity]
        judged = sum(count[name] for name in (TRUE, HARMLESS, HARMFUL, UNSURE))
        share = count["right"] / judged if judged else None
        listed.append({"code": code, "severity": severity, **count, "precision": share})
    return listed


def text(trials: Sequence[Trial]) -> str:
    """Return the report for a person."""
    lines = [_totals(trials), "", *_table(trials)]
    lines += _section(
        "Repairs after which a client sends more, less or another order", _differ(trials)
    )
    lines += _section("Healthy sessions that are flagged or changed", _healthy(trials))
    lines += _section("Damage that is known and was not found", _unseen(trials))
    lines += _section("Called clean, but refused as it is", _missed(trials))
    lines += _section("Changed, with no client to ask: whether export differs", _unasked(trials))
    return "\n".join(lines) + "\n"


def document(trials: Sequence[Trial]) -> Json:
    """Return the same for programs."""
    return {"version": 1, "precision": precision(trials), "files": [_entry(t) for t in trials]}


def _totals(trials: Sequence[Trial]) -> str:
    flagged = sum(trial.is_flagged for trial in trials)
    touched = sum(trial.is_changed for trial in trials)
    asked = sum(bool(trial.sent) for trial in trials)
    return (
        f"{len(trials)} files, {asked} resumed by a real client, "
        f"{flagged} flagged (error or warning), {touched} changed by repair"
    )


def _table(trials: Sequence[Trial]) -> list[str]:
    heads = ("code", "severity", TRUE, HARMLESS, HARMFUL, UNSURE, "not asked", "right")
    rows = [heads]
    for row in precision(trials):
        share = row["precision"]
        right = "-" if share is None else f"{share:.1%}"
        counts = (str(row.get(name, 0)) for name in heads[2:-1])
        rows.append(("all" if row["code"] == "*" else row["code"], row["severity"], *counts, right))
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", f"{title}: {len(lines)}", *(f"  {line}" for line in lines)]


def _differ(trials: Iterable[Trial]) -> list[str]:
    listed = []
    for trial in trials:
        for client, verdict in sorted(trial.verdicts.items()):
            after = trial.sent[client][1]
            if after is None or (not verdict.changes and verdict.name != HARMFUL):
                continue
            changes = verdict.changes
            parts = [
                f"{sign}{len(pieces)} {_lines(trial, pieces)}"
                for sign, pieces in (
                    ("+", changes.more),
                    ("-", changes.less),
                    ("twice ", changes.repeated),
                )
                if pieces
            ] + ["moved"] * changes.is_moved
            reasons = "".join(f"; {name} at {_short(at)}" for name, at in verdict.reasons.items())
            codes = ",".join(code for code, severity in trial.codes if severity != "note")
            listed.append(
                f"{verdict.name:8} {trial.name} [{codes}] {client}: {verdict.why}; "
                f"{len(trial.sent[client][0].pieces)} -> {len(after.pieces)} pieces "
                f"({', '.join(parts)}){reasons}"
            )
    return sorted(listed)


def _lines(trial: Trial, pieces: Iterable[Piece]) -> str:
    found = where(trial, pieces)
    return f"at lines {_short(found)}" if found else "not in the original"


def _short(numbers: Sequence[int]) -> str:
    shown = ",".join(map(str, numbers[:6]))
    return f"{shown},…" if len(numbers) > 6 else shown


def _healthy(trials: Iterable[Trial]) -> list[str]:
    return [
        f"{trial.name} {trial.status} {_found(trial)}{' changed' * trial.is_changed}"
        for trial in trials
        if trial.truth == HEALTHY
        and (trial.is_flagged or trial.is_changed or trial.program is None)
    ]


def _unseen(trials: Iterable[Trial]) -> list[str]:
    return [
        f"{trial.name}: {trial.truth}"
        for trial in trials
        if trial.truth not in {None, HEALTHY} and not trial.is_flagged
    ]


def _missed(trials: Iterable[Trial]) -> list[str]:
    return [
        f"{trial.name} {client}: {before.refused[0]}"
        for trial in trials
        if trial.is_missed
        for client, (before, _) in sorted(trial.sent.items())
        if before.refused
    ]


def _unasked(trials: Iterable[Trial]) -> list[str]:
    return [
        f"{trial.name} ({trial.program}) {_found(trial)}: {trial.exports}"
        for trial in trials
        if trial.is_changed and not trial.sent
    ]


def _found(trial: Trial) -> str:
    return "[" + ",".join(f"{code} {severity}" for code, severity in trial.codes) + "]"


def _entry(trial: Trial) -> Json:
    asked = {}
    for client, verdict in sorted(trial.verdicts.items()):
        before, after = trial.sent[client]
        changes = verdict.changes
        asked[client] = {
            "class": verdict.name,
            "why": verdict.why,
            "before": _sent(before),
            "after": None if after is None else _sent(after),
            "more": where(trial, changes.more),
            "less": where(trial, changes.less),
            "twice": where(trial, changes.repeated),
            "moved": changes.is_moved,
            "reasons": dict(verdict.reasons),
        }
    return {
        "file": trial.name,
        "program": trial.program,
        "status": trial.status,
        "truth": trial.truth,
        "changed": trial.is_changed,
        "exports": trial.exports or None,
        "class": trial.verdict,
        "findings": [
            {key: found[key] for key in ("code", "severity", "place")} for found in trial.findings
        ],
        "clients": asked,
    }


def _sent(sent: Any) -> Json:
    return {"pieces": len(sent.pieces), "refused": list(sent.refused), "failed": sent.failed}
