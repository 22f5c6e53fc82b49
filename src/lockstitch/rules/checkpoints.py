"""LS9xx: checkpoints of a graph, and approvals that are pending in them."""

from __future__ import annotations

from lockstitch.rules.rule import WARNING, rule

FORMATS = ("langgraph",)

HIDDEN_RESULT = rule(
    code="LS901",
    name="hidden-result",
    counted=("tool result the model never sees", "tool results the model never sees"),
    formats=FORMATS,
    errors={
        "LangGraph": "Found AIMessages with tool_calls that do not have a corresponding "
        "ToolMessage.",
    },
    summary="a finished tool's result is stored outside the state, where the model never sees it",
    help="repair puts the result after its call, in a new checkpoint",
    what="A tool's result is stored as a pending write of the last checkpoint. A resume without "
    "input uses it; a new message of the user throws it away, and the call stays open.",
    cause="The process died, or the run was cancelled, while another tool of the same batch was "
    "still at work: the results of a batch join the conversation only when all are there.",
    repair="A new checkpoint after the last one holds the conversation with the real results in "
    "place. The old checkpoint and its writes stay as they are.",
    failures=("F106", "F108"),
)
UNSAFE_VALUE = rule(
    code="LS902",
    name="unsafe-value",
    counted=("unsafe stored value", "unsafe stored values"),
    formats=FORMATS,
    fixable=False,
    summary="a stored value names a Python function that LangGraph calls when it loads it",
    help="do not load this thread with LangGraph's defaults; find out who wrote the value, and "
    "set LANGGRAPH_STRICT_MSGPACK=true",
    what="A checkpoint can hold the name of a class with arguments. LangGraph's default loader "
    "imports any module that is named and calls what is named in it, a shell command too. What is "
    "named in the standard library, and is none of the harmless types, is an error, and so are a "
    "function anywhere and a pickle; a class of the application itself is only noted, since its "
    "owner knows it. It may be in any key of any checkpoint of the thread, in a pending write, in "
    "metadata, and in the namespace of a subgraph, all of which are loaded at times.",
    cause="Somebody could write to the database, or a state holds objects of classes of its own.",
    repair="None: Lockstitch reads such values without importing or calling anything, and leaves "
    "them where they are.",
    failures=("F115",),
)
MISSING_VALUE = rule(
    code="LS903",
    name="missing-value",
    counted=("missing stored value", "missing stored values"),
    formats=FORMATS,
    fixable=False,
    summary="the value of a channel is gone from the database",
    help="go back to an earlier checkpoint of the thread, or restore the row from a backup",
    what="The checkpoint names a version of a channel whose row is not there. LangGraph joins the "
    "two tables and gets a state without that channel, without any error: a conversation that "
    "starts over.",
    cause="Rows deleted by hand or by a clean-up job, a restore of some tables, a failed copy.",
    repair="None: what is gone cannot be made up. Nothing is written to such a thread.",
    failures=("F114", "F115"),
)
BROKEN_DELTA = rule(
    code="LS904",
    name="broken-delta",
    counted=("missing earlier checkpoint", "missing earlier checkpoints"),
    formats=FORMATS,
    fixable=False,
    summary="an earlier checkpoint that a DeltaChannel is computed from is gone",
    help="restore the rows from a backup; do not prune threads of graphs with a DeltaChannel",
    what="Such a channel keeps only what changed. Its value is that of an ancestor and all writes "
    "since; without one of them LangGraph computes a shorter conversation, without any error.",
    cause="Old checkpoints were pruned, or a thread was copied without its ancestors.",
    repair="None: what is gone cannot be made up. Nothing is written to such a thread.",
    failures=("F114", "F117"),
)
LOST_TURN = rule(
    code="LS905",
    name="lost-turn",
    counted=("turn on a lost branch", "turns on lost branches"),
    severity=WARNING,
    formats=FORMATS,
    fixable=False,
    summary="a turn of another writer is on a checkpoint that the thread does not come from",
    help="look at the other branch by its checkpoint id; a Guard or a Saver prevents this",
    what="Two runs started from one checkpoint, and the thread went on from the later one. What "
    "the other was told and answered is stored, but no longer part of the conversation.",
    cause="Two processes, or two requests, on one thread at a time. Going back in time on purpose "
    "looks the same, which is why this is a warning.",
    repair="None: only a person knows which branch is meant.",
    failures=("F114",),
)
DUPLICATE_MESSAGE_ID = rule(
    code="LS906",
    name="duplicate-message-id",
    counted=("message id used twice", "message ids used twice"),
    severity=WARNING,
    formats=FORMATS,
    summary="two messages of the state have one id",
    help="repair gives the later one an id of its own; equal copies become one",
    what="The state merges messages by id. With two of one id an update or a removal hits the "
    "wrong one, and the next merge drops one of them.",
    cause="A list was added with a plain + instead of the reducer, or messages were copied.",
    repair="Copies that are equal become one. A different message under the same id keeps its "
    "content and gets an id derived from the old one and its place.",
    failures=("F16", "F117"),
)
UNDECODABLE_VALUE = rule(
    code="LS907",
    name="undecodable-value",
    counted=("value that cannot be decoded", "values that cannot be decoded"),
    formats=FORMATS,
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
HIDDEN_INPUT = rule(
    code="LS908",
    name="hidden-input",
    counted=("message that was never taken up", "messages that were never taken up"),
    formats=FORMATS,
    summary="a message of the user was taken in, but never became part of the conversation",
    help="repair adds the message to the conversation, in a new checkpoint",
    what="The input of a run is in the checkpoint, and no node has taken it up. A resume without "
    "input would; the next message throws it away, without any error.",
    cause="The process died, or the run was cancelled, right after the start of a turn.",
    repair="A new checkpoint after the last one holds the conversation with the message at its "
    "end. The old checkpoint stays as it is.",
    failures=("F108",),
)
UNFINISHED_RUN = rule(
    code="LS909",
    name="unfinished-run",
    counted=("unfinished run", "unfinished runs"),
    severity=WARNING,
    formats=FORMATS,
    fixable=False,
    summary="finished work of a run that broke off is kept where only that run finds it again",
    help="resume the run, with invoke(None, config), before anything new is said",
    what="What a task of a workflow has returned, and what a sub-agent has done whose node makes "
    "something of its own of it, is stored for the run that it belongs to. A resume without input "
    "uses it; a new input begins another run, which never sees it.",
    cause="The process died, or the run was cancelled, in a function with @entrypoint and @task, "
    "or in a node that calls another graph with messages of its own.",
    repair="None: only the program knows what it would have made of it. A workflow is left alone, "
    "so that it can be resumed.",
    failures=("F108",),
)
