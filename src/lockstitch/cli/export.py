"""``lockstitch export``: a stored session as the messages of a request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch import sessions
from lockstitch.cli import CLEAN, FINDINGS, terminal, text
from lockstitch.cli.arguments import FORMAT, OVERWRITE, SESSION, Command, Operand, Option
from lockstitch.cli.documents import KINDS, written
from lockstitch.cli.rows import several
from lockstitch.cli.targets import copy_to, is_own, one, told
from lockstitch.conversation.json_text import dump, is_json
from lockstitch.dialects.profiles import DIALECTS, profile_named
from lockstitch.errors import UsageError
from lockstitch.report import OWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.stored import Journal


def run(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    to: str | None,
    raw: bool,
    redact: str | None,
    output: str | None,
    force: bool,
    form: str | None,
    session: str | None,
) -> int:
    """Export one session, and return the exit status."""
    kind = to if to in KINDS else None
    if kind and raw:
        raise UsageError("--raw is for the messages of a request, not for a document")
    wanted = profile_named(to).full_name if to and not kind else None
    if is_own(target, form):
        out = Out(output, str(target), force, kind)
        return _export_journal(str(target), session, wanted, out, raw=raw, redact=redact)
    source = one(target, form, session)
    out = Out(output, source.path, force, kind)
    out.check()
    stored = sessions.opened(source, follow_symlinks=True)
    messages, dialect, left = sessions.exported(stored, wanted, raw=raw, on_heal=_healed)
    if redact:
        messages = _redacted(messages, dialect, redact)
    out.put(
        sessions.encoded(messages) if kind is None else _document(kind, stored, messages, redact)
    )
    for found in left:
        terminal.note(text.finding(str(target), dialect, found, sys.stderr))
    return FINDINGS if left else CLEAN


class Out(Struct, frozen=True):
    """Where an export goes: a file, or stdout; never the path that it is read from."""

    name: str | None
    path: str
    force: bool
    document: str | None = None

    def check(self) -> None:
        """Raise UsageError if it may not be written there."""
        if self.name is not None:
            copy_to(self.name, None, self.path, force=self.force)

    def put(self, data: bytes) -> None:
        """Write it."""
        if self.name is None and self.document is not None:
            # nothing in a document is anything but text
            terminal.emit(data)
        elif self.name is None:
            terminal.emit_json(data)
        else:
            copy_to(self.name, data, self.path, force=self.force)


def _export_journal(  # noqa: PLR0913 - as above
    target: str,
    session: str | None,
    wanted: str | None,
    out: Out,
    *,
    raw: bool,
    redact: str | None,
) -> int:
    """Export a session of a store of Lockstitch's own; what is damaged is left out and said."""
    from lockstitch import stored

    if raw and wanted:
        raise UsageError(
            "--raw gives the events as they are; --to is for the messages of a request"
        )
    out.check()
    with told(target):
        journal = stored.read(target, session)
        messages = [] if raw else journal.messages(wanted)
    if raw:
        data = b"".join(_events(journal, redact=redact))
    else:
        dialect = wanted or journal.dialect
        messages = _redacted(messages, dialect, redact) if redact else messages
        data = sessions.encoded(messages)
        if out.document is not None:
            facts = f"Lockstitch, {several(journal.turns, 'turn')}"
            data = written(out.document, journal.session, facts, messages, dialect)
    out.put(data)
    if journal.fault is None:
        return CLEAN
    name = text.labelled(target, OWN, journal.session)
    terminal.note(text.finding(name, journal.dialect, journal.fault, sys.stderr))
    return FINDINGS


def _document(kind: str, stored: sessions.Opened, messages: list[Any], redact: str | None) -> bytes:
    """Write a session as a document, under its title, or its id where secrets must not show."""
    report = sessions.described(stored)
    known = sessions.summarized(report)
    dialect = stored.transcript.history.dialect
    title = known.session if redact else known.title or known.session
    facts = [known.program, "" if redact else known.project, known.session]
    about = " · ".join(fact for fact in facts if fact)
    return written(kind, title or "Session", about, messages, dialect)


