from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import lockstitch as library

if TYPE_CHECKING:
    from pathlib import Path

REPORT = {
    "version",
    "target",
    "dialect",
    "changed",
    "findings",
    "edits",
    "changes",
    "quarantine",
    "remaining",
}

CLEAN = b"""\xef\xbb\xbf  {"messages": [ {"role":"user","content":"caf\\u00e9 \\ud83d\\ude00"},
\t{ "content" : [{"type":"text","text":"1.0"}], "role":"assistant", "n": 1.0e0 } ]
 , "model":"claude-sonnet-4-5", "model" : "claude-sonnet-4-5" } \r\n\n"""


def test_nothing_wrong_means_not_one_byte_changed(lockstitch: Any) -> None:
    done = lockstitch("heal", "--dialect", "anthropic", stdin=CLEAN)
    assert (done.returncode, done.stdout) == (0, CLEAN)
    assert done.stderr == b"All clean.\n"


@pytest.mark.parametrize("style", [{}, {"indent": 2}, {"separators": (",", ":")}])
@pytest.mark.parametrize("wrapped", [False, True])
def test_untouched_messages_keep_their_bytes(
    lockstitch: Any, broken: Any, style: dict[str, Any], wrapped: bool
) -> None:
    broken[0]["content"] = "caf\xe9"
    value = {"messages": broken, "model": "claude-sonnet-4-5"} if wrapped else broken
    value = {**value, "tools": [{"name": "bash", "input_schema": {}}]} if wrapped else value
    data = json.dumps(value, **style).encode()
    done = lockstitch("heal", "-", "--dialect", "anthropic", stdin=data)
    assert done.returncode == 0
    healed = json.loads(done.stdout)
    assert healed == library.heal(value, "anthropic")
    assert done.stdout.startswith(data[: data.index(b"Are you there")].rstrip(b'{ \n"rolesuc,t:'))
    assert json.dumps(healed, **style).encode() == done.stdout


def test_jsonl_stays_jsonl(lockstitch: Any, broken: Any) -> None:
    lines = [json.dumps(message).encode() for message in broken]
    done = lockstitch("heal", stdin=b"\n".join(lines) + b"\n")
    assert done.returncode == 0
    healed = done.stdout.splitlines()
    assert healed[:2] == lines[:2]
    assert [json.loads(line) for line in healed] == library.heal(broken, "anthropic")


def test_what_was_done_is_on_stderr(lockstitch: Any, saved: Any, broken: Any) -> None:
    path = saved(broken)
    done = lockstitch("heal", path.name, cwd=path.parent)
    *changes, last = done.stderr.decode().splitlines()
    assert changes
    assert all(change.startswith("conversation.json:messages.") for change in changes)
    assert last == "Healed 1 error."


def test_output_file(lockstitch: Any, saved: Any, broken: Any, tmp_path: Path) -> None:
    path, healed = saved(broken), tmp_path / "healed.json"
    done = lockstitch("heal", path, "-o", healed)
    assert (done.returncode, done.stdout) == (0, b"")
    assert json.loads(healed.read_bytes()) == library.heal(broken, "anthropic")
    assert healed.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_bytes()) == broken
    assert sorted(each.name for each in tmp_path.iterdir()) == ["conversation.json", "healed.json"]


def test_output_onto_the_input_is_refused(lockstitch: Any, saved: Any, broken: Any) -> None:
    path = saved(broken)
    before = path.read_bytes()
    for words in ((), ("--force",)):
        done = lockstitch("heal", path, "-o", path, *words)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"is the file that is being read" in done.stderr
    # As a shell gives it: the file is on stdin.
    with path.open("rb") as file:
        command = [sys.executable, "-m", "lockstitch", "heal", "-", "-o", str(path), "--force"]
        ran = subprocess.run(command, stdin=file, capture_output=True, check=False)
    assert (ran.returncode, b"is the file that is being read" in ran.stderr) == (2, True)
    assert path.read_bytes() == before


