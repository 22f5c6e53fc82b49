"""Every JSON document that a command prints, field by field.

A command has one document, or several for several calls of it. The schemas under docs/schemas and
the page on JSON are made from these classes, and tests/docs/test_coverage.py holds what the
commands really print against them: a field that is not here fails there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from lockstitch.cli import COMMANDS


def says(text: str) -> Meta:
    """Describe a field."""
    return Meta(description=text)


Target = Annotated[
    str, says("What was named or found: a file, a database or an address without its password.")
]
Session = Annotated[str | None, says("The id of the session; null if it has none.")]
Time = Annotated[
    str | None, says("When, in UTC, as in 2026-11-01T10:00:00.000+00:00; null if not known.")
]
Failure = Annotated[str, says("Why it could not be done. Only there if it could not.")]


class _Shape(Struct, forbid_unknown_fields=True):
    pass


class Finding(_Shape):
    """One place where a rule is broken."""

    code: Annotated[str, says("The rule: LS101.")]
    name: Annotated[str, says("The name of the rule: orphan-call.")]
    severity: Annotated[Literal["error", "warning", "note"], says("The severity.")]
    place: Annotated[
        str, says("Where: a line or row and the path inside it, or messages.4.content.0.")
    ]
    message: Annotated[str, says("What is wrong, in words. Never message content.")]
    error: Annotated[
        str | None, says("The provider's error, in its own words; null if there is none.")
    ]
    fixable: Annotated[bool, says("Whether repair or heal can fix it.")]
    lossy: Annotated[bool, says("Whether the repair removes something, so that it needs --lossy.")]
    help: Annotated[str, says("What the repair does about it.")]


class Change(_Shape):
    """One thing that a repair did, or would do."""

    code: Annotated[str, says("The rule that made it necessary.")]
    action: Annotated[
        str, says("What was done: inserted, moved, removed, brought back, linked and so on.")
    ]
    place: Annotated[str, says("Where, in the original.")]
    note: Annotated[str, says("Details, without message content.")]


class Quarantined(_Shape):
    """Something that could not stay. It is kept whole in the backup."""

    code: Annotated[str, says("The rule that made it necessary.")]
    place: Annotated[str, says("Where it was.")]
    size: Annotated[int, says("Its size in bytes.")]


class Kept(Quarantined):
    """Something that had to leave the list, whole."""

    value: Annotated[Any, says("The value itself. This is message content.")]


class Checked(_Shape):
    """One session of check or scan."""

    target: Target
    format: Annotated[
        str | None, says("Its format: claude-code, codex, langgraph, list and so on.")
    ]
    dialect: Annotated[str | None, says("The wire format of its messages.")]
    session: Session
    status: Annotated[
        Literal["ok", "notes", "broken", "unreadable"],
        says("ok; notes: nothing that harms; broken; unreadable: error says why."),
    ]
    messages: Annotated[int, says("How many messages a resume would send.")]
    reachable: Annotated[int, says("How many turns a resume reaches.")]
    unreachable: Annotated[int, says("How many turns a resume would silently leave behind.")]
    findings: Annotated[list[Finding], says("What is wrong.")]
    records: Annotated[int | UnsetType, says("How many records; only of a Lockstitch store.")] = (
        UNSET
    )
    project: Annotated[str | UnsetType | None, says("Its program's working directory.")] = UNSET
    size: Annotated[int | UnsetType, says("The bytes of the file.")] = UNSET
    updated: Annotated[
        float | UnsetType, says("When the file was changed, in seconds since 1970.")
    ] = UNSET
    left: Annotated[int | UnsetType, says("The bytes of the turns a resume leaves behind.")] = UNSET
    notes: Annotated[list[str] | UnsetType, says("What was left alone on purpose, in words.")] = (
        UNSET
    )
    error: Failure | UnsetType | None = UNSET


class Check(_Shape):
    """What `check --json` prints."""

    version: Literal[1]
    sessions: Annotated[list[Checked], says("One entry for each session.")]


class Unknown(_Shape):
    """A file that is no session of a known program."""

    target: Target
    error: Annotated[str, says("Why it was declined.")]


class Scan(Check):
    """What `scan --json` prints."""

    unknown: Annotated[
        list[Unknown] | UnsetType,
        says("Files of unknown programs; not for databases."),
    ] = UNSET


class Count(_Shape):
    """How often a rule is broken."""

    code: Annotated[str, says("The rule.")]
    name: Annotated[str, says("The name of the rule.")]
    findings: Annotated[int, says("How many findings there are.")]
    sessions: Annotated[int, says("How many sessions have it.")]


class Statistics(_Shape):
    """What `check` and `scan` print with `--statistics --json`."""

    version: Literal[1]
    statistics: Annotated[list[Count], says("The most frequent first.")]


class RepairedSession(Checked, kw_only=True):
    """One session of repair: what check says, and what was done."""

    edits: Annotated[list[Change], says("What was changed, or would be.")]
    quarantine: Annotated[
        list[Quarantined] | UnsetType, says("What could not stay; see the backup.")
    ] = UNSET
    backup: Annotated[str | None, says("Where the original is kept; null if nothing was written.")]
    remaining: Annotated[list[Finding], says("What could not be repaired.")]
    applied: Annotated[bool | UnsetType, says("Whether it was written.")] = UNSET
    outcome: Annotated[
        Literal["repaired", "ok", "broken", "went on", "unreadable"] | UnsetType,
        says("The outcome in a word; went on: it changed meanwhile, nothing was done."),
    ] = UNSET


class Repair(_Shape):
    """What `repair --json` prints."""

    version: Literal[1]
    sessions: Annotated[list[RepairedSession], says("One entry for each session.")]


class Restored(_Shape, kw_only=True):
    """One repair that was taken back, or was not."""

    target: Target
    session: Annotated[str | UnsetType | None, says("The session, if a store holds several.")] = (
        UNSET
    )
    restored: Annotated[str | None, says("What was restored; null if nothing was.")]
    aside: Annotated[str | UnsetType, says("The name of the kept repaired session.")] = UNSET
    error: Annotated[str | None, says("Why not; null if it was done, or not asked for.")]


class Undo(_Shape):
    """What `undo --json` prints."""

    version: Literal[1]
    sessions: Annotated[list[Restored], says("One entry for each repair.")]


class Backup(_Shape):
    """A backup beside a session."""

    target: Target
    session: Session
    backup: Annotated[str, says("The file that holds it.")]
    time: Annotated[str, says("When it was made.")]
    status: Annotated[str, says("Whether the repair is finished, undone or unfinished.")]
    kind: Annotated[Literal["repair", "undo"], says("What made it.")]
    run: Annotated[str, says("The run it belongs to, for --run.")]
    codes: Annotated[list[str], says("The codes of what was repaired.")]
    id: Annotated[str | UnsetType, says("Its name on the command line.")] = UNSET
    size: Annotated[int | UnsetType, says("Its size on disk, in bytes.")] = UNSET
    quarantine: Annotated[int | UnsetType, says("How many values are in its quarantine.")] = UNSET
    deleted: Annotated[bool | UnsetType, says("With --prune: whether it was deleted.")] = UNSET


class Backups(_Shape):
    """What `undo --list --json` prints."""

    version: Literal[1]
    backups: Annotated[list[Backup], says("The backups, oldest first.")]


class SetAside(_Shape):
    """A value that a repair set aside."""

    code: Annotated[str, says("The rule that made it necessary.")]
    place: Annotated[str, says("Where it was.")]
    value: Annotated[Any, says("The value itself. This is message content.")]
    size: Annotated[int | UnsetType, says("Its size in bytes.")] = UNSET


class ShownBackup(_Shape, kw_only=True):
    """What `backups --show ID --json` prints."""

    version: Literal[1]
    target: Target
    session: Session
    backup: Annotated[str, says("The file that holds it.")]
    id: Annotated[str, says("Its name on the command line.")]
    time: Annotated[str, says("When it was made.")]
    status: Annotated[str, says("Whether the repair is finished, undone or unfinished.")]
    kind: Annotated[Literal["repair", "undo"], says("What made it.")]
    run: Annotated[str, says("The run it belongs to.")]
    size: Annotated[int, says("Its size on disk, in bytes.")]
    codes: Annotated[list[str], says("The codes of what was repaired.")]
    changes: Annotated[list[Change], says("What the repair did.")]
    quarantine: Annotated[list[SetAside], says("What it quarantined.")]


class PastRun(_Shape):
    """A run of repairs in a PostgreSQL."""

    target: Target
    run: Annotated[str, says("Its name, for --run.")]
    time: Annotated[str, says("When it began.")]
    status: Annotated[Literal["done", "undone"], says("Whether it was undone.")]
    repairs: Annotated[int, says("How many threads it repaired.")]
    undone: Annotated[int, says("How many of these were undone.")]


class PastRuns(_Shape):
    """What `undo --list postgresql://… --json` prints."""

    version: Literal[1]
    backups: Annotated[list[PastRun], says("The runs, newest first.")]


class Edit(_Shape, kw_only=True):
    """One change in the original's coordinates."""

    op: Annotated[Literal["insert", "replace", "delete", "move"], says("What is done.")]
    place: Annotated[str, says("Where, as text.")]
    path: Annotated[list[str | int], says("Where, as keys and indexes.")]
    value: Annotated[Any | UnsetType, says("The value there afterwards. This is content.")] = UNSET
    source: Annotated[str, says("For a move: where the value comes from; otherwise empty.")]
    source_path: Annotated[list[str | int], says("The same as keys and indexes.")]


