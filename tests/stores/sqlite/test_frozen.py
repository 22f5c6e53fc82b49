"""A process that was stopped in the middle of a commit: others are told in the time they asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import lockstitch
from lockstitch.errors import Busy
from lockstitch.journal.records import NEW
from lockstitch.stores.base import StoreFault
from lockstitch.stores.sqlite import SqliteBackend, connections, writer
from tests import tools
from tests.stores.sqlite import calls
from tests.stores.sqlite.calls import PIPE, wait_until_stopped
from tests.stores.sqlite.conftest import entries
from tests.stores.sqlite.driver import BEFORE, SESSION, entry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")
SOON = 0.3


class Frozen:
    """A store, and a writer of it that was stopped where it makes a commit durable."""

    def __init__(self, path: Path, pid: int) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self._pid = pid

    def thaw(self) -> None:
        """Have the writer go on."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for as long as the store would by itself never ends here."""
    for module in (connections, writer):
        monkeypatch.setattr(module, "BUSY_SECONDS", 3600.0)


@pytest.fixture
def frozen(tmp_path: Path, early: None) -> Iterator[Frozen]:
    tools.needed("strace")
    assert early is None
    with calls.driving() as driven:
        with SqliteBackend(driven.path) as store:
            store.append(store.acquire(SESSION), [entry(n + 1) for n in range(BEFORE)], 0)
            store.add("other", entries(2), NEW)
        driven.template = driven.path.read_bytes()
        driven.send("append")
        pid, _ = driven.read("started")
        wait_until_stopped(pid)
        freeze = "inject=fdatasync:signal=SIGSTOP:when=1"
        followed = tools.attached(pid, "-o", str(tmp_path / "log"), "-e", freeze)
        # Its other threads are not: each would be stopped at its first call, later.
        command = [word for word in followed if word != "-f"]
        with subprocess.Popen(command, stderr=PIPE, text=True) as tracer:
            assert tracer.stderr
            assert "attached" in tracer.stderr.readline()
            os.kill(int(pid), signal.SIGCONT)
            wait_until_frozen(pid)
            made = Frozen(driven.path, int(pid))
            yield made
            made.thaw()
            status, said = driven.read("ended")
            tracer.stderr.read()
    assert (status, said) == ("0", [f"acked {BEFORE + 1}"])


def wait_until_frozen(pid: str) -> None:
    """Wait until a traced process has stopped where it was told to."""
    deadline = time.monotonic() + 30
    while ") t " not in (stat := Path(f"/proc/{pid}/stat").read_text()) and ") T " not in stat:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    # It stops at each traced call for a moment, and then for good.
    time.sleep(0.2)


def test_reading_does_not_wait(frozen: Frozen) -> None:
    with lockstitch.open(frozen.url) as store, SqliteBackend(frozen.path) as backend:
        assert [one.seq for one in store.sessions()] == [2, BEFORE]
        assert len(list(backend.read(SESSION))) == BEFORE
        assert not [one for one in backend.verify() if isinstance(one, StoreFault)]
        assert not backend.wait("other", 2, 0.01)
        # It is let go of soon, too.
        backend._writer._timeout = store._backend._writer._timeout = SOON  # type: ignore[attr-defined,union-attr]  # noqa: SLF001


def test_opening_a_session_is_busy_in_the_time_that_was_asked_for(frozen: Frozen) -> None:
    with lockstitch.open(f"{frozen.url}?timeout={SOON}") as store:
        for name, wait in (("other", 0.0), ("new", SOON), ("other", 1.5)):
            with pytest.raises(Busy, match="nothing was written: try again"):
                store.session(name, wait=wait)
        frozen.thaw()
        with store.session("other", wait=30) as session:
            session.note("more")
        assert [one.session for one in store.sessions()] == ["other", SESSION]


def test_adding_is_busy_in_the_time_that_was_asked_for(frozen: Frozen) -> None:
    with SqliteBackend(frozen.path, timeout=SOON) as store:
        head = store.head("other")
        assert head
        for _ in range(2):
            with pytest.raises(Busy, match="nothing was written: try again"):
                store.add("other", entries(1, first=3), head, wait=SOON)
        assert store.head("other") == head
        frozen.thaw()
        assert store.add("other", entries(1, first=3), head, wait=30).seq == 3
        # One thread has waited for all of them.
        waiting = [one for one in threading.enumerate() if one.name == "lockstitch-lock"]
        assert len(waiting) <= 1


def test_threads_behind_one_that_waits_longer_are_told_in_their_own_time(frozen: Frozen) -> None:
    with SqliteBackend(frozen.path) as store:
        head = store.head("other")
        assert head
        done: list[int] = []

        def patient() -> None:
            done.append(store.add("other", entries(1, first=3), head, wait=3600).seq)

        thread = threading.Thread(target=patient)
        thread.start()
        while store._writer._commits._leader is None:  # type: ignore[union-attr]  # noqa: SLF001
            time.sleep(0.001)
        for _ in range(2):
            with pytest.raises(Busy, match="nothing was written: try again"):
                store.add("new", entries(1), NEW, wait=SOON)
        assert done == []
        frozen.thaw()
        thread.join(60)
        assert done == [3]
        assert store.add("new", entries(1), NEW, wait=30).seq == 1


def test_writing_under_a_lease_is_busy_in_the_time_of_the_store(
    tmp_path: Path, early: None
) -> None:
    """The lease was taken before; the writer is frozen behind its commit's first statement."""
    assert early is None
    path = tmp_path / "sessions.db"
    program = (
        "import os, signal, sys\n"
        "from lockstitch.journal.records import NEW\n"
        "from lockstitch.stores.sqlite import SqliteBackend\n"
        "from lockstitch.stores.sqlite.connections import connect\n"
        "from tests.stores.sqlite.conftest import entries\n"
        "class Stopping:\n"
        "    def __init__(self, uri): self.inner = connect(uri)\n"
        "    def __getattr__(self, name): return getattr(self.inner, name)\n"
        "    def execute(self, text, *values):\n"
        "        if text == 'commit' and armed: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "        return self.inner.execute(text, *values)\n"
        "armed = []\n"
        "store = SqliteBackend(sys.argv[1], connect=Stopping)\n"
        "armed.append(1)\n"
        "store.add('other', entries(2), NEW)\n"
    )
    with lockstitch.open(f"sqlite:///{path}?timeout={SOON}") as store:
        session = store.session("mine")
        session.say("hello", key="a")
        with subprocess.Popen([sys.executable, "-c", program, str(path)]) as other:
            wait_until_stopped(str(other.pid))
            for _ in range(2):
                with pytest.raises(Busy, match="nothing was written: try again"):
                    session.say("hello?", key="b")
            assert len(store.read("mine").request("anthropic")) == 1
            other.send_signal(signal.SIGCONT)
            assert other.wait(60) == 0
        session.say("hello!", key="b")
        session.close()
        with closing(store.session("mine")) as again:
            [message] = again.request("anthropic")
            assert "hello!" in str(message)
            assert "hello?" not in str(message)
