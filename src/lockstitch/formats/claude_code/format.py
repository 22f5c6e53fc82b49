"""Claude Code: ``~/.claude/projects/<project>/<session>.jsonl``, one JSON object a line.

What a Claude Code file tells at its two ends: its title, the first words, the project.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os.path import basename, splitext
from typing import TYPE_CHECKING, Any

from lockstitch.conversation.parts import Path
from lockstitch.dialects import ANTHROPIC
from lockstitch.dialects.base import text_of_blocks
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.files.processes import SessionUser
from lockstitch.formats.claude_code import fast, findings, processes, repair_tree, write_back
from lockstitch.formats.claude_code.chain import (
    ASSISTANT,
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
from lockstitch.formats.claude_code.findings import graph_findings
from lockstitch.formats.claude_code.unreachable import (
    CLEARED,
    LEFT,
    LOST,
    WHY,
    OffBranch,
    find_branches,
)
from lockstitch.formats.history import COMPACTED, Aside, History, SourcedMessage
from lockstitch.formats.history import LEFT as ON_PURPOSE
from lockstitch.formats.history import LOST as AGAINST_WILL
from lockstitch.repair.draft import Ledger
from lockstitch.rules import Finding
from lockstitch.sources.interface import (
    Context,
    Format,
    Glimpse,
    HealthProof,
    Quick,
    Transcript,
    new_finding,
)
from lockstitch.sources.records import DecodeLine, Record, as_str, decode_json

if TYPE_CHECKING:
    from lockstitch.sources.compaction import Shortened, Sorting, Story


# The record and the field of a title, what a person chose first; the last of a kind counts.
_TITLES = (("custom-title", "customTitle"), ("ai-title", "aiTitle"), ("summary", "summary"))


def glimpse(path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]) -> Glimpse:
    """Return what the first and the last records of a file tell of its session."""
    lines = [*head, *tail]
    name = splitext(basename(path))[0]  # noqa: PTH119, PTH122 - there may be 100 000 of them
    is_aside = name.startswith("agent-")
    spoken = (value for value in lines if is_aside or not value.get("isSidechain"))
    return Glimpse(
        title=_title(lines),
        prompt=next(filter(None, map(_own_words, spoken)), ""),
        session=_last(lines, "sessionId") or name,
        project=_last(lines, "cwd"),
        is_aside=is_aside,
    )


def _title(lines: Sequence[dict[str, Any]]) -> str:
    known = {value.get("uuid") for value in lines}
    for kind, field in _TITLES:
        for value in reversed(lines):
            # old files begin with the summaries of other sessions
            is_own = kind != "summary" or value.get("leafUuid") in known
            found = as_str(value.get(field))
            if value.get("type") == kind and is_own and found and found.strip():
                return found
    return ""


def _own_words(value: dict[str, Any]) -> str:
    if not is_prompt(value):
        return ""
    words = words_of(value).strip()
    return "" if words.startswith(CLIENT_WORDS) else words


def _last(lines: Iterable[dict[str, Any]], key: str) -> str | None:
    found = [value[key] for value in lines if type(value.get(key)) is str and value[key]]
    return found[-1] if found else None


_CONTENT: Path = ("message", "content")
QUEUED: Path = ("attachment", "prompt")
_MARKS = frozenset({"uuid", "sessionId", "leafUuid", "messageId", "agentId"})
_LINKS = frozenset({"parentUuid", "sessionId"})
_TEXTS = (str, list)
# Records beside the conversation, by words that no other program is known to use.
_NOTES = frozenset(
    {
        *("file-history-snapshot", "file-history-delta", "queue-operation", "last-prompt"),
        *("ai-title", "custom-title", "permission-mode", "bridge-session", "agent-name"),
        *("pr-link", "content-replacement", "attribution-snapshot"),
    }
)


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
        return any(type(value) is dict and _is_own(value) for value in head) and not self.doubt(
            head
        )

    def doubt(self, head: Sequence[Any]) -> str:
        """Return that messages have another shape, as those of programs whose lines look alike."""
        values = [value for value in head if type(value) is dict]
        foreign = sum(map(_is_foreign, values))
        if foreign and foreign >= sum(map(_is_spoken, values)):
            return "looks like a session of Claude Code, but its messages have another shape"
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
        return glimpse(path, head, tail)

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        chain = ClaudeChain(records)
        found = find_branches(chain)
        lost = [branch for branch in found if branch.kind in LOST]
        apart = [branch for branch in found if branch.kind in LEFT]
        history = _history(chain, chain.order)
        transcript = Transcript(
            context,
            records,
            history,
            session=_latest(chain, "sessionId") or context.name.removesuffix(".jsonl"),
            project=_latest(chain, "cwd"),
            turns=sum(is_prompt(chain.value(number)) for number in chain.sent()),
            left=sum(branch.turns for branch in lost),
            left_size=sum(branch.size for branch in lost),
            notes=[_left_on_purpose(chain, branch) for branch in apart],
            evidence=_evidence(chain, context),
            version=_latest(chain, "version") or "",
            state=(chain, found),
        )
        transcript.findings = [*graph_findings(chain, lost, transcript)]
        return transcript

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        chain, found = transcript.state
        return repair_tree.repair_tree(transcript, chain, found, ledger)

    def write_back(
        self, transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        return write_back.write_back(transcript, transcript.state[0], strands)

    def fork(self, transcript: Transcript, line: str) -> bytes:
        return write_back.fork(transcript, line)

    def asides(self, transcript: Transcript) -> list[Aside]:
        return [one for one in _asides(*transcript.state) if one.history.messages]

    def users(self, path: str, session: str | None, project: str | None) -> Iterable[SessionUser]:
        return processes.users(path, session)

    def belongs(self, path: str, folder: str) -> bool:
        return processes.belongs(path, folder)

    def sorting(self, transcript: Transcript) -> Sorting:
        from lockstitch.formats.claude_code import compact  # noqa: PLC0415 - few commands need it

        return compact.sorting(transcript)

    def compacted(self, transcript: Transcript, story: Story, out: Shortened) -> list[Record]:
        from lockstitch.formats.claude_code import compact as claude_compact  # noqa: PLC0415 - as above

        return claude_compact.compacted(transcript, out)

    def named(self, found: Finding, transcript: Transcript) -> Finding:
        if found.code != "LS103" or not _is_split(found, transcript):
            return found
        return new_finding(
            "LS803", found.place, "the call of this result is from before the compaction"
        )

    def severity(self, found: Finding, transcript: Transcript) -> str:
        return findings.sent_severity(found, transcript)

    def stored_severity(self, found: Finding, transcript: Transcript) -> str:
        return findings.stored_severity(found, transcript)


def _is_own(value: dict[str, Any]) -> bool:
    """Whether nobody but Claude Code writes such a record."""
    kind = value.get("type")
    if type(kind) is not str:
        return False
    if kind in SPEAKERS:
        return _is_spoken(value)
    is_linked = "uuid" in value and "parentUuid" in value and type(value.get("isSidechain")) is bool
    if kind == "summary":
        return "leafUuid" in value
    return is_linked or (kind in _NOTES and not _MARKS.isdisjoint(value))


def _is_spoken(value: dict[str, Any]) -> bool:
    """Whether a record holds a message as Claude Code keeps it, with a link to another record."""
    message = value.get("message")
    if type(message) is not dict or value.get("type") not in SPEAKERS:
        return False
    is_linked = "uuid" in value and not _LINKS.isdisjoint(value)
    return is_linked and message.get("role") in SPEAKERS and type(message.get("content")) in _TEXTS


def _is_foreign(value: dict[str, Any]) -> bool:
    """Whether a record holds a message in a shape that Claude Code does not know."""
    message = value.get("message")
    if value.get("type") not in SPEAKERS or type(message) is not dict or "content" in message:
        return False
    return "parts" in message or message.get("role") not in (*SPEAKERS, None)


def _asides(chain: ClaudeChain, found: Sequence[OffBranch]) -> Iterator[Aside]:
    """Give the branches off the chain, and what stands before the compaction that is in force."""
    away = {number for branch in found for number in branch.members}
    sent = {*chain.order, *away}
    numbers = [node.number for node in chain.graph.nodes if not node.aside]
    earlier = [n for n in numbers if n < chain.boundary and n not in sent]
    if earlier:
        history = _history(chain, earlier)
        yield Aside(COMPACTED, earlier[0], -1, history, "summed up by a compaction")
    for branch in found:
        kind = AGAINST_WILL if branch.kind in LOST else ON_PURPOSE
        history = _history(chain, branch.members)
        yield Aside(kind, branch.top, branch.attach, history, WHY[branch.kind])


def _history(chain: ClaudeChain, numbers: Sequence[int]) -> History:
    history = History(ANTHROPIC, [], [], [])
    group = ""
    queued: list[int] = []
    for number in numbers:
        value = chain.value(number)
        if queued_words(value):
            queued.append(number)
        if not is_sent(value) or type(message_of(value).get("content")) not in (list, str):
            continue
        key = _key(value)
        if queued and key not in (group, USER):
            queued = _say_queued(history, chain, queued)
        group = _enter(history, value, number, group)
        if value["type"] == ASSISTANT and type(message_of(value).get("model")) is str:
            history.model = message_of(value)["model"]
    _say_queued(history, chain, queued)
    return history


def _enter(history: History, value: dict[str, Any], number: int, group: str) -> str:
    """Add a line to the message it belongs to, or as a message of its own; gives its key."""
    content, key = message_of(value)["content"], _key(value)
    parts = content if type(content) is list else []
    paths: list[Path] = [(*_CONTENT, place) for place in range(len(parts))]
    if key and key == group and type(content) is list and _is_open(history):
        _join(history, parts, [number] * len(parts), paths)
        return group
    paths = paths or [_CONTENT]
    content = list(content) if type(content) is list else content
    history.add({"role": value["type"], "content": content}, [number] * len(paths), paths)
    return key


def _is_open(history: History) -> bool:
    """Whether the last message can take more blocks."""
    return bool(history.messages) and type(history.messages[-1]["content"]) is list


def _say_queued(history: History, chain: ClaudeChain, numbers: list[int]) -> list[int]:
    """Add what was typed while tools ran: it waits until all results are there."""
    for number in numbers:
        words = queued_words(chain.value(number))
        history.add({"role": USER, "content": words}, [number], [QUEUED])
    return []


def _join(history: History, parts: list[Any], sources: list[int], paths: list[Path]) -> None:
    """Add the blocks of a line to the message that it belongs to."""
    if not parts:
        return
    if not history.messages[-1]["content"]:
        history.sources[-1], history.paths[-1] = [], []
    history.messages[-1]["content"] += parts
    history.sources[-1] += sources
    history.paths[-1] += paths


def _key(value: dict[str, Any]) -> str:
    """Name the message a line belongs to; lines of results in a row are one message, too."""
    if value["type"] == ASSISTANT:
        return str(message_of(value).get("id") or "")
    content = message_of(value).get("content")
    pure = type(content) is list and len(results_in(value)) == len(content)
    return USER if pure and content else ""


def _latest(chain: ClaudeChain, key: str) -> str | None:
    for number in reversed(chain.walk.path):
        found = chain.value(number).get(key)
        if type(found) is str:
            return found
    return None


def _left_on_purpose(chain: ClaudeChain, branch: OffBranch) -> str:
    line = chain.records[branch.top].place
    turns = f"{branch.turns} turn{'s' * (branch.turns != 1)}"
    deed = "when the context was cleared" if branch.kind == CLEARED else "by a rewind"
    return (
        f"{turns} ({branch.size} bytes) from line {line} on were left behind {deed}; "
        f"--branch {line} -o FILE writes them as a session of their own"
    )


def _is_split(found: Finding, transcript: Transcript) -> bool:
    """Tell whether the call of an orphaned result stands before the compaction in force."""
    chain: ClaudeChain = transcript.state[0]
    number, _ = transcript.history.home(found.place)
    return not answered_in(chain.value(number)).isdisjoint(chain.calls_cut_off)


def _evidence(chain: ClaudeChain, context: Context) -> dict[str, dict[str, Any]]:
    """Gather the results that survived off the chain, by call id."""
    found: dict[str, dict[str, Any]] = {}
    on_chain = set(chain.order)
    for number, record in enumerate(chain.records):
        if not record.is_record or number in on_chain:
            continue
        for result in results_in(record.value):
            known = type(result.get("tool_use_id")) is str and "content" in result
            if known and not is_placeholder(text_of_blocks(result.get("content"))):
                found.setdefault(result["tool_use_id"], result)
    for call, text in _sub_agents(context):
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        found.setdefault(call, block)
    return found


def _sub_agents(context: Context) -> Iterator[tuple[str, str]]:
    """Give the last words of every sub-agent that had finished, by the call that started it."""
    for name, data in context.beside.items():
        if not name.endswith(".meta.json"):
            continue
        try:
            meta = decode_json(data)
        except ValueError:
            continue
        lines = context.beside.get(name.removesuffix(".meta.json") + ".jsonl", b"")
        if type(meta) is dict and meta.get("finished") and type(meta.get("toolUseId")) is str:
            words = _last_words(lines)
            if words:
                yield meta["toolUseId"], words


def _last_words(data: bytes) -> str:
    """Give the text of the last message of the model in a file."""
    for line in reversed(data.split(b"\n")):
        try:
            value = decode_json(line)
        except ValueError:
            continue
        if type(value) is dict and value.get("type") == ASSISTANT and not calls_in(value):
            text = text_of_blocks(message_of(value).get("content"))
            if text.strip():
                return text
        elif type(value) is dict and value.get("type") in SPEAKERS and is_sent(value):
            return ""
    return ""
