"""A message list becomes a session that says the same, and an agent goes on from there."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

import lockstitch
from lockstitch.dialects.render import read_turns, render
from lockstitch.errors import Held, UsageError
from lockstitch.session.listing import AUDIT
from lockstitch.session.store import Store
from tests.stores.contract import KINDS, Place

from .talk import DIALECTS, asks, faults, says

CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}
OTHER = {"type": "tool_use", "id": "toolu_2", "name": "bash", "input": {"command": "pwd"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "List the files."},
    {"role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL, OTHER]},
    {
        "role": "user",
        "content": [
            RESULT,
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "content": [{"type": "text", "text": "/"}],
                "is_error": True,
            },
        ],
    },
    {"role": "assistant", "content": "There is one."},
    {"role": "user", "content": [{"type": "text", "text": "And this?"}, IMAGE]},
    {"role": "assistant", "content": [{"type": "text", "text": "A picture."}]},
]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with Place(request.param, tmp_path) as place:
        yield Store(place.open())


@pytest.fixture
def memory() -> Iterator[Store]:
    with lockstitch.open("memory:") as store:
        yield store


def told(messages: list[Any], dialect: str) -> Any:
    """What a list says in no dialect's spelling, neighbours of one speaker as one."""
    turns: list[tuple[str, list[Any]]] = []
    for turn in read_turns(messages, dialect):
        said = [getattr(p, "text", None) or getattr(p, "note", p) for p in turn.pieces]
        said += [("call", c.name, c.arguments) for c in turn.calls]
        said += [
            ("answer", a.call.name, [getattr(p, "text", p) for p in a.pieces], a.failed)
            for a in turn.answers
        ]
        if turns and turns[-1][0] == turn.role:
            turns[-1][1].extend(said)
        else:
            turns.append((turn.role, said))
    return turns


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_says_the_same_in_its_own_dialect(dialect: str, memory: Store) -> None:
    messages = render(TALK, "anthropic", dialect)
    before = copy.deepcopy(messages)
    done = memory.import_messages("s", messages, dialect)
    assert messages == before
    assert (done.is_new, done.healed, done.unknown) == (True, False, 0)
    assert done.messages == len(messages)
    with memory.session("s") as session:
        assert session.turn.state == "ended"
        assert told(session.request(dialect), dialect) == told(messages, dialect)
        for other in DIALECTS:
            assert faults(other, session.request(other)) == []
        assert not session.recovered
        session.say("Go on")
        assert session.turn.is_open
        assert faults(dialect, session.request(dialect)) == []
        assert [point.kind for point in session.checkpoints] == ["batch", "turn", "turn"]


def test_the_same_again_is_done_and_another_one_is_refused(store: Store) -> None:
    first = store.import_messages("s", TALK, "anthropic", system="Be brief.")
    again = store.import_messages("s", copy.deepcopy(TALK), "anthropic", system="Be brief.")
    assert (first.is_new, again.is_new) == (True, False)
    with store.session("s") as session:
        session.say("Go on")
        session.record(says("anthropic"))
    assert store.import_messages("s", TALK, "anthropic", system="Be brief.").is_new is False
    for messages, system in ((TALK[:-2], "Be brief."), (TALK, None)):
        with pytest.raises(Held):
            store.import_messages("s", messages, "anthropic", system=system)
    with store.session("t") as session:
        session.say("Mine")
    with pytest.raises(Held):
        store.import_messages("t", TALK, "anthropic")
    (note,) = store.read("s").notes("imported")
    assert note.value == {
        "dialect": "anthropic",
        "messages": 6,
        "healed": False,
        "system": "Be brief.",
    }


def test_an_unfinished_turn_is_left_open_with_an_unknown_outcome(store: Store) -> None:
    done = store.import_messages(
        "s",
        [
            TALK[0],
            {"role": "assistant", "content": [CALL, OTHER]},
            {"role": "user", "content": [RESULT]},
        ],
        "anthropic",
    )
    assert (done.healed, done.unknown) == (True, 1)
    ran: list[str] = []

    def bash(command: str) -> str:
        ran.append(command)
        return "ran"

    with store.session("s") as session:
        assert [call.id for call in session.recovered.unknown] == ["toolu_2"]
        assert session.turn.is_open
        session.run_tools({"bash": bash})
        assert ran == []
        assert faults("anthropic", session.request("anthropic")) == []
        assert session.output(session.calls[0]) == "a.txt"
        session.run_tools({"bash": lockstitch.Tool(bash, repeatable=True)})
        session.record(says("anthropic"))
        assert session.turn.state == "ended"


