"""Claude Code: ``~/.claude/projects/<project>/<session>.jsonl``, one JSON object per line.

How bad a finding is was measured by resuming each kind of damage in 2.1.50, 2.1.112, 2.1.197 and
2.1.325, with a person's pauses between its lines. If the newest client is refused for it or loses
something by it, it is an error. If only an older client fails at it, it is a warning. If it changes
no request, it is a note.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from os.path import basename, splitext
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.conversation.parts import Path as Steps
from lockstitch.dialects import ANTHROPIC
from lockstitch.dialects.base import text_of_blocks
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.errors import LockstitchError
from lockstitch.files import os_files, read
from lockstitch.files.os_files import SLACK, SessionUser, working_in_folder
from lockstitch.formats.claude_code import fast, write_back
from lockstitch.formats.claude_code.chain import (
    ASSISTANT,
    ATTACHMENT,
    SPEAKERS,
    USER,
    ClaudeChain,
    answered_in,
    calls_in,
    is_prompt,
    is_sent,
    message_of,
    queued_words,
    results_in,
)
from lockstitch.formats.claude_code.evidence import CLIENT_WORDS, words_of
from lockstitch.formats.claude_code.tree import ClaudeTreeRepair, Fault, find_faults
from lockstitch.formats.claude_code.unreachable import (
    CLEARED,
    LEFT,
    LOST,
    WHY,
    OffBranch,
    find_branches,
)
from lockstitch.formats.interface import (
    COMPACTED,
    Aside,
    Context,
    Format,
    Glimpse,
    HealthProof,
    History,
    Quick,
    Shortened,
    Sorting,
    SourcedMessage,
    Transcript,
    new_finding,
    parts_of,
)
from lockstitch.formats.interface import LEFT as ON_PURPOSE
from lockstitch.formats.interface import LOST as AGAINST_WILL
from lockstitch.formats.records import DecodeLine, Record, as_str, read_json
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, NOTE, WARNING, Finding
from lockstitch.rules.rule import several

_CONTENT: Steps = ("message", "content")
QUEUED: Steps = ("attachment", "prompt")
# Facts about the session, each from the last record that has it.
_FACTS = ("sessionId", "cwd", "version")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MARKS = frozenset({"uuid", "sessionId", "leafUuid", "messageId", "agentId"})
_LINKS = frozenset({"parentUuid", "sessionId"})
# Types of records outside the conversation that no other program is known to use.
_NOTES = frozenset(
    {
        *("file-history-snapshot", "file-history-delta", "queue-operation", "last-prompt"),
        *("ai-title", "custom-title", "permission-mode", "bridge-session", "agent-name"),
        *("pr-link", "content-replacement", "attribution-snapshot"),
    }
)
# The record and the field of a title, those that a person chose first; the last of a kind counts.
_TITLES = (("custom-title", "customTitle"), ("ai-title", "aiTitle"), ("summary", "summary"))
# The newest client reads these, or skips them without losing anything else. LS601 marks a record
# that is lost already; the loss of its children is found where their link is missing.
_READ_ANYWAY = frozenset({"LS601", "LS603", "LS604", "LS605", "LS606", "LS612"})
_COPED_WITH = frozenset({"LS106", "LS302", "LS303", "LS404", "LS406", "LS505"})
_CHANGES_NOTHING = frozenset({"LS306", "LS506"})
# Tools that a person answers: an accepted plan may go on in a file of its own.
_QUESTIONS = ("AskUserQuestion", "ExitPlanMode")
_PROGRAM = "claude"
_PROJECTS = "projects"
_LONGEST = 200  # a longer name of a project is cut and followed by a digest
# A process that cannot be asked counts as alive for this long after its last sign of life.
_SILENCE = 3600.0


class ProcessFile(Struct, rename="camel"):
    """What a process says about itself."""

    session_id: str
    started_at: float = 0
    proc_start: str = ""
    pid_domain: str = ""


class ClaudeState(Struct):
    """What is known of a file: its chain, the branches off it, and the faults of its tree.

    ``spans`` is made when a severity is first asked for that needs it.
    """

    chain: ClaudeChain
    branches: list[OffBranch]
    faults: list[Fault]
    spans: _Spans | None = None


class ClaudeCode(Format):
    """A tree of lines; the conversation is the chain that ends in the latest leaf."""

    name = "claude-code"
    title = "Claude Code"
    dialect = ANTHROPIC
    places = (".claude/projects/*/*.jsonl", ".claude/projects/*/*/subagents/*.jsonl")
    variable = "CLAUDE_CONFIG_DIR"
    resume = ("claude", "--resume", "{id}")
    is_local = True

    def claims(self, name: str, head: Sequence[Any]) -> bool:
        values = [value for value in head if type(value) is dict]
        return any(map(_is_own, values)) and not self.doubt(head)

    def doubt(self, head: Sequence[Any]) -> str:
        """Return a doubt if messages have another shape, as in other programs' similar lines."""
        foreign = spoken = 0
        for value in head:
            message = value.get("message") if type(value) is dict else None
            if type(message) is dict and value.get("type") in SPEAKERS:
                spoken += _is_own(value)
                is_known = "parts" not in message and message.get("role") in (*SPEAKERS, None)
                foreign += "content" not in message and not is_known
        if foreign and foreign >= spoken:
            return "looks like a session of Claude Code, but its messages have a different form"
        return ""

    def is_record(self, value: dict[str, Any]) -> bool:
        return type(value.get("type")) is str and not _MARKS.isdisjoint(value)

    def slim(self, data: bytes) -> DecodeLine | None:
        return fast.make_link_decoder(data)

    def quick(self, path: str) -> Quick | None:
        return fast.quick(path)

    def proof(self) -> HealthProof:
        return fast.ClaudeProof()

    def glimpse(
        self, path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]
    ) -> Glimpse:
        lines = [*head, *tail]
        name = splitext(basename(path))[0]  # noqa: PTH119, PTH122 - there may be 100 000 of them
        is_aside = name.startswith("agent-")
        spoken = (v for v in lines if is_prompt(v) and (is_aside or not v.get("isSidechain")))
        words = (words_of(value).strip() for value in spoken)
        sessions, projects = (
            [value[key] for value in lines if type(value.get(key)) is str and value[key]]
            for key in ("sessionId", "cwd")
        )
        return Glimpse(
            title=_title(lines),
            prompt=next((text for text in words if text and not text.startswith(CLIENT_WORDS)), ""),
            session=sessions[-1] if sessions else name,
            project=projects[-1] if projects else None,
            is_aside=is_aside,
        )

    def beside(self, path: str) -> dict[str, str]:
        folder = Path(path.removesuffix(".jsonl"), "subagents")
        return {one.name: str(one) for one in sorted(folder.glob("agent-*"))}

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        chain = ClaudeChain(records)
        branches = find_branches(chain) if chain.off or chain.boundary >= 0 else []
        lost = [branch for branch in branches if branch.kind in LOST]
        off_chain = chain.spoken.difference(chain.order)
        evidence = _evidence(chain, off_chain, context) if off_chain or context.beside else {}
        faults = find_faults(chain, lost, evidence)
        latest: dict[str, str] = {}
        for number in reversed(chain.walk.path):
            value = chain.values[number]
            for key in _FACTS:
                if type(value.get(key)) is str:
                    latest.setdefault(key, value[key])
            if len(latest) == len(_FACTS):
                break
        sent = (chain.values[n] for n in chain.order if is_sent(chain.values[n]))
        return Transcript(
            context,
            records,
            _history(chain, chain.order),
            findings=[fault.finding for fault in faults],
            session=latest.get("sessionId") or context.name.removesuffix(".jsonl"),
            project=latest.get("cwd"),
            turns=sum(map(is_prompt, sent)),
            left=sum(branch.turns for branch in lost),
            left_size=sum(branch.size for branch in lost),
            notes=[_left_on_purpose(chain, one) for one in branches if one.kind in LEFT],
            evidence=evidence,
            version=latest.get("version", ""),
            state=ClaudeState(chain, branches, faults),
        )

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        state: ClaudeState = transcript.state
        if not state.faults:
            return list(transcript.records)
        return ClaudeTreeRepair(transcript, state.chain, state.faults, ledger).run()

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        return write_back.ClaudeWriteBack(transcript, transcript.state.chain).lay_out(repaired)

    def fork(self, transcript: Transcript, line: str) -> bytes:
        state: ClaudeState = transcript.state
        return write_back.fork(transcript, state.chain, state.branches, line)

    def asides(self, transcript: Transcript) -> list[Aside]:
        return [one for one in _asides(transcript.state) if one.history.messages]

    def resumed_as(self, path: str, session: str | None) -> str | None:
        # It looks for a file of that name; in a copy of a session stands the id of the first one.
        name = splitext(basename(path))[0]  # noqa: PTH119, PTH122 - as above
        return name if _UUID.fullmatch(name) else session

    def users(self, path: str, session: str | None, project: str | None) -> Iterator[SessionUser]:
        """Return the processes that have a session's file open, as far as that is known.

        Since 2.1.112 at the latest, every living process keeps a file ``sessions/<pid>.json`` in
        the folder that holds ``projects``. It holds the number and the session of the process, when
        it was started (in milliseconds since 1970, and as the system counts it), and in the newest
        versions the machine and the namespace of the number. Versions without such files are known
        only by their name and their working directory.
        """
        file = Path(os.path.realpath(path))
        # The settings folders above the session, by its own name and by its real one. A session
        # that lies anywhere else is a copy, which no process has open.
        found: dict[Path, None] = {}
        for name in (os.path.abspath(path), file):  # noqa: PTH100 - not resolved
            found |= {one.parent: None for one in Path(name).parents if one.name == _PROJECTS}
        moved = os.environ.get("CLAUDE_CONFIG_DIR")
        usual = Path(moved) if moved else Path.home() / ".claude"
        if file.is_relative_to(os.path.realpath(usual / _PROJECTS)):
            found[usual] = None
        folders = list(found)
        if not folders:
            return
        known: set[int] = set()
        parents = {one.parent.name for one in file.parents if one.name == "subagents"}
        own_ids = {file.stem, session, *parents}  # a sub-agent's session is its parent's
        records: list[Path] = []
        for folder in folders:
            with suppress(OSError):
                listed = (folder / "sessions").glob("*.json")
                records += [one for one in listed if one.stem.isdecimal()]
        for record in records:
            pid = int(record.stem)
            known.add(pid)
            own = None
            with suppress(LockstitchError, msgspec.MsgspecError):
                own = msgspec.json.decode(read.read_file(record), type=ProcessFile)
            if own is not None and own.session_id in own_ids:
                yield from _users_of_process_file(pid, own, record, file)
        for user in working_in_folder((_PROGRAM,), path, lambda folder: _is_project(file, folder)):
            if user.pid not in known and _is_at_home(user.pid, folders):
                yield user

    def belongs(self, path: str, folder: str) -> bool:
        """Whether a file is a session of a working directory, but not one of a sub-agent."""
        file = Path(os.path.realpath(path))
        is_main = not file.name.startswith("agent-") and file.parent.name != "subagents"
        return is_main and _is_project(file, folder)

    def sorting(self, transcript: Transcript) -> Sorting:
        return write_back.sorting(transcript, transcript.state.chain)

    def compacted(self, transcript: Transcript, left: Shortened) -> list[Record]:
        writer = write_back.CompactionWriter(transcript, transcript.state.chain, left)
        return [*transcript.records, *writer.records()]

    def named(self, found: Finding, transcript: Transcript) -> Finding:
        """Use LS803 for a result whose call comes before the compaction in force."""
        if found.code != "LS103":
            return found
        chain: ClaudeChain = transcript.state.chain
        number, _ = transcript.history.home(found.at)
        if answered_in(chain.values[number]).isdisjoint(chain.calls_cut_off):
            return found
        return new_finding(
            "LS803", found.place, "the call of this result is from before the compaction"
        )

    def severity(self, found: Finding, transcript: Transcript) -> str:
        """Return how bad a finding on the history is, by its place among the messages."""
        messages, at = transcript.history.messages, found.at
        number = at.message or 0
        worst = ERROR
        if transcript.state.chain.whole_file:
            worst = WARNING
            if found.code == "LS406":
                # A sub-agent gets its prompt in its parent's file, and older clients write only
                # replies here.
                return NOTE
        severity = worst if found.severity == ERROR else found.severity
        if found.code in _CHANGES_NOTHING:
            return NOTE
        if number >= len(messages):
            return severity
        message, model = messages[number], transcript.history.model
        is_signed = model is None or model.startswith("claude")
        if found.code in {"LS302", "LS303"} and not is_signed:
            # The provider behind the session does not sign and check thinking.
            return NOTE
        if found.code in _COPED_WITH:
            return WARNING
        parts = parts_of(message)
        place = at.steps[3] if len(at.steps) > 3 else 0  # noqa: PLR2004 - messages.1.content.3
        place = place if type(place) is int else 0
        part = parts[place] if place < len(parts) else {}
        fields = part if type(part) is dict else {}
        if found.code in {"LS101", "LS102"}:
            # The newest client itself answers calls that are open at the end, and tells the model
            # so. A question to a person may be answered elsewhere.
            if number < len(messages) - (2 if found.code == "LS102" else 1):
                return worst
            return NOTE if fields.get("name") in _QUESTIONS else WARNING
        if found.code == "LS104":
            spans = transcript.state.spans
            if spans is None or spans.messages is not messages:
                spans = transcript.state.spans = _Spans(messages)
            return WARNING if spans.is_near(number) else worst
        if found.code == "LS401":
            # Blank texts in results are accepted, as real sessions show that continued. The client
            # itself leaves out the model's blank texts, unless they are empty.
            if fields.get("type") == "tool_result":
                return NOTE
            if message.get("role") != ASSISTANT:
                return worst
            text = part.get("text") if type(part) is dict else text_of_blocks(part)
            return NOTE if text else WARNING
        return worst if found.code in {"LS105", "LS803"} else severity

    def stored_severity(self, found: Finding, transcript: Transcript) -> str:
        """Return how bad a finding on the records is.

        A sub-agent's file is never resumed by itself, and a line with several records loses nothing
        if the client wrote them again.
        """
        chain: ClaudeChain = transcript.state.chain
        if found.severity != ERROR:
            return found.severity
        again = found.code == "LS602" and found.place not in chain.places_of_words
        return WARNING if again or chain.whole_file or found.code in _READ_ANYWAY else ERROR


