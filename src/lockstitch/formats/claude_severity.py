"""How bad a finding is for a resume with Claude Code.

Measured by resuming each kind of damage, with the pauses of a person between its lines, in 2.1.50,
2.1.112, 2.1.197 and 2.1.325: an error is what the newest client is refused for or loses something
by, a warning what only an older one stumbles over, a note what changes no request.
"""

from __future__ import annotations

from lockstitch.conversation.json_text import is_index
from lockstitch.dialects.base import text_of_blocks
from lockstitch.formats.base import Transcript
from lockstitch.formats.claude_chain import Chain
from lockstitch.formats.history import parts_of
from lockstitch.rules import ERROR, NOTE, WARNING, Finding

# What the newest client reads all the same, or skips without losing anything else. LS601 marks a
# record that is lost already: what hung on it is found where its link is missing.
_READ_ANYWAY = frozenset({"LS601", "LS603", "LS604", "LS605", "LS606", "LS612"})
_COPED_WITH = frozenset({"LS106", "LS302", "LS303", "LS404", "LS406", "LS505"})
# Tools whose answer comes from a person: an accepted plan may go on in a file of its own.
_QUESTIONS = ("AskUserQuestion", "ExitPlanMode")
_CHANGES_NOTHING = frozenset({"LS306", "LS506"})


def stored_severity(found: Finding, transcript: Transcript) -> str:
    """Say how bad a finding on the records is; a sub-agent's file is never resumed by itself."""
    chain: Chain = transcript.state[0]
    harmless = found.code == "LS602" and not _is_lost_in_weld(found.place, chain)
    if found.severity == ERROR and (harmless or chain.whole_file or found.code in _READ_ANYWAY):
        return WARNING
    return found.severity


def _is_lost_in_weld(place: str, chain: Chain) -> bool:
    """Whether a line of several records holds words that the client did not write again."""
    return any(
        str(record.value.get("uuid")) not in chain.repeated for record in chain.lines.get(place, ())
    )


def sent_severity(found: Finding, transcript: Transcript) -> str:
    """Say how bad a finding on the history is, by its place among the messages."""
    chain: Chain = transcript.state[0]
    if chain.whole_file and found.code == "LS406":
        # A sub-agent is asked in its parent's file; older clients write only its replies here.
        return NOTE
    severity = _severity(found, transcript)
    return WARNING if severity == ERROR and chain.whole_file else severity


def _severity(found: Finding, transcript: Transcript) -> str:
    messages = transcript.history.messages
    steps = found.place.split(".")
    number = int(steps[1]) if len(steps) > 1 and is_index(steps[1]) else 0
    if found.code in _CHANGES_NOTHING:
        return NOTE
    if number >= len(messages):
        return found.severity
    if found.code in {"LS302", "LS303"} and not _is_claude(transcript.history.model):
        return NOTE
    if found.code in _COPED_WITH:
        return WARNING
    if found.code in {"LS101", "LS102"}:
        # The newest client answers what is open at the end by itself, and tells the model so.
        if number < len(messages) - (2 if found.code == "LS102" else 1):
            return ERROR
        return NOTE if _waits_for_person(steps, messages[number]) else WARNING
    if found.code == "LS104":
        return WARNING if _is_near_its_call(steps, transcript) else ERROR
    if found.code == "LS401":
        return _blank_severity(steps, messages[number])
    return ERROR if found.code in {"LS105", "LS803"} else found.severity


def _blank_severity(steps: list[str], message: dict[str, object]) -> str:
    """Say how bad a blank text is: in a result it is taken, as sessions show that went on."""
    part = _part_at(steps, message)
    if type(part) is dict and part.get("type") == "tool_result":
        return NOTE
    if message.get("role") != "assistant":
        return ERROR
    return NOTE if _is_white_space(steps, message) else WARNING


def _waits_for_person(steps: list[str], message: dict[str, object]) -> bool:
    """Whether a call at the end is a question to a person, who may answer it elsewhere."""
    part = _part_at(steps, message)
    return type(part) is dict and part.get("name") in _QUESTIONS


def _part_at(steps: list[str], message: dict[str, object]) -> object:
    parts = parts_of(message)
    place = int(steps[3]) if len(steps) > 3 and is_index(steps[3]) else 0  # noqa: PLR2004
    return parts[place] if place < len(parts) else {}


def _is_claude(model: str | None) -> bool:
    """Whether the provider behind the session is one that signs and checks thinking."""
    return model is None or model.startswith("claude")


def _is_white_space(steps: list[str], message: dict[str, object]) -> bool:
    """Whether a blank text holds characters at all; the client leaves those out by itself."""
    part = _part_at(steps, message)
    return bool(part.get("text")) if type(part) is dict else bool(text_of_blocks(part))


def _is_near_its_call(steps: list[str], transcript: Transcript) -> bool:
    """Whether nothing that the model said stands between a displaced result and its call."""
    messages, chain = transcript.history.messages, transcript.state[0]
    number = int(steps[1])
    wanted = _ids(messages[number], "tool_use_id") or _ids(messages[number], "id")
    known: _Spans | None = chain.spans
    if known is None or known.messages is not messages:
        known = chain.spans = _Spans(messages)
    return known.is_near(wanted)


class _Spans:
    """Where each id stands first and last among the messages, and how often the model speaks."""

    def __init__(self, messages: list[dict[str, object]]) -> None:
        self.messages = messages
        self.ends: dict[object, tuple[int, int]] = {}
        self.spoken = [0]
        for place, message in enumerate(messages):
            self.spoken.append(self.spoken[-1] + (message.get("role") == "assistant"))
            for name in _ids(message, "id") | _ids(message, "tool_use_id"):
                self.ends[name] = (self.ends.get(name, (place, place))[0], place)

    def is_near(self, names: set[object]) -> bool:
        """Whether the model says nothing between the first and the last place of some ids."""
        ends = [self.ends[name] for name in names]
        if not ends:
            return False
        first, last = min(first for first, _ in ends), max(last for _, last in ends)
        return self.spoken[max(last, first + 1)] == self.spoken[first + 1]


def _ids(message: dict[str, object], key: str) -> set[object]:
    return {p[key] for p in parts_of(message) if type(p) is dict and type(p.get(key)) is str}
