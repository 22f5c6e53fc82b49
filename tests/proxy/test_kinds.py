"""Every kind of broken list, on every route, through the proxy to the strict provider."""

from __future__ import annotations

import json

import pytest

from tests.kinds_of_break.conversations import BROKEN, HEALTHY, Conversation
from tests.oracles import problems
from tests.provider.conftest import Running
from tests.proxy.bodies import CASES, Case
from tests.proxy.conftest import Start
from tests.proxy.sending import send
from tests.proxy.upstream import Upstream

STYLES = ({}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": True})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_broken_is_accepted(proxy: Start, provider: object, case: Case) -> None:
    strict: Running = provider()  # type: ignore[operator]
    proxied = proxy(strict.url, retry=False)
    for conversation in (HEALTHY, *BROKEN):
        body = case.body(conversation.turns)
        direct = send(strict.url, case.path, body)
        got = send(proxied.url, case.path, body)
        assert got.status == 200, (conversation.name, got.data)
        was_refused = direct.status == 400
        assert was_refused == (got.header("lockstitch-repaired") is not None), conversation.name
    assert all(entry.findings == () for entry in strict.log if entry.outcome == "accepted")
    healed = [event for event in proxied.log if event.repaired]
    assert len(healed) >= len(BROKEN) - 3
    assert not any(event.left or event.error or event.retried for event in proxied.log)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_goes_out_is_valid_and_says_so(proxy: Start, upstream: Upstream, case: Case) -> None:
    proxied = proxy(upstream.url)
    for conversation in BROKEN:
        got = send(proxied.url, case.path, case.body(conversation.turns))
        sent = upstream.last.body
        assert problems(case.dialect, json.loads(sent)) == []
        event = proxied.log[-1]
        said = got.header("lockstitch-repaired")
        assert said == (", ".join(f"{k}={v}" for k, v in event.repaired.items()) or None)
        assert upstream.last.one("content-length") == str(len(sent))
        assert all("MARK" not in place for place in event.places)


@pytest.mark.parametrize("conversation", BROKEN, ids=lambda one: one.name)
@pytest.mark.parametrize("case", CASES[::2], ids=lambda case: case.name)
def test_the_same_body_is_healed_to_the_same_bytes(case: Case, conversation: Conversation) -> None:
    from lockstitch.proxy.healing import decide

    for style in STYLES:
        body = case.body(conversation.turns, **style)
        once = decide(body, case.dialect)
        assert decide(body, case.dialect) == once
        assert decide(once.data, case.dialect).data == once.data