def test_output_onto_another_file_needs_force(
    lockstitch: Any, saved: Any, broken: Any, tmp_path: Path
) -> None:
    path, other = saved(broken), tmp_path / "other.json"
    other.write_bytes(b"mine")
    other.chmod(0o640)
    done = lockstitch("heal", path, "-o", other)
    assert (done.returncode, other.read_bytes()) == (2, b"mine")
    assert b"exists; nothing was written" in done.stderr
    assert lockstitch("heal", path, "-o", other, "--force").returncode == 0
    assert json.loads(other.read_bytes()) == library.heal(broken, "anthropic")
    assert other.stat().st_mode & 0o777 == 0o640


def test_output_that_cannot_be_written(lockstitch: Any, saved: Any, broken: Any) -> None:
    path = saved(broken)
    done = lockstitch("heal", path, "-o", path / "inside-a-file")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1
    done = lockstitch("heal", path, "-o", path.parent / "missing" / "healed.json")
    assert done.returncode == 2
    assert done.stderr.endswith(b"missing/healed.json: No such file or directory\n")


def test_diff(lockstitch: Any, saved: Any, broken: Any, clean: Any) -> None:
    path = saved(broken)
    done = lockstitch("heal", path.name, "--diff", cwd=path.parent)
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == ["--- conversation.json", "+++ conversation.json (healed)"]
    assert lines[2].startswith("@@ ")
    assert any(line.startswith("+") and "toolu_1" in line for line in lines[3:])
    assert done.returncode == 0
    assert json.loads(path.read_bytes()) == broken
    assert lockstitch("heal", saved(clean), "--diff").stdout == b""


def test_json(lockstitch: Any, saved: Any, broken: Any) -> None:
    path = saved(broken)
    done = lockstitch("heal", path, "--json")
    report = json.loads(done.stdout)
    assert report.keys() == REPORT
    assert report["version"] == 1
    assert report["target"] == str(path)
    assert report["dialect"] == "anthropic"
    assert report["changed"] is True
    assert [finding["code"] for finding in report["findings"]]
    assert report["edits"][0].keys() >= {"op", "place", "value"}
    assert report["changes"][0].keys() == {"code", "action", "place", "note"}
    assert (report["quarantine"], report["remaining"]) == ([], [])


def test_json_when_all_is_well(lockstitch: Any, saved: Any, clean: Any) -> None:
    report = json.loads(lockstitch("heal", saved(clean), "--json").stdout)
    assert report["changed"] is False
    assert report["findings"] == report["edits"] == report["changes"] == []


@pytest.mark.parametrize("output", [False, True])
def test_what_cannot_be_healed_comes_out_as_it_was(
    lockstitch: Any, saved: Any, tmp_path: Path, output: bool
) -> None:
    """No repair makes 27 million bytes of a user's own words fit into Bedrock's 25 MiB."""
    path = saved([{"role": "user", "content": [{"text": "x" * 27_000_000}]}])
    words = ["-o", tmp_path / "out.json"] if output else []
    done = lockstitch("heal", path, "--dialect", "bedrock", *words)
    assert done.returncode == 1
    result = (tmp_path / "out.json").read_bytes() if output else done.stdout
    assert result == path.read_bytes()
    assert b": error LS504 " in done.stderr
    assert done.stderr.endswith(b"Not healed; the original is unchanged. Left: 1 error.\n")


def test_beside_a_lone_surrogate_every_byte_is_kept(lockstitch: Any) -> None:
    data = (
        rb'[{"role":"user", "content":"half \ud83d"}, {"role": "assistant","content":"caf\u00e9"}]'
    )
    done = lockstitch("heal", "--dialect", "openai-chat", stdin=data)
    assert done.returncode == 0
    kept = data.index(b", {")
    assert json.loads(done.stdout)[0] == {"role": "user", "content": "half \ufffd"}
    assert done.stdout.endswith(data[kept:])
