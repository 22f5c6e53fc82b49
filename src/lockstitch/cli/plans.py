"""What a repair will do, or did, in words: a plan is in the future tense, its outcome in the past.

The engine writes its ledger as of things done; before they are done they are told here as what
will be.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, TextIO

from lockstitch.cli import terminal, text
from lockstitch.cli.rows import several

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lockstitch import Change

_VERBS = {
    "adjusted": "adjust",
    "brought back": "bring back",
    "closed": "close",
    "dated": "date",
    "inserted": "insert",
    "linked": "reattach",
    "merged": "merge",
    "moved": "move",
    "relabelled": "relabel",
    "removed": "remove",
    "renamed": "rename",
    "rewritten": "rewrite",
    "rolled back": "roll back",
    "separated": "separate",
    "shortened": "shorten",
    "split": "split",
}
# What was done, as what will be.
_TENSES = {
    "was": "will be",
    "were": "will be",
    "became": "will become",
    "got": "will get",
    "took": "will take",
    "is now": "will be",
}
_PAST = re.compile(rf"\b({'|'.join(_TENSES)})\b")
# Of changes of one kind, so many are shown; a file may need thousands.
MOST = 8


def future(action: str) -> str:
    """Return the infinitive of what a change does."""
    return _VERBS.get(action, action)


def will_be(note: str) -> str:
    """Return the words of a change as of one that is not made yet."""
    return _PAST.sub(lambda match: _TENSES[match[1]], note)


def change(name: str, made: Change, stream: TextIO, *, is_done: bool) -> str:
    """Return a line on one change: what was done at a place, or what will be."""
    if is_done:
        return text.change(name, made, stream)
    code = terminal.paint(made.code, "bold", "green", stream=stream)
    place = text.placed(name, made.place, stream)
    note = terminal.harmless(will_be(made.note))
    return f"{place}: {code} will {future(made.action)}: {note}"


def changes(name: str, made: Sequence[Change], *, is_done: bool) -> Iterator[str]:
    """Give a line a change; of many of one kind, the first and how many more there are."""
    kinds: dict[tuple[str, str], int] = {}
    for one in made:
        kind = (one.code, one.action)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= MOST:
            yield change(name, one, sys.stderr, is_done=is_done)
    for (code, action), count in kinds.items():
        if count > MOST:
            said = action if is_done else f"will {future(action)}"
            more = several(count - MOST, "more place")
            yield f"{text.shown(name)}: {code} {said}: {more}"


def steps(made: Iterable[Change]) -> list[str]:
    """Return what a repair will do, for a person: no codes, and what reads the same once."""
    counts: dict[str, int] = {}
    for one in made:
        note = will_be(one.note)
        words = note if "will " in note else f"{future(one.action)}: {note}"
        counts[words] = counts.get(words, 0) + 1
    return [f"{words} ({count} times)" if count > 1 else words for words, count in counts.items()]
