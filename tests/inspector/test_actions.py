"""What the page does, through the calls that the command line makes: shown, agreed to, done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch.errors import Conflict, LockstitchError, UsageError
from lockstitch.inspector import actions
from lockstitch.inspector.actions import Subject
from tests.inspector import scenes
from tests.stores.sqlite.spoiling import spoil


def only(target: Path | str) -> Subject:
    [(subject, _)] = actions.scan(str(target))
    return subject


def do(subject: Subject, action: str, **options: Any) -> list[str]:
    """Do what is shown."""
    shown = actions.plan_action(subject, action, options).preview
    return actions.perform(subject, action, options, shown.stamp)


def test_a_repair_and_its_undo(tmp_path: Path) -> None:
    path = scenes.interrupted(tmp_path)
    before = path.read_bytes()
    subject = only(tmp_path)
    shown = actions.plan_action(subject, "repair", {}).preview
    assert path.read_bytes() == before
    assert "1 line will change, 2 lines will be added" in shown.says[1]
    assert [one["kind"] for one in shown.records] == ["new", "new", "changed"]
    assert do(subject, "repair")[0].startswith("Repaired")
    assert actions.check_again(subject).status == "ok"
    assert actions.read_session(subject).actions == ["undo", "compact", "branch", "export"]
    do(subject, "undo")
    assert path.read_bytes() == before
    assert "repair" in actions.read_session(subject).actions


def test_a_plan_is_done_only_while_it_is_the_same(tmp_path: Path) -> None:
    path = scenes.interrupted(tmp_path)
    subject = only(tmp_path)
    shown = actions.plan_action(subject, "repair", {}).preview
    with pytest.raises(Conflict, match="no longer what you were shown"):
        actions.perform(subject, "repair", {"strategy": "rollback"}, shown.stamp)
    with path.open("ab") as file:
        file.write(
            path.read_bytes().splitlines(keepends=True)[-1].replace(b'"uuid":"', b'"uuid":"f')
        )
    now = path.read_bytes()
    with pytest.raises(Conflict, match="nothing was changed"):
        actions.perform(subject, "repair", {}, shown.stamp)
    assert path.read_bytes() == now


def test_lost_turns_come_back_and_a_branch_is_saved(tmp_path: Path) -> None:
    scenes.two_windows(tmp_path)
    subject = only(tmp_path)
    reading = actions.read_session(subject)
    [piece] = [one for one in reading.timeline.asides if one["kind"] == "lost"]
    data, name = actions.export_branch(subject, piece["place"])
    assert name.endswith(f"-branch-{piece['place']}.jsonl")
    assert b"Second window: write the report for step 4." in data
    do(subject, "repair")
    assert actions.check_again(subject).unreachable == 0
    assert actions.read_session(subject).timeline.asides == []


def test_a_compaction_and_its_undo(tmp_path: Path) -> None:
    path = scenes.compacted(tmp_path)
    before = path.read_bytes()
    subject = only(tmp_path)
    large = actions.plan_action(subject, "compact", {}).preview
    assert "within the budget" in large.refusal
    with pytest.raises(UsageError, match="within the budget"):
        do(subject, "compact")
    for budget in (0, "1", True, None, 1 << 60):
        with pytest.raises(UsageError, match="number of tokens"):
            actions.plan_action(subject, "compact", {"budget": budget})
    scenes.long(tmp_path / "other", messages=200)
    other = only(tmp_path / "other")
    assert do(other, "compact", budget=2000)[0].startswith("Compacted")
    assert any(one["kind"] == "compacted" for one in actions.read_session(other).timeline.asides)
    do(other, "undo")
    assert path.read_bytes() == before


def test_an_export_in_another_dialect_without_secrets(tmp_path: Path) -> None:
    scenes.secret(tmp_path)
    subject = only(tmp_path)
    data, name = actions.export_session(subject, "openai-chat", redact="secrets")
    assert name == "openai-chat"
    assert scenes.SECRET.encode() not in data
    assert lockstitch.check(json.loads(data), "openai-chat") == []
    assert scenes.SECRET.encode() in actions.export_session(subject, None)[0]


def test_the_actions_of_a_store(tmp_path: Path) -> None:
    url = scenes.store(tmp_path / "agent.db", sessions=2)
    subject = next(one for one, _ in actions.scan(url) if one.session == "ticket-41")
    before = len(actions.read_session(subject).timeline.rows)
    assert do(subject, "rewind", to=6)[0].startswith("The session continues from record 6")
    assert actions.read_session(subject).timeline.asides[0]["turns"] == 1
    assert "unrewind" in actions.read_session(subject).actions
    do(subject, "unrewind")
    assert sum(not row["lane"] for row in actions.read_session(subject).timeline.rows) >= before
    assert do(subject, "fork", name="copy", to=6) == [
        "Made copy of the first 6 records of ticket-41."
    ]
    assert "already" in actions.plan_action(subject, "fork", {"name": "copy"}).preview.refusal
    assert actions.plan_action(subject, "fork", {"name": " "}).preview.refusal
    long = next(one for one, _ in actions.scan(url) if one.session == "ticket-43")
    assert do(long, "uncompact") == ["The whole conversation is sent again."]
    assert actions.read_session(long).timeline.asides == []
    assert do(long, "compact", budget=1500)[0].startswith("Compacted")
    assert actions.read_session(long).timeline.asides[0]["kind"] == "compacted"
    assert lockstitch.check(json.loads(actions.export_session(long, None)[0]), "anthropic") == []
    for odd in (None, True, "", {"a": 1}, "no such label"):
        with pytest.raises(LockstitchError):
            actions.plan_action(subject, "rewind", {"to": odd})


def test_a_damaged_session_of_a_store(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    url = scenes.store(path, sessions=2)
    spoil(path, "ticket-41", 5, lambda body: body.replace(b"settled", b"SETTLED"))
    damaged = [one for one, report in actions.scan(url) if report.status == "broken"]
    [subject] = damaged
    assert actions.read_session(subject).actions == ["repair", "export"]
    assert do(subject, "repair")[0].startswith("Repaired.")
    assert actions.check_again(subject).status == "ok"
    assert "undo" in actions.read_session(subject).actions
    do(subject, "undo")
    assert actions.check_again(subject).status == "broken"


def test_what_is_no_target_is_refused_at_once(tmp_path: Path) -> None:
    for odd in (str(tmp_path / "none.jsonl"), "no-such-session", f"sqlite:///{tmp_path}/none.db"):
        with pytest.raises(LockstitchError):
            actions.require_showable(odd)
    actions.require_showable(None)
    actions.require_showable(str(tmp_path))


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
def test_a_store_by_its_address_its_path_or_the_folder_it_is_in(
    tmp_path: Path, scheme: str
) -> None:
    place = tmp_path / ("stored" if scheme == "jsonl" else "stored.db")
    with lockstitch.open(f"{scheme}:///{place}") as opened:
        for name in ("one", "two"):
            with opened.session(name) as session:
                session.say("hello")
    for target in (f"{scheme}:///{place}", str(place), str(tmp_path)):
        names = {subject.session for subject, _ in actions.scan(target)}
        assert names >= {"one", "two"}
        for subject, _ in actions.scan(target):
            assert subject.is_own
            assert [row["role"] for row in actions.read_session(subject).timeline.rows] == ["user"]
