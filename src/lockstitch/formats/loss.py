"""How much of a session a repair would take away, and the refusal of one that takes most of it.

Whatever the rules say, a session of which most is gone is not repaired: a rule is wrong about it,
or it is not the session that it was taken for. What stands twice counts once, so that a repair may
take a second copy out; pictures do not count, since they go only if somebody asks for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lockstitch.conversation import json_text
from lockstitch.conversation.parts import CALL, RESULT, TEXT
from lockstitch.dialects.registry import new_dialect
from lockstitch.formats.base import Transcript
from lockstitch.formats.history import History
from lockstitch.formats.records import DOCUMENT, Record, encode, raw_of
from lockstitch.formats.tables import Row

_ADVICE = (
    "nothing was changed. If that is what you want, --strategy rollback and --force-cleanup take "
    "off what is broken; else please report it, with the codes of the findings"
)
_NO_WORDS = frozenset({"data", "url", "image_url", "file_data", "bytes", "signature"})
# A record counts as much as a short one: what matters is how many go.
_RECORD = 500


def refusal(before: Transcript, after: Transcript) -> str:
    """Return why a repair is refused that would leave less than half; empty if it is not."""
    had, kept = _said(before.history), _said(after.history)
    if 2 * kept < had:
        return f"a repair would take {had - kept} of {had} characters from what is sent: {_ADVICE}"
    if had and kept >= had:
        return ""
    share = _share_gone(before, after)
    if 2 * share > 1:
        return f"a repair would take {share:.0%} of the records away: {_ADVICE}"
    return ""


def unread_refusal(before: Transcript, after: Transcript) -> str:
    """Return why a repair is refused that would touch what cannot be read; empty if none does.

    A line or a row with such a value keeps all its bytes, in a document the value does.
    """
    kept: set[bytes] | None = None
    for record in before.records:
        if not record.codes or "LS613" not in record.codes:
            continue
        if kept is None:
            kept = {piece for one in after.records for piece in _unread(after, one)}
        if not kept.issuperset(_unread(before, record)):
            return (
                f"a repair would have to change {record.place}, which holds a value that is valid "
                "JSON but cannot be read here, so nothing was changed; shorten that value by hand "
                "if it is not needed, then repair again"
            )
    return ""


def _unread(transcript: Transcript, record: Record) -> Iterable[bytes]:
    if record.kind == DOCUMENT:
        return json_text.raw_pieces(record.value)
    if "LS613" not in record.codes:
        return ()
    if isinstance(record, Row):
        return (record.text.encode(),)
    return (raw_of(transcript.context.data, record),)


def _said(history: History) -> int:
    """Return how many characters of words, calls and results are sent, but for placeholders."""
    dialect = new_dialect(history.dialect)
    parts = (
        part
        for view in dialect.read(history.messages)
        for part in view.parts
        if part.kind in (TEXT, CALL) or (part.kind == RESULT and not dialect.is_placeholder(part))
    )
    return sum(map(len, {word for part in parts for word in _words(part.raw)}))


def _words(value: Any) -> Iterator[str]:
    """Give all texts in a value, however deep it is, in no order."""
    rest = [value]
    while rest:
        one = rest.pop()
        if type(one) is str:
            yield one
        elif type(one) is list:
            rest += one
        elif type(one) is dict:
            rest += [inner for key, inner in one.items() if key not in _NO_WORDS]


def _share_gone(before: Transcript, after: Transcript) -> float:
    """Return how much of the records goes without a copy that stays, as a share of all."""
    stay = {(record.place, record.start) for record in after.records}
    records = [record for record in before.records if record.is_record]
    gone = [record for record in records if (record.place, record.start) not in stay]
    if 2 * sum(map(_weight, gone)) <= sum(map(_weight, records)):
        return 0.0
    copies = {encode(record.value) for record in after.records if record.is_record}
    weights = {encode(record.value): _weight(record) for record in records}
    lost = sum(weight for value, weight in weights.items() if value not in copies)
    changed = sum(_weight(record) for record in after.records if record.fresh is not None)
    return max(lost - changed, 0) / (sum(weights.values()) or 1)


def _weight(record: Record) -> int:
    return min(max(record.size, 1), _RECORD)
