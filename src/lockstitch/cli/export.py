"""``lockstitch export``: a stored session as the messages of a request, or as a document.

A document is Markdown, or one HTML page. The page is strict: everything that was said is plain text
in it. It contains no scripts and no links, loads nothing, and its own policy forbids all of that,
too.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch.cli import render, terminal
from lockstitch.cli.options import FORMAT, OVERWRITE, SESSION, Command, Operand, option
from lockstitch.cli.targets import find_one, is_own_store, naming_target, write_copy
from lockstitch.cli.terminal import CLEAN, FINDINGS, escape_controls
from lockstitch.conversation.json_text import dump, is_json
from lockstitch.conversation.parts import ASSISTANT, USER
from lockstitch.dialects.base import as_json
from lockstitch.dialects.profiles import DIALECTS, profile_named
from lockstitch.errors import UsageError
from lockstitch.formats.records import read_json
from lockstitch.rules.rule import several
from lockstitch.sources import listing, operations
from lockstitch.sources.source import OWN
from lockstitch.transcript.messages import EMPTY_MESSAGE, MessageTranscript, join_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lockstitch.stored import Journal
    from lockstitch.transcript.messages import ShownPart

DOCUMENTS = ("markdown", "html")
_NAMES = {USER: "User", ASSISTANT: "Assistant"}
_TICKS = re.compile(r"`+")
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}"
    "pre.said{font:inherit}section{border-left:3px solid #8888;padding-left:1rem;margin:1rem 0}"
    "section.user{border-color:#36c}h2{font-size:1rem;margin:0}"
    "details{margin:.5rem 0}summary{cursor:pointer}.dim{opacity:.7}"
)


class ExportRequest(Struct, frozen=True):
    """The options on the command line, by name."""

    target: str | None
    to: str | None
    raw: bool
    redact: str | None
    output: str | None
    force: bool
    form: str | None
    session: str | None

    @property
    def document(self) -> str | None:
        """The kind of document that was requested, None for the messages of a request."""
        return self.to if self.to in DOCUMENTS else None

    def write(self, data: bytes | None, path: str) -> None:
        """Write the data that was read at a path; without data, only check that this is allowed."""
        if self.output is not None:
            write_copy(self.output, data, path, force=self.force)
        elif data is not None and self.document is not None:
            # everything in a document is text
            terminal.emit(data)
        elif data is not None:
            terminal.emit_json(data)

    def remove_secrets(self, messages: list[Any], dialect: str) -> list[Any]:
        """Return messages without secrets, if that was requested."""
        if not self.redact:
            return messages
        personal = self.redact == "all"
        clean, found = operations.remove_secrets(messages, dialect, personal=personal)
        terminal.note(f"Redacted {several(len(found), 'place')}.")
        return clean


def run(request: ExportRequest) -> int:
    """Export one session, and return the exit status."""
    if request.document and request.raw:
        raise UsageError("--raw applies to request messages, not to a document")
    to = request.to if not request.document else None
    wanted = profile_named(to).full_name if to else None
    target = str(request.target)
    if is_own_store(request.target, request.form):
        return _export_journal(target, wanted, request)
    source = find_one(request.target, request.form, request.session)
    request.write(None, source.path)
    with naming_target(source.path):
        stored = source.open(follow_symlinks=True)

    def say_healed(changes: int) -> None:
        count = several(changes, "change")
        terminal.note(f"Healed in {count}; --raw prints the messages as they are stored.")

    messages, dialect, left = operations.export(stored, wanted, raw=request.raw, on_heal=say_healed)
    messages = request.remove_secrets(messages, dialect)
    data = operations.encode_messages(messages)
    if request.document:
        # under its title, or its id if secrets must not be shown
        known = listing.summarize(operations.describe(stored))
        title = known.session if request.redact else known.title or known.session
        facts = (known.program, "" if request.redact else known.project, known.session)
        about = " · ".join(fact for fact in facts if fact)
        own = stored.transcript.history.dialect
        data = write_document(request.document, title or "Session", about, messages, own)
    request.write(data, source.path)
    for found in left:
        terminal.note(render.describe_finding(target, dialect, found))
    return FINDINGS if left else CLEAN


# Sessions of Lockstitch stores.


def _export_journal(target: str, wanted: str | None, request: ExportRequest) -> int:
    """Export a session of a Lockstitch store; damaged parts are left out, and a note says so."""
    from lockstitch import stored

    if request.raw and wanted:
        raise UsageError("--raw prints the events as they are; --to is for request messages")
    request.write(None, target)
    with naming_target(target):
        journal = stored.read(target, request.session)
        messages = [] if request.raw else journal.messages(wanted)
    if request.raw:
        data = b"".join(_event_lines(journal, redact=request.redact))
    else:
        dialect = wanted or journal.dialect
        messages = request.remove_secrets(messages, dialect)
        data = operations.encode_messages(messages)
        if request.document:
            facts = f"Lockstitch, {several(journal.turns, 'turn')}"
            data = write_document(request.document, journal.session, facts, messages, dialect)
    request.write(data, target)
    if journal.fault is None:
        return CLEAN
    name = render.session_name(target, OWN, journal.session)
    terminal.note(render.describe_finding(name, journal.dialect, journal.fault))
    return FINDINGS


def _event_lines(journal: Journal, *, redact: str | None) -> Iterator[bytes]:
    """Yield a journal's records as lines of JSON, with their events byte for byte."""
    lines: list[bytes] = []
    for record in journal.records:
        fact = journal.state.facts.get(record.seq)
        large = journal.blobs.get(fact.event.blob) if fact and fact.event.blob else None
        key = dump(record.key).encode()
        head = b'{"seq":%d,"epoch":%d,"at":%d,"key":%s,"event":'
        tail = b"}\n" if large is None else b',"payload":%s}\n' % large
        # an event that is not JSON was written by another program, and becomes a text
        text = record.body.decode("utf-8", "backslashreplace")
        body = record.body if is_json(text) else dump(text).encode()
        lines.append(head % (record.seq, record.epoch, record.at, key) + body + tail)
    if not redact:
        yield from lines
        return
    from lockstitch.redaction import redact_value

    # all at once, so that each secret has the same placeholder everywhere
    clean, found = redact_value([read_json(line)[0] for line in lines], personal=redact == "all")
    terminal.note(f"Redacted {several(len(found), 'place')}.")
    yield from (dump(line).encode("utf-8", "surrogatepass") + b"\n" for line in clean)