class Heal(_Shape):
    """What `heal --json` prints."""

    version: Literal[1]
    target: Target
    dialect: Annotated[str, says("The dialect that the input was read as.")]
    changed: Annotated[bool, says("Whether the healed value differs from the input.")]
    findings: Annotated[list[Finding], says("What was wrong.")]
    edits: Annotated[list[Edit], says("What changes.")]
    changes: Annotated[list[Change], says("The same for people.")]
    quarantine: Annotated[list[Kept], says("What had to be removed from the list.")]
    remaining: Annotated[list[Finding], says("What could not be healed.")]


class Size(_Shape):
    """How long a request is."""

    tokens: Annotated[int, says("Tokens, counted or estimated.")]
    bytes: Annotated[int, says("Bytes.")]


class Compact(_Shape):
    """What `compact --json` prints."""

    version: Literal[1]
    target: Target
    format: Annotated[str | None, says("The format of the session.")]
    session: Session
    rung: Annotated[
        Literal["nothing", "shortened", "summary", "digest"],
        says("What was needed: nothing, results shortened, a summary, a digest."),
    ]
    before: Annotated[Size, says("Before.")]
    after: Annotated[Size, says("Afterwards.")]
    turns: Annotated[int, says("How many turns the summary replaces.")]
    asked: Annotated[int, says("How often the model was called.")]
    failures: Annotated[list[str], says("Why calls of the model failed.")]
    unasked: Annotated[str, says("Why the model was not called, or not again; empty if it was.")]
    edits: Annotated[list[Change], says("What a repair changed first.")]
    backup: Annotated[str | None, says("Where the original is kept.")]
    applied: Annotated[bool, says("Whether it was written.")]


