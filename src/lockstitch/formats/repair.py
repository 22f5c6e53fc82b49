"""The one repair procedure: what is wrong with a stored session, and the records that repair it.

The order is the same for every format: first the bytes, then the graph, then results that survived
elsewhere, then the history, with the one repair engine. Then the outcome is parsed and checked like
any other session. If it is no better, nothing changes.

Nothing changes either if a repair would remove most of the session: then a rule is wrong, or the
session is not what it was taken for. Content that is stored twice counts once, so a repair may
remove a second copy. Pictures do not count, since they are removed only on request.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from lockstitch.conversation import json_text
from lockstitch.conversation.parts import CALL, RESULT, TEXT, USER, Path, Place, repr_without
from lockstitch.dialects import ANTHROPIC
from lockstitch.dialects.profiles import new_dialect, profile_named
from lockstitch.errors import Unreadable
from lockstitch.files import read
from lockstitch.formats.interface import (
    LINES,
    NEW,
    Context,
    Format,
    History,
    Transcript,
    new_finding,
    parts_of,
    trace_sources,
)
from lockstitch.formats.records import (
    BOM,
    DOCUMENT,
    JSON,
    NUL,
    TORN,
    DecodeLine,
    Record,
    encode_record,
    read_document,
    read_lines,
    record_bytes,
    write_lines,
)
from lockstitch.formats.tables import Row
from lockstitch.repair.draft import Change, Ledger, Quarantined, RepairedMessage
from lockstitch.repair.edits import diff
from lockstitch.repair.plan import Plan
from lockstitch.rules import ERROR, NOTE, RULES, Finding

_ROUNDS = 12
UNREAD = "LS613"
# How often a session is repaired again, as long as that uncovers more to repair.
_PASSES = 8
# Fixes that remove what a tool or a person showed the model; made only on request.
LOSSY = frozenset({"LS501", "LS502", "LS504"})
# The action of a change that takes a turn off the end.
ROLLED_BACK = "rolled back"
_STORAGE = {
    "LS601": "{size} bytes are the torn rest of a record",
    "LS602": "a record is on the same line as the one before it",
    "LS603": "{size} bytes hold NUL bytes",
    "LS604": "the file starts with a byte order mark",
    "LS605": "the record holds bytes that are not UTF-8",
    "LS606": "the line is JSON, but not a record",
    "LS608": "the last record has no line break after it",
    "LS609": "the record holds raw control characters",
    "LS612": "the record is spread over several lines",
    "LS613": "a value is valid JSON, but too long or too deep to be read here; it stays as it is",
}
_ADVICE = (
    "nothing was changed. If that is what you want, --strategy rollback and --force-cleanup "
    "remove what is broken; otherwise please report it, with the codes of the findings"
)
_NO_WORDS = frozenset({"data", "url", "image_url", "file_data", "bytes", "signature"})
# A long record counts no more than this: what matters is how many are removed.
_RECORD = 500


class RepairOptions(Struct, frozen=True):
    """How to repair; ``notes`` says that a note alone is reason enough for a repair."""

    strategy: str = "close"
    lossy: bool = False
    force_cleanup: bool = False
    notes: bool = False

    def calls_for_repair(self, transcript: Transcript, findings: Sequence[Finding]) -> bool:
        """Whether a session with these findings needs anything done."""
        return transcript.forced or any(
            finding.fixable and (self.notes or finding.severity != NOTE) for finding in findings
        )


class RepairPlan(Struct):
    """The outcome of a repair: the new records, what was done, what is left.

    ``data`` is the repaired file; it is empty for a session in a database, and if nothing changes.
    """

    before: Transcript
    after: Transcript
    findings: list[Finding]
    remaining: list[Finding]
    changes: list[Change]
    quarantine: list[Quarantined]
    data: bytes = b""

    __repr__ = repr_without("before", "after", "data")

    @property
    def changed(self) -> bool:
        """Whether any record differs."""
        return self.after is not self.before


# Reading


def parse_file(
    form: Format, kind: str, path: str, data: bytes, slim: DecodeLine | None = None
) -> Transcript:
    """Parse the bytes of a session's file; raise Unreadable if they hold nothing of a session."""
    is_packed = data[: len(read.ZSTD_MAGIC)] == read.ZSTD_MAGIC
    held = read.unpack(data) if is_packed else read.Unpacked(data, whole=True)
    if kind == LINES:
        records = read_lines(held.data, form.is_record, slim)
    else:
        records = read_document(held.data, form.lists)
    if not held.whole:
        # a packed file that breaks off is marked by a torn piece without any bytes
        place, end = (records[-1].place if records else "1"), len(held.data)
        records.append(Record(place, None, TORN, end, end, b"", codes=("LS601",)))
    name = os.path.basename(path).removesuffix(read.ZSTD_SUFFIX)  # noqa: PTH119 - start-up time
    transcript = form.parse(records, Context(held.data, name, form.beside(path)))
    require_records(form, kind, transcript)
    return transcript


