"""Commands that look at Lockstitch stores: what they say, and that they change nothing."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch import stored
from lockstitch.dialects.profiles import DIALECTS
from lockstitch.errors import Unreadable, UsageError
from lockstitch.sources import own_stores
from lockstitch.stores import addresses
from tests.cli.journals import HEAVY, LARGE, SMALL, TICKET, damage, held, replied, said, write
from tests.postgres_server import shared

KINDS = ("sqlite", "jsonl", "postgresql")
FILES = ("sqlite", "jsonl")


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The address of a store with two sessions."""
    kind = getattr(request, "param", "sqlite")
    name = {"sqlite": "agent.db", "jsonl": "lines"}.get(kind)
    url = f"{kind}:///{tmp_path / name}" if name else shared().fresh()
    write(url, "small", *SMALL)
    write(url, "ticket-42", *TICKET)
    return url


every = pytest.mark.parametrize("store", KINDS, indirect=True)
in_files = pytest.mark.parametrize("store", FILES, indirect=True)
READING = (
    ("check",),
    ("check", "--json", "--session", "ticket-42"),
    ("show", "--session", "ticket-42"),
    ("export", "--session", "ticket-42"),
    ("export", "--session", "ticket-42", "--raw"),
    ("checkpoints", "--session", "ticket-42"),
)


def state_of(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every file below a folder with its content, mode and time."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
    }


# check


@every
def test_a_whole_store_is_verified(here: Any, store: str) -> None:
    done = here("check", store)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"Read 2 sessions with 20 records.\nAll clean.\n"


@every
def test_check_json(here: Any, store: str) -> None:
    report = json.loads(here("check", store, "--json").stdout)
    small, ticket = report["sessions"]
    assert (small["session"], small["records"], small["messages"]) == ("small", 3, 2)
    assert (small["format"], small["status"], small["findings"]) == ("lockstitch", "ok", [])
    assert (ticket["session"], ticket["dialect"]) == ("ticket-42", "anthropic")
    assert (ticket["records"], ticket["reachable"], ticket["unreachable"]) == (17, 2, 0)
    assert ticket["target"] == addresses.public(store)


@every
def test_damage_is_found_and_named(here: Any, store: str) -> None:
    damage(store, "ticket-42", 7)
    done = here("check", store)
    [line, *_] = done.stdout.decode().splitlines()
    assert line.startswith(f"{addresses.public(store)}:ticket-42:7: error LS611 ")
    assert done.returncode == 1
    assert b"Found 1 error (1 fixable)." in done.stderr
    assert (
        b"16 records are as they were written, 10 of them after the damage, 1 lost" in done.stderr
    )
    small, ticket = json.loads(here("check", store, "--json").stdout)["sessions"]
    assert (small["status"], ticket["status"]) == ("ok", "broken")
    [finding] = ticket["findings"]
    assert (finding["code"], finding["place"]) == ("LS611", "7")
    assert finding["fixable"]


@every
def test_one_session_of_a_damaged_store(here: Any, store: str) -> None:
    damage(store, "ticket-42", 7)
    assert here("check", store, "--session", "small").returncode == 0
    done = here("check", store, "--session", "ticket-42")
    assert (done.returncode, done.stdout.count(b"LS611")) == (1, 1)
    missing = here("check", store, "--session", "nobody")
    assert missing.returncode == 2
    assert (
        missing.stderr
        == f"lockstitch: {addresses.public(store)}: there is no session nobody\n".encode()
    )