def test_what_may_be_repeated_is_run_again(memory: Store) -> None:
    memory.import_messages("s", [TALK[0], {"role": "assistant", "content": [CALL]}], "anthropic")
    with memory.session("s") as session:
        session.run_tools(
            {"bash": lockstitch.Tool(lambda command: f"{command} ran", repeatable=True)}
        )
        assert session.output(session.calls[0]) == "ls ran"


def test_a_broken_list_is_healed_and_kept_as_it_was(store: Store) -> None:
    broken = [
        TALK[0],
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": "Are you there?"},
    ]
    assert lockstitch.check(broken, "anthropic")
    done = store.import_messages("s", broken)
    assert (done.healed, done.dialect, done.unknown) == (True, "anthropic", 0)
    with store.session("s") as session:
        assert session.turn.is_open
        assert not session.recovered
        assert faults("anthropic", session.request("anthropic")) == []
        assert session.notes("imported")[0].value["original"] == broken
    assert store.import_messages("s", broken).is_new is False


def test_objects_and_bodies_are_taken_in(memory: Store) -> None:
    memory.import_messages("objects", [HumanMessage("Hello"), AIMessage("Hi")])
    assert memory.read("objects").turn.state == "ended"
    body = {"model": "m", "max_tokens": 5, "system": "Be brief.", "messages": TALK}
    done = memory.import_messages("body", body, "anthropic")
    assert done.messages == 6
    assert memory.read("body").notes()[0].value["system"] == "Be brief."
    system = {"role": "system", "content": "Be brief."}
    memory.import_messages("chat", [system, {"role": "user", "content": "Hello"}], "openai-chat")
    assert memory.read("chat").notes()[0].value["system_messages"] == [system]


def test_what_is_no_list_is_refused(memory: Store) -> None:
    for wrong in ("text", {"x": 1}, 5):
        with pytest.raises(UsageError):
            memory.import_messages("s", wrong, "anthropic")
    with pytest.raises(UsageError):
        memory.import_messages(AUDIT, TALK, "anthropic")
    with pytest.raises(UsageError):
        memory.import_messages("s", TALK, "nothing")
    assert list(memory.sessions()) == []


def test_replies_keep_what_only_their_issuer_knows(memory: Store) -> None:
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk", "unknown": [1.0, 2]}
    reply = {
        "role": "assistant",
        "content": [signed, {"type": "text", "text": "Yes."}],
        "odd": None,
    }
    memory.import_messages("s", [{"role": "user", "content": "Really?"}, reply], "anthropic")
    assert memory.read("s").request("anthropic")[1]["content"][0] == signed


def test_turns_of_a_session_come_back_as_they_were(memory: Store) -> None:
    with memory.session("a") as session:
        session.say("Hello")
        session.record(asks("openai-chat", ("c1", "look", {"x": 1})))
        session.run_tools({"look": lambda x: f"seen {x}"})
        session.record(says("openai-chat"))
        messages = session.request("openai-chat")
    memory.import_messages("b", messages, "openai-chat")
    assert memory.read("b").request("openai-chat") == messages


def test_what_the_system_said_is_told_again(memory: Store) -> None:
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    memory.import_messages("a", TALK, "anthropic", system=blocks)
    assert memory.read("a").system("anthropic") == "Be brief."
    assert memory.read("a").request("openai-chat")[0]["content"] == "Be brief."
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": "Use tools."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "system", "content": "Be quick."},
        {"role": "user", "content": "And?"},
    ]
    memory.import_messages("b", messages, "openai-chat")
    request = memory.read("b").request("openai-chat")
    assert [(m["role"], m["content"]) for m in request[:2]] == [
        ("system", "Be kind."),
        ("developer", "Use tools."),
    ]
    said = [str(m["content"]) for m in request]
    assert sum("Be quick." in text for text in said) == 1
    assert "Be quick." in "".join(said[4:])
    assert memory.read("b").notes("imported")[0].value["original"] == messages
    assert memory.read("b").turn.is_open
