"""Every block of the page on sessions is run, in order, against the strict provider."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lockstitch import errors
from lockstitch.provider import Reply, Script
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.server import running
from lockstitch.provider.service import Service, choose_rules
from tests.docs.pages import DOCS, blocks, run_page

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PAGE = DOCS / "journal.md"
REPLIES = (
    Reply("I run it.", (Call("bash", {"command": "echo 1 passed"}),)),
    Reply("It passes."),
    Reply("I added one."),
    Reply("The fix is simple."),
)


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    desk = Service(choose_rules([]), Script(REPLIES), clock=lambda: 1_700_000_000.5)
    with running(desk) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        run_page(PAGE, names)
        names["client"].close()
        names["store"].close()
    said = capsys.readouterr().out
    for expected in ("waiting\npay {'amount': 30}\npaid 30 (order ", "The fix is simple.True\n"):
        assert expected in said
    assert "ticket-42 ok" in said


def test_every_language_is_known() -> None:
    assert {language for _, language, _ in blocks(PAGE)} == {"sh", "python", "console"}


def test_the_errors_of_the_table_exist() -> None:
    rows = re.findall(r"^\| `([A-Z]\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 10
    assert all(issubclass(getattr(errors, name), errors.LockstitchError) for name in rows)
