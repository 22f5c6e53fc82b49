"""Conversations of every dialect, whole and streamed, become one session each that goes on."""

from __future__ import annotations

import json

import pytest

import lockstitch
from lockstitch.stores.opening import open_backend
from tests.recording.talking import Client, Heard, answer, streamed, whole


def three_turns(heard: Heard, client: Client, *, stream: bool) -> list[str]:
    """Words, two calls and their results, words again; gives the sessions they went to."""

    def heard_by(number: int, text: str, *calls: str) -> str:
        reply = answer(client.dialect, number, text, *calls, thought=bool(calls))
        if not stream:
            return heard.turn(client, reply)
        chunks, _ = streamed(client.dialect, text, *calls, thought="hm" if calls else "")
        name = heard.commit(heard.begin(client), chunks)
        client.hear(reply)
        return name

    client.say("Find the lost key")
    first = heard_by(1, "Let me look.", "call_a", "call_b")
    client.give([("call_a", "look", "under the mat"), ("call_b", "look", "not there")])
    second = heard_by(2, "It is under the mat.")
    client.say("Thank you")
    return [first, second, heard_by(3, "You are welcome.")]


SAID = [
    "system: Be careful.",
    "user: Find the lost key",
    'assistant: Let me look.look({"q":"argument of call_a"}) look({"q":"argument of call_b"})',
    "tool: under the mat",
    "tool: not there",
    "assistant: It is under the mat.",
    "user: Thank you",
    "assistant: You are welcome.",
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_conversation_is_one_session(heard: Heard, dialect: str, stream: bool) -> None:
    names = three_turns(heard, Client(dialect, system="Be careful."), stream=stream)
    assert len(set(names)) == 1
    assert heard.sessions() == names[:1]
    assert [line.replace('": "', '":"') for line in heard.said(names[0])] == SAID
    own = heard.request(names[0], dialect)
    assert not lockstitch.check(own, dialect)
    listed = next(heard.store.sessions())
    assert listed.title == "Find the lost key"
    assert listed.metadata == {"dialect": dialect, "model": "a-model"}


def test_a_session_goes_on_with_the_library(heard: Heard, dialect: str) -> None:
    name = three_turns(heard, Client(dialect), stream=False)[-1]
    with heard.store.session(name) as session:
        session.say("And where is the door?")
        session.record(whole(answer(dialect, 9, "Behind you.")), dialect)
        assert not session.turn.is_open
    assert heard.said(name)[-2:] == ["user: And where is the door?", "assistant: Behind you."]


def test_an_open_call_is_left_for_the_library_to_run(heard: Heard, dialect: str) -> None:
    client = Client(dialect).say("Find it")
    name = heard.turn(client, answer(dialect, 1, "Let me look.", "call_a"))
    with heard.store.session(name) as session:
        session.run_tools({"look": lambda q: f"found {q}"})
        assert session.turn.is_open
    assert heard.said(name)[-1] == "tool: found argument of call_a"


def test_what_was_signed_goes_back_as_it_came(heard: Heard, dialect: str) -> None:
    client = Client(dialect).say("Think")
    reply = answer(dialect, 1, "I did.", thought=True)
    name = heard.turn(client, reply)
    own = json.dumps(heard.request(name, dialect))
    for message in reply.messages:
        assert json.dumps(message) in own


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_another_process_goes_on_where_one_was(
    heard: Heard, url: str, dialect: str, stream: bool
) -> None:
    client = Client(dialect, system="Be careful.")
    name = three_turns(heard, client, stream=stream)[-1]
    other = Heard(open_backend(url))
    try:
        client.say("Again")
        assert other.turn(client, answer(dialect, 4, "Gladly.")) == name
        client.say("And again")
        assert heard.turn(client, answer(dialect, 5, "Still gladly.")) == name
    finally:
        other.close()
    assert len(heard.said(name)) == len(SAID) + 4


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.95])
def test_of_a_stream_that_is_cut_off_what_came_is_kept(
    heard: Heard, dialect: str, share: float
) -> None:
    text = "The key is under the mat, where it always was."
    chunks, _ = streamed(dialect, text, "call_a")
    data = b"".join(chunks)
    client = Client(dialect).say("Find the lost key")
    name = heard.commit(heard.begin(client), data[: int(len(data) * share)], complete=False)
    shown = heard.shown(name)
    assert "Find the lost key" in shown
    assert share < 0.5 or "The key is" in shown
    # it is not sent again: the model is asked anew
    assert heard.said(name) == ["user: Find the lost key"]
    # the client asks again and goes on from the reply that it has
    again = heard.turn(client, answer(dialect, 2, text))
    assert heard.said(again) == ["user: Find the lost key", f"assistant: {text}"]
    assert heard.shown(name) == shown
    client.say("Thank you")
    assert heard.turn(client, answer(dialect, 3, "Welcome.")) == again


def test_a_client_that_keeps_what_came_goes_on_in_the_same_session(heard: Heard) -> None:
    chunks, _ = streamed("anthropic", "The key is under the mat")
    client = Client("anthropic").say("Find the lost key")
    name = heard.commit(heard.begin(client), chunks[:-4], complete=False)
    kept = "The key is under the"
    assert heard.shown(name).rstrip().endswith(kept)
    client.messages.append({"role": "assistant", "content": kept})
    client.say("Go on")
    assert heard.turn(client, answer("anthropic", 2, "Under the mat.")) == name
    assert len(heard.said(name)) == 4


def test_a_stream_of_geminis_without_server_sent_events(heard: Heard) -> None:
    chunks, _ = streamed("gemini", "Under the mat.", "call_a")
    listed = b"[" + b",\r\n".join(c.removeprefix(b"data: ").strip() for c in chunks)
    client = Client("gemini").say("Find it")
    assert heard.said(heard.commit(heard.begin(client), listed + b"]"))[1].startswith(
        "assistant: Under the mat.look("
    )
    other = Client("gemini").say("Find it again")
    cut = heard.commit(heard.begin(other), listed[:-30], complete=False)
    assert "Under the" in heard.shown(cut)


def test_a_session_is_exported_in_every_dialect(heard: Heard, dialect: str) -> None:
    name = three_turns(heard, Client(dialect), stream=False)[-1]
    for other in ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock"):
        messages = heard.request(name, other)
        assert not lockstitch.check(messages, other)
        assert "under the mat" in json.dumps(messages)
