"""LS8xx: compactions that cut where they must not, or that were not finished."""

from __future__ import annotations

from lockstitch.rules.rule import ERROR, WARNING, rule

TORN_COMPACTION = rule(
    code="LS801",
    name="torn-compaction",
    severity=ERROR,
    formats=("claude-code",),
    summary="a compaction cut the conversation but its summary is missing",
    help="repair takes the cut back, so that the whole conversation is there again",
    what=(
        "The boundary is on disk, the summary that should replace all before it is not. A resume "
        "sends a conversation without its beginning, which is refused, or nothing at all."
    ),
    cause="The process died between the two records, or the summary's line was torn.",
    repair="The boundary goes to the quarantine, and what follows it is linked to what was before.",
    failures=("F92",),
)

STALE_PARENT = rule(
    code="LS802",
    name="stale-parent",
    severity=ERROR,
    formats=("claude-code", "pi"),
    summary="a prompt is attached to a record from before the compaction",
    help="repair links it to the last record after the compaction",
    what="A resume bypasses the summary and all turns after it, and sends the old ones.",
    cause="A process that had loaded the session before the compaction kept writing.",
    repair="The prompt is linked to the last turn after the compaction.",
    failures=("F94", "F95"),
)

SPLIT_PAIR = rule(
    code="LS803",
    name="split-by-compaction",
    severity=WARNING,
    formats=("claude-code", "codex", "pi"),
    summary="a compaction is between a call and its result",
    help="repair turns the result into labelled text after the compaction",
    what="The call is summarised, its result came after: on the wire it answers nothing.",
    cause="The conversation was compacted while the tool ran.",
    repair="The result stays as labelled text; the call before the boundary is left alone.",
    failures=("F87", "F98"),
)

LOST_SEGMENT = rule(
    code="LS804",
    name="lost-segment",
    severity=ERROR,
    formats=("claude-code",),
    summary="a compaction names records to keep that are not in the file",
    help="repair takes the missing ones off its list, so that the others are sent again",
    what="If one of the records that a compaction keeps is missing, a resume sends none of them.",
    cause="The file was cut or pruned before the boundary.",
    repair="The ids that lead nowhere are taken off the list; the records themselves are gone.",
    failures=("F84", "F95"),
)

LATE_COMPACTION = rule(
    code="LS805",
    name="late-compaction",
    severity=ERROR,
    formats=("claude-code",),
    summary="turns are neither sent nor covered by the summary of a compaction",
    help="repair puts them after the summary",
    what=(
        "The summary was made from an earlier state, and turns that were written meanwhile are "
        "before the boundary: a resume leaves them behind, and the summary does not cover them."
    ),
    cause="A compaction that ran while the conversation went on and was written late.",
    repair="The turns are moved after the summary, before what follows it.",
    failures=("F94", "F98"),
)
