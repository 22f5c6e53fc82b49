"""Salvage: one damaged record costs no other, and a session is written anew beside the old one."""

from __future__ import annotations

import json

import pytest

from lockstitch.errors import Damaged, Held, Moved, Unreadable
from lockstitch.heal import check
from lockstitch.journal.events import About, describe, entry_of
from lockstitch.journal.records import NEW, JournalRecord
from lockstitch.session import maintenance
from lockstitch.session.store import Store
from lockstitch.stores.base import Backend
from tests.stores.breaking import DAMAGES, broken
from tests.stores.contract import Place, entries, keys
from tests.stores.talking import LAST, talked

LARGE = 6


def salvaged(place: Place) -> list[tuple[int, str]]:
    found = maintenance.read_salvage(place.open(), "talk")
    return [(one.seq, one.proof) for one in found.records]


def test_a_whole_session_is_whole(place: Place) -> None:
    records = talked(place.open())
    found = maintenance.read_salvage(place.open(), "talk")
    assert found.is_whole
    assert [one.record for one in found.records] == records
    assert {one.proof for one in found.records} == {"intact"}
    assert (found.readable, found.behind, found.holes) == (LAST, 0, [])


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("seq", [1, 2, 5, LAST])
def test_damage_costs_one_record_at_most(shared_place: Place, damage: str, seq: int) -> None:
    records = talked(shared_place.open())
    broken(shared_place, damage, seq)
    backend = shared_place.open()
    found = maintenance.read_salvage(backend, "talk")
    assert not found.is_whole
    readable = {one.seq: one.record for one in found.records if one.is_readable}
    for record in records:
        if record.seq != seq:
            assert same(readable[record.seq], record)
        elif record.seq in readable:
            assert same(readable[seq], record)
            assert damage not in {"garbage", "gone"}


def same(one: JournalRecord | None, other: JournalRecord) -> bool:
    return one is not None and (one.seq, one.key, one.at, one.body) == (
        other.seq,
        other.key,
        other.at,
        other.body,
    )


@pytest.mark.parametrize("damage", ["bit of the body", "bit of the digest", "key"])
def test_one_bit_is_put_right(shared_place: Place, damage: str) -> None:
    talked(shared_place.open())
    broken(shared_place, damage, 3)
    assert salvaged(shared_place)[2] == (3, "restored")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("seq", [1, 2, 5, LAST])
def test_a_repaired_session_opens_and_asks_what_is_valid(
    shared_place: Place, damage: str, seq: int
) -> None:
    talked(shared_place.open())
    broken(shared_place, damage, seq)
    store = Store(shared_place.open())
    with pytest.raises(Damaged, match=r"Next: `lockstitch repair \S+ --session talk`"):
        store.session("talk")
    backend = shared_place.open()
    found = maintenance.read_salvage(backend, "talk")
    done = maintenance.rewrite_damaged(backend, found)
    assert done.aside == "talk.damaged-1"
    with store.session("talk") as session:
        assert session.seq >= LAST
        for dialect in ("anthropic", "openai-chat", "openai-responses", "gemini"):
            messages = session.request(dialect)
            assert not [one for one in check(messages, dialect) if one.severity == "error"]
        session.say("Go on", key="afterwards")
    assert maintenance.read_salvage(backend, "talk").is_whole
    assert [one.proof for one in maintenance.read_salvage(backend, done.aside).records] == [
        one.proof for one in found.records
    ]
    assert list(backend.verify())


def test_what_is_left_of_a_lost_record_is_kept_in_its_place(shared_place: Place) -> None:
    records = talked(shared_place.open())
    broken(shared_place, "garbage", 5)
    backend = shared_place.open()
    maintenance.rewrite_damaged(backend, maintenance.read_salvage(backend, "talk"))
    now = list(backend.read("talk"))
    assert [one.key for one in now[:4] + now[5:]] == [one.key for one in records[:4] + records[5:]]
    note = json.loads(now[4].body)
    assert (note["kind"], note["name"], note["label"]) == ("noted", "damaged-record", "record 5")
    assert "garbage" in note["payload"]["body"]


