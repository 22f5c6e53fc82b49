"""A whole session as one list of rows: what a resume sends, and where the rest branches off.

Pure. A row of the conversation itself has lane 0; those of a piece that a resume does not send
have lane 1, between a row that says what it is and, after a compaction, one that says where the
conversation goes on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field, structs

from lockstitch.formats.base import Format, Transcript
from lockstitch.formats.doctor import place_in_store, plan_history
from lockstitch.formats.history import COMPACTED, LEFT, LOST, History
from lockstitch.inspector.rows import Placed, Row, journal_as_rows, messages_as_rows
from lockstitch.journal.events import Rewound
from lockstitch.journal.state import fold
from lockstitch.measures import several
from lockstitch.rules import Finding
from lockstitch.stored import Journal

# So many rewinds of a session are shown with what they left; each takes a fold of its records.
_MOST_REWINDS = 20
_REWOUND = "left behind on purpose, by a rewind"
_SUMMED_UP = "summed up by a compaction"
_LEADS = {LOST: "a resume drops this, ", LEFT: "", COMPACTED: ""}


_SEAM: Row = {
    "place": "",
    "role": "seam",
    "parts": [{"kind": "seam", "text": "compaction: a resume sends a summary, and what follows"}],
}


class Piece(Struct):
    """A piece that a resume does not send, and why; ``behind`` is the record that it hangs on."""

    kind: str
    behind: int
    place: str
    reason: str
    rows: list[Row]


class Timeline(Struct):
    """The rows of a session; ``asides`` says of each piece off the line where its rows stand.

    ``places`` leads from the place of a record to the row that it is shown in.
    """

    rows: list[Row]
    asides: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def row_of(self, place: str) -> int | None:
        """Return the row that a place is shown in; None if it is in none."""
        steps = place.split(".")
        for length in range(len(steps), 0, -1):
            row = self.places.get(".".join(steps[:length]))
            if row is not None:
                return row
        return None


def of_transcript(form: Format, transcript: Transcript, findings: Sequence[Finding]) -> Timeline:
    """Return the timeline of a session of another program."""
    history, records = transcript.history, transcript.records
    known = {(found.code, found.place) for found in findings}
    marks: dict[str, list[Finding]] = {}
    for found in plan_history(history, form.tolerated).findings:
        named = form.named(found, transcript)
        if (named.code, place_in_store(found.place, history, transcript)) in known:
            severity = form.severity(found, transcript)
            marks.setdefault(found.place, []).append(structs.replace(named, severity=severity))
    main = list(messages_as_rows(history, transcript, marks))
    pieces = [
        Piece(
            kind=one.kind,
            behind=one.behind,
            place=records[one.first].place,
            reason=one.reason,
            rows=_rows(one.history, transcript),
        )
        for one in form.asides(transcript)
    ]
    made, homes = _assembled(main, pieces)
    for number, row in homes.items():
        made.places.setdefault(records[number].place, row)
    return made


def _rows(history: History, transcript: Transcript) -> list[Row]:
    return [one.row for one in messages_as_rows(history, transcript, {}) if one.row is not None]


def of_journal(journal: Journal) -> Timeline:
    """Return the timeline of a session of a store of our own, with what rewinds left."""
    main = list(journal_as_rows(journal))
    hidden = [at for at, one in enumerate(main) if one.row and "is_summed_up" in one.row]
    if hidden:
        main.insert(hidden[-1] + 1, Placed([], dict(_SEAM)))
    made, _ = _assembled(main, [*_rewound(journal)])
    seam = next((at for at, row in enumerate(made.rows) if row["role"] == "seam"), 0)
    if seam:
        turns = sum("turn" in row for row in made.rows[:seam])
        piece = Piece(COMPACTED, -1, "1", _SUMMED_UP, made.rows[:seam])
        made.asides.append(_facts(piece, 0, turns))
    return made


def _rewound(journal: Journal) -> Iterator[Piece]:
    """Return what each rewind took out of the conversation."""
    if journal.thread is not None:
        return
    kept = {fact.seq for fact in journal.line()}
    facts = [fact for fact in journal.state.facts.values() if isinstance(fact.event, Rewound)]
    for fact in facts[-_MOST_REWINDS:]:
        before = journal.records[: fact.seq - 1]
        was = structs.replace(journal, records=before, state=fold(before))
        rows = [one.row for one in journal_as_rows(was, fact.parent) if one.row is not None]
        rows = [row for row in rows if row["place"] and int(row["place"]) not in kept]
        if rows:
            yield Piece(LEFT, fact.parent, str(fact.parent + 1), _REWOUND, rows)


def _assembled(main: Sequence[Placed], pieces: Iterable[Piece]) -> tuple[Timeline, dict[int, int]]:
    """Put pieces behind what they hang on; gives also which record is shown in which row."""
    homes = {number: at for at, one in enumerate(main) for number in one.anchors}
    anchors = sorted(homes)
    due: dict[int, list[Piece]] = {}
    for piece in pieces:
        at = bisect_right(anchors, piece.behind)
        home = homes.get(piece.behind, homes[anchors[at - 1]] if at else -1)
        due.setdefault(home if piece.behind >= 0 else -1, []).append(piece)
    made = Timeline([])
    where: dict[int, int] = {}
    for piece in due.get(-1, ()):
        _branch(made, piece)
    for at, one in enumerate(main):
        if one.row is not None:
            _add(made, one.row, 0)
        where |= dict.fromkeys(one.anchors, max(len(made.rows) - 1, 0))
        for piece in due.get(at, ()):
            _branch(made, piece)
    return made, where


def _add(made: Timeline, row: Row, lane: int, **more: Any) -> None:
    if row["place"]:
        made.places.setdefault(row["place"], len(made.rows))
    made.rows.append({**row, "lane": lane, **more})


def _branch(made: Timeline, piece: Piece) -> None:
    """Add a piece that a resume does not send, headed by what it is."""
    number = len(made.asides)
    turns = sum("turn" in row for row in piece.rows)
    made.asides.append(_facts(piece, len(made.rows), turns))
    count = f"{several(turns, 'turn')}, {several(len(piece.rows), 'message')}"
    head = {"kind": "aside", "text": f"{count}: {_LEADS[piece.kind]}{piece.reason}"}
    ends = {"place": "", "role": "aside", "aside": number}
    made.rows.append({**ends, "parts": [head], "lane": 1})
    for row in piece.rows:
        _add(made, {key: value for key, value in row.items() if key != "turn"}, 1, aside=number)
    made.rows[-1]["is_last"] = True
    if piece.kind == COMPACTED:
        made.rows.append({**_SEAM, "lane": 0})


def _facts(piece: Piece, row: int, turns: int) -> Row:
    words = {"kind": piece.kind, "words": piece.reason, "place": piece.place}
    return {**words, "row": row, "messages": len(piece.rows), "turns": turns}
