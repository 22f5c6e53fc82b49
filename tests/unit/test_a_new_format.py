"""A format in one file: a toy program's sessions, checked, repaired, written and undone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstitch import cli, sessions
from lockstitch.formats import interface
from lockstitch.formats.interface import Context, Format, History, SourcedMessage, Transcript
from lockstitch.formats.records import Record, new_record
from lockstitch.formats.write_back import MessageHome, enter_message, place_messages
from lockstitch.repair.draft import Ledger


class ToyFormat(Format):
    """A program that writes one line a message: ``{"toy": 1, "message": {...}}``."""

    name = "toy"
    title = "Toy"
    dialect = "openai-chat"

    def claims(self, name: str, head: Any) -> bool:
        return bool(head) and all(type(value) is dict and "toy" in value for value in head)

    def is_record(self, value: dict[str, Any]) -> bool:
        return "toy" in value

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        history = History(self.dialect)
        found = [number for number, record in enumerate(records) if record.is_record]
        homes = [MessageHome(number, ("message",)) for number in found]
        for home in homes:
            enter_message(history, records[home.number].value["message"], home)
        return Transcript(context, records, history, turns=len(homes), state=homes)

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        def make(message: Any, near: Record) -> Record:
            return new_record(near.place, {"toy": 1, "message": message})

        return place_messages(transcript, transcript.state, repaired, make)


CALL = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
MESSAGES = [
    {"role": "user", "content": "List the files."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "user", "content": "Go on."},
]


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the format, for this test only."""
    monkeypatch.setattr(interface, "_registered", [])
    monkeypatch.setattr(interface, "_loaded", dict(interface._loaded))  # noqa: SLF001 - put back
    interface.register(ToyFormat())


def test_a_toy_format(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    lines = [json.dumps({"toy": 1, "message": message}) for message in MESSAGES]
    path.write_text("\n".join([*lines, lines[0][:20]]), "utf-8")
    before = path.read_bytes()
    [source] = sessions.sources(str(path))
    assert {found.code for found in source.check().findings} == {"LS101", "LS601"}
    assert cli.run(["repair", str(path), "--yes"]) == 0
    written = [json.loads(line)["message"] for line in path.read_bytes().splitlines()]
    assert [one["role"] for one in written] == ["user", "assistant", "tool", "user"]
    assert source.check().status == "ok"
    assert cli.run(["undo", str(path), "--yes"]) == 0
    assert path.read_bytes() == before
