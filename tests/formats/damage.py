"""Random damage to healthy files: one to three accidents, chosen by a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .claude_files import MARK, Book, Case, Json, counted_uuid, dumped, joined, opened
from .codex_files import Rollout
from .gemini_files import Chat
from .pi_files import Session
from .stored import Stored

NULS = b"\0" * 256


@dataclass
class Pages:
    """A file under attack: its lines, and the marks that nobody can bring back any more.

    ``words`` are the types of the records that hold what was said; the first ``spared`` lines
    stay whole.
    """

    lines: list[bytes]
    lost: set[str]
    dice: random.Random
    words: tuple[str, ...] = ("user", "assistant")
    spared: int = 0

    def record(self, index: int) -> Json:
        record: Json = json.loads(self.lines[index])
        return record

    def change(self, index: int, record: Json) -> None:
        self.lines[index] = dumped(record)

    def any(self, *kinds: str) -> int | None:
        """Some line that still holds one whole record of a kind, if nothing else of words."""
        kinds = kinds or self.words
        lines = list(enumerate(self.lines))[self.spared :]
        found = [i for i, line in lines if _kind(line) in kinds]
        return self.dice.choice(found) if found else None

    def anywhere(self) -> int:
        """Some line, whatever it holds."""
        return self.dice.randrange(self.spared, len(self.lines))

    def lose(self, data: bytes) -> None:
        """Note that these bytes are gone, with the marks in them."""
        self.lost.update(MARK.findall(data.decode(errors="replace")))


def _kind(line: bytes) -> str:
    try:
        record = json.loads(line)
    except ValueError:
        return ""
    return str(record.get("type", "")) if isinstance(record, dict) else ""


Accident = Callable[[Pages], None]


def drop_a_line(pages: Pages) -> None:
    index = pages.any()
    if index is not None:
        pages.lose(pages.lines.pop(index))


def write_a_line_twice(pages: Pages) -> None:
    index = pages.any(*pages.words, "attachment")
    if index is not None:
        pages.lines.insert(index + 1, pages.lines[index])


def write_the_end_twice(pages: Pages) -> None:
    count = min(pages.dice.randint(2, 6), len(pages.lines) - pages.spared)
    pages.lines += pages.lines[-count:]


def tear_a_line(pages: Pages) -> None:
    index = pages.any()
    if index is not None:
        line = pages.lines[index]
        pages.lose(line)
        pages.lines[index] = line[: pages.dice.randint(1, len(line) - 1)]


def tear_and_glue(pages: Pages) -> None:
    index = pages.any()
    if index is not None and index + 1 < len(pages.lines):
        line = pages.lines[index]
        pages.lose(line)
        torn = line[: pages.dice.randint(1, len(line) - 1)]
        pages.lines[index : index + 2] = [torn + pages.lines[index + 1]]


def glue(pages: Pages) -> None:
    index = max(pages.anywhere() - 1, pages.spared)
    pages.lines[index : index + 2] = [pages.lines[index] + pages.lines[index + 1]]


def nuls_before(pages: Pages) -> None:
    index = pages.anywhere()
    pages.lines[index] = NULS + pages.lines[index]


def nuls_behind(pages: Pages) -> None:
    index = pages.anywhere()
    pages.lines[index] += NULS


def nuls_over(pages: Pages) -> None:
    index = pages.any()
    if index is not None:
        line = pages.lines[index]
        pages.lose(line)
        cut = pages.dice.randint(1, len(line) - 1)
        pages.lines[index] = line[:cut] + NULS


def stray_value(pages: Pages) -> None:
    value = pages.dice.choice([b"null", b"42", b"[]", b'"word"', b"{", b"}}", b"{}", b"\xff\xfe"])
    pages.lines.insert(pages.anywhere(), value)


def unknown_parent(pages: Pages) -> None:
    index = pages.any(*pages.words, "attachment")
    if index is not None:
        unknown = counted_uuid("unknown", index)
        pages.change(index, {**pages.record(index), "parentUuid": unknown})


def no_parent(pages: Pages) -> None:
    index = pages.any("assistant")
    if index is not None:
        pages.change(index, {**pages.record(index), "parentUuid": None})


def own_parent(pages: Pages) -> None:
    index = pages.any()
    if index is not None:
        record = pages.record(index)
        pages.change(index, {**record, "parentUuid": record["uuid"]})


def empty_content(pages: Pages) -> None:
    index = pages.any()
    if index is not None:
        pages.lose(pages.lines[index])
        record = pages.record(index)
        content: Any = pages.dice.choice(["", [], None, " \n"])
        if record["type"] == "assistant" and isinstance(content, str):
            content = [{"type": "text", "text": content}]
        pages.change(index, {**record, "message": {**record["message"], "content": content}})


def no_message(pages: Pages) -> None:
    index = pages.any()
    if index is not None:
        pages.lose(pages.lines[index])
        record = pages.record(index)
        del record["message"]
        pages.change(index, record)


def wrong_call_id(pages: Pages) -> None:
    index = pages.any("user")
    if index is None:
        return
    record = pages.record(index)
    content = record.get("message", {}).get("content")
    if isinstance(content, list):
        for block in content:
            block["tool_use_id"] = "toolu_01wrong000000000000000000"
        pages.change(index, record)


def cut_the_end(pages: Pages) -> None:
    if len(pages.lines) > pages.spared + 8:
        for _ in range(pages.dice.randint(1, 5)):
            pages.lose(pages.lines.pop())


def bad_byte(pages: Pages) -> None:
    index = pages.any()
    if index is not None:
        pages.lines[index] = pages.lines[index].replace(b" MARK", b" \xe2\x82 MARK")


TO_LINES: list[Accident] = [
    drop_a_line,
    write_a_line_twice,
    write_the_end_twice,
    tear_a_line,
    tear_and_glue,
    glue,
    nuls_before,
    nuls_behind,
    nuls_over,
    stray_value,
    cut_the_end,
    bad_byte,
]
ACCIDENTS: list[Accident] = [
    *TO_LINES,
    unknown_parent,
    no_parent,
    own_parent,
    empty_content,
    no_message,
    wrong_call_id,
]


def damaged(seed: int, layout: str) -> Case:
    """A healthy session with one to three accidents.

    Only the new layout says of a result which call it belongs to; in the old one a wrong id is
    beyond recovery, so no pairs are asked for there.
    """
    dice = random.Random(seed)  # noqa: S311  repeatable, not secret
    book = Book(f"seed_{seed}", layout)
    opened(book)
    old: list[str] = []
    if seed % 3 == 1:
        old = [*book.marks]
        book.boundary()
        book.summary("We read the settings.")
    spared = len(book.records) if old else 0
    book.work("Run everything.", "build", "tests", "lint")
    if seed % 3 == 2:
        _queued(book)
    book.work("Run it again.", "build", "tests")
    book.ask("Tell me more.")
    book.say("This is more.")
    book.work("One more thing.", "status")
    pages = Pages(book.lines(), set(), dice, spared=spared)
    accidents = dice.choices(ACCIDENTS, k=dice.randint(1, 3))
    for accident in accidents:
        accident(pages)
    data = joined(pages.lines)
    if dice.random() < 0.1:
        data = data.removesuffix(b"\n")
    left = set(MARK.findall(data.decode(errors="replace"))) - pages.lost
    book.marks = [mark for mark in book.marks if mark in left]
    if wrong_call_id in accidents and not book.is_tree:
        book.pairs.clear()
    return book.case(data, aside=[mark for mark in old if mark in left])


def _queued(book: Book) -> None:
    """A turn into which the user speaks, with what hooks leave in the chain."""
    book.ask("Build it.")
    turn = book.say("I build it.", "build")
    book.progress(turn.calls[0])
    book.answer(turn.calls[0], "built")
    book.attach("queued_command", prompt=book.words("And the docs."), commandMode="prompt")
    book.say("The docs, too.")


def damaged_lines(seed: int, form: str) -> Stored:
    """The same for the line files of other programs: accidents to lines only."""
    dice = random.Random(seed)  # noqa: S311  as above
    book = _BOOKS[form](f"seed_{seed}")
    for words in ("settings", "build", "tests", "status"):
        book.work(f"Go on with the {words}.", words)
    lines = [dumped(line) for line in book.lines]
    pages = Pages(lines, set(), dice, ("response_item", "message", "user", "gemini"))
    for accident in dice.choices(TO_LINES, k=dice.randint(1, 3)):
        accident(pages)
    data = joined(pages.lines)
    left = set(MARK.findall(data.decode(errors="replace"))) - pages.lost
    book.made = [mark for mark in book.made if mark in left]
    return book.stored(f"seed_{seed}", data)


_BOOKS: dict[str, Callable[[str], Rollout | Session | Chat]] = {
    "codex": Rollout,
    "pi": Session,
    "gemini-cli": Chat,
}
