"""Every rule on stored sessions is found in some broken file, and in no healthy one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import lockstitch
from lockstitch.formats import records, repair
from lockstitch.formats.claude_code import ClaudeCode
from lockstitch.formats.interface import Context

from .claude_cases import BROKEN, HEALTHY, NOTED
from .claude_files import Case

FORM = ClaudeCode()
STORES = {code for code, rule in lockstitch.RULES.items() if "claude-code" in rule.formats}


def found(case: Case) -> set[str]:
    with TemporaryDirectory() as folder:
        beside = {}
        for path, data in case.side.items():
            name = path.rpartition("/")[2]
            beside[name] = str(Path(folder, name))
            Path(folder, name).write_bytes(data)
        context = Context(case.data, "session.jsonl", beside)
        transcript = FORM.parse(records.read_lines(case.data, FORM.is_record), context)
    return {finding.code for finding in repair.findings_in(FORM, transcript)}


def test_every_rule_is_found_in_some_broken_file() -> None:
    seen = set().union(*map(found, (*BROKEN, *NOTED)))
    # in no broken file, since it is no break: test_unread has it
    assert STORES - seen == {"LS613"}


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_none_is_found_in_a_healthy_file(case: Case) -> None:
    assert found(case) == set()


def test_what_is_not_mended_does_not_say_that_it_is() -> None:
    from lockstitch.formats.interface import new_finding

    rule = lockstitch.RULES["LS610"]
    assert new_finding("LS610", "1", "has no head").help == rule.help
    left = new_finding("LS610", "1", "has no head", fixable=False)
    assert not left.fixable
    assert "repair leaves this as it is" in left.help