def _title(lines: Sequence[dict[str, Any]]) -> str:
    known = {as_str(value.get("uuid")) for value in lines}
    for kind, field in _TITLES:
        for value in reversed(lines):
            # old files begin with the summaries of other sessions
            is_own = kind != "summary" or as_str(value.get("leafUuid")) in known
            found = as_str(value.get(field))
            if value.get("type") == kind and is_own and found and found.strip():
                return found
    return ""


def _is_own(value: dict[str, Any]) -> bool:
    """Whether only Claude Code writes such a record."""
    kind = value.get("type")
    if type(kind) is not str:
        return False
    if kind in SPEAKERS:
        message = value.get("message")
        if type(message) is not dict or "uuid" not in value or _LINKS.isdisjoint(value):
            return False
        return message.get("role") in SPEAKERS and type(message.get("content")) in (str, list)
    if kind == "summary":
        return "leafUuid" in value
    is_linked = "uuid" in value and "parentUuid" in value and type(value.get("isSidechain")) is bool
    return is_linked or (kind in _NOTES and not _MARKS.isdisjoint(value))


def _asides(state: ClaudeState) -> Iterator[Aside]:
    """Yield the branches off the chain, and what comes before the compaction in force."""
    chain = state.chain
    sent = {*chain.order, *(number for branch in state.branches for number in branch.members)}
    numbers = [node.number for node in chain.graph.nodes if not node.aside]
    earlier = [n for n in numbers if n < chain.boundary and n not in sent]
    if earlier:
        history = _history(chain, earlier)
        yield Aside(COMPACTED, earlier[0], -1, history, "summarized by a compaction")
    for branch in state.branches:
        kind = AGAINST_WILL if branch.kind in LOST else ON_PURPOSE
        history = _history(chain, branch.members)
        attach = -1 if branch.attach is None else branch.attach
        yield Aside(kind, branch.top, attach, history, WHY[branch.kind])