# Documents.


def write_document(
    kind: str, title: str, facts: str, messages: Sequence[Any], dialect: str
) -> bytes:
    """Return a conversation as a document of this kind, with every call next to its result."""
    parts = join_results(MessageTranscript(messages, dialect, {}).body())
    # a message without content is nothing to read, and no thought of anybody's
    parts = [part for part in parts if part.get("text") != EMPTY_MESSAGE or part["kind"] != "note"]
    write = _markdown if kind == "markdown" else _html
    return "".join(write(title, facts, parts)).encode("utf-8", "backslashreplace")


def _label(part: ShownPart) -> str:
    """Return the heading of a call, or of a result without a call."""
    if part["kind"] == "call":
        return f"{part['tool']}, {part['by']}" if "by" in part else part["tool"]
    is_served = "provider" in part["title"]
    return "a result by the provider" if is_served else "a result without a call"


def _texts(part: ShownPart) -> list[str]:
    """Return the arguments of a call and its result, or a result without a call."""
    if part["kind"] != "call":
        return ["\n".join([part["text"], *part["pictures"]])]
    arguments, result = part["arguments"], part.get("result")
    texts = [arguments if isinstance(arguments, str) else as_json(arguments)]
    if result is not None:
        is_open = part["state"] == "open"
        came = "\n".join([result["text"], *result.get("pictures", ())])
        texts.append("(no result)" if is_open else came)
    return texts


