"""``lockstitch export``: a stored session as the messages of a request.

A conversation as a document to read or to share: Markdown, or one HTML page.

The page is strict: everything that was said is text in it, it has no scripts, no links and loads
nothing, and its own policy forbids all of that, too.
"""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch import sessions
from lockstitch.cli import render, terminal
from lockstitch.cli.options import FORMAT, OVERWRITE, SESSION, Command, Operand, Option
from lockstitch.cli.targets import find_one, is_own_store, naming_target, write_copy
from lockstitch.cli.terminal import CLEAN, FINDINGS, escape_controls
from lockstitch.conversation.json_text import dump, is_json
from lockstitch.conversation.pairing import ANSWER, NOWHERE, PairedCalls, pair_messages
from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    MEDIA,
    REASONING,
    RESULT,
    SERVER_CALL,
    SERVER_RESULT,
    TEXT,
    USER,
)
from lockstitch.dialects.base import as_json
from lockstitch.dialects.profiles import DIALECTS, profile_named
from lockstitch.dialects.registry import new_dialect
from lockstitch.errors import UsageError
from lockstitch.sources.source import OWN
from lockstitch.transcript import several
from lockstitch.transcript.messages import (
    describe_call,
    describe_media,
    describe_other,
    describe_reasoning,
    margin_notes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lockstitch.conversation.parts import Message, Part
    from lockstitch.dialects.base import Dialect
    from lockstitch.stored import Journal


DOCUMENTS = ("markdown", "html")
SAID, THOUGHT, CALLED, RETURNED = "said", "thought", "called", "returned"
_NAMES = {USER: "User", ASSISTANT: "Assistant"}
_NO_RESULT = "(no result)"
_TICKS = re.compile(r"`+")
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}"
    "pre.said{font:inherit}section{border-left:3px solid #8888;padding-left:1rem;margin:1rem 0}"
    "section.user{border-color:#36c}h2{font-size:1rem;margin:0}"
    "details{margin:.5rem 0}summary{cursor:pointer}.dim{opacity:.7}"
)


class DocumentBlock(Struct, frozen=True):
    """One thing in a conversation: what was said, thought or called, and what came back."""

    kind: str
    who: str
    text: str
    result: str | None = None


def blocks(messages: Sequence[Any], dialect: str) -> Iterator[DocumentBlock]:
    """Give a conversation block by block, every call with its result."""
    profile = profile_named(dialect)
    form = new_dialect(profile.dialect)
    view = form.read(messages)
    keys, is_placeholder, same = form.keys, form.is_placeholder, form.same_result
    threads = pair_messages(view, profile.layout, keys, is_placeholder, same)
    call = result = 0
    for message in view:
        for note in margin_notes(message):
            yield DocumentBlock(THOUGHT, message.role, note.text)
        for part in message.parts:
            if part.kind == CALL:
                yield _call_block(form, part, threads, call)
                call += 1
            elif part.kind == RESULT:
                if threads.pairing.verdicts[result] != ANSWER:
                    yield DocumentBlock(RETURNED, "a result without a call", form.result_text(part))
                result += 1
            else:
                yield from _part_blocks(form, message, part)


def _call_block(form: Dialect, part: Part, threads: PairedCalls, number: int) -> DocumentBlock:
    name, arguments = describe_call(form, part)
    said = arguments if isinstance(arguments, str) else as_json(arguments)
    answer = threads.pairing.answers[number]
    if answer == NOWHERE:
        return DocumentBlock(CALLED, name, said, _NO_RESULT)
    found = threads.results[answer]
    pictures = [describe_media(piece) for piece in form.result_media(found)]
    return DocumentBlock(CALLED, name, said, "\n".join([form.result_text(found), *pictures]))