def _history(chain: ClaudeChain, numbers: Sequence[int]) -> History:
    """Build what is sent of some lines.

    Lines of one message of the model form one message, and so do neighbouring lines of results.
    Words that were typed while tools ran wait until all their results are there.
    """
    history = History(ANTHROPIC)
    group = ""
    queued: list[int] = []
    for number in numbers:
        value = chain.values[number]
        if value.get("type") == ATTACHMENT and queued_words(value):
            queued.append(number)
        message = message_of(value)
        content = message.get("content")
        if not is_sent(value) or type(content) not in (list, str):
            continue
        if value["type"] == ASSISTANT:
            key = str(message.get("id") or "")
        else:
            is_pure = type(content) is list and len(results_in(value)) == len(content)
            key = USER if is_pure and content else ""
        if queued and key not in (group, USER):
            _add_queued(history, chain, queued)
            queued = []
        parts = content if type(content) is list else []
        paths: list[Steps] = [(*_CONTENT, place) for place in range(len(parts))]
        last = history.messages[-1]["content"] if history.messages else None
        if key and key == group and type(content) is list and type(last) is list:
            if parts and not last:
                history.sources[-1], history.paths[-1] = [], []
            history.extend(parts, number, paths)
        else:
            group, paths = key, paths or [_CONTENT]
            content = list(content) if type(content) is list else content
            history.add({"role": value["type"], "content": content}, [number] * len(paths), paths)
        if value["type"] == ASSISTANT and type(message.get("model")) is str:
            history.model = message["model"]
    if queued:
        _add_queued(history, chain, queued)
    return history


