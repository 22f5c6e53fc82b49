"""Actions on sessions in stores of our own, as the commands for those do them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lockstitch import stored
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.inspector.foreign import budget_in, said_of
from lockstitch.inspector.plans import Plan, Preview, stamp_of
from lockstitch.journal.events import Rewound
from lockstitch.measures import several
from lockstitch.report import Report
from lockstitch.session.maintenance import is_aside
from lockstitch.stored import DAMAGED, Journal

_NO_NAME = "give the new session a name"


def actions(target: str, journal: Journal, report: Report) -> list[str]:
    """Name what can be done with a session."""
    if is_aside(journal.session):
        return ["export"]
    if any(one.code == DAMAGED for one in report.findings):
        return ["repair", "export"]
    named = ["undo"] if _was_repaired(target, journal.session) else []
    if journal.thread is not None:
        return [*named, "export"]
    last = journal.state.facts.get(journal.state.seq)
    named += ["unrewind"] if last is not None and isinstance(last.event, Rewound) else []
    named += ["uncompact"] if journal.view.summary is not None else []
    return [*named, "rewind", "fork", "compact", "export"]


def _was_repaired(target: str, session: str) -> bool:
    backend, _ = stored.opened(target)
    with backend:
        kept = (one.session for one in backend.sessions(after=session) if is_aside(one.session))
        return any(name.rpartition(".")[0] == session for name in kept)


def planned(target: str, session: str, action: str, options: Mapping[str, Any]) -> Plan:
    """Work an action out; changes nothing."""
    known = {
        "repair": _repair,
        "undo": _undo,
        "rewind": _rewind,
        "unrewind": _unrewind,
        "fork": _fork,
        "compact": _compact,
        "uncompact": _uncompact,
    }
    if action not in known:
        raise UsageError("this action is not known for a session of a store")
    return known[action](target, session, options)


def _repair(target: str, session: str, _options: Mapping[str, Any]) -> Plan:
    found = stored.salvage(target, session)
    findings = stored.findings_of(found)
    made = Preview("repair", "Write this session anew", "Repair", stamp_of(findings))
    made.says = [
        f"{stored.summary_of(found)}.",
        "The session will be written anew from all that can be read of it, with a note in the "
        "place of what cannot. The damaged one will be kept beside it, and Undo brings it back.",
    ]
    made.refusal = "" if findings else "nothing of it is damaged"

    def apply() -> list[str]:
        done = stored.repair(target, session)
        return [f"Repaired. The damaged session is kept as {done.aside}."]

    return Plan(made, apply)


def _undo(target: str, session: str, _options: Mapping[str, Any]) -> Plan:
    made = Preview("undo", "Take the last repair back", "Undo", stamp_of(_end(target, session)))
    made.says = [
        "The damaged session will have its name again; what it has become will be kept beside it."
    ]

    def apply() -> list[str]:
        done = stored.undo(target, session)
        return [f"The session is as it was before its repair; what it had become: {done.aside}."]

    return Plan(made, apply)


def _end(target: str, session: str) -> tuple[int, int]:
    """Tell where a session stands: any change of it moves that."""
    found = stored.found(target, session)
    return found.seq, found.changed


def _place(options: Mapping[str, Any]) -> int | str:
    place = options.get("to")
    if isinstance(place, bool) or not isinstance(place, int | str) or place == "":
        raise UsageError("name a record by its number, or a checkpoint by its label")
    return place


def _rewind(target: str, session: str, options: Mapping[str, Any]) -> Plan:
    place = _place(options)
    journal = stored.read(target, session)
    aim = stored.aim(journal, place)
    made = Preview("rewind", "Go back to an earlier place", "Go back")
    made.stamp = stamp_of(journal.state.seq, aim)
    made.says = [*_said_of_rewind(journal, aim)]

    def apply() -> list[str]:
        moved = stored.rewind(target, session, to=aim)
        return [f"The session goes on from record {moved.to}. Nothing was deleted."]

    return Plan(made, apply)


def _said_of_rewind(journal: Journal, aim: int) -> Iterator[str]:
    left = stored.left_behind(journal, aim)
    yield f"The session will go on from record {aim}; it ends at record {journal.state.seq} now."
    if left == stored.Left(0, 0, 0):
        yield "Nothing leaves the conversation; what an earlier rewind took out is back."
    else:
        replies = f"{left.replies} {'reply' if left.replies == 1 else 'replies'}"
        parts = [several(left.turns, "turn"), replies, several(left.calls, "call")]
        yield f"{', '.join(parts)} will leave the conversation."
    yield "It is one more record: nothing is deleted, and it can be taken back."


def _unrewind(target: str, session: str, _options: Mapping[str, Any]) -> Plan:
    journal = stored.read(target, session)
    aim = stored.aim(journal, None)
    made = Preview("unrewind", "Take the last rewind back", "Take back")
    made.stamp = stamp_of(journal.state.seq, aim)
    made.says = [*_said_of_rewind(journal, aim)]

    def apply() -> list[str]:
        moved = stored.rewind(target, session)
        return [f"The rewind is taken back: the session goes on from record {moved.to}."]

    return Plan(made, apply)


def _fork(target: str, session: str, options: Mapping[str, Any]) -> Plan:
    new, at = options.get("name"), options.get("to")
    made = Preview("fork", "Make a new session of this one", "Fork")
    if not isinstance(new, str) or not new.strip():
        made.refusal = _NO_NAME
        return Plan(made, list)
    journal = stored.read(target, session)
    upto = None if at is None else stored.aim(journal, _place(options))
    made.stamp = stamp_of(new, upto, journal.state.seq if upto is None else 0)
    what = "all its records" if upto is None else f"its records up to {upto}"
    made.says = [
        f"A new session {new} will be made in the same store, with {what}.",
        f"{session} is only read and stays as it is.",
    ]
    made.refusal = _taken(target, new)

    def apply() -> list[str]:
        count = stored.fork(target, session, new, at=upto)
        return [f"Made {new} of the first {count} records of {session}."]

    return Plan(made, apply)


def _taken(target: str, name: str) -> str:
    try:
        stored.found(target, name)
    except UsageError as error:
        return str(error)
    except LockstitchError:
        return ""
    return f"there is a session {name} already"


def _compact(target: str, session: str, options: Mapping[str, Any]) -> Plan:
    budget = budget_in(options)
    journal = stored.read(target, session)
    done = stored.outlook(journal, budget)
    made = Preview("compact", "Make this session shorter", "Compact")
    made.stamp = stamp_of(journal.state.seq, budget)
    before, after = done.before, done.after
    if done.event is None:
        made.refusal = f"it is within the budget, with {before.tokens} of {budget} tokens"
        return Plan(made, list)
    made.says = [
        f"About {before.tokens} tokens will become {after.tokens}: "
        f"{said_of(stored.shorter(target, journal, done))}.",
        "No model is asked. It is one more record: the original stays readable, and the "
        "compaction can be taken back.",
    ]

    def apply() -> list[str]:
        now = stored.compact(target, session, budget=budget).done
        return [f"Compacted: {now.before.tokens} tokens became about {now.after.tokens}."]

    return Plan(made, apply)


def _uncompact(target: str, session: str, _options: Mapping[str, Any]) -> Plan:
    made = Preview("uncompact", "Take the compaction back", "Take back")
    made.stamp = stamp_of(_end(target, session))
    made.says = ["All of the conversation will be sent again. It is one more record."]

    def apply() -> list[str]:
        stored.uncompact(target, session)
        return ["All of the conversation is sent again."]

    return Plan(made, apply)
