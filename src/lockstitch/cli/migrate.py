"""``lockstitch migrate`` and ``import``: copy sessions into a Lockstitch store.

The sessions come from another store, from LangGraph's savers, or from another program.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lockstitch.cli import render, terminal
from lockstitch.cli.options import DIALECT, FORMAT, JSON, SESSION, Command, Operand, option
from lockstitch.cli.render import STDIN
from lockstitch.cli.targets import find_sessions, is_own_store, naming_target, require_store
from lockstitch.cli.terminal import CLEAN, FAILED, ProgressBar
from lockstitch.errors import LockstitchError, UnknownFormat, Unreadable, UsageError
from lockstitch.rules.rule import several
from lockstitch.sources.lists import ListSource, read_document
from lockstitch.sources.own_stores import is_postgres
from lockstitch.sources.source import Source, pasted
from lockstitch.sources.targets import LANGGRAPH, THREADS, classify
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lockstitch.integrations.langgraph.migration import Migrated, Migration
    from lockstitch.session.copying import Copy, Taken
    from lockstitch.stored import Failed as CopyFailed


_TWO = 2
_SHOWN = 5
# The prefix of a migration's name, by which an undo recognizes one.
MIGRATION = "migrate-"


def run_migrate(  # noqa: PLR0913 - one keyword an option
    *,
    names: list[str],
    session: str | None,
    name: str | None,
    form: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Copy sessions, and return the exit status."""
    if len(names) != _TWO:
        raise UsageError("give two stores: lockstitch migrate FROM TO")
    source, target = names
    if _is_of_langgraph(source, target, form):
        if name is not None:
            raise UsageError("a LangGraph thread keeps its id: leave out --as")
        return _copy_threads(source, target, session, dry_run=dry_run, as_json=as_json)
    if dry_run:
        raise UsageError("--dry-run is for threads from LangGraph's savers")
    return _copy_sessions(require_store(source), target, session, name, as_json=as_json)


# Between Lockstitch stores.


def _copy_sessions(
    source: str, target: str, session: str | None, name: str | None, *, as_json: bool
) -> int:
    if name is not None and session is None:
        raise UsageError("--as is for one session: name that session with --session")
    from lockstitch import stored

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
        rows: list[dict[str, Any]] = []
        for one in done:
            more = (
                {"error": one.error}
                if isinstance(one, stored.Failed)
                else {"name": one.name, "records": one.records, "new": one.is_new}
            )
            rows.append({"session": one.session, **more})
        fields = {"from": public(source), "to": public(target)}
        terminal.emit(render.encode_json(**fields, sessions=rows))
    else:
        copies = [one for one in done if not isinstance(one, stored.Failed)]
        new = [one for one in copies if one.is_new]
        records = several(sum(one.records for one in new), "record")
        terminal.note(f"Copied {several(len(new), 'session')} ({records}), verified.")
        if len(copies) > len(new):
            terminal.note(f"{several(len(copies) - len(new), 'session')} had been copied before.")
    return FAILED if failures else CLEAN


# From LangGraph's savers.


def _is_of_langgraph(source: str, target: str, form: str | None) -> bool:
    """Whether to copy threads of LangGraph's savers, if a database may hold both."""
    if form not in (None, LANGGRAPH):
        return False
    if is_postgres(source):
        is_same = public(source).partition("?")[0] == public(target).partition("?")[0]
        return classify(source, LANGGRAPH if is_same else form) == THREADS
    from lockstitch.integrations.langgraph.origins import file_of

    if file_of(source) is not None:
        return True
    if form is not None:
        raise UnknownFormat(f"{public(source)} holds no LangGraph checkpoints")
    return False


@contextmanager
def _library() -> Iterator[Any]:
    """Yield the module that migrates; raise `UsageError` if a package is missing."""
    try:
        from lockstitch.integrations.langgraph import migration
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"langgraph", "langchain_core", "ormsgpack"}:
            raise
        raise UsageError("this needs LangGraph: pip install 'lockstitch[langgraph]'") from error
    yield migration


def _copy_threads(
    source: str, target: str, session: str | None, *, dry_run: bool, as_json: bool
) -> int:
    with _library() as library, naming_target(source):
        total = library.count(source, session)
        with ProgressBar("Copying", total, "checkpoints") as advance:
            done = library.migrate(source, target, thread=session, dry_run=dry_run, advance=advance)
    _complain_of(source, done.threads)
    if as_json:
        fields = {"from": public(source), "to": public(target), "run": done.run}
        rows = [_thread_fields(one) for one in done.threads]
        terminal.emit(render.encode_json(**fields, dry_run=dry_run, sessions=rows))
    _print_outcome(done, target, dry_run=dry_run)
    return FAILED if any(one.error is not None for one in done.threads) else CLEAN


