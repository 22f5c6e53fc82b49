"""The figures of the page on testing are about right."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT

TEXT = (DOCS / "testing.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [("src", r"library has about (\d+) 000 lines"), ("tests", r"the tests have about (\d+) 000")],
)
def test_the_number_of_lines_is_about_right(folder: str, pattern: str) -> None:
    found = re.search(pattern, TEXT)
    assert found
    files = ROOT.joinpath(folder).rglob("*.py")
    lines = sum(path.read_bytes().count(b"\n") for path in files if "__pycache__" not in path.parts)
    assert abs(int(found[1]) * 1000 - lines) / lines < 0.2, f"{folder} has {lines} lines"


def test_every_folder_of_tests_is_named() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests").parts[0]
        for path in ROOT.joinpath("tests").rglob("test_*.py")
        if path.parent != ROOT / "tests"
    }
    named = set(re.findall(r"`(?:tests/)?(\w+)/?", TEXT))
    assert folders - named == set()
