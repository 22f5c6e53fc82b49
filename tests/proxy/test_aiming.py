"""One repair and one retry for a refusal that names what to look at; none for any other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstitch.dialects.profiles import profile_named
from lockstitch.proxy.healing import HealDecision, decide, look_again
from lockstitch.rules import RULES
from tests.kinds_of_break.conversations import BROKEN, HEALTHY
from tests.provider.conftest import Running
from tests.proxy.bodies import CASES
from tests.proxy.conftest import Start
from tests.proxy.sending import send
from tests.proxy.upstream import Upstream, Wire

MESSAGES, _, CHAT, *_ = CASES
PREFILL = (
    "This model does not support assistant message prefill. The conversation must end with a user "
    "message."
)


def refusal(text: str) -> bytes:
    error = {"type": "invalid_request_error", "message": text}
    return json.dumps({"type": "error", "error": error}).encode()


def refusing(upstream: Upstream, text: str, *, times: int) -> None:
    """Let the upstream refuse so many requests, and take what comes then."""

    def script(wire: Wire) -> None:
        if len(upstream.seen) <= times:
            wire.whole(refusal(text), "400 Bad Request", "Content-Type: application/json")
        else:
            wire.whole(b'{"ok":true}')

    upstream.script = script


def body(*messages: Any, **more: Any) -> bytes:
    return json.dumps({"model": "house-model", "messages": [*messages], **more}).encode()


ASK = {"role": "user", "content": "hello"}
SAID = {"role": "assistant", "content": "half an ans"}


def test_an_unknown_model_that_takes_no_prefill(proxy: Start, upstream: Upstream) -> None:
    refusing(upstream, PREFILL, times=1)
    proxied = proxy(upstream.url)
    got = send(proxied.url, MESSAGES.path, body(ASK, SAID))
    assert (got.status, got.header("lockstitch-retried")) == (200, "1")
    assert got.header("lockstitch-repaired") == "LS407=1"
    assert [len(json.loads(seen.body)["messages"]) for seen in upstream.seen] == [2, 3]
    assert [event.retried for event in proxied.log] == [True]


def test_it_is_never_more_than_one(proxy: Start, upstream: Upstream) -> None:
    refusing(upstream, PREFILL, times=9)
    got = send(proxy(upstream.url).url, MESSAGES.path, body(ASK, SAID))
    assert (got.status, got.data) == (400, refusal(PREFILL))
    assert len(upstream.seen) == 2


def test_a_request_that_is_not_what_the_refusal_says_is_not_sent_again(
    proxy: Start, upstream: Upstream
) -> None:
    refusing(upstream, PREFILL, times=9)
    got = send(proxy(upstream.url).url, MESSAGES.path, body(ASK))
    assert (got.status, got.data) == (400, refusal(PREFILL))
    assert got.header("lockstitch-retried") is None
    assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    "text",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "messages: text content blocks are wonderful",
        "Your credit balance is too low",
        "messages.1.content.0: unknown",
        "",
    ],
)
def test_other_refusals_pass(proxy: Start, upstream: Upstream, text: str) -> None:
    refusing(upstream, text, times=9)
    got = send(proxy(upstream.url).url, MESSAGES.path, body(ASK, SAID))
    assert (got.status, got.data) == (400, refusal(text))
    assert len(upstream.seen) == 1


def test_refusals_of_other_routes_and_statuses_pass(proxy: Start, upstream: Upstream) -> None:
    refusing(upstream, PREFILL, times=9)
    url = proxy(upstream.url).url
    assert send(url, "/v1/messages/batches", body(ASK, SAID)).status == 400
    assert len(upstream.seen) == 1
    upstream.script = lambda wire: wire.whole(refusal(PREFILL), "422 No")
    assert send(url, MESSAGES.path, body(ASK, SAID)).status == 422
    assert len(upstream.seen) == 2


def test_it_can_be_turned_off(proxy: Start, upstream: Upstream) -> None:
    refusing(upstream, PREFILL, times=9)
    send(proxy(upstream.url, retry=False).url, MESSAGES.path, body(ASK, SAID))
    assert len(upstream.seen) == 1


def test_thinking_is_dropped_only_if_its_provider_says_that_it_is_bound(
    proxy: Start, upstream: Upstream
) -> None:
    """What came behind a healed place came to a healed request, and may well be bound to it."""
    call = {"type": "tool_use", "id": "t1", "name": "bash", "input": {}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    messages = [
        ASK,
        {"role": "assistant", "content": [call]},
        ASK,
        {"role": "assistant", "content": [thought, {"type": "text", "text": "ok"}]},
        ASK,
    ]
    tools = [{"name": "bash", "input_schema": {"type": "object"}}]
    sent = body(*messages, tools=tools)
    url = proxy(upstream.url).url
    assert send(url, MESSAGES.path, sent).header("lockstitch-repaired") == "LS101=1"
    assert b"c2ln" in upstream.last.body
    upstream.seen.clear()
    bound = (
        "messages.4.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
        "different conversation."
    )
    refusing(upstream, bound, times=1)
    got = send(url, MESSAGES.path, sent)
    assert (got.status, got.header("lockstitch-repaired")) == (200, "LS101=1, LS309=1")
    assert [b"c2ln" in seen.body for seen in upstream.seen] == [True, False]


def test_a_server_with_rules_of_its_own(proxy: Start, provider: Any) -> None:
    """The words are Mistral's, so that Mistral's rules are looked at; they find what is wrong."""
    strict: Running = provider(profiles=("openai-chat:mistral",))
    url = proxy(strict.url).url
    statuses = [
        send(url, CHAT.path, CHAT.body(conversation.turns)).status
        for conversation in (HEALTHY, *BROKEN)
    ]
    assert "refused" in {entry.outcome for entry in strict.log}
    # of two of them nobody knows the words in which Mistral refuses it
    assert statuses.count(200) >= len(statuses) - 2


def test_named_rules_need_no_refusal(proxy: Start, provider: Any) -> None:
    from lockstitch.proxy import Upstream as Target

    strict: Running = provider(profiles=("openai-chat:mistral",))
    named = (Target(url=strict.url, profile="openai-chat:mistral"),)
    url = proxy("", upstreams=named).url
    for conversation in (HEALTHY, *BROKEN):
        assert send(url, CHAT.path, CHAT.body(conversation.turns)).status == 200
    assert {entry.outcome for entry in strict.log} == {"accepted"}


def test_no_words_of_any_rule_make_a_healthy_request_another() -> None:
    """Whatever is said of it: where the rules find nothing, nothing is changed."""
    for case in CASES:
        healthy = case.body(HEALTHY.turns)
        before = decide(healthy, case.dialect)
        for rule in RULES.values():
            for who, text in rule.errors:
                if profile_named(case.dialect).dialect != who.partition(":")[0].partition(" ")[0]:
                    continue
                said = refusal(text.replace("<N>", "1").replace("<M>", "0"))
                found = look_again(healthy, before, case.dialect, None, said)
                plain = ":" not in who
                assert found is None or not plain, (case.name, rule.code, who)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"[1]", b'{"error": 7}', b"\xff", b'"x"'])
def test_refusals_that_say_nothing(text: bytes) -> None:
    assert look_again(b"{}", HealDecision(b"{}"), "anthropic", None, text) is None
