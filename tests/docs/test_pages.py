"""Every block of the pages is run, and what the pages show is what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import setups
from tests.docs.pages import DOCS, blocks, check_outputs, matches, pages, run_page

# These have tests of their own, beside the parts that they describe.
ELSEWHERE = {
    "automation.md",
    "cli.md",
    "inspector.md",
    "journal.md",
    "langgraph.md",
    "provider.md",
    "proxy.md",
    "recording.md",
    "run.md",
    "watch.md",
}


@pytest.mark.parametrize("page", setups.SETUPS)
def test_the_page_runs(page: str, tmp_path: Path) -> None:
    with setups.ready(page, tmp_path) as prepared:
        done = run_page(DOCS / page, prepared)
    check_outputs(DOCS / page, done)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_with_code_is_run(page: Path) -> None:
    name = str(page.relative_to(DOCS))
    languages = {language for _, language, _ in blocks(page)}
    if languages & {"python", "console"}:
        assert name in {*setups.SETUPS, *ELSEWHERE}


def test_other_words_are_noticed() -> None:
    assert matches("$ one\nAll …\n…\nend\n", "$ one\nAll clean.\nmore\nend\n")
    assert not matches("$ one\nAll clean.\n", "$ one\nBroken.\n")
