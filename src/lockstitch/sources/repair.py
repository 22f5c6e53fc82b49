"""The doctor: what is wrong with a stored session, and the records that mend it.

The order is the same for every format: the bytes first, then the graph, then results that
survived elsewhere, then the history by the one repair engine; and at last the outcome is read
again from its own bytes and judged like any other session. If it got no better, or if most of the
session would be gone, nothing changes.

How much of a session a repair would take away, and the refusal of one that takes most of it.

Whatever the rules say, a session of which most is gone is not repaired: a rule is wrong about it,
or it is not the session that it was taken for. What stands twice counts once, so that a repair may
take a second copy out; pictures do not count, since they go only if somebody asks for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from lockstitch.conversation import json_text
from lockstitch.conversation.json_text import is_index
from lockstitch.conversation.parts import ASSISTANT, CALL, RESULT, TEXT, USER, Message, Path
from lockstitch.dialects import ANTHROPIC
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import new_dialect
from lockstitch.formats.history import NEW, History, trace_sources
from lockstitch.heal import Plan, plan_request, plan_stored
from lockstitch.repair.draft import Change, Ledger, Quarantined
from lockstitch.repair.edits import diff
from lockstitch.rules import ERROR, NOTE, RULES, Finding
from lockstitch.sources import records as lines
from lockstitch.sources.interface import Context, Format, Transcript, new_finding
from lockstitch.sources.records import (
    BOM,
    DOCUMENT,
    JSON,
    NUL,
    TORN,
    Record,
    encode_record,
    record_bytes,
)
from lockstitch.sources.tables import Row

_ADVICE = (
    "nothing was changed. If that is what you want, --strategy rollback and --force-cleanup take "
    "off what is broken; else please report it, with the codes of the findings"
)
_NO_WORDS = frozenset({"data", "url", "image_url", "file_data", "bytes", "signature"})
# A record counts as much as a short one: what matters is how many go.
_RECORD = 500


def loss_refusal(before: Transcript, after: Transcript) -> str:
    """Return why a repair is refused that would leave less than half; empty if it is not."""
    had, kept = _characters_sent(before.history), _characters_sent(after.history)
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
    if "LS613" not in record.codes:
        return ()
    if isinstance(record, Row):
        return (record.text.encode(),)
    return (record_bytes(transcript.context.data, record),)


def _characters_sent(history: History) -> int:
    """Return how many characters of words, calls and results are sent, but for placeholders."""
    dialect = new_dialect(history.dialect)
    parts = (
        part
        for view in dialect.read(history.messages)
        for part in view.parts
        if part.kind in (TEXT, CALL) or (part.kind == RESULT and not dialect.is_placeholder(part))
    )
    return sum(map(len, {word for part in parts for word in _texts_in(part.raw)}))


def _texts_in(value: Any) -> Iterator[str]:
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
    copies = {encode_record(record.value) for record in after.records if record.is_record}
    weights = {encode_record(record.value): _weight(record) for record in records}
    lost = sum(weight for value, weight in weights.items() if value not in copies)
    changed = sum(_weight(record) for record in after.records if record.fresh is not None)
    return max(lost - changed, 0) / (sum(weights.values()) or 1)


def _weight(record: Record) -> int:
    return min(max(record.size, 1), _RECORD)


_ROUNDS = 12
UNREAD = "LS613"
# How often a session is repaired anew, as long as that uncovers more to repair.
_PASSES = 8
# Fixes that take away what a tool or a person showed the model; only when asked for.
LOSSY = frozenset({"LS501", "LS502", "LS504"})
_SAID = {
    "LS601": "{size} bytes are the torn rest of a record",
    "LS602": "a record is glued to the one before it",
    "LS603": "{size} bytes hold NUL bytes",
    "LS604": "the file starts with a byte order mark",
    "LS605": "the record holds bytes that are not UTF-8",
    "LS606": "the line is JSON, but not a record",
    "LS608": "the last record has no line break after it",
    "LS609": "the record holds raw control characters",
    "LS612": "the record is spread over several lines",
    "LS613": "a value is valid JSON, but too long or too deep to be read here; it stays as it is",
}

# What a change says of a turn that was taken off the end.
ROLLED_BACK = "rolled back"


class RepairOptions(Struct, frozen=True):
    """How a repair is to be made; ``notes`` says that a note alone is reason enough for one."""

    strategy: str = "close"
    lossy: bool = False
    force_cleanup: bool = False
    notes: bool = False


class RepairPlan(Struct):
    """What a repair comes to: the new records, what was done, what is left."""

    before: Transcript
    after: Transcript
    findings: list[Finding]
    remaining: list[Finding]
    changes: list[Change]
    quarantine: list[Quarantined]

    @property
    def changed(self) -> bool:
        """Tell whether any record differs."""
        return self.after is not self.before


def findings_in(form: Format, transcript: Transcript) -> list[Finding]:
    """Say everything that is wrong with a session, in the order of its places."""
    stored = [*_storage_findings(transcript.records), *transcript.findings]
    found = [
        *(structs.replace(f, severity=form.stored_severity(f, transcript)) for f in stored),
        *_history_findings(form, transcript),
    ]
    return sorted(found, key=lambda finding: (finding.at.order, finding.code))


def _storage_findings(records: Sequence[Record]) -> list[Finding]:
    return [
        new_finding(code, record.place, _storage_message(code, record))
        for record in records
        for code in record.codes
    ]


def _storage_message(code: str, record: Record) -> str:
    if record.kind == TORN and not record.size:
        return "the packed file breaks off after this line"
    return _SAID[code].format(size=record.size)


def _history_findings(form: Format, transcript: Transcript) -> list[Finding]:
    history = transcript.history
    return [
        structs.replace(finding, place=place_in_store(finding.place, history, transcript))
        for finding in findings_in_history(form, transcript)
    ]


def findings_in_history(form: Format, transcript: Transcript) -> list[Finding]:
    """Return what is wrong with what a resume sends, each by its place in the messages.

    What waits for a person is not wrong.
    """
    history = transcript.history
    plan = plan_history(history, form.tolerated)
    found = (form.named(finding, transcript) for finding in plan.findings)
    if transcript.waiting:
        views = new_dialect(history.dialect).read(history.messages)
        batches = [number for number, view in enumerate(views) if view.has(CALL)]
        last = max(batches, default=len(views))
        found = (_unfixable(finding) for finding in found if not _is_asked(finding, last, views))
    return [
        structs.replace(
            finding, severity=form.severity(finding, transcript), help=_help(form, finding.help)
        )
        for finding in found
        if finding.code not in form.tolerated
    ]


def _help(form: Format, text: str) -> str:
    """Return what helps with the session of a program: heal is for lists on their way out."""
    is_heal = bool(form.dialect) and text.startswith("heal ")
    return f"repair {text.removeprefix('heal ')}" if is_heal else text


def _is_asked(finding: Finding, last: int, views: Sequence[Message]) -> bool:
    """Whether a finding is on the last batch of calls, or behind it: what a person answers."""
    steps = finding.place.split(".")
    number = int(steps[1]) if len(steps) > 1 and is_index(steps[1]) else len(views)
    return number >= last


def _unfixable(finding: Finding) -> Finding:
    return structs.replace(finding, fixable=False)


def plan_history(history: History, spared: frozenset[str]) -> Plan:
    """Plan the repair of a history as it will be sent: behind it comes the next prompt."""
    if history.body is not None:
        return plan_request(_body_of(history), history.dialect, spared)
    prompt = _next_prompt(history)
    plan = plan_stored([*history.messages, *prompt], history.dialect, history.model, spared)
    if plan.changed and any(one not in plan.plain for one in prompt):
        # It became part of the message before it, which would keep it for good.
        return plan_stored(history.messages, history.dialect, history.model, spared)
    plan.prompt = prompt
    return plan


def _next_prompt(history: History) -> list[Any]:
    """Make the prompt that a resume puts behind words of the model; none behind others."""
    dialect = new_dialect(history.dialect)
    last = dialect.read(history.messages[-1:])
    if not last or last[0].role != ASSISTANT:
        return []
    words = dialect.text_part("Go on.", USER)
    return [dialect.rebuild(dialect.new_message(USER, [words]))]


def repaired_messages(plan: Plan, history: History) -> list[Any]:
    """Give the healed messages, without the prompt that a resume would add."""
    if history.body is not None:
        healed: list[Any] = plan.plain[profile_named(history.dialect).list_key]
        return healed
    messages = list(plan.plain)
    for prompt in plan.prompt:
        del messages[len(messages) - 1 - messages[::-1].index(prompt)]
    return messages


def _body_of(history: History) -> dict[str, Any]:
    key = profile_named(history.dialect).list_key
    return {**(history.body or {}), key: history.messages}


def plan_repair(form: Format, transcript: Transcript, options: RepairOptions) -> RepairPlan:
    """Work out the repair of a session; the same transcript where nothing has to be done."""
    if transcript.waiting and options.force_cleanup:
        transcript = form.forced(transcript)
    findings = findings_in(form, transcript)
    unchanged = RepairPlan(transcript, transcript, findings, findings, [], [])
    if transcript.waiting or transcript.sealed or not _is_due(transcript, findings, options):
        return unchanged
    ledger = Ledger([], [])
    after, remaining = _repair_repeatedly(form, transcript, findings, options, ledger)
    if after is transcript:
        return unchanged
    why = unread_refusal(transcript, after)
    why = why or ("" if _is_cut(options) else loss_refusal(transcript, after))
    if why:
        held = structs.replace(transcript, notes=[*transcript.notes, why])
        return RepairPlan(held, held, findings, findings, [], [])
    _name_the_rest(transcript, after, ledger)
    return RepairPlan(transcript, after, findings, remaining, ledger.changes, ledger.quarantine)


def _is_due(transcript: Transcript, findings: Sequence[Finding], options: RepairOptions) -> bool:
    """Whether there is anything to do about a session."""
    return transcript.forced or any(
        finding.fixable and (options.notes or finding.severity != NOTE) for finding in findings
    )


def _repair_repeatedly(
    form: Format,
    transcript: Transcript,
    findings: list[Finding],
    options: RepairOptions,
    ledger: Ledger,
) -> tuple[Transcript, list[Finding]]:
    """Repair a session until there is nothing to do, or nothing that helps.

    One repair can uncover what only the next one would find: a second one would go on then.
    """
    best, left = transcript, findings
    states = [(transcript.context.data, transcript, findings, 0, 0)]
    for _ in range(_PASSES):
        done = Ledger([], [])
        after = _repair_once(form, best, options, done)
        remaining = findings_in(form, after)
        if options.force_cleanup and _bad(remaining):
            after = _keep_valid_beginning(form, after, done)
            remaining = findings_in(form, after)
        if _bad(remaining) > _bad(left) or after is best:
            break
        data = file_bytes(after) if transcript.context.data else b""
        for known, state, found, changes, kept in states:
            if data == known and (data or _same_values(state.records, after.records)):
                # It goes in a circle, and nothing since it was here before is worth a word.
                del ledger.changes[changes:], ledger.quarantine[kept:]
                return state, found
        best, left = after, remaining
        ledger.changes += done.changes
        ledger.quarantine += done.quarantine
        states.append((data, best, left, len(ledger.changes), len(ledger.quarantine)))
        if after.sealed or not _is_due(after, remaining, options):
            break
    return best, left


def _same_values(old: Sequence[Record], new: Sequence[Record]) -> bool:
    return len(old) == len(new) and all(
        one.value == other.value for one, other in zip(old, new, strict=True)
    )


def _is_cut(options: RepairOptions) -> bool:
    """Whether a person asked for a repair that takes a part of the conversation off."""
    return options.force_cleanup or options.strategy == "rollback"


def _name_the_rest(before: Transcript, after: Transcript, ledger: Ledger) -> None:
    """Name every record that changes and that no change names yet, so that all is shown."""
    named = _named_records(before, ledger)
    new = {record.start: record for record in after.records if not record.is_new}
    code = ledger.changes[0].code if ledger.changes else "LS610"
    for record in before.records:
        now = new.get(record.start)
        if now is None and record.is_record and before.context.data and record.place not in named:
            note = "the record was removed to match the other changes"
            change = Change(code=code, action="removed", place=record.place, note=note)
            ledger.changes.append(change)
        if now is None or now.fresh is record.fresh or record.place in named:
            continue
        if record.kind == DOCUMENT and ledger.changes:
            continue
        for edit in diff(record.value, now.value):
            place = f"{record.place}.{edit.place}"
            note = "the record was updated to match the other changes"
            ledger.changes.append(Change(code=code, action="adjusted", place=place, note=note))


def _named_records(before: Transcript, ledger: Ledger) -> set[str]:
    """Give the places of the records that some change names: a line, or a table and a key."""
    places = {record.place for record in before.records}
    steps = (change.place.split(".") for change in ledger.changes)
    heads = {".".join(row[:length]) for row in steps for length in range(1, len(row) + 1)}
    return places & heads


def _bad(findings: Sequence[Finding]) -> int:
    return sum(finding.severity == ERROR for finding in findings)


def _repair_once(
    form: Format, transcript: Transcript, options: RepairOptions, ledger: Ledger
) -> Transcript:
    after = _parse_again(form, transcript, _clean_bytes(transcript, ledger))
    for _ in range(_ROUNDS + len(after.findings)):
        records = form.repair_tree(after, ledger)
        if _same(records, after.records):
            break
        after = _parse_again(form, transcript, records)
    if options.strategy == "rollback":
        after = _roll_back(form, after, ledger)
    return _repair_history(form, after, options, ledger)


def _same(new: Sequence[Record], old: Sequence[Record]) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))


def _parse_again(form: Format, origin: Transcript, records: Sequence[Record]) -> Transcript:
    """Understand changed records; None changed gives the transcript itself."""
    if _same(records, origin.records):
        return origin
    return form.parse(records, origin.context)


def _clean_bytes(transcript: Transcript, ledger: Ledger) -> list[Record]:
    """Take out what is no record, and give every record its own line."""
    kept: list[Record] = []
    for record in transcript.records:
        for code in set(record.codes) - {UNREAD}:
            _note_cleaned(transcript.context, record, code, ledger)
        if record.kind in (BOM, NUL, TORN) or (record.kind == JSON and not record.is_record):
            if b"\n" in record.ending and kept and b"\n" not in kept[-1].ending:
                kept[-1] = structs.replace(kept[-1], ending=record.ending)
            continue
        left = tuple(code for code in record.codes if code == UNREAD)
        kept.append(record if left == record.codes else structs.replace(record, codes=left))
    return [_ended(r) if r.kind == JSON and b"\n" not in r.ending else r for r in kept]


def _ended(record: Record) -> Record:
    return structs.replace(record, ending=b"\n")


def _note_cleaned(context: Context, record: Record, code: str, ledger: Ledger) -> None:
    rule = RULES[code]
    gone = record.kind in (TORN, NUL) or code == "LS606"
    action = "removed" if gone or record.kind == BOM else "rewritten"
    ledger.note(rule, action, record.place, _storage_message(code, record))
    if not record.size:
        return
    if gone or code in ("LS605", "LS603"):
        raw = context.data[record.start : record.end]
        text = (
            raw.decode("utf-8", "backslashreplace") if record.kind != NUL else f"NUL * {len(raw)}"
        )
        ledger.set_aside(rule, record.place, text, len(raw))


def _repair_history(
    form: Format, transcript: Transcript, options: RepairOptions, ledger: Ledger
) -> Transcript:
    history = _with_evidence(transcript, form.survived, ledger)
    plan = plan_history(history, form.tolerated)
    lossy = frozenset(f.code for f in plan.findings if f.lossy and f.code in LOSSY)
    if lossy and not options.lossy:
        plan = plan_history(history, form.tolerated | lossy)
    if not plan.healed or (not plan.changed and history is transcript.history):
        return transcript
    take_over_changes(plan, history, transcript, ledger)
    strands = trace_sources(history, repaired_messages(plan, history))
    records = form.write_back(transcript, strands, ledger)
    if history.body is not None:
        key = profile_named(history.dialect).list_key
        rest = {name: value for name, value in plan.plain.items() if name != key}
        records = form.write_request(transcript, records, rest)
    return (
        transcript
        if _same(records, transcript.records)
        else _parse_again(form, transcript, records)
    )


def take_over_changes(plan: Plan, history: History, transcript: Transcript, ledger: Ledger) -> None:
    """Write the engine's ledger into that of the file, with the places of the file."""
    for change in plan.changes:
        place = place_in_store(change.place, history, transcript)
        ledger.changes.append(structs.replace(change, place=place))
    for kept in plan.quarantine:
        place = place_in_store(kept.place, history, transcript)
        ledger.quarantine.append(structs.replace(kept, place=place))


