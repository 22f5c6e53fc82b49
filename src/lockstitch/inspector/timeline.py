"""A whole session as one list of rows: what a resume sends, and where the rest branches off.

Pure. Each row is a message with its parts, and each call has its result, as plain values for JSON.
Rows of the conversation itself have lane 0. Rows of a piece that a resume does not send have lane
1; they come after a row that says what the piece is and, after a compaction, before one that says
where the conversation continues.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field, structs

from lockstitch.conversation.pairing import ANSWER
from lockstitch.conversation.parts import ASSISTANT, RESULT, Place
from lockstitch.dialects.base import as_json
from lockstitch.formats.interface import COMPACTED, LEFT, LOST, Format, History, Transcript
from lockstitch.formats.repair import place_in_store, plan_history
from lockstitch.journal.events import Rewound
from lockstitch.journal.state import ModelReply, Spoken, fold
from lockstitch.rules import Finding
from lockstitch.rules.rule import several
from lockstitch.stored import Journal
from lockstitch.transcript.messages import (
    JournalTranscript,
    MessageTranscript,
    join_results,
    turn_starts,
)

Row = dict[str, Any]
Part = dict[str, Any]
# Where a text is cut if it was not requested in full.
LONGEST = 4000
_LONGEST_TIME = 40


class PlacedRow(Struct):
    """A row with the numbers of the records that it is made from.

    Empty for a row without records.
    """

    anchors: Sequence[int]
    row: Row | None


def messages_as_rows(
    history: History, transcript: Transcript, marks: Mapping[str, Sequence[Finding]]
) -> Iterator[PlacedRow]:
    """Yield the messages of a history; a message of nothing but results is shown with its calls."""
    show = MessageTranscript(history.messages, history.dialect, marks)
    starts = {start: number for number, start in enumerate(turn_starts(show.view), 1)}
    for position, message in enumerate(show.view):
        anchors = [number for number in history.sources[position] if number >= 0]
        is_folded = not message.flaw and all(
            part.kind == RESULT and show.results[id(part)].verdict == ANSWER
            for part in message.parts
        )
        if is_folded and message.parts:
            # only results, which are shown with their calls
            yield PlacedRow(anchors, None)
        else:
            parts = join_results(show.message(message))
            place = place_in_store(Place.in_list("messages", position), history, transcript)
            is_tool = message.role != ASSISTANT and message.has(RESULT)
            role = "tool" if is_tool else message.role
            row: Row = {"place": str(place), "role": role, "parts": parts}
            record = transcript.records[anchors[0]].value if anchors else None
            # the time it was written, in the field that most programs use
            at = record.get("timestamp") if isinstance(record, dict) else None
            row |= {"time": at} if isinstance(at, str) and len(at) < _LONGEST_TIME else {}
            row |= {"turn": starts[position]} if position in starts else {}
            yield PlacedRow(anchors, row)


def journal_as_rows(journal: Journal, behind: int = 0) -> Iterator[PlacedRow]:
    """Yield the rows of a session in a Lockstitch store, or of its part after a record."""
    items, facts = journal.view.items, journal.state.facts
    for place, between, pieces in JournalTranscript(journal).pieces():
        item = items[place] if place < len(items) else None
        is_meant = item is None or item.seq > behind
        marks = join_results(between)
        if marks and is_meant:
            yield PlacedRow([], {"place": "", "role": "between", "parts": marks})
        if item is None:
            break
        parts = join_results(pieces)
        turn = next((part["number"] for part in parts if part["kind"] == "turn"), None)
        parts = [part for part in parts if part["kind"] != "turn"]
        if parts and is_meant:
            role = "user" if isinstance(item, Spoken) else "tool"
            role = "assistant" if isinstance(item, ModelReply) else role
            row: Row = {"place": str(item.seq), "role": role, "parts": parts}
            row |= {"time": facts[item.seq].at} if item.seq in facts else {}
            row |= {"is_summed_up": True} if journal.view.hides(item.seq) else {}
            yield PlacedRow([item.seq], row if turn is None else row | {"turn": turn})


def shorten_row(row: Row, *, full: bool = False) -> Row:
    """Return a row with its long texts cut; ``more`` says how many characters are left out."""
    most = None if full else LONGEST
    return {**row, "parts": [_cut(part, most) for part in row["parts"]]}


def _cut(part: Part, most: int | None) -> Part:
    part = {**part, "text": part.get("text", "")}
    part["text"], more = _beginning(part["text"], most)
    if "result" in part:
        part["result"] = _cut(part["result"], most)
    arguments = part.get("arguments")
    if arguments is not None:
        fields = arguments.items() if isinstance(arguments, dict) else [("", arguments)]
        texts = [
            (str(key), value if isinstance(value, str) else as_json(value)) for key, value in fields
        ]
        pairs = [(key, *_beginning(text, most)) for key, text in texts]
        part["arguments"] = [[key, text] for key, text, _ in pairs]
        more += sum(left for _, _, left in pairs)
    return {**part, "more": more} if more else part


def _beginning(text: str, most: int | None) -> tuple[str, int]:
    return text[:most], max(len(text) - most, 0) if most else 0


# How many rewinds of a session to show with what they removed; each takes a fold of its records.
_MOST_REWINDS = 20
_REWOUND = "left behind on purpose, by a rewind"
_SUMMED_UP = "summarized by a compaction"
_LEADS = {LOST: "a resume drops this, ", LEFT: "", COMPACTED: ""}


_SEAM: Row = {
    "place": "",
    "role": "seam",
    "parts": [{"kind": "seam", "text": "compaction: a resume sends a summary, and what follows"}],
}


class OffLine(Struct):
    """A piece that a resume does not send, and why; ``behind`` is the record that it follows."""

    kind: str
    behind: int
    place: str
    reason: str
    rows: list[Row]


class Timeline(Struct):
    """The rows of a session; ``asides`` says where the rows of each piece off the line are.

    ``places`` maps the place of a record to the row that shows it.
    """

    rows: list[Row]
    asides: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def row_of(self, place: str) -> int | None:
        """Return the row that shows a place; None if no row does."""
        steps = place.split(".")
        for length in range(len(steps), 0, -1):
            row = self.places.get(".".join(steps[:length]))
            if row is not None:
                return row
        return None


def transcript_timeline(
    form: Format, transcript: Transcript, findings: Sequence[Finding]
) -> Timeline:
    """Return the timeline of another program's session."""
    history, records = transcript.history, transcript.records
    known = {(found.code, found.place) for found in findings}
    marks: dict[str, list[Finding]] = {}
    for found in plan_history(history, form.tolerated, to_write=False).findings:
        named = form.named(found, transcript)
        if (named.code, str(place_in_store(found.at, history, transcript))) in known:
            severity = form.severity(found, transcript)
            marks.setdefault(found.place, []).append(structs.replace(named, severity=severity))
    main = list(messages_as_rows(history, transcript, marks))
    pieces = [
        OffLine(
            kind=one.kind,
            behind=one.behind,
            place=records[one.first].place,
            reason=one.reason,
            rows=_rows(one.history, transcript),
        )
        for one in form.asides(transcript)
    ]
    made, homes = _assemble(main, pieces)
    for number, row in homes.items():
        made.places.setdefault(records[number].place, row)
    return made