def _complain_of(target: str, threads: Iterable[Any]) -> None:
    for one in threads:
        if one.error is not None:
            name = render.target_name(public(target))
            terminal.complain(f"{name}:{render.target_name(one.thread)}: {one.error}")


def _thread_fields(one: Migrated) -> dict[str, Any]:
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
        ("gone on", "had been copied before, and continued in the copy since"),
    ):
        if states.get(state):
            terminal.note(f"{several(len(states[state]), 'thread')}: {words}.")
    for one in states.get("left", ()):
        name = render.target_name(one.thread)
        terminal.note(f"{name}: was created meanwhile; repeat the command to copy it.")
    moved = [
        render.target_name(one.thread) for one in done.threads if one.moved and one.state != "left"
    ]
    if moved:
        more = f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
        terminal.note(
            f"{several(len(moved), 'thread')} continued in the source meanwhile; repeat the "
            f"command to copy the rest: {', '.join(moved[:_SHOWN])}{more}."
        )
    # what the saver needs in order to read the carried values
    allow = sorted({name for one in done.threads for name in one.allow})
    forms = sorted({form for one in done.threads for form in one.forms})
    if allow:
        terminal.note(
            "They hold values of classes that the saver must be allowed to build, unless the "
            f"graph's own schemas name them: allow=[{', '.join(map(repr, allow))}]."
        )
    if forms:
        shown = ", ".join(forms)
        terminal.note(f"Some values are stored as {shown}: give the saver a serde that reads it.")
    if copied and not dry_run:
        where = pasted(public(target))
        terminal.note(f"To undo it: lockstitch undo {where} --run {done.run}")


def undo(target: str, session: str | None, run_id: str, *, as_json: bool) -> int:
    """Delete what a migration brought into a store; return the exit status."""
    with _library() as library, naming_target(target):
        done = list(library.undo(target, run_id, session))
    if not done:
        raise UsageError(f"{public(target)} holds nothing from run {run_id}")
    _complain_of(target, done)
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
    terminal.note(f"Removed {several(count, 'thread')} again.")
    return FAILED if count < len(done) else CLEAN


MIGRATE = Command(
    name="migrate",
    run=run_migrate,
    details=(
        "Copies between Lockstitch stores of any two types; TO is created if it does not exist. "
        "Records keep their keys and times; large values, titles, tags and metadata are copied "
        "with them; and the checksums are verified on both sides. Each session is copied whole "
        "or not at all, and one that was copied before is left alone, so the command can always "
        "be repeated. FROM is not changed, and may be in use. With --json: from, to, and "
        '"sessions", each with session, name, records and new, or with an error. FROM may also '
        "be a database of LangGraph's SqliteSaver or PostgresSaver: Saver(TO) then serves its "
        "threads. Each thread is read as of one moment, compared with what LangGraph's own "
        "saver returns, and stored in one step; nothing that is stored is imported or run. Run "
        "again, the command copies what is new in FROM and names the threads that were "
        "continued meanwhile. `lockstitch undo TO --run NAME`, which it prints, removes what it "
        "copied. With --json each thread has state (copied, there, gone on, left), checkpoints, "
        "writes, moved, and allow: the classes that the saver must be allowed to build."
    ),
    examples=(
        "lockstitch migrate sqlite:///agent.db postgresql://localhost/agents",
        "lockstitch migrate jsonl:///sessions sqlite:///agent.db --session ticket-42",
        "lockstitch migrate agent.db sqlite:///other.db --session ticket-42 --as ticket-42-copy",
        "lockstitch migrate checkpoints.db sqlite:///agent.db --dry-run",
        "lockstitch migrate postgresql://localhost/graphs postgresql://localhost/agents",
    ),
    operand=Operand(
        "names", "FROM TO", "The address or file of a store; that of another store.", many=True
    ),
    options=(
        SESSION,
        option("--as NAME", "Name of the copy, if one session is copied.", name="name"),
        FORMAT,
        option("--dry-run", "For LangGraph's threads: read and compare, but write nothing."),
        JSON,
    ),
)


_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 128


