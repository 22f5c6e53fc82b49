"""A finder that is not run on a case would have found nothing in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.dialects.fast import encoded_size
from lockstitch.dialects.profiles import new_dialect, profile_named, traits_of
from lockstitch.rules import Case, Finding, RequestContext, examine
from lockstitch.rules.rule import FINDERS
from tests.rules.cases import CASES

from .strategies import DIALECTS, mutated, structured, with_junk
from .test_profiles import RECEIVERS


def _case(name: str, model: str | None, value: Any) -> Case:
    profile = profile_named(name)
    dialect = new_dialect(profile.dialect)
    body = value if isinstance(value, dict) else None
    messages = value if body is None else body[profile.list_key]
    request = RequestContext(dialect, profile, traits_of(model), body, model=model)
    return Case(request, dialect.read(messages), encoded_size(messages))


def _found_by_all(case: Case) -> list[Finding]:
    """What every finder of the dialect finds, whatever the case holds."""
    found = [
        finding
        for one in FINDERS
        if (not one.dialects or case.profile.dialect in one.dialects)
        and (one.when is None or one.when(case))
        for finding in one.find(case)
    ]
    return sorted(found, key=lambda finding: (finding.at.order, finding.code))


def _receivers() -> list[tuple[str, str | None]]:
    return [*((dialect, None) for dialect in DIALECTS), *RECEIVERS]


@pytest.mark.parametrize(("name", "model"), _receivers())
@given(data=st.data())
def test_nothing_is_missed_in_what_was_made_up(
    name: str, model: str | None, data: st.DataObject
) -> None:
    dialect = name.partition(":")[0]
    messages = data.draw(structured(dialect) | with_junk(dialect) | mutated(dialect))
    body = {profile_named(name).list_key: messages, "tools": [], "thinking": {"type": "enabled"}}
    for value in (messages, body):
        assert examine(_case(name, model, value)) == _found_by_all(_case(name, model, value))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_is_missed_in_a_case_of_a_rule(case: Any) -> None:
    if not isinstance(case.broken, (list, dict)):
        pytest.skip("no plain list")
    for value in (case.broken, case.whole):
        made = _case(case.dialect, case.model, value)
        assert examine(made) == _found_by_all(_case(case.dialect, case.model, value))
