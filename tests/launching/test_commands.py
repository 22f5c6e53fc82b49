"""Command lines: which program, and which session it is about to resume."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch import launch
from lockstitch.launch import (
    NAMED,
    NEWEST,
    NOTHING,
    PICKED,
    Resume,
    find_known_command,
    find_resumed,
)

PROGRAMS = {
    "claude": "claude-code",
    "/opt/bin/claude --continue": "claude-code",
    "npx @anthropic-ai/claude-code@2.1.325 -c": "claude-code",
    "npx -y @anthropic-ai/claude-code": "claude-code",
    "npm exec -y @openai/codex -- resume": "codex",
    "node /opt/x/node_modules/@anthropic-ai/claude-code/cli.js -c": "claude-code",
    "env A=b CODEX_HOME=/x codex resume": "codex",
    "codex exec resume --last hello": "codex",
    "bunx opencode-ai": "opencode",
    "opencode run -c hello": "opencode",
    "npx --package=x @google/gemini-cli --resume": "gemini-cli",
    "pnpm dlx @google/gemini-cli": "gemini-cli",
    "gemini.cmd": "gemini-cli",
    "pi -c": "pi",
    "node --no-warnings dist/pi-coding-agent/dist/cli.js": "pi",
    "goose session -r": "goose",
    "python agent.py": None,
    "env": None,
    "npx": None,
    "claudette --continue": None,
}
RESUMES = {
    "claude": Resume(),
    "claude -c": Resume(NEWEST),
    "claude -pc hello": Resume(NEWEST),
    "claude --continue -p hello": Resume(NEWEST),
    "claude -r": Resume(PICKED),
    "claude --resume --model x": Resume(PICKED),
    "claude -r 0f3a": Resume(NAMED, "0f3a"),
    "claude --resume=0f3a": Resume(NAMED, "0f3a"),
    "claude -p hello -- --continue": Resume(),
    "codex": Resume(),
    "codex resume": Resume(PICKED),
    "codex resume --last": Resume(NEWEST),
    "codex resume --last --all": Resume(NEWEST, everywhere=True),
    "codex -m gpt resume 0f3a": Resume(NAMED, "0f3a"),
    "codex exec -C /there resume --last hello": Resume(NEWEST, folder="/there"),
    "codex exec resume 0f3a hello": Resume(NAMED, "0f3a"),
    "codex exec hello": Resume(),
    "gemini": Resume(),
    "gemini --resume": Resume(NEWEST),
    "gemini -r latest -p hello": Resume(NEWEST),
    "gemini -r 3": Resume(PICKED),
    "gemini --resume 0f3a-b": Resume(NAMED, "0f3a-b"),
    "opencode run --continue hello": Resume(NEWEST),
    "opencode -s ses_1": Resume(NAMED, "ses_1"),
    "opencode": Resume(),
    "pi --continue": Resume(NEWEST),
    "pi --session x.jsonl": Resume(NAMED, "x.jsonl"),
    "pi -r": Resume(PICKED),
    "pi --model -c": Resume(),
    "goose session -r": Resume(NEWEST, everywhere=True),
    "goose session --resume --name work": Resume(NAMED, "work"),
    "goose session": Resume(),
    "goose configure": Resume(),
}


@pytest.mark.parametrize("line", PROGRAMS)
def test_a_program_is_known_by_its_command(line: str) -> None:
    found = find_known_command(shlex.split(line))
    assert (found.client.format if found else None) == PROGRAMS[line]


@pytest.mark.parametrize("line", RESUMES)
def test_what_a_command_line_resumes_is_told_from_its_words(line: str) -> None:
    words = shlex.split(line)
    found = find_known_command(words)
    assert found is not None
    assert find_resumed(found.client, words[found.at :]) == RESUMES[line]


WORDS = st.sampled_from(
    [*{word for line in (*PROGRAMS, *RESUMES) for word in shlex.split(line)}, "--", "", "-", "="]
)


@given(st.lists(WORDS | st.text(max_size=4), max_size=8))
def test_no_command_line_is_too_odd(words: list[str]) -> None:
    found = find_known_command(words)
    for client in launch.CLIENTS:
        kind = find_resumed(client, words).kind
        assert kind in (NOTHING, NEWEST, NAMED, PICKED)
    assert found is None or 0 < found.at <= len(words)
