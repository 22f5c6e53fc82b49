"""One change of each kind to a small store, and whether a store is before it or behind it.

What stands between the two, whatever happened on the way, is a fault: of the changed session, of
the one beside it, and of the large values that both or only one of them name.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lockstitch.errors import Damaged
from lockstitch.journal.records import NEW, JournalEntry, blob_name
from lockstitch.stores.base import Backend, StoreFault

SESSION, OTHER, MADE = "s", "other", "made"
ORDERS = ("add", "make", "fork", "replace", "delete")
REMOVING = ("replace", "delete")
SECRET = b"do-not-tell-anybody"


def _value(word: bytes) -> bytes:
    """Give a large value of some pages that says in each of them whose it is."""
    return (word + b" ") * (20_000 // len(word))


# Named by both sessions; by the first alone; by what is there before and behind; by the new only.
SHARED, OWN, KEPT, ADDED = map(_value, (b"shared", SECRET, b"kept", b"added"))


def _entry(key: str, text: bytes, *blobs: bytes) -> JournalEntry:
    body = b'{"kind":"noted","name":"%s","text":"%s"}' % (key.encode(), text * 40)
    return JournalEntry(key, 1_700_000_000_000, body, blobs)


OLD = [_entry("old-1", SECRET, SHARED, OWN), _entry("old-2", SECRET, KEPT)]
BESIDE = [_entry("beside", b"plain", SHARED)]
FRESH = [_entry("new", b"fresh", KEPT, ADDED)]
# The session that changes, and what is in it before and behind the change; None: it is not there.
States = tuple[str, Sequence[JournalEntry] | None, Sequence[JournalEntry] | None]
STATES: dict[str, States] = {
    "add": (SESSION, OLD, [*OLD, *FRESH]),
    "make": (MADE, None, FRESH),
    "fork": (MADE, None, OLD),
    "replace": (SESSION, OLD, FRESH),
    "delete": (SESSION, OLD, None),
}


def fill(store: Backend) -> None:
    """Write what is there before."""
    for session, entries in ((SESSION, OLD), (OTHER, BESIDE)):
        lease = store.acquire(session)
        store.append(lease, entries, 0)
        store.release(lease)


class Change:
    """A change that is about to be made; calling it makes it."""

    def __init__(self, store: Backend, order: str) -> None:
        self.store = store
        self.order = order
        self.session = STATES[order][0]
        self.lease = store.acquire(self.session) if order in REMOVING else None
        self.head = store.head(self.session) or NEW

    def __call__(self) -> None:
        if self.order == "fork":
            self.store.fork(SESSION, len(OLD), MADE)
        elif self.lease is None:
            self.store.add(self.session, FRESH, self.head)
        elif self.order == "delete":
            self.store.delete(self.lease)
        else:
            self.store.replace(self.lease, FRESH, self.head.seq)

    def end(self) -> None:
        """Hold nothing any more."""
        if self.lease is not None:
            self.store.release(self.lease)


def is_done(store: Backend, order: str) -> bool:
    """Whether a store is behind a change; one that is neither there nor before it is wrong."""
    session, before, behind = STATES[order]
    assert not [one for one in store.verify() if isinstance(one, StoreFault)]
    _require(store, OTHER, BESIDE)
    if order in {"make", "fork"}:
        _require(store, SESSION, OLD)
    keys = _keys(store, session)
    if order == "make" and keys == []:
        # A store may have to make a session before it can add to it.
        return False
    assert keys in (_keys_of(before), _keys_of(behind)), (order, keys)
    is_behind = keys == _keys_of(behind)
    _require(store, session, behind if is_behind else before)
    return is_behind


def require_gone(store: Backend, order: str) -> None:
    """Behind a change, no value can be read that only what was removed had named."""
    if order in REMOVING:
        assert not _has(store, OWN)
    if order == "delete":
        assert not _has(store, KEPT)


def _has(store: Backend, value: bytes) -> bool:
    try:
        return bool(store.blobs([blob_name(value)]))
    except Damaged:
        return False


def _keys(store: Backend, session: str) -> list[str] | None:
    return None if store.head(session) is None else [one.key for one in store.read(session)]


def _keys_of(entries: Sequence[JournalEntry] | None) -> list[str] | None:
    return None if entries is None else [one.key for one in entries]


def _require(store: Backend, session: str, entries: Sequence[JournalEntry] | None) -> None:
    """A session holds just that, with all the large values that it names."""
    if entries is None:
        assert store.head(session) is None
        return
    found = [(one.key, one.at, one.body) for one in store.read(session)]
    assert found == [(one.key, one.at, one.body) for one in entries]
    for value in {value for one in entries for value in one.blobs}:
        assert store.blobs([blob_name(value)]) == {blob_name(value): value}


def again(store: Backend, order: str) -> None:
    """Make a change that is not made yet, as a caller would who was told nothing."""
    if not is_done(store, order):
        change = Change(store, order)
        change()
        change.end()


def go_on(store: Backend, order: str) -> None:
    """Have a change made in the end, and write to every session."""
    again(store, order)
    assert is_done(store, order)
    for session in (SESSION, OTHER):
        head = store.head(session) or NEW
        assert store.add(session, [_entry("last", b"plain")], head).seq == head.seq + 1
    # By now at the latest: whoever writes next ends what another one was killed in.
    require_gone(store, order)


class Op(Struct, frozen=True):
    """One of many changes in a row."""

    order: str
    session: str
    entries: list[JournalEntry] = []


Model = dict[str, list[JournalEntry]]


def plan(count: int, names: Sequence[str] = ("a", "b")) -> list[Op]:
    """Change two sessions again and again, with large values that come and go with them."""
    made, there = [], set[str]()
    for number in range(count):
        session = names[number % 2]
        order = ("add", "add", "replace", "delete", "add")[number % 5]
        order = order if session in there else "add"
        values = (_value(b"value %d" % (number % 4)),) if number % 2 else ()
        entry = _entry(f"k{number}", b"text %d" % number, *values)
        made.append(Op(order, session, [] if order == "delete" else [entry]))
        (there.discard if order == "delete" else there.add)(session)
    return made


def models(ops: Sequence[Op]) -> list[Model]:
    """What a store holds before the first of them, and behind each."""
    found: list[Model] = [{}]
    for op in ops:
        model = dict(found[-1])
        model.pop(op.session, None) if op.order != "add" else None
        if op.order != "delete":
            model[op.session] = [*model.get(op.session, []), *op.entries]
        found.append(model)
    return found


def carry_out(store: Backend, op: Op) -> None:
    """Make one of the changes."""
    if op.order == "add":
        store.add(op.session, op.entries, store.head(op.session) or NEW)
        return
    lease = store.acquire(op.session)
    if op.order == "delete":
        store.delete(lease)
    else:
        store.replace(lease, op.entries, lease.head.seq)
        store.release(lease)


def require_one_of(store: Backend, possible: Sequence[Model]) -> Model:
    """A store holds what one of the models says, whole, and nothing else; gives which one."""
    assert not [one for one in store.verify() if isinstance(one, StoreFault)]
    return found_of(store, [one.session for one in store.sessions()], possible)


def found_of(store: Backend, sessions: Sequence[str], possible: Sequence[Model]) -> Model:
    """Give the one of some models that says what some sessions of a store hold."""
    found = {name: keys for name in sessions if (keys := _keys(store, name)) is not None}
    same = [one for one in possible if found == {name: _keys_of(one[name]) for name in one}]
    assert same, (found, possible)
    for session, entries in same[0].items():
        _require(store, session, entries)
    return same[0]
