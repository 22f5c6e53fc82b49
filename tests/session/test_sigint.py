"""A real Ctrl-C in a real terminal, wherever the program is: nothing that finished is lost."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstitch.dialects.placeholders import CANCELLED, NOT_STARTED
from lockstitch.journal.events import Interrupted
from lockstitch.session.store import Store
from lockstitch.stores.sqlite import SqliteBackend
from tests import tools

from .events import HALF, anthropic, sse
from .talk import DIALECTS, faults, results, texts
from .terminal import Terminal, terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs terminals")
SLOW = "fdatasync,fsync:delay_enter=300000"


def command(folder: Path, mode: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.session.typist", mode, str(folder), *arguments]


def slowed(folder: Path, mode: str) -> list[str]:
    """The same with a disk on which every sync takes a while, and with a store there already."""
    strace = tools.needed("strace")
    with Store(SqliteBackend(folder / "agent.db")) as store:
        store.session("another").close()
    options = ["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e"]
    return [strace, *options, f"inject={SLOW}", *command(folder, mode)]


@contextmanager
def reopened(folder: Path) -> Iterator[Any]:
    """The session in another process than the one that was interrupted."""
    with Store(SqliteBackend(folder / "agent.db")) as store, store.session("s") as session:
        for dialect in DIALECTS:
            assert faults(dialect, session.request(dialect)) == []
        yield session


def interrupts(session: Any) -> list[str]:
    facts = [fact.event for fact in session.state.facts.values()]
    return [event.reason for event in facts if isinstance(event, Interrupted)]


@contextmanager
def server(answer: bytes, taken: threading.Event) -> Iterator[str]:
    """A server that takes a request, begins to answer, if at all, and then stalls."""
    listening = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            taken.set()
            connection.sendall(answer)
            done.wait(60)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1/messages"
    finally:
        done.set()
        thread.join()
        listening.close()


def test_while_a_request_is_in_flight(tmp_path: Path) -> None:
    taken = threading.Event()
    with server(b"", taken) as url, terminal(command(tmp_path, "request", url)) as screen:
        assert taken.wait(60)
        screen.press_control_c()
        assert "interrupted" in screen.wait_for_end()
    with reopened(tmp_path) as session:
        assert not session.recovered
        assert interrupts(session) == ["user"]
        assert results(session.request("openai-chat")) == {"c1": "quick 1"}


def test_while_a_stream_is_in_flight(tmp_path: Path) -> None:
    head = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    events = sse("anthropic", anthropic()[: HALF["anthropic"]])
    serving = server(head + events, threading.Event())
    with serving as url, terminal(command(tmp_path, "stream", url)) as screen:
        screen.wait_for("block 1")
        screen.press_control_c()
        assert "interrupted" in screen.wait_for_end()
    with reopened(tmp_path) as session:
        assert not session.recovered
        assert interrupts(session) == ["user"]
        messages = session.request("openai-chat")
        assert texts(messages, "assistant") == ["Let me see."]
        assert results(messages) == {"c1": NOT_STARTED}


@pytest.mark.parametrize("mode", ["tools", "on_asyncio", "on_trio"])
def test_while_tools_run(tmp_path: Path, mode: str) -> None:
    with terminal(command(tmp_path, mode)) as screen:
        press_when_two_are_done(screen, tmp_path)
        assert "interrupted" in screen.wait_for_end()
    check_outcomes(tmp_path)


def press_when_two_are_done(screen: Terminal, folder: Path) -> None:
    screen.wait_for("running")
    with Store(SqliteBackend(folder / "agent.db")) as store:
        reader = store.read("s")
        while sum(call.outcome == "ok" for call in reader.calls) < 2:
            reader.refresh()
    screen.press_control_c()


def check_outcomes(folder: Path) -> None:
    with reopened(folder) as session:
        assert not session.recovered
        assert len(interrupts(session)) == 1
        shown = results(session.request("openai-chat"))
        assert shown == {"c1": "quick 1", "c2": "quick 2", "c3": CANCELLED}


@pytest.mark.parametrize("mode", ["tools", "on_asyncio", "on_trio"])
def test_again_while_the_outcomes_are_written(tmp_path: Path, mode: str) -> None:
    """The disk is slow, so the second and the third hit the write that the first has caused."""
    with terminal(slowed(tmp_path, mode)) as screen:
        press_when_two_are_done(screen, tmp_path)
        # asyncio.run ends the loop at the third, whatever still runs in it
        for _ in range(1 if mode == "on_asyncio" else 4):
            screen.wait(0.15)
            screen.press_control_c()
        screen.wait_for_end()
    check_outcomes(tmp_path)


def test_a_program_that_goes_on_after_it(tmp_path: Path) -> None:
    with terminal(command(tmp_path, "caught")) as screen:
        press_when_two_are_done(screen, tmp_path)
        screen.wait_for("state interrupted")
        screen.wait_for("went on")
        screen.wait_for_end()
    with reopened(tmp_path) as session:
        assert session.turn.state == "open"
        assert results(session.request("openai-chat"))["c3"] == CANCELLED
        assert texts(session.request("openai-chat"), "user")[-1] == "Something else"


def test_while_the_store_writes(tmp_path: Path) -> None:
    """What the program knew when it was interrupted is what the store holds, to the last record."""
    with terminal(slowed(tmp_path, "writing")) as screen:
        screen.wait_for("writing 3")
        screen.press_control_c()
        screen.wait_for("struck")
        shown = screen.wait_for_end()
    # the handler ran while the third message was on its way, and nothing was begun after it
    assert re.search(r"writing 3\s+(\^C)?\s*struck\s+known", shown), shown
    known = int(re.search(r"known (\d+)", shown).group(1))  # type: ignore[union-attr]
    with reopened(tmp_path) as session:
        said = [fact for fact in session.state.facts.values() if fact.seq <= known]
        assert [type(fact.event).__name__ for fact in said] == ["Said"] * known
        assert interrupts(session) == ["user"]
        for number in range(1, known + 1):
            assert f"<{number}>" in str(session.request("anthropic"))
