"""A conversation as a document to read or to share: Markdown, or one HTML page.

The page is strict: everything that was said is text in it, it has no scripts, no links and loads
nothing, and its own policy forbids all of that, too.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch.cli.terminal import harmless
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
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import new_dialect
from lockstitch.transcript.pieces import called, media, other, thought, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lockstitch.conversation.parts import Message, Part
    from lockstitch.dialects.base import Dialect

KINDS = ("markdown", "html")
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


class Block(Struct, frozen=True):
    """One thing in a conversation: what was said, thought or called, and what came back."""

    kind: str
    who: str
    text: str
    result: str | None = None


def blocks(messages: Sequence[Any], dialect: str) -> Iterator[Block]:
    """Give a conversation block by block, every call with its result."""
    profile = profile_named(dialect)
    form = new_dialect(profile.dialect)
    view = form.read(messages)
    keys, is_placeholder, same = form.keys, form.is_placeholder, form.same_result
    threads = pair_messages(view, profile.layout, keys, is_placeholder, same)
    call = result = 0
    for message in view:
        for note in told(message):
            yield Block(THOUGHT, message.role, note.text)
        for part in message.parts:
            if part.kind == CALL:
                yield _call(form, part, threads, call)
                call += 1
            elif part.kind == RESULT:
                if threads.pairing.verdicts[result] != ANSWER:
                    yield Block(RETURNED, "a result without a call", form.result_text(part))
                result += 1
            else:
                yield from _part(form, message, part)


def _call(form: Dialect, part: Part, threads: PairedCalls, number: int) -> Block:
    name, arguments = called(form, part)
    said = arguments if isinstance(arguments, str) else as_json(arguments)
    answer = threads.pairing.answers[number]
    if answer == NOWHERE:
        return Block(CALLED, name, said, _NO_RESULT)
    found = threads.results[answer]
    pictures = [media(piece) for piece in form.result_media(found)]
    return Block(CALLED, name, said, "\n".join([form.result_text(found), *pictures]))


def _part(form: Dialect, message: Message, part: Part) -> Iterator[Block]:
    if part.kind == TEXT:
        if part.text.strip():
            yield Block(SAID, message.role, part.text)
    elif part.kind == REASONING:
        yield Block(THOUGHT, message.role, thought(part.raw).text)
    elif part.kind == MEDIA:
        yield Block(SAID, message.role, media(part))
    elif part.kind == SERVER_CALL:
        name, arguments = called(form, part)
        yield Block(CALLED, f"{name}, by the provider", as_json(arguments), "")
    elif part.kind == SERVER_RESULT:
        yield Block(RETURNED, "a result by the provider", as_json(part.raw))
    elif part.flavor not in ("twin", "raw-twin"):
        yield Block(SAID, message.role, other(part))


def _safe(text: str) -> str:
    """Return a text with everything but line breaks and tabs written out that hides or moves."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return "\n".join(map(harmless, lines))


def written(kind: str, title: str, facts: str, messages: Sequence[Any], dialect: str) -> bytes:
    """Return a conversation as a document of a kind."""
    write = _markdown if kind == "markdown" else _html
    text = "".join(write(title, facts, blocks(messages, dialect)))
    return text.encode("utf-8", "backslashreplace")


# Markdown


def _markdown(title: str, facts: str, found: Iterator[Block]) -> Iterator[str]:
    yield f"# {_one_line(title)}\n\n{_one_line(facts)}\n"
    last = ""
    for block in found:
        if block.kind == SAID:
            if block.who != last:
                yield f"\n## {_NAMES.get(block.who, block.who.capitalize())}\n"
            last = block.who
            lead = "> " if block.who == USER else ""
            yield "".join(f"\n{lead}{line}".rstrip() for line in _safe(block.text).split("\n"))
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
    safe = _safe(text)
    fence = "`" * max(3, *(len(run) + 1 for run in _TICKS.findall(safe)), 3)
    return f"{fence}\n{safe}\n{fence}"


def _one_line(text: str) -> str:
    return harmless(" ".join(text.split()))


# HTML


def _html(title: str, facts: str, found: Iterator[Block]) -> Iterator[str]:
    style = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    head = escape(_one_line(title))
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{head}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    yield f'<h1>{head}</h1>\n<p class="dim">{escape(_one_line(facts))}</p>\n<main>\n'
    for block in found:
        yield from _section(block)
    yield "</main>\n</body>\n</html>\n"


def _section(block: Block) -> Iterator[str]:
    text = escape(_safe(block.text))
    if block.kind == SAID:
        name = _NAMES.get(block.who, block.who.capitalize())
        kind = "user" if block.who == USER else "other"
        yield f'<section class="{kind}">\n<h2>{escape(name)}</h2>\n'
        yield f'<pre class="said">{text}</pre>\n</section>\n'
        return
    label = "Thought" if block.kind == THOUGHT else _one_line(block.who)
    yield f"<details>\n<summary>{escape(label)}</summary>\n<pre>{text}</pre>\n"
    if block.result is not None:
        yield f"<pre>{escape(_safe(block.result))}</pre>\n"
    yield "</details>\n"
