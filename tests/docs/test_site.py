"""The documentation site: built without a warning, and with nothing from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import site_navigation

# What a browser loads by itself; a link that a reader may follow is another matter.
LOADED = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^>]*>"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_is_built_without_a_warning(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    made = {path.relative_to(site) for path in site.rglob("*.html")}
    assert {path for path in pages if path.name != "README.html"} <= made


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert LOADED.findall(page.read_text("utf-8")) == [], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text("utf-8")), style.name


def test_search_finds_the_text_of_an_error(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {
        entry["location"].partition("#")[0]
        for entry in index["docs"]
        if "ids were found without" in entry["text"]
    }
    assert "rules/LS101.html" in found


def _listed(docs: Path) -> set[str]:
    def inside(value: object) -> set[str]:
        if isinstance(value, str):
            return {value}
        if isinstance(value, dict):
            return set().union(*map(inside, value.values()))
        assert isinstance(value, list)
        return set().union(*map(inside, value))

    return inside(site_navigation.on_config({"docs_dir": str(docs)})["nav"])


def test_the_pattern_knows_what_is_loaded() -> None:
    assert LOADED.search('<script src="https://cdn.example/x.js"></script>')
    assert LOADED.search("<link rel=stylesheet href=//fonts.example/css>")
    assert not LOADED.search('<a href="https://docs.example/">docs</a>')
