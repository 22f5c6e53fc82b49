"""The page on the provider: its scripts are read, its tests are run, its words are all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstitch.provider import Incoming, fault_in, faults_in, script_in
from tests.docs.pages import DOCS, blocks

pytest_plugins = "pytester"

PAGE = DOCS / "provider.md"
CODE = [(language, code) for _, language, code in blocks(PAGE)]
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_three_scripts_say_the_same(tmp_path: Path) -> None:
    tools = frozenset({"bash"})
    said = []
    for language, name in (("toml", "r.toml"), ("json", "r.json"), ("python", "r.py")):
        path = tmp_path / name
        path.write_text(next(code for kind, code in CODE if kind == language), "utf-8")
        script = script_in(str(path), path.read_bytes())
        asked = [
            Incoming(n, "anthropic", "/v1/messages", "m", tools, [{}] * n, {}, False)
            for n in (1, 3)
        ]
        replies = [script.reply(request) for request in asked]
        said.append([(reply.text, reply.calls, reply.thinking) for reply in replies])
    assert said[0] == said[1] == said[2]
    assert [len(calls) for _, calls, _ in said[0]] == [2, 0]


def test_every_word_for_a_fault_is_told() -> None:
    rows = re.findall(r"^\| (`[a-z].*?) \| ", TEXT[TEXT.index("| words |") :], re.MULTILINE)
    told = re.findall(r"`([a-z-]+)(=[^`]*)?`", "\n".join(rows[:11]) + "`after=3` `retry-after=7`")
    with pytest.raises(ValueError, match="the words for faults are") as caught:
        fault_in("nothing")
    known = str(caught.value).partition(" are ")[2].split(", ")
    assert {name for name, _ in told} == set(known)
    for order in re.findall(r'--fault "(.*?)"', TEXT):
        assert len(faults_in(order)) == 2


def test_the_tests_on_the_page_pass(pytester: pytest.Pytester) -> None:
    _, tests = (code for kind, code in CODE if kind == "python")
    pytester.makepyfile(tests)
    result = pytester.runpytest_subprocess(
        *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:langsmith_plugin")
    )
    result.assert_outcomes(passed=2)
