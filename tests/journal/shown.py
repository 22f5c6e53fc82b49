"""What a request must show of a session, from the words of the contract: marks, pairs, order."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from tests.kinds_of_break.pairs import pairs
from tests.oracles import problems

from .sessions import Session
from .words import Seen, Told, seen_in

MARK = re.compile(r"<[TADSN]\d+>")
THOUGHT = re.compile(r"<R\d+>|SEAL\d{4}")


def text_of(messages: Any) -> str:
    """A request as text, in which bytes are what JSON would make of them."""
    return json.dumps(messages, default=lambda value: base64.b64encode(value).decode())


Receiver = tuple[str, str | None, str | None]

# Who a request may be for: profile, model, provider.
DIALECT_RECEIVERS: tuple[Receiver, ...] = (
    ("anthropic", None, None),
    ("openai-chat", None, None),
    ("openai-responses", None, None),
    ("gemini", None, None),
    ("bedrock", None, None),
    ("langchain", None, None),
)
OTHER_RECEIVERS: tuple[Receiver, ...] = (
    ("anthropic", "claude-fable-5-1", "ANTHROPIC"),
    ("anthropic", "claude-opus-4-8", "elsewhere"),
    ("anthropic:deepseek", None, None),
    ("anthropic:kimi", None, None),
    ("anthropic:glm", None, None),
    ("openai-chat:mistral", None, None),
    ("openai-chat:strict", None, None),
    ("openai-chat:deepseek", None, None),
    ("openai-chat:lmstudio", None, None),
    ("openai-chat:kimi", None, None),
    ("openai-responses", "gpt-5.2-codex", "OPENAI-RESPONSES"),
    ("openai-responses:copilot", None, None),
    ("gemini", "gemini-3-pro", None),
    ("gemini:vertex", "gemini-2.5-pro", None),
    ("bedrock", "anthropic.claude-fable-5-1-v1:0", None),
    ("bedrock:classic", None, None),
    ("langchain:mistral", None, None),
)


def refused(profile: str, messages: Any) -> list[str]:
    """What an independent validator refuses, but for what the profile's vendor is known to take."""
    if profile.endswith(":kimi"):
        return []  # it wants the ids that it minted back, also where they repeat
    dialect = profile if profile == "openai-chat:mistral" else profile.partition(":")[0]
    found = problems(dialect, messages)
    unsigned = profile in {"anthropic:deepseek", "anthropic:glm"}
    return [text for text in found if not unsigned or "thinking" not in text]


def raw_of(session: Session, fact: Told) -> str:
    """What a fact carries, as JSON."""
    blob = fact.fields.get("blob", "")
    return session.blobs.get(blob, b"").decode() if blob else json.dumps(fact.fields)


def marks_of(session: Session, fact: Told) -> list[str]:
    """The marks in what a fact carries, in order."""
    return list(dict.fromkeys(MARK.findall(raw_of(session, fact))))


def claims(session: Session, count: int) -> Claims:
    """What must be true of a request made of the first records of a session."""
    return Claims(session, seen_in(session.records[:count]))


