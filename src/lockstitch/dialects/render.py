"""A list of one dialect rendered in another.

Words, calls, results and which result answers which call are carried over, images where both
sides know them. Reasoning is bound to who issued it and stays behind; what a provider ran itself
becomes labelled text. A list without findings gives a list without findings, whoever receives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstitch.dialects.detect import new_dialect
from lockstitch.dialects.profiles import Profile, profile_named
from lockstitch.dialects.quick import encoded_size
from lockstitch.dialects.render_fitting import Ids, fitted, shed
from lockstitch.dialects.render_reading import Reader
from lockstitch.dialects.render_script import Turn, Words, is_blank
from lockstitch.dialects.render_writing import WRITERS
from lockstitch.model.parts import USER


def rendered(raw: Sequence[Any], source: str, target: str) -> list[Any]:
    """Render a list of dialect ``source`` as a list of dialect ``target``.

    The same name on both sides gives the same list; another profile of the same dialect is
    another receiver. Values inside, such as arguments, are shared with the list that was given.
    """
    if source == target:
        return raw if isinstance(raw, list) else list(raw)
    return _rendered(raw, source, target)[0]


def left_out(raw: Sequence[Any], source: str, target: str) -> list[str]:
    """Name the places of what ``rendered`` leaves out or only tells the size of."""
    if source == target:
        return []
    return _rendered(raw, source, target)[1]


def scripted(raw: Sequence[Any], source: str) -> list[Turn]:
    """Read a list of dialect ``source`` as turns in no dialect's spelling."""
    issuer = profile_named(source)
    return Reader(new_dialect(issuer.dialect), issuer.list_key, raw).run()


def written(
    turns: list[Turn], target: str, *, opens: bool = True, ids: Ids | None = None
) -> list[Any]:
    """Write turns for dialect ``target``; those that do not open a list may begin anyhow.

    ``ids`` holds those of what was written before them, and gets theirs.
    """
    receiver = profile_named(target)
    if len(turns) == 1 and _is_plain(turns[0]):
        return _written(turns, receiver)
    gone: list[str] = []
    return _within_limit(fitted(turns, receiver, gone, opens=opens, ids=ids), receiver, gone)


def _is_plain(turn: Turn) -> bool:
    """Tell whether a turn is a user's words alone, which every receiver takes as they are."""
    if turn.role != USER or len(turn.pieces) != 1:
        return False
    words = turn.pieces[0]
    return isinstance(words, Words) and not is_blank(words.text)


def _rendered(raw: Sequence[Any], source: str, target: str) -> tuple[list[Any], list[str]]:
    issuer, receiver = profile_named(source), profile_named(target)
    reader = Reader(new_dialect(issuer.dialect), issuer.list_key, raw)
    turns = fitted(reader.run(), receiver, reader.gone)
    return _within_limit(turns, receiver, reader.gone), list(dict.fromkeys(reader.gone))


def _within_limit(turns: list[Turn], receiver: Profile, gone: list[str]) -> list[Any]:
    """Write turns, with fewer pictures if the list would be too large."""
    written = _written(turns, receiver)
    over = encoded_size(written) - receiver.max_bytes if receiver.max_bytes else 0
    if over <= 0:
        return written
    shed(turns, over, gone)
    return _written(turns, receiver)


def _written(turns: list[Turn], receiver: Profile) -> list[Any]:
    return WRITERS[receiver.dialect](receiver).write(turns)