def _rows(history: History, transcript: Transcript) -> list[Row]:
    return [one.row for one in messages_as_rows(history, transcript, {}) if one.row is not None]


def journal_timeline(journal: Journal) -> Timeline:
    """Return the timeline of a session in a Lockstitch store, with what rewinds removed."""
    main = list(journal_as_rows(journal))
    hidden = [at for at, one in enumerate(main) if one.row and "is_summed_up" in one.row]
    if hidden:
        main.insert(hidden[-1] + 1, PlacedRow([], dict(_SEAM)))
    made, _ = _assemble(main, [*_rewound(journal)])
    seam = next((at for at, row in enumerate(made.rows) if row["role"] == "seam"), 0)
    if seam:
        turns = sum("turn" in row for row in made.rows[:seam])
        piece = OffLine(COMPACTED, -1, "1", _SUMMED_UP, made.rows[:seam])
        made.asides.append(_facts(piece, 0, turns))
    return made


def _rewound(journal: Journal) -> Iterator[OffLine]:
    """Yield what each rewind removed from the conversation."""
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
            yield OffLine(LEFT, fact.parent, str(fact.parent + 1), _REWOUND, rows)


def _assemble(
    main: Sequence[PlacedRow], pieces: Iterable[OffLine]
) -> tuple[Timeline, dict[int, int]]:
    """Insert pieces after the records they follow; return also which row shows which record."""
    homes = {number: at for at, one in enumerate(main) for number in one.anchors}
    anchors = sorted(homes)
    due: dict[int, list[OffLine]] = {}
    for piece in pieces:
        at = bisect_right(anchors, piece.behind)
        home = homes.get(piece.behind, homes[anchors[at - 1]] if at else -1)
        due.setdefault(home if piece.behind >= 0 else -1, []).append(piece)
    made = Timeline([])
    where: dict[int, int] = {}
    for piece in due.get(-1, ()):
        _add_off_line(made, piece)
    for at, one in enumerate(main):
        if one.row is not None:
            _add(made, one.row, 0)
        where |= dict.fromkeys(one.anchors, max(len(made.rows) - 1, 0))
        for piece in due.get(at, ()):
            _add_off_line(made, piece)
    return made, where


def _add(made: Timeline, row: Row, lane: int, **more: Any) -> None:
    if row["place"]:
        made.places.setdefault(row["place"], len(made.rows))
    made.rows.append({**row, "lane": lane, **more})


def _add_off_line(made: Timeline, piece: OffLine) -> None:
    """Add a piece that a resume does not send, under a heading that says what it is."""
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


def _facts(piece: OffLine, row: int, turns: int) -> Row:
    words = {"kind": piece.kind, "words": piece.reason, "place": piece.place}
    return {**words, "row": row, "messages": len(piece.rows), "turns": turns}
