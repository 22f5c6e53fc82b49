"""``lockstitch import``: sessions of other programs become sessions of a store of ours."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lockstitch.cli import render, terminal
from lockstitch.cli.heal import read_document
from lockstitch.cli.options import DIALECT, FORMAT, JSON, SESSION, Command, Operand, Option
from lockstitch.cli.render import STDIN
from lockstitch.cli.targets import find_sessions, is_own_store, naming_target
from lockstitch.cli.terminal import CLEAN, FAILED
from lockstitch.errors import LockstitchError, Unreadable, UsageError
from lockstitch.sources.source import Source
from lockstitch.stores.addresses import public
from lockstitch.transcript import several

if TYPE_CHECKING:
    from lockstitch.session.copying import Taken

_OPERANDS = 2
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 128


def run(  # noqa: PLR0913 - one keyword an option
    *,
    names: list[str],
    session: str | None,
    name: str | None,
    dialect: str | None,
    form: str | None,
    as_json: bool,
) -> int:
    """Import sessions, and return the exit status."""
    if len(names) != _OPERANDS:
        raise UsageError("give a session and a store: lockstitch import TARGET STORE")
    target, store = names
    done: list[tuple[Source, Taken | str]]
    if is_own_store(target, form):
        raise UsageError(
            f"{public(target)} is a store of Lockstitch's own: `lockstitch migrate` copies it"
        )
    with naming_target(target):
        found = find_sessions(target, form, session)
    if found is None:
        done = [(Source(target, "list", "list"), _import_list(target, store, name, dialect))]
        _report(store, done, as_json=as_json)
        return FAILED if isinstance(done[0][1], str) else CLEAN
    if not found:
        if session is None:
            raise Unreadable(f"{public(target)} holds no session that could be imported")
        raise Unreadable(
            f"{public(target)} holds no session {session}; --session chooses among those that are"
            " there, and --as NAME gives the new one its name"
        )
    if name is not None and len(found) > 1:
        raise UsageError("--as is for one session: name it with --session")
    done = []
    from lockstitch.cli.terminal import ProgressBar

    with ProgressBar("Importing", len(found), "sessions") as advance:
        for source in found:
            done.append((source, _import_session(source, store, name)))
            advance(1)
    _report(store, done, as_json=as_json)
    return FAILED if any(isinstance(one, str) for _, one in done) else CLEAN


def _import_list(target: str, store: str, name: str | None, dialect: str | None) -> Taken | str:
    """Import a plain list or a request's body; return why not, if not."""
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
    """Import one session; return why not, if not."""
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
    """Name a session after its id, or its file, with the characters that a name may have."""
    stem = os.path.basename(source.path).partition(".")[0]  # noqa: PTH119 - start-up time
    wanted = session or source.session or stem
    return _OTHER.sub("-", wanted).lstrip(".")[:_LONGEST] or "imported"


def _report(store: str, done: list[tuple[Source, Taken | str]], *, as_json: bool) -> None:
    if as_json:
        fields = [_fields(source, one) for source, one in done]
        terminal.emit(render.encode_json(to=public(store), sessions=fields))
    for source, one in done:
        label = render.session_name(render.target_name(source.path), source.format, source.session)
        if isinstance(one, str):
            terminal.complain(f"{label}: {one}")
        elif not as_json:
            terminal.note(f"{label}: {_describe_taken(one)}")


def _describe_taken(one: Taken) -> str:
    if not one.is_new:
        return f"had been imported before, as {one.session}"
    parts = [f"imported as {one.session}, {several(one.messages, 'message')}"]
    parts += [f"{several(one.unknown, 'call')} at the end left open"] if one.unknown else []
    return ", ".join(parts)


def _fields(source: Source, one: Taken | str) -> dict[str, Any]:
    fields = {"target": public(source.path), "format": source.format, "source": source.session}
    if isinstance(one, str):
        return {**fields, "error": one}
    taken = structs.asdict(one)
    new = taken.pop("is_new")
    return {**fields, **taken, "new": new}


COMMAND = Command(
    name="import",
    run=run,
    details=(
        "TARGET is a file, a database, a folder or the id of a session of any program that is "
        "known, or a list of messages (- for stdin, with --as). What a resume would send is taken "
        "in, healed, and projects to the same conversation in every dialect; calls at its end "
        "without a result are left open with an unknown outcome. STORE is the address of a store "
        "of Lockstitch's own, made if it is not there. The same session again is left alone; "
        "another one of that name is never touched. TARGET is only read. With --json: to, and "
        '"sessions", each with target, format, source, session, dialect, messages, records, new, '
        "healed and unknown, or with an error."
    ),
    examples=(
        "lockstitch import 4ee0c484 sqlite:///agent.db",
        "lockstitch import ~/.codex/sessions/2026 sqlite:///agent.db",
        "lockstitch import messages.json sqlite:///agent.db --as ticket-42",
        "lockstitch import checkpoints.db postgresql://localhost/agents --session thread-7",
    ),
    operand=Operand("names", "TARGET STORE", "What to read; a store's address.", many=True),
    options=(
        SESSION,
        Option("name", ("--as",), "Name of the new session (default: its id).", metavar="NAME"),
        DIALECT,
        FORMAT,
        JSON,
    ),
)
