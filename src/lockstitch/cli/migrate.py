"""``lockstitch migrate``: sessions of one store, or threads of LangGraph's, copied into another."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lockstitch.cli import render, terminal
from lockstitch.cli.options import FORMAT, JSON, SESSION, Command, Operand, Option
from lockstitch.cli.targets import naming_target, require_store
from lockstitch.cli.terminal import CLEAN, FAILED
from lockstitch.errors import UnknownFormat, UsageError
from lockstitch.sources.source import is_postgres, pasted
from lockstitch.sources.targets import LANGGRAPH, THREADS, classify
from lockstitch.stores.addresses import public
from lockstitch.transcript import several

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.integrations.langgraph.migration import Migrated, Migration
    from lockstitch.session.copying import Copy
    from lockstitch.stored import Failed as CopyFailed

_OPERANDS = 2
_SHOWN = 5
# How the name of a migration begins, by which an undo knows that it is asked for one.
RUN = "migrate-"


def run(  # noqa: PLR0913 - one keyword an option
    *,
    names: list[str],
    session: str | None,
    name: str | None,
    form: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Copy sessions, and return the exit status."""
    if len(names) != _OPERANDS:
        raise UsageError("give two stores: lockstitch migrate FROM TO")
    source, target = names
    if _is_of_langgraph(source, target, form):
        if name is not None:
            raise UsageError("a thread of LangGraph keeps its id: leave --as out")
        return _threads(source, target, session, dry_run=dry_run, as_json=as_json)
    if dry_run:
        raise UsageError("--dry-run is for threads of LangGraph's savers")
    return _sessions(require_store(source), target, session, name, as_json=as_json)


# Between stores of Lockstitch's own


def _sessions(
    source: str, target: str, session: str | None, name: str | None, *, as_json: bool
) -> int:
    if name is not None and session is None:
        raise UsageError("--as is for one session: name it with --session")
    from lockstitch import stored
    from lockstitch.cli.terminal import ProgressBar

    with naming_target(source):
        total = stored.records_in(source, session)
        with ProgressBar("Copying", total, "records") as advance:
            done: list[Copy | CopyFailed] = []
            for one in stored.migrate(source, target, session, name=name, advance=advance):
                done.append(one)
                terminal.remember_done(f"{several(len(done), 'session')} had been copied before.")
    failures = [one for one in done if isinstance(one, stored.Failed)]
    for one in failures:
        terminal.complain(f"{render.target_name(source)}:{one.session}: {one.error}")
    if as_json:
        fields = {"from": public(source), "to": public(target)}
        terminal.emit(render.encode_json(**fields, sessions=[_fields(one) for one in done]))
    else:
        copies = [one for one in done if not isinstance(one, stored.Failed)]
        new = [one for one in copies if one.is_new]
        records = several(sum(one.records for one in new), "record")
        terminal.note(f"Copied {several(len(new), 'session')} ({records}), verified.")
        if len(copies) > len(new):
            terminal.note(f"{several(len(copies) - len(new), 'session')} had been copied before.")
    return FAILED if failures else CLEAN


def _fields(one: Copy | CopyFailed) -> dict[str, Any]:
    from lockstitch.stored import Failed as CopyFailed

    if isinstance(one, CopyFailed):
        return {"session": one.session, "error": one.error}
    return {"session": one.session, "name": one.name, "records": one.records, "new": one.is_new}


# From LangGraph's savers


def _is_of_langgraph(source: str, target: str, form: str | None) -> bool:
    """Whether to copy threads of LangGraph's savers, of a database that may hold both."""
    if form not in (None, LANGGRAPH):
        return False
    if is_postgres(source):
        is_same = public(source).partition("?")[0] == public(target).partition("?")[0]
        return classify(source, LANGGRAPH if is_same else form) == THREADS
    from lockstitch.integrations.langgraph.origins import file_of

    if file_of(source) is not None:
        return True
    if form is not None:
        raise UnknownFormat(f"{public(source)} holds no checkpoints of LangGraph")
    return False


@contextmanager
def _library() -> Iterator[Any]:
    """Yield the module that migrates; raise `UsageError` with what is missing for it."""
    try:
        from lockstitch.integrations.langgraph import migration
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"langgraph", "langchain_core", "ormsgpack"}:
            raise
        raise UsageError("this needs LangGraph: pip install 'lockstitch[langgraph]'") from error
    yield migration


def _threads(source: str, target: str, session: str | None, *, dry_run: bool, as_json: bool) -> int:
    from lockstitch.cli.terminal import ProgressBar

    with _library() as library, naming_target(source):
        total = library.count(source, session)
        with ProgressBar("Copying", total, "checkpoints") as advance:
            done = library.migrate(source, target, thread=session, dry_run=dry_run, advance=advance)
    for one in done.threads:
        if one.error is not None:
            name = render.target_name(public(source))
            terminal.complain(f"{name}:{render.target_name(one.thread)}: {one.error}")
    if as_json:
        fields = {"from": public(source), "to": public(target), "run": done.run}
        rows = [_thread(one) for one in done.threads]
        terminal.emit(render.encode_json(**fields, dry_run=dry_run, sessions=rows))
    _print_outcome(done, target, dry_run=dry_run)
    return FAILED if any(one.error is not None for one in done.threads) else CLEAN


