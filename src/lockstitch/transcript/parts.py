"""A conversation as plain values: what was said, noted, called, and what came of each call.

For whoever shows it in another form than rows of a terminal: the web page, and documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lockstitch.rules import Finding
from lockstitch.transcript.messages import MarginNote

Part = dict[str, Any]


class PartsLayout:
    """A layout that gathers parts as plain values, each call with what closes it."""

    def __init__(self) -> None:
        self.stands_alone = False

    def turn(self, number: int, place: str) -> Iterator[Part]:
        """Head a turn."""
        yield {"kind": "turn", "number": number, "place": place}

    def left_out(self, what: str) -> Iterator[Part]:
        """Return what is not shown."""
        yield {"kind": "note", "text": what}

    def said(self, text: str, role: str) -> Iterator[Part]:
        """Return words, and who said them."""
        yield {"kind": "text", "text": text, "role": role}

    def note(self, note: MarginNote) -> Iterator[Part]:
        """Return what stands beside the conversation."""
        yield {"kind": "note", "text": note.text, "is_warning": note.style == "yellow"}

    def call(self, name: str, arguments: dict[str, Any] | str, by: str = "") -> Iterator[Part]:
        """Return a call."""
        part: Part = {"kind": "call", "tool": name, "arguments": arguments, "state": "open"}
        yield {**part, "by": by.strip()} if by else part

    def result(
        self,
        title: str,
        text: str,
        pictures: Sequence[str] = (),
        where: str = "",
        *,
        failed: bool = False,
    ) -> Iterator[Part]:
        """Close a call, or return a result that stands alone."""
        state = "late" if where or title.startswith("late") else "answered"
        fields = {"title": title + where, "text": text, "pictures": [*pictures], "failed": failed}
        if self.stands_alone:
            self.stands_alone = False
            yield {"kind": "result", "state": _state_alone(title), **fields}
        else:
            yield {"kind": "answer", "state": state, **fields}

    def set_apart(self) -> Iterator[Part]:
        """Set the next result apart."""
        self.stands_alone = True
        yield from ()

    def named(self, name: str) -> str:
        """Return a name as it is: whoever shows it makes it safe."""
        return name

    def broken(self, title: str, found: Sequence[Finding]) -> str:
        """Return the title; what was found is marked beside it."""
        return title

    def no_result(self, found: Sequence[Finding], call: str | None) -> Iterator[Part]:
        """Close a call that nothing came back for."""
        yield {"kind": "answer", "state": "open", "title": "no result", "text": ""}
        for one in found:
            yield from self.mark(one, "")

    def closed(self, word: str) -> Iterator[Part]:
        """Close a call with what is known instead of a result."""
        yield {"kind": "answer", "state": "closed", "title": word, "text": ""}

    def checkpoint(self, text: str) -> Iterator[Part]:
        """Mark a place to go back to."""
        yield {"kind": "checkpoint", "text": text}

    def mark(self, found: Finding, indent: str) -> Iterator[Part]:
        """Mark a broken place."""
        mark = {"code": found.code, "severity": found.severity, "message": found.message}
        yield {"kind": "mark", **mark}


def _state_alone(title: str) -> str:
    if "second result" in title or "another result" in title:
        return "duplicate"
    return "orphan" if "without a call" in title else "elsewhere"


def join_results(parts: Iterable[Part]) -> list[Part]:
    """Put what closes a call into it, and marks to what they are of."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if part["kind"] == "answer" and last is not None and last["kind"] == "call":
            last["state"] = part.pop("state")
            del part["kind"]
            last["result"] = part
        elif part["kind"] == "mark":
            if last is None:
                found.append({"kind": "note", "text": "", "marks": [part]})
            else:
                last.setdefault("marks", []).append(part)
        else:
            found.append(part)
    return found
