"""Finding sessions of other programs by what was said in them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from lockstitch.errors import Unreadable
from lockstitch.formats.sources import Source
from lockstitch.journal.queries import Match, SearchWords, said_in
from lockstitch.sessions.finding import opened


def search(source: Source, words: SearchWords) -> Iterator[Match]:
    """Find messages of one session, as a resume would send it; numbers count from 0.

    Raises ``Unreadable`` if it cannot be read.
    """
    if source.error is not None:
        raise Unreadable(source.error)
    session = opened(source, follow_symlinks=True)
    history = session.transcript.history
    name = session.transcript.session or source.session or ""
    spoken = said_in(history.dialect.partition(":")[0], history.messages)
    for number, group in groupby(spoken, key=lambda one: one[0]):
        parts = [(who, text) for _, who, text in group]
        hit = next(((who, text) for who, text in parts if words.are_in(text)), None)
        whole = "\n".join(text for _, text in parts)
        if hit is None and words.are_in(whole):
            hit = (parts[0][0], whole)
        if hit is not None:
            yield Match(name, number, hit[0], words.excerpt(hit[1]))
