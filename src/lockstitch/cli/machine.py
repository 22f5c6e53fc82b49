"""Reports for programs: versioned JSON, and SARIF 2.1.0 for code scanners.

Always ASCII, so that no id or file name in them can reach a terminal as a control sequence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

import lockstitch
from lockstitch.cli.explain import catalogue
from lockstitch.places import public
from lockstitch.report import OWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lockstitch import Finding, Rule
    from lockstitch.report import Report

VERSION = 1


def encode(**fields: object) -> bytes:
    """One versioned JSON document, a line of ASCII."""
    plain = msgspec.to_builtins({"version": VERSION, **fields})
    return json.dumps(plain).encode() + b"\n"


def failure(kind: str, message: str) -> bytes:
    """What a command prints that was asked for JSON and failed before it had a result."""
    return encode(error=message, kind=kind)


def moment(at: int) -> str | None:
    """A time in milliseconds since 1970 as programs read it; None for never."""
    from datetime import UTC, datetime

    if not at:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")


def report(sessions: Sequence[Report]) -> bytes:
    """The report of ``check --json``."""
    return encode(sessions=[session(checked) for checked in sessions])


def scanned(sessions: Sequence[Report], others: Sequence[Report]) -> bytes:
    """The report of ``scan --json``: the sessions, and the files of programs that are not known."""
    unknown = [{"target": public(other.target), "error": other.error} for other in others]
    return encode(sessions=[session(checked) for checked in sessions], unknown=unknown)


def streamed(sessions: Iterable[Report]) -> Iterator[bytes]:
    """The same report, byte for byte, one session at a time."""
    return joined(session(checked) for checked in sessions)


def joined(sessions: Iterable[dict[str, object]]) -> Iterator[bytes]:
    """A document of sessions, one at a time."""
    lead = b'{"version": %d, "sessions": [' % VERSION
    for fields in sessions:
        yield lead + json.dumps(msgspec.to_builtins(fields)).encode()
        lead = b", "
    yield b"]}\n" if lead == b", " else lead + b"]}\n"


def session(checked: Report) -> dict[str, object]:
    """One session of a report."""
    fields: dict[str, object] = {
        "target": public(checked.target),
        "format": checked.format,
        "dialect": checked.dialect,
        "session": checked.session,
        "status": checked.status,
        "messages": checked.messages,
        "reachable": checked.reachable,
        "unreachable": checked.unreachable,
        "findings": checked.findings,
    }
    if checked.format == OWN:
        fields["records"] = checked.records
    if checked.size:
        facts = {"project": checked.project, "size": checked.size, "updated": checked.updated}
        fields |= {**facts, "left": checked.left, "notes": checked.notes}
    return fields if checked.error is None else {**fields, "error": checked.error}


def sarif(sessions: Sequence[Report]) -> bytes:
    """The same findings as SARIF 2.1.0, with every rule described."""
    rules = catalogue()
    index = {rule.code: number for number, rule in enumerate(rules)}
    driver = {
        "name": "lockstitch",
        "version": lockstitch.__version__,
        "rules": [_sarif_rule(rule) for rule in rules],
    }
    results = [
        _sarif_result(public(checked.target), found, index[found.code])
        for checked in sessions
        for found in checked.findings
    ]
    failures = [_sarif_failure(checked) for checked in sessions if checked.error is not None]
    invocation = {"executionSuccessful": not failures, "toolExecutionNotifications": failures}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(log).encode() + b"\n"


def _sarif_rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.what},
        "help": {"text": f"{rule.cause}\n\n{rule.repair}"},
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"fixable": rule.fixable, "lossy": rule.lossy, "tags": [*rule.dialects]},
    }


def _sarif_result(target: str, found: Finding, index: int) -> dict[str, object]:
    return {
        "ruleId": found.code,
        "ruleIndex": index,
        "level": found.severity,
        "message": {"text": found.message},
        "locations": [
            {**_sarif_file(target), "logicalLocations": [{"fullyQualifiedName": found.place}]}
        ],
        "properties": {"fixable": found.fixable, "lossy": found.lossy},
    }


def _sarif_failure(checked: Report) -> dict[str, object]:
    return {
        "level": "error",
        "message": {"text": checked.error},
        "locations": [_sarif_file(public(checked.target))],
    }


def _sarif_file(target: str) -> dict[str, Any]:
    from os import fsencode
    from urllib.parse import quote

    uri = "stdin" if target == "-" else quote(fsencode(target))
    return {"physicalLocation": {"artifactLocation": {"uri": uri}}}
