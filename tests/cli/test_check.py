from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstitch.rules import RULES

FINDING = {"code", "name", "severity", "place", "message", "error", "fixable", "lossy", "help"}
SESSION = {
    "target",
    "format",
    "dialect",
    "session",
    "status",
    "messages",
    "reachable",
    "unreachable",
    "findings",
}


def test_text_reads_like_a_linter(lockstitch: Any, saved: Any, broken: Any) -> None:
    path = saved(broken)
    done = lockstitch("check", path.name, cwd=path.parent)
    first, *more = done.stdout.decode().splitlines()
    assert re.fullmatch(
        r"conversation\.json:messages\.1\.content\.0: error LS\d{3} \[\*\] .+", first
    )
    assert more[0].startswith("  = Anthropic: ")
    assert "`tool_use` ids were found without `tool_result` blocks" in more[0]
    assert more[1].startswith("  = help: ")
    said = b"Found 1 error (1 fixable).\nTo repair it: lockstitch heal conversation.json\n"
    assert done.stderr == said


def test_the_command_that_heals_has_the_options_of_the_check(
    lockstitch: Any, saved: Any, broken: Any
) -> None:
    path = saved(broken)
    words = ["--dialect", "anthropic:glm", "--model", "my model"]
    done = lockstitch("check", path.name, *words, cwd=path.parent)
    last = done.stderr.decode().splitlines()[-1]
    line = "lockstitch heal conversation.json --dialect anthropic:glm --model 'my model'"
    assert last == f"To repair it: {line}"
    assert lockstitch(*shlex.split(line)[1:], cwd=path.parent).returncode == 0


def test_text_when_all_is_well(lockstitch: Any, saved: Any, clean: Any) -> None:
    done = lockstitch("check", saved(clean))
    assert (done.stdout, done.stderr) == (b"", b"All clean.\n")


def test_stdin(lockstitch: Any, broken: Any) -> None:
    data = json.dumps(broken).encode()
    named = lockstitch("check", "-", stdin=data)
    unnamed = lockstitch("check", stdin=data)
    assert named.stdout.startswith(b"stdin:messages.1")
    assert named.stdout == unnamed.stdout


def test_jsonl(lockstitch: Any, saved: Any, broken: Any) -> None:
    lines = "\n".join(map(json.dumps, broken)).encode()
    assert b"a.jsonl:2.content.0: error LS" in lockstitch("check", saved(lines, "a.jsonl")).stdout


def test_every_file_is_printed_and_the_unreadable_one_named(
    lockstitch: Any, saved: Any, broken: Any, tmp_path: Path
) -> None:
    files = [saved(broken, "a.json"), tmp_path / "missing.json", saved(broken, "c.json")]
    done = lockstitch("check", *files)
    assert done.returncode == 2
    assert b"a.json:messages" in done.stdout
    assert b"c.json:messages" in done.stdout
    assert b"missing.json: no such file\n" in done.stderr
    assert b"Found 2 errors (2 fixable).\n" in done.stderr


@pytest.mark.parametrize("flag", [["--json"], ["--output-format", "json"]])
def test_json(
    lockstitch: Any, saved: Any, clean: Any, broken: Any, tmp_path: Path, flag: list[str]
) -> None:
    files = [saved(clean, "a.json"), saved(broken, "b.json"), tmp_path / "c.json"]
    done = lockstitch("check", *files, *flag)
    report = json.loads(done.stdout)
    assert done.returncode == 2
    assert report.keys() == {"version", "sessions"}
    assert report["version"] == 1
    good, bad, missing = report["sessions"]
    assert [one["status"] for one in report["sessions"]] == ["ok", "broken", "unreadable"]
    assert good.keys() == bad.keys() == SESSION
    assert missing.keys() == SESSION | {"error"}
    assert (bad["target"], bad["format"], bad["session"]) == (str(files[1]), "list", None)
    assert (bad["messages"], bad["reachable"], bad["unreachable"]) == (3, 3, 0)
    assert good["findings"] == []
    assert [finding.keys() for finding in bad["findings"]] == [FINDING]
    assert missing["error"] == "no such file"


