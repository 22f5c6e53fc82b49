"""Requests of a session share what is old; what a caller does to one shows nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lockstitch

MARK = {"type": "ephemeral"}


def _reply(number: int) -> dict[str, Any]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "grep", "input": {"n": [number]}}
    words = {"type": "text", "text": f"I look {number} times."}
    return {"role": "assistant", "model": "m", "content": [words, call]}


def _go_on(session: Any, number: int) -> None:
    session.record(_reply(number), "anthropic")
    session.run_tools({"grep": lambda n: f"found {n}"})


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with lockstitch.open(f"sqlite:///{tmp_path}/s.db") as opened:
        yield opened


def _anew(store: Any) -> Any:
    return store.read("s").request("anthropic")


def test_cache_markers_of_every_turn_never_add_up(store: Any) -> None:
    with store.session("s") as session:
        session.say("Count")
        for number in range(30):
            messages = session.request("anthropic")
            assert "cache_control" not in json.dumps(messages)
            for message in messages[-3:]:
                message["content"][-1]["cache_control"] = MARK
            assert json.dumps(messages).count("cache_control") == min(number * 2 + 1, 3)
            _go_on(session, number)
        assert session.request("anthropic") == _anew(store)
        assert "cache_control" not in json.dumps(_anew(store))


def _spoil(messages: list[Any]) -> None:
    for message in messages:
        for block in message["content"]:
            block["text"] = "redacted"
            if "input" in block:
                block["input"]["n"].append("x")
        message["content"].append({"type": "text", "text": "more"})
        message["role"] = "nobody"


def test_a_caller_who_spoils_all_of_a_request_spoils_no_other(store: Any) -> None:
    with store.session("s") as session:
        session.say("Count")
        kept = []
        for number in range(12):
            first, second = session.request("anthropic"), session.request("anthropic")
            before = json.dumps(second)
            _spoil(first)
            first.clear()
            assert json.dumps(second) == before == json.dumps(_anew(store))
            kept.append((second, before))
            _go_on(session, number)
        _spoil(session.request("anthropic"))
        assert [json.dumps(messages) for messages, _ in kept] == [text for _, text in kept]


def test_a_reader_that_follows_shares_too(store: Any) -> None:
    with store.session("s") as session:
        session.say("Count")
        copy = store.read("s")
        for number in range(12):
            _go_on(session, number)
            copy.refresh()
            assert copy.request("anthropic") == session.request("anthropic") == _anew(store)
