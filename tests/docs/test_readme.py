from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lockstitch
from lockstitch.dialects.profiles import PROFILES

README = Path(__file__).parents[2] / "README.md"
SESSION = [
    {"role": "user", "content": "Fix the failing test"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I run it."},
            {"type": "tool_use", "id": "toolu_01A", "name": "bash", "input": {"command": "pytest"}},
        ],
    },
]


def _line(place: int, parent: int | None, kind: str, content: object, gap: int = 1) -> str:
    """A line of a Claude Code session, the way the program writes it."""
    message: dict[str, object] = {"role": kind, "content": content}
    if kind == "assistant":
        message = {"id": f"msg_{place}", "model": "claude-sonnet-4-5", **message}
    record = {
        "parentUuid": None if parent is None else f"0000000{parent}-0000-4000-8000-000000000000",
        "isSidechain": False,
        "cwd": "/home/ada/project",
        "sessionId": "4ee0c484-e994-4f01-b1be-6cd86456e2af",
        "version": "2.1.197",
        "type": kind,
        "message": message,
        "uuid": f"0000000{place}-0000-4000-8000-000000000000",
        "timestamp": f"2026-11-01T10:00:{place * gap:02d}.000Z",
    }
    return json.dumps(record, separators=(",", ":")) + "\n"


def _session_file() -> str:
    """A call that was cut off, and two processes that went on from there."""
    call = {"type": "tool_use", "id": "toolu_01A", "name": "Bash", "input": {"command": "pytest"}}
    texts = [[{"type": "text", "text": text}] for text in ("One failed.", "All passed.")]
    return "".join(
        [
            _line(1, None, "user", "Fix the failing test"),
            _line(2, 1, "assistant", [{"type": "text", "text": "I run it."}]),
            _line(3, 2, "assistant", [call]).replace("msg_3", "msg_2"),
            _line(4, 3, "user", "Go on"),
            _line(5, 4, "assistant", texts[0]),
            _line(6, 3, "user", "Are you there?"),
            _line(7, 6, "assistant", texts[1]),
        ]
    )


def _blocks() -> list[list[str]]:
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    return [block.splitlines() for block in blocks]


def _run(folder: Path, line: str) -> list[str]:
    words = line.removeprefix("$ lockstitch ").split()
    done = subprocess.run(
        [sys.executable, "-m", "lockstitch", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("lines", _blocks(), ids=["session", "request"])
def test_the_console_block_is_what_the_command_prints(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "request.json").write_text(json.dumps(SESSION))
    (tmp_path / "session.jsonl").write_text(_session_file())
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        shown = [line for line in lines[start + 1 : stop] if line]
        printed = _run(tmp_path, lines[start])
        assert printed
        if shown:
            # the name of a backup has the time in it
            fixed = [line for line in printed if "Backup: " not in line and "undo" not in line]
            assert fixed == shown


def test_every_profile_is_listed_and_nothing_else() -> None:
    text = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)
    listed = {name for name, _ in rows}
    listed |= {
        f"{name}:{profile}" for name, cell in rows for profile in re.findall(r"`([\w-]+)`", cell)
    }
    assert listed == set(PROFILES)


def test_the_errors_of_the_pain_are_those_of_the_rules() -> None:
    text = README.read_text(encoding="utf-8")
    block = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert block
    known = [
        re.split(r"<[^>]*>", error)[0] for r in lockstitch.RULES.values() for _, error in r.errors
    ]
    for line in block[1].splitlines():
        plain = re.sub(r"messages\.\d+(\.content\.\d+)?", "messages.", line)
        heads = [head.rstrip(" .:") for head in known]
        assert any(head and (line.startswith(head) or plain.startswith(head)) for head in heads), (
            line
        )
