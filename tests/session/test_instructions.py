"""System and developer messages: facts of the session, wherever a dialect has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import lockstitch
from lockstitch.dialects.profiles import PROFILES
from lockstitch.errors import UsageError
from lockstitch.journal.projection import wanted_blobs
from lockstitch.journal.requests import project
from lockstitch.session.store import Store

from .talk import DIALECTS, faults, says
from .twins import Twin, check_everywhere

BESIDE = {"anthropic": "Be brief.", "gemini": "Be brief.", "bedrock": [{"text": "Be brief."}]}
FIRST: dict[str, Any] = {
    "openai-chat": {"role": "system", "content": "Be brief."},
    "openai-responses": {
        "type": "message",
        "role": "system",
        "content": [{"type": "input_text", "text": "Be brief."}],
    },
    "langchain": {"type": "system", "content": "Be brief."},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_they_stand_where_the_dialect_has_them(twin: Twin, store: Store, dialect: str) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            for _ in range(2):
                await session.instruct("Be brief.")
            assert session.seq == 1, "the same again is nothing new"
            for number in range(6):
                await session.say(f"Go {number}")
                messages = await session.request(dialect)
                assert (session.inner if twin.kind == "sync" else session).system(
                    dialect
                ) == BESIDE.get(dialect)
                assert messages[0] == FIRST.get(dialect, messages[0])
                assert sum(message == messages[0] for message in messages) == 1
                assert faults(dialect, messages) == []
                await session.record(says("anthropic"))
            await check_everywhere(session)

    twin.run(body)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_two_instructions_are_valid_under_every_profile(store: Store, profile: str) -> None:
    """A chat template takes one system message: both are in it, and neither is lost."""
    with store.session("s") as session:
        session.instruct("Be brief.")
        session.instruct("Use metric units.", role="developer")
        session.say("Go")
        messages = session.request(profile)
        assert lockstitch.check(list(messages), profile) == []
        sent = f"{json.dumps(list(messages))} {session.system(profile)}"
        assert "Be brief." in sent
        assert "Use metric units." in sent


def test_the_last_one_counts_and_a_rewind_takes_it_back(store: Store) -> None:
    with store.session("s") as session:
        session.instruct("Be brief.")
        session.instruct("Use metric units.", role="developer")
        session.say("Go")
        session.checkpoint("here")
        session.instruct("Be " + "very " * 30_000 + "brief.")
        assert session.instructions["system"].startswith("Be very very")
        assert session.request("openai-chat")[1] == {
            "role": "developer",
            "content": "Use metric units.",
        }
        assert session.request("openai-chat:mistral")[1]["role"] == "system"
        assert session.system("anthropic").endswith("brief.\n\nUse metric units.")
        session.rewind("here")
        assert session.instructions == {"system": "Be brief.", "developer": "Use metric units."}
        session.instruct("", role="developer")
        assert session.instructions == {"system": "Be brief."}
    reader = store.read("s")
    view = reader.state.view
    blobs: dict[str, bytes] = {}
    assert wanted_blobs(view) == []
    assert project(view, "openai-chat", blobs=blobs) == reader.request("openai-chat")


def test_a_compaction_leaves_them(store: Store) -> None:
    with store.session("s") as session:
        session.instruct("Be brief.")
        for number in range(8):
            session.say(f"Case {number}: " + "words " * 400)
            session.record(says("anthropic", "Done. " + "more " * 400))
        session.compact(budget=2_500, dialect="openai-chat")
        assert session.request("openai-chat")[0] == FIRST["openai-chat"]


def test_wrong_roles_are_refused(store: Store) -> None:
    with store.session("s") as session:
        for wrong in ("user", "", None):
            with pytest.raises(UsageError):
                session.instruct("x", role=wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            session.instruct(5)  # type: ignore[arg-type]
        assert session.seq == 0
