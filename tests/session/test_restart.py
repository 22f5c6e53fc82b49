"""Each agent program of the pages, killed at every durable step and started again unchanged."""

from __future__ import annotations

import multiprocessing
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME
from lockstitch.provider import Incoming, Reply, Script
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.server import running
from lockstitch.provider.service import (
    ProviderAnswer,
    ReceivedRequest,
    Service,
    Verdict,
    choose_rules,
)
from tests import postgres_server
from tests.docs.pages import DOCS, blocks

from .restarting import AFTER, BEFORE, run
from .talk import results, texts

ROOT = Path(__file__).parents[2]
SQLITE = "sqlite:///agent.db"
CHILD = multiprocessing.get_context("forkserver")
CHILD.set_forkserver_preload(["tests.session.restarting"])
# What the page around a printed program has said before.
README_NAMES = """
import subprocess
client = anthropic.Anthropic()
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
OFFERED = [{"name": "bash", "description": "Run a command.", "input_schema": SCHEMA}]
options = {"model": "claude-sonnet-5-5", "max_tokens": 4096, "tools": OFFERED}

def bash(command: str) -> str:
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout

"""
JOURNAL_NAMES = f'store = lockstitch.open("{SQLITE}")\n'
TRACED = 'with open(f"ran-{url}", "a") as file:\n        file.write("x")\n    return'


def _printed(page: Path, mark: str) -> str:
    """The one program of a page that holds some words."""
    [code] = [c for _, language, c in blocks(page) if language == "python" and mark in c]
    return code


@dataclass(frozen=True)
class Program:
    """A printed program: where its session is, what is said in it, and what it is fed with."""

    source: str
    session: str
    prompt: str
    given: str = ""
    tools: tuple[Call, ...] = (
        Call("bash", {"command": "printf x >> ran-1; echo one"}),
        Call("bash", {"command": "printf x >> ran-2; echo two"}),
    )
    last: tuple[Call, ...] = (Call("bash", {"command": "printf x >> ran-3; echo three"}),)


def _programs() -> dict[str, Program]:
    readme = README_NAMES + _printed(ROOT / "README.md", "while session.turn.is_open")
    page = _printed(DOCS / "journal.md", "def ask(session):")
    awaited = _printed(DOCS / "journal.md", "asyncio.run(main())")
    # its tool says that it ran, which is nothing that a reader wants to see
    awaited = JOURNAL_NAMES + awaited.replace("await asyncio.sleep(0)\n    return", TRACED)
    fetched = [(Call("fetch", {"url": str(n)})) for n in (1, 2, 3)]
    research = ("research", "What is new?", "", tuple(fetched[:2]), (fetched[2],))
    spawned = awaited.replace("asyncio.run(main())", "import trio; trio.run(main)")
    agent = (ROOT / "examples" / "agent.py").read_text(encoding="utf-8")
    fix = "Fix the failing test"
    return {
        "README": Program(readme, "ticket-42", fix),
        "journal": Program(page, "ticket-42", fix),
        "journal, asyncio": Program(awaited, *research),
        "journal, trio": Program(spawned, *research),
        "examples/agent.py": Program(agent, "main", fix, fix + "\n"),
    }


PROGRAMS = _programs()


