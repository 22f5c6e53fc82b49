from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

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


def _console() -> list[str]:
    block = re.search(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block
    return block[1].splitlines()


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


def test_the_console_block_is_what_the_command_prints(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text(json.dumps(SESSION))
    lines = _console()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        shown = [line for line in lines[start + 1 : stop] if line]
        printed = _run(tmp_path, lines[start])
        assert printed
        if shown:
            assert printed == shown


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
