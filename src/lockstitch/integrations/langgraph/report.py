"""The report on one reconciled checkpoint, and counters of what a checkpointer has done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from lockstitch.conversation.parts import repr_without
from lockstitch.formats.langgraph.decisions import BREAKPOINT, QUESTION
from lockstitch.rules import Finding

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig


_REASONS = {QUESTION: "an interrupt", BREAKPOINT: "a breakpoint"}
COUNTED = ("results", "errors", "synthetic", "partial", "duplicates")


class ReconciledChannel(Struct, kw_only=True):
    """One channel of messages: its name, its messages now, and counts of what was done."""

    name: str
    messages: list[BaseMessage] = field(default_factory=list)
    changed: bool = False
    healed: bool = True
    results: int = 0
    errors: int = 0
    synthetic: int = 0
    partial: int = 0
    duplicates: int = 0

    __repr__ = repr_without("messages")


class Reconciled(Struct, kw_only=True):
    """The report on the reconciliation of one namespace of a thread.

    ``messages`` is the conversation in the checkpoint now, which the application should hold.
    ``before`` and ``after`` are the configs of the checkpoint that was read and of the one to
    continue from; they are equal if nothing was ``changed``. ``waiting`` says that a person is
    being asked, and ``paused`` how: by an ``interrupt()`` or at a ``breakpoint``.

    ``results`` counts real results taken from pending writes, ``errors`` results that say how a
    tool failed, ``synthetic`` results that say that nothing is known, ``partial`` pieces of
    interrupted replies, ``duplicates`` ids that were used twice, and ``removed`` and ``added``
    messages that only the checkpoint or only the application had. ``unapplied`` names channels for
    which finished tasks wrote something that cannot be applied without the graph.

    ``channel`` and ``messages`` are those of the main channel. ``channels`` has every channel of
    messages in this namespace with its own counts; the report's counts are their sums. ``unread``
    names channels that seem to hold a conversation in a form that only the graph understands
    (dicts, or messages among other things); they are left as they are. ``next`` names the nodes
    that ``invoke(None)`` continues with; if there are none, the thread needs new input.
    """

    before: RunnableConfig | None = None
    after: RunnableConfig | None = None
    channel: str | None = None
    messages: list[BaseMessage] = field(default_factory=list)
    changed: bool = False
    healed: bool = True
    paused: str = ""
    results: int = 0
    errors: int = 0
    synthetic: int = 0
    partial: int = 0
    duplicates: int = 0
    removed: int = 0
    added: int = 0
    unapplied: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    channels: list[ReconciledChannel] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    subgraphs: list[Reconciled] = field(default_factory=list)

    @property
    def waiting(self) -> bool:
        """Whether a person is being asked here or in a subgraph, and the question was left open."""
        own = bool(self.paused) and not self.changed
        return own or any(below.waiting for below in self.subgraphs)

    @property
    def _reason(self) -> str:
        """How a person is being asked, here or in the first subgraph that waits."""
        waits = (below._reason for below in self.subgraphs if below.waiting)  # noqa: SLF001 - its own
        return self.paused or next(waits, "")

    @property
    def namespace(self) -> str:
        """The namespace that this report is about; empty for the graph itself."""
        configurable: dict[str, Any] = (self.after or {}).get("configurable", {})
        return str(configurable.get("checkpoint_ns") or "")

    @property
    def codes(self) -> list[str]:
        """The codes of the findings, without repeats."""
        return sorted({finding.code for finding in self.findings})

    def __str__(self) -> str:
        """Return the report in one line, without message content."""
        done = "changed" if self.changed else "unchanged"
        counts = [
            f"{name} {value}"
            for name in (*COUNTED, "removed", "added")
            if (value := getattr(self, name))
        ]
        waits = [f"waiting at {_REASONS[self._reason]}" if self.waiting else ""]
        named = [",".join(self.codes), *(f"unapplied {name}" for name in self.unapplied)]
        named += [f"left alone {name}" for name in self.unread]
        named += [f"continues with {name}" for name in self.next]
        shown = [done, f"{len(self.messages)} messages", *waits, *counts, *named]
        return ", ".join(part for part in shown if part)

    __repr__ = __str__


class Counters(Struct, frozen=True):
    """What one checkpointer has done in this process since it was created.

    ``healed`` counts runs that found their thread broken and began on a healed one, ``codes`` the
    same by finding (a run may have several), and ``results`` the real results that were kept for
    them. ``conflicts`` counts writes that were refused, or went to a fork, because another writer
    had the thread. ``retries`` counts operations that were silently repeated.
    """

    healed: int = 0
    codes: Mapping[str, int] = MappingProxyType({})
    results: int = 0
    conflicts: int = 0
    retries: int = 0


class CounterBook:
    """Counts events; threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counted: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()

    def heal(self, report: Reconciled) -> None:
        """Count a run that begins on a healed thread."""
        reports = [report]
        for one in reports:
            reports += one.subgraphs
        with self._lock:
            self._counted["healed"] += 1
            self._counted["results"] += sum(one.results for one in reports)
            self._codes.update({code for one in reports for code in one.codes})

    def conflict(self) -> None:
        """Count a conflict."""
        with self._lock:
            self._counted["conflicts"] += 1

    def retry(self) -> None:
        """Count a repeated operation."""
        with self._lock:
            self._counted["retries"] += 1

    def counters(self) -> Counters:
        """Return the counts so far, as a value that does not change any more."""
        with self._lock:
            codes = MappingProxyType(dict(sorted(self._codes.items())))
            return Counters(codes=codes, **self._counted)
