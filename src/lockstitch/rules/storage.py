"""LS6xx: the bytes of a store, before anything in them is understood."""

from __future__ import annotations

from lockstitch.rules.rule import ERROR, NOTE, WARNING, rule

LINES = ("claude-code", "codex", "pi", "gemini-cli", "list")

TORN_LINE = rule(
    code="LS601",
    name="torn-line",
    severity=ERROR,
    formats=(*LINES, "opencode-export"),
    lossy=False,
    summary="a line of the file, or the file itself, breaks off in the middle of a record",
    help="repair takes the torn piece out of the file and keeps it with the backup",
    what=(
        "The line is not JSON and cannot be made JSON without inventing the rest of it. "
        "Programs skip it in silence, stop at it, or refuse the whole session. A file that is one "
        "JSON document, or packed, cannot be read at all by its program if its end is missing."
    ),
    cause=(
        "The process was killed while it wrote, the disk was full, or the machine lost power: the "
        "record is written by one call and may be cut anywhere."
    ),
    repair=(
        "The torn bytes are moved to the quarantine in the backup's manifest, whole, and a "
        "document is closed after what is whole. "
        "A call whose result was torn gets a neutral result, as one whose result was never written."
    ),
    failures=("F56", "F60"),
)

WELDED = rule(
    code="LS602",
    name="welded-records",
    severity=ERROR,
    formats=LINES,
    summary="two records are on one line",
    help="repair gives every record that is whole a line of its own",
    what=(
        "A record was written after another one, often after the torn half of one, without a "
        "line break between. Programs that read line by line skip both, the good one too."
    ),
    cause=(
        "A torn last line followed by a new append that did not look, two processes that write at "
        "once, or a record and its line break written by two calls."
    ),
    repair=(
        "The line is searched for record starts; every whole record keeps its bytes on a line of "
        "its own, and what is torn goes to the quarantine."
    ),
    failures=("F57",),
)

NUL_RUN = rule(
    code="LS603",
    name="nul-run",
    severity=ERROR,
    formats=LINES,
    summary="the file holds a run of NUL bytes",
    help="repair takes the NUL bytes out and keeps the records around them",
    what="Zeros are where text should be, at the end of the file or between good records.",
    cause="The file had grown but its data never reached the disk when the machine went down.",
    repair="The zeros are removed; records before, after and around them keep their bytes.",
    failures=("F58",),
)

BYTE_ORDER_MARK = rule(
    code="LS604",
    name="byte-order-mark",
    severity=WARNING,
    formats=LINES,
    summary="the file starts with a byte order mark",
    help="repair removes the three bytes",
    what=(
        "JSON must not start with one; readers that do not expect it lose the first record. Codex "
        "and pi refuse the file then, so that it is an error for them."
    ),
    cause="An editor or a script saved the file.",
    repair="The mark is removed.",
    failures=("F60",),
)

BAD_UTF8 = rule(
    code="LS605",
    name="invalid-encoding",
    severity=ERROR,
    formats=LINES,
    summary="a record holds bytes that are not UTF-8",
    help="repair replaces the bytes with U+FFFD and keeps the original ones with the backup",
    what="The record is otherwise whole, but strict readers refuse its line or the file.",
    cause="A tool's raw output, a damaged block, or an editor with another encoding.",
    repair="Each invalid sequence becomes one U+FFFD; the line keeps all its other bytes.",
    failures=("F60",),
)

NOT_AN_OBJECT = rule(
    code="LS606",
    name="not-an-object",
    severity=WARNING,
    formats=LINES,
    summary="a line is JSON, but not a record",
    help="repair moves the line to the quarantine",
    what="The line holds null, a number, a string or a list. Some versions crash on it.",
    cause="A hook or a script that wrote into the file.",
    repair="The line goes to the quarantine.",
    failures=("F60",),
)

DUPLICATED = rule(
    code="LS607",
    name="duplicated-record",
    severity=WARNING,
    formats=LINES,
    summary="a record is in the file more than once",
    help="repair keeps the first copy",
    what="The same record, with the same id and the same content, was written again.",
    cause="A compaction or a fail-over that appends what is there already, or a copied file.",
    repair="The first copy stays; the others go. They are equal, so nothing is lost.",
    failures=("F69",),
)

