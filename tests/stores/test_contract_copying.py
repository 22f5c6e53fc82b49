"""A session goes from any store to any other, as it is, all of it or nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstitch.errors import Damaged, Held, Unreadable, UsageError
from lockstitch.journal.events import INLINE
from lockstitch.session import copying
from lockstitch.session.listing import AUDIT
from lockstitch.session.store import Store
from lockstitch.stores.base import StoreFault
from lockstitch.stores.opening import open_backend
from tests.session.talk import asks, says
from tests.stores.contract import KINDS, SHARED, Place, entry

LARGE = "large " * (INLINE // 5)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    opened: list[Place] = []

    def make(kind: str) -> Place:
        folder = tmp_path / str(len(opened))
        folder.mkdir()
        opened.append(Place(kind, folder))
        return opened[-1]

    yield make
    for place in opened:
        place.__exit__(None, None, None)


def talk(store: Store, name: str = "s") -> None:
    """A session with several epochs, large values, an open call and a description."""
    with store.session(name) as session:
        session.say(f"Hello {LARGE}", key="first")
        session.record(asks("anthropic", ("c1", "look", {}), ("c2", "look", {})))
        session.run_tools({"look": lambda: LARGE})
        session.describe("A case", ["copied"], {"n": 1})
    with store.session(name) as session:
        session.record(says("anthropic"))
        session.rewind(1)
        session.record(asks("anthropic", ("c1", "look", {})))


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_it_is_the_same_there(source: str, target: str, places: Callable[[str], Place]) -> None:
    one, other = places(source), places(target)
    here, there = Store(one.open()), Store(other.open())
    talk(here)
    done = here.copy("s", there)
    assert (done.session, done.name, done.is_new) == ("s", "s", True)
    before, after = one.open(), other.open()
    assert list(after.read("s")) == list(before.read("s"))
    assert done.records == len(list(after.read("s")))
    assert not any(isinstance(found, StoreFault) for found in after.verify())
    mine, copy = here.read("s"), Store(after).read("s")
    assert copy.request("openai-chat") == mine.request("openai-chat")
    assert (copy.title, copy.tags, copy.metadata) == ("A case", ("copied",), {"n": 1})
    [listed] = there.sessions(tag="copied")
    [original] = here.sessions()
    assert (listed.title, listed.changed, listed.holder) == ("A case", original.changed, "")
    with Store(after).session("s") as session:
        assert [call.name for call in session.pending] == ["look"]
        session.say(f"Hello {LARGE}", key="first")
        session.run_tools({"look": lambda: "seen"})
    assert here.copy("s", there).is_new is False


def test_the_same_again_is_done_and_another_one_is_not(places: Callable[[str], Place]) -> None:
    for kind in KINDS:
        here, there = Store(places("memory").open()), Store(places(kind).open())
        talk(here)
        here.copy("s", there)
        assert here.copy("s", there).is_new is False
        with here.session("s") as session:
            session.say("And on")
        with pytest.raises(Held):
            here.copy("s", there)
        with there.session("t") as session:
            session.say("Something else")
        with pytest.raises(Held):
            here.copy("s", there, "t")
        assert here.copy("s", there, "u").is_new
        assert sorted(one.session for one in there.sessions()) == ["s", "t", "u"]


def test_a_copy_in_the_same_store_has_another_name(store: Store) -> None:
    talk(store)
    with pytest.raises(UsageError):
        store.copy("s", store)
    with pytest.raises(UsageError):
        store.copy("s", store, AUDIT)
    with pytest.raises(Unreadable):
        store.copy("nobody", store, "x")
    store.copy("s", store, "t")
    assert store.read("t").request("anthropic") == store.read("s").request("anthropic")
    store.delete("s")
    assert store.read("t").request("anthropic")


@pytest.fixture
def store(place: Place) -> Store:
    return Store(place.open())


def test_one_without_records_is_copied_too(places: Callable[[str], Place]) -> None:
    for kind in KINDS:
        here, there = Store(places("memory").open()), Store(places(kind).open())
        with here.session("s"):
            pass
        assert here.copy("s", there).is_new
        assert here.copy("s", there).is_new is False
        with there.session("s") as session:
            session.say("Hello")
        with pytest.raises(Held):
            here.copy("s", there)


def test_what_is_damaged_is_not_copied(places: Callable[[str], Place], tmp_path: Path) -> None:
    here, there = Store(places("jsonl").open()), Store(places("sqlite").open())
    talk(here)
    here.close()
    path = tmp_path / "0" / "sessions" / "s.jsonl"
    path.write_bytes(path.read_bytes().replace(b"look", b"loook", 1))
    with pytest.raises(Damaged), Store(open_backend(f"jsonl:///{tmp_path}/0/sessions")) as again:
        again.copy("s", there)
    assert list(there.sessions()) == []


def test_what_a_later_version_wrote_is_copied_with_its_large_values(
    places: Callable[[str], Place],
) -> None:
    from lockstitch.journal.records import NEW, blob_name

    value = b"a large value" * 100
    name = blob_name(value)
    here, there = places("memory").open(), places("sqlite").open()
    body = b'{"kind":"later","blob":"%s","text":"\\"x\\":\\"no\\""}' % name.encode()
    here.add("s", [entry("a", body, value), entry("b", b"not even JSON")], NEW)
    Store(here).copy("s", Store(there))
    assert there.blobs([name]) == {name: value}


COPY = """
import sys
from lockstitch.session.store import Store
from lockstitch.stores.opening import open_backend
here, there = Store(open_backend(sys.argv[1])), Store(open_backend(sys.argv[2]))
print("ready", flush=True)
for listed in here.sessions():
    here.copy(listed.session, there)
    print(listed.session, flush=True)
print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("source", "target"), list(zip(SHARED, (*SHARED[1:], SHARED[0]), strict=True))
)
def test_who_is_killed_does_it_again(
    source: str, target: str, places: Callable[[str], Place]
) -> None:
    one, other = places(source), places(target)
    here = Store(one.open())
    for number in range(6):
        talk(here, f"s{number}")
    command = [sys.executable, "-c", COPY, one.url, other.url]
    expected = {f"s{number}": list(one.open().read(f"s{number}")) for number in range(6)}
    for delay in (0.0, 0.01, 0.03, 0.06):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.kill()
        process.wait()
        process.stdout.close()
        backend = other.open()
        for listed in backend.sessions():
            assert list(backend.read(listed.session)) == expected[listed.session]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.endswith("done\n")
    backend = other.open()
    assert {name: list(backend.read(name)) for name in expected} == expected
    assert not any(isinstance(found, StoreFault) for found in backend.verify())


def test_what_belongs_to_a_session_goes_with_it(
    places: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "companions", lambda *_: ["s.1-0"])
    for kind in KINDS:
        here, there = Store(places("memory").open()), Store(places(kind).open())
        talk(here)
        talk(here, "s.1-0")
        with there.session("t.1-0") as session:
            session.say("What a copy that was killed left")
        done = here.copy("s", there, "t")
        assert done.companions == ("s.1-0",)
        assert there.read("t.1-0").request("gemini") == here.read("s.1-0").request("gemini")
        with here.session("s.1-0") as session:
            session.say("It went on")
        assert here.copy("s", there, "t").is_new is False