def require_records(form: Format, kind: str, transcript: Transcript) -> None:
    """Raise Unreadable if a file of lines holds nothing of the session expected in it."""
    if kind != LINES or transcript.history.messages:
        return
    if any(record.is_record and form.is_record(record.value) for record in transcript.records):
        return
    data = transcript.context.data
    held = "it holds no record that can be read"
    if not data[: 1 << 18].strip(b"\0"):
        held = "it holds nothing but NUL bytes" if data else "it is empty"
    raise Unreadable(f"{held}: nothing of a session of {form.title} is left in it")


# Checking


def findings_in(form: Format, transcript: Transcript) -> list[Finding]:
    """Return everything that is wrong with a session, in the order of its places."""
    return _examine(form, transcript)[0]


def _examine(form: Format, transcript: Transcript) -> tuple[list[Finding], Plan]:
    """Return everything that is wrong with a session, and the plan for its history."""
    history = transcript.history
    plan = plan_history(history, form.tolerated, to_write=False)
    stored = [
        new_finding(code, record.place, _storage_message(code, record))
        for record in transcript.records
        for code in record.codes
    ]
    found = [
        structs.replace(one, place=one.at, severity=form.stored_severity(one, transcript))
        for one in (*stored, *transcript.findings)
    ]
    found += [
        structs.replace(one, place=place_in_store(one.at, history, transcript))
        for one in findings_in_history(form, transcript, plan)
    ]
    return sorted(found, key=lambda finding: (finding.at.order, finding.code)), plan


def _storage_message(code: str, record: Record) -> str:
    if record.kind == TORN and not record.size:
        return "the packed file breaks off after this line"
    return _STORAGE[code].format(size=record.size)


def findings_in_history(
    form: Format, transcript: Transcript, plan: Plan | None = None
) -> list[Finding]:
    """Return what is wrong with what a resume sends, each with its place in the messages.

    Calls that wait for a person are not wrong. ``plan`` is that of the history, if there is one.
    """
    history = transcript.history
    if plan is None:
        plan = plan_history(history, form.tolerated, to_write=False)
    named = (form.named(finding, transcript) for finding in plan.findings)
    found = [finding for finding in named if finding.code not in form.tolerated]
    if transcript.waiting:
        views = new_dialect(history.dialect).read(history.messages)
        batches = [number for number, view in enumerate(views) if view.has(CALL)]
        last = max(batches, default=len(views))
        # the last batch of calls, and whatever follows it, is what the person answers
        places = [len(views) if one.at.message is None else one.at.message for one in found]
        found = [
            structs.replace(one, place=one.at, fixable=False)
            for one, number in zip(found, places, strict=True)
            if number < last
        ]
    for number, one in enumerate(found):
        text = one.help
        if form.dialect and text.startswith("heal "):
            # heal is for lists on their way out, but this one is stored
            text = f"repair {text.removeprefix('heal ')}"
        severity = form.severity(one, transcript)
        found[number] = structs.replace(one, place=one.at, severity=severity, help=text)
    return found


