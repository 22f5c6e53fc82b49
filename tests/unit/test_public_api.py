"""Every type that a public call takes or returns can be imported, and shows no content."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct

import lockstitch
from lockstitch import sessions, stored
from lockstitch.testing import Call as AskedFor
from lockstitch.testing import Reply
from tests.docs.pages import ROOT
from tests.sessions import claude

sys.path.insert(0, str(ROOT / "scripts"))

from reference import api

MARK = "the-marked-words"
MODULES = api.documented()
# What only those need who add a format, a store or a compaction; and what a caller never names,
# since anything of that form will do.
INTERNAL = {
    "Aside", "Context", "Dropped", "Glimpse", "HealthProof", "History", "Ledger", "Quick",
    "Record", "RepairOutcome", "SessionUser", "Sorting", "SourcedMessage",
    "IncomingSession", "JournalEntry", "Lease", "Listing", "Remains", "StoreFault",
    "CompactionDraft", "Shortened",
}  # fmt: skip
# Texts that somebody has said or chosen. Those of other fields are names, places and reasons.
WORDS = {
    "About": {"title"},
    "Difference": {"before", "after"},
    "Described": {"title"},
    "Listed": {"title"},
    "Match": {"excerpt"},
    "Reply": {"text", "thinking"},
    "SessionSummary": {"title"},
}
# Loosely typed, and not what anybody has said.
HARMLESS = {"digest", "function"}
VALUES = (
    (r"\bRaw\b", Raw(msgspec.json.encode(MARK))),
    (r"dict\[str, bytes\]", {"blob": MARK.encode()}),
    (r"tuple\[bytes", (MARK.encode(),)),
    (r"\bbytes\b", MARK.encode()),
    (r"(dict|Mapping)\[str, Any", {"key": MARK}),
    (r"(list|Sequence)\[Any", [MARK]),
    (r"list\[BaseMessage", [MARK]),
    (r"\bAny\b", {"key": MARK}),
)


def classes() -> list[type]:
    """Every class that a public module exports, once."""
    return sorted(api.exported(), key=lambda one: (one.__module__, one.__name__))


def callables(module: Any) -> Iterator[Any]:
    """The functions of a public module, and the methods and properties of its classes."""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isroutine(value):
            yield value
        elif inspect.isclass(value):
            for _, member in api.members_of(value):
                made = member.fget if isinstance(member, property) else member
                yield getattr(made, "func", made)


@pytest.mark.parametrize("name", MODULES)
def test_what_public_calls_take_and_return_can_be_imported(name: str) -> None:
    module = MODULES[name]
    named = api.returned_by(module)
    for one in callables(module):
        for kind in api.hints_of(one).values():
            named |= api.classes_in(kind)
    assert {one.__name__ for one in named - api.exported()} - INTERNAL == set()


def test_a_type_that_cannot_be_imported_is_noticed() -> None:
    assert sessions.Backup in api.exported()
    assert api.classes_in(api.hints_of(sessions.undo)["backup"]) == {sessions.Backup}
    assert api.classes_in(api.hints_of(sessions.Format.parse)["context"]) - api.exported()


NEVER_MADE = {"Abort", "CompactLimits", "CompactOptions"}  # they describe what a caller passes
MADE = [one for one in classes() if one.__name__ not in NEVER_MADE]


@pytest.mark.parametrize("value", MADE, ids=lambda one: one.__name__)
def test_every_public_class_says_what_it_is(value: type) -> None:
    assert value.__repr__ is not object.__repr__


def marked(value: type) -> Any:
    """An instance of which every field that can hold content holds the marker."""
    words = WORDS.get(value.__name__, set())
    fields: dict[str, Any] = {}
    for name, kind, _ in api.fields_of(value):
        is_harmless = name in HARMLESS or "Callable" in kind
        content = next((found for form, found in VALUES if re.search(form, kind)), None)
        fields[name] = MARK if name in words else None if is_harmless else content
    return value(**fields)


# Their reprs are made of a path, an address, counts and words that are checked when they are made.
BY_HAND = {"Snapshot", "StorePlace", "Reconciled", "Reply"}
WITH_FIELDS = [
    one
    for one in classes()
    if (issubclass(one, Struct) or dataclasses.is_dataclass(one)) and one.__name__ not in BY_HAND
]


@pytest.mark.parametrize("value", WITH_FIELDS, ids=lambda one: one.__name__)
def test_no_public_class_shows_content(value: type) -> None:
    assert MARK not in repr(marked(value))


def test_a_session_shows_no_content_anywhere(tmp_path: Path) -> None:
    reply = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": MARK},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": MARK}},
        ],
        "model": "claude-sonnet-4-5",
    }
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    with lockstitch.open(url) as store, store.session("s") as session:
        shown = [repr(session.describe(title=MARK, metadata={"about": MARK}))]
        shown += [repr(session.say(MARK)), repr(session.record(reply, "anthropic"))]
        session.note("kept", MARK)
        shown.append(repr(session.run_tools({"look": lambda at: at})))
        with session.stream(iter([]), "anthropic") as stream:
            shown += [repr(stream), repr([*stream])]
        reader = store.read("s")
        assert MARK in str(reader.request("anthropic"))
        of_session = [session, session.state, session.items, session.calls, session.notes()]
        of_session += [session.checkpoints, session.recovered, session.usage(), session.turn]
        of_store = [store, [*store.sessions()], [*store.search(MARK)], store.salvage("s")]
        facts = [*reader.follow(timeout=0), *reader.state.facts.values()]
        assert len(facts) > 5
        shown += map(repr, [*of_session, *of_store, reader, facts, store.async_session("s")])
    shown += map(repr, [stored.read(url), [*stored.check(url)], stored.found(url)])
    assert [text for text in shown if MARK in text] == []


def test_a_stored_session_shows_no_content_anywhere(tmp_path: Path) -> None:
    path = tmp_path / f"{claude.SESSION}.jsonl"
    asked = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": MARK}}]
    path.write_text(
        claude.line(1, None, "user", MARK)
        + claude.line(2, 1, "assistant", asked)
        + claude.line(3, 2, "user", claude.said(MARK)),
        encoding="utf-8",
    )
    [source] = sessions.sources(str(path))
    opened = sessions.opened(source)
    plan = sessions.planned(opened)
    changed = [*sessions.differences(plan)]
    assert plan.changes
    assert MARK in str(changed[0].after)
    summaries = sessions.Summaries()
    found: list[Any] = [source, opened, plan, changed, summaries, source.form]
    found += [summaries.of(sessions.check(source)), sessions.examined(source)]
    found += [*sessions.search(source, sessions.SearchWords(MARK))]
    found += [sessions.condensed(opened, budget=100_000), sessions.outlook(opened, plan)]
    found += [sessions.repair(source), sessions.backups_of(str(path))]
    assert [one for one in found if MARK in repr(one)] == []


def test_a_plan_may_be_given_under_its_earlier_name(tmp_path: Path) -> None:
    path = tmp_path / f"{claude.SESSION}.jsonl"
    asked = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}]
    path.write_text(claude.line(1, None, "user", "go") + claude.line(2, 1, "assistant", asked))
    [source] = sessions.sources(str(path))
    opened = sessions.opened(source)
    plan: Any = sessions.planned(opened)
    old: Any = sessions
    assert [*old.differences(mended=plan)] == [*sessions.differences(plan)]
    assert old.copied(opened, mended=plan) == sessions.copied(opened, plan)
    expected = sessions.outlook(opened, plan)
    assert old.outlook(opened, mended=plan) == expected
    assert old.applied(opened, mended=plan, run="again").changes == expected.changes
    assert "plan" in inspect.signature(sessions.applied).parameters


def test_a_healed_list_shows_no_content_anywhere() -> None:
    messages = [
        {"role": "user", "content": MARK},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": ""},
                {"type": "tool_use", "id": "toolu_1", "name": "x", "input": {"a": MARK}},
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": MARK}]},
    ]
    plan = lockstitch.plan(messages, "anthropic")
    assert plan.edits
    for one in (plan, plan.edits, plan.changes, plan.quarantine, plan.repaired, plan.findings):
        assert MARK not in repr(one)
    assert MARK not in repr(Reply(MARK, (AskedFor("x", {"a": MARK}),), MARK))
    assert MARK not in repr(lockstitch.Result(MARK))