def _markdown(title: str, facts: str, parts: Iterable[ShownPart]) -> Iterator[str]:
    yield f"# {_one_line(title)}\n\n{_one_line(facts)}\n"
    last = ""
    for part in parts:
        if part["kind"] == "text":
            who = part["role"]
            if who != last:
                yield f"\n## {_NAMES.get(who, who.capitalize())}\n"
            last = who
            lead = "> " if who == USER else ""
            lines = _escape_text(part["text"]).split("\n")
            yield "".join(f"\n{lead}{line}".rstrip() for line in lines)
            yield "\n"
        elif part["kind"] == "note":
            yield f"\n*Thought:*\n\n{_fenced(part['text'])}\n"
        else:
            yield f"\n**{_one_line(_label(part))}**\n"
            yield from (f"\n{_fenced(text)}\n" for text in _texts(part) if text)


def _html(title: str, facts: str, parts: Iterable[ShownPart]) -> Iterator[str]:
    style = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    head = escape(_one_line(title))
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{head}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    yield f'<h1>{head}</h1>\n<p class="dim">{escape(_one_line(facts))}</p>\n<main>\n'
    for part in parts:
        if part["kind"] == "text":
            name = _NAMES.get(part["role"], part["role"].capitalize())
            kind = "user" if part["role"] == USER else "other"
            yield f'<section class="{kind}">\n<h2>{escape(name)}</h2>\n'
            yield f'<pre class="said">{escape(_escape_text(part["text"]))}</pre>\n</section>\n'
            continue
        is_note = part["kind"] == "note"
        label = "Thought" if is_note else _one_line(_label(part))
        yield f"<details>\n<summary>{escape(label)}</summary>\n"
        for text in [part["text"]] if is_note else _texts(part):
            yield f"<pre>{escape(_escape_text(text))}</pre>\n"
        yield "</details>\n"
    yield "</main>\n</body>\n</html>\n"


def _fenced(text: str) -> str:
    """Return a text as a code block, with a fence that nothing in the text can close."""
    safe = _escape_text(text)
    fence = "`" * max(3, *(len(run) + 1 for run in _TICKS.findall(safe)), 3)
    return f"{fence}\n{safe}\n{fence}"


def _one_line(text: str) -> str:
    return escape_controls(" ".join(text.split()))


def _escape_text(text: str) -> str:
    """Return a text in which every character that hides or moves others is written out.

    Line breaks and tabs stay.
    """
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return "\n".join(map(escape_controls, lines))


COMMAND = Command(
    name="export",
    run=run,
    bundle=ExportRequest,
    details=(
        "Prints the messages that a resume would send, in the dialect of the session's own "
        "provider or in another one (--to). --to markdown and --to html write a document to "
        "read: the page has no scripts, loads nothing, and shows everything that was said as "
        "plain text. --raw leaves the messages as they are stored; for a session in a "
        "Lockstitch store it prints the events, one per line.\n"
        "\n"
        "--redact replaces secrets with placeholders, the same one everywhere for the same "
        "secret; the list stays valid. It finds keys by their form (of some sixty services, "
        "JWTs, private keys, password hashes), whatever a name or its position marks as secret "
        "(variables, fields, headers, cookies, command options, addresses with passwords, "
        ".netrc, .pgpass, .npmrc, kubeconfig, signed links) and long random tokens. It looks in "
        "texts, in the input and output of tools, in text files, in JSON within JSON, in "
        "base64, and behind escapes. It does not look into images, audio, PDFs and other binary "
        "files, reasoning that only a provider can read, ids and names that tie a history "
        "together, or a secret that is split over several messages; nor does it recognize a "
        "password that nothing labels as one. Read what you share. --redact=all also removes "
        "e-mail addresses, telephone numbers and user names (in home folders and prompts), but "
        "not other names, places or IP addresses."
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
        option(
            "--to DIALECT",
            f"Dialect: {', '.join(DIALECTS)}; or a document: {', '.join(DOCUMENTS)}.",
        ),
        option("--raw", "Print the messages as stored, not healed."),
        option(
            "--redact all",
            "Remove secrets; =all: e-mail addresses, telephone numbers and user names, too.",
            choices=("secrets", "all"),
            implied="secrets",
        ),
        option("--output -o FILE", "Write to this file (0600)."),
        OVERWRITE,
        FORMAT,
        SESSION,
    ),
)
