"""LS6xx: the bytes of a store, before anything in them is understood.

LS7xx: how the records of a session hang together, and what a resume leaves behind.

LS8xx: compactions that cut where they must not, or that were not finished.

LS9xx: checkpoints of a graph, and approvals that are pending in them.
"""

from __future__ import annotations

from functools import partial

from lockstitch.rules.rule import NOTE, WARNING, rule

LINES = ("claude-code", "codex", "pi", "gemini-cli", "list")
TREES = ("claude-code", "pi")
_line_rule = partial(rule, formats=LINES)
_tree_rule = partial(rule, formats=TREES)
_claude_rule = partial(rule, formats=("claude-code",))
_thread_rule = partial(rule, formats=("langgraph",))

TORN_LINE = rule(
    code="LS601",
    name="torn-line",
    formats=(*LINES, "opencode-export"),
    summary="a line of the file, or the file itself, breaks off in the middle of a record",
    help="repair takes the torn piece out of the file and keeps it with the backup",
    what="The line is not JSON, and cannot be made JSON without inventing the rest of it. "
    "Programs skip it silently, stop at it, or refuse the whole session. If the file is one "
    "JSON document, or packed, and its end is missing, its program cannot read any of it.",
    cause="The process was killed while it wrote, the disk was full, or the machine lost power: a "
    "record is written by one call and may be cut anywhere.",
    repair="The torn bytes are moved, whole, to the quarantine in the backup's manifest, and a "
    "document is closed after its last whole value. A call whose result was torn gets a "
    "neutral result, just like one whose result was never written.",
    failures=("F56", "F60"),
)
WELDED = _line_rule(
    code="LS602",
    name="welded-records",
    counted=("line with records glued together", "lines with records glued together"),
    summary="two records are on one line",
    help="repair gives every whole record a line of its own",
    what="A record was written after another one, often after a torn one, without a line break "
    "between them. Programs that read line by line skip both, including the good one.",
    cause="A program appended after a torn last line without checking, two processes wrote at "
    "once, or a record and its line break were written by two calls.",
    repair="The line is searched for the start of each record; every whole record keeps its bytes "
    "on a line of its own, and torn pieces are quarantined.",
    failures=("F57",),
)
NUL_RUN = _line_rule(
    code="LS603",
    name="nul-run",
    counted=("run of NUL bytes", "runs of NUL bytes"),
    summary="the file holds a run of NUL bytes",
    help="repair removes the NUL bytes and keeps the records around them",
    what="There are zeros where text should be, at the end of the file or between good records.",
    cause="The file had grown, but its data had not reached the disk when the machine went down.",
    repair="The zeros are removed; records before, after and around them keep their bytes.",
    failures=("F58",),
)
BYTE_ORDER_MARK = _line_rule(
    code="LS604",
    name="byte-order-mark",
    severity=WARNING,
    summary="the file starts with a byte order mark",
    help="repair removes the three bytes",
    what="JSON must not start with one; readers that do not expect it lose the first record. "
    "Codex and pi refuse such a file, so for them it is an error.",
    cause="An editor or a script saved the file.",
    repair="The mark is removed.",
    failures=("F60",),
)
BAD_UTF8 = _line_rule(
    code="LS605",
    name="invalid-encoding",
    counted=("line that is not UTF-8", "lines that are not UTF-8"),
    summary="a record holds bytes that are not UTF-8",
    help="repair replaces the bytes with U+FFFD and keeps the originals with the backup",
    what="The record is otherwise whole, but strict readers refuse the line or the file.",
    cause="The raw output of a tool, a damaged disk block, or an editor that uses another "
    "encoding.",
    repair="Each invalid sequence becomes one U+FFFD; the line keeps all its other bytes.",
    failures=("F60",),
)
NOT_AN_OBJECT = _line_rule(
    code="LS606",
    name="not-an-object",
    counted=("line that is not a record", "lines that are not records"),
    severity=WARNING,
    summary="a line is JSON, but not a record",
    help="repair moves the line to the quarantine",
    what="The line holds null, a number, a string or a list. Some versions crash on it.",
    cause="A hook or a script wrote into the file.",
    repair="The line is quarantined.",
    failures=("F60",),
)
DUPLICATED = _line_rule(
    code="LS607",
    name="duplicated-record",
    counted=("repeated line", "repeated lines"),
    severity=WARNING,
    summary="a record is in the file more than once",
    help="repair keeps the first copy",
    what="The same record, with the same id and the same content, was written again.",
    cause="A compaction or a fail-over appended records that were already there, or a file was "
    "copied.",
    repair="The first copy stays; the others are removed. They are equal, so nothing is lost.",
    failures=("F69",),
)
MISSING_NEWLINE = _line_rule(
    code="LS608",
    name="missing-newline",
    counted=("missing line break", "missing line breaks"),
    severity=NOTE,
    summary="the last line has no line break",
    help="this is harmless; a repair for another reason adds it, and so does --notes",
    what="The record is whole, and every program reads it. A program that appends without "
    "checking may put its next record on the same line; `repair` then separates the two.",
    cause="The process died between the record and its line break, or an editor removed it.",
    repair="A line break is added.",
    failures=("F57",),
)
BROKEN_LINE = _line_rule(
    code="LS609",
    name="broken-line",
    summary="a record holds raw control characters or is spread over several lines",
    help="repair writes it as one line, with the characters escaped",
    what="Text with raw line breaks was written as it is, so no line of it is JSON.",
    cause="The program does not escape what it writes.",
    repair="The lines are joined and the characters escaped; nothing is lost.",
    failures=("F59",),
)
SPREAD_RECORD = _line_rule(
    code="LS612",
    name="spread-record",
    counted=("record spread over several lines", "records spread over several lines"),
    summary="a record is spread over several lines, although nothing in it is broken",
    help="repair writes it on one line",
    what="The record is whole, with line breaks between its tokens. Programs that read one "
    "record per line do not recognise any of its lines; the newest Claude Code reads it.",
    cause="An editor or a formatter wrote the JSON in readable form, or somebody edited the file.",
    repair="The line breaks between its tokens become spaces; every other byte stays.",
    failures=("F59",),
)
UNREAD_VALUE = rule(
    code="LS613",
    name="unread-value",
    counted=("value too large to read", "values too large to read"),
    severity=NOTE,
    formats=(*LINES, "openclaw", "opencode", "opencode-export", "goose", "openai-agents"),
    fixable=False,
    summary="a record holds a value that is valid JSON, but cannot be read here",
    help="nothing is wrong with it; a repair leaves the record as it is",
    what="It is an integer of more than 4300 digits, or lists and objects nested more than a "
    "thousand deep: JSON allows both, and programs in other languages read them. The rest "
    "of the record is read and checked as usual; the value itself is only checked to be "
    "JSON.",
    cause="A tool was given or returned such a value, or somebody made a session to crash its "
    "readers.",
    repair="None. A line or a row with such a value keeps its bytes through every repair, and so "
    "does the value in a file that is one document. A repair that would have to change it "
    "is declined with a reason; the session stays as it was.",
    failures=("F60",),
)
MALFORMED_RECORD = rule(
    code="LS610",
    name="malformed-record",
    counted=("incomplete record", "incomplete records"),
    severity=WARNING,
    formats=(
        *("claude-code", "codex", "pi", "openclaw", "gemini-cli", "opencode", "goose"),
        "openai-agents",
    ),
    summary="a record lacks something that its type requires",
    help="repair restores what the rest of the file shows; a record that holds nothing is "
    "quarantined, and its neighbours are linked",
    what="A message has no content, a record has no time, id or payload, or a file does not "
    "start with its header record. Programs skip such a record, crash on it, or refuse the "
    "file.",
    cause="A bug in the program, or somebody edited the file by hand.",
    repair="Whatever the rest of the file shows is restored: a misplaced header record, a time, an "
    "id, a number, an item in another spelling. A record that holds nothing is quarantined, "
    "and records that referred to it refer to the one before it. A finding that is not "
    "marked as fixable is left as it is.",
    failures=("F40", "F104"),
)
DAMAGED_RECORD = rule(
    code="LS611",
    name="damaged-record",
    formats=("lockstitch",),
    summary="a Lockstitch store holds other bytes than were written to it",
    help="`lockstitch repair` rewrites the session from everything that can be read, and keeps "
    "the damaged one beside it; `show` and `export` read past the damage, too",
    what="Every record carries a checksum over itself and the one before it, and every large "
    "value is named after its content. A record that changed, is missing or moved does not "
    "match. The records after it are verified by the checksum that it still carries.",
    cause="A disk or memory flipped bits, something other than SQLite copied a live database, or "
    "somebody edited the store by hand. A crash of a writer never causes it.",
    repair="One flipped bit is found with the checksum and put back. Every other record is kept "
    "unchanged, under its number; a record that cannot be restored is replaced by a note "
    "that keeps what is left of it. The damaged session is kept as NAME.damaged-1, and "
    "`lockstitch undo` restores it.",
    failures=("F66",),
)


