"""What a request costs: by what providers counted, images by their pixels, bytes as they go out."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from lockstitch.compaction.plan import (
    IMAGE_TOKENS,
    calibrated,
    estimate,
    size_of,
    usage_in,
    weights,
)
from lockstitch.session.store import Store
from tests.compaction.generated import image_in, png
from tests.compaction.talks import GOOD
from tests.journal.replies import DIALECTS
from tests.session.talk import says

USAGES: tuple[tuple[int, Any], ...] = (
    (1234, {"usage": {"input_tokens": 1234, "output_tokens": 5}}),
    (
        1234,
        {
            "usage": {
                "input_tokens": 4,
                "cache_creation_input_tokens": 230,
                "cache_read_input_tokens": 1000,
                "cache_creation": {"ephemeral_5m_input_tokens": 230},
                "output_tokens": 9,
            }
        },
    ),
    (7, {"usage": {"input_tokens": 7, "cache_read_input_tokens": None}}),
    (90, {"usage": {"prompt_tokens": 90, "completion_tokens": 9, "total_tokens": 99}}),
    (80, {"usage": {"input_tokens": 80, "input_tokens_details": {"cached_tokens": 70}}}),
    (70, {"usageMetadata": {"promptTokenCount": 70, "totalTokenCount": 80}}),
    (70, {"usage_metadata": {"prompt_token_count": 70, "cached_content_token_count": 3}}),
    (65, {"usage": {"inputTokens": 60, "outputTokens": 9, "cacheReadInputTokens": 5}}),
    (50, {"type": "ai", "usage_metadata": {"input_tokens": 50, "output_tokens": 5}}),
)


@pytest.mark.parametrize(("expected", "response"), USAGES)
def test_every_provider_says_what_a_request_cost(expected: int, response: Any) -> None:
    assert usage_in(response) == expected


SILENT = [None, 7, "x", [], {}, {"usage": None}, {"usage": {"a": 1}}, {"usageMetadata": []}]


@pytest.mark.parametrize("value", [*SILENT, {"usage": {"input_tokens": "many"}}])
def test_what_says_nothing_says_nothing(value: Any) -> None:
    assert usage_in(value) == 0


def counted(reply: dict[str, Any], tokens: int) -> dict[str, Any]:
    """A reply with what a provider counted."""
    return {**reply, "usage": {"input_tokens": tokens, "output_tokens": 1}}


def test_the_newest_figure_calibrates(store: Store) -> None:
    with store.session("s") as session:
        session.say("word " * 2000)
        guess = estimate(session.request("anthropic"))
        session.record(counted(says("anthropic"), guess * 2))
        counter = calibrated(session.state.view, "anthropic")
        assert counter(session.request("anthropic"), "anthropic") == pytest.approx(
            estimate(session.request("anthropic")) * 2, rel=0.05
        )
        session.say("more " * 2000)
        guess = estimate(session.request("anthropic"))
        session.record(counted(says("anthropic"), guess * 3 // 2))
        counter = calibrated(session.state.view, "anthropic")
        assert counter(session.request("anthropic"), "anthropic") == pytest.approx(
            estimate(session.request("anthropic")) * 3 / 2, rel=0.05
        )


def test_it_still_calibrates_behind_a_compaction(store: Store) -> None:
    """The figures of the provider are not forgotten when the first compaction comes."""
    with store.session("s") as session:
        for number in range(10):
            session.say(f"{number} " + "word " * 2000)
            guess = estimate(session.request("anthropic"))
            session.record(counted(says("anthropic"), guess * 2))
        done = session.compact(lambda _: GOOD, budget=20_000)
        assert done.rung == "summary"
        for _ in range(2):
            messages = session.request("anthropic")
            counter = calibrated(session.state.view, "anthropic")
            assert counter(messages, "anthropic") == pytest.approx(estimate(messages) * 2, rel=0.1)
            session.say("more " * 500)
            guess = estimate(session.request("anthropic"))
            session.record(counted(says("anthropic"), guess * 2))


@pytest.mark.parametrize("tokens", [1, 3, 10**9])
def test_absurd_figures_do_no_harm(store: Store, tokens: int) -> None:
    with store.session("s") as session:
        session.say("word " * 2000)
        session.request("anthropic")
        session.record(counted(says("anthropic"), tokens))
        messages = session.request("anthropic")
        count = calibrated(session.state.view, "anthropic")(messages, "anthropic")
        assert estimate(messages) <= count <= 4 * estimate(messages)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_image_is_counted_by_its_pixels(store: Store, dialect: str) -> None:
    small, large = png(300, 300, 400_000), png(4000, 3000, 800)
    for data, most, least in ((small, 200, 100), (large, 1700, 1500)):
        part = image_in(dialect, data)
        cost = estimate([part]) - estimate([image_in(dialect, "")])
        assert least < cost < most
        assert size_of([part]) > len(data)
    with store.session("s") as session:
        session.say([image_in("anthropic", small)], dialect="anthropic")
        messages = session.request(dialect)
        assert small in json.dumps(messages, default=lambda raw: base64.b64encode(raw).decode())
        assert 100 < estimate(messages) < 250


def test_bytes_as_some_clients_have_them() -> None:
    raw = base64.b64decode(png(300, 300, 400_000))
    image = {"image": {"format": "png", "source": {"bytes": raw}}}
    assert 100 < estimate([image]) < 200
    assert size_of([image]) > len(raw)
    assert estimate([{"data": "?" * 999}]) < 400


def test_an_image_of_unknown_size_has_a_price() -> None:
    data = base64.b64encode(b"no image at all" * 999).decode()
    assert IMAGE_TOKENS <= estimate([image_in("anthropic", data)]) < IMAGE_TOKENS + 60


def test_what_json_cannot_say_is_weighed_all_the_same() -> None:
    assert size_of([{"text": "half \ud83d"}]) > 10
    assert size_of([{"n": 10**40}]) > 40


def test_the_counter_can_be_replaced(store: Store) -> None:
    seen: set[str] = set()

    def counter(messages: Any, dialect: str) -> int:
        seen.add(dialect)
        return 1000 * len(messages)

    with store.session("s") as session:
        for _ in range(20):
            session.say("x")
            session.record(says("gemini"))
        done = session.compact(budget=20_000, counter=counter)
        assert done.rung == "digest"
        assert done.before.tokens >= 40_000
        assert seen == {"gemini"}
        assert done.after.tokens <= 20_000
        weighed = weights(session.state.view, "gemini", (400,), counter=counter)
        assert {weight.tokens for weight in weighed} == {1000}