def plan_history(
    history: History, spared: frozenset[str], *, to_write: bool = True, plan: Plan | None = None
) -> Plan:
    """Return the repair plan of a history as it will be sent, followed by the next prompt.

    Without ``to_write`` only the findings matter, and a repair is not worked out if that can be
    avoided. With it, the messages can be stored: none of them contains the prompt. ``plan`` is one
    that was made without it.
    """
    end = len(history.messages)
    if history.body is not None:
        key = profile_named(history.dialect).list_key
        body = {**history.body, key: history.messages}
        return plan or Plan(body, history.dialect, spared=spared)
    dialect, model = history.dialect, history.model
    if plan is None:
        sent = history.messages
        plan = Plan(sent, dialect, model=model, stored=True, resumed=True, spared=spared)
        if not to_write and all((one.at.message or 0) < end - 1 for one in plan.findings):
            return plan
    is_same = plan.count == end or not plan.outcome.changed
    if is_same or any(one.origin == end and not one.parts for one in plan.repaired):
        return plan
    # The prompt was merged into the message before it, which would keep it for good.
    return Plan(history.messages, dialect, model=model, stored=True, spared=spared)


def place_in_store(place: Place, history: History, transcript: Transcript) -> Place:
    """Return the place in the store of a place in a history."""
    number, path = history.home(place)
    if number == NEW:
        return Place((1,))
    record = transcript.records[number]
    if record.kind != DOCUMENT:
        line = record.place
        home: Path = (int(line),) if line.isdecimal() else Place.parse(line).steps
        return Place(tuple(step for step in (*home, *path) if step != ""))
    index = place.message
    if index is not None and not place.path and index < len(history.paths):
        # for a whole message: its own path in the document, not that of its first part
        paths = history.paths[index]
        first: Path = paths[0] if paths else ()
        path = (first[:-2] if first[-2:-1] == ("content",) else first) or path
    bare = bool(path) and type(path[0]) is int
    listed = (profile_named(history.dialect).list_key,) if bare else ()
    return Place((*listed, *path))


# Repairing


def plan_repair(form: Format, transcript: Transcript, options: RepairOptions) -> RepairPlan:
    """Work out the repair of a session; ``changed`` is false if nothing has to be done.

    One repair can uncover what only the next one finds, so repairs go on until there is nothing to
    do, or nothing that helps.
    """
    if transcript.waiting and options.force_cleanup:
        transcript = form.forced(transcript)
    findings, plan = _examine(form, transcript)
    unchanged = RepairPlan(transcript, transcript, findings, findings, [], [])
    is_due = options.calls_for_repair(transcript, findings)
    if transcript.waiting or transcript.sealed or not is_due:
        return unchanged
    repaired, best, left, ledger = transcript.context.data, transcript, findings, Ledger([], [])
    states = [(repaired, transcript, findings, 0, 0)]
    for _ in range(_PASSES):
        done = Ledger([], [])
        after = _repair_once(form, best, plan, options, done)
        remaining = left
        if after is not best:
            remaining, plan = _examine(form, after)
        if options.force_cleanup and any(one.severity == ERROR for one in remaining):
            after = _keep_valid_beginning(form, after, done)
            remaining, plan = _examine(form, after)
        errors = (sum(one.severity == ERROR for one in found) for found in (remaining, left))
        if after is best or next(errors) > next(errors):
            break
        is_file = bool(transcript.context.data)
        data = write_lines(transcript.context.data, after.records) if is_file else b""
        known = [one for one in states if one[0] == data and (data or _are_equal(one[1], after))]
        if known:
            # The repair goes in a circle, so whatever was done since this state is forgotten.
            repaired, best, left, noted, kept = known[0]
            del ledger.changes[noted:], ledger.quarantine[kept:]
            break
        repaired, best, left = data, after, remaining
        ledger.changes += done.changes
        ledger.quarantine += done.quarantine
        states.append((data, best, left, len(ledger.changes), len(ledger.quarantine)))
        if after.sealed or not options.calls_for_repair(after, remaining):
            break
    if best is transcript:
        return unchanged
    is_cut = options.force_cleanup or options.strategy == "rollback"
    is_unread = any(one.code == UNREAD for one in findings)
    why = unread_refusal(transcript, best) if is_unread else ""
    why = why or ("" if is_cut else loss_refusal(transcript, best))
    if why:
        held = structs.replace(transcript, notes=[*transcript.notes, why])
        return RepairPlan(held, held, findings, findings, [], [])
    _name_other_changes(transcript, best, ledger)
    changes, quarantine = ledger.changes, ledger.quarantine
    return RepairPlan(transcript, best, findings, left, changes, quarantine, repaired)