def _part_blocks(form: Dialect, message: Message, part: Part) -> Iterator[DocumentBlock]:
    if part.kind == TEXT:
        if part.text.strip():
            yield DocumentBlock(SAID, message.role, part.text)
    elif part.kind == REASONING:
        yield DocumentBlock(THOUGHT, message.role, describe_reasoning(part.raw).text)
    elif part.kind == MEDIA:
        yield DocumentBlock(SAID, message.role, describe_media(part))
    elif part.kind == SERVER_CALL:
        name, arguments = describe_call(form, part)
        yield DocumentBlock(CALLED, f"{name}, by the provider", as_json(arguments), "")
    elif part.kind == SERVER_RESULT:
        yield DocumentBlock(RETURNED, "a result by the provider", as_json(part.raw))
    elif part.flavor not in ("twin", "raw-twin"):
        yield DocumentBlock(SAID, message.role, describe_other(part))


def _escape_text(text: str) -> str:
    """Return a text with everything but line breaks and tabs written out that hides or moves."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return "\n".join(map(escape_controls, lines))


def write_document(
    kind: str, title: str, facts: str, messages: Sequence[Any], dialect: str
) -> bytes:
    """Return a conversation as a document of a kind."""
    write = _markdown if kind == "markdown" else _html
    text = "".join(write(title, facts, blocks(messages, dialect)))
    return text.encode("utf-8", "backslashreplace")


# Markdown


def _markdown(title: str, facts: str, found: Iterator[DocumentBlock]) -> Iterator[str]:
    yield f"# {_one_line(title)}\n\n{_one_line(facts)}\n"
    last = ""
    for block in found:
        if block.kind == SAID:
            if block.who != last:
                yield f"\n## {_NAMES.get(block.who, block.who.capitalize())}\n"
            last = block.who
            lead = "> " if block.who == USER else ""
            yield "".join(
                f"\n{lead}{line}".rstrip() for line in _escape_text(block.text).split("\n")
            )
            yield "\n"
            continue
        if block.kind == THOUGHT:
            yield f"\n*Thought:*\n\n{_fenced(block.text)}\n"
        else:
            yield f"\n**{_one_line(block.who)}**\n\n{_fenced(block.text)}\n"
        if block.result:
            yield f"\n{_fenced(block.result)}\n"


def _fenced(text: str) -> str:
    """Return a text as a block of code, behind a fence that nothing in it can close."""
    safe = _escape_text(text)
    fence = "`" * max(3, *(len(run) + 1 for run in _TICKS.findall(safe)), 3)
    return f"{fence}\n{safe}\n{fence}"


def _one_line(text: str) -> str:
    return escape_controls(" ".join(text.split()))


# HTML


def _html(title: str, facts: str, found: Iterator[DocumentBlock]) -> Iterator[str]:
    style = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    head = escape(_one_line(title))
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{head}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    yield f'<h1>{head}</h1>\n<p class="dim">{escape(_one_line(facts))}</p>\n<main>\n'
    for block in found:
        yield from _html_section(block)
    yield "</main>\n</body>\n</html>\n"


def _html_section(block: DocumentBlock) -> Iterator[str]:
    text = escape(_escape_text(block.text))
    if block.kind == SAID:
        name = _NAMES.get(block.who, block.who.capitalize())
        kind = "user" if block.who == USER else "other"
        yield f'<section class="{kind}">\n<h2>{escape(name)}</h2>\n'
        yield f'<pre class="said">{text}</pre>\n</section>\n'
        return
    label = "Thought" if block.kind == THOUGHT else _one_line(block.who)
    yield f"<details>\n<summary>{escape(label)}</summary>\n<pre>{text}</pre>\n"
    if block.result is not None:
        yield f"<pre>{escape(_escape_text(block.result))}</pre>\n"
    yield "</details>\n"


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
    kind = to if to in DOCUMENTS else None
    if kind and raw:
        raise UsageError("--raw is for the messages of a request, not for a document")
    wanted = profile_named(to).full_name if to and not kind else None
    if is_own_store(target, form):
        out = ExportFile(output, str(target), force, kind)
        return _export_journal(str(target), session, wanted, out, raw=raw, redact=redact)
    source = find_one(target, form, session)
    out = ExportFile(output, source.path, force, kind)
    out.check()
    stored = sessions.opened(source, follow_symlinks=True)
    messages, dialect, left = sessions.exported(stored, wanted, raw=raw, on_heal=_say_healed)
    if redact:
        messages = _redact(messages, dialect, redact)
    out.put(
        sessions.encoded(messages) if kind is None else _document(kind, stored, messages, redact)
    )
    for found in left:
        terminal.note(render.describe_finding(str(target), dialect, found, sys.stderr))
    return FINDINGS if left else CLEAN


class ExportFile(Struct, frozen=True):
    """Where an export goes: a file, or stdout; never the path that it is read from."""

    name: str | None
    path: str
    force: bool
    document: str | None = None

    def check(self) -> None:
        """Raise UsageError if it may not be written there."""
        if self.name is not None:
            write_copy(self.name, None, self.path, force=self.force)

    def put(self, data: bytes) -> None:
        """Write it."""
        if self.name is None and self.document is not None:
            # nothing in a document is anything but text
            terminal.emit(data)
        elif self.name is None:
            terminal.emit_json(data)
        else:
            write_copy(self.name, data, self.path, force=self.force)


def _export_journal(  # noqa: PLR0913 - as above
    target: str,
    session: str | None,
    wanted: str | None,
    out: ExportFile,
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
    with naming_target(target):
        journal = stored.read(target, session)
        messages = [] if raw else journal.messages(wanted)
    if raw:
        data = b"".join(_event_lines(journal, redact=redact))
    else:
        dialect = wanted or journal.dialect
        messages = _redact(messages, dialect, redact) if redact else messages
        data = sessions.encoded(messages)
        if out.document is not None:
            facts = f"Lockstitch, {several(journal.turns, 'turn')}"
            data = write_document(out.document, journal.session, facts, messages, dialect)
    out.put(data)
    if journal.fault is None:
        return CLEAN
    name = render.session_name(target, OWN, journal.session)
    terminal.note(render.describe_finding(name, journal.dialect, journal.fault, sys.stderr))
    return FINDINGS


def _document(kind: str, stored: sessions.Opened, messages: list[Any], redact: str | None) -> bytes:
    """Write a session as a document, under its title, or its id where secrets must not show."""
    report = sessions.described(stored)
    known = sessions.summarized(report)
    dialect = stored.transcript.history.dialect
    title = known.session if redact else known.title or known.session
    facts = [known.program, "" if redact else known.project, known.session]
    about = " · ".join(fact for fact in facts if fact)
    return write_document(kind, title or "Session", about, messages, dialect)


def _event_lines(journal: Journal, *, redact: str | None) -> Iterator[bytes]:
    """Give a journal's records as lines of JSON, their events byte for byte."""
    lines: list[bytes] = []
    for record in journal.records:
        fact = journal.state.facts.get(record.seq)
        large = journal.blobs.get(fact.event.blob) if fact and fact.event.blob else None
        key = dump(record.key).encode()
        head = b'{"seq":%d,"epoch":%d,"at":%d,"key":%s,"event":'
        tail = b"}\n" if large is None else b',"payload":%s}\n' % large
        lines.append(head % (record.seq, record.epoch, record.at, key) + _body(record.body) + tail)
    yield from _redact_lines(lines, redact) if redact else lines


def _body(raw: bytes) -> bytes:
    """Give an event as it is; as a text if somebody wrote one that is no JSON."""
    text = raw.decode("utf-8", "backslashreplace")
    return raw if is_json(text) else dump(text).encode()


def _redact_lines(lines: list[bytes], redact: str) -> Iterator[bytes]:
    """Give lines without secrets: all at once, so that a secret has one placeholder in all."""
    from lockstitch.redaction import redact_value
    from lockstitch.sources.records import decode_json

    clean, found = redact_value([*map(decode_json, lines)], personal=redact == "all")
    terminal.note(f"Redacted {several(len(found), 'place')}.")
    yield from (dump(line).encode("utf-8", "surrogatepass") + b"\n" for line in clean)


def _say_healed(changes: int) -> None:
    count = several(changes, "change")
    terminal.note(f"Healed in {count}; --raw prints the messages as they are stored.")


def _redact(messages: list[Any], dialect: str, redact: str) -> list[Any]:
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
            f"Dialect: {', '.join(DIALECTS)}; or a document: {', '.join(DOCUMENTS)}.",
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