class Checkpoint(_Shape):
    """A place to go back to."""

    seq: Annotated[int, says("The number of the record, for rewind --to.")]
    kind: Annotated[
        Literal["batch", "turn", "named"],
        says("Before a batch of calls, at the end of a turn, or named."),
    ]
    at: Time
    label: Annotated[str | None, says("Its name, if it was named.")]


class Checkpoints(_Shape):
    """What `checkpoints --json` prints."""

    version: Literal[1]
    target: Target
    session: Annotated[str, says("The name of the session.")]
    records: Annotated[int, says("How many records it has.")]
    checkpoints: Annotated[list[Checkpoint], says("Oldest first.")]


class Rewind(_Shape, rename={"from_": "from"}):
    """What `rewind --json` prints."""

    version: Literal[1]
    target: Target
    session: Annotated[str, says("The name of the session.")]
    from_: Annotated[int, says("The last record before.")]
    to: Annotated[int, says("The record that the session continues from.")]
    seq: Annotated[int, says("The number of the record that says so.")]


class Fork(_Shape):
    """What `fork --json` prints."""

    version: Literal[1]
    target: Target
    source: Annotated[str, says("The session that was forked.")]
    session: Annotated[str, says("The new session.")]
    at: Annotated[int, says("How many records the two share.")]