def test_a_large_value_that_changed(here: Any, store: str) -> None:
    write(store, "heavy", *HEAVY)
    path = own_stores.path_of(store)
    with sqlite3.connect(path) as base:
        base.execute("update blobs set body = cast('other' as blob)")
    base.close()
    done = here("check", store, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    codes = {s["session"]: [f["code"] for f in s["findings"]] for s in report["sessions"]}
    assert "LS611" in codes["heavy"]
    assert codes["small"] == []


def test_sarif_knows_the_rule(here: Any, store: str) -> None:
    damage(store, "small", 2)
    log = json.loads(here("check", store, "--output-format", "sarif").stdout)
    [result] = log["runs"][0]["results"]
    assert result["ruleId"] == "LS611"


def test_a_request_that_another_dialect_would_get(here: Any, store: str) -> None:
    done = here("check", store, "--dialect", "openai-chat:mistral", "--json")
    assert {s["dialect"] for s in json.loads(done.stdout)["sessions"]} == {"openai-chat:mistral"}
    assert done.returncode == 0


# targets


@every
def test_nothing_to_take_back(here: Callable[..., Any], store: str) -> None:
    done = here("undo", store, "--session", "ticket-42", "--yes")
    assert done.returncode == 2
    assert b"session ticket-42: it has no repair that could be undone" in done.stderr
    assert b"name one with --session" in here("undo", store, "--yes").stderr
    assert here("undo", store, "--list").returncode == 0


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_store_in_a_folder_whose_name_is_not_utf8(
    tmp_path: Path, here: Callable[..., Any], kind: str
) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9") / {"sqlite": "agent.db", "jsonl": "lines"}[kind]
    path.parent.mkdir()
    write(f"{kind}:///{path}", "ticket-42", *TICKET)
    for words in READING:
        for target in (path, f"{kind}:///{path}"):
            done = here(words[0], target, *words[1:])
            assert (done.returncode, done.stderr) == (0, b"") or words[0] == "check"
            assert b"internal error" not in done.stderr


@in_files
def test_a_path_is_known_for_what_it_is(here: Any, store: str, tmp_path: Path) -> None:
    path = own_stores.path_of(store)
    report = json.loads(here("check", path, "--json").stdout)["sessions"]
    assert {one["format"] for one in report} == {"lockstitch"}
    assert [one["session"] for one in report] == ["small", "ticket-42"]
    folder = json.loads(here("check", tmp_path, "--json").stdout)["sessions"]
    assert [one["session"] for one in folder] == ["small", "ticket-42"]
    forced = here("check", path, "--format", "lockstitch")
    assert forced.returncode == 0


@in_files
def test_scan_knows_it(here: Any, store: str, tmp_path: Path) -> None:
    done = here("scan", tmp_path, "--json")
    report = json.loads(done.stdout)["sessions"]
    assert {one["format"] for one in report} == {"lockstitch"}
    assert b"2 sessions: 2 healthy, 0 broken." in done.stderr
    assert b"no program" not in done.stderr
    damage(store, "small", 1)
    assert here("scan", tmp_path).returncode == 1


def test_a_database_without_a_suffix(here: Any, store: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    shutil.copy(own_stores.path_of(store), plain)
    assert b"Read 2 sessions" in here("check", plain).stderr


def test_a_session_s_own_file(here: Any, tmp_path: Path) -> None:
    write(f"jsonl:///{tmp_path}", "ticket-42", *TICKET)
    write(f"jsonl:///{tmp_path}", "small", *SMALL)
    done = here("show", tmp_path / "small.jsonl")
    assert b"lockstitch small  1 turn, 3 records" in done.stdout
    assert b"Read 1 session with 3 records." in here("check", tmp_path / "small.jsonl").stderr


def test_the_database_of_another_program_is_not_ours(here: Any, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as base:
        base.execute("create table sessions (name)")
    base.close()
    assert not stored_at(tmp_path / "other.db")
    for target in (tmp_path / "other.db", f"sqlite:///{tmp_path / 'other.db'}"):
        done = here("check", target)
        assert done.returncode == 2
        assert b"not one of a known program" in done.stderr or b"JSON" in done.stderr
    forced = here("check", tmp_path / "other.db", "--format", "lockstitch")
    assert b"is not a Lockstitch store" in forced.stderr


def test_a_store_of_a_later_version(here: Any, store: str) -> None:
    base = sqlite3.connect(own_stores.path_of(store))
    base.execute("pragma user_version = 99")
    base.close()
    for words in (("check", store), ("check", own_stores.path_of(store)), ("show", store)):
        done = here(*words)
        assert done.returncode == 2
        assert b"was written by a later version of Lockstitch" in done.stderr


def stored_at(path: Path) -> bool:
    return own_stores.place_of(str(path)) is not None


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("command", ["check", "show", "export", "checkpoints", "rewind", "fork"])
def test_what_is_not_there_is_not_made(here: Any, tmp_path: Path, kind: str, command: str) -> None:
    words = {"rewind": ["--to", "1", "--yes"], "fork": ["new"]}.get(command, [])
    done = here(command, f"{kind}:///{tmp_path}/deep/none.db", *words)
    assert done.returncode == 2
    assert b"no such f" in done.stderr
    assert list(tmp_path.iterdir()) == []


@every
def test_a_store_with_several_sessions_asks_which(here: Any, store: str) -> None:
    for command in ("show", "export", "checkpoints"):
        done = here(command, store)
        assert done.returncode == 2
        assert b"holds several sessions; name one with --session: small, ticket-42" in done.stderr


def test_repair_says_that_there_is_nothing_to_do(here: Any, store: str) -> None:
    for target in (store, own_stores.path_of(store)):
        done = here("repair", "--yes", target)
        assert (done.returncode, done.stderr) == (0, b"All clean.\n")


def test_every_damaged_session_is_repaired_and_the_way_back_is_named(here: Any, store: str) -> None:
    for session in ("small", "ticket-42"):
        damage(store, session, 2)
    done = here("repair", "--yes", store, "--json")
    assert done.returncode == 0
    repaired = json.loads(done.stdout)["sessions"]
    assert [(one["session"], one["outcome"], one["backup"]) for one in repaired] == [
        ("small", "repaired", "small.damaged-1"),
        ("ticket-42", "repaired", "ticket-42.damaged-1"),
    ]
    assert b"Repaired 2 of 2 sessions." in done.stderr
    for one in repaired:
        undo = f"To undo it: lockstitch undo {addresses.public(store)} --session {one['session']}"
        assert undo.encode() in done.stderr
        assert here("undo", "--yes", store, "--session", one["session"]).returncode == 0
    assert here("check", store).returncode == 1


def test_a_branch_is_no_part_of_a_store(here: Any, store: str) -> None:
    done = here("repair", store, "--branch", "3", "-o", "other.jsonl")
    assert done.returncode == 2
    assert b"--branch is for the sessions of other programs" in done.stderr


@every
def test_a_damaged_session_is_repaired_and_taken_back(here: Any, store: str) -> None:
    damage(store, "ticket-42", 7)
    shown = here("repair", store)
    assert shown.returncode == 1
    assert b"ticket-42:7: error LS611 [*]" in shown.stderr
    assert b"--yes applies this plan" in shown.stderr
    done = here("repair", "--yes", store)
    assert done.returncode == 0
    assert b"1 lost" in done.stderr
    assert b"the damaged one is kept as ticket-42.damaged-1" in done.stderr
    checked = json.loads(here("check", store, "--json").stdout)["sessions"]
    assert {one["session"]: one["status"] for one in checked} == {
        "small": "ok",
        "ticket-42": "ok",
        "ticket-42.damaged-1": "notes",
    }
    assert here("check", store).returncode == 0
    assert here("rewind", store, "--session", "ticket-42", "--to", "13", "--yes").returncode == 0
    undone = here("undo", "--yes", store, "--session", "ticket-42")
    assert undone.returncode == 0
    assert b"kept as ticket-42.repaired-1" in undone.stderr
    assert here("check", store, "--session", "ticket-42").returncode == 1
    assert here("check", store, "--session", "ticket-42.repaired-1").returncode == 0
    assert here("undo", "--yes", store, "--session", "small").returncode == 2


def test_a_repair_as_json(here: Any, store: str) -> None:
    damage(store, "ticket-42", 7)
    [planned] = json.loads(here("repair", "--json", store).stdout)["sessions"]
    assert (planned["applied"], planned["status"]) == (False, "broken")
    [done] = json.loads(here("repair", "--json", "--yes", store).stdout)["sessions"]
    assert (done["applied"], done["backup"], done["remaining"]) == (
        True,
        "ticket-42.damaged-1",
        [],
    )


def test_a_session_that_somebody_writes_is_not_repaired(here: Any, store: str) -> None:
    damage(store, "ticket-42", 7)
    with held(store, "ticket-42"):
        done = here("repair", "--yes", store)
    assert done.returncode == 2
    assert b"ticket-42" in done.stderr
    assert here("check", store, "--session", "ticket-42").returncode == 1


def test_all_that_can_be_read_goes_into_a_new_store(here: Any, store: str, tmp_path: Path) -> None:
    damage(store, "ticket-42", 7)
    new = tmp_path / "rescued.db"
    assert here("repair", store, "-o", str(new)).returncode == 0
    assert here("check", str(new)).returncode == 0
    assert here("check", store).returncode == 1
    assert here("repair", store, "-o", str(new)).returncode == 2


def test_no_password_is_shown(here: Any) -> None:
    url = "postgresql://ada:secret@127.0.0.1:1/x?password=secret&connect_timeout=1"
    for words in (("check", url), ("check", url, "--json"), ("show", url)):
        done = here(*words)
        assert done.returncode == 2
        assert b"secret" not in done.stdout + done.stderr
        assert b"127.0.0.1" in done.stdout + done.stderr


@pytest.mark.parametrize("words", [["check"], ["search", "x"], ["repair", "--yes"], ["show"]])
def test_a_server_that_is_not_there_is_named_once(here: Any, words: list[str]) -> None:
    url = "postgresql://ada@127.0.0.1:1/x"
    done = here(*words, url)
    assert done.returncode == 2
    assert b"no connection" in done.stderr
    assert done.stderr.count(url.encode()) == 1


# nothing is changed, nobody is waited for


@in_files
@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_changes_not_one_byte(
    here: Any, store: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    before = state_of(tmp_path)
    assert here(words[0], store, *words[1:]).returncode == 0
    assert state_of(tmp_path) == before


_KILLED = """
import os, sys
from tests.cli.journals import TICKET, entry_of
from lockstitch.stores.opening import open_backend
backend = open_backend(sys.argv[1])
lease = backend.acquire("killed")
backend.append(lease, [entry_of(event, f"k{n}", n) for n, event in enumerate(TICKET)], 0)
os.kill(os.getpid(), 9)
"""


@in_files
def test_nor_after_a_kill(here: Any, store: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", _KILLED, store], cwd=root, check=False)
    assert killed.returncode == -9
    before = state_of(tmp_path)
    for words in READING:
        assert here(words[0], store, *words[1:]).returncode == 0
    after = state_of(tmp_path)
    # The index of the log is no data, and SQLite may write it while it reads.
    for state in (before, after):
        state.pop("agent.db-shm", None)
    assert after == before
    assert b"Read 3 sessions with 37 records." in here("check", store).stderr


@every
def test_reading_works_while_somebody_writes(here: Any, store: str) -> None:
    with held(store, "ticket-42"):
        for words in READING:
            assert here(words[0], store, *words[1:]).returncode == 0


# show


def test_show(here: Any, store: str) -> None:
    done = here("show", store, "--session", "ticket-42")
    shown = done.stdout.decode()
    assert done.returncode == 0
    assert shown.splitlines()[0] == "lockstitch ticket-42  2 turns, 17 records"
    order = [
        "── turn 1 ── record 1 ",
        "\u276f Fix the failing test",
        "── checkpoint 2  before these calls",
        "I look into it.",
        '╭─ bash(command="pytest")',
        "╰─ result (1 line, 8 B)",
        "     1 failed",
        '╭─ read(path="a.py")',
        "╰─ late result (1 line, 15 B)",
        "     def main(): ...",
        "╭─ pay(amount=3)",
        "╰─ waits for approval",
        '╭─ bash(command="git push")',
        "╰─ outcome unknown",
        "another result of bash, record 11",
        "     1 failed, again",
        "The test is fixed.",
        "── checkpoint 13  end of the turn",
        "── checkpoint 14  before the refactoring",
        "── turn 2 ── record 15 ",
        "\u276f Refactor it",
        "── checkpoint 16  before these calls",
        "╰─ not started",
        "[interrupted: user]",
    ]
    places_ = [shown.find(piece) for piece in order]
    assert -1 not in places_
    assert places_ == sorted(places_)


def test_show_a_part(here: Any, store: str) -> None:
    last = here("show", store, "--session", "ticket-42", "--tail", "1").stdout.decode()
    assert "1 earlier turn" in last
    assert "Refactor it" in last
    assert "Fix the failing test" not in last
    around = here("show", store, "--session", "ticket-42", "--around", "7").stdout.decode()
    assert "Fix the failing test" in around
    for wrong in (("--tail", "x"), ("--around", "99"), ("--around", "line")):
        assert here("show", store, "--session", "small", *wrong).returncode == 2


@every
def test_show_what_is_left_of_a_damaged_session(here: Any, store: str) -> None:
    damage(store, "ticket-42", 12)
    done = here("show", store, "--session", "ticket-42")
    shown = done.stdout.decode()
    assert done.returncode == 1
    assert "ticket-42:12: error LS611" in shown
    assert "Fix the failing test" in shown
    assert "The test is fixed." not in shown
    assert "[record 12 is damaged: it is left out here, and kept in the store]" in shown
    assert "Refactor it" in shown


def test_show_blocks_in_several_dialects(here: Any, store: str) -> None:
    blocks = [{"type": "text", "text": "what is this?"}]
    from lockstitch.journal.events import Said, payload_of

    write(store, "blocks", Said(payload=payload_of(json.dumps(blocks)), dialect="anthropic"))
    shown = here("show", store, "--session", "blocks").stdout.decode()
    assert "\u276f what is this?" in shown


def test_show_after_a_compaction_and_a_rewind(here: Any, store: str) -> None:
    from lockstitch.journal.events import Compacted, Rewound, text_payload

    write(store, "small", Compacted(through=3, payload=text_payload("They greeted.")))
    write(store, "small", said("One more"), replied("Yes?"), Rewound(to=4), said("Another"))
    shown = here("show", store, "--session", "small").stdout.decode()
    assert "[a summary replaces everything up to record 3]" in shown
    assert "[went back to record 4]" in shown
    assert "One more" not in shown
    assert "\u276f Another" in shown


def test_control_characters_stay_harmless(here: Any, store: str) -> None:
    write(
        store, "evil", said("red \x1b[31m"), replied("", ("t", "e\x1b[0m", {"a": "\x1b]0;x\x07"}))
    )
    for words in (("show",), ("checkpoints",)):
        done = here(*words, store, "--session", "evil")
        assert b"\x1b" not in done.stdout + done.stderr


def test_empty_sessions(here: Any, store: str) -> None:
    write(store, "nothing")
    assert here("check", store, "--session", "nothing").returncode == 0
    assert here("show", store, "--session", "nothing").returncode == 0
    assert here("export", store, "--session", "nothing").stdout == b"[]\n"
    assert b"No checkpoints yet." in here("checkpoints", store, "--session", "nothing").stderr


# export


@every
@pytest.mark.parametrize("dialect", ["anthropic", "openai-responses", "gemini", "bedrock"])
def test_export_is_a_valid_request(here: Any, store: str, dialect: str) -> None:
    done = here("export", store, "--session", "ticket-42", "--to", dialect)
    assert done.returncode == 0
    assert lockstitch.check(json.loads(done.stdout), dialect) == []
    assert b"1 failed" in done.stdout


@every
def test_export_of_the_events(here: Any, store: str) -> None:
    write(store, "heavy", *HEAVY)
    done = here("export", store, "--session", "ticket-42", "--raw")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 18))
    assert [line["event"]["kind"] for line in lines[:3]] == ["said", "replied", "started"]
    assert lines[0]["key"] == "k1"
    heavy = here("export", store, "--session", "heavy", "--raw").stdout.splitlines()
    assert json.loads(heavy[0])["payload"] == LARGE
    assert here("export", store, "--raw", "--to", "gemini").returncode == 2


def test_export_without_secrets(here: Any, store: str, tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "A1b2C3d4" * 11 + "AA"
    write(store, "secret", said(f"My key is {secret}"), replied("I saw it."))
    for words in ((), ("--raw",), ("-o", str(tmp_path / "out.json"))):
        done = here("export", store, "--session", "secret", "--redact", *words)
        data = (tmp_path / "out.json").read_bytes() if words[:1] == ("-o",) else done.stdout
        assert done.returncode == 0
        assert secret.encode() not in data
        assert b"My key is " in data
        assert b"Redacted 1 place." in done.stderr


def test_export_without_secrets_tells_two_of_them_apart(here: Any, store: str) -> None:
    first, second = ("ghp_" + mark * 9 for mark in ("a1B2", "c3D4"))
    last = said(f"{second}, not {first}")
    write(store, "two", said(f"{first} and then"), replied("Which?"), last)
    for words in ((), ("--raw",)):
        done = here("export", store, "--session", "two", "--redact", *words)
        assert b"[redacted:github-token:1] and then" in done.stdout
        assert b"[redacted:github-token:2], not [redacted:github-token:1]" in done.stdout


def test_export_without_personal_data(here: Any, store: str) -> None:
    write(store, "person", said("I am ada@corp.io in /home/ada"), replied("Hello."))
    kept = here("export", store, "--session", "person", "--redact")
    assert b"ada@corp.io in /home/ada" in kept.stdout
    for words in ((), ("--raw",)):
        done = here("export", store, "--session", "person", "--redact=all", *words)
        assert b"I am [redacted:mail:1] in /home/[redacted:user:1]" in done.stdout


def test_export_of_what_is_left(here: Any, store: str) -> None:
    damage(store, "ticket-42", 12)
    done = here("export", store, "--session", "ticket-42")
    assert done.returncode == 1
    assert b"LS611" in done.stderr
    messages = json.loads(done.stdout)
    assert len(messages) == 5
    assert "Refactor it" in json.dumps(messages)


# as Python


def test_the_same_from_python(store: str) -> None:
    reports = list(stored.check(store))
    assert [(one.session, one.status) for one in reports] == [("small", "ok"), ("ticket-42", "ok")]
    assert stored.count(store) == 20
    assert [one.seq for one in stored.checkpoints(store, "ticket-42")] == [2, 13, 14, 16]
    with pytest.raises(UsageError, match="several sessions"):
        stored.read(store)
    with pytest.raises(Unreadable):
        stored.read("/nowhere/at/all")


def test_progress_is_told(store: str) -> None:
    done: list[int] = []
    advance: Callable[[int], object] = done.append
    list(stored.check(store, advance=advance))
    assert sum(done) == stored.count(store)


# whatever a journal holds


def _odd_bodies() -> list[bytes]:
    """Bodies that no version writes today, or that a caller's own program wrote."""
    payloads = [
        *("null", "1", "[]", "{}", "[1]", '"text"', '"\\ud800"'),
        *('{"content":[null]}', '{"content":"x"}', '{"choices":[{}]}'),
        '{"role":"assistant","content":[{"type":"tool_use"}]}',
        '{"output":[{"type":"function_call"}]}',
    ]
    dialects = [*DIALECTS, "nowhere", "openai-chat:nobody", ""]
    calls = '"calls":[{"id":"a","name":"b"},{}]'
    made = [
        f'{{"kind":"{kind}","dialect":"{dialect}",{calls},"payload":{payload}}}'
        for kind in ("replied", "partial")
        for dialect in dialects
        for payload in payloads
    ]
    made += [
        f'{{"kind":"said","dialect":"{dialect}","payload":{payload}}}'
        for dialect in dialects
        for payload in payloads
    ]
    made += [f'{{"kind":"finished","reply":1,"payload":{payload}}}' for payload in payloads]
    made += ['{"kind":"future","x":1}', "[]", "1", '{"kind":"rewound","to":99}', "not json"]
    made += [
        '{"kind":"compacted","through":2,"payload":7}',
        '{"kind":"forked","source":"x","at":1}',
    ]
    return [one.encode() for one in made]


@pytest.mark.parametrize("step", [1, 7])
def test_no_journal_makes_a_command_fail_by_itself(here: Any, store: str, step: int) -> None:
    from lockstitch.journal.records import JournalEntry
    from lockstitch.stores.opening import open_backend

    bodies = _odd_bodies()[::step]
    with open_backend(store) as backend:
        lease = backend.acquire("odd")
        backend.append(lease, [JournalEntry(f"k{n}", n, body) for n, body in enumerate(bodies)], 0)
    for words in (("check",), ("show", "--full"), ("export",), ("export", "--raw"),
                  ("export", "--redact", "--raw"), ("checkpoints",)):  # fmt: skip
        done = here(*words, store, "--session", "odd")
        assert b"internal error" not in done.stderr, (words, done.stderr)
        assert done.returncode in (0, 1), (words, done.stderr)


def test_a_progress_bar_on_a_terminal(store: str) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "lockstitch", "check", store]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(command, stderr=slave, env=env) as checked:
        os.close(slave)
        seen = b""
        with suppress(OSError):
            while piece := os.read(master, 4096):
                seen += piece
    os.close(master)
    assert checked.returncode == 0
    assert b"Checking" in seen
    assert b"All clean." in seen