def test_a_repair_is_taken_back_and_made_again(shared_place: Place) -> None:
    talked(shared_place.open())
    broken(shared_place, "garbage", 5)
    backend = shared_place.open()
    before = maintenance.read_salvage(backend, "talk")
    maintenance.rewrite_damaged(backend, before)
    with Store(backend).session("talk") as session:
        session.say("Said since")
    back = maintenance.undo_rewrite(backend, "talk")
    assert back.aside == "talk.repaired-1"
    assert maintenance.read_salvage(backend, "talk").records == before.records
    assert len(list(backend.read("talk.repaired-1"))) > LAST
    again = maintenance.rewrite_damaged(backend, maintenance.read_salvage(backend, "talk"))
    assert again.aside == "talk.damaged-1"
    assert len(list(backend.read("talk"))) == LAST


def test_a_large_value_that_is_lost_costs_that_value(shared_place: Place) -> None:
    talked(shared_place.open(), large=True)
    broken(shared_place, "large value", LARGE)
    backend = shared_place.open()
    found = maintenance.read_salvage(backend, "talk")
    assert [*found.lost.values()] == [[LARGE]]
    assert {one.proof for one in found.records} == {"intact"}
    maintenance.rewrite_damaged(backend, found)
    with Store(backend).session("talk") as session:
        told = json.dumps(session.request("anthropic"))
        assert "lost when the store was damaged" in told
        assert session.seq == LAST


def test_names_are_exchanged_both_or_none(backend: Backend) -> None:
    for name in ("s", "t", "u"):
        lease = backend.acquire(name)
        backend.append(lease, entries(f"in-{name}"), 0)
        backend.release(lease)
    stamp = backend.remains("s").stamp
    with pytest.raises(Held):
        backend.exchange("s", "u", "t")
    with pytest.raises(Unreadable):
        backend.exchange("s", "aside", "nobody")
    with pytest.raises(Unreadable):
        backend.exchange("nobody", "aside", "t")
    backend.exchange("s", "aside", "t", stamp)
    assert [one.session for one in backend.sessions()] == ["aside", "s", "u"]
    assert (keys(backend, "aside"), keys(backend, "s")) == (["in-s"], ["in-t"])
    for name in ("aside", "s"):
        lease = backend.acquire(name)
        backend.append(lease, entries("more"), 1)
        backend.release(lease)
    assert (keys(backend, "aside"), keys(backend, "s")) == (["in-s", "more"], ["in-t", "more"])


def test_a_session_that_is_held_or_went_on_is_not_exchanged(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    backend.add("t", entries("b"), NEW)
    stamp = backend.remains("s").stamp
    with pytest.raises(Held):
        backend.exchange("s", "aside", "t")
    backend.append(lease, entries("c"), 1)
    backend.release(lease)
    with pytest.raises(Moved):
        backend.exchange("s", "aside", "t", stamp)
    assert keys(backend, "s") == ["a", "c"]
    with pytest.raises(Unreadable):
        backend.remains("nobody")


def test_a_program_reads_what_can_be_read(shared_place: Place) -> None:
    talked(shared_place.open())
    broken(shared_place, "garbage", 5)
    with Store(shared_place.open()) as store:
        found = store.salvage("talk")
    assert (found.readable, found.behind) == (LAST - 1, LAST - 5)
    [hole] = found.holes
    assert (hole.seq, hole.proof) == (5, "damaged")
    assert b"garbage" in (hole.record.body if hole.record else hole.raw)


def test_titles_and_tags_go_with_the_records(backend: Backend) -> None:
    for name, tag in (("s", "old"), ("t", "new")):
        about = entry_of(describe(About(), name, [tag]), "about", 1)
        backend.add(name, [about], NEW)
    backend.exchange("s", "aside", "t")
    found = {one.session: (one.title, one.tags) for one in backend.sessions()}
    assert found == {"aside": ("s", ("old",)), "s": ("t", ("new",))}
    store = Store(backend)
    assert [one.session for one in store.sessions(tag="old")] == ["aside"]
    assert [one.session for one in store.sessions(tag="new")] == ["s"]


def test_a_fork_of_what_is_damaged_is_repaired_for_itself(shared_place: Place) -> None:
    records = talked(shared_place.open())
    shared_place.open().fork("talk", 9, "fork")
    broken(shared_place, "garbage", 5)
    backend = shared_place.open()
    for name, last in (("fork", 9), ("talk", LAST)):
        found = maintenance.read_salvage(backend, name)
        readable = {one.seq: one.record for one in found.records if one.is_readable}
        assert all(same(readable[one.seq], one) for one in records[:last] if one.seq != 5)
        if not found.is_whole:
            maintenance.rewrite_damaged(backend, found)
        assert maintenance.read_salvage(backend, name).is_whole
        with Store(backend).session(name) as session:
            session.say("Go on")