class Match(_Shape):
    """A message in which all words were found."""

    target: Target
    format: Annotated[str, says("The format of the session.")]
    session: Session
    seq: Annotated[int, says("Which record or message, from 1.")]
    who: Annotated[str, says("Who said it: user, model or tool.")]
    excerpt: Annotated[str, says("A little of the text around the words. This is content.")]
    at: Time


class Unsearched(_Shape):
    """Something that could not be searched."""

    target: Target
    error: Annotated[str, says("Why.")]


class Search(_Shape):
    """What `search --json` prints."""

    version: Literal[1]
    matches: Annotated[list[Match], says("What was found.")]
    errors: Annotated[list[Unsearched], says("What could not be searched.")]


class Copied(_Shape):
    """One session that was copied between stores, or was not."""

    session: Annotated[str, says("Its name in the source.")]
    name: Annotated[str | UnsetType, says("Its name in the target.")] = UNSET
    records: Annotated[int | UnsetType, says("How many records it has.")] = UNSET
    new: Annotated[bool | UnsetType, says("Whether it is new.")] = UNSET
    error: Failure | UnsetType = UNSET


class Migrate(_Shape, rename={"from_": "from"}):
    """What `migrate --json` prints between Lockstitch stores."""

    version: Literal[1]
    from_: Annotated[str, says("The source, without its password.")]
    to: Annotated[str, says("The target, without its password.")]
    sessions: Annotated[list[Copied], says("One entry for each session.")]


class CopiedThread(Copied):
    """One thread of LangGraph that was copied, or was not."""

    state: Annotated[
        Literal["copied", "there", "gone on", "left"] | UnsetType,
        says("copied now, there before, continued in the copy, or left for another run."),
    ] = UNSET
    checkpoints: Annotated[int | UnsetType, says("How many.")] = UNSET
    writes: Annotated[int | UnsetType, says("The number of pending writes.")] = UNSET
    moved: Annotated[bool | UnsetType, says("Whether the source was continued meanwhile.")] = UNSET
    allow: Annotated[
        list[str] | UnsetType, says("Classes that the saver must be allowed to build.")
    ] = UNSET
    forms: Annotated[list[str] | UnsetType, says("Encodings that the saver's serde must read.")] = (
        UNSET
    )


class MigrateThreads(_Shape, rename={"from_": "from"}):
    """What `migrate --json` prints for threads of LangGraph's own savers."""

    version: Literal[1]
    from_: Annotated[str, says("The source, without its password.")]
    to: Annotated[str, says("The target, without its password.")]
    run: Annotated[str, says("Its name, for undo --run.")]
    dry_run: Annotated[bool, says("Whether nothing was written.")]
    sessions: Annotated[list[CopiedThread], says("One entry for each thread.")]


class Imported(_Shape):
    """One session that was imported, or was not."""

    target: Target
    format: Annotated[str | None, says("The format of the session.")]
    source: Annotated[str | None, says("Its id in its own program.")]
    session: Annotated[str | UnsetType, says("Its name in the store.")] = UNSET
    dialect: Annotated[str | UnsetType, says("Its wire format.")] = UNSET
    messages: Annotated[int | UnsetType, says("How many messages it had.")] = UNSET
    records: Annotated[int | UnsetType, says("How many records it has now.")] = UNSET
    healed: Annotated[bool | UnsetType, says("Whether it was broken.")] = UNSET
    unknown: Annotated[int | UnsetType, says("Calls at the end without a result.")] = UNSET
    new: Annotated[bool | UnsetType, says("Whether it is new.")] = UNSET
    error: Failure | UnsetType = UNSET


