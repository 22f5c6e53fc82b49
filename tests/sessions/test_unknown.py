"""Files of programs that are not known: declined by every command, and left as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lockstitch import sessions
from lockstitch.cli import check
from lockstitch.cli.scan import scan_file
from lockstitch.errors import UnknownFormat
from lockstitch.formats.interface import NAMES, VARIABLES, format_named
from lockstitch.sources.targets import sources_in
from tests.formats import claude_cases, codex_files, databases, gemini_files, pi_files, plain_files
from tests.formats.unknown_files import FILES, HERMES, QWEN
from tests.kinds_of_break.conversations import BROKEN, HEALTHY
from tests.kinds_of_break.render import FORMS
from tests.sessions import claude, command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("unknown")
    for name, data in FILES.items():
        (made / name).write_bytes(data)
    return made


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", FILES)
def test_the_format_is_not_guessed(folder: Path, name: str) -> None:
    with pytest.raises(UnknownFormat):
        sources_in(str(folder / name))


def test_scan_names_them_and_counts_none(folder: Path) -> None:
    done = command.run("scan", folder, "--json", "--all")
    report = json.loads(done.stdout)
    assert report["sessions"] == []
    assert {Path(one["target"]).name for one in report["unknown"]} == set(FILES)
    assert done.returncode == 0
    done = command.run("scan", folder, "--all")
    assert all(name in done.stderr for name in FILES)
    assert done.stderr.count("not a program that Lockstitch knows") == len(FILES)
    assert command.run("scan", folder / "qwen.jsonl").returncode == 2


@pytest.mark.parametrize("words", [["check"], ["check", "--json"], ["repair", "--yes"]])
def test_check_and_repair_decline_them(folder: Path, words: list[str]) -> None:
    done = command.run(*words, *(folder / name for name in FILES))
    assert done.returncode == 2
    assert _contents(folder) == FILES
    if "--json" in words:
        reports = json.loads(done.stdout)["sessions"]
        assert {(one["status"], one["format"]) for one in reports} == {("unreadable", None)}
    else:
        assert all(name in done.stderr for name in FILES)


def test_what_it_looks_like_is_said_with_what_to_do(folder: Path) -> None:
    for name, like in {
        "qwen.jsonl": "Claude Code",
        "droid.jsonl": "pi",
        "hermes.json": "openai-chat",
        "roo.json": "anthropic",
    }.items():
        for words in (["check"], ["repair", "--yes"]):
            said = command.run(*words, folder / name).stderr
            assert like in said
            assert "nothing was changed" in said
            assert "--format" in said


def test_a_folder_of_them_is_repaired_without_a_change(folder: Path) -> None:
    assert command.run("repair", "--yes", folder).returncode == 2
    assert _contents(folder) == FILES


def test_it_can_be_forced(tmp_path: Path) -> None:
    path = tmp_path / "hermes.json"
    path.write_text(json.dumps(HERMES))
    assert command.run("check", "--dialect", "openai-chat", path).returncode == 1
    assert command.run("check", "--format", "list", path).returncode == 1


# What is in a program's own place is that program's session.


def _home(folder: Path, data: bytes) -> Path:
    path = folder / ".claude" / "projects" / "-home-ada" / f"{claude.SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


DESTROYED = {
    "random": b"".join(sha256(bytes([n])).digest() for n in range(200)),
    "only NULs": bytes(4096),
    "empty": b"",
    "other JSON": b'{"a": 1}\n{"b": 2}\n',
    "another program's": QWEN,
    "one long line": b"x" * 300_000,
}


@pytest.mark.parametrize("what", DESTROYED)
def test_a_destroyed_session_is_unreadable(tmp_path: Path, what: str) -> None:
    path = _home(tmp_path, DESTROYED[what])
    environ = {**os.environ, "HOME": str(tmp_path)}
    done = command.run("scan", "--json", env=environ)
    [report] = json.loads(done.stdout)["sessions"]
    assert (report["target"], report["status"]) == (str(path), "unreadable")
    assert done.returncode == 2
    done = command.run("check", "--json", path)
    [report] = json.loads(done.stdout)["sessions"]
    assert (report["status"], done.returncode) == ("unreadable", 2)
    assert command.run("repair", "--yes", path).returncode == 2
    assert path.read_bytes() == DESTROYED[what]


DAMAGED = {
    "torn": lambda data: data[: len(data) // 3],
    "a mark": lambda data: b"\xef\xbb\xbf" + data,
    "zeros first": lambda data: bytes(300_000) + b"\n" + data,
    "welded": lambda data: data.replace(b"\n", b"", 2),
    "head lost": lambda data: data.split(b"\n", 1)[1],
    "head torn": lambda data: data[150:],
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_session_in_its_place_is_still_claimed(tmp_path: Path, what: str) -> None:
    data = DAMAGED[what](claude.healthy().encode())
    path = _home(tmp_path, data)
    [source] = sources_in(str(path))
    assert source.format == "claude-code"
    assert sessions.check(source).error is None


def test_every_variable_that_moves_a_place_is_known() -> None:
    moved = {format_named(name).variable for name in NAMES} - {""}
    assert moved == set(VARIABLES)


@pytest.mark.parametrize("words", [["check"], ["repair", "--yes"]])
def test_a_folder_with_a_file_that_cannot_be_read(tmp_path: Path, words: list[str]) -> None:
    lost = _home(tmp_path, DESTROYED["random"])
    broken = lost.with_name("5ee0c484.jsonl")
    broken.write_text(claude.broken(), "utf-8")
    done = command.run(*words, tmp_path / ".claude")
    assert done.returncode == 2
    assert lost.name in done.stderr
    assert lost.read_bytes() == DESTROYED["random"]
    if "repair" in words:
        assert command.run("check", broken).returncode == 0


# One decision for scan and check.

STORED = [
    case
    for module in (codex_files, gemini_files, pi_files, plain_files, databases)
    for case in module.CASES
]


def _shapes(folder: Path) -> Iterator[Path]:
    for number, case in enumerate(STORED):
        path = folder / str(number) / case.path
        path.parent.mkdir(parents=True)
        case.write(path)
        yield path
    for number, one in enumerate(claude_cases.CASES):
        path = folder / f"claude{number}.jsonl"
        path.write_bytes(one.data)
        yield path
    for name, data in {**FILES, **_more()}.items():
        path = folder / name
        path.write_bytes(data)
        yield path


def _more() -> dict[str, bytes]:
    messages: list[Any] = [
        {"role": "user", "content": "List."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "x", "input": {}}],
        },
    ]
    return {
        "history.json": json.dumps({"history": messages}).encode(),
        "traj.json": json.dumps({"history": messages[:1], "trajectory": []}).encode(),
        "items.json": json.dumps({"items": messages}).encode(),
        "conversation.json": json.dumps({"conversation": messages}).encode(),
        "body.json": json.dumps({"model": "claude-x", "messages": messages}).encode(),
        "bare.json": json.dumps(messages).encode(),
        "words.json": json.dumps(messages[:1]).encode(),
        "words.jsonl": json.dumps(messages[0]).encode() + b"\n",
        "requests.jsonl": (json.dumps({"messages": messages}).encode() + b"\n") * 3,
        "strings.jsonl": b'"a"\n"b"\n',
        "empty.json": b"",
        "blank.jsonl": b"\n\n",
        "zeros.jsonl": bytes(100),
        "torn.json": json.dumps(messages, indent=1).encode()[:80],
        "number.json": b"7\n",
    }


def test_scan_and_check_say_the_same_of_every_file(tmp_path: Path) -> None:
    counted = 0
    for path in _shapes(tmp_path):
        scanned = scan_file(str(path))
        checked = [*check.check_target(str(path))]
        assert [_told(one) for one in scanned] == [_told(one) for one in checked], path
        counted += 1
    assert counted > 60


@pytest.mark.parametrize("form", [form for form in FORMS if form != "langchain-objects"])
def test_scan_and_check_say_the_same_of_every_list(tmp_path: Path, form: str) -> None:
    path = tmp_path / "list.json"
    for conversation in (*BROKEN, HEALTHY):
        messages = FORMS[form][1](conversation.turns)
        for part in (messages, messages[1:]):
            path.write_text(json.dumps(part))
            [scanned] = scan_file(str(path))
            [checked] = check.check_target(str(path))
            assert scanned.error is None
            codes = [(finding.code, finding.place) for finding in scanned.findings]
            assert codes == [(finding.code, finding.place) for finding in checked.findings]


def _told(report: sessions.Report) -> tuple[Any, ...]:
    codes = [(finding.code, finding.place) for finding in report.findings]
    return report.format, report.status, report.session, report.messages, codes


def test_the_known_shapes_among_them_are_read(tmp_path: Path) -> None:
    for name in ("history.json", "traj.json", "body.json", "bare.json", "requests.jsonl"):
        path = tmp_path / name
        path.write_bytes(_more()[name])
        [report] = scan_file(str(path))
        assert report.error is None