def _are_equal(old: Transcript, new: Transcript) -> bool:
    """Whether two states of rows, which have no bytes to compare, hold the same values."""
    return len(old.records) == len(new.records) and all(
        one.value == other.value for one, other in zip(old.records, new.records, strict=True)
    )


def _parse_again(form: Format, origin: Transcript, records: Sequence[Record]) -> Transcript:
    """Return changed records, parsed; the transcript itself if no record changed."""
    old = origin.records
    if [*map(id, records)] == [*map(id, old)]:
        return origin
    return form.parse(records, origin.context)


def _repair_once(
    form: Format, transcript: Transcript, plan: Plan, options: RepairOptions, ledger: Ledger
) -> Transcript:
    """Repair the bytes, the graph and the history; ``plan`` is for the history as it is."""
    # remove pieces that are not records, and give every record its own line
    kept: list[Record] = []
    for record in transcript.records:
        if record.codes:
            _note_cleaned(transcript, record, ledger)
        if record.kind in (BOM, NUL, TORN) or (record.kind == JSON and not record.is_record):
            if b"\n" in record.ending and kept and b"\n" not in kept[-1].ending:
                kept[-1] = structs.replace(kept[-1], ending=record.ending)
            continue
        left = tuple(code for code in record.codes if code == UNREAD) if record.codes else ()
        kept.append(record if left == record.codes else structs.replace(record, codes=left))
    for number, record in enumerate(kept):
        if record.kind == JSON and b"\n" not in record.ending:
            kept[number] = structs.replace(record, ending=b"\n")
    after = _parse_again(form, transcript, kept)
    for _ in range(_ROUNDS + len(after.findings)):
        linked = _parse_again(form, after, form.repair_tree(after, ledger))
        if linked is after:
            break
        after = linked
    if options.strategy == "rollback":
        after = _roll_back(form, after, ledger)
    history = _insert_evidence(after, form.survived, ledger) if after.evidence else after.history
    known = plan if history is transcript.history else None
    plan = plan_history(history, form.tolerated, plan=known)
    lossy = frozenset(f.code for f in plan.findings if f.lossy and f.code in LOSSY)
    if lossy and not options.lossy:
        plan = plan_history(history, form.tolerated | lossy)
    if not plan.outcome.healed or (not plan.outcome.changed and history is after.history):
        return after
    repaired = trace_sources(history, plan.repaired)
    take_over_changes(plan, history, after, ledger)
    records = form.write_back(after, repaired, ledger)
    if history.body is not None:
        key = profile_named(history.dialect).list_key
        rest = {name: value for name, value in plan.plain.items() if name != key}
        records = form.write_request(after, records, rest)
    return _parse_again(form, after, records)


def _note_cleaned(transcript: Transcript, record: Record, ledger: Ledger) -> None:
    """Record what is done about a record whose bytes are damaged."""
    for code in dict.fromkeys(record.codes):
        if code == UNREAD:
            continue
        rule = RULES[code]
        gone = record.kind in (TORN, NUL) or code == "LS606"
        action = "removed" if gone or record.kind == BOM else "rewritten"
        ledger.note(rule, action, record.place, _storage_message(code, record))
        if record.size and (gone or code in ("LS605", "LS603")):
            raw = transcript.context.data[record.start : record.end]
            text = f"NUL * {len(raw)}"
            if record.kind != NUL:
                text = raw.decode("utf-8", "backslashreplace")
            ledger.set_aside(rule, record.place, text, len(raw))


def take_over_changes(plan: Plan, history: History, transcript: Transcript, ledger: Ledger) -> None:
    """Copy the engine's ledger into that of the file, with places in the file."""
    for change in plan.outcome.changes:
        place = place_in_store(change.at, history, transcript)
        ledger.changes.append(structs.replace(change, place=place))
    for kept in plan.outcome.quarantine:
        place = place_in_store(kept.at, history, transcript)
        ledger.quarantine.append(structs.replace(kept, place=place))