class Import(_Shape):
    """What `import --json` prints."""

    version: Literal[1]
    to: Annotated[str, says("The store, without its password.")]
    sessions: Annotated[list[Imported], says("One entry for each session.")]


class Delete(_Shape):
    """What `delete --json` prints."""

    version: Literal[1]
    target: Target
    session: Annotated[str, says("The session that was removed.")]
    records: Annotated[int, says("How many records it had.")]
    companions: Annotated[list[str], says("Sessions that belonged to it and were removed with it.")]


class Removed(_Shape):
    """A session that retain removes."""

    session: Annotated[str, says("Its name.")]
    title: Annotated[str | None, says("Its title.")]
    records: Annotated[int, says("How many records it has.")]
    changed: Time
    reason: Annotated[str, says("Which rule applied to it.")]


class SparedSession(_Shape):
    """A session that stays although it fell under a rule."""

    session: Annotated[str, says("Its name.")]
    reason: Annotated[str, says("Why it stays.")]


class Retain(_Shape):
    """What `retain --json` prints."""

    version: Literal[1]
    target: Target
    removed: Annotated[list[Removed], says("What was removed, or would be.")]
    spared: Annotated[list[SparedSession], says("What stays nevertheless.")]
    applied: Annotated[bool, says("Whether it was done.")]


class AuditLine(_Shape):
    """A removal that was written down."""

    session: Annotated[str, says("The name of the session.")]
    records: Annotated[int, says("How many records it had.")]
    changed: Time
    reason: Annotated[str, says("Why it was removed.")]
    by: Annotated[str, says("Who removed it.")]
    at: Time


class Audit(_Shape):
    """What `retain --audit --json` prints."""

    version: Literal[1]
    target: Target
    audit: Annotated[list[AuditLine], says("Oldest first.")]


class Vacuum(_Shape):
    """What `vacuum --json` prints."""

    version: Literal[1]
    target: Target
    freed: Annotated[int, says("How many bytes were freed, as far as that is known.")]


class Rule(_Shape):
    """A rule, with all that its page says."""

    code: Annotated[str, says("LS101.")]
    name: Annotated[str, says("orphan-call.")]
    severity: Annotated[str, says("error, warning or note.")]
    dialects: Annotated[list[str], says("The wire formats it is for.")]
    formats: Annotated[list[str], says("The stored formats it is for.")]
    errors: Annotated[list[list[str]], says("Each provider, and its own text.")]
    fixable: Annotated[bool, says("Whether it can be repaired.")]
    lossy: Annotated[bool, says("Whether the repair removes something.")]
    summary: Annotated[str, says("What is wrong, in one line.")]
    help: Annotated[str, says("What the repair does, in one line.")]
    what: Annotated[str, says("What it is.")]
    cause: Annotated[str, says("What causes it.")]
    repair: Annotated[str, says("What the repair does.")]
    failures: Annotated[list[str], says("Numbers in our own catalogue of failures.")]
    known: Annotated[str, says("For which versions it is known.")]


class Explain(_Shape):
    """What `explain --json` prints."""

    version: Literal[1]
    rules: Annotated[list[Rule], says("The rule that was asked for, or all.")]


class Request(_Shape):
    """One request that the local provider answered."""

    number: Annotated[int, says("Which request it is, from 1.")]
    path: Annotated[str, says("The path of the address.")]
    dialect: Annotated[str, says("The wire format.")]
    outcome: Annotated[str, says("accepted, refused and so on.")]
    status: Annotated[int, says("The HTTP status; 0 if the connection was dropped.")]
    messages: Annotated[int, says("How many messages it had.")]
    stream: Annotated[bool, says("Whether the answer was streamed.")]
    findings: Annotated[list[Finding], says("Why it was refused.")]
    record: Annotated[str | None, says("The file that holds the body, with --record.")]
    fault: Annotated[str, says("The injected fault; empty if there was none.")]