class Model(Script):
    """Replies by what a request holds, as a model does: the same question, the same answer."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._replies = [
            Reply("I run two.", program.tools),
            Reply("One more.", program.last),
            Reply("It passes."),
        ]

    def reply(self, request: Incoming) -> Reply:
        asked = [m for m in request.messages if m["role"] == "assistant"]
        return self._replies[len(asked)]


class Provider(Service):
    """The strict provider with such a model; ``refusals`` are the requests it did not take."""

    def __init__(self, program: Program) -> None:
        self.refusals: list[Any] = []
        super().__init__(choose_rules([]), Model(program), clock=lambda: 1_700_000_000.5)

    def answer(self, asked: ReceivedRequest, verdict: Verdict) -> ProviderAnswer:
        answer = super().answer(asked, verdict)
        self.refusals += [answer.body] if answer.status != 200 else []
        return answer


def _ended(program: Program, folder: Path, url: str, when: str = "", step: int = 0) -> int | None:
    arguments = (program.source, str(folder), url, program.given, when, step)
    child = CHILD.Process(target=run, args=arguments)
    child.start()
    child.join(600)
    return child.exitcode


def _shown(program: Program, address: str) -> tuple[list[str], list[str], dict[str, str]]:
    """What the session came to: words of both sides, and the results of its calls."""
    with lockstitch.open(address) as store:
        reader = store.read(program.session)
        assert reader.turn.state == "ended"
        messages = reader.request("openai-chat")
        return texts(messages, "user"), texts(messages, "assistant"), results(messages)


def _address(store: str, folder: Path) -> str:
    if store == "postgres":
        return postgres_server.shared().prepared()
    return f"sqlite:///{folder}/agent.db"


def _kills(steps: int, name: str, store: str) -> Iterator[tuple[str, int]]:
    """Give every step to be killed behind, and for one program of each kind also in front of."""
    for step in range(1, steps + 1):
        yield AFTER, step
        if store == "sqlite" and name in {"README", "journal, asyncio"}:
            yield BEFORE, step


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_same_program_started_again_goes_on(name: str, store: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    provider = Provider(program)
    with running(provider) as url:
        whole = tmp_path / "whole"
        whole.mkdir()
        address = _address(store, whole)
        at = Program(**{**vars(program), "source": program.source.replace(SQLITE, address)})
        assert _ended(at, whole, url) == 0
        expected = _shown(program, address)
        assert expected[0] == [program.prompt]
        assert expected[1][-1] == "It passes."
        steps = int((whole / "steps").read_text())
        assert steps > 5
        for when, step in _kills(steps, name, store):
            folder = tmp_path / f"{when}-{step}"
            folder.mkdir()
            address = _address(store, folder)
            at = Program(**{**vars(program), "source": program.source.replace(SQLITE, address)})
            assert _ended(at, folder, url, when, step) == -9, (when, step)
            assert _ended(at, folder, url) == 0, (when, step)
            assert provider.refusals == [], (when, step)
            said, replied, given = _shown(program, address)
            assert (said, replied) == expected[:2], (when, step)
            _check_results(given, expected[2], folder, (when, step))


def _check_results(
    given: dict[str, str], expected: dict[str, str], folder: Path, where: tuple[str, int]
) -> None:
    """No tool ran twice, and what it gave is there, unless the kill fell between the two."""
    ran = Counter({path.name: len(path.read_text()) for path in folder.glob("ran-*")})
    assert max(ran.values(), default=0) <= 1, where
    pairs = list(zip(given.values(), expected.values(), strict=True))
    lost = [pair for pair in pairs if pair[0] == UNKNOWN_OUTCOME]
    assert len(lost) <= 2, (where, "as many as run at a time")
    assert all(result == wanted for result, wanted in pairs if result != UNKNOWN_OUTCOME), where


# Programs that bring a model of their own, so that a reader can run them as they are.
OFFLINE = {
    "tutorial": Program(_printed(DOCS / "tutorial.md", "def deploy"), "ticket-42", "Deploy it"),
    "agent loop": Program(_printed(DOCS / "howto" / "agent-loop.md", "def fetch"), "report-7", ""),
}


@pytest.mark.parametrize("name", OFFLINE)
def test_a_program_without_a_provider_goes_on(name: str, tmp_path: Path) -> None:
    program = OFFLINE[name]
    whole = tmp_path / "whole"
    whole.mkdir()
    assert _ended(program, whole, "") == 0
    said, replied, _ = _shown(program, f"sqlite:///{whole}/agent.db")
    assert len(said) == 1
    steps = int((whole / "steps").read_text())
    assert steps > 5
    for step in range(1, steps + 1):
        folder = tmp_path / str(step)
        folder.mkdir()
        assert _ended(program, folder, "", AFTER, step) == -9, step
        assert _ended(program, folder, "") == 0, step
        found = _shown(program, f"sqlite:///{folder}/agent.db")
        assert found[:2] == (said, replied), step


def test_every_program_with_a_loop_is_tried() -> None:
    pages = [ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("howto/*.md")]
    printed = [code for page in pages for _, language, code in blocks(page) if language == "python"]
    loop = re.compile(r"^\s*while session\.turn\.is_open", re.MULTILINE)
    loops = [code for code in printed if loop.search(code)]
    programs = {**PROGRAMS, **OFFLINE}
    tried = "".join(program.source.replace(TRACED, "") for program in programs.values())
    for code in loops:
        assert code.splitlines()[-1] in tried, code
