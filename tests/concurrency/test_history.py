"""The checker finds what it is there to find: every kind of fault is planted once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lockstitch.journal.records import JournalRecord

from .history import WHOLE, Log, faults

Records = list[JournalRecord]


def _steps(worker: str, turn: int, epoch: int, steps: tuple[str, ...]) -> list[tuple[str, int]]:
    return [(f"{worker}.{turn}.{step}", epoch) for step in steps]


def _history(whole: list[tuple[str, int]]) -> tuple[list[Log], Records]:
    """A store, and logs in which every record of it was acknowledged in its time."""
    logs: dict[str, Log] = {}
    records: Records = []
    for seq, (key, epoch) in enumerate(whole, 1):
        worker, turn = key.split(".")[:2]
        log = logs.setdefault(worker, Log(worker, []))
        if epoch not in {line["epoch"] for line in log.of("holds")}:
            place = {"session": "s1", "epoch": epoch, "seq": seq - 1}
            log.lines.append({"do": "holds", "turn": int(turn), "t": seq * 10, **place})
        log.lines.append({"do": "try", "ids": [key], "t": seq * 10})
        place = {"session": "s1", "epoch": epoch, "seq": seq}
        log.lines.append({"do": "ack", "ids": [key], "t": seq * 10 + 5, **place})
        body = json.dumps({"kind": "said", "payload": key}).encode()
        records.append(JournalRecord(seq, epoch, key, 0, body, b""))
    return list(logs.values()), records


GOOD = [
    *_steps("w0", 1, 1, WHOLE),
    *_steps("w1", 1, 2, WHOLE[:4]),
    *_steps("w0", 2, 3, ("r.0", "r.1", "r.2", *WHOLE)),
]


def _lost(_logs: list[Log], records: Records) -> None:
    records.pop()


def _doubled(_logs: list[Log], records: Records) -> None:
    last = records[-1]
    records.append(JournalRecord(last.seq + 1, last.epoch, last.key, 0, last.body, b""))


def _never_tried(_logs: list[Log], records: Records) -> None:
    last = records[-1]
    records.append(JournalRecord(last.seq + 1, 4, "w9.1.0.0", 0, last.body, b""))


def _mixed(_logs: list[Log], records: Records) -> None:
    one, two = records[3], records[9]
    records[3] = JournalRecord(one.seq, one.epoch, two.key, 0, two.body, b"")
    records[9] = JournalRecord(two.seq, two.epoch, one.key, 0, one.body, b"")


def _back(_logs: list[Log], records: Records) -> None:
    last = records[-1]
    records[-1] = JournalRecord(last.seq, 1, last.key, 0, last.body, b"")


def _not_concluded(_logs: list[Log], records: Records) -> None:
    del records[12:15]


def _elsewhere(logs: list[Log], _records: Records) -> None:
    logs[0].of("ack")[0]["seq"] = 2


def _two_holders(logs: list[Log], _records: Records) -> None:
    logs[1].lines.append({"do": "holds", "session": "s1", "epoch": 1, "seq": 0, "turn": 5, "t": 1})


def _refused(logs: list[Log], _records: Records) -> None:
    last = logs[0].lines.pop()
    logs[0].lines.append({"do": "not", "ids": last["ids"], "t": last["t"], "why": "Fenced"})


def _out_of_order(logs: list[Log], _records: Records) -> None:
    logs[1].of("ack")[0]["t"] = 2


def _stale(logs: list[Log], _records: Records) -> None:
    logs[1].of("holds")[0]["seq"] = 7


def _half(_logs: list[Log], records: Records) -> None:
    del records[-1]


def _records_of(whole: list[tuple[str, int]]) -> dict[str, Any]:
    logs, records = _history(whole)
    return {"logs": logs, "sessions": {"s1": records}}


def test_a_good_history_has_no_fault() -> None:
    assert faults(**_records_of(GOOD)) == []


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_lost, "acknowledged and lost"),
        (_doubled, "there 2 times"),
        (_never_tried, "nobody tried"),
        (_mixed, "turns are mixed"),
        (_back, "behind epoch"),
        (_not_concluded, "nothing was concluded"),
        (_elsewhere, "promised at"),
        (_two_holders, "given to several"),
        (_refused, "written all the same"),
        (_out_of_order, "acknowledged before one in front"),
        (_half, "a turn of"),
        (_stale, "of an older lease"),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[list[Log], Records], None], words: str) -> None:
    logs, records = _history(GOOD)
    plant(logs, records)
    found = faults(logs, {"s1": records})
    assert any(words in fault for fault in found), found


def test_a_turn_that_was_cut_must_be_concluded() -> None:
    whole = [*_steps("w0", 1, 1, WHOLE[:2]), *_steps("w1", 1, 2, WHOLE)]
    assert any("nothing was concluded" in fault for fault in faults(**_records_of(whole)))
