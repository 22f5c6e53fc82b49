from __future__ import annotations

import json
import os
from typing import Any

import pytest

from lockstitch import cli
from lockstitch.cli import COMMANDS, command, explain
from lockstitch.cli.explain import render_markdown
from lockstitch.rules import RULES


@pytest.mark.parametrize("code", RULES)
def test_a_rule_by_code_and_by_name(code: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    rule = RULES[code]
    assert cli.run(["explain", code]) == 0
    page = capsysbinary.readouterr().out.decode()
    assert cli.run(["explain", rule.name]) == 0
    assert capsysbinary.readouterr().out.decode() == page
    for part in (rule.code, rule.name, rule.what, rule.cause, rule.repair):
        assert part in page.replace("\n", " ")
    for _, error in rule.errors:
        assert f"```text\n{error}\n```" in page


@pytest.mark.parametrize("width", [40, 80])
def test_a_page_on_a_terminal_says_the_same_and_fits(width: int) -> None:
    for rule in RULES.values():
        lines = list(render_markdown(explain.rule_page(rule), width))
        shown = " ".join(" ".join(lines).split())
        for part in (rule.code, rule.name, rule.what, rule.cause, rule.repair):
            assert " ".join(part.split()) in shown
        for _, error in rule.errors:
            assert all(f"    {line}" in lines for line in error.split("\n"))
        prose = [line for line in lines if not line.startswith("    ")]
        assert all(len(line) <= width or " " not in line.strip() for line in prose)


def test_the_list_on_a_terminal_has_a_row_for_each_rule() -> None:
    lines = list(render_markdown(explain.rule_table(explain.all_rules()), 100))
    assert lines[0].split() == ["Code", "Name", "Severity", "Fixable", "What", "is", "wrong"]
    assert [line[:5] for line in lines[1:] if line.startswith("LS")] == sorted(RULES)


def test_without_a_code_all_are_listed(lockstitch: Any) -> None:
    shown = lockstitch("explain").stdout.decode()
    assert all(f"| {rule.code} | {rule.name} |" in shown for rule in RULES.values())


def test_json(lockstitch: Any) -> None:
    report = json.loads(lockstitch("explain", "--json").stdout)
    assert report["version"] == 1
    assert [rule["code"] for rule in report["rules"]] == sorted(RULES)
    [one] = json.loads(lockstitch("explain", "LS101", "--json").stdout)["rules"]
    assert one in report["rules"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_every_option_and_the_examples(lockstitch: Any, name: str) -> None:
    declared = command(name)
    shown = lockstitch(name, "--help", env={**os.environ, "COLUMNS": "100"}).stdout.decode()
    assert declared.summary in shown
    for option in declared.options:
        assert all(flag in shown for flag in option.flags)
    for example in declared.examples:
        assert example in shown


def test_help_names_every_command(lockstitch: Any) -> None:
    shown = lockstitch("--help").stdout.decode()
    assert all(name in shown for name in COMMANDS)
    assert "Exit status" in shown
