"""A session in a few words, for a person who looks for it: what it is, and what is wrong with it.

Pure: what is read from files comes from ``listing``. Titles and first words are content; whoever
prints them makes them harmless.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from lockstitch.errors import LockstitchError
from lockstitch.formats.registry import format_named
from lockstitch.places import pasted
from lockstitch.report import OWN, Report, is_many
from lockstitch.rules import ERROR, RULES, Finding
from lockstitch.rules.rule import grouped

# The states of a session in words; a session that was not checked yet has none.
HEALTHY, WARNINGS, BROKEN, UNREADABLE = "healthy", "warning", "broken", "unreadable"
# What a finding of these comes to is told by the number of turns that a resume drops.
_DROPPING = frozenset(
    {"LS701", "LS702", "LS704", "LS705", "LS706", "LS707", "LS801", "LS802", "LS805"}
)
_MOST_WORDS = 3
_SHORT_ID = 8
_LONGEST = 200
_UNITS = (("year", 31_557_600), ("month", 2_629_800), ("week", 604_800), ("day", 86_400))
_SHORT_UNITS = (("hour", 3600), ("minute", 60))


Key = tuple[str, str | None]


class Summary(Struct):
    """What a list of sessions says of one.

    ``title`` is its title or its first words on one line; ``level`` is one of the words above, or
    empty before a check, and ``state`` says what is wrong. ``words`` resume it, in its own
    folder if it ``is_local``; none if no program does.
    """

    target: str
    format: str | None = None
    program: str = ""
    session: str | None = None
    title: str = ""
    project: str | None = None
    updated: float = 0.0
    size: int = 0
    level: str = ""
    state: str = ""
    words: tuple[str, ...] = ()
    is_local: bool = False
    is_aside: bool = False

    @property
    def key(self) -> Key:
        """Return what tells the session from all others of a list."""
        return key_of(self.target, self.session)

    def age(self, now: float) -> str:
        """Return how long ago the session was last used, in words."""
        return ago(now - self.updated) if self.updated else ""

    def resume_line(self, here: str = "") -> str:
        """Return the line that resumes the session from a folder; empty if there is none."""
        line = shlex.join(self.words)
        if not line or not self.is_local or not self.project or self.project == here:
            return line
        return f"cd {pasted(self.project)} && {line}"


class Problem(Struct):
    """Findings that read the same: how bad, how many, and what can be done about them."""

    severity: str
    words: str
    findings: list[Finding]

    @property
    def is_fixable(self) -> bool:
        """Whether a repair takes care of all of them."""
        return all(finding.fixable for finding in self.findings)

    @property
    def meaning(self) -> str:
        """Return what it means, in whole sentences."""
        return RULES[self.findings[0].code].what

    @property
    def refusal(self) -> str:
        """Return what the provider would answer; empty if it would not refuse."""
        return (self.findings[0].error or "") if self.severity == ERROR else ""

    @property
    def cure(self) -> str:
        """Return what a repair does about it, as a sentence."""
        return sentence(self.findings[0].help)


def key_of(target: str, session: str | None) -> Key:
    """Return what tells a session from others: its file, and its id where a file holds many."""
    return target, session if is_many(target) else None


def problems(findings: Sequence[Finding]) -> list[Problem]:
    """Return what is wrong with a session, the worst first."""
    return [Problem(group[0].severity, words, group) for words, group in grouped(findings)]


def state_of(report: Report) -> tuple[str, str]:
    """Return the state of a session that was checked: its level, and what is wrong in words."""
    if report.error is not None:
        return UNREADABLE, report.error
    if report.status in ("ok", "notes"):
        notes = ", ".join(words for words, _ in grouped(report.findings))
        return HEALTHY, f"{HEALTHY} (note: {notes})" if notes else HEALTHY
    bad = [finding for finding in report.findings if finding.severity != "note"]
    level = BROKEN if any(finding.severity == ERROR for finding in bad) else WARNINGS
    said: list[str] = []
    if report.unreachable and not _DROPPING.isdisjoint(finding.code for finding in bad):
        bad = [finding for finding in bad if finding.code not in _DROPPING]
        said = [f"{report.unreachable} turn{'s' * (report.unreachable != 1)} a resume would drop"]
    said += [words for words, _ in grouped(bad)]
    more = len(said) - _MOST_WORDS
    if more > 0:
        said[_MOST_WORDS:] = [f"{more} more problem{'s' * (more != 1)}"]
    return level, ", ".join(said)


def checked(summary: Summary, report: Report) -> Summary:
    """Return a summary with the outcome of a check."""
    level, state = state_of(report)
    return structs.replace(
        summary,
        level=level,
        state=state,
        session=report.session or summary.session,
        project=report.project or summary.project,
    )


def described(report: Report, title: str = "") -> Summary:
    """Return the summary of a report alone; ``title`` is what its file tells besides."""
    program, words, is_local = resuming(report.format, report.session, report.target)
    summary = Summary(
        target=report.target,
        format=report.format,
        program=program,
        session=report.session,
        title=one_line(title),
        project=report.project,
        updated=report.updated,
        size=report.size,
        words=words,
        is_local=is_local,
    )
    return checked(summary, report)


def resuming(form: str | None, session: str | None, path: str) -> tuple[str, tuple[str, ...], bool]:
    """Return a program's name, the words that resume a session of it, and whether by folder."""
    if not form or form == OWN:
        return ("Lockstitch" if form else ""), (), False
    try:
        known = format_named(form)
    except LockstitchError:
        return form, (), False
    filled = {"{id}": session or "", "{path}": path}
    words = tuple(filled.get(word, word) for word in known.resume)
    return known.title, words if all(words) else (), known.is_local


def one_line(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def short_ids(found: Iterable[Summary]) -> dict[Key, str]:
    """Return the shortest beginnings of ids by which sessions of this machine can be named.

    Left out is a session that its id does not name: one whose file has another name.
    """
    names = {one.key: one.session for one in found if one.session and _is_named(one)}
    ordered = sorted(set(names.values()))
    short: dict[str, str] = {}
    for place, name in enumerate(ordered):
        beside = (ordered[place - 1] if place else "", *ordered[place + 1 : place + 2])
        shared = max(_shared(name, other) for other in beside)
        short[name] = name if is_word(name) else name[: max(shared + 1, _SHORT_ID)]
    counts = Counter(names.values())
    return {key: short[name] for key, name in names.items() if counts[name] == 1}


def _shared(one: str, other: str) -> int:
    """Return how many characters two names begin with in common."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def is_word(name: str) -> bool:
    """Whether an id is a word that is not shortened, as those in databases are."""
    return "-" not in name


def _is_named(one: Summary) -> bool:
    stem = os.path.basename(one.target).partition(".")[0]  # noqa: PTH119 - many
    own = one.session or ""
    return is_many(one.target) or stem.startswith(own) or f"-{own}" in stem


def ago(seconds: float) -> str:
    """Return a stretch of time in words: ``3 hours ago``."""
    for unit, length in (*_UNITS, *_SHORT_UNITS):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "just now"


def sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    text = text.strip()
    if not text:
        return ""
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"
