"""Every block of the page on sessions is run, in order, against the strict provider."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstitch import cli, errors
from lockstitch.provider.desk import Desk
from lockstitch.provider.judge import chosen
from lockstitch.provider.replies import Call, Reply, Script
from lockstitch.provider.server import running

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "journal.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
REPLIES = (
    Reply("I run it.", (Call("bash", {"command": "echo 1 passed"}),)),
    Reply("It passes."),
    Reply("I added one."),
    Reply("The fix is simple."),
)


def _blocks() -> list[tuple[int, str, str]]:
    text = PAGE.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start()) + 2, found[1], found[2])
        for found in BLOCK.finditer(text)
    ]


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    desk = Desk(chosen([]), Script(REPLIES), clock=lambda: 1_700_000_000.5)
    with running(desk) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        for line, language, code in _blocks():
            if language == "python":
                source = "\n" * (line - 1) + code
                exec(compile(source, str(PAGE), "exec"), names)  # noqa: S102 - our own page
            elif language == "console":
                _commands(code)
        names["client"].close()
        names["store"].close()
    said = capsys.readouterr().out
    for expected in ("waiting\npay {'amount': 30}\npaid 30 (order ", "The fix is simple.True\n"):
        assert expected in said
    assert "ticket-42 ok" in said


def _commands(code: str) -> None:
    for line in code.splitlines():
        assert cli.run(line.removeprefix("$ lockstitch ").split()) == 0, line


def test_every_language_is_known() -> None:
    assert {language for _, language, _ in _blocks()} == {"sh", "python", "console"}


def test_the_errors_of_the_table_exist() -> None:
    rows = re.findall(r"^\| `([A-Z]\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 9
    assert all(issubclass(getattr(errors, name), errors.LockstitchError) for name in rows)
