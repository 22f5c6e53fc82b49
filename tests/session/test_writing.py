"""The one writer: one order for all threads, facts that wait go together, trouble is final."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from lockstitch.errors import Busy, Damaged, Fenced, LockstitchError, Moved, Unsure
from lockstitch.journal.events import Noted
from lockstitch.journal.records import Head, JournalEntry
from lockstitch.session.store import Store
from lockstitch.session.tool_run import Result
from lockstitch.stores.base import Lease
from lockstitch.stores.memory import MemoryBackend

from .talk import asks, results
from .twins import Twin, check_everywhere


class Gate(MemoryBackend):
    """A store whose writes stand still until they are let through, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.open = threading.Event()
        self.open.set()

    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        self.sizes.append(len(entries))
        assert self.open.wait(60)
        return super().append(lease, entries, after)


def test_what_comes_in_while_the_store_writes_goes_in_one_write() -> None:
    backend = Gate()
    with Store(backend).session("s") as session:
        session.say("Go")
        session.record(asks("anthropic", *((f"c{n}", "look", {}) for n in range(10))))
        meeting = threading.Barrier(10, action=backend.open.clear, timeout=60)

        def look() -> str:
            meeting.wait()
            return "seen"

        def let_through() -> None:
            """While the store stands still with the first result, the other nine wait in line."""
            deadline = time.monotonic() + 60
            while len(session._view._commits._queue) < 9 and time.monotonic() < deadline:  # type: ignore[attr-defined]  # noqa: SLF001
                time.sleep(0.002)
            backend.open.set()

        thread = threading.Thread(target=let_through)
        thread.start()
        done = session.run_tools({"look": look})
        thread.join()
        assert [c.outcome for c in done] == ["ok"] * 10
        assert backend.sizes[:5] == [1, 1, 10, 1, 9]


def test_many_threads_one_order(disk: Store) -> None:
    with disk.session("s") as session:

        def write(name: str) -> None:
            for n in range(25):
                session.note(name, n)

        threads = [threading.Thread(target=write, args=(f"t{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert session.seq == 200
        reader = disk.read("s")
        assert reader.seq == 200
        events = [fact.event for fact in reader.state.facts.values()]
        for n in range(8):
            mine = [e for e in events if isinstance(e, Noted) and e.name == f"t{n}"]
            assert [int(bytes(e.payload)) for e in mine] == list(range(25))


class Sick(MemoryBackend):
    """A store that fails once, before or after it has written."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.is_written = False

    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        error, self.error = self.error, None
        if error is None or self.is_written:
            head = super().append(lease, entries, after)
        if error is not None:
            raise error
        return head


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("error", [Unsure("x"), Fenced("x"), Moved("x"), OSError(5, "x")])
def test_after_trouble_nothing_more_is_written_until_it_is_opened_again(
    twin: Twin, error: Exception, is_written: bool
) -> None:
    backend = Sick()
    store = Store(backend)
    kind = type(error) if isinstance(error, LockstitchError) else Unsure

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One")
            backend.error, backend.is_written = error, is_written
            with pytest.raises(kind):
                await session.say("Two", key="two")
            for _ in range(2):
                with pytest.raises(kind, match="open it again"):
                    await session.say("Two", key="two")
            assert session.seq == 1
            await check_everywhere(session)
        async with twin.opened(store) as session:
            await session.say("Two", key="two")
            messages = await session.request("openai-chat")
            assert str(messages).count("Two") == 1

    twin.run(body)


def test_a_busy_store_is_asked_again_for_what_a_tool_gave(twin: Twin) -> None:
    backend = Sick()
    store = Store(backend)

    def look() -> str:
        backend.error = Busy("another program has held the database for 5 seconds")
        return "seen"

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await session.record(asks("anthropic", ("c1", "look", {})))
            await session.run_tools({"look": look})
            assert results(await session.request("openai-chat")) == {"c1": "seen"}
            backend.error = Busy("again")
            with pytest.raises(Busy):
                await session.say("More")
            await session.say("More")

    twin.run(body)


class Liar(MemoryBackend):
    """A store that says it is somewhere else."""

    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        head = super().append(lease, entries, after)
        return Head(head.seq, bytes(16), head.epoch)


def test_a_store_that_holds_something_else_is_not_believed() -> None:
    with Store(Liar()).session("s") as session:
        with pytest.raises(Unsure):
            session.say("One")
        assert session.seq == 0


def test_a_record_without_the_call_it_names_is_damage_and_not_a_crash_of_ours(
    twin: Twin, store: Store
) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await session.record(asks("anthropic", ("c1", "look", {})))
            inner = twin.inner(session)
            inner._writer._askings[2] = []  # noqa: SLF001
            with pytest.raises(Damaged):
                await session.run_tools({"look": lambda: ""})

    twin.run(body)


def test_what_a_tool_gives_is_never_in_a_message_of_an_error(store: Store) -> None:
    with store.session("s") as session:
        session.say("Go")
        session.record(asks("anthropic", ("c1", "look", {})))
        secret: Any = {"secret": object()}
        (call,) = session.run_tools({"look": lambda: Result(secret, dialect="anthropic")})
        assert (call.outcome, "secret" in str(session.output(call))) == ("error", False)
