"""One file taken through the doctor, for the tests of single formats."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lockstitch.formats import repair
from lockstitch.formats.interface import LINES, Context, Format, Transcript
from lockstitch.formats.records import read_document, read_lines

Json = dict[str, Any]


def read(form: Format, data: bytes, name: str = "session.jsonl", kind: str = LINES) -> Transcript:
    is_lines = kind == LINES
    records = read_lines(data, form.is_record) if is_lines else read_document(data, form.lists)
    return form.parse(records, Context(data, name))


@dataclass(frozen=True, slots=True)
class Mended:
    """What a repair made of a file; ``again`` is what the mended file is understood as."""

    data: bytes
    before: Transcript
    again: Transcript
    codes: list[str]
    remaining: list[str]
    severities: dict[str, str]
    messages: list[str]
    quarantine: str

    @property
    def lines(self) -> list[bytes]:
        return self.data.split(b"\n")

    @property
    def values(self) -> list[Json]:
        return [json.loads(line) for line in self.lines if line.strip()]


def mend(
    form: Format,
    data: bytes,
    *,
    name: str = "session.jsonl",
    kind: str = LINES,
    strategy: str = "close",
) -> Mended:
    """Mend a file, and see that mending it again changes nothing."""
    before = read(form, data, name, kind)
    done = repair.plan_repair(form, before, repair.RepairOptions(strategy=strategy))
    for change in done.changes:
        assert not change.place.startswith("."), change
        if change.note == "the record was updated to match the other changes":
            line, name, *_ = change.place.split(".")
            [old] = [record for record in before.records if record.place == line]
            [new] = [record for record in done.after.records if record.start == old.start]
            assert old.value.get(name) != new.value.get(name), change
    fresh = repair.file_bytes(done.after)
    again = read(form, fresh, name, kind)
    left = repair.findings_in(form, again)
    second = repair.plan_repair(form, again, repair.RepairOptions())
    assert repair.file_bytes(second.after) == fresh
    return Mended(
        data=fresh,
        before=before,
        again=again,
        codes=sorted(finding.code for finding in done.findings),
        remaining=[finding.code for finding in left],
        severities={finding.code: finding.severity for finding in done.findings},
        messages=[finding.message for finding in done.findings],
        quarantine=repr([kept.value for kept in done.quarantine]),
    )


def joined(*values: Any) -> bytes:
    """Values as lines of a file; bytes are lines already."""
    lines = [v if isinstance(v, bytes) else json.dumps(v).encode() for v in values]
    return b"".join(line + b"\n" for line in lines)
