from __future__ import annotations

import subprocess
import sys

import pytest

from lockstitch.integrations import langgraph

NAMES = [
    "Guard",
    "HealMiddleware",
    "Migration",
    "Reconciled",
    "Saver",
    "areconcile",
    "heal_hook",
    "migrate",
    "reconcile",
]


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_there(name: str) -> None:
    assert name in langgraph.__all__
    assert name in dir(langgraph)
    assert getattr(langgraph, name).__name__ == name


def test_what_is_not_there_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        langgraph.nothing  # noqa: B018 - the error is the point


@pytest.mark.parametrize(
    ("missing", "name", "told"),
    [
        ("langgraph", "reconcile", "pip install 'lockstitch[langgraph]'"),
        ("langgraph", "HealMiddleware", "pip install 'lockstitch[langgraph]'"),
        ("langchain", "HealMiddleware", "HealMiddleware needs LangChain"),
    ],
)
def test_a_missing_package_is_named_only_when_it_is_needed(
    missing: str, name: str, told: str
) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
import lockstitch.integrations.langgraph as home
try:
    home.{name}
except ImportError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert told in found.stdout.decode()