def run_import(  # noqa: PLR0913 - one keyword an option
    *,
    names: list[str],
    session: str | None,
    name: str | None,
    dialect: str | None,
    form: str | None,
    as_json: bool,
) -> int:
    """Import sessions, and return the exit status."""
    if len(names) != _TWO:
        raise UsageError("name a session and a store: lockstitch import TARGET STORE")
    target, store = names
    done: list[tuple[Source, Taken | str]] = []
    if is_own_store(target, form):
        raise UsageError(f"{public(target)} is a Lockstitch store: `lockstitch migrate` copies it")
    with naming_target(target):
        found = find_sessions(target, form, session)
    if not found:
        if session is None:
            raise Unreadable(f"{public(target)} holds no session that can be imported")
        raise Unreadable(
            f"{public(target)} holds no session {session}; --session picks one that is there, "
            "and --as NAME names the new one"
        )
    if isinstance(found[0], ListSource):
        done = [(found[0], _import_list(target, store, name, dialect))]
    elif name is not None and len(found) > 1:
        raise UsageError("--as is for one session: name that session with --session")
    else:
        with ProgressBar("Importing", len(found), "sessions") as advance:
            for source in found:
                done.append((source, _import_session(source, store, name)))
                advance(1)
    _report_taken(store, done, as_json=as_json)
    return FAILED if any(isinstance(one, str) for _, one in done) else CLEAN


def _import_list(target: str, store: str, name: str | None, dialect: str | None) -> Taken | str:
    """Import a plain list or a request's body; return the reason if that fails."""
    from lockstitch import stored as stores

    if target == STDIN and name is None:
        return "a list from stdin needs a name: --as NAME"
    try:
        value = read_document(target).value
        own = name or name_of(Source(target, "list", "list"), None)
        return stores.take_in(store, own, value, dialect)
    except LockstitchError as error:
        return str(error)


def _import_session(source: Source, store: str, name: str | None) -> Taken | str:
    """Import one session; return the reason if that fails."""
    from lockstitch import stored as stores
    from lockstitch.session.copying import system_in
    from lockstitch.sources import operations

    try:
        if source.error is not None:
            return source.error
        opened = source.open(follow_symlinks=True)
        messages, dialect, left = operations.export(opened, None)
        if left:
            codes = ", ".join(sorted({found.code for found in left}))
            return f"it cannot be made valid ({codes}); see: lockstitch check"
        own = name or name_of(source, opened.transcript.session)
        system = system_in(opened.transcript.history.body or {})
        return stores.take_in(store, own, messages, dialect, system=system)
    except LockstitchError as error:
        return str(error)


def name_of(source: Source, session: str | None) -> str:
    """Return a name for a session, made from its id or its file, with only valid characters."""
    stem = os.path.basename(source.path).partition(".")[0]  # noqa: PTH119 - start-up time
    wanted = session or source.session or stem
    return _OTHER.sub("-", wanted).lstrip(".")[:_LONGEST] or "imported"


def _report_taken(store: str, done: list[tuple[Source, Taken | str]], *, as_json: bool) -> None:
    if as_json:
        rows: list[dict[str, Any]] = []
        for source, one in done:
            taken = {"error": one} if isinstance(one, str) else structs.asdict(one)
            taken |= {"new": taken.pop("is_new")} if "is_new" in taken else {}
            where = {"target": public(source.path), "format": source.format}
            rows.append({**where, "source": source.session, **taken})
        terminal.emit(render.encode_json(to=public(store), sessions=rows))
    for source, one in done:
        label = render.session_name(render.target_name(source.path), source.format, source.session)
        if isinstance(one, str):
            terminal.complain(f"{label}: {one}")
        elif not as_json:
            new = f"imported as {one.session}, {several(one.messages, 'message')}"
            left = f", {several(one.unknown, 'call')} at the end left open" if one.unknown else ""
            before = f"had been imported before, as {one.session}"
            terminal.note(f"{label}: {new + left if one.is_new else before}")


IMPORT = Command(
    name="import",
    run=run_import,
    details=(
        "TARGET is a file, a database, a folder or the id of a session of any supported "
        "program, or a list of messages (- for stdin, with --as). What a resume would send is "
        "imported, healed, and gives the same conversation in every dialect; calls at its end "
        "without a result stay open with an unknown outcome. STORE is the address of a "
        "Lockstitch store, created if it does not exist. A session that was imported before is "
        "left alone, and a different one of the same name is never touched. TARGET is only "
        'read. With --json: to, and "sessions", each with target, format, source, session, '
        "dialect, messages, records, new, healed and unknown, or with an error."
    ),
    examples=(
        "lockstitch import 4ee0c484 sqlite:///agent.db",
        "lockstitch import ~/.codex/sessions/2026 sqlite:///agent.db",
        "lockstitch import messages.json sqlite:///agent.db --as ticket-42",
        "lockstitch import checkpoints.db postgresql://localhost/agents --session thread-7",
    ),
    operand=Operand("names", "TARGET STORE", "What to read; the address of a store.", many=True),
    options=(
        SESSION,
        option("--as NAME", "Name of the new session (default: its id).", name="name"),
        DIALECT,
        FORMAT,
        JSON,
    ),
)
