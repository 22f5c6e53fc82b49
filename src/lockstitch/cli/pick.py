"""``lockstitch`` without a command: pick a session, see what is wrong, repair it, resume it.

On a terminal that can move its cursor this is a screen, on any other one a numbered list. The
sessions are listed at once and checked in the background, the newest first.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from lockstitch.cli import terminal
from lockstitch.cli.picker import (
    OPEN,
    QUIT,
    Marks,
    Screen,
    SessionList,
    TextPage,
    can_move,
    choose_marks,
    wrap_text,
)
from lockstitch.cli.render import (
    COLOURS,
    current_folder,
    describe_steps,
    difference_lines,
    home_folder,
    shorten_path,
)
from lockstitch.cli.scan import BackgroundChecks, say_nothing_found, scan_file
from lockstitch.cli.terminal import CLEAN, describe_bug
from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import LockstitchError
from lockstitch.rules import NOTE, is_broken
from lockstitch.rules.rule import several
from lockstitch.sources import listing, operations
from lockstitch.sources.listing import SessionSummary, key_of, problems, with_check
from lockstitch.sources.own_stores import may_hold_many
from lockstitch.sources.source import Opened, pasted
from lockstitch.sources.targets import resolve_sources, session_paths
from lockstitch.transcript import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.formats.repair import RepairPlan
    from lockstitch.sources.source import Report


_KEPT = "The original is kept as a backup, and undo restores it byte for byte."
_MOST_STEPS = 12


class PickedSession(Struct):
    """A session that was opened and planned; ``error`` says why it could not be."""

    summary: SessionSummary
    session: Opened | None = None
    plan: RepairPlan | None = None
    report: Report | None = None
    error: str = ""

    @property
    def can_repair(self) -> bool:
        """Whether a repair would change anything."""
        return self.plan is not None and self.plan.changed


def open_picked(summary: SessionSummary) -> PickedSession:
    """Open a session, check it and plan its repair; nothing is changed."""
    try:
        own = summary.session if may_hold_many(summary.target) else None
        found = resolve_sources(summary.target, session=own)
        session = found[0].open()
        plan = operations.plan_session(session)
        report = operations.preview_plan(session, plan).report
    except LockstitchError as error:
        return PickedSession(summary, error=str(error))
    except OSError as error:
        return PickedSession(summary, error=error.strerror or type(error).__name__)
    except (RecursionError, MemoryError):
        return PickedSession(summary, error="it is too large or too deep to be read")
    except Exception as error:  # noqa: BLE001 - said as any other
        return PickedSession(summary, error=describe_bug(error))
    return PickedSession(with_check(summary, report), session, plan, report)


def describe_picked(view: PickedSession, width: int, marks: Marks, now: float) -> list[str]:
    """Return the page about a session: what it is, what is wrong, and what a repair will do."""
    one = view.summary
    title = one.title or f"({one.session or 'no title'})"
    head = [terminal.paint(line, "bold") for line in wrap_text(title, width)]
    project = shorten_path(one.project, home_folder()) if one.project else ""
    facts = (one.program, project, one.age(now), size(one.size) if one.size else "")
    about = wrap_text(f" {marks.dot} ".join(filter(None, facts)), width)
    return [*head, *about, "", *_body_lines(view, width, marks)]


def _body_lines(view: PickedSession, width: int, marks: Marks) -> Iterator[str]:
    if view.report is None or view.plan is None:
        yield from wrap_text(f"This session cannot be read: {view.error}.", width)
        return
    found = [one for one in problems(view.report.findings) if one.severity != NOTE]
    if not found:
        yield from wrap_text("Nothing is wrong with this session.", width)
        yield from _note_lines(view.report, width)
        line = view.summary.resume_line(current_folder())
        if line:
            yield ""
            yield terminal.paint("Resume it with", "bold")
            # never wrapped within a word, because the line is printed again at the end, to be
            # pasted
            yield from wrap_text(line, width, "  ")
        return
    yield terminal.paint("What is wrong", "bold")
    vendor = profile_named(str(view.report.dialect)).vendor if view.report.dialect else ""
    if view.report.unreachable:
        turns = several(view.report.unreachable, "turn")
        left = f"A resume would silently drop {turns} ({size(view.report.left)})."
        yield from wrap_text(left, width, "  ")
    for one in found:
        colour = COLOURS[one.severity]
        lines = list(wrap_text(f"{one.severity}: {one.words}", width, "  ", marks.bullet))
        yield from (terminal.paint(line, colour) for line in lines)
        yield from wrap_text(one.meaning, width, "    ")
        if one.refusal and vendor:
            yield from wrap_text(f"{vendor} answers: {one.refusal}", width, "    ")
    yield from _note_lines(view.report, width)
    yield ""
    yield from _plan_lines(view, width, marks)


def _plan_lines(view: PickedSession, width: int, marks: Marks) -> Iterator[str]:
    plan = view.plan
    if plan is None or not plan.changed:
        yield from wrap_text("A repair can do nothing here. Nothing was changed.", width)
        return
    yield terminal.paint("What the repair will do", "bold")
    said = describe_steps(plan.changes)
    for words in said[:_MOST_STEPS]:
        yield from wrap_text(words, width, "  ", marks.bullet)
    if len(said) > _MOST_STEPS:
        yield from wrap_text(f"and {several(len(said) - _MOST_STEPS, 'more step')}", width, "    ")
    if plan.quarantine:
        count = several(len(plan.quarantine), "piece")
        yield from wrap_text(f"{count} cannot stay; the backup keeps them.", width, "  ")
    left = [one for one in plan.remaining if one.severity != NOTE]
    if left:
        yield from wrap_text(f"{several(len(left), 'problem')} will be left.", width, "  ")
    yield from wrap_text(_KEPT, width)


def _note_lines(report: Report, width: int) -> Iterator[str]:
    for note in report.notes:
        yield from wrap_text(f"Note: {note}", width, "  ")


def repair_picked(view: PickedSession) -> tuple[PickedSession, list[str]]:
    """Write the planned repair; return the session as it is now, and what to print."""
    if view.session is None or view.plan is None:
        return view, ["Nothing was changed."]
    try:
        view.session.source.require_closed(view.session, is_named=True)
        done, _ = operations.write_repair(view.session, view.plan)
    except (LockstitchError, OSError) as error:
        return view, [f"Nothing was changed: {error}."]
    again = open_picked(view.summary)
    lines = ["Repaired." if not is_broken(done.remaining) else "Repaired as far as possible."]
    if done.backup:
        lines.append(f"Backup: {pasted(done.backup)}")
        one = view.summary
        more = (
            f" --session {pasted(one.session)}" if one.session and may_hold_many(one.target) else ""
        )
        lines.append(f"To undo it: lockstitch undo {pasted(one.target)}{more}")
    line = again.summary.resume_line(current_folder())
    if line:
        lines += ["", "Resume it with", f"  {line}"]
    return again, lines


# How many sessions are listed before the keyboard is checked again.
_BATCH = 25
_LISTED = 20
_MOST_LINES = 4000
_TURNS = 30


def run() -> int:
    """Let a person pick and repair a session; return the exit status."""
    paths = list(session_paths())
    if not paths:
        say_nothing_found()
        return CLEAN
    for line in _PickScreen(paths).run() if can_move() else _PickPrompt(paths).run():
        terminal.say(line)
    return CLEAN


class _PickScreen:
    """The screen: takes keys and finished checks, and draws."""

    def __init__(self, paths: list[str]) -> None:
        self.marks = choose_marks()
        self.list = SessionList(home_folder(), time.time(), self.marks)
        self.left: Iterator[SessionSummary] = listing.summarize_files(paths)
        self.checks: BackgroundChecks | None = None
        self.paths = paths
        self.view: PickedSession | None = None
        self.text: TextPage | None = None
        self.offered: set[str] = set()
        self.asks = False
        self.result: list[str] = []

    def run(self) -> list[str]:
        """Run until the person leaves; return what to print then."""
        with Screen() as screen:
            try:
                while self._step(screen):
                    pass
            finally:
                if self.checks is not None:
                    self.checks.close()
        # what remains on the terminal: the outcome, or the line that resumes the session
        if self.result:
            return self.result
        if self.view is None or self.view.report is None or self.view.can_repair:
            return []
        line = self.view.summary.resume_line(current_folder())
        return [line] if line else []

    def _step(self, screen: Screen) -> bool:
        if not self.list.is_complete:
            found = list(islice(self.left, _BATCH))
            for one in found:
                self.list.add(one)
            if not found:
                self.list.is_complete = True
                newest = dict.fromkeys(one.target for one in self.list.found)
                self.checks = BackgroundChecks([*newest], screen.wake)
        for report in self.checks.reports() if self.checks is not None else ():
            key = key_of(report.target, report.session)
            place = self.list.places.get(key)
            if place is not None:
                self.list.put(key, with_check(self.list.found[place], report))
        screen.show((self.text or self.list).draw(*screen.size()))
        keys = screen.keys(0 if not self.list.is_complete else None)
        return all(self._key(key, screen) for key in keys)

    # What keys do.

    def _key(self, key: str, screen: Screen) -> bool:
        """Handle a key; return False if the person leaves."""
        if self.text is None:
            asked = self.list.key(key)
            if asked == OPEN:
                self._open(screen)
            return asked != QUIT
        key = self.text.key(key)
        return (self._answer if self.asks else self._on_page)(key, screen)

    def _open(self, screen: Screen) -> None:
        one = self.list.chosen()
        if one is None:
            return
        width, height = screen.size()
        screen.show(TextPage(["Reading…"], "").draw(width, height))
        self.view = open_picked(one)
        self.list.put(one.key, self.view.summary)
        self.result = []
        self._page(screen)

    def _page(self, screen: Screen) -> None:
        if self.view is None:
            return
        width, _ = screen.size()
        lines = describe_picked(self.view, width - 1, self.marks, self.list.now)
        report = self.view.report
        keys = ["[r]epair", "[d]iff"] if self.view.can_repair else []
        keys += ["[s]how"] if report is not None else []
        keys += ["[t]urns dropped"] if report is not None and report.unreachable else []
        self.offered = {key[1] for key in keys}
        self.text = TextPage(lines, "  ".join([*keys, "[b]ack", "[q]uit"]))

    def _on_page(self, key: str, screen: Screen) -> bool:
        if key in ("q", "end of file") or (key == "enter" and self.result):
            return False
        if key in ("b", "escape", "h", "erase"):
            is_inner = self.text is not None and self.text.foot.startswith("[b]ack")
            if is_inner and not self.result:
                self._page(screen)
            else:
                self.text = self.view = None
                self.result = []
        elif key == "r" and key in self.offered and not self.result:
            self._page(screen)
            self.asks = True
            if self.text is not None:
                self.text.foot = "Repair it? A backup is kept. [y]es [n]o"
        elif key in self.offered and not self.result:
            self._more(key, screen)
        return True

    def _answer(self, key: str, screen: Screen) -> bool:
        """Handle the answer to the question whether to repair."""
        if key in ("q", "end of file"):
            return False
        if key not in ("y", "n", "escape", "b") or self.view is None:
            return True
        self.asks = False
        if key != "y":
            self._page(screen)
            return True
        before = self.view.summary
        self.view, self.result = repair_picked(self.view)
        self.list.put(before.key, self.view.summary)
        width, _ = screen.size()
        lines = [row for line in self.result for row in wrap_text(line, width - 1)]
        self.text = TextPage(lines, "[b]ack to the list  [q]uit")
        return True

    def _more(self, key: str, screen: Screen) -> None:
        """Show the difference, the conversation, or what a resume would drop."""
        if self.view is None or self.view.session is None or self.view.plan is None:
            return
        width, _ = screen.size()
        if key == "d":
            lines = difference_lines(self.view.plan, self.view.summary.target, width - 1)
        elif key == "s":
            from lockstitch.cli.show import message_lines
            from lockstitch.transcript.messages import last_turns

            said = self.view.session.transcript.history
            chosen = last_turns(said.messages, said.dialect, _TURNS)
            blocks = message_lines(said.messages, said.dialect, {}, width - 1, chosen=chosen)
            lines = (line for block in blocks for line in block.split("\n"))
        else:
            from lockstitch.cli.show import dropped_lines

            lines = dropped_lines(self.view.session, width - 1)
        self.text = TextPage([*islice(lines, _MOST_LINES)], "[b]ack  [q]uit")


class _PickPrompt:
    """The same on a terminal that can only print: a numbered list, and questions."""

    def __init__(self, paths: list[str]) -> None:
        self.marks = choose_marks()
        self.width = max(terminal.width() - 1, 20)
        listed = (one for one in listing.summarize_files(paths) if not one.is_aside)
        self.found = list(islice(listed, _LISTED))
        self.more = sum(1 for _ in listed)

    def run(self) -> list[str]:
        """Print the list, and handle the session that the person picks."""
        known = SessionList(home_folder(), time.time(), self.marks)
        for one in self.found:
            # the list is printed only once, so all sessions are checked first
            found = scan_file(one.target)
            own = [report for report in found if report.session == one.session] or found
            known.add(with_check(one, own[0]) if len(own) == 1 else one)
        self.found = known.found
        for number, one in enumerate(known.found, 1):
            for line in known.entry(one, f"{number:>2}", self.width):
                terminal.say(line)
        if self.more:
            terminal.say(
                f"{several(self.more, 'older session')} not shown; `lockstitch scan` lists them "
                "all."
            )
        answer = terminal.ask(f"Which one? [1-{len(self.found)}, q to quit] ")
        if not answer.isascii() or not answer.isdecimal() or not 0 < int(answer) <= len(self.found):
            return ["Nothing was changed."]
        return self._see_to(self.found[int(answer) - 1], known.now)

    def _see_to(self, one: SessionSummary, now: float) -> list[str]:
        view = open_picked(one)
        for line in describe_picked(view, self.width, self.marks, now):
            terminal.say(line)
        if not view.can_repair or view.plan is None:
            return []
        while True:
            answer = terminal.ask("Repair it? A backup is kept. [y]es [n]o [d]iff ")[:1].lower()
            if answer != "d":
                break
            for line in difference_lines(view.plan, one.target, self.width):
                terminal.say(line)
        return repair_picked(view)[1] if answer == "y" else ["Nothing was changed."]
