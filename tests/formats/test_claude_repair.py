"""Every kind of Claude Code file through the command: checked, repaired, again, undone."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.anthropic import problems
from tests.together import Together

from . import claude_oracle as oracle
from .campaign import Home, Ran, named_lines, quarantined, session_of
from .claude_cases import BROKEN, CASES, HEALTHY, NOTED
from .claude_files import LAYOUTS, MARK, Book, Case, counted_uuid, joined, opened

each = Together()


@dataclass(frozen=True, slots=True)
class Life:
    """What the commands reported, and the bytes after each of them that writes."""

    home: Home
    healthy: Ran
    first_check: Ran
    diff: Ran
    repair: Ran
    second_check: Ran
    second_repair: Ran
    undo: Ran
    mended: dict[str, bytes]
    again: dict[str, bytes]
    undone: dict[str, bytes]
    kept: dict[str, str]

    def path(self, case: Case) -> Path:
        return self.home.paths[str(case)]

    def report(self, ran: Ran, case: Case) -> dict[str, Any]:
        return session_of(ran, self.path(case))


def put(home: Home, case: Case) -> Path:
    folder = f".claude/projects/-home-ada-{case.name.replace('_', '-')}-{case.layout}"
    for path, data in case.side.items():
        home.put(f"{case} {path}", f"{folder}/{path}", data)
    return home.put(str(case), f"{folder}/{case.session}.jsonl", case.data)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    home = Home(tmp_path_factory.mktemp("home"), {"PYTHONHASHSEED": "0"})
    broken = [put(home, case) for case in BROKEN]
    healthy = [put(home, case) for case in (*HEALTHY, *NOTED)]
    before = {path: path.read_bytes() for path in broken}
    first_check = home.each("check", "--json", targets=broken)
    diff = home.run("repair", "--diff", *broken)
    untouched = home.each("repair", "--yes", "--json", targets=healthy)
    repair = home.each("repair", "--yes", "--json", targets=broken)
    mended = home.read()
    second_check = home.each("check", "--json", targets=broken)
    second_repair = home.each("repair", "--yes", "--json", targets=broken)
    again = home.read()
    undo = home.run(
        "undo", "--yes", *[path for path in broken if path.read_bytes() != before[path]]
    )
    return Life(
        home,
        untouched,
        first_check,
        diff,
        repair,
        second_check,
        second_repair,
        undo,
        mended,
        again,
        home.read(),
        {str(case): quarantined(repair, home.paths[str(case)]) for case in BROKEN},
    )


@each.check
def damage_is_found(life: Life, case: Case) -> None:
    report = life.report(life.first_check, case)
    assert report["status"] == "broken"
    assert report["format"] == "claude-code"
    assert report["session"] == case.session
    assert report["findings"]
    lines = len(case.data.splitlines())
    for finding in report["findings"]:
        head = finding["place"].split(".")[0]
        assert 1 <= int(head) <= lines + 1


@each.check
def check_and_repair_find_the_same(life: Life, case: Case) -> None:
    checked = life.report(life.first_check, case)["findings"]
    assert checked == life.report(life.repair, case)["findings"]


def test_findings_do_not_show_what_was_said(life: Life) -> None:
    assert life.first_check.status == 1
    assert not MARK.search(life.first_check.out.decode() + life.first_check.err)


@each.check
def the_mended_file_is_valid(life: Life, case: Case) -> None:
    assert oracle.violations(life.mended[str(case)]) == []


@each.check
def nothing_is_lost(life: Life, case: Case) -> None:
    data = life.mended[str(case)]
    sent = oracle.marks(data)
    assert set(case.history) - sent == set()
    listed = named_lines(life.report(life.repair, case)["quarantine"])
    lines = case.data.split(b"\n")
    for mark in set(case.spare) - sent:
        (line,) = [n for n, text in enumerate(lines, start=1) if mark.encode() in text]
        assert line in listed
        assert mark in life.kept[str(case)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_was_left_behind_on_purpose_stays_there(life: Life, case: Case) -> None:
    data = life.mended[str(case)]
    assert not set(case.aside) & oracle.marks(data)
    everything = b"".join([data, *case.side.values()])
    assert [mark for mark in case.aside if mark.encode() not in everything] == []


@each.check
def each_result_answers_its_own_call(life: Life, case: Case) -> None:
    paired = oracle.pairs(life.mended[str(case)])
    assert {mark: paired.get(mark) for mark in case.pairs} == dict(case.pairs)


@each.check
def a_second_check_is_clean(life: Life, case: Case) -> None:
    report = life.report(life.second_check, case)
    assert report["findings"] == []
    assert report["status"] == "ok"
    assert life.report(life.repair, case)["remaining"] == []


def test_the_exit_status_is_zero_once_all_is_mended(life: Life) -> None:
    runs = (life.healthy, life.repair, life.second_check, life.second_repair, life.undo)
    assert [(ran.status, ran.err) for ran in runs if ran.status] == []


@each.check
def a_second_repair_changes_no_byte(life: Life, case: Case) -> None:
    assert life.again[str(case)] == life.mended[str(case)]


@each.check
def undo_brings_every_byte_back(life: Life, case: Case) -> None:
    assert life.undone[str(case)] == case.data


@each.check
def lines_that_no_edit_names_keep_their_bytes(life: Life, case: Case) -> None:
    named = named_lines(life.report(life.repair, case)["edits"])
    whole = [
        line
        for number, line in enumerate(case.data.split(b"\n"), start=1)
        if number not in named and _is_object(line)
    ]
    assert Counter(whole) - Counter(life.mended[str(case)].split(b"\n")) == Counter()


@pytest.mark.parametrize("case", [case for case in BROKEN if case.touched is not None], ids=str)
def test_few_lines_lose_their_bytes(life: Life, case: Case) -> None:
    before = Counter(line for line in case.data.split(b"\n") if _is_object(line))
    gone = before - Counter(life.mended[str(case)].split(b"\n"))
    assert gone.total() <= (case.touched or 0)


@each.check
def a_line_that_only_gets_another_parent_keeps_its_spelling(life: Life, case: Case) -> None:
    mended = {uuid: line for line in life.mended[str(case)].split(b"\n") if (uuid := _uuid(line))}
    for line in case.data.split(b"\n"):
        now = mended.get(_uuid(line) or "", line)
        if now != line and _without_parent(line) == _without_parent(now):
            parent, other = (json.dumps(json.loads(x)["parentUuid"]).encode() for x in (line, now))
            assert now == line.replace(b'"parentUuid":' + parent, b'"parentUuid":' + other)


@each.check
def a_field_that_is_said_to_be_updated_is_another_one(life: Life, case: Case) -> None:
    mended = {uuid: line for line in life.mended[str(case)].split(b"\n") if (uuid := _uuid(line))}
    lines = case.data.split(b"\n")
    for edit in life.report(life.repair, case)["edits"]:
        number, field, *_ = [*edit["place"].split("."), ""]
        line = lines[int(number) - 1] if number.isdigit() else b""
        if edit["note"].startswith("the record was updated") and _uuid(line) in mended:
            old, new = (json.loads(one).get(field) for one in (line, mended[str(_uuid(line))]))
            assert old != new, edit


@each.check
def old_clients_see_no_less_than_before(life: Life, case: Case) -> None:
    seen = oracle.marks(case.data, naive=True) & set(case.history)
    assert seen - oracle.marks(life.mended[str(case)], naive=True) == set()


@each.check
def all_clients_go_on_from_the_same_record(life: Life, case: Case) -> None:
    assert len(oracle.leaf_lines(life.mended[str(case)])) == 1


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_every_broken_file(life: Life, case: Case) -> None:
    each.made(life, case)


@pytest.mark.parametrize("case", [case for case in BROKEN if case.layout == "linear"], ids=str)
def test_old_clients_accept_what_is_mended_in_their_layout(life: Life, case: Case) -> None:
    assert oracle.violations(life.mended[str(case)], naive=True) == []


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_a_healthy_file_keeps_every_byte(life: Life, case: Case) -> None:
    report = life.report(life.healthy, case)
    assert (report["status"], report["findings"]) == ("ok", [])
    assert life.mended[str(case)] == case.data


@pytest.mark.parametrize("case", NOTED, ids=str)
def test_a_file_with_notes_only_is_healthy_and_keeps_every_byte(life: Life, case: Case) -> None:
    report = life.report(life.healthy, case)
    assert report["status"] == "notes"
    assert {found["severity"] for found in report["findings"]} == {"note"}
    assert life.mended[str(case)] == case.data


@pytest.mark.parametrize("case", NOTED, ids=str)
def test_notes_are_mended_when_asked_for(tmp_path: Path, case: Case) -> None:
    home = Home(tmp_path)
    path = put(home, case)
    assert home.run("check", path).status == 0
    assert home.run("repair", "--yes", "--notes", path).status == 0
    data = path.read_bytes()
    assert oracle.violations(data) == []
    assert set(case.history) <= oracle.marks(data)


def test_what_need_not_write_does_not_write(life: Life) -> None:
    runs = (life.first_check, life.diff, life.healthy, life.second_check, life.second_repair)
    assert [ran.changed for ran in runs] == [()] * len(runs)


@pytest.mark.parametrize("case", [case for case in CASES if case.side], ids=str)
def test_files_of_sub_agents_keep_every_byte(life: Life, case: Case) -> None:
    for path, data in case.side.items():
        assert life.mended[f"{case} {path}"] == data


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    for case in CASES:
        put(home, case)
    return home


@pytest.mark.parametrize(
    "words", [("scan",), ("scan", "--json"), ("show",), ("export", "--to", "anthropic")], ids=str
)
def test_looking_at_all_files_changes_nothing(reading: Home, words: tuple[str, ...]) -> None:
    targets = [] if words[0] == "scan" else [reading.paths[str(case)] for case in CASES[:4]]
    runs = [reading.run(*words, target) for target in targets] or [reading.run(*words)]
    assert [ran.changed for ran in runs] == [()] * len(runs)
    assert {ran.status for ran in runs} <= {0, 1}, [ran.err for ran in runs if ran.status > 1]


def test_scan_finds_every_session(reading: Home) -> None:
    found = reading.run("scan", "--json").sessions
    statuses = {str(case): found[str(reading.paths[str(case)])]["status"] for case in CASES}
    states = {True: "ok", False: "broken"}
    expected = {str(c): "notes" if c.noted else states[c.healthy] for c in CASES}
    assert statuses == expected


EXPORTED = (
    "00_healthy",
    "07_two_of_three",
    "21_results_on_side_branches",
    "compacted",
    "rewound",
    "words_queued_in_a_broken_batch",
)


@pytest.mark.parametrize("case", [case for case in CASES if case.name in EXPORTED], ids=str)
def test_an_export_is_what_a_resume_sends(reading: Home, case: Case) -> None:
    ran = reading.run("export", "--to", "anthropic", reading.paths[str(case)])
    assert ran.status == 0, ran.err
    body = json.loads(ran.out)
    messages = body["messages"] if isinstance(body, dict) else body
    assert problems(messages) == []
    marks = set(MARK.findall(json.dumps(messages)))
    assert set(case.history) <= marks
    assert not set(case.aside) & marks


@pytest.mark.parametrize("name", ["01_open_call_at_tail-tree", "18_torn_and_glued-linear"])
def test_a_copy_is_the_same_repair(life: Life, tmp_path: Path, name: str) -> None:
    case = next(case for case in BROKEN if str(case) == name)
    home = Home(tmp_path)
    source = put(home, case)
    out = tmp_path / "copy.jsonl"
    ran = home.run("repair", "--yes", "-o", out, source)
    assert ran.status == 0, ran.err
    assert source.read_bytes() == case.data
    assert out.read_bytes() == life.mended[name]


def test_a_repair_does_not_depend_on_hash_seed_or_clock(life: Life, tmp_path: Path) -> None:
    home = Home(tmp_path, {"PYTHONHASHSEED": "7"})
    home.each("repair", "--yes", "--json", targets=[put(home, case) for case in BROKEN])
    now = home.read()
    assert [name for name in now if now[name] != life.mended[name]] == []


def test_what_is_appended_after_a_repair_is_a_line_of_its_own(life: Life) -> None:
    note = {"type": "mode", "mode": "plan"}
    for case in BROKEN:
        data = life.mended[str(case)] + joined([json.dumps(note).encode()])
        assert json.loads(data.splitlines()[-1]) == note


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lines_in_reverse_keep_the_order_of_their_parents(tmp_path: Path, layout: str) -> None:
    book = opened(Book("reversed", layout))
    book.work("Go on.", "status")
    book.ask("Run the build.")
    book.say("I build it.", "the build")
    book.ask("Are you there?")
    book.say("Yes.")
    book.records.reverse()
    home = Home(tmp_path)
    path = put(home, book.case())
    assert home.run("repair", "--yes", path).status == 0
    sent = json.dumps(oracle.history(path.read_bytes()))
    assert list(dict.fromkeys(MARK.findall(sent))) == book.marks
    assert home.run("check", path).status == 0


def test_an_older_line_that_comes_last_gets_a_time_and_no_other_does(tmp_path: Path) -> None:
    book = opened(Book("older_last", "linear"))
    book.ask("Run both.")
    turn = book.say("I run both.", "the build", "the tests")
    orphan = book.result("toolu_01nobodycalledthis00000", book.words("late output"), None)
    book.wait(60)
    answers = [book.answer(call, "done") for call in turn.calls]
    home = Home(tmp_path)
    path = put(home, book.case())
    assert home.here("repair", "--yes", path).status == 0
    before, times = (
        {r["uuid"]: r["timestamp"] for r in map(json.loads, lines) if "uuid" in r}
        for lines in (book.lines(), path.read_bytes().splitlines())
    )
    late = times.pop(orphan["uuid"])
    assert before.pop(orphan["uuid"]) < answers[-1]["timestamp"] < late
    assert times == before


def test_a_line_that_is_made_anew_keeps_what_was_put_behind_it(tmp_path: Path) -> None:
    """A neutral result of the first round makes way for a real one in the next."""
    book = opened(Book("made_anew", "tree"))
    book.ask("Read it.")
    turn = book.say(None, "the file", thinking="I look.")
    book.answer(turn.calls[0], "the first")
    end = book.say("I read it.").records[-1]
    # the same message once more, beside it
    names = {record["uuid"]: counted_uuid("again", record["uuid"]) for record in turn.records}
    for record in turn.records:
        parent = names.get(record["parentUuid"], record["parentUuid"])
        book.add({**record, "uuid": names[record["uuid"]], "parentUuid": parent})
    book.tip = [*names.values()][-1]
    book.result(turn.calls[0].id, book.words("the second"), book.tip)
    book.note("last-prompt", lastPrompt="Read it.", leafUuid=end["uuid"])
    home = Home(tmp_path)
    path = put(home, book.case())
    assert home.here("repair", "--yes", path).status == 0
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    by_uuid = {line["uuid"]: line for line in lines if "uuid" in line}
    walk, at = [], by_uuid.get(end["uuid"])
    while at is not None:
        walk.append(at)
        at = by_uuid.get(at["parentUuid"])
    calls, results = (
        [block[key] for line in walk[::-1] for block in _blocks(line) if key in block]
        for key in ("id", "tool_use_id")
    )
    assert results == calls
    assert len(calls) == len(set(calls)) == 3


def test_what_cannot_be_put_back_yet_is_not_said_to_be(tmp_path: Path) -> None:
    """A reply behind a second copy of a call has its place once that copy has an id of its own."""
    book = opened(Book("copied_call", "tree"))
    book.ask("Read it.")
    turn = book.say("I look.", "the file")
    book.answer(turn.calls[0], "the first")
    end = book.say("I read it.").records[-1]
    caller = turn.calls[0].record
    copy = book.add({**caller, "uuid": counted_uuid("again", caller["uuid"])})
    book.tip = copy["uuid"]
    book.result(turn.calls[0].id, book.words("the second"), copy["uuid"])
    book.say("I read it again.")
    book.note("last-prompt", lastPrompt="Read it.", leafUuid=end["uuid"])
    home = Home(tmp_path)
    path = put(home, book.case())
    ran = home.here("repair", "--yes", "--json", path)
    edits = [json.dumps(edit) for edit in session_of(ran, path)["edits"]]
    assert len(edits) == len(set(edits))
    assert home.here("check", path).status == 0


@pytest.mark.parametrize("data", [b"", b"\n", b"\0\0\0", b"not a session", b"{}\n"], ids=repr)
@pytest.mark.parametrize("command", ["check", "repair"])
def test_what_is_no_session_is_refused_and_left_alone(
    tmp_path: Path, data: bytes, command: str
) -> None:
    home = Home(tmp_path)
    path = home.put("nothing", f".claude/projects/-home-ada/{CASES[0].session}.jsonl", data)
    ran = home.run(command, *(["--yes"] if command == "repair" else []), path)
    assert (ran.status, ran.changed) == (2, ())
    assert "Traceback" not in ran.err


def _blocks(line: dict[str, Any]) -> list[dict[str, Any]]:
    content = line["message"]["content"] if "message" in line else []
    return content if isinstance(content, list) else []


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode()), dict)
    except ValueError:
        return False


def _uuid(line: bytes) -> str | None:
    return json.loads(line).get("uuid") if _is_object(line) else None


def _without_parent(line: bytes) -> dict[str, Any] | None:
    if not _is_object(line):
        return None
    record: dict[str, Any] = json.loads(line)
    return {key: value for key, value in record.items() if key != "parentUuid"}