class ProviderLine(_Shape):
    """Every other line of `provider --json`."""

    version: Literal[1]
    request: Annotated[Request, says("The request.")]


class ProxiedRequest(_Shape):
    """One request that went through the proxy."""

    route: Annotated[str, says("The path of the address.")]
    status: Annotated[int, says("The HTTP status that the client got.")]
    dialect: Annotated[str, says("The wire format; empty if it is not a request of a model.")]
    repaired: Annotated[dict[str, int], says("What was repaired, counted by code.")]
    left: Annotated[dict[str, int], says("What was left, counted by code.")]
    places: Annotated[list[str], says("Where.")]
    retried: Annotated[bool, says("Whether it was sent again after a refusal.")]
    error: Annotated[str, says("What went wrong; empty if nothing did.")]


class ProxyLine(_Shape):
    """Every line of `proxy --json` after the first."""

    version: Literal[1]
    request: Annotated[ProxiedRequest, says("The request.")]


class Listening(_Shape):
    """The first line of a command that serves."""

    version: Literal[1]
    url: Annotated[str, says("Where it listens.")]


class WatchStart(_Shape):
    """The first line of `watch --json`."""

    version: Literal[1]
    event: Literal["started"]
    folders: Annotated[list[str], says("What is watched.")]
    sessions: Annotated[int, says("How many sessions are there.")]


class WatchLine(_Shape, kw_only=True):
    """Every other line of `watch --json`."""

    version: Literal[1]
    event: Annotated[str, says("The outcome for the session: broken, repaired, healthy and so on.")]
    said: Annotated[str, says("The same in words.")]
    command: Annotated[str, says("The command to run next; empty if there is none.")]
    backup: Annotated[str | UnsetType, says("Where the original is kept.")] = UNSET
    reason: Annotated[str | UnsetType, says("Why it was not repaired.")] = UNSET
    session: Annotated[Checked, says("The session.")]


class Act(_Shape):
    """One agent of the demo."""

    killed: Annotated[int, says("The process that was killed.")]
    status: Annotated[int, says("What the provider answered to the next one.")]
    error: Annotated[str, says("The provider's own words; empty if it accepted.")]
    answers: Annotated[list[str], says("What the request said of the three calls.")]
    said: Annotated[str, says("What the model answered.")]


class Demo(_Shape):
    """What `demo --json` prints."""

    version: Literal[1]
    plain: Annotated[Act, says("The agent with a plain message list.")]
    session: Annotated[Act, says("The agent with a Lockstitch session.")]
    store: Annotated[str, says("The address of the session's store.")]


class Failed(_Shape):
    """What any command prints with `--json` if it fails before it has a result."""

    version: Literal[1]
    error: Annotated[str, says("What happened to what, and what to do next.")]
    kind: Annotated[str, says("The class of the error, as in the library: Unreadable.")]


# What a command prints with --json: one document, or one of several. Commands that are not in every
# branch yet may be here, too.
_KNOWN: dict[str, tuple[type[Struct], ...]] = {
    "every command": (Failed,),
    "scan": (Scan, Statistics),
    "check": (Check, Statistics),
    "repair": (Repair,),
    "undo": (Undo, Backups, PastRuns),
    "heal": (Heal,),
    "compact": (Compact,),
    "checkpoints": (Checkpoints,),
    "rewind": (Rewind,),
    "fork": (Fork,),
    "search": (Search,),
    "migrate": (Migrate, MigrateThreads),
    "import": (Import,),
    "delete": (Delete,),
    "retain": (Retain, Audit),
    "vacuum": (Vacuum,),
    "explain": (Explain,),
    "provider": (Listening, ProviderLine),
    "demo": (Demo,),
    "backups": (Backups, ShownBackup),
    "proxy": (Listening, ProxyLine),
    "watch": (WatchStart, WatchLine),
    "ui": (Listening,),
}
DOCUMENTS = {name: kinds for name, kinds in _KNOWN.items() if name in (*COMMANDS, "every command")}