def _name_other_changes(before: Transcript, after: Transcript, ledger: Ledger) -> None:
    """Add a change for every changed record that no change names yet, so that all are shown."""
    # a change names a record by its line, or by table and key, followed by the path inside it
    steps = (change.place.split(".") for change in ledger.changes)
    named = {".".join(row[:length]) for row in steps for length in range(1, len(row) + 1)}
    new = {record.start: record for record in after.records if record.start >= 0}
    code = ledger.changes[0].code if ledger.changes else "LS610"
    for record in before.records:
        now = new.get(record.start)
        if (now is not None and now.fresh is record.fresh) or record.place in named:
            continue
        if now is None:
            if record.is_record and before.context.data:
                note = "the record was removed to match the other changes"
                change = Change(code=code, action="removed", place=record.place, note=note)
                ledger.changes.append(change)
            continue
        if record.kind == DOCUMENT and ledger.changes:
            continue
        # amended fields are known; if one is a list or an object, compare the values
        paths = [path for path in dict.fromkeys(now.amended) if len(path) == 1]
        fields = [str(path[0]) for path in paths if type(now.value[path[0]]) not in (dict, list)]
        if not fields or len(fields) < len(now.amended):
            fields = [edit.place for edit in diff(record.value, now.value)]
        elif type(record.value) is dict:
            # a field may have been amended twice, back to what it was
            old = record.value
            fields = [name for name in fields if name not in old or old[name] != now.value[name]]
        for name in fields:
            note = "the record was updated to match the other changes"
            place = f"{record.place}.{name}"
            ledger.changes.append(Change(code=code, action="adjusted", place=place, note=note))


def _insert_evidence(transcript: Transcript, code: str, ledger: Ledger) -> History:
    """Return the history with surviving results inserted after calls without a real one."""
    history, evidence = transcript.history, transcript.evidence
    dialect = new_dialect(history.dialect)
    views = dialect.read(history.messages)
    parts = [part for view in views for part in view.parts if part.id]
    real = {p.id for p in parts if p.kind == RESULT and not dialect.is_placeholder(p)}
    wanted = ({part.id for part in parts if part.kind == CALL} - real) & evidence.keys()
    if not wanted:
        return history
    grown = History(history.dialect, [], [], [], history.model, history.body)
    for number, view in enumerate(views):
        grown.add(history.messages[number], history.sources[number], history.paths[number])
        for part in view.parts:
            if part.kind == CALL and part.id in wanted:
                wanted.discard(part.id)
                place = place_in_store(Place.in_list("messages", number), history, transcript)
                text = f"the result of call {part.id} was restored from where it survived"
                ledger.note(RULES[code], "brought back", place, text)
                message = evidence[str(part.id)]
                if history.dialect == ANTHROPIC:
                    message = {"role": "user", "content": [message]}
                grown.add(message, [NEW], [()])
    return grown


def _roll_back(form: Format, transcript: Transcript, ledger: Ledger) -> Transcript:
    """Go back to the end of the last whole turn before the first error, if there is one."""
    plan = plan_history(transcript.history, form.tolerated, to_write=False)
    broken = [f for f in plan.findings if f.severity == ERROR and f.code not in form.tolerated]
    if not broken:
        return transcript
    first = min(finding.at.message or 0 for finding in broken)
    start = max((n for n in _turn_starts(transcript.history) if n <= first), default=0)
    return _keep_until(form, transcript, start, ledger) if start else transcript


def _keep_valid_beginning(form: Format, transcript: Transcript, ledger: Ledger) -> Transcript:
    """Keep the longest beginning of whole turns that is proven valid."""
    history = transcript.history
    for start in reversed(_turn_starts(history)):
        kept = structs.replace(history, messages=history.messages[:start])
        plan = plan_history(kept, form.tolerated, to_write=False)
        if not any(finding.severity == ERROR for finding in plan.findings):
            return _keep_until(form, transcript, start, ledger)
    return transcript


def _turn_starts(history: History) -> list[int]:
    """Return the numbers of the messages that open a turn: user messages without results."""
    views = new_dialect(history.dialect).read(history.messages)
    return [n for n, view in enumerate(views) if view.role == USER and not view.has(RESULT)]


def _keep_until(form: Format, transcript: Transcript, start: int, ledger: Ledger) -> Transcript:
    """Drop a message, and all after it, from the conversation."""
    history = transcript.history
    rule = RULES["LS101"]
    for number in range(start, len(history.messages)):
        place = place_in_store(Place.in_list("messages", number), history, transcript)
        ledger.note(rule, ROLLED_BACK, place, "removed from the end of the conversation")
        ledger.set_aside(rule, place, history.messages[number])
    kept = [RepairedMessage(message, n) for n, message in enumerate(history.messages[:start])]
    repaired = trace_sources(history, kept)
    records = form.write_back(transcript, repaired, ledger)
    return _parse_again(form, transcript, records)


