from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.cli import COMMANDS, command, manual

if TYPE_CHECKING:
    from lockstitch.cli.arguments import Command

DECLARED = [command(name) for name in COMMANDS]
FLAGS = sorted({flag for one in DECLARED for option in one.options for flag in option.flags})
WORDS = [*FLAGS, "-", "--", "", "a.json", "=", "sarif", "json", "--output-format=sarif", "--json=1"]


@given(st.sampled_from(DECLARED), st.lists(st.sampled_from(WORDS), max_size=5))
@settings(max_examples=300)
def test_what_the_everyday_parser_accepts_typer_reads_the_same(
    declared: Command, words: list[str]
) -> None:
    values = declared.parse(words)
    if values is not None:
        assert manual.parse([declared.name, *words], DECLARED) == (declared, values)


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("check", [], {"targets": [], "output": "text", "as_json": False}),
        ("check", ["a", "-", "b"], {"targets": ["a", "-", "b"]}),
        ("check", ["-d", "gemini", "a", "--json"], {"dialect": "gemini", "as_json": True}),
        ("check", ["--output-format=sarif"], {"output": "sarif"}),
        ("heal", ["a", "-o", "b", "--diff"], {"file": "a", "output": "b", "diff": True}),
        ("heal", [], {"file": None, "output": None, "model": None}),
        ("explain", ["LS101"], {"code": "LS101"}),
        ("export", ["--redact", "a"], {"target": "a", "redact": "secrets"}),
        ("export", ["a", "--redact", "-o", "b"], {"redact": "secrets", "output": "b"}),
        ("export", ["--redact=all", "a"], {"target": "a", "redact": "all"}),
        ("export", ["a"], {"redact": None}),
    ],
)
def test_everyday_calls(name: str, words: list[str], expected: dict[str, object]) -> None:
    values = command(name).parse(words)
    assert values is not None
    assert expected.items() <= values.items()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("check", ["--help"]),
        ("check", ["--nonsense"]),
        ("check", ["--dialect"]),
        ("check", ["--dialect", "--json"]),
        ("check", ["--output-format", "yaml"]),
        ("check", ["--json=yes"]),
        ("check", ["--", "-file"]),
        ("heal", ["a", "b"]),
        ("export", ["--redact=everything", "a"]),
    ],
)
def test_everything_else_is_left_to_typer(name: str, words: list[str]) -> None:
    assert command(name).parse(words) is None


def test_an_option_that_may_stand_alone_never_takes_the_next_word() -> None:
    export = command("export")
    for words in (["--redact", "a"], ["a", "--redact"], ["--redact", "--raw", "a"]):
        found = manual.parse(["export", *words], DECLARED)
        assert not isinstance(found, int)
        assert found[0] is export
        assert (found[1]["target"], found[1]["redact"]) == ("a", "secrets")
    assert manual.parse(["export", "--redact=everything", "a"], DECLARED) == 2
