"""Long conversations, made through the session's own methods, and what tests look at in them."""

from __future__ import annotations

from typing import Any

from lockstitch.journal.state import JournalState
from lockstitch.session.store import Store
from tests.session.talk import DIALECTS, asks, faults, says

GOOD = "Notes: the user asked for many things, and every one of them was done as it was asked for."
BUDGET = 6000
SMALL = 1200
MIDDLE = 2500


def grown(store: Store, turns: int = 12, size: int = 2000, name: str = "s") -> None:
    """Write a conversation of several turns, each with a call, into a store."""
    with store.session(name) as session:
        for number in range(turns):
            grow(session, number, size)


def grow(session: Any, number: int, size: int = 2000) -> None:
    """Do one turn: words, a call with its result, and an answer."""
    session.say(f"<U{number}> Please look at part {number}. " + "why " * (size // 16))
    path = {"path": f"src/part_{number}.py"}
    session.record(
        asks("anthropic", (f"call_{number}", "read", path), text=f"<R{number}> Reading.")
    )
    session.run_tools({"read": lambda path: f"<O{number}> {path} " + "line " * (size // 5)})
    session.record(says("anthropic", f"<A{number}> Part {number} is fine. " + "so " * (size // 12)))


def shown(session: Any, dialect: str = "anthropic") -> str:
    """A request, as text, which every judge accepts."""
    messages = session.request(dialect)
    assert faults(dialect, messages) == []
    return str(messages)


def valid_everywhere(session: Any) -> None:
    """The next request is valid in every dialect."""
    for dialect in DIALECTS:
        assert faults(dialect, session.request(dialect)) == []


def requests(store: Store, name: str = "s") -> dict[str, Any]:
    """What everybody would be sent now."""
    reader = store.read(name)
    found = {dialect: reader.request(dialect) for dialect in DIALECTS}
    for dialect, messages in found.items():
        assert faults(dialect, messages) == []
    return found


def bodies(store: Store, name: str = "s") -> list[bytes]:
    """Every record as it is stored."""
    return [record.body for record in store._backend.read(name)]  # noqa: SLF001


def kinds(state: JournalState) -> list[str]:
    """What kinds of facts there are."""
    return [type(fact.event).__name__ for fact in state.facts.values()]


def compactions(store: Store, name: str = "s") -> int:
    """How often it was compacted."""
    return sum(b'"kind":"compacted"' in body for body in bodies(store, name))