def file_bytes(transcript: Transcript) -> bytes:
    """Return the bytes of the file that holds a transcript."""
    return write_lines(transcript.context.data, transcript.records)


# Refusing


def unread_refusal(before: Transcript, after: Transcript) -> str:
    """Return why a repair that would touch unreadable values is refused; empty if none would.

    A line or a row with such a value has to keep all its bytes; in a document only the value has
    to.
    """
    kept: set[bytes] | None = None
    for record in before.records:
        if not record.codes or UNREAD not in record.codes:
            continue
        if kept is None:
            kept = {piece for one in after.records for piece in _unread_pieces(after, one)}
        if not kept.issuperset(_unread_pieces(before, record)):
            return (
                f"a repair would have to change {record.place}, which holds a value that is valid "
                "JSON but cannot be read here, so nothing was changed; shorten that value by hand "
                "if it is not needed, then repair again"
            )
    return ""


def _unread_pieces(transcript: Transcript, record: Record) -> Iterable[bytes]:
    if record.kind == DOCUMENT:
        return json_text.raw_pieces(record.value)
    if UNREAD not in record.codes:
        return ()
    if isinstance(record, Row):
        return (record.text.encode(),)
    return (record_bytes(transcript.context.data, record),)


def loss_refusal(before: Transcript, after: Transcript) -> str:
    """Return why a repair that would leave less than half is refused; empty if it is not."""
    # If everything that was sent is still the same object, nothing is lost and counting is not
    # needed. A message that is one part is compared by its values: a format may wrap them again as
    # it parses.
    dialect = new_dialect(before.history.dialect)
    said, there = (
        {
            tuple(map(id, part.values())) if part is message and type(part) is dict else id(part)
            for message in one.history.messages
            for part in parts_of(message)
        }
        for one in (before, after)
    )
    if said <= there and any(
        word
        for message in before.history.messages
        for part in dialect.read([message])[0].parts
        if part.kind in (TEXT, CALL)
        for word in _texts_in(part.raw)
    ):
        return ""
    # count words, calls and results, but not placeholders
    sides = (
        [part for view in dialect.read(one.history.messages) for part in view.parts]
        for one in (before, after)
    )
    had, kept = (
        sum(map(len, {word for part in side for word in _texts_in(part.raw)}))
        for side in (
            [
                part
                for part in side
                if part.kind in (TEXT, CALL)
                or (part.kind == RESULT and not dialect.is_placeholder(part))
            ]
            for side in sides
        )
    )
    if 2 * kept < had:
        return (
            f"a repair would remove {had - kept} of {had} characters from what is sent: {_ADVICE}"
        )
    if had and kept >= had:
        return ""
    # the share of records that are removed without a copy that stays
    stay = {(record.place, record.start) for record in after.records}
    records = [record for record in before.records if record.is_record]
    gone = [record for record in records if (record.place, record.start) not in stay]
    if 2 * sum(map(_weight, gone)) <= sum(map(_weight, records)):
        return ""
    copies = {encode_record(record.value) for record in after.records if record.is_record}
    weights = {encode_record(record.value): _weight(record) for record in records}
    lost = sum(weight for value, weight in weights.items() if value not in copies)
    changed = sum(_weight(record) for record in after.records if record.fresh is not None)
    share = max(lost - changed, 0) / (sum(weights.values()) or 1)
    if 2 * share > 1:
        return f"a repair would remove {share:.0%} of the records: {_ADVICE}"
    return ""


def _weight(record: Record) -> int:
    return min(max(record.size, 1), _RECORD)


def _texts_in(value: Any) -> Iterator[str]:
    """Yield all texts in a value, at any depth, in no particular order."""
    rest = [value]
    while rest:
        one = rest.pop()
        if type(one) is str:
            yield one
        elif type(one) is list:
            rest += one
        elif type(one) is dict:
            rest += [inner for key, inner in one.items() if key not in _NO_WORDS]