def _add_queued(history: History, chain: ClaudeChain, numbers: Sequence[int]) -> None:
    for number in numbers:
        words = queued_words(chain.values[number])
        history.add({"role": USER, "content": words}, [number], [QUEUED])


def _left_on_purpose(chain: ClaudeChain, branch: OffBranch) -> str:
    line = chain.records[branch.top].place
    turns = several(branch.turns, "turn")
    deed = "when the context was cleared" if branch.kind == CLEARED else "by a rewind"
    return (
        f"{turns} ({branch.size} bytes) from line {line} on were left behind {deed}; --branch "
        f"{line} -o FILE writes them as a new session"
    )


def _evidence(
    chain: ClaudeChain, off_chain: Iterable[int], context: Context
) -> dict[str, dict[str, Any]]:
    """Gather the results that survived off the chain, by call id, for calls that are on it."""
    found: dict[str, dict[str, Any]] = {}
    called: set[str] = set()
    for number in chain.order:
        content = message_of(chain.values[number]).get("content")
        blocks = content if type(content) is list else ()
        called.update(
            block["id"] for block in blocks if type(block) is dict and type(block.get("id")) is str
        )
    for number in sorted(off_chain):
        for result in results_in(chain.values[number]):
            name = result.get("tool_use_id")
            if type(name) is not str or name not in called or "content" not in result:
                continue
            if not is_placeholder(text_of_blocks(result["content"])):
                found.setdefault(name, result)
    # The last words of every sub-agent that had finished answer the call that started it.
    for name in context.beside:
        if not name.endswith(".meta.json"):
            continue
        try:
            meta, _ = read_json(read.read_file(context.beside[name]))
        except (LockstitchError, ValueError):
            continue
        call = meta.get("toolUseId") if type(meta) is dict and meta.get("finished") else None
        if type(call) is str and call in called:
            words = _last_words(context.beside.get(name.removesuffix(".meta.json") + ".jsonl"))
            if words:
                block = {"type": "tool_result", "tool_use_id": call, "content": words}
                found.setdefault(call, block)
    return found


