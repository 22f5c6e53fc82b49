from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.cli import COMMANDS, command, parser
from lockstitch.cli.help import GROUPS
from lockstitch.cli.parser import COMMON, Command, Operand, Option
from lockstitch.errors import UsageError

DECLARED = [command(name) for name in COMMANDS]


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("check", [], {"targets": [], "output": "text", "as_json": False}),
        ("check", ["a", "-", "b"], {"targets": ["a", "-", "b"]}),
        ("check", ["a", "--json", "b"], {"targets": ["a", "b"], "as_json": True}),
        ("check", ["-d", "gemini", "a", "--json"], {"dialect": "gemini", "as_json": True}),
        ("check", ["-dgemini", "a"], {"dialect": "gemini", "targets": ["a"]}),
        ("check", ["--output-format=sarif"], {"output": "sarif"}),
        ("check", ["--model=", ""], {"model": "", "targets": [""]}),
        ("check", ["--", "-file", "--json"], {"targets": ["-file", "--json"], "as_json": False}),
        ("check", ["a", "--", "--", "b"], {"targets": ["a", "--", "b"]}),
        ("check", ["--model=-x", "a"], {"model": "-x", "targets": ["a"]}),
        ("heal", ["a", "-o", "b", "--diff"], {"file": "a", "output": "b", "diff": True}),
        ("heal", ["-o", "-", "--", "-a"], {"file": "-a", "output": "-"}),
        ("heal", [], {"file": None, "output": None, "model": None}),
        ("explain", ["LS101"], {"code": "LS101"}),
        ("export", ["--redact", "a"], {"target": "a", "redact": "secrets"}),
        ("export", ["a", "--redact", "-o", "b"], {"redact": "secrets", "output": "b"}),
        ("export", ["--redact", "--raw", "a"], {"target": "a", "redact": "secrets"}),
        ("export", ["--redact=all", "a"], {"target": "a", "redact": "all"}),
        ("export", ["a"], {"redact": None}),
    ],
)
def test_what_the_words_mean(name: str, words: list[str], expected: dict[str, object]) -> None:
    declared = command(name)
    values = parser.parse(declared, words).values
    names = [declared.operand.name, *(option.name for option in declared.options)]
    assert values.keys() == set(names)
    assert expected.items() <= values.items()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chekc"], "there is no command 'chekc'. Did you mean check?"),
        (["/"], "there is no command '/'. To check the session of that name: lockstitch check /"),
        (["postgresql://ada:hidden@h/d"], "lockstitch check postgresql://ada@h/d"),
        (["quux"], "there is no command 'quux'. `lockstitch -h` lists all commands."),
        (["check", "--dialct", "x"], "check has no option --dialct. Did you mean --dialect?"),
        (["check", "--jsn=1"], "check has no option --jsn. Did you mean --json?"),
        (["check", "-x"], "check has no option -x. See: lockstitch check -h. Put -- before"),
        (["undo", "--dialect", "x"], "undo has no option --dialect. See: lockstitch undo -h."),
        (["--quiett", "check"], "lockstitch has no option --quiett. Did you mean --quiet?"),
        (["check", "--dialect"], "--dialect needs a value: --dialect DIALECT."),
        (["check", "--dialect", "--json"], "--dialect needs a value: --dialect DIALECT."),
        (["check", "--json=yes"], "--json takes no value. See: lockstitch check -h."),
        (["check", "--output-format", "srif"], "Did you mean sarif?"),
        (["repair", "--strategy"], "--strategy HOW, one of close, rollback."),
        (["heal", "a", "b"], "heal takes one FILE, but 2 were given: a, b."),
        (["export", "--redact=everything", "a"], "--redact cannot be 'everything'"),
        (
            ["check", "--color", "blue"],
            "--color cannot be 'blue'; it must be one of auto, always, never.",
        ),
    ],
)
def test_a_mistake_is_told_in_a_sentence(here: Any, words: list[str], said: str) -> None:
    done = here(*words)
    assert done.returncode == 2
    assert "--json" in words or done.stdout == b""
    assert said in done.stderr.decode()
    assert b"hidden" not in done.stderr


def test_nothing_is_abbreviated() -> None:
    with pytest.raises(UsageError, match="no option --dial"):
        parser.parse(command("check"), ["--dial", "anthropic"])


PROBE = Command(
    name="probe",
    run=lambda **_: 0,
    summary="",
    details="",
    examples=(),
    operand=Operand("words", "WORD", "", many=True),
    options=(
        Option("size", ("--size", "-s"), "", metavar="N"),
        Option("kind", ("--kind",), "", metavar="KIND", choices=("a", "b"), implied="a"),
        Option("fast", ("--fast", "-f"), ""),
    ),
)
WORDS = ["-s", "--size", "--size=3", "-f", "--kind", "--kind=b", "--", "-", "", "x", "-q", "a b"]