def _thread(one: Migrated) -> dict[str, Any]:
    if one.error is not None:
        return {"session": one.thread, "error": one.error}
    return {
        "session": one.thread,
        "name": one.session,
        "state": one.state,
        "checkpoints": one.checkpoints,
        "writes": one.writes,
        "records": one.records,
        "new": one.records > 0,
        "moved": one.moved,
        "allow": [".".join(name) for name in one.allow],
        "forms": list(one.forms),
    }


def _print_outcome(done: Migration, target: str, *, dry_run: bool) -> None:
    states: dict[str, list[Migrated]] = {}
    for one in done.threads:
        states.setdefault(one.state, []).append(one)
    copied = states.get("copied", [])
    if copied or not done.threads:
        count = several(len(copied), "thread")
        sizes = several(sum(one.checkpoints for one in copied), "checkpoint")
        verb = "Would copy" if dry_run else "Copied"
        terminal.note(f"{verb} {count} ({sizes}), verified.")
    for state, words in (
        ("there", "had been copied before"),
        ("gone on", "had been copied before, and has gone on in the copy since"),
        ("left", "came meanwhile; repeat the command for it"),
    ):
        for one in states.get(state, ()) if state == "left" else ():
            terminal.note(f"{render.target_name(one.thread)}: {words}.")
        if state != "left" and states.get(state):
            terminal.note(f"{several(len(states[state]), 'thread')}: {words}.")
    moved = [
        render.target_name(one.thread) for one in done.threads if one.moved and one.state != "left"
    ]
    if moved:
        more = f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
        terminal.note(
            f"{several(len(moved), 'thread')} went on in the source meanwhile; repeat the command"
            f" to take along what is new: {', '.join(moved[:_SHOWN])}{more}."
        )
    _print_needs(done)
    if copied and not dry_run:
        where = pasted(public(target))
        terminal.note(f"To undo it: lockstitch undo {where} --run {done.run}")


def _print_needs(done: Migration) -> None:
    """Print what the saver needs to read what was carried."""
    allow = sorted({name for one in done.threads for name in one.allow})
    forms = sorted({form for one in done.threads for form in one.forms})
    if allow:
        shown = ", ".join(repr(name) for name in allow)
        terminal.note(
            "They hold values of classes that the saver has to be allowed to build, unless the"
            f" graph's own schemas name them: allow=[{shown}]."
        )
    if forms:
        shown = ", ".join(forms)
        terminal.note(f"Some values are stored as {shown}: give the saver a serde that reads it.")


def undo(target: str, session: str | None, run_id: str, *, as_json: bool) -> int:
    """Take away what a migration brought into a store, and return the exit status."""
    with _library() as library, naming_target(target):
        done = list(library.undo(target, run_id, session))
    if not done:
        raise UsageError(f"{public(target)} holds nothing of {run_id}")
    for one in done:
        if one.error is not None:
            name = render.target_name(public(target))
            terminal.complain(f"{name}:{render.target_name(one.thread)}: {one.error}")
    if as_json:
        rows = [
            {
                "target": public(target),
                "session": one.thread,
                "restored": None if one.error else one.thread,
                "error": one.error,
            }
            for one in done
        ]
        terminal.emit(render.encode_json(sessions=rows))
    count = sum(one.error is None for one in done)
    terminal.note(f"Took {several(count, 'thread')} away again.")
    return FAILED if count < len(done) else CLEAN


COMMAND = Command(
    name="migrate",
    run=run,
    details=(
        "For stores of Lockstitch's own, of any two kinds; TO is made if it is not there. Records "
        "keep their keys and times, large values, titles, tags and metadata go with them, and the "
        "checksums are verified on both sides. Each session is there as a whole or not at all, and "
        "one that was copied before is left alone, so the command can be repeated after "
        "anything. FROM stays as it is, and may be in use. With --json: from, to, and "
        '"sessions", each with session, name, records and new, or with an error. '
        "FROM may also be a database of LangGraph's SqliteSaver or PostgresSaver: "
        "Saver(TO) then serves its threads. Each is read as it stood at one moment, compared with "
        "what LangGraph's own saver gives, and stored in one step; nothing that is stored is "
        "imported or run. Repeated, the command takes along what is new in FROM and names the "
        "threads that went on meanwhile. What it copied is taken away by `lockstitch undo TO --run "
        "NAME`, which it prints. With --json each thread has state (copied, there, gone on, left), "
        "checkpoints, writes, moved, and allow: classes that the saver has to be allowed to build."
    ),
    examples=(
        "lockstitch migrate sqlite:///agent.db postgresql://localhost/agents",
        "lockstitch migrate jsonl:///sessions sqlite:///agent.db --session ticket-42",
        "lockstitch migrate agent.db sqlite:///other.db --session ticket-42 --as ticket-42-copy",
        "lockstitch migrate checkpoints.db sqlite:///agent.db --dry-run",
        "lockstitch migrate postgresql://localhost/graphs postgresql://localhost/agents",
    ),
    operand=Operand("names", "FROM TO", "A store's address or file; another store's.", many=True),
    options=(
        SESSION,
        Option("name", ("--as",), "Name of the copy, where one session is copied.", metavar="NAME"),
        FORMAT,
        Option("dry_run", ("--dry-run",), "Of LangGraph's threads: read, compare, write nothing."),
        JSON,
    ),
)