def _events(journal: Journal, *, redact: str | None) -> Iterator[bytes]:
    """Give a journal's records as lines of JSON, their events byte for byte."""
    lines: list[bytes] = []
    for record in journal.records:
        fact = journal.state.facts.get(record.seq)
        large = journal.blobs.get(fact.event.blob) if fact and fact.event.blob else None
        key = dump(record.key).encode()
        head = b'{"seq":%d,"epoch":%d,"at":%d,"key":%s,"event":'
        tail = b"}\n" if large is None else b',"payload":%s}\n' % large
        lines.append(head % (record.seq, record.epoch, record.at, key) + _body(record.body) + tail)
    yield from _redacted_lines(lines, redact) if redact else lines


def _body(raw: bytes) -> bytes:
    """Give an event as it is; as a text if somebody wrote one that is no JSON."""
    text = raw.decode("utf-8", "backslashreplace")
    return raw if is_json(text) else dump(text).encode()


def _redacted_lines(lines: list[bytes], redact: str) -> Iterator[bytes]:
    """Give lines without secrets: all at once, so that a secret has one placeholder in all."""
    from lockstitch.formats.lines import decode
    from lockstitch.redaction import redact_value

    clean, found = redact_value([*map(decode, lines)], personal=redact == "all")
    terminal.note(f"Redacted {several(len(found), 'place')}.")
    yield from (dump(line).encode("utf-8", "surrogatepass") + b"\n" for line in clean)


def _healed(changes: int) -> None:
    count = several(changes, "change")
    terminal.note(f"Healed in {count}; --raw prints the messages as they are stored.")


def _redacted(messages: list[Any], dialect: str, redact: str) -> list[Any]:
    clean, found = sessions.without_secrets(messages, dialect, personal=redact == "all")
    terminal.note(f"Redacted {several(len(found), 'place')}.")
    return clean


COMMAND = Command(
    name="export",
    group="sessions",
    run=run,
    summary="Print a stored session as the messages of a request, healed, or as a document.",
    details=(
        "The messages are those that a resume would send, in the dialect of the session's own "
        "provider or in another one (--to). --to markdown and --to html write a document to read: "
        "the page has no scripts and loads nothing, and all that was said is text in it. "
        "--raw leaves the messages as they are stored; of a session in "
        "a store of Lockstitch's own it prints the events, one a line.\n\n"
        "--redact replaces secrets by placeholders, the same one everywhere for the same secret; "
        "the list stays valid. It finds keys by their form (of some sixty services, JWTs, private "
        "keys, hashes of passwords), what a name or its place says to be secret (variables, "
        "fields, headers, cookies, options of commands, addresses with passwords, .netrc, .pgpass, "
        ".npmrc, kubeconfig, signed links) and long random tokens; in texts, in what tools were "
        "given and gave, in text files, in JSON within JSON, in base64, and behind escapes. "
        "It does not look into pictures, sound, PDF and other binary files, reasoning that only a "
        "provider can read, ids and names that bind a history together, or at a secret that is "
        "cut up over several messages; nor does it know a password that nothing calls one. "
        "Read what you share. --redact=all takes out mail addresses, telephone numbers and the "
        "names of users (of home folders and prompts), too; not other names, places or IP "
        "addresses."
    ),
    examples=(
        "lockstitch export session.jsonl > messages.json",
        "lockstitch export 4ee0c484 --to openai-chat",
        "lockstitch export 4ee0c484 --to html --redact -o session.html",
        "lockstitch export session.jsonl --redact -o shareable.json",
        "lockstitch export session.jsonl --redact=all -o shareable.json",
        "lockstitch export sqlite:///agent.db --session ticket-42 --to gemini",
        "lockstitch export sqlite:///agent.db --session ticket-42 --raw > events.jsonl",
    ),
    operand=Operand("target", "TARGET", "A file, the id of a session, or a store's address."),
    options=(
        Option(
            "to",
            ("--to",),
            f"Dialect: {', '.join(DIALECTS)}; or a document: {', '.join(KINDS)}.",
            metavar="DIALECT",
        ),
        Option("raw", ("--raw",), "As stored: not healed."),
        Option(
            "redact",
            ("--redact",),
            "Without secrets; =all: without mail addresses, telephone numbers and names of users, "
            "too.",
            metavar="all",
            choices=("secrets", "all"),
            implied="secrets",
        ),
        Option("output", ("--output", "-o"), "Write to this file (0600).", metavar="FILE"),
        OVERWRITE,
        FORMAT,
        SESSION,
    ),
)
