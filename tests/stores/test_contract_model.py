"""Every store against a plain model of it: whatever is done in whatever order, the same results."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from lockstitch.errors import (
    Damaged,
    Fenced,
    Held,
    LockstitchError,
    Moved,
    Unreadable,
    UsageError,
)
from lockstitch.journal.records import (
    NEW,
    START,
    Head,
    JournalEntry,
    JournalRecord,
    blob_name,
    chain_entries,
)
from lockstitch.stores.base import Backend, Lease, Listed, StoreFault
from tests.conftest import BUDGET
from tests.stores.contract import Place

NAMES = st.sampled_from(["a", "b", "C", "c"])
VALUES = st.sampled_from([(), (b"",), (b"one", b"two"), (b"x" * 2000,)])
BODIES = st.sampled_from([b"{}", b'{"text":"\\u0000"}', b'"' + b"long " * 300 + b'"', b"null"])
RUNS = count()


class Model:
    """A session as the contract describes it."""

    def __init__(self, epoch: int = 0, records: list[JournalRecord] | None = None) -> None:
        self.epoch = epoch
        self.records = list(records or [])
        self.names: set[str] = set()
        self.holder: Lease | None = None

    @property
    def head(self) -> Head:
        digest = self.records[-1].digest if self.records else START
        return Head(len(self.records), digest, self.epoch)


class Stores(RuleBasedStateMachine):
    """One store through one or two doors, and the model of it."""

    doors: tuple[Backend, ...]

    def __init__(self) -> None:
        super().__init__()
        self.run = f"run{next(RUNS)}-"
        self.models: dict[str, Model] = {}
        self.blobs: dict[str, bytes] = {}
        self.numbers = count()
        self.owners: dict[str, Backend] = {}

    leases = Bundle("leases")
    sent = Bundle("sent")

    def door(self, number: int) -> Backend:
        return self.doors[number % len(self.doors)]

    @rule(target=leases, name=NAMES, door=st.integers(0, 1), create=st.booleans())
    def acquire(self, name: str, door: int, create: bool) -> object:
        model = self.models.get(name)
        expected = None
        if model is None and not create:
            expected = Unreadable
        elif model and model.holder:
            expected = Held
        backend = self.door(door)
        lease = outcome(lambda: backend.acquire(self.run + name, create=create), expected)
        if not isinstance(lease, Lease):
            return multiple()
        model = self.models.setdefault(name, Model())
        model.epoch += 1
        model.holder = lease
        self.owners[lease.token] = backend
        assert (lease.epoch, lease.head) == (model.epoch, model.head)
        return (name, lease)

    @rule(held=leases)
    def release(self, held: tuple[str, Lease]) -> None:
        name, lease = held
        self.owners[lease.token].release(lease)
        if name in self.models and self.models[name].holder == lease:
            self.models[name].holder = None

    @rule(
        target=sent,
        held=leases,
        bodies=st.lists(st.tuples(BODIES, VALUES), max_size=4),
        off=st.sampled_from([0, 0, 0, 0, -1, 1]),
    )
    def append(
        self, held: tuple[str, Lease], bodies: list[tuple[bytes, tuple[bytes, ...]]], off: int
    ) -> object:
        entries = [JournalEntry(f"k{next(self.numbers)}", 5, body, blobs) for body, blobs in bodies]
        after = len(self.models.get(held[0], Model()).records) + off
        self.appended(held, entries, after)
        return (entries, after)

    @rule(held=leases, what=sent, cut=st.integers(0, 2))
    def append_again(
        self, held: tuple[str, Lease], what: tuple[list[JournalEntry], int], cut: int
    ) -> None:
        entries, after = what
        self.appended(held, entries[cut:], after + cut)

    def appended(self, held: tuple[str, Lease], entries: list[JournalEntry], after: int) -> None:
        name, lease = held
        model = self.models.get(name, Model())
        behind = [(record.epoch, record.key) for record in model.records[max(after, 0) :]]
        same = after >= 0 and behind == [(lease.epoch, entry.key) for entry in entries]
        expected: type[LockstitchError] | None = None
        if model.holder != lease:
            expected = Fenced
        elif after != len(model.records) and not (same and entries):
            expected = Moved
        elif not same:
            model.records += chain_entries(model.head, lease.epoch, entries)
            self.named(model, entries)
        head = outcome(lambda: self.owners[lease.token].append(lease, entries, after), expected)
        if expected is None:
            assert head == model.head

    def named(self, model: Model, entries: list[JournalEntry]) -> None:
        blobs = {blob_name(one): one for entry in entries for one in entry.blobs}
        self.blobs |= blobs
        model.names |= set(blobs)

    @rule(
        name=NAMES,
        door=st.integers(0, 1),
        bodies=st.lists(st.tuples(BODIES, VALUES), min_size=1, max_size=3),
        is_new=st.booleans(),
    )
    def add(
        self,
        name: str,
        door: int,
        bodies: list[tuple[bytes, tuple[bytes, ...]]],
        is_new: bool,
    ) -> None:
        model = self.models.get(name)
        entries = [JournalEntry(f"k{next(self.numbers)}", 5, body, blobs) for body, blobs in bodies]
        after = NEW if is_new or model is None else model.head
        expected: type[LockstitchError] | None = None
        if model and model.holder:
            expected = Held
        elif model and after.seq != len(model.records):
            expected = Moved
        head = outcome(lambda: self.door(door).add(self.run + name, entries, after), expected)
        model = self.models.setdefault(name, Model())
        # Whether a lease was needed for it is the store's business.
        found = self.door(door).head(self.run + name) if expected else head
        assert isinstance(found, Head)
        assert found.epoch - model.epoch in {0, expected is not Held}
        model.epoch = found.epoch
        if expected is not None:
            return
        assert isinstance(head, Head)
        model.records += chain_entries(model.head, head.epoch, entries)
        self.named(model, entries)
        assert head == model.head

    @rule(held=leases, bodies=st.lists(st.tuples(BODIES, VALUES), max_size=3))
    def replace(
        self, held: tuple[str, Lease], bodies: list[tuple[bytes, tuple[bytes, ...]]]
    ) -> None:
        name, lease = held
        model = self.models.get(name, Model())
        entries = [JournalEntry(f"k{next(self.numbers)}", 5, body, blobs) for body, blobs in bodies]
        after = len(model.records)
        expected = None if model.holder == lease else Fenced
        backend = self.owners[lease.token]
        outcome(lambda: backend.replace(lease, entries, after), expected)
        if expected is None:
            model.records = chain_entries(Head(0, START, lease.epoch), lease.epoch, entries)
            model.names = set()
            self.named(model, entries)
            self.forget()

    @rule(held=leases, chance=st.integers(0, 3))
    def delete(self, held: tuple[str, Lease], chance: int) -> None:
        name, lease = held
        model = self.models.get(name, Model())
        is_last = model.holder == lease
        if is_last and chance:
            return
        outcome(lambda: self.owners[lease.token].delete(lease), None if is_last else Fenced)
        if is_last:
            del self.models[name]
            self.forget()

    def forget(self) -> None:
        names = set().union(*(model.names for model in self.models.values()))
        gone = [name for name in self.blobs if name not in names]
        for name in gone:
            del self.blobs[name]
            for backend in self.doors:
                outcome(lambda one=backend, name=name: one.blobs([name]), Damaged)  # type: ignore[misc]

    @rule(source=NAMES, goal=NAMES, upto=st.integers(-1, 8), door=st.integers(0, 1))
    def fork(self, source: str, goal: str, upto: int, door: int) -> None:
        model = self.models.get(source)
        expected: type[LockstitchError] | None = None
        if model is None:
            expected = Unreadable
        elif not 0 <= upto <= len(model.records):
            expected = UsageError
        elif goal in self.models and self.models[goal].records != model.records[:upto]:
            expected = Held
        backend = self.door(door)
        head = outcome(lambda: backend.fork(self.run + source, upto, self.run + goal), expected)
        if model is None or expected is not None:
            return
        if goal not in self.models:
            records = model.records[:upto]
            self.models[goal] = Model(records[-1].epoch if records else 0, records)
            self.models[goal].names = set(model.names)
        assert head == self.models[goal].head

    @rule(name=NAMES, door=st.integers(0, 1), part=st.tuples(st.integers(0, 5), st.integers(0, 9)))
    def read(self, name: str, door: int, part: tuple[int, int]) -> None:
        backend, model = self.door(door), self.models.get(name)
        after, upto = part
        if model is None:
            outcome(lambda: list(backend.read(self.run + name)), Unreadable)
            assert backend.head(self.run + name) is None
            return
        start = NEW
        if 0 < after <= len(model.records):
            start = Head(after, model.records[after - 1].digest, 1)
        found = list(backend.read(self.run + name, start, upto))
        assert found == model.records[start.seq : upto]
        assert backend.wait(self.run + name, after, 0) == (len(model.records) > after)

    @rule(door=st.integers(0, 1))
    def verify(self, door: int) -> None:
        found = list(self.door(door).verify())
        assert [one for one in found if isinstance(one, StoreFault)] == []
        seen = {one.session: one.seq for one in found if isinstance(one, Listed)}
        for name, model in self.models.items():
            assert seen[self.run + name] == len(model.records)

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        for backend in self.doors:
            for name, model in self.models.items():
                assert backend.head(self.run + name) == model.head
                assert list(backend.read(self.run + name)) == model.records
            assert backend.blobs(self.blobs) == self.blobs
            listed = [one for one in backend.sessions() if one.session.startswith(self.run)]
            assert [(one.session, one.epoch, one.holder != "") for one in listed] == [
                (self.run + name, model.epoch, model.holder is not None)
                for name, model in sorted(self.models.items())
            ]

    def teardown(self) -> None:
        """Leave nothing: a value that is named here would not go in the next run."""
        for name, model in self.models.items():
            if model.holder:
                self.owners[model.holder.token].delete(model.holder)
            else:
                self.door(0).delete(self.door(0).acquire(self.run + name))


def outcome(call: Callable[[], object], expected: type[LockstitchError] | None) -> object:
    """The result of a call, or the error that it had to raise."""
    if expected is None:
        return call()
    with pytest.raises(expected) as caught:
        call()
    return caught.value


EXAMPLES = {"memory": 40, "jsonl": 10, "sqlite": 10, "postgres": 5}


def test_a_store_does_what_the_model_does(place: Place) -> None:
    profile = settings.get_profile("lockstitch")
    examples = max(EXAMPLES[place.kind] * profile.max_examples // BUDGET, 1)

    class Machine(Stores):
        doors = (place.open(), place.open())

    # Explaining a failure, step by step on a real store, takes minutes.
    phases = set(Phase) - {Phase.explain}
    chosen = settings(profile, max_examples=examples, stateful_step_count=25, phases=phases)
    run_state_machine_as_test(Machine, settings=chosen)