DANGLING_PARENT = _tree_rule(
    code="LS701",
    name="dangling-parent",
    counted=("missing link to an earlier message", "missing links to earlier messages"),
    severity=WARNING,
    summary="a record names a parent that is not in the file",
    help="repair links it to the record before it",
    what="Claude Code 2.1.112 and later continue from the record before it in the file, if that "
    "is at most five seconds older. Otherwise, and always with older versions and pi, a "
    "resume silently leaves everything before it behind: that is an error.",
    cause="The parent was never written, was removed by hand, or is in another file.",
    repair="The record is linked to the record before it, which is where the parent is in healthy "
    "files.",
    failures=("F77",),
)
CYCLE = _tree_rule(
    code="LS702",
    name="parent-cycle",
    counted=("circular link between messages", "circular links between messages"),
    severity=WARNING,
    summary="the parents of a record form a circle",
    help="repair links the record that closes the circle to the record before it",
    what="A program that follows the parents without checking hangs or runs out of memory.",
    cause="An id was used twice, or a record names itself.",
    repair="The link that closes the circle is replaced; no record is lost.",
    failures=("F80",),
)
REPEATED_ID = _tree_rule(
    code="LS703",
    name="repeated-uuid",
    counted=("record id used twice", "record ids used twice"),
    summary="two different records have the same id",
    help="repair gives the second one a new id",
    what="A program that keeps records by id loses one of the two; Claude Code loses the first.",
    cause="A bug in the program, or two files were joined.",
    repair="The second record gets a new id, and records written after it refer to the new id.",
    failures=("F81",),
)
CUT_OFF = rule(
    code="LS704",
    name="cut-off",
    counted=("break in the conversation", "breaks in the conversation"),
    formats=(*TREES, "codex", "gemini-cli"),
    summary="the conversation starts over in the middle of the file",
    help="repair links the record to the turns before it",
    what="A resume follows the parents back until a record without one, and leaves everything "
    "before it behind.",
    cause="The parent was lost when the record was written.",
    repair="The record is linked to the last turn before it, unless there is evidence that a "
    "person cleared the context or went back to its start: a session-start hook, a plan "
    "being carried out, a compaction, a prompt that the client counted as the first one, or "
    "fewer tokens sent than before. Such a start is left alone and noted.",
    failures=("F77",),
)
LOST_REPLY = _tree_rule(
    code="LS705",
    name="lost-reply",
    counted=("reply a resume would drop", "replies a resume would drop"),
    summary="a reply of the model is on a side branch",
    help="repair puts it back between the prompt and what follows",
    what="The next turn is attached to a control record, or to the record before a dropped call, "
    "so a resume no longer sends the reply and the model forgets what it did.",
    cause="A hook summary, a progress record or an error record that was written late took the "
    "reply's place as parent; or Claude Code up to 2.1.197 resumed after a crash during a "
    "call.",
    repair="What follows is attached to the reply; turns stay in the order in which they were "
    "written.",
    failures=("F78",),
)
SECOND_WRITER = _tree_rule(
    code="LS706",
    name="second-writer",
    counted=("branch from a second window", "branches from a second window"),
    summary="a second window wrote turns that a resume will drop",
    help="repair puts the turns of both in one line",
    what="Two windows continued from the same record. A resume reads one branch and silently "
    "drops the other.",
    cause="The same session was open in two places.",
    repair="If there is evidence of two windows, the other branch is put before the newer one. "
    "Evidence means that the two alternate in the file, a turn continues after the other's prompt, "
    "a window names its leaf after the other has spoken or was closed before, or no rewind "
    "is noted although the client notes every rewind. Without evidence it is taken for a "
    "rewind and left alone; `repair --branch LINE -o FILE` writes it as a new session.",
    failures=("F70",),
)
SIDE_CHAIN = _claude_rule(
    code="LS707",
    name="side-chain-takeover",
    counted=("turn attached to a sub-agent", "turns attached to a sub-agent"),
    summary="the conversation continues from a sub-agent's record",
    help="repair links it to the last record of the conversation itself",
    what="A resume follows the sub-agent's records to their own beginning and leaves the earlier "
    "conversation behind. Lines within the conversation that merely say they belong to a "
    "sub-agent are sent like all others, and are left alone.",
    cause="The sub-agent's last record was mistaken for the conversation's.",
    repair="The record is linked to the last record of the main conversation before it.",
    failures=("F78", "F85"),
)
STRANDED_RESULT = rule(
    code="LS708",
    name="stranded-result",
    counted=("misplaced real result", "misplaced real results"),
    formats=("claude-code", "codex", "opencode"),
    summary="the real result of a call is stored where a resume does not look",
    help="repair replaces the missing or synthetic result with the real one",
    what="The call is open, or answered by a placeholder, but the real result is on a side "
    "branch, in an event, next to the message or in a sub-agent's file.",
    cause="The process died after the tool ended, but before the record for the model was written.",
    repair="The call gets the real result, without any mark: it is what the tool said.",
    failures=("F08", "F13"),
)
WRONG_RESULT_ID = _claude_rule(
    code="LS709",
    name="misaddressed-result",
    counted=("result that names the wrong call", "results that name the wrong call"),
    summary="a result names no call, but the record says which call it answers",
    help="repair makes the result name that call",
    what="The result's id matches no call, so programs drop the result and then the call.",
    cause="A bug in the program, or an edit that changed one of the two ids.",
    repair="The id is taken from the call's own record, which the result's record names.",
    failures=("F04",),
)
UNDATED_LEAF = _claude_rule(
    code="LS710",
    name="undated-leaf",
    counted=("last message without a time", "last messages without a time"),
    errors={"Claude Code": "No conversation found"},
    summary="the last message has no readable time",
    help="repair gives it a time right after the newest one",
    what="Claude Code 2.1.112 and later do not find the session at all; older versions cut off "
    "its end.",
    cause="A tool, or somebody by hand, wrote the record.",
    repair="The record gets the newest time in the file plus one millisecond.",
    failures=("F101",),
)
OVERTAKEN_LEAF = _claude_rule(
    code="LS711",
    name="overtaken-leaf",
    counted=("last message with an old time", "last messages with an old time"),
    severity=WARNING,
    summary="an earlier line has a newer time than the last one",
    help="repair gives the last line the newest time",
    what="Claude Code before 2.1.112 continues from the line with the newest time, or from the "
    "first of several equal ones, and silently drops everything said after it. Newer "
    "versions go by the order of the file.",
    cause="A clock was set back or stopped, or files were joined.",
    repair="The last line gets the newest time in the file plus one millisecond.",
    failures=("F101",),
)


