"""Going back and branching off: facts that are added, with nothing deleted and a way back."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstitch import stored
from lockstitch.errors import Held, UsageError
from lockstitch.journal.events import Forked, Rewound, event_of
from lockstitch.sources import own_stores
from lockstitch.stores.opening import open_backend
from tests.cli.journals import SMALL, TICKET, damage, held, replied, said, write
from tests.postgres_server import shared

KINDS = ("sqlite", "jsonl", "postgresql")


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The address of a store with one session."""
    kind = getattr(request, "param", "sqlite")
    name = {"sqlite": "agent.db", "jsonl": "lines"}.get(kind)
    url = f"{kind}:///{tmp_path / name}" if name else shared().fresh()
    write(url, "ticket-42", *TICKET)
    return url


every = pytest.mark.parametrize("store", KINDS, indirect=True)


def bodies(url: str, session: str) -> list[bytes]:
    with open_backend(url) as backend:
        return [record.body for record in backend.read(session)]


# checkpoints


@every
def test_checkpoints(here: Any, store: str) -> None:
    done = here("checkpoints", store)
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        " 2  batch  2026-11-14 23:46:42  before these calls",
        "13  turn   2026-11-14 23:46:53  end of the turn",
        "14  named  2026-11-14 23:46:54  before the refactoring",
        "16  batch  2026-11-14 23:46:56  before these calls",
    ]


def test_checkpoints_json(here: Any, store: str) -> None:
    report = json.loads(here("checkpoints", store, "--json").stdout)
    assert report.keys() == {"version", "target", "session", "records", "checkpoints"}
    assert (report["session"], report["records"]) == ("ticket-42", 17)
    assert report["checkpoints"][1:3] == [
        {"seq": 13, "kind": "turn", "at": "2026-11-14T23:46:53.000+00:00", "label": None},
        {
            "seq": 14,
            "kind": "named",
            "at": "2026-11-14T23:46:54.000+00:00",
            "label": "before the refactoring",
        },
    ]


def test_checkpoints_of_what_is_left(here: Any, store: str) -> None:
    damage(store, "ticket-42", 14)
    done = here("checkpoints", store)
    assert done.returncode == 1
    assert b"LS611" in done.stderr
    assert len(done.stdout.splitlines()) == 3


# rewind


@every
def test_rewind_adds_a_fact_and_deletes_none(here: Any, store: str) -> None:
    before = bodies(store, "ticket-42")
    done = here("rewind", store, "--to", "14", "--yes")
    assert done.returncode == 0
    assert b"ticket-42: back from record 17 to 14. 1 turn, 1 reply, 1 call leave" in done.stderr
    after = bodies(store, "ticket-42")
    assert after[: len(before)] == before
    shown = here("show", store).stdout
    assert b"Refactor it" not in shown
    assert b"The test is fixed." in shown
    assert here("check", store).returncode == 0


@pytest.mark.parametrize(("to", "seq"), [("before the refactoring", 14), ("13", 13), ("0", 0)])
def test_rewind_to_a_record_or_a_label(here: Any, store: str, to: str, seq: int) -> None:
    done = here("rewind", store, "--to", to, "--yes", "--json")
    report = json.loads(done.stdout)
    assert report == {
        "version": 1,
        "target": store,
        "session": "ticket-42",
        "from": 17,
        "to": seq,
        "seq": 18,
    }
    assert [e.to for e in _events(store) if isinstance(e, Rewound)] == [seq]


def _events(url: str, session: str = "ticket-42") -> list[Any]:
    with open_backend(url) as backend:
        return [event_of(record) for record in backend.read(session)]


@every
def test_a_rewind_can_be_undone(here: Any, store: str) -> None:
    shown = here("show", store).stdout
    assert here("rewind", store, "--to", "1", "--yes").returncode == 0
    assert b"I look into it." not in here("show", store).stdout
    assert here("rewind", store, "--undo", "--yes").returncode == 0
    again = here("show", store).stdout
    assert [line for line in shown.splitlines()[1:] if line] == [
        line for line in again.splitlines()[1:] if line and b"went back" not in line
    ]


def test_nothing_to_undo(here: Any, store: str) -> None:
    done = here("rewind", store, "--undo", "--yes")
    assert done.returncode == 2
    assert b"nothing was rewound" in done.stderr


@pytest.mark.parametrize("words", [("--to", "18"), ("--to", "no such label")])
def test_no_such_place(here: Any, store: str, words: tuple[str, ...]) -> None:
    before = bodies(store, "ticket-42")
    assert here("rewind", store, *words, "--yes").returncode == 2
    assert bodies(store, "ticket-42") == before


@pytest.mark.parametrize("words", [(), ("--to", "1", "--undo"), ("--to", "1", "--wait", "x")])
def test_a_call_that_makes_no_sense(here: Any, store: str, words: tuple[str, ...]) -> None:
    done = here("rewind", store, *words, "--yes")
    assert done.returncode == 2
    assert len(bodies(store, "ticket-42")) == 17


def test_nobody_at_the_terminal_means_no(lockstitch: Any, store: str) -> None:
    done = lockstitch("rewind", store, "--to", "1")
    assert done.returncode == 1
    assert b"Nothing was changed: --yes goes back without asking." in done.stderr
    assert len(bodies(store, "ticket-42")) == 17


