"""Sessions that are old or too many are removed on request, and every removal is written down."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from lockstitch.errors import UsageError
from lockstitch.journal.events import About, Ended, Said, describe, entry_of, text_payload
from lockstitch.journal.records import NEW
from lockstitch.session import maintenance
from lockstitch.session.listing import AUDIT
from lockstitch.session.maintenance import Removal
from lockstitch.session.store import Store
from lockstitch.stores.base import Backend, StoreFault
from tests.session.talk import asks
from tests.stores.contract import Place, now

DAY = 86_400


@pytest.fixture
def store(backend: Backend) -> Store:
    return Store(backend)


def made(backend: Backend, name: str, days: float, *tags: str, is_open: bool = False) -> None:
    """A session that was changed last so many days ago."""
    at = now() - round(days * DAY * 1000)
    events = [describe(About(), f"Title of {name}", tags), Said(payload=text_payload("Hello"))]
    events += [] if is_open else [Ended()]  # type: ignore[list-item]
    backend.add(name, [entry_of(event, f"k{n}", at) for n, event in enumerate(events)], NEW)


def names(store: Store) -> list[str]:
    return [one.session for one in store.sessions()]


def test_the_old_ones_go_and_it_is_written_down(
    place: Place, store: Store, backend: Backend
) -> None:
    for name, days in (("new", 1), ("old", 91), ("older", 200)):
        made(backend, name, days)
    planned = store.retain(older_than=timedelta(days=90), dry_run=True)
    assert [one.session for one in planned.removed] == ["old", "older"]
    assert planned.removed[0].title == "Title of old"
    assert names(store) == ["new", "old", "older"]
    assert list(store.audit()) == []
    before = {one.session: one for one in store.sessions()}
    done = store.retain(older_than=90 * DAY, by="the night job")
    assert done == planned
    other = Store(place.open())
    assert names(other) == ["new"]
    found = list(other.audit())
    assert [(a.session, a.records, a.changed, a.reason, a.by) for a in found] == [
        (name, 3, before[name].changed, "not changed for more than 90 days", "the night job")
        for name in ("old", "older")
    ]
    assert all(abs(a.at - now()) < 600_000 for a in found)
    assert store.retain(older_than=90 * DAY).removed == []
    assert len(list(other.audit())) == 2


def test_only_so_many_are_kept(store: Store, backend: Backend) -> None:
    for number in range(6):
        made(backend, f"s{number}", number, "a" if number % 2 else "b")
    done = store.retain(keep=2, tags=["a"])
    assert [(one.session, one.reason) for one in done.removed] == [
        ("s5", "not among the 2 changed last")
    ]
    assert names(store) == ["s0", "s1", "s2", "s3", "s4"]
    assert [one.session for one in store.retain(keep=0, tags=["a", "b"]).removed] == []
    done = store.retain(keep=3, older_than=1.5 * DAY)
    assert names(store) == ["s0", "s1"]
    assert [one.reason for one in done.removed][-1] == "not changed for more than 36 hours"


def test_what_is_in_use_stays(store: Store, backend: Backend) -> None:
    made(backend, "ended", 100)
    made(backend, "held", 100)
    made(backend, "open", 100, is_open=True)
    with store.session("waiting") as session:
        session.say("Pay")
        session.record(asks("anthropic", ("c1", "pay", {})))
        session.run_tools({"pay": lambda: "paid"}, approve=True)
        assert session.turn.state == "waiting"
    with store.session("held"):
        done = store.retain(keep=0)
    assert [one.session for one in done.removed] == ["ended"]
    spared = {one.session: one.reason for one in done.spared}
    assert spared["open"] == "its turn is open"
    assert spared["waiting"] == "its turn is waiting"
    assert "holds it" in spared["held"]
    assert names(store) == ["held", "open", "waiting"]
    done = store.retain(keep=0, including_open=True)
    assert {one.session for one in done.removed} == {"held", "open", "waiting"}
    assert names(store) == []
    assert len(list(store.audit())) == 4


def test_one_that_went_on_after_it_was_planned_stays(store: Store, backend: Backend) -> None:
    made(backend, "s", 100)
    (planned,) = maintenance.plan_removals(backend, maintenance.RetentionRule(older_than=1))
    assert isinstance(planned, Removal)
    with store.session("s") as session:
        session.say("Back again")
        done = maintenance.remove_planned(backend, planned)
        assert done == maintenance.Spared("s", "another writer holds it")
    done = maintenance.remove_planned(backend, planned)
    assert done == maintenance.Spared("s", "it was changed meanwhile")
    assert names(store) == ["s"]
    assert list(store.audit()) == []


def test_threads_of_a_graph_stay_unless_asked(store: Store, backend: Backend) -> None:
    from tests.stores.contract import entry

    backend.add("langgraph.t", [entry("a", b'{"kind":"thread","id":"t"}')], NEW)
    assert store.retain(keep=0).spared[0].reason.startswith("it is a LangGraph thread")
    assert len(store.retain(keep=0, including_open=True).removed) == 1


def test_one_without_records_goes_by_when_it_was_made(store: Store) -> None:
    with store.session("empty"):
        pass
    assert store.retain(keep=0).removed == []
    assert store.retain(older_than=DAY).removed == []


def test_a_delete_is_written_down_if_there_is_a_reason(store: Store, backend: Backend) -> None:
    for name in ("s", "t"):
        made(backend, name, 3)
    store.delete("s")
    assert list(store.audit()) == []
    changed = next(iter(store.sessions())).changed
    store.delete("t", reason="the user asked for it")
    (found,) = store.audit()
    assert (found.session, found.records, found.changed, found.reason) == (
        "t",
        3,
        changed,
        "the user asked for it",
    )
    assert "process" in found.by
    assert names(store) == []


def test_many_write_the_audit_at_once(place: Place) -> None:
    backend = place.open()
    for number in range(12):
        made(backend, f"s{number}", 100 + number)

    def work() -> None:
        Store(place.open()).retain(older_than=DAY)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = Store(backend)
    assert names(store) == []
    assert sorted(a.session for a in store.audit()) == sorted(f"s{n}" for n in range(12))


def test_the_audit_is_nobodys_session(store: Store, backend: Backend) -> None:
    made(backend, "s", 100)
    store.retain(older_than=1)
    assert names(store) == []
    assert store.retain(older_than=0, including_open=True).removed == []
    for use in (store.session, store.read, store.delete, store.async_session):
        with pytest.raises(UsageError):
            use(AUDIT)
    with pytest.raises(UsageError):
        store.fork("s", AUDIT)
    assert len(list(store.audit())) == 1


def test_what_cannot_be_meant_is_refused(store: Store) -> None:
    for wrong in ({}, {"keep": -1}, {"keep": True}, {"older_than": "90d"}, {"older_than": -1}):
        with pytest.raises(UsageError):
            store.retain(**wrong)  # type: ignore[arg-type]


def test_no_removal_is_without_its_line_whoever_is_killed(shared_place: Place) -> None:
    backend = shared_place.open()
    for number in range(20):
        made(backend, f"s{number:02}", 100 + number)
    command = [sys.executable, "-m", "tests.stores.retaining_child", shared_place.url]
    for delay in (0.0, 0.005, 0.02):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.kill()
        process.wait()
        process.stdout.close()
        store = Store(shared_place.open())
        gone = {f"s{number:02}" for number in range(20)} - set(names(store))
        assert gone <= {line.session for line in store.audit()}
        assert not any(isinstance(found, StoreFault) for found in shared_place.open().verify())
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    store = Store(shared_place.open())
    assert names(store) == []
    assert {line.session for line in store.audit()} == {f"s{number:02}" for number in range(20)}
