"""An agent killed or interrupted at random, again and again, on one session.

``python -m tests.session.soak 100 INT`` strikes a hundred times with SIGINT; ``KILL`` is the other
way. Prints what was seen; stops at the first thing that must not be.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from lockstitch.journal.events import Finished
from lockstitch.session.session import Session
from lockstitch.session.store import Store
from lockstitch.session.tool_run import Tool, current_call
from lockstitch.stores.sqlite import SqliteBackend

from .events import WHOLE
from .talk import DIALECTS, asks, faults, says


def agent(folder: Path) -> None:
    """Talk for ever; every acknowledged step is said, every effect leaves a trace."""
    with Store(SqliteBackend(folder / "soak.db")) as store, store.session("s") as session:
        tell("open")
        session.run_tools(tools(folder))
        while True:
            turn(session, folder)


def turn(session: Session, folder: Path) -> None:
    session.say(f"turn {session.seq}")
    tell(f"at {session.seq}")
    if random.random() < 0.3:  # noqa: S311
        with session.stream(WHOLE[random.choice(list(WHOLE))]()) as stream:  # noqa: S311
            stream.finish()
    else:
        names = random.choices(["once", "again"], k=random.randint(1, 4))  # noqa: S311
        calls = [(f"c{n}", name, {"n": n}) for n, name in enumerate(names)]
        session.record(asks(random.choice(["anthropic", "openai-chat"]), *calls))  # noqa: S311
    tell(f"at {session.seq}")
    session.run_tools(tools(folder), max_parallel=random.choice([None, 1, 2]))  # noqa: S311
    tell(f"at {session.seq}")
    session.record(says("anthropic"))
    tell(f"at {session.seq}")


def tools(folder: Path) -> dict[str, Any]:
    def effect(n: int) -> str:
        call = current_call()
        trace(folder, "began", call.effect, call.attempt)
        time.sleep(random.random() / 50)  # noqa: S311
        trace(folder, "ended", call.effect, call.attempt)
        return f"{call.effect} {n}"

    return {"once": effect, "quick": effect, "again": Tool(effect, repeatable=True)}


def trace(folder: Path, *words: object) -> None:
    line = " ".join(map(str, words)).encode() + b"\n"
    handle = os.open(folder / "trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line)
    os.close(handle)


def tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def strike(folder: Path, number: signal.Signals) -> int:
    """Let an agent run for a moment, then strike; gives the last record it was told of."""
    command = [sys.executable, "-m", "tests.session.soak", "agent", str(folder)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout
    assert child.stdout.readline() == "open\n"
    time.sleep(random.random() * 0.4)  # noqa: S311
    child.send_signal(number)
    shown = child.stdout.read()
    child.stdout.close()
    child.wait(60)
    told = [int(line.split()[1]) for line in shown.splitlines() if line.startswith("at ")]
    return max(told, default=0)


def check(folder: Path, told: int, number: signal.Signals, seen: Counter[str]) -> None:
    """What must hold after every strike."""
    with Store(SqliteBackend(folder / "soak.db")) as store:
        before = store.read("s")
        assert before.seq >= told, "an acknowledged record is gone"
        with store.session("s") as session:
            if number == signal.SIGINT:
                assert not session.recovered, "an interrupt left something for recovery"
            for dialect in DIALECTS:
                assert faults(dialect, session.request(dialect)) == []
            check_calls(session, seen)
            seen["records"] = session.seq
    ran = Counter(line for line in (folder / "trace").read_text().splitlines())
    assert max(ran.values(), default=1) == 1, "a tool was run twice in one attempt"


def check_calls(session: Session, seen: Counter[str]) -> None:
    outcomes = Counter(call.outcome or call.status for call in session.calls)
    assert not {"started", "waiting"} & set(outcomes)
    seen.update(outcomes)
    for call in session.calls:
        assert call.attempts <= 1 or call.name == "again", "a tool was repeated unasked"
    words = json.dumps(session.request("openai-chat"))
    for fact in session.state.facts.values():
        if isinstance(fact.event, Finished) and not fact.event.synthetic:
            assert json.loads(bytes(fact.event.payload)) in words, "a result is not in the request"


def main(count: int, name: str) -> Counter[str]:
    """Strike some times; gives what was seen."""
    number = getattr(signal, f"SIG{name}")
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "trace").touch()
        for _ in range(count):
            told = strike(folder, number)
            seen = Counter()
            check(folder, told, number, seen)
    return Counter(strikes=count) + seen


if __name__ == "__main__":
    if sys.argv[1] == "agent":
        agent(Path(sys.argv[2]))
    else:
        tell(str(dict(main(int(sys.argv[1]), sys.argv[2]))))