@given(st.lists(st.sampled_from(WORDS), max_size=6), st.lists(st.text(max_size=4), max_size=4))
def test_what_stands_behind_two_dashes_is_an_operand_untouched(
    before: list[str], behind: list[str]
) -> None:
    if "--" in before:
        before = before[: before.index("--")]
    try:
        found = parser.parse(PROBE, before)
    except UsageError:
        return
    whole = parser.parse(PROBE, [*before, "--", *behind])
    assert whole.values["words"] == [*found.values["words"], *behind]
    assert {**whole.values, "words": []} == {**found.values, "words": []}


PARTS = st.one_of(
    st.tuples(
        st.just("words"), st.sampled_from(["x", "", "-", "a b", "=", "a=b"]).map(lambda w: [w])
    ),
    st.tuples(
        st.just("size"), st.sampled_from([["-s", "3"], ["-s3"], ["--size", "3"], ["--size=3"]])
    ),
    st.tuples(st.just("kind"), st.sampled_from([["--kind"], ["--kind=a"]])),
    st.tuples(st.just("fast"), st.sampled_from([["-f"], ["--fast"]])),
)


@given(st.lists(PARTS, max_size=6))
def test_every_part_of_a_line_means_what_it_means_alone(parts: list[tuple[str, list[str]]]) -> None:
    values = parser.parse(PROBE, [word for _, words in parts for word in words]).values
    named = {name for name, _ in parts}
    assert values == {
        "words": [words[0] for name, words in parts if name == "words"],
        "size": "3" if "size" in named else None,
        "kind": "a" if "kind" in named else None,
        "fast": "fast" in named,
    }


def test_options_of_every_command_may_stand_before_it(here: Any) -> None:
    assert here("--color", "always", "explain", "LS101").stdout.startswith(b"\x1b[")
    assert here("explain", "LS101", "--color=always").stdout.startswith(b"\x1b[")
    assert not here("--color=always", "explain", "--color", "never").stdout.startswith(b"\x1b[")


@pytest.mark.parametrize("words", [["help", "check"], ["check", "-h"], ["-h", "check"]])
def test_help_of_a_command(here: Any, words: list[str]) -> None:
    done = here(*words)
    assert done.returncode == 0
    assert done.stdout.startswith(b"Usage: lockstitch check [OPTIONS] [TARGET]...\n")


def test_nothing_at_all_prints_help_into_a_pipe(process: Any) -> None:
    done = process()
    assert done.returncode == 0
    assert b"Start here:" in done.stdout


@pytest.mark.parametrize("declared", DECLARED, ids=COMMANDS)
def test_no_command_takes_a_flag_twice_or_one_that_all_have(declared: Command) -> None:
    flags = [flag for option in (*declared.options, *COMMON) for flag in option.flags]
    names = [option.name for option in (*declared.options, *COMMON)]
    assert len(flags) == len(set(flags))
    assert len({*names, declared.operand.name}) == len(names) + 1
    assert declared.group in GROUPS


def test_help_fits_a_narrow_terminal(process: Any) -> None:
    for words in (["-h"], ["rewind", "-h"]):
        shown = process(*words, env={**os.environ, "COLUMNS": "60"}).stdout.decode()
        prose = shown.partition("Examples:")[0]
        assert max(map(len, prose.splitlines())) <= 60


def test_versions(process: Any) -> None:
    shown = process("-V").stdout.decode()
    for word in (
        "lockstitch ",
        f"Python {sys.version.split()[0]}",
        sqlite3.sqlite_version,
        "msgspec ",
    ):
        assert word in shown
    assert process("check", "--version").stdout.decode() == shown


def test_a_program_that_asked_for_json_gets_it_on_failure_too(here: Any) -> None:
    for words in (["undo", "--json"], ["checkpoints", "nosuch", "--json"], ["chekc", "--json"]):
        done = here(*words)
        assert done.returncode == 2
        document = json.loads(done.stdout)
        assert document["version"] == 1
        assert document["error"] in done.stderr.decode()
    assert here("undo", "--", "--json").stdout == b""


@pytest.mark.parametrize(
    ("words", "environment", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"CLICOLOR_FORCE": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color=always"], {"NO_COLOR": "1"}, True),
        (["--color=never"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours(
    lockstitch: Any, words: list[str], environment: dict[str, str], coloured: bool
) -> None:
    done = lockstitch("explain", "LS101", *words, env={"PATH": "", **environment})
    assert (b"\x1b[" in done.stdout) == coloured


def test_quiet_leaves_results_and_errors(lockstitch: Any, saved: Any, clean: Any) -> None:
    path = saved(clean)
    assert b"All clean" in lockstitch("check", path).stderr
    assert lockstitch("check", "-q", path).stderr == b""
    assert b"nosuch.json" in lockstitch("-q", "check", "nosuch.json").stderr
    assert b"Took " in lockstitch("check", "-v", path).stderr


def test_help_needs_no_command_to_be_loaded() -> None:
    program = (
        "import sys; from lockstitch import cli; cli.run(['--help']);"
        "sys.exit(any(name in sys.modules for name in ('lockstitch.cli.scan', 'asyncio')))"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