def place_in_store(place: str, history: History, transcript: Transcript) -> str:
    """Say where in the store a place of a history is."""
    number, path = history.home(place)
    if number == NEW:
        return "1"
    record = transcript.records[number]
    if record.kind == DOCUMENT:
        path = path if place.count(".") > 1 else _message_path(history, place) or path
        bare = bool(path) and type(path[0]) is int
        listed = (profile_named(history.dialect).list_key,) if bare else ()
        return ".".join(map(str, (*listed, *path)))
    return ".".join(str(step) for step in (record.place, *path) if step != "")


def _message_path(history: History, place: str) -> Path:
    """Return the path to a message in its document; empty if no message is meant."""
    number = place.rpartition(".")[2]
    paths = (
        history.paths[int(number)] if is_index(number) and int(number) < len(history.paths) else ()
    )
    first: Path = paths[0] if paths else ()
    return first[:-2] if first[-2:-1] == ("content",) else first


def _with_evidence(transcript: Transcript, code: str, ledger: Ledger) -> History:
    """Put results that survived elsewhere behind calls that have no real answer."""
    history, evidence = transcript.history, transcript.evidence
    if not evidence:
        return history
    wanted = _unanswered(history) & evidence.keys()
    if not wanted:
        return history
    grown = History(history.dialect, [], [], [], history.model, history.body)
    dialect = new_dialect(history.dialect)
    views = dialect.read(history.messages)
    for number, view in enumerate(views):
        grown.add(history.messages[number], history.sources[number], history.paths[number])
        for part in view.parts:
            if part.kind == CALL and part.id in wanted:
                wanted.discard(part.id)
                place = place_in_store(f"messages.{number}", history, transcript)
                text = f"the result of call {part.id} was taken from where it survived"
                ledger.note(RULES[code], "brought back", place, text)
                message = _carrier(history.dialect, evidence[part.id])
                grown.add(message, [NEW], [()])
    return grown