def test_sarif(lockstitch: Any, saved: Any, broken: Any, clean: Any, tmp_path: Path) -> None:
    broken_file = saved(broken, "what a name:ü.json")
    done = lockstitch(
        "check", "--output-format", "sarif", broken_file, saved(clean), tmp_path / "no.json"
    )
    log = json.loads(done.stdout)
    assert done.returncode == 2
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    [run] = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "lockstitch"
    assert [rule["id"] for rule in driver["rules"]] == sorted(RULES)
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["fullDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] in {"error", "warning", "note"}
    [result] = run["results"]
    assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert result["level"] == "error"
    assert result["message"]["text"]
    [location] = result["locations"]
    uri = location["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.endswith("/what%20a%20name%3A%C3%BC.json")
    assert location["logicalLocations"] == [{"fullyQualifiedName": "messages.1.content.0"}]
    [invocation] = run["invocations"]
    assert invocation["executionSuccessful"] is False
    [failure] = invocation["toolExecutionNotifications"]
    assert failure["message"]["text"] == "no such file"


def test_terminal_escapes_in_names_and_ids_are_harmless(
    lockstitch: Any, saved: Any, broken: Any
) -> None:
    broken[1]["content"][0] = {**broken[1]["content"][0], "id": "a\x1b[2J\u202eb\x9bc"}
    path = saved(broken, "x\x1b]0;owned\x07\n.json")
    done = lockstitch("check", path, path.with_name("\x1b[31mmissing"))
    for output in (done.stdout.decode(), done.stderr.decode()):
        assert not set(output) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert "x\\x1b]0;owned\\x07\\n.json:messages" in done.stdout.decode()
    assert "\\x1b[31mmissing: no such file" in done.stderr.decode()


def test_a_file_name_that_is_not_utf_8(lockstitch: Any, tmp_path: Path, broken: Any) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.json"
    path = os.fsdecode(name)
    Path(path).write_bytes(json.dumps(broken).encode())
    assert b"/caf\\udce9.json:messages.1" in lockstitch("check", path).stdout
    assert json.loads(lockstitch("check", path, "--json").stdout)["sessions"][0]["target"] == path
    assert b"/caf%E9.json" in lockstitch("check", path, "--output-format", "sarif").stdout


def on_a_terminal(*words: str, **environment: str) -> str:
    """What the command writes when stdout and stderr are a real terminal."""
    leader, follower = pty.openpty()
    inherited = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    subprocess.run(
        [sys.executable, "-m", "lockstitch", *words],
        stdout=follower,
        stderr=follower,
        env={**inherited, "TERM": "xterm", **environment},
        check=False,
        timeout=600,
    )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 65536):
            shown += chunk
    except OSError:
        pass
    os.close(leader)
    return shown.decode()


def test_colours_only_on_a_terminal_that_wants_them(
    lockstitch: Any, saved: Any, broken: Any
) -> None:
    path = str(saved(broken))
    assert "\x1b[1;31merror LS" in on_a_terminal("check", path)
    assert "\x1b" not in on_a_terminal("check", path, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("check", path, TERM="dumb")
    assert b"\x1b" not in lockstitch("check", path).stdout


def test_content_never_appears(lockstitch: Any, saved: Any, broken: Any) -> None:
    text = json.dumps(broken).replace("Are you there?", "SECRET").replace('"ls"', '"SECRET"')
    for form in ("text", "json", "sarif"):
        done = lockstitch("check", saved(text.encode()), "--output-format", form)
        assert b"SECRET" not in done.stdout + done.stderr
    done = lockstitch("check", saved(text[:-20].encode(), "torn.json"))
    assert b"SECRET" not in done.stdout + done.stderr


def test_a_check_imports_no_third_party(saved: Any, broken: Any) -> None:
    program = (
        "import sys; from lockstitch import cli; cli.run(['check', sys.argv[1]]);"
        "sys.exit(bool({'typer', 'click', 'rich', 'pydantic', 'asyncio'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(saved(broken))],
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0
