"""Reads what processes say they were promised against what a store holds in the end.

A fault is a sentence. None means: no acknowledged event is lost, none is there twice or altered,
no two turns are mixed, no epoch goes back, nothing refused was written, what was acknowledged
before something else was tried stands before it, and a turn that was cut was concluded by the next
writer before anything else was written.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from lockstitch.journal.records import JournalRecord

MARK = re.compile(rb"<(w\d+\.\d+\.\d+\.\d+)>")
KEY = re.compile(r"w\d+\.\d+\.(\d+|r)\.\d+")
WHOLE = ("0.0", "1.0", "2.0", "2.1", "3.0", "4.0", "5.0", "5.1")
# What is written all or not at all: where a turn may have been cut.
CUTS = (0, 1, 2, 4, 5, 6, 8)
BY_SESSION = ("0.0", "1.0", "3.0", "4.0", "5.0")
UNTOUCHED = {"Fenced", "Held", "Moved", "Busy", "Unreadable", "Closed"}


@dataclass(slots=True)
class Log:
    """One worker's log."""

    worker: str
    lines: list[dict[str, Any]]

    def of(self, do: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["do"] == do]


@dataclass(slots=True)
class Told:
    """All that the workers said."""

    tried: dict[str, int] = field(default_factory=dict)
    acked: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    held: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)


def logs_in(folder: Path) -> list[Log]:
    """Read the logs; the last line of one that died may be torn."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.log")):
        for line in path.read_bytes().split(b"\n"):
            if line.endswith(b"}"):
                found.setdefault(path.stem, []).append(json.loads(line))
    return [Log(worker, lines) for worker, lines in found.items()]


def told_by(logs: Iterable[Log]) -> Told:
    told = Told()
    for log in logs:
        for line in log.lines:
            for key in line.get("ids", []):
                if line["do"] == "try":
                    told.tried[key] = line["t"]
                elif line["do"] == "ack":
                    told.acked[key] = line
                elif line["do"] == "not":
                    told.refused[key] = line["why"]
            if line["do"] == "holds" and "epoch" in line:
                place = (line["session"], line["epoch"])
                told.held.setdefault(place, []).append(f"{log.worker}.{line['turn']}.")
                told.ends[place] = line["seq"]
    return told


def id_of(record: JournalRecord) -> str:
    """What a record is in the workers' words; "" for what a session writes by itself."""
    if KEY.fullmatch(record.key):
        return record.key
    found = MARK.search(record.body)
    return found[1].decode() if found else ""


def faults(
    logs: list[Log], sessions: dict[str, list[JournalRecord]], by: str = "backend"
) -> list[str]:
    """Everything that is wrong, in words."""
    told = told_by(logs)
    found = [*_counted(told, sessions), *_ordered(told, sessions)]
    for name, records in sessions.items():
        found += [f"{name}: {fault}" for fault in _epochs(told, name, records)]
        check = _turns if by == "backend" else _session_turns
        found += [f"{name}: {fault}" for fault in check(records)]
    return found


def _counted(told: Told, sessions: dict[str, list[JournalRecord]]) -> Iterator[str]:
    there = Counter(id_of(r) for records in sessions.values() for r in records if id_of(r))
    yield from (f"acknowledged and lost: {key}" for key in told.acked if key not in there)
    yield from (f"there {count} times: {key}" for key, count in there.items() if count > 1)
    yield from (f"there, and nobody tried: {key}" for key in there if key not in told.tried)
    for key, why in told.refused.items():
        if why in UNTOUCHED and key in there and key not in told.acked:
            yield f"refused ({why}) and written all the same: {key}"
    places = {id_of(r): (name, r.seq, r.epoch) for name, rs in sessions.items() for r in rs}
    for key, ack in told.acked.items():
        if "seq" in ack and key in places:
            behind = len(ack["ids"]) - 1 - ack["ids"].index(key)
            promised = (ack["session"], ack["seq"] - behind, ack["epoch"])
            if places[key] != promised:
                yield f"promised at {promised} and found at {places[key]}: {key}"


def _ordered(told: Told, sessions: dict[str, list[JournalRecord]]) -> Iterator[str]:
    """Nothing stands behind what was only tried when it had been acknowledged already."""
    for name, records in sessions.items():
        latest = 0
        for key in filter(None, map(id_of, records)):
            ack = told.acked.get(key)
            if ack and ack["t"] < latest:
                yield f"{name}: {key} was acknowledged before one in front of it was tried"
            latest = max(latest, told.tried.get(key, 0))


def _epochs(told: Told, name: str, records: list[JournalRecord]) -> Iterator[str]:
    for one, two in pairwise(records):
        if two.epoch < one.epoch:
            yield f"record {two.seq}: epoch {two.epoch} behind epoch {one.epoch}"
    for (session, epoch), holders in told.held.items():
        if session == name and len(holders) > 1:
            yield f"epoch {epoch} was given to several: {holders}"
    for (session, epoch), seq in told.ends.items():
        stale = [r.seq for r in records if session == name and r.seq > seq and r.epoch < epoch]
        if stale:
            yield f"records {stale} of an older lease came in under epoch {epoch}"
    for record in records:
        holders = told.held.get((name, record.epoch), [])
        if holders and not id_of(record).startswith(holders[0]):
            yield f"record {record.seq} under epoch {record.epoch} is not of {holders[0]}"


def _turns(records: list[JournalRecord]) -> Iterator[str]:
    """Every lease is one turn: what the last writer left is concluded, then the turn itself."""
    cut = False
    for epoch, group in groupby(records, key=lambda record: record.epoch):
        keys = [record.key for record in group]
        turns = {key.rsplit(".", 2)[0] for key in keys}
        if len(turns) != 1:
            yield f"epoch {epoch}: turns are mixed: {sorted(turns)}"
            continue
        steps = [key.split(".", 2)[2] for key in keys]
        concluded = [step for step in steps if step.startswith("r.")]
        own = steps[len(concluded) :]
        if bool(concluded) != cut:
            yield f"epoch {epoch}: {'nothing' if cut else 'a whole turn'} was concluded"
        if tuple(own) != WHOLE[: len(own)] or len(own) not in CUTS:
            yield f"epoch {epoch}: a turn of {own}"
        # Recovery alone leaves nothing open; without a word of its own a turn has not begun.
        cut = bool(own) and len(own) != len(WHOLE)


def _session_turns(records: list[JournalRecord]) -> Iterator[str]:
    """The same where the session itself writes what stands between: starts, ends, conclusions."""
    cut = False
    for epoch, group in groupby(records, key=lambda record: record.epoch):
        listed = list(group)
        keys = [key for key in map(id_of, listed) if key]
        if len({key.rsplit(".", 2)[0] for key in keys}) > 1:
            yield f"epoch {epoch}: turns are mixed"
            continue
        steps = [key.split(".", 2)[2] for key in keys]
        if tuple(sorted(steps)) != BY_SESSION[: len(steps)] and steps != ["0.0", "1.0", "4.0"]:
            yield f"epoch {epoch}: a turn of {steps}"
        kinds = [json.loads(record.body)["kind"] for record in listed]
        if cut and "interrupted" not in kinds[: _first_own(listed)]:
            yield f"epoch {epoch}: the turn before was not concluded"
        ends = [kind for kind in kinds[_first_own(listed) :] if kind in {"ended", "interrupted"}]
        cut = bool(steps) and not ends


def _first_own(records: list[JournalRecord]) -> int:
    return next((n for n, record in enumerate(records) if id_of(record)), len(records))
