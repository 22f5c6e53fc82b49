"""A valid request is forwarded byte for byte, whoever wrote it and however it is spelled."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.heal import check
from lockstitch.proxy.healing import decide, is_clean, is_proven
from tests.healthy import anthropic, bedrock, gemini, openai_chat, openai_responses
from tests.property.strategies import mutated, structured, with_junk
from tests.proxy.bodies import CASES, EACH_DIALECT, Case
from tests.proxy.identity import generated, passed

HISTORIES = {
    "anthropic": anthropic.HISTORIES,
    "openai-chat": openai_chat.HISTORIES,
    "openai-responses": openai_responses.HISTORIES,
    "gemini": gemini.HISTORIES,
    "gemini-snake": gemini.HISTORIES,
    "bedrock": bedrock.HISTORIES,
}
EXAMPLES = int(os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES", "20"))
each_dialect = pytest.mark.parametrize("case", EACH_DIALECT, ids=lambda case: case.form)


def body_of(case: Case, history: Any) -> dict[str, Any]:
    """The request as it is on the wire, where Bedrock's bytes are text."""
    body = history if isinstance(history, dict) else case.around(history)
    found: dict[str, Any] = json.loads(dump(body))
    return found


def dump(value: Any, **style: Any) -> str:
    return json.dumps(value, default=lambda data: b64encode(data).decode(), **style)


def test_generated_requests_arrive_as_they_were_sent() -> None:
    counts = passed(generated(250, seed=20))
    assert (counts.total(), len(counts)) == (250, len(CASES))


def test_healthy_histories_arrive_as_they_were_sent() -> None:
    requests = [
        (case, json.dumps(body_of(case, history)).encode())
        for case in EACH_DIALECT
        for history in HISTORIES[case.form].values()
        if not any(f.severity == "error" for f in check(body_of(case, history), case.dialect))
    ]
    assert len(requests) > 150
    assert passed(requests).total() == len(requests)


@each_dialect
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_what_the_quick_proof_passes_breaks_no_rule(case: Case, data: st.DataObject) -> None:
    made = data.draw(st.one_of(structured(case.dialect), mutated(case.dialect)))
    model = data.draw(st.sampled_from((None, "gemini-3-pro", "claude-opus-5-5", "gpt-5")))
    body = {**case.around(made), "model": model}
    text = dump(body)
    body = json.loads(text)
    if is_clean(text.encode()) and is_proven(body, case.dialect, model):
        assert [f for f in check(body, case.dialect, model=model) if f.severity == "error"] == []


def test_everyday_requests_are_proven() -> None:
    """Else the quick proof would be right, and of no use."""
    proven = [
        is_clean(body) and is_proven(json.loads(body), case.dialect, None)
        for case, body in generated(200, seed=7)
        if case.form != "gemini-snake"
    ]
    assert sum(proven) / len(proven) > 0.5


@each_dialect
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_healed_bytes_are_the_plan_and_the_rest_is_untouched(
    case: Case, data: st.DataObject
) -> None:
    made = data.draw(st.one_of(structured(case.dialect), with_junk(case.dialect)))
    body = {"x": "kept \u00e9", **case.around(made)}
    style = data.draw(st.sampled_from(({}, {"separators": (",", ":")}, {"indent": 2})))
    ascii_only = data.draw(st.booleans())
    text = dump(body, ensure_ascii=ascii_only, **style).encode("utf-8", "surrogatepass")
    found = decide(text, case.dialect)
    assert decide(text, case.dialect) == found
    if found.repaired:
        assert decide(found.data, case.dialect).data == found.data
        left = [f for f in check(json.loads(found.data), case.dialect) if f.severity == "error"]
        assert left == []
    else:
        assert found.data == text
