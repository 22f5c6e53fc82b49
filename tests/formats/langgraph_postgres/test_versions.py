"""The versions of a repair are apart from all that a run which is still alive can come to."""

from __future__ import annotations

import pytest

from lockstitch.formats.langgraph.postgres.reading import LoadedThread
from lockstitch.formats.langgraph.postgres.repairs import is_snapshot, with_unique_versions
from lockstitch.formats.langgraph.snapshot import (
    Coded,
    RepairedCheckpoint,
    StoredCheckpoint,
    ThreadSnapshot,
)


def loaded(**versions: float | str) -> LoadedThread:
    """A thread whose channels have these versions."""
    head = StoredCheckpoint("1", None, {"channel_versions": dict(versions)})
    return LoadedThread(ThreadSnapshot("t", "", head), is_js=True)


def settled(**versions: float | str) -> RepairedCheckpoint:
    return RepairedCheckpoint("2", "1", {"channel_versions": dict(versions)}, {}, {})


@pytest.mark.parametrize(("last", "new"), [(5, 5.5), (5.5, 5.75), (5.75, 5.875), (0, 0.5)])
def test_numbers_lie_between_those_of_live_runs(last: float, new: float) -> None:
    made = with_unique_versions(loaded(messages=last, other=0), settled(messages=last + 1, other=0))
    assert made.body["channel_versions"] == {"messages": new, "other": 0}


def test_repair_after_repair_never_meets_a_live_run() -> None:
    """A live run adds one to the version of the head it began from, whichever that was."""
    taken: set[float] = set()
    version: float = 7
    for _ in range(40):
        live = {version + step for step in range(1, 50)}
        made = with_unique_versions(loaded(messages=version), settled(messages=version + 1))
        version = made.body["channel_versions"]["messages"]
        assert version not in taken | live
        taken |= live | {version}


def test_texts_stay_as_they_are() -> None:
    made = with_unique_versions(loaded(messages="01.5"), settled(messages="02.5"))
    assert made.body["channel_versions"] == {"messages": "02.5"}


def test_values_of_channels_that_store_changes_are_known() -> None:
    assert is_snapshot(Coded("msgpack", b"\xc7\x01\x07\x90"))
    assert is_snapshot(Coded("msgpack", b"\xd4\x07\x90"))
    assert not is_snapshot(Coded("msgpack", b"\xc7\x01\x05\x90"))
    assert not is_snapshot(Coded("msgpack", b"\x90"))
    assert not is_snapshot(Coded("json", b"[]"))
    assert not is_snapshot(Coded("null", b""))