def _last_words(path: str | None) -> str:
    """Return the text of the model's last message in a file; empty if it cannot be read."""
    lines: list[bytes] = []
    with suppress(LockstitchError):
        lines = read.read_file(path).split(b"\n") if path else []
    for line in reversed(lines):
        try:
            value, _ = read_json(line)
        except ValueError:
            continue
        if type(value) is dict and value.get("type") == ASSISTANT and not calls_in(value):
            text = text_of_blocks(message_of(value).get("content"))
            if text.strip():
                return text
        elif type(value) is dict and value.get("type") in SPEAKERS and is_sent(value):
            return ""
    return ""


class _Spans:
    """Where each id occurs first and last among the messages, and how often the model speaks."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = messages
        self.ends: dict[object, tuple[int, int]] = {}
        self.spoken = [0]
        for place, message in enumerate(messages):
            self.spoken.append(self.spoken[-1] + (message.get("role") == ASSISTANT))
            for name in _ids(message, "id") | _ids(message, "tool_use_id"):
                self.ends[name] = (self.ends.get(name, (place, place))[0], place)

    def is_near(self, number: int) -> bool:
        """Whether the model says nothing between a displaced result and its call."""
        message = self.messages[number]
        names = _ids(message, "tool_use_id") or _ids(message, "id")
        ends = [self.ends[name] for name in names]
        if not ends:
            return False
        first, last = min(first for first, _ in ends), max(last for _, last in ends)
        return self.spoken[max(last, first + 1)] == self.spoken[first + 1]


def _ids(message: dict[str, Any], key: str) -> set[object]:
    return {p[key] for p in parts_of(message) if type(p) is dict and type(p.get(key)) is str}


def _users_of_process_file(
    pid: int, own: ProcessFile, record: Path, file: Path
) -> Iterator[SessionUser]:
    """Yield the process of a process file if it is alive and still the one that wrote the file."""
    space = os_files.namespace()
    # The number of a process in another container means nothing here, so the times of its files
    # decide.
    is_here = not own.pid_domain or not space.startswith("pid:") or own.pid_domain.endswith(space)
    start = os_files.start_moment(pid) if is_here else None
    if start is None:
        times = [0.0]
        for path in (record, file):
            with suppress(OSError):
                times.append(path.stat().st_mtime)
        if time.time() - max(times) < _SILENCE:
            yield SessionUser(pid, record=str(record))
    elif start and sys.platform == "linux" and own.proc_start.isdecimal():
        # its file gives the start as this system does, in ticks since the boot
        if start == own.proc_start:
            yield SessionUser(pid)
    elif start:
        # If the process existed when its file was written, its number is not reused.
        since = os_files.started_at(pid)
        is_own = since is None or since <= own.started_at / 1000 + SLACK
        with suppress(OSError):
            is_own = is_own or _PROGRAM in os_files.names_of(pid)
        if is_own:
            yield SessionUser(pid)


def _is_project(file: Path, folder: str) -> bool:
    """Whether a file is where the sessions of a working directory are kept."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", folder)
    names = [one.name for one in file.parents]
    if len(name) <= _LONGEST:
        return name in names
    return any(one.startswith(f"{name[:_LONGEST]}-") for one in names)


def _is_at_home(pid: int, folders: list[Path]) -> bool:
    """Whether a process keeps its sessions in one of these folders, as far as can be known."""
    environ = os_files.environ_of(pid)
    if environ is None:
        return True
    home = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(environ.get("HOME", ""), ".claude")  # noqa: PTH118
    return any(os.path.realpath(home) == os.path.realpath(folder) for folder in folders)
