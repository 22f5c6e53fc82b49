"""The lock files: exact, complete, of no registry, and of one mind."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]
LOCKED = {
    name: (PROJECT / "requirements" / f"{name}.lock").read_text("utf-8")
    for name in ("dev", "server")
}


def entries(name: str) -> list[str]:
    """The requirements of a lock file with their hashes: lines that go on behind a backslash."""
    return re.findall(r"^[a-z0-9](?:.*\\\n)*.*", LOCKED[name], re.MULTILINE)


ENTRIES = entries("dev")
# Extras that are not for developing, and the one that only names others.
UNUSED = {"all", "bench", "suite"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", LOCKED)
def test_every_entry_is_one_release_by_its_hashes(name: str) -> None:
    assert len(entries(name)) > 50
    for entry in entries(name):
        assert re.match(r"\S+==\S+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize("name", LOCKED)
def test_no_registry_is_named(name: str) -> None:
    assert "://" not in LOCKED[name]
    assert not re.search(r"^-", LOCKED[name], re.MULTILINE), "an option of pip"


def test_the_server_is_locked_with_what_is_developed_with() -> None:
    developed, served = (
        {entry.partition("==")[0]: entry.partition(" ")[0] for entry in entries(name)}
        for name in ("dev", "server")
    )
    assert "langgraph-api" in served
    both = developed.keys() & served.keys()
    assert {name: served[name] for name in both} == {name: developed[name] for name in both}


def asked() -> list[str]:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    lists = [extras[name] for name in sorted(extras.keys() - UNUSED)]
    return sorted({each for one in [project["dependencies"], *lists] for each in one})


@pytest.mark.parametrize("asked", asked())
def test_what_the_project_asks_for_is_locked_in_a_version_that_it_takes(asked: str) -> None:
    wanted = Requirement(asked)
    versions = [
        locked.specifier
        for locked in (Requirement(entry.partition(" \\")[0]) for entry in ENTRIES)
        if canonical(locked.name) == canonical(wanted.name)
    ]
    assert versions, "run `make lock`"
    for exact in versions:
        [version] = [each.version for each in exact]
        assert wanted.specifier.contains(version), "run `make lock`"
