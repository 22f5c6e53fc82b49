"""Session files: every kind of damage n times over, and files that are long in one way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.formats import codex_files, gemini_files, pi_files, plain_files
from tests.formats.claude_cases import CASES as CLAUDE
from tests.formats.claude_files import Book, Call, Case, counted_uuid, dumped, joined, opened
from tests.formats.codex_files import Rollout
from tests.formats.gemini_files import Chat
from tests.formats.pi_files import Session
from tests.formats.stored import Stored

from .commands import Write, commanded
from .dimension import Dimension, renamed

FOLDER = ".claude/projects/-home-ada-project"
_ROOT = re.compile(rb'"(parentUuid|parentId)":null')
_OWN = re.compile(rb'"(?:uuid|id)":"([0-9a-f-]{8,36})"')
OTHERS = [*codex_files.CASES, *pi_files.CASES, *gemini_files.CASES]
ALL = ("check", "repair", "undo", "show", "export", "diff")


def dimensions() -> Iterator[Dimension]:
    """All of them."""
    for case in CLAUDE:
        for how, copies in HOW.items():
            yield from commanded(f"claude-code {case}, {how}", _claude(case, copies), *_two(how))
    for stored in OTHERS:
        for how, copies in HOW.items():
            yield from commanded(f"{stored}, {how}", _other(stored, copies), *_two(how))
    for name, make in CLAUDE_SHAPES.items():
        yield from commanded(f"claude-code {name}", _book(make), *ALL)
    for name, write in BYTES.items():
        yield from commanded(f"bytes {name}", write, "check", "repair", "show")
    for name, write in OTHER_SHAPES.items():
        yield from commanded(name, write, *ALL)
    yield from commanded("folder of sessions", _folder_of(1), "check", "repair", "undo")
    yield from commanded("folder of broken sessions", _folder_of(0), "check", "repair", "undo")


def _two(how: str) -> tuple[str, ...]:
    return ("check", "repair") if how == "chained" else ("repair",)


# Every kind of damage, over and over


def _chained(data: bytes, count: int, session: bytes) -> Iterator[bytes]:
    """Each copy goes on from the end of the one before."""
    tip = b""
    for copy in range(count):
        fresh = renamed(data, copy, session)
        if tip:
            fresh = _ROOT.sub(rb'"\1":"%b"' % tip, fresh, count=1)
        yield fresh
        tip = ([b"", *_OWN.findall(fresh)])[-1]


def _apart(data: bytes, count: int, session: bytes) -> Iterator[bytes]:
    """Each copy begins anew."""
    return (renamed(data, copy, session) for copy in range(count))


def _beside(data: bytes, count: int, session: bytes) -> Iterator[bytes]:
    """All copies but the first go on from its end: branches of it."""
    yield data
    tip = ([b"", *_OWN.findall(data)])[-1]
    for copy in range(1, count):
        yield _ROOT.sub(rb'"\1":"%b"' % tip, renamed(data, copy, session), count=1)


def _again(data: bytes, count: int, _session: bytes) -> Iterator[bytes]:
    """The same bytes over and over."""
    return (data for _ in range(count))


Copies = Callable[[bytes, int, bytes], Iterator[bytes]]
HOW: dict[str, Copies] = {
    "chained": _chained,
    "apart": _apart,
    "beside": _beside,
    "again": _again,
}


def _claude(case: Case, copies: Copies) -> Write:
    def write(count: int, folder: Path) -> Path:
        path = folder / FOLDER / f"{case.session}.jsonl"
        path.parent.mkdir(parents=True)
        for name, data in case.side.items():
            beside = path.parent / name
            beside.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(data)
        path.write_bytes(b"".join(copies(case.data, count, case.session.encode())))
        return path

    return write


def _other(case: Stored, copies: Copies) -> Write:
    def write(count: int, folder: Path) -> Path:
        path = folder / case.path
        path.parent.mkdir(parents=True)
        case.write(path)
        head, _, rest = path.read_bytes().partition(b"\n")
        if copies is _again:
            rest, head = head + b"\n" + rest, b""
        body = b"".join(copies(rest, count, case.session.encode()))
        path.write_bytes(head + b"\n" * bool(head) + body)
        return path

    return write


# Files that are long in one way only


def _book(make: Callable[[Book, int], bytes | None], layout: str = "tree") -> Write:
    def write(count: int, folder: Path) -> Path:
        book = Book("doubling", layout)
        opened(book)
        data = make(book, count)
        path = folder / FOLDER / f"{book.session}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(joined(book.lines()) if data is None else data)
        return path

    return write


def _open_turns(book: Book, count: int) -> None:
    for _ in range(count):
        book.ask("Go.")
        book.say("I go.", "it")


def _siblings(book: Book, count: int) -> None:
    """A second writer, who goes on from where the first one was, again and again."""
    fork = book.tip
    for _ in range(count):
        book.tip = fork
        book.ask("Go.")
        book.say("I go.")


def _second_writers(book: Book, count: int) -> None:
    """Two writers at work at once: each line of one stands between two of the other."""
    tips = [book.tip, book.tip]
    for number in range(count * 2):
        book.tip = tips[number % 2]
        book.ask("Go.")
        book.say("I go.")
        tips[number % 2] = book.tip


def _repeated_uuids(book: Book, count: int) -> bytes:
    lines = book.lines()
    for _ in range(count):
        start = len(book.records)
        book.work("Go.", "it")
        for record in book.records[start:]:
            lines += [dumped(record)] * 2
    return joined(lines)


def _one_uuid(book: Book, count: int) -> None:
    own = counted_uuid("one")
    for _ in range(count):
        book.ask("Go.")["uuid"] = own
        book.tip = own
        book.say("I go.")


def _parallel(book: Book, count: int) -> None:
    book.ask("Go.")
    turn = book.say("All at once.", *["it"] * count)
    for call in turn.calls[::2]:
        book.answer(call, "done")
    book.ask("And?")


def _late(book: Book, count: int) -> None:
    calls: list[Call] = []
    for _ in range(count):
        book.ask("Go.")
        calls += book.say("I go.", "it").calls
    for call in calls:
        book.ask("Well?")
        book.result(call.id, book.words("done"), None)
        book.say("I see.")


def _orphans(book: Book, count: int) -> None:
    for number in range(count):
        book.ask("Well?")
        book.result(f"toolu_nobody{number}", book.words("done"), None)
        book.say("I see.")


def _torn(book: Book, count: int) -> bytes:
    lines = book.lines()
    for _ in range(count):
        start = len(book.records)
        book.work("Go.", "it")
        fresh = [dumped(record) for record in book.records[start:]]
        lines += [fresh[0][:-7], *fresh[1:]]
    return joined(lines)


def _compactions(book: Book, count: int) -> None:
    for _ in range(count):
        book.work("Go.", "it")
        book.boundary()
        book.summary("We went.")
    _open_turns(book, 1)


def _kept_by_compactions(book: Book, count: int) -> None:
    for _ in range(count):
        start = len(book.records)
        book.work("Go.", "it")
        kept = book.records[start:]
        book.boundary(kept)
        book.summary("We went.")
    _open_turns(book, 1)


def _unknown_parents(book: Book, count: int) -> None:
    for number in range(count):
        book.tip = counted_uuid("unknown", number)
        book.ask("Go.")
        book.say("I go.")


def _no_parents(book: Book, count: int) -> None:
    for _ in range(count):
        book.tip = None
        book.ask("Go.")
        book.say("I go.")


def _cycles(book: Book, count: int) -> None:
    for _ in range(count):
        first = book.ask("Go.")
        book.say("I go.")
        first["parentUuid"] = book.tip


def _one_cycle(book: Book, count: int) -> None:
    first = book.ask("Go.")
    _work(book, count)
    first["parentUuid"] = book.tip


def _reversed(book: Book, count: int) -> None:
    _work(book, count)
    book.records.reverse()


def _thoughts(book: Book, count: int) -> None:
    for _ in range(count):
        book.ask("Go.")
        book.say(None, thinking="Hm.")


def _empty(book: Book, count: int) -> None:
    for _ in range(count):
        book.ask("Go.")["message"]["content"] = ""
        book.say("x").records[0]["message"]["content"] = []


def _work(book: Book, count: int) -> None:
    for _ in range(count):
        book.work("Go.", "it")


def _queued(book: Book, count: int) -> None:
    for _ in range(count):
        book.attach("queued_command", prompt=book.words("And the docs."), commandMode="prompt")
    book.say("The docs, too.")


def _progress(book: Book, count: int) -> None:
    book.ask("Go.")
    turn = book.say("I go.", "it")
    for _ in range(count):
        book.progress(turn.calls[0])
    book.ask("And?")


def _blocks(book: Book, count: int) -> None:
    book.ask("Go.")
    blocks = [book.call("it") for _ in range(count)]
    record = book.blocks(blocks[0])[0]
    record["message"]["content"] = blocks
    book.ask("And?")


def _one_message(book: Book, count: int) -> None:
    """One message of the model over many lines, of which some stand elsewhere."""
    book.ask("Go.")
    book.blocks(*({"type": "text", "text": book.words("x")} for _ in range(count)))
    book.ask("And?")


def _sides(book: Book, count: int) -> None:
    for _ in range(count):
        tip = book.tip
        book.ask("Go.", isSidechain=True)
        book.say("I go.", "it", isSidechain=True)
        book.tip = tip
        book.work("On.", "it")


def _snapshots(book: Book, count: int) -> None:
    for _ in range(count):
        book.snapshot(book.ask("Go."))
        book.note("mode", mode="normal")
        book.say("I go.")
    _open_turns(book, 1)


def _resumed(book: Book, count: int) -> None:
    """Each turn goes on from one before the last, as after a rewind."""
    for _ in range(count):
        before = book.tip
        book.work("Go.", "it")
        book.tip = before
        book.work("Another way.", "it")


def _rewound_to_the_start(book: Book, count: int) -> None:
    """Every turn branches off a chain that has become one turn longer."""
    tips = [book.tip]
    for _ in range(count):
        book.work("Go.", "it")
        tips.append(book.tip)
    for tip in reversed(tips):
        book.tip = tip
        book.ask("Again.")


CLAUDE_SHAPES: dict[str, Callable[[Book, int], bytes | None]] = {
    "healthy turns": _work,
    "open turns": _open_turns,
    "siblings of a second writer": _siblings,
    "two writers at once": _second_writers,
    "repeated uuids": _repeated_uuids,
    "lines of one uuid": _one_uuid,
    "parallel calls": _parallel,
    "late results": _late,
    "results without calls": _orphans,
    "torn lines": _torn,
    "compactions": _compactions,
    "compactions that keep lines": _kept_by_compactions,
    "unknown parents": _unknown_parents,
    "lines without parents": _no_parents,
    "cycles": _cycles,
    "length of a cycle": _one_cycle,
    "lines in reverse": _reversed,
    "thoughts alone": _thoughts,
    "empty messages": _empty,
    "queued prompts": _queued,
    "progress of one call": _progress,
    "blocks of one line": _blocks,
    "lines of one message": _one_message,
    "sidechains": _sides,
    "snapshots": _snapshots,
    "rewinds": _resumed,
    "branches off a chain": _rewound_to_the_start,
}


def _raw(name: str, make: Callable[[int], bytes]) -> Write:
    def write(count: int, folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make(count))
        return path

    return write


def _session_with(make: Callable[[list[bytes], int], bytes]) -> Write:
    book = opened(Book("doubling", "tree"))
    return _raw(f"{FOLDER}/{book.session}.jsonl", lambda count: make(book.lines(), count))


KB = 1024
BYTES: dict[str, Write] = {
    "line breaks alone": _raw("breaks.jsonl", lambda n: b"\n" * KB * n),
    "line breaks in a session": _session_with(
        lambda lines, n: joined(lines[:3]) + b"\n" * KB * n + joined(lines[3:])
    ),
    "line breaks behind a session": _session_with(lambda lines, n: joined(lines) + b"\n" * KB * n),
    "carriage returns": _session_with(lambda lines, n: joined(lines) + b"\r\n" * KB * n),
    "blank lines": _session_with(lambda lines, n: joined(lines) + b" \n" * KB * n),
    "blanks in one line": _session_with(lambda lines, n: joined(lines) + b" " * KB * n),
    "NULs": _session_with(lambda lines, n: joined(lines[:3]) + b"\0" * KB * n + joined(lines[3:])),
    "NULs in lines": _session_with(lambda lines, n: joined(lines) + b"\0\n" * KB * n),
    "brackets": _session_with(lambda lines, n: joined(lines) + b"[" * KB * n),
    "braces": _session_with(lambda lines, n: joined(lines) + b"{" * KB * n),
    "braces in lines": _session_with(lambda lines, n: joined(lines) + b"{\n" * KB * n),
    "quotes": _session_with(lambda lines, n: joined(lines) + b'"' * KB * n),
    "backslashes": _session_with(lambda lines, n: joined(lines) + b'{"a":"' + b"\\" * KB * n),
    "records in one line": _session_with(
        lambda lines, n: joined(lines[:1]) + b"".join(lines[1:] * n)
    ),
    "torn records in one line": _session_with(
        lambda lines, n: joined(lines[:1]) + b"".join(line[:-9] for line in lines[1:] * n)
    ),
    "empty objects in one line": _session_with(lambda lines, n: joined(lines) + b"{}" * KB * n),
    "empty objects": _session_with(lambda lines, n: joined(lines) + b"{}\n" * KB * n),
    "length of one text": _session_with(
        lambda lines, n: joined([*lines, lines[-1].replace(b"MARK", b"MARK" * KB * n)])
    ),
    "length of a torn text": _session_with(
        lambda lines, n: joined([*lines, lines[-1].replace(b"MARK", b"MARK" * KB * n)[:-9]])
    ),
    "bytes that are no text": _session_with(lambda lines, n: joined(lines) + b"\xff" * KB * n),
    "bytes that are no text in lines": _session_with(
        lambda lines, n: joined(lines) + b"\xff\n" * KB * n
    ),
    "unknown lines": _raw("other.jsonl", lambda n: b'{"a":1}\n' * KB * n),
    "document of empty lists": _raw("list.json", lambda n: b"[" + b"[]," * KB * n + b"[]]"),
    "line breaks in a document": _raw(
        "list.json", lambda n: b"[" + b"\n" * KB * n + b'{"role":"user","content":"Hi."}]'
    ),
}


def _of_book(book: Callable[[int], Rollout | Session | Chat]) -> Write:
    def write(count: int, folder: Path) -> Path:
        stored = book(count).stored("doubling")
        path = folder / stored.path
        path.parent.mkdir(parents=True)
        stored.write(path)
        return path

    return write


def _codex_open(count: int) -> Rollout:
    book = Rollout("doubling")
    for _ in range(count):
        book.ask("Go.")
        book.call("it")
    return book


def _codex_orphans(count: int) -> Rollout:
    book = Rollout("doubling")
    for number in range(count):
        book.ask("Go.")
        book.answer(f"call_nobody{number}", "done")
        book.say("I see.")
    return book


def _codex_late(count: int) -> Rollout:
    book = Rollout("doubling")
    keys = []
    for _ in range(count):
        book.ask("Go.")
        keys.append(book.call("it"))
    for key in keys:
        book.ask("Well?")
        book.answer(key, "done")
    return book


def _codex_parallel(count: int) -> Rollout:
    book = Rollout("doubling")
    book.ask("Go.")
    for key in [book.call("it") for _ in range(count)][::2]:
        book.answer(key, "done")
    return book


def _codex_thoughts(count: int) -> Rollout:
    book = Rollout("doubling")
    for _ in range(count):
        book.ask("Go.")
        book.think()
    return book


def _codex_compacted(count: int) -> Rollout:
    book = Rollout("doubling")
    for _ in range(count):
        book.work("Go.", "it")
        text = {"type": "input_text", "text": "We went."}
        item = {"type": "message", "role": "user", "content": [text]}
        book.add("compacted", message="", replacement_history=[item])
    book.call("it")
    return book


def _pi_open(count: int) -> Session:
    book = Session("doubling")
    for _ in range(count):
        book.ask("Go.")
        book.say("I go.", "it")
    return book


def _pi_orphans(count: int) -> Session:
    book = Session("doubling")
    for number in range(count):
        book.ask("Go.")
        book.answer(f"toolu_nobody{number}", "done")
        book.say("I see.")
    return book


def _pi_late(count: int) -> Session:
    book = Session("doubling")
    keys = []
    for _ in range(count):
        book.ask("Go.")
        keys += book.say("I go.", "it")
    for key in keys:
        book.ask("Well?")
        book.answer(key, "done")
    return book


def _pi_parallel(count: int) -> Session:
    book = Session("doubling")
    book.ask("Go.")
    for key in book.say("All at once.", *["it"] * count)[::2]:
        book.answer(key, "done")
    book.ask("And?")
    return book


def _pi_branches(count: int) -> Session:
    book = Session("doubling")
    fork = book.tip
    for _ in range(count):
        book.tip = fork
        book.work("Go.", "it")
    return book


def _pi_missing(count: int) -> Session:
    book = Session("doubling")
    for _ in range(count):
        book.work("Go.", "it")
        book.say("One more thing.")
        book.lines.pop()
        book.work("On.", "it")
    return book


def _pi_compacted(count: int) -> Session:
    book = Session("doubling")
    for _ in range(count):
        kept = book.ask("Go.")["id"]
        book.say("I go.")
        book.entry("compaction", summary="We went.", firstKeptEntryId=kept, tokensBefore=9000)
    book.say("I go.", "it")
    return book


def _gemini_missing(count: int) -> Chat:
    book = Chat("doubling")
    for _ in range(count):
        book.ask("Go.")
        book.say("I go.", book.call("it", None))
    return book


def _gemini_parallel(count: int) -> Chat:
    book = Chat("doubling")
    book.ask("Go.")
    calls = [book.call("it", "done" if number % 2 else None) for number in range(count)]
    for number, call in enumerate(calls):
        call["id"] = f"run_shell_command-{number}"
    book.say("I go.", *calls)
    return book


def _gemini_updated(count: int) -> Chat:
    book = Chat("doubling")
    line = book.ask("Go.")
    for _ in range(count):
        book.lines.append(dict(line))
    book.say("I go.", book.call("it", None))
    return book


def _gemini_rewound(count: int) -> Chat:
    book = Chat("doubling")
    for _ in range(count):
        first = book.ask("Go.")
        book.say("I go.", book.call("it", None))
        book.lines.append({"$rewindTo": first["id"]})
        book.work("On.", "it")
    return book


def _gemini_rewound_by_one(count: int) -> Chat:
    book = Chat("doubling")
    firsts = []
    for _ in range(count):
        firsts.append(book.ask("Go."))
        book.say("I go.")
    for first in reversed(firsts[1:]):
        book.lines.append({"$rewindTo": first["id"]})
    book.say("I go.", book.call("it", None))
    return book


def _plain(case: Stored) -> Write:
    """A list, a body or lines of n times the messages."""

    def write(count: int, folder: Path) -> Path:
        path = folder / case.path
        path.parent.mkdir(parents=True)
        case.write(path)
        if path.suffix == ".jsonl":
            path.write_bytes(path.read_bytes() * count)
            return path
        value = json.loads(path.read_bytes())
        messages = value if isinstance(value, list) else value["messages"]
        messages[:] = json.loads(
            b"[%b]"
            % b",".join(renamed(json.dumps(messages).encode(), n)[1:-1] for n in range(count))
        )
        path.write_bytes(json.dumps(value, indent=2).encode())
        return path

    return write


OTHER_SHAPES: dict[str, Write] = {
    "codex open calls": _of_book(_codex_open),
    "codex results without calls": _of_book(_codex_orphans),
    "codex late results": _of_book(_codex_late),
    "codex parallel calls": _of_book(_codex_parallel),
    "codex thoughts alone": _of_book(_codex_thoughts),
    "codex compactions": _of_book(_codex_compacted),
    "pi open calls": _of_book(_pi_open),
    "pi results without calls": _of_book(_pi_orphans),
    "pi late results": _of_book(_pi_late),
    "pi parallel calls": _of_book(_pi_parallel),
    "pi branches": _of_book(_pi_branches),
    "pi missing lines": _of_book(_pi_missing),
    "pi compactions": _of_book(_pi_compacted),
    "gemini-cli missing results": _of_book(_gemini_missing),
    "gemini-cli parallel calls": _of_book(_gemini_parallel),
    "gemini-cli updates of one message": _of_book(_gemini_updated),
    "gemini-cli rewinds": _of_book(_gemini_rewound),
    "gemini-cli rewinds one by one": _of_book(_gemini_rewound_by_one),
    **{str(case): _plain(case) for case in plain_files.CASES},
}


def _folder_of(healthy: int) -> Write:
    """A folder of sessions; the target is the folder."""

    def write(count: int, folder: Path) -> Path:
        place = folder / FOLDER
        place.mkdir(parents=True)
        for number in range(count):
            book = Book(f"doubling{number}", "tree")
            opened(book)
            if not healthy:
                _open_turns(book, 1)
            path = place / f"{book.session}.jsonl"
            path.write_bytes(joined(book.lines()))
        return place

    return write
