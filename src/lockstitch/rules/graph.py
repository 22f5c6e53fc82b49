"""LS7xx: how the records of a session hang together, and what a resume leaves behind."""

from __future__ import annotations

from lockstitch.rules.rule import ERROR, WARNING, rule

TREES = ("claude-code", "pi")

DANGLING_PARENT = rule(
    code="LS701",
    name="dangling-parent",
    severity=WARNING,
    formats=TREES,
    summary="a record names a parent that is not in the file",
    help="repair links it to the record before it",
    what=(
        "Claude Code from 2.1.112 on continues from the record before it in the file if that is at "
        "most five seconds older. Otherwise, and with older versions and pi always, a resume "
        "leaves everything before it behind, silently: that is an error."
    ),
    cause="The parent was never written, was removed by hand, or is in another file.",
    repair="The record is linked to the record before it, where healthy files have the parent.",
    failures=("F77",),
)

CYCLE = rule(
    code="LS702",
    name="parent-cycle",
    severity=WARNING,
    formats=TREES,
    summary="the parents of a record form a circle",
    help="repair links the record that closes the circle to the record before it",
    what="A program that follows the parents without care hangs or runs out of memory.",
    cause="An id that was used twice, or a record that names itself.",
    repair="The link that closes the circle is replaced; no record is lost.",
    failures=("F80",),
)

REPEATED_ID = rule(
    code="LS703",
    name="repeated-uuid",
    severity=ERROR,
    formats=TREES,
    summary="two different records have the same id",
    help="repair gives the second one an id of its own",
    what="A program that keeps records by id loses one of the two: Claude Code the first.",
    cause="A program bug, or files that were joined.",
    repair="The second record gets a new id, and what was written after it refers to that.",
    failures=("F81",),
)

CUT_OFF = rule(
    code="LS704",
    name="cut-off",
    severity=ERROR,
    formats=(*TREES, "codex", "gemini-cli"),
    summary="the conversation starts over in the middle of the file",
    help="repair links the record to the turns before it",
    what="A record without a parent ends the walk, and a resume leaves all before it behind.",
    cause="A parent that was lost when the record was written.",
    repair=(
        "The record is linked to the last turn before it, unless there is evidence that a person "
        "cleared the context or went back to its start: a hook of a session's start, a plan that "
        "is carried out, a compaction, a prompt that the client counted as the first one, or fewer "
        "tokens sent than before. Such a beginning is left alone and noted."
    ),
    failures=("F77",),
)

LOST_REPLY = rule(
    code="LS705",
    name="lost-reply",
    severity=ERROR,
    formats=TREES,
    summary="a reply of the model is on a side branch",
    help="repair puts it back between the prompt and what follows",
    what=(
        "The next turn is attached to a control record, or to what came before a dropped call, "
        "so that a resume no longer sends the reply: the model forgets what it did."
    ),
    cause=(
        "A hook summary, a progress or an error record written late takes the reply's place as "
        "parent; or a resume by Claude Code up to 2.1.197 after a crash during a call."
    ),
    repair="What follows is attached to the reply; the order of the turns is the order in time.",
    failures=("F78",),
)

SECOND_WRITER = rule(
    code="LS706",
    name="second-writer",
    severity=ERROR,
    formats=TREES,
    summary="a second window wrote turns that a resume will drop",
    help="repair puts the turns of both into one line",
    what=(
        "Two windows continued from the same record. A resume reads one branch and drops the other "
        "silently."
    ),
    cause="The same session was open in two places.",
    repair=(
        "Where there is evidence of two windows, the other branch is put before the newer one: "
        "the two alternate in the file, a turn continues after the other's prompt, a window names "
        "its leaf after the other has spoken or was closed before, or no rewind is noted where the "
        "client notes every one. Without evidence it is taken for a rewind and left alone; "
        "`repair --branch LINE -o FILE` writes it as a session of its own."
    ),
    failures=("F70",),
)

SIDE_CHAIN = rule(
    code="LS707",
    name="side-chain-takeover",
    severity=ERROR,
    formats=("claude-code",),
    summary="the conversation continues from a sub-agent's record",
    help="repair links it to the last record of the conversation itself",
    what=(
        "A resume follows the sub-agent's records to their own beginning and leaves the "
        "conversation before behind. Lines within the conversation that only say they are a "
        "sub-agent's are sent like all others, and are left alone."
    ),
    cause="The sub-agent's last record was taken for the conversation's.",
    repair="The record is linked to the last record of the main conversation before it.",
    failures=("F78", "F85"),
)

STRANDED_RESULT = rule(
    code="LS708",
    name="stranded-result",
    severity=ERROR,
    formats=("claude-code", "codex", "opencode"),
    summary="the real result of a call is stored where a resume does not look",
    help="repair puts the real result in the place of the missing or synthetic one",
    what=(
        "The call is open, or answered by a placeholder, but the real result is on a side "
        "branch, in an event, next to the message or in a sub-agent's file."
    ),
    cause="The process died between the tool's end and the record for the model.",
    repair="The real result is given to the call, marked with nothing: it is what the tool said.",
    failures=("F08", "F13"),
)

WRONG_RESULT_ID = rule(
    code="LS709",
    name="misaddressed-result",
    severity=ERROR,
    formats=("claude-code",),
    summary="a result names no call, but the record says which call it answers",
    help="repair addresses the result to that call",
    what="The result's id fits no call, so that programs drop the result and then the call.",
    cause="A program bug or an edit that changed one of the two ids.",
    repair="The id is taken from the call's own record, which the result's record names.",
    failures=("F04",),
)

UNDATED_LEAF = rule(
    code="LS710",
    name="undated-leaf",
    severity=ERROR,
    formats=("claude-code",),
    errors=(("Claude Code", "No conversation found"),),
    summary="the last message has no time that can be read",
    help="repair gives it a time right after the newest one",
    what="Claude Code from 2.1.112 on does not find the session at all, older ones cut the end.",
    cause="A tool, or somebody by hand, wrote the record.",
    repair="The record gets the newest time in the file, plus a millisecond.",
    failures=("F101",),
)

OVERTAKEN_LEAF = rule(
    code="LS711",
    name="overtaken-leaf",
    severity=WARNING,
    formats=("claude-code",),
    summary="an earlier line has a newer time than the last one",
    help="repair gives the last line the newest time",
    what=(
        "Claude Code before 2.1.112 continues from the line with the newest time, of several equal "
        "ones at the first, and silently drops what was said after it. Newer versions go "
        "by the order of the file."
    ),
    cause="A clock that was set back or stopped, or files that were joined.",
    repair="The last line gets the newest time in the file, plus a millisecond.",
    failures=("F101",),
)
