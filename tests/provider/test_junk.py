"""Any JSON on any route, and any reply with any fault: an answer, never an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.provider import (
    DeliveryEnd,
    Faults,
    Reply,
    Script,
    delivery_steps,
    faults_in,
)
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.apis import STREAM, RequestAddress, Wire
from lockstitch.provider.service import WIRES, RequestEntry, Service, choose_rules
from tests.conftest import EXAMPLES

some = settings(max_examples=int(EXAMPLES or 30))
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
KEYS = st.sampled_from(
    ["role", "content", "parts", "text", "type", "id", "name", "tools", "function", "toolUse"]
)
junk = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)
FIELDS = ("tools", "toolConfig", "stream", "model", "include", "stream_options", "system")
bodies = st.dictionaries(st.sampled_from(FIELDS), junk)
FAULTS = st.sampled_from(
    ["", "drop", "status=429", "status=418", "cut=2", "cut-bytes=5", "ids=missing", "ids=same"]
)
replies = st.builds(
    Reply,
    st.text(min_size=1, max_size=40),
    st.just(()) | st.just((Call("bash", {"a": "é\u2028"}), Call("grep"))),
    st.text(max_size=20),
)
HEALTHY: dict[str, Any] = {
    "anthropic": [{"role": "user", "content": "Go."}],
    "openai-chat": [{"role": "user", "content": "Go."}],
    "openai-responses": [{"role": "user", "content": "Go."}],
    "gemini": [{"role": "user", "parts": [{"text": "Go."}]}],
    "bedrock": [{"role": "user", "content": [{"text": "Go."}]}],
}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.dialect)
@some
@given(body=bodies, messages=junk, is_healthy=st.booleans(), reply=replies, fault=FAULTS)
def test_there_is_always_an_answer(
    wire: Wire, body: dict[str, Any], messages: Any, is_healthy: bool, reply: Reply, fault: str
) -> None:
    log: list[RequestEntry] = []
    service = Service(
        choose_rules([]),
        Script([reply]),
        clock=lambda: 1.5,
        log=log.append,
        faults=Faults(faults_in(fault)),
    )
    whole = {"max_tokens": 9, "model": "m", **body}
    whole[wire.list_key] = HEALTHY[wire.dialect] if is_healthy else messages
    for route in wire.routes:
        at = RequestAddress(route.path, route.asks, "" if "{model}" not in route.path else "m")
        asked = service.receive(wire, json.dumps(whole).encode(), at)
        answer = service.answer(asked, service.judge_request(asked))
        assert answer.status in {0, 200, 400, 418, 429}
        json.dumps(answer.body)
        if answer.turn is not None:
            assert route.asks == STREAM or whole.get("stream")
            *sent, end = delivery_steps(wire.stream(answer.turn), answer.fault)
            assert isinstance(end, DeliveryEnd)
            assert all(isinstance(step, bytes) for step in sent)
    assert len(log) == len(wire.routes)
