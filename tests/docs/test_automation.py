"""The page on scripts and CI: every command prints what the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.docs.pages import DOCS, blocks

BROKEN = [
    {"role": "user", "content": "List the files."},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}],
    },
    {"role": "user", "content": "Are you there?"},
]
PAGE = DOCS / "automation.md"


def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text(json.dumps(BROKEN))
    program = tmp_path / "lockstitch"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m lockstitch "$@"\n')
    program.chmod(0o755)
    consoles = [code for _, language, code in blocks(PAGE) if language == "console"]
    assert len(consoles) == 3
    for code in consoles:
        lines = code.splitlines()
        commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        script = "\n".join(f"echo {json.dumps('$ ' + line)}; {line}" for line in commands)
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.stdout.replace("\\$", "$") == code


def test_the_inputs_and_the_hook_of_the_page_are_there() -> None:
    hook, action = [yaml.safe_load(code) for _, kind, code in blocks(PAGE) if kind == "yaml"]
    known = yaml.safe_load((DOCS.parent / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["repos"][0]["hooks"][0]["id"] in [one["id"] for one in known]
    inputs = yaml.safe_load((DOCS.parent / "action.yml").read_text("utf-8"))["inputs"]
    assert set(action["steps"][1]["with"]) <= set(inputs)
    text = PAGE.read_text("utf-8")
    assert all(f"`{name}`" in text for name in inputs)
