"""Every rule from both sides: what breaks it is found, named and mended, what does not is left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from typing import Any

import pytest

import lockstitch
from lockstitch import Finding
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.dialects.profiles import PROFILES
from lockstitch.formats.interface import NAMES as FORMATS
from lockstitch.formats.interface import format_named
from lockstitch.sources.source import OWN
from tests.dump import dump
from tests.together import Together

from .case import Case
from .cases import CASES
from .kits import ANTHROPIC, BEDROCK, A

# What a repair must not lose unless it says so; a label inside a data URL may change.
SAID = ("text", "content", "output", "response", "thinking", "data", "bytes", "url", "image_url")
GIVEN = ("input", "args", "arguments")
LABELS = ("type", "id", "tool_use_id", "toolUseId", "name", "media_type", "mimeType", "format")
UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
# Ollama's own words have angle brackets, too.
HOLE = re.compile(r"<(?!nil>)[^<>]*>")
# Cannot be seen in a list: it is what a repair of the middle would cause.
UNSEEN = {"LS309"}
# Megabytes, which one look at is enough.
LARGE = {"LS504", "LS507"}
BY_NAME = {case.name: case for case in CASES}

pytestmark = pytest.mark.filterwarnings("error")
each = Together()


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def check(case: Case, messages: Any) -> list[Finding]:
    return lockstitch.check(messages, case.dialect, model=case.model)


def heal(case: Case, messages: Any) -> Any:
    return lockstitch.heal(messages, case.dialect, model=case.model)


@lru_cache(maxsize=1)
def looked_at(name: str) -> tuple[list[Finding], lockstitch.Plan]:
    """What is found in a case and done about it, once for all checks: some have megabytes."""
    case = BY_NAME[name]
    plan = lockstitch.plan(case.broken, case.dialect, model=case.model)
    return check(case, case.broken), plan


def findings(case: Case) -> list[Finding]:
    return looked_at(case.name)[0]


def planned(case: Case) -> lockstitch.Plan:
    return looked_at(case.name)[1]


def found(case: Case) -> Finding:
    return next(finding for finding in findings(case) if finding.code == case.code)


def said(value: Any, *, counts: bool = False) -> Iterator[str]:
    """Every text, result and argument in a value that says something, as it can be sent."""
    if isinstance(value, str):
        if counts and value.strip() and not is_placeholder(value):
            yield UNSENDABLE.sub("\ufffd", value.rpartition(";base64,")[2])
    elif isinstance(value, list):
        for item in value:
            yield from said(item, counts=counts)
    elif isinstance(value, dict):
        for key, item in value.items():
            kept = key in SAID or key in GIVEN or (counts and key not in LABELS)
            yield from said(item, counts=kept)


@each.check
def the_break_is_found_and_nothing_else(case: Case) -> None:
    codes = [finding.code for finding in findings(case)]
    assert codes.count(case.code) == 1
    assert set(codes) == {case.code, *case.also}


@each.check
def the_place_is_named(case: Case) -> None:
    assert found(case).place == case.place


@each.check
def the_providers_words_are_predicted(case: Case) -> None:
    error = found(case).error
    if isinstance(case.error, str) and case.offset:
        assert (error or "").startswith(case.error)
    elif case.error is not ...:
        assert error == case.error


@each.check
def no_hole_is_left_in_the_providers_words(case: Case) -> None:
    for finding in findings(case):
        assert not HOLE.search(finding.error or ""), finding.error


@each.check
def a_finding_repeats_its_rule(case: Case) -> None:
    finding, rule = found(case), lockstitch.RULES[case.code]
    assert (finding.name, finding.help) == (rule.name, rule.help)
    assert finding.severity == (case.severity or rule.severity)
    assert finding.message


@each.check
def a_finding_holds_no_content(case: Case) -> None:
    spoken = [finding.message for finding in findings(case)]
    for text in ("Look.", "I looked.", "files of", "Hm.", "There.", "Meanwhile."):
        assert not any(text in message for message in spoken)


@each.check
def the_neighbour_has_no_finding(case: Case) -> None:
    assert check(case, case.whole) == []


@each.check
def the_neighbour_comes_back_as_the_same_object(case: Case) -> None:
    before = deepcopy(case.whole)
    assert heal(case, case.whole) is case.whole
    plan = lockstitch.plan(case.whole, case.dialect, model=case.model)
    assert plan.messages is case.whole
    assert (plan.changed, plan.edits, plan.changes, plan.quarantine) == (False, [], [], [])
    assert _same(case.whole, before)


@each.check
def healing_leaves_no_finding(case: Case) -> None:
    before = deepcopy(case.broken)
    healed = heal(case, case.broken)
    assert _same(case.broken, before), "the original was changed"
    if case.fixable:
        assert check(case, healed) == []
    else:
        assert healed is case.broken


@each.check
def healing_twice_is_healing_once(case: Case) -> None:
    healed = heal(case, case.broken)
    assert heal(case, healed) is healed


@each.check
def fixable_is_true_to_what_happens(case: Case) -> None:
    plan = planned(case)
    assert found(case).fixable == case.fixable
    assert case.fixable == (case.code not in {finding.code for finding in plan.remaining})
    assert plan.changed == case.fixable


@each.check
def lossy_is_true_to_what_happens(case: Case) -> None:
    plan = planned(case)
    assert found(case).lossy == case.loses
    if case.loses:
        assert case.code in {each.code for each in plan.quarantine}
        return
    left = dump(plan.messages)
    lost = [text for text in said(case.broken) if json.dumps(text)[1:-1] not in left]
    assert not lost, [text[:100] for text in lost]


@each.check
def what_is_done_is_written_down(case: Case) -> None:
    codes = {change.code for change in planned(case).changes}
    assert (case.code in codes) == case.fixable


def test_every_rule_from_both_sides(case: Case) -> None:
    each.made(case)


def _same(one: Any, other: Any) -> bool:
    """Equal, without ever printing megabytes when it is not so."""
    return bool(one == other)


# Rules on stored sessions are shown from both sides in tests/formats.
LISTS = {code for code, rule in lockstitch.RULES.items() if rule.dialects}


def test_every_rule_has_a_case() -> None:
    assert {case.code for case in CASES} | UNSEEN == LISTS


@pytest.mark.parametrize("code", sorted(LISTS - UNSEEN))
def test_every_dialect_a_rule_names_has_a_case(code: str) -> None:
    covered = {case.dialect for case in CASES if case.code == code}
    assert set(lockstitch.RULES[code].dialects) <= covered


@pytest.mark.parametrize("code", sorted(LISTS - UNSEEN))
def test_every_rule_with_a_known_wording_has_it_in_a_case(code: str) -> None:
    predicted = any(isinstance(case.error, str) for case in CASES if case.code == code)
    assert predicted == bool(lockstitch.RULES[code].errors)


@pytest.mark.parametrize("code", sorted(lockstitch.RULES))
def test_every_rule_says_all_it_should(code: str) -> None:
    rule = lockstitch.RULES[code]
    assert code == rule.code
    assert bool(rule.dialects) != bool(rule.formats)
    assert set(rule.dialects) <= set(PROFILES)
    assert set(rule.formats) <= {*FORMATS, OWN}
    assert all((rule.summary, rule.help, rule.what, rule.cause, rule.repair, rule.failures))
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    known = {*PROFILES, *(format_named(name).title for name in FORMATS)}
    assert {who.partition(" (")[0] for who, _ in rule.errors} <= known


@pytest.mark.parametrize("profile", PROFILES)
def test_a_rule_names_every_dialect_it_is_found_in(profile: str) -> None:
    dialect = profile.partition(":")[0]
    unnamed = {
        finding.code
        for case in CASES
        if case.code not in LARGE and case.dialect.partition(":")[0] == dialect
        for finding in lockstitch.check(case.broken, profile, model=case.model)
        if not {dialect, profile} & set(lockstitch.RULES[finding.code].dialects)
    }
    assert unnamed == set()


def test_what_is_too_large_without_an_image_comes_back_with_a_warning() -> None:
    messages = [{"role": "user", "content": "x" * (6 << 20)}]
    (finding,) = lockstitch.check(messages, "openai-responses:copilot")
    assert (finding.code, finding.place) == ("LS504", "input.0")
    with pytest.warns(lockstitch.Unhealed, match="LS504"):
        assert lockstitch.heal(messages, "openai-responses:copilot") is messages
    assert (finding.fixable, finding.lossy) == (False, False)
    assert "lockstitch compact" in finding.help  # no repair shortens it: this does


def test_no_two_rules_share_a_name() -> None:
    assert len({rule.name for rule in lockstitch.RULES.values()}) == len(lockstitch.RULES)


THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
EARLIER = THINKING | {"thinking": "First."}
LATER = THINKING | {"thinking": "Then."}


def _interrupted() -> list[Any]:
    """An open call in the middle: its answer changes all that stands behind it."""
    return [
        *ANTHROPIC.user(),
        {"role": "assistant", "content": [EARLIER, ANTHROPIC.call(A)]},
        *ANTHROPIC.user("Hello?"),
        {"role": "assistant", "content": [LATER, {"type": "text", "text": "Yes."}]},
        *ANTHROPIC.user("Good."),
    ]


def _thoughts(messages: list[Any]) -> list[Any]:
    return [
        block["thinking"]
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "thinking"
    ]


@pytest.mark.parametrize("model", [None, "some-proxy-model", "claude-fable-5-1", "claude-opus-5-5"])
def test_thinking_behind_a_repaired_place_goes(model: str | None) -> None:
    plan = lockstitch.plan(_interrupted(), "anthropic", model=model)
    assert _thoughts(plan.messages) == ["First."]
    dropped = [each for each in plan.quarantine if each.code == "LS309"]
    assert [(each.place, each.value) for each in dropped] == [("messages.3.content.0", LATER)]
    assert lockstitch.check(plan.messages, "anthropic", model=model) == []


@pytest.mark.parametrize("model", ["claude-opus-4-5", "claude-opus-4-1", "claude-fable-5"])
def test_thinking_stays_where_a_model_does_not_bind_it(model: str) -> None:
    plan = lockstitch.plan(_interrupted(), "anthropic", model=model)
    assert _thoughts(plan.messages) == ["First.", "Then."]
    assert plan.quarantine == []


def test_thinking_before_the_repaired_place_stays_the_same_object() -> None:
    messages = _interrupted()
    healed = lockstitch.heal(messages, "anthropic")
    assert healed[1] is messages[1]


def test_thinking_stays_where_only_cache_markers_changed() -> None:
    marked = [{"type": "text", "text": f"{n}.", "cache_control": {}} for n in range(5)]
    messages = [
        {"role": "user", "content": marked},
        {"role": "assistant", "content": [EARLIER, {"type": "text", "text": "Yes."}]},
        *ANTHROPIC.user("Good."),
    ]
    assert [f.code for f in lockstitch.check(messages, "anthropic")] == ["LS403"]
    assert _thoughts(lockstitch.heal(messages, "anthropic")) == ["First."]


def test_thinking_behind_an_appended_message_stays() -> None:
    messages = [
        *ANTHROPIC.user(),
        {"role": "assistant", "content": [EARLIER, ANTHROPIC.call(A)]},
    ]
    plan = lockstitch.plan(messages, "anthropic", model="claude-fable-5-1")
    assert _thoughts(plan.messages) == ["First."]
    assert plan.quarantine == []


def test_bedrock_binds_thinking_as_well() -> None:
    def thought(text: str) -> dict[str, Any]:
        return {"reasoningContent": {"reasoningText": {"text": text, "signature": "c2ln"}}}

    messages = [
        *BEDROCK.user(),
        {"role": "assistant", "content": [thought("First."), BEDROCK.call(A)]},
        *BEDROCK.user("Hello?"),
        {"role": "assistant", "content": [thought("Then."), {"text": "Yes."}]},
        *BEDROCK.user("Good."),
    ]
    unknown = lockstitch.plan(messages, "bedrock")
    assert [each.value for each in unknown.quarantine] == [thought("Then.")]
    named = lockstitch.plan(messages, "bedrock", model="us.anthropic.claude-opus-4-5-v1:0")
    assert named.quarantine == []
    assert thought("Then.") in named.messages[3]["content"]
