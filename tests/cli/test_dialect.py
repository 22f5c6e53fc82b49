from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstitch.dialects.profiles import CLASSES
from lockstitch.dialects.recognize import confirm_dialect
from lockstitch.errors import UsageError

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("command", ["check", "heal"])
def test_a_list_of_another_dialect_is_refused(lockstitch: Any, command: str) -> None:
    example = EXAMPLES / "openai-chat-one-of-three-results-lost.json"
    done = lockstitch(command, "-d", "anthropic", str(example))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"this is openai-chat, not anthropic" in done.stderr


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
@pytest.mark.parametrize("dialect", CLASSES)
def test_every_example_is_taken_for_its_own_dialect_only(example: Path, dialect: str) -> None:
    value = json.loads(example.read_text())
    own = example.stem.startswith(dialect)
    if own or (dialect == "langchain" and example.stem.startswith("openai-chat")):
        assert confirm_dialect(value, dialect) == dialect
    else:
        with pytest.raises(UsageError, match=f"not {dialect}"):
            confirm_dialect(value, dialect)


def test_a_list_without_marks_is_what_it_is_called() -> None:
    assert (
        confirm_dialect([{"role": "user", "content": "hi"}], "anthropic:kimi") == "anthropic:kimi"
    )
