"""What a list of sessions says of each: which one it is, and what is wrong in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstitch import sessions
from lockstitch.rules import RULES, Finding
from lockstitch.rules.rule import COUNTED
from lockstitch.sources import listing
from lockstitch.sources.listing import SessionSummary, ago, state_in_words
from lockstitch.sources.source import Report, pasted
from tests.sessions import claude, homes


def finding(code: str, severity: str = "error") -> Finding:
    rule = RULES[code]
    return Finding(code=code, name=rule.name, severity=severity, place="1", message="")


def test_every_rule_has_its_words() -> None:
    assert COUNTED.keys() == RULES.keys()


def test_a_state_is_told_in_words_the_worst_first() -> None:
    report = Report("f", findings=[finding("LS601", "warning"), finding("LS101"), finding("LS102")])
    assert state_in_words(report) == ("broken", "2 tool calls without results, 1 torn line")


def test_turns_that_a_resume_drops_are_counted_as_turns() -> None:
    report = Report("f", findings=[finding("LS706")], unreachable=14)
    assert state_in_words(report) == ("broken", "14 turns a resume would drop")
    report = Report("f", findings=[finding("LS705"), finding("LS101")], unreachable=1)
    assert state_in_words(report)[1] == "1 turn a resume would drop, 1 tool call without a result"


def test_warnings_are_not_broken_and_notes_are_healthy() -> None:
    assert state_in_words(Report("f", findings=[finding("LS101", "warning")]))[0] == "warning"
    assert state_in_words(Report("f")) == ("healthy", "healthy")
    noted = state_in_words(Report("f", findings=[finding("LS608", "note")]))
    assert noted == ("healthy", "healthy (note: 1 missing line break)")
    assert state_in_words(Report("f", error="is empty")) == ("unreadable", "is empty")


def test_many_kinds_of_problems_are_not_all_named() -> None:
    codes = ("LS101", "LS103", "LS601", "LS401", "LS502")
    told = state_in_words(Report("f", findings=[finding(code) for code in codes]))[1]
    assert told.endswith("1 torn line, 2 more problems")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 minute ago"),
        (7300, "2 hours ago"),
        (86_400 * 6, "6 days ago"),
        (86_400 * 20, "2 weeks ago"),
        (86_400 * 100, "3 months ago"),
        (86_400 * 800, "2 years ago"),
    ],
)
def test_an_age_is_told_in_words(seconds: float, words: str) -> None:
    assert ago(seconds) == words


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/home/ada/project", "~/project"),
        ("/home/ada/my project", "~/'my project'"),
        ("/home/adam/x", "/home/adam/x"),
        ("/srv/$(id)", "'/srv/$(id)'"),
    ],
)
def test_a_path_can_be_pasted(path: str, text: str) -> None:
    assert pasted(path, "/home/ada") == text


def test_the_line_that_resumes_goes_to_the_project_first() -> None:
    known = SessionSummary(
        "f", project="/srv/app", words=("claude", "--resume", "a;b"), is_local=True
    )
    assert known.resume_line("/srv/app") == "claude --resume 'a;b'"
    assert known.resume_line("/elsewhere") == "cd /srv/app && claude --resume 'a;b'"
    assert SessionSummary("f", project="/srv/app").resume_line() == ""


def test_the_sessions_of_all_programs_are_listed_newest_first(tmp_path: Path) -> None:
    homes.large(tmp_path)
    found = list(sessions.listed(sessions.paths(home=tmp_path, environ={}), environ={}))
    assert [one.updated for one in found] == sorted((o.updated for o in found), reverse=True)
    commands = {one.program: one.words[:2] for one in found}
    assert commands == {
        "Claude Code": ("claude", "--resume"),
        "Codex": ("codex", "resume"),
        "pi": ("pi", "--session"),
        "Gemini CLI": ("gemini", "--resume"),
        "opencode": ("opencode", "--session"),
        "goose": ("goose", "session"),
    }
    titles = {one.title.partition(" MARK")[0] for one in found}
    assert titles == {
        "Fix the failing test",
        "Build it, please.",
        "The healthy one",
        "Run the build.",
        "Read the settings.",
        "Look around.",
        "Work",
    }
    assert {one.project for one in found} == {"/home/ada/project", None}


def test_a_copy_is_resumed_by_its_own_name(tmp_path: Path) -> None:
    """Claude Code looks for a file of that name; what stands in the copy is the first one's id."""
    copy = tmp_path / "99999999-e994-4f01-b1be-6cd86456e2af.jsonl"
    copy.write_text(claude.broken(), encoding="utf-8")
    [report] = sessions.scan([str(copy)])
    assert sessions.summarized(report).words == ("claude", "--resume", copy.stem)


def test_a_report_is_summarized_with_its_first_words(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    [report] = sessions.scan([str(path)])
    found = sessions.summarized(report)
    assert (found.title, found.level) == ("Build it, please.", "broken")
    assert found.state == "1 tool call without a result"
    assert found.resume_line("/home/ada/project") == f"claude --resume {claude.SESSION}"
    problem = listing.problems(report.findings)[0]
    assert problem.meaning.endswith(".")
    assert problem.refusal.startswith("messages.")