MISSING_NEWLINE = rule(
    code="LS608",
    name="missing-newline",
    severity=NOTE,
    formats=LINES,
    summary="the last line has no line break",
    help="this harms nobody; a repair for another reason adds it, and so does --notes",
    what=(
        "The record is whole, and every program reads it. One that appends without looking may "
        "glue its next record to it; `repair` takes the two apart then."
    ),
    cause="The process died between the record and its line break, or an editor removed it.",
    repair="A line break is added.",
    failures=("F57",),
)

BROKEN_LINE = rule(
    code="LS609",
    name="broken-line",
    severity=ERROR,
    formats=LINES,
    summary="a record holds raw control characters or is spread over several lines",
    help="repair writes it as one line, with the characters escaped",
    what="Text with raw line breaks was written as it was, so that no line of it is JSON.",
    cause="A writer that does not escape what it writes.",
    repair="The lines are joined and the characters escaped; nothing is lost.",
    failures=("F59",),
)

SPREAD_RECORD = rule(
    code="LS612",
    name="spread-record",
    severity=ERROR,
    formats=LINES,
    summary="a record is spread over several lines, although nothing in it is broken",
    help="repair writes it on one line",
    what=(
        "The record is whole, with line breaks between its tokens. Programs that read one record "
        "a line take none of its lines for one; the newest Claude Code reads it."
    ),
    cause="An editor or a formatter that prints JSON for people, or somebody who edited the file.",
    repair="The line breaks between its tokens become spaces; every other byte stays.",
    failures=("F59",),
)

UNREAD_VALUE = rule(
    code="LS613",
    name="unread-value",
    severity=NOTE,
    formats=(*LINES, "openclaw", "opencode", "opencode-export", "goose", "openai-agents"),
    fixable=False,
    summary="a record holds a value that is valid JSON, but cannot be read here",
    help="nothing is wrong with it; a repair leaves the record as it is",
    what=(
        "An integer of more than 4300 digits, or lists and objects within a thousand others: JSON "
        "allows both, and programs in other languages read them. All the rest of the record is "
        "read and checked as ever; the value itself is only checked to be JSON."
    ),
    cause="A tool that was given or gave such a value, or a session made to trip its readers.",
    repair=(
        "None. A line or a row with such a value keeps its bytes through every repair, and so does "
        "the value in a file that is one document. A repair that would have to change it is "
        "declined with a reason; the session stays as it was."
    ),
    failures=("F60",),
)

MALFORMED_RECORD = rule(
    code="LS610",
    name="malformed-record",
    severity=WARNING,
    formats=(
        *("claude-code", "codex", "pi", "openclaw", "gemini-cli", "opencode", "goose"),
        "openai-agents",
    ),
    lossy=False,
    summary="a record lacks what its type must have",
    help=(
        "repair puts right what the rest of the file tells; a record that holds nothing goes to "
        "the quarantine, and its neighbours are linked"
    ),
    what=(
        "A message without content, a record without its time, id or payload, or a file that does "
        "not start with its head. Programs skip such a record, crash on it, or refuse the file."
    ),
    cause="A program bug, or somebody who edited the file by hand.",
    repair=(
        "What the rest of the file tells is put right: a head that is out of place, a time, an id, "
        "a number, an item in another spelling. A record that holds nothing goes to the "
        "quarantine, and records that referred to it refer to the one before it. A finding that is "
        "not marked as fixable is left as it is."
    ),
    failures=("F40", "F104"),
)

DAMAGED_RECORD = rule(
    code="LS611",
    name="damaged-record",
    severity=ERROR,
    formats=("lockstitch",),
    fixable=True,
    lossy=False,
    summary="a store of Lockstitch's own holds other bytes than were written to it",
    help=(
        "`lockstitch repair` rewrites the session from all that can be read, and keeps the "
        "damaged one next to it; `show` and `export` read what comes after the damage, too"
    ),
    what=(
        "Every record carries a checksum over itself and the one before it, and every large value "
        "is named by its content. A record that changed, is missing or changed places does not "
        "fit. The records after it are proven by the checksum that it still carries."
    ),
    cause=(
        "A disk or memory that flipped bits, a copy of a live database made by something other "
        "than SQLite, or somebody who edited the store by hand. No crash of a writer causes it."
    ),
    repair=(
        "One flipped bit is found by the checksum and put back. Every other record is kept as it "
        "is, under its number; a record that cannot be put right gives way to a note that keeps "
        "what is left of it. The damaged session stays as it was found, as NAME.damaged-1, and "
        "`lockstitch undo` brings it back."
    ),
    failures=("F66",),
)
