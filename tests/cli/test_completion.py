"""Completion in the real shells, and the man page as groff reads it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import pytest

from lockstitch.cli import COMMANDS, command
from tests.tools import needed

PROJECT = Path(__file__).parents[2]
ID = "4ee0c484-0000-4000-8000-00000000000a"


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with one session, another of a hostile name, and the command on its path."""
    folder = tmp_path / ".claude" / "projects" / "-home-ada"
    folder.mkdir(parents=True)
    (folder / f"{ID}.jsonl").write_text("{}\n")
    (folder / "$(touch hostile)`touch hostile`.jsonl").write_text("{}\n")
    (tmp_path / "with space.json").write_text("[]")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "lockstitch").write_text(f'#!/bin/sh\nexec {sys.executable} -m lockstitch "$@"\n')
    (tools / "lockstitch").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    return {"HOME": str(tmp_path), "PATH": path, "TERM": "dumb", "LANG": "C.UTF-8"}


def _run(*words: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        words, env=env, cwd=env["HOME"], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stderr == ""
    return done.stdout


def _bash(env: dict[str, str], *lines: list[str]) -> list[list[str]]:
    """What bash offers at the end of each line, given as bash splits it."""
    script = ['eval "$(lockstitch completion bash)"']
    for words in lines:
        quoted = " ".join(f"'{word}'" for word in words)
        script.append(f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _lockstitch")
        script.append("printf '%s\\n' \"${COMPREPLY[@]}\"; echo ---")
    shown = _run("bash", "--norc", "-c", "\n".join(script), env=env)
    return [part.strip("\n").split("\n") for part in shown.split("---\n")[:-1]]


def test_bash(home: dict[str, str]) -> None:
    names, flags, values, behind, dialects, ids, spaced, hostile, shared = _bash(
        home,
        ["lockstitch", "che"],
        ["lockstitch", "repair", "--st"],
        ["lockstitch", "repair", "--strategy", ""],
        ["lockstitch", "repair", "--strategy", "=", "ro"],
        ["lockstitch", "-q", "--color", "never", "heal", "-d", "open"],
        ["lockstitch", "show", ID[:4]],
        ["lockstitch", "check", "with"],
        ["lockstitch", "check", "$"],
        ["lockstitch", "--color", "al"],
    )
    assert names == ["check", "checkpoints"]
    assert flags == ["--strategy"]
    assert values == ["close", "rollback"]
    assert behind == ["rollback"]
    assert dialects == ["openai-chat", "openai-responses"]
    assert ids == [ID]
    assert spaced == ["with space.json"]
    assert hostile == [""]
    assert shared == ["always"]
    assert not (Path(home["HOME"]) / "hostile").exists()


def test_fish(home: dict[str, str]) -> None:
    fish = needed("fish")
    lines = {
        "lockstitch chec": ["check", "checkpoints"],
        "lockstitch repair --st": ["--strategy"],
        "lockstitch repair --strategy ": ["close", "rollback"],
        "lockstitch heal -d open": ["openai-chat", "openai-responses"],
        f"lockstitch show {ID[:4]}": [ID],
        "lockstitch check with": ["with space.json"],
        "lockstitch explain LS10": [f"LS10{n}" for n in range(1, 8)],
    }
    asked = "; ".join(f"complete -C '{line}'; echo ---" for line in lines)
    shown = _run(fish, "-N", "-c", f"lockstitch completion fish | source; {asked}", env=home)
    for part, expected in zip(shown.split("---\n"), lines.values(), strict=False):
        offered = [line.partition("\t")[0] for line in part.splitlines()]
        assert set(expected) <= set(offered)
        assert len(offered) <= len(expected) + 3
    assert not (Path(home["HOME"]) / "hostile").exists()


class Zsh:
    """An interactive zsh without anybody's settings."""

    def __init__(self, program: str, env: dict[str, str]) -> None:
        self.leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            [program, "-f", "-i"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**env, "TERM": "xterm", "COLUMNS": "200", "PS1": "> "},
            cwd=env["HOME"],
            start_new_session=True,
        )
        os.close(follower)

    def type(self, keys: str, until: str) -> str:
        """Type, and return what is shown until a text is."""
        os.write(self.leader, keys.encode())
        end = time.monotonic() + 60
        shown = ""
        while until not in shown and time.monotonic() < end:
            if select.select([self.leader], [], [], 1)[0]:
                shown += os.read(self.leader, 65536).decode(errors="replace")
        assert until in shown, shown
        return shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.leader)


def test_zsh(home: dict[str, str]) -> None:
    with Zsh(needed("zsh"), home) as shell:
        shell.type("autoload -U compinit; compinit -D -u; setopt nobeep; echo begi''n\n", "begin")
        shell.type("eval \"$(lockstitch completion zsh)\"; echo loade''d\n", "loaded")
        for line, rest in {
            "repair --strat\t": "egy",
            "repair --strategy roll\t": "back",
            "heal -d anth\t": "ropic",
            "vac\t": "uum",
            f"show {ID[:6]}\t": ID[6:],
            "check with\t": "\\ space.json",
        }.items():
            shell.type(f"lockstitch {line}", rest)
            shell.type("\x15echo don''e\n", "done")
    assert not (Path(home["HOME"]) / "hostile").exists()


def test_without_a_shell_it_says_where_to_put_the_script(here: Any) -> None:
    assert b".bashrc" in here("completion").stdout
    done = here("completion", "tcsh")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"bash, zsh, fish" in done.stderr


def test_the_man_page_holds_every_command_and_option_and_is_clean_roff() -> None:
    path = PROJECT / "docs" / "lockstitch.1"
    # -ww prints every warning, -c and -P-c -P-b -P-u plain text without overstriking
    words = [needed("groff-base"), "-man", "-ww", "-Tascii", "-c", "-P-c", "-P-b", "-P-u", path]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=600)
    assert done.stderr == ""
    shown = done.stdout
    for name in COMMANDS:
        assert f"lockstitch {name} [OPTIONS]" in shown
        assert all(flag in shown for option in command(name).options for flag in option.flags)
    for heading in ("NAME", "SYNOPSIS", "ENVIRONMENT", "EXIT STATUS"):
        assert f"\n{heading}\n" in shown