TORN_COMPACTION = _claude_rule(
    code="LS801",
    name="torn-compaction",
    counted=("unfinished compaction", "unfinished compactions"),
    summary="a compaction cut the conversation but its summary is missing",
    help="repair takes the cut back, so that the whole conversation is there again",
    what="The boundary is on disk, but the summary that should replace everything before it is "
    "not. A resume sends a conversation without its beginning, which is refused, or nothing "
    "at all.",
    cause="The process died between the two records, or the summary's line was torn.",
    repair="The boundary is quarantined, and what follows it is linked to what came before.",
    failures=("F92",),
)
STALE_PARENT = rule(
    code="LS802",
    name="stale-parent",
    counted=("prompt that bypasses a compaction", "prompts that bypass a compaction"),
    formats=("claude-code", "pi"),
    summary="a prompt is attached to a record from before the compaction",
    help="repair links it to the last record after the compaction",
    what="A resume bypasses the summary and all turns after it, and sends the old turns.",
    cause="A process that had loaded the session before the compaction kept writing.",
    repair="The prompt is linked to the last turn after the compaction.",
    failures=("F94", "F95"),
)
SPLIT_PAIR = rule(
    code="LS803",
    name="split-by-compaction",
    counted=("call split from its result", "calls split from their results"),
    severity=WARNING,
    formats=("claude-code", "codex", "pi"),
    summary="a compaction is between a call and its result",
    help="repair turns the result into labelled text after the compaction",
    what="The call was summarised, but its result came later, so in the request it answers "
    "nothing.",
    cause="The conversation was compacted while the tool ran.",
    repair="The result stays as labelled text; the call before the boundary is left alone.",
    failures=("F87", "F98"),
)
LOST_SEGMENT = _claude_rule(
    code="LS804",
    name="lost-segment",
    counted=("compaction with missing records", "compactions with missing records"),
    summary="a compaction names records to keep that are not in the file",
    help="repair removes the missing ones from its list, so that the others are sent again",
    what="If one of the records that a compaction keeps is missing, a resume sends none of them.",
    cause="The file was cut or pruned before the boundary.",
    repair="The ids of missing records are removed from the list; the records themselves are gone.",
    failures=("F84", "F95"),
)
LATE_COMPACTION = _claude_rule(
    code="LS805",
    name="late-compaction",
    counted=("turn lost by a compaction", "turns lost by a compaction"),
    summary="turns are neither sent nor covered by the summary of a compaction",
    help="repair puts them after the summary",
    what="The summary was made from an earlier state, and turns written meanwhile stand before "
    "the boundary: a resume leaves them behind, and the summary does not cover them.",
    cause="A compaction ran while the conversation continued, and was written late.",
    repair="The turns are moved after the summary, before what follows it.",
    failures=("F94", "F98"),
)
HIDDEN_RESULT = _thread_rule(
    code="LS901",
    name="hidden-result",
    counted=("tool result the model never sees", "tool results the model never sees"),
    errors={
        "LangGraph": "Found AIMessages with tool_calls that do not have a corresponding "
        "ToolMessage.",
    },
    summary="a finished tool's result is stored outside the state, where the model never sees it",
    help="repair puts the result after its call, in a new checkpoint",
    what="A tool's result is stored as a pending write of the last checkpoint. A resume without "
    "input uses it; a new user message discards it, and the call stays open.",
    cause="The process died, or the run was cancelled, while another tool of the same batch was "
    "still running: the results of a batch join the conversation only when all of them are "
    "there.",
    repair="A new checkpoint after the last one holds the conversation with the real results in "
    "place. The old checkpoint and its writes stay as they are.",
    failures=("F106", "F108"),
)
UNSAFE_VALUE = _thread_rule(
    code="LS902",
    name="unsafe-value",
    counted=("unsafe stored value", "unsafe stored values"),
    fixable=False,
    summary="a stored value names a Python function that LangGraph calls when it loads the value",
    help="do not load this thread with LangGraph's defaults; find out who wrote the value, and "
    "set LANGGRAPH_STRICT_MSGPACK=true",
    what="A checkpoint can hold the name of a class with arguments. LangGraph's default loader "
    "imports any module that is named and calls what is named in it, even a shell command. "
    "Anything named from the standard library that is not one of the harmless types is an "
    "error, and so are functions and pickles; a class of the application itself is only "
    "noted, since its owner knows it. The value may be in any key of any checkpoint of the "
    "thread, in a pending write, in metadata, or in the namespace of a subgraph, all of "
    "which may be loaded.",
    cause="Somebody could write to the database, or the state holds objects of the application's "
    "own classes.",
    repair="None: Lockstitch reads such values without importing or calling anything, and leaves "
    "them where they are.",
    failures=("F115",),
)
MISSING_VALUE = _thread_rule(
    code="LS903",
    name="missing-value",
    counted=("missing stored value", "missing stored values"),
    fixable=False,
    summary="the value of a channel is missing from the database",
    help="go back to an earlier checkpoint of the thread, or restore the row from a backup",
    what="The checkpoint names a version of a channel whose row is missing. LangGraph joins the "
    "two tables and gets a state without that channel, without any error: a conversation "
    "that starts over.",
    cause="Rows were deleted by hand or by a clean-up job, only some tables were restored, or a "
    "copy failed.",
    repair="None: what is gone cannot be made up. Nothing is written to such a thread.",
    failures=("F114", "F115"),
)
BROKEN_DELTA = _thread_rule(
    code="LS904",
    name="broken-delta",
    counted=("missing earlier checkpoint", "missing earlier checkpoints"),
    fixable=False,
    summary="an earlier checkpoint that a DeltaChannel is computed from is missing",
    help="restore the rows from a backup; do not prune threads of graphs with a DeltaChannel",
    what="Such a channel stores only changes. Its value is that of an ancestor plus all writes "
    "since; if one of them is missing, LangGraph computes a shorter conversation, without "
    "any error.",
    cause="Old checkpoints were pruned, or a thread was copied without its ancestors.",
    repair="None: what is gone cannot be made up. Nothing is written to such a thread.",
    failures=("F114", "F117"),
)
LOST_TURN = _thread_rule(
    code="LS905",
    name="lost-turn",
    counted=("turn on a lost branch", "turns on lost branches"),
    severity=WARNING,
    fixable=False,
    summary="another writer's turn is on a checkpoint that the thread no longer descends from",
    help="look at the other branch by its checkpoint id; a Guard or a Saver prevents this",
    what="Two runs started from the same checkpoint, and the thread continued from the later "
    "one. What was said and answered in the other is stored, but no longer part of the "
    "conversation.",
    cause="Two processes, or two requests, used one thread at the same time. Deliberately going "
    "back in time looks the same, which is why this is a warning.",
    repair="None: only a person knows which branch is the right one.",
    failures=("F114",),
)
DUPLICATE_MESSAGE_ID = _thread_rule(
    code="LS906",
    name="duplicate-message-id",
    counted=("message id used twice", "message ids used twice"),
    severity=WARNING,
    summary="two messages of the state have the same id",
    help="repair gives the later one a new id; equal copies become one",
    what="The state merges messages by id. If two have the same id, an update or a removal hits "
    "the wrong one, and the next merge drops one of them.",
    cause="A list was added with a plain + instead of the reducer, or messages were copied.",
    repair="Equal copies become one. A different message with the same id keeps its content and "
    "gets an id derived from the old one and its place.",
    failures=("F16", "F117"),
)
UNDECODABLE_VALUE = _thread_rule(
    code="LS907",
    name="undecodable-value",
    counted=("value that cannot be decoded", "values that cannot be decoded"),
    fixable=False,
    summary="a stored value cannot be decoded",
    help="if it is encrypted, repair the thread from inside the application with reconcile",
    what="The bytes are cut, damaged, encrypted, or written with pickle, which Lockstitch never "
    "loads because loading it runs code.",
    cause="Damage, a serializer with encryption, or pickle_fallback=True.",
    repair="None from outside. If the conversation itself cannot be read, nothing is written to "
    "the thread; other values keep their bytes.",
    failures=("F115",),
)
HIDDEN_INPUT = _thread_rule(
    code="LS908",
    name="hidden-input",
    counted=("message that was never processed", "messages that were never processed"),
    summary="a user message was received, but never became part of the conversation",
    help="repair adds the message to the conversation, in a new checkpoint",
    what="The input of a run is in the checkpoint, but no node has processed it. A resume "
    "without input would; the next message discards it, without any error.",
    cause="The process died, or the run was cancelled, right after a turn started.",
    repair="A new checkpoint after the last one holds the conversation with the message at its "
    "end. The old checkpoint stays as it is.",
    failures=("F108",),
)
UNFINISHED_RUN = _thread_rule(
    code="LS909",
    name="unfinished-run",
    severity=WARNING,
    fixable=False,
    summary="finished work of an interrupted run is stored where only that run finds it",
    help="resume the run with invoke(None, config) before sending a new message",
    what="A workflow task's return value, or the work of a sub-agent whose node processes its "
    "output further, is stored for the run that it belongs to. A resume without input uses "
    "it; new input starts another run, which never sees it.",
    cause="The process died, or the run was cancelled, in a function with @entrypoint and @task, "
    "or in a node that calls another graph with messages of its own.",
    repair="None: only the program knows what it would have done with it. A workflow is left "
    "alone, so that it can be resumed.",
    failures=("F108",),
)