def _carrier(dialect: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [result]} if dialect == ANTHROPIC else result


def _unanswered(history: History) -> set[str]:
    """Give the ids of calls that have no result, or only a placeholder."""
    dialect = new_dialect(history.dialect)
    calls: set[str] = set()
    real: set[str] = set()
    for message in dialect.read(history.messages):
        for part in message.parts:
            if part.kind == CALL and part.id:
                calls.add(part.id)
            elif part.kind == RESULT and part.id and not dialect.is_placeholder(part):
                real.add(part.id)
    return calls - real


def _roll_back(form: Format, transcript: Transcript, ledger: Ledger) -> Transcript:
    """Go back to the end of the last turn before the first place that is wrong, if there is one."""
    plan = plan_history(transcript.history, form.tolerated)
    broken = [f for f in plan.findings if f.severity == ERROR and f.code not in form.tolerated]
    if not broken:
        return transcript
    first = min(int(finding.place.split(".")[1]) for finding in broken)
    start = max((n for n in _turn_starts(transcript.history) if n <= first), default=0)
    return _keep_until(form, transcript, start, ledger) if start else transcript


def _keep_valid_beginning(form: Format, transcript: Transcript, ledger: Ledger) -> Transcript:
    """Keep the longest beginning of whole turns that is proven valid."""
    history = transcript.history
    for start in reversed(_turn_starts(history)):
        kept = structs.replace(history, messages=history.messages[:start])
        plan = plan_history(kept, form.tolerated)
        if not any(finding.severity == ERROR for finding in plan.findings):
            return _keep_until(form, transcript, start, ledger)
    return transcript


def _turn_starts(history: History) -> list[int]:
    """Give the numbers of the messages that open a turn: a user's, without results."""
    views = new_dialect(history.dialect).read(history.messages)
    return [n for n, view in enumerate(views) if view.role == USER and not view.has(RESULT)]


def _keep_until(form: Format, transcript: Transcript, start: int, ledger: Ledger) -> Transcript:
    """Drop a message, and all behind it, from the conversation."""
    history = transcript.history
    rule = RULES["LS101"]
    for number in range(start, len(history.messages)):
        place = place_in_store(f"messages.{number}", history, transcript)
        ledger.note(rule, ROLLED_BACK, place, "taken off the end of the conversation")
        ledger.set_aside(rule, place, history.messages[number])
    strands = trace_sources(history, history.messages[:start])
    records = form.write_back(transcript, strands, ledger)
    return _parse_again(form, transcript, records)


def file_bytes(transcript: Transcript) -> bytes:
    """Give the bytes of the file that holds a transcript."""
    return lines.write_lines(transcript.context.data, transcript.records)