class Claims:
    """The claims on one request."""

    def __init__(self, session: Session, seen: Seen) -> None:
        self.session = session
        self.seen = seen
        self.cut, self.kept = seen.summary[1:] if seen.summary else (0, set())

    def hides(self, seq: int) -> bool:
        return seq <= self.cut and seq not in self.kept

    def marks(self, seq: int) -> list[str]:
        return marks_of(self.session, self.seen.told[seq])

    def items(self) -> list[int]:
        """The facts that stand in the request by themselves, in order."""
        items = [item for item in self.seen.items if not self.hides(item[1])]
        return [seq for kind, seq in items if (kind, seq) != self._broken()]

    def _broken(self) -> tuple[str, int] | None:
        """A part of a reply that broke off, behind which the turn is open: it is asked again."""
        last = self.seen.items[-1] if self.seen.items and self.seen.turn else ("", 0)
        is_part = last[0] == "reply" and self.seen.told[last[1]].kind == "partial"
        hidden = [c for (reply, _), c in self.seen.calls.items() if self.hides(reply)]
        came = [c["outcome"][0] for c in hidden if c["outcome"] and self._is_late(c)]
        came = [seq for seq in came if self.seen.told[seq].kind == "finished"]
        return last if is_part and not any(seq > last[1] for seq in came) else None

    def spoken(self) -> list[str]:
        """Every mark of what was said, replied and noted, in order."""
        return [mark for seq in self.items() for mark in self.marks(seq)]

    def said(self) -> list[str]:
        """Every mark of what the user said, in order."""
        shown = [seq for kind, seq in self.seen.items if kind == "said" and not self.hides(seq)]
        return [mark for seq in shown for mark in self.marks(seq)]

    def gone(self) -> list[str]:
        """Marks of what was taken back, and of parts that a whole reply stands for."""
        seen = self.seen
        kept = {mark for seq in self.items() for mark in self.marks(seq)}
        kept |= {mark for call in seen.calls.values() for mark in self._given(call)}
        kept |= set(self.marks(seen.summary[0])) if seen.summary else set()
        kinds = {"said", "replied", "partial", "finished", "noted", "compacted"}
        off = [fact for fact in seen.told.values() if fact.kind in kinds]
        return [m for fact in off for m in marks_of(self.session, fact) if m not in kept]

    def _given(self, call: Any) -> list[str]:
        return self.marks(call["outcome"][0]) if call["outcome"] and not call["news"] else []

    def results(self) -> list[tuple[str, list[str]]]:
        """For each call that is shown: its own mark, and the marks of its result."""
        found = []
        for (reply, index), call in self.seen.calls.items():
            if not self.hides(reply) and ("reply", reply) != self._broken():
                asked = [mark for mark in self.marks(reply) if mark.startswith("<A")]
                found.append((asked[index], self._given(call)))
        return found

    def late(self) -> list[str]:
        """Marks of results that came when their call was summarised already."""
        calls = self.seen.calls.items()
        behind = [call for (reply, _), call in calls if self.hides(reply) and call["outcome"]]
        return [mark for call in behind if self._is_late(call) for mark in self._given(call)]

    def _is_late(self, call: Any) -> bool:
        seq, firm = call["outcome"]
        return firm and seq > self.cut

    # What is asked -------------------------------------------------------------------------------

    def check(self, profile: str, messages: list[Any]) -> None:
        """Assert every claim."""
        text = text_of(messages)
        self._check_secrets(profile, text)
        self._check_order(text)
        if not profile.endswith(":kimi"):
            self._check_results(pairs(profile, messages))
        missing = [mark for mark in self.late() if mark not in text]
        assert missing == [], "late results are lost"
        back = [mark for mark in self.gone() if mark in text]
        assert back == [], "what was taken back is shown"
        if self.seen.summary:
            [summary] = self.marks(self.seen.summary[0])
            assert text.count(summary) == 1

    def _check_secrets(self, profile: str, text: str) -> None:
        """What is bound to the provider of another dialect is not shown to this one."""
        for seq in (seq for kind, seq in self.seen.items if kind == "reply"):
            fact = self.seen.told[seq]
            if fact.fields["dialect"] != profile.partition(":")[0]:
                bound = THOUGHT.findall(raw_of(self.session, fact))
                assert [mark for mark in bound if mark in text] == [], "shown to a stranger"

    def _check_order(self, text: str) -> None:
        spoken = self.spoken()
        lost = [mark for mark in spoken if mark not in text]
        assert lost == [], "words are lost"
        places = [text.index(mark) for mark in spoken]
        assert places == sorted(places), "words are out of order"
        twice = [mark for mark in spoken if text.count(mark) > 1]
        assert twice == [], "words are shown twice"

    def _check_results(self, found: list[tuple[str, str]]) -> None:
        expected = self.results()
        assert len(found) == len(expected), "a call is missing or invented"
        for mark, given in expected:
            [result] = [result for call, result in found if mark in call]
            assert MARK.findall(result) == given, "a call has another's result"