@pytest.mark.parametrize(("answer", "records"), [(b"y\n", 18), (b"n\n", 17)])
def test_it_asks(store: str, answer: bytes, records: int) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "lockstitch", "rewind", store, "--to", "14"]
    with subprocess.Popen(command, stdin=slave, stderr=subprocess.PIPE) as asked:
        os.close(slave)
        os.write(master, answer)
        assert asked.stderr
        assert b"Go back? [y/N] " in asked.stderr.read()
    os.close(master)
    assert asked.returncode == (0 if records == 18 else 1)
    assert len(bodies(store, "ticket-42")) == records


@every
def test_a_writer_is_named_and_can_be_waited_for(here: Any, store: str) -> None:
    with held(store, "ticket-42") as holder:
        done = here("rewind", store, "--to", "14", "--yes")
        assert done.returncode == 2
        assert str(holder.pid).encode() in done.stderr
        assert b"--wait SECONDS waits for it" in done.stderr
        assert b"lockstitch fork" in done.stderr
        assert here("fork", store, "copy", "--session", "ticket-42").returncode == 0
        assert holder.stdin
        holder.stdin.close()
        assert here("rewind", store, "--session", "ticket-42", "--to", "14", "--yes",
                    "--wait", "60").returncode == 0  # fmt: skip
    assert b"back from" in here("rewind", store, "--session", "copy", "--to", "14", "--yes").stderr


def test_a_holder_that_was_killed_is_taken_over(here: Any, store: str) -> None:
    with held(store, "ticket-42") as holder:
        holder.kill()
        holder.wait()
        assert here("rewind", store, "--to", "14", "--yes").returncode == 0


# fork


@every
def test_fork(here: Any, store: str) -> None:
    before = bodies(store, "ticket-42")
    done = here("fork", store, "other", "--session", "ticket-42", "--at", "13")
    assert done.returncode == 0
    assert done.stderr == b"Made other of the first 13 records of ticket-42.\n"
    assert bodies(store, "ticket-42") == before
    assert bodies(store, "other")[:13] == before[:13]
    assert isinstance(_events(store, "other")[13], Forked)
    shown = here("show", store, "--session", "other").stdout
    assert b"The test is fixed." in shown
    assert b"Refactor it" not in shown
    assert b"[forked from ticket-42 at record 13]" in shown
    assert here("check", store).returncode == 0


def test_fork_json_and_by_label(here: Any, store: str) -> None:
    at = "before the refactoring"
    done = here("fork", store, "other", "--at", at, "--json")
    assert json.loads(done.stdout) == {
        "version": 1,
        "target": store,
        "source": "ticket-42",
        "session": "other",
        "at": 14,
    }
    whole = json.loads(here("fork", store, "all", "--session", "ticket-42", "--json").stdout)
    assert whole["at"] == 17


def test_a_name_that_is_taken(here: Any, store: str) -> None:
    write(store, "taken", *SMALL)
    done = here("fork", store, "taken", "--session", "ticket-42")
    assert done.returncode == 2
    assert len(bodies(store, "taken")) == 3


@pytest.mark.parametrize("name", ["../out", ".hidden", "a b", ""])
def test_a_name_that_cannot_be(here: Any, store: str, name: str) -> None:
    assert here("fork", store, name, "--session", "ticket-42").returncode == 2
    assert [one.session for one in open_sessions(store)] == ["ticket-42"]


def open_sessions(url: str) -> list[Any]:
    with open_backend(url) as backend:
        return list(backend.sessions())


@every
def test_the_good_beginning_of_a_damaged_session_can_be_kept(here: Any, store: str) -> None:
    damage(store, "ticket-42", 15)
    assert here("fork", store, "saved", "--session", "ticket-42", "--at", "14").returncode == 0
    assert here("check", store, "--session", "saved").returncode == 0
    assert b"The test is fixed." in here("show", store, "--session", "saved").stdout


# what they are not for


@pytest.mark.parametrize(
    "words",
    [("checkpoints",), ("rewind", "--to", "1", "--yes"), ("fork", "new")],
    ids=lambda words: words[0],
)
def test_other_programs_sessions_are_told_apart(
    here: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(json.dumps({"type": "user", "uuid": "1", "sessionId": "2"}) + "\n")
    done = here(words[0], path, *words[1:])
    assert done.returncode == 2
    assert b"is not a Lockstitch store" in done.stderr
    assert b"repair --branch" in done.stderr


@pytest.mark.parametrize(
    "words", [("checkpoints",), ("rewind", "--to", "1"), ("fork", "sqlite:///x")]
)
def test_without_a_target(here: Any, words: tuple[str, ...]) -> None:
    assert here(*words).returncode == 2


# as Python


def test_the_same_from_python(store: str) -> None:
    moved = stored.rewind(store, to="before the refactoring")
    assert (moved.was, moved.to, moved.seq) == (17, 14, 18)
    assert stored.rewind(store).to == 17
    assert stored.fork(store, None, "copy", at=13) == 13
    with pytest.raises(UsageError):
        stored.rewind(store, "ticket-42", to="nowhere")
    with held(store, "ticket-42"), pytest.raises(Held):
        stored.rewind(store, "ticket-42", to=1)


def test_a_conversation_goes_on_after_it(store: str) -> None:
    stored.rewind(store, to=13)
    write(store, "ticket-42", said("Thanks"), replied("You are welcome."))
    messages = stored.read(store).messages("anthropic")
    assert messages[-2:] == [
        {"role": "user", "content": [{"type": "text", "text": "Thanks"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "You are welcome."}]},
    ]
    assert not re.search("Refactor", json.dumps(messages))
    assert own_stores.place_of(store)
