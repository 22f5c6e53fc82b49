"""What a request is to the conversations there are: told by what it says, and by nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from lockstitch.errors import UsageError
from lockstitch.proxy.recording import open_recorder
from lockstitch.proxy.recording.keeping import Relation, SessionTree
from lockstitch.stores.opening import open_backend
from tests.cli.journals import damage
from tests.recording.talking import Client, Heard, answer, whole

A = "anthropic"


def talked(heard: Heard, dialect: str = A, system: str = "") -> tuple[Client, str]:
    """A conversation of two turns with a call in it."""
    client = Client(dialect, system=system).say("Find the lost key")
    heard.turn(client, answer(dialect, 1, "Let me look.", "call_a", thought=True))
    client.give([("call_a", "look", "under the mat")])
    name = heard.turn(client, answer(dialect, 2, "Under the mat."))
    return client, name


def test_a_retry_is_the_same_request(heard: Heard) -> None:
    client = Client(A).say("Find the lost key")
    first, again = heard.begin(client), heard.begin(client)
    assert (first.kept.step, again.kept.step) == (Relation.NEW, Relation.REPEATS)
    assert heard.commit(again, whole(answer(A, 1, "Here."))) == first.session
    assert heard.said(first.session) == ["user: Find the lost key", "assistant: Here."]


def test_a_second_reply_to_the_same_request_is_a_branch(heard: Heard) -> None:
    client = Client(A).say("Find the lost key")
    first, again = heard.begin(client), heard.begin(client)
    one = heard.commit(again, whole(answer(A, 1, "Here.")))
    two = heard.commit(first, whole(answer(A, 2, "There.")))
    assert one != two
    assert heard.said(one) == ["user: Find the lost key", "assistant: Here."]
    assert heard.said(two) == ["user: Find the lost key", "assistant: There."]


def test_two_clients_part_where_they_differ(heard: Heard) -> None:
    one, two = Client(A).say("Hello"), Client(A).say("Hello")
    same = answer(A, 1, "Hello!")
    heard.turn(one, same)
    heard.turn(two, same)
    first = heard.turn(one.say("I am one"), answer(A, 2, "Hello, one"))
    second = heard.turn(two.say("I am two"), answer(A, 3, "Hello, two"))
    assert heard.said(first) == [
        *("user: Hello", "assistant: Hello!"),
        *("user: I am one", "assistant: Hello, one"),
    ]
    assert heard.said(second)[2:] == ["user: I am two", "assistant: Hello, two"]
    assert heard.turn(one.say("Bye"), answer(A, 4, "Bye, one")) == first
    assert heard.turn(two.say("Bye"), answer(A, 5, "Bye, two")) == second


def test_an_edited_history_is_a_fork(heard: Heard, dialect: str) -> None:
    client, name = talked(heard, dialect)
    before = heard.said(name)
    edited = Client(dialect, copy.deepcopy(client.messages[:1]))
    edited.say("No, the red one")
    fork = heard.turn(edited, answer(dialect, 3, "There is no red one."))
    assert fork != name
    assert heard.said(name) == before
    assert "There is no red one." in heard.said(fork)[-1]


def test_an_edited_reply_is_a_fork(heard: Heard, dialect: str) -> None:
    client, name = talked(heard, dialect)
    text = json.dumps(client.messages).replace("Under the mat.", "In the garden.")
    edited = Client(dialect, json.loads(text)).say("Sure?")
    fork = heard.turn(edited, answer(dialect, 3, "Sure."))
    assert heard.said(fork)[-3:] == [
        *("assistant: In the garden.", "user: Sure?", "assistant: Sure.")
    ]
    assert heard.said(name)[-1] == "assistant: Under the mat."
    assert heard.said(fork)[:3] == heard.said(name)[:3]


def _goes_on(heard: Heard, client: Client, name: str) -> None:
    client.say("Thank you")
    assert heard.turn(client, answer(client.dialect, 7, "Welcome.")) == name
    assert heard.sessions() == [name]


def test_thoughts_that_the_client_drops_do_not_matter(heard: Heard, dialect: str) -> None:
    client, name = talked(heard, dialect)
    client.messages = [_without_thoughts(message) for message in client.messages]
    client.messages = [message for message in client.messages if message]
    assert "thought 1" not in json.dumps(client.messages)
    _goes_on(heard, client, name)


def _without_thoughts(message: Any) -> Any:
    if message.get("type") == "reasoning":
        return None
    message.pop("reasoning_content", None)
    for key in ("content", "parts"):
        if isinstance(message.get(key), list):
            message[key] = [block for block in message[key] if not _is_thought(block)]
    return message


def _is_thought(block: Any) -> bool:
    kinds = ("thinking", "reasoning")
    return block.get("type") in kinds or block.get("thought") or "reasoningContent" in block


def test_cache_markers_that_move_do_not_matter(heard: Heard) -> None:
    client = Client(A)
    marker = {"cache_control": {"type": "ephemeral"}}
    names = set()
    for number in range(9):
        for message in client.messages:
            for block in message["content"]:
                block.pop("cache_control", None)
        client.messages.append({"role": "user", "content": [{"type": "text", "text": f"{number}"}]})
        client.messages[-1]["content"][0].update(marker)
        names.add(heard.turn(client, answer(A, number, f"reply {number}")))
    assert len(names) == 1
    # a request may have four markers, and each turn had one of its own
    messages = heard.request(names.pop(), A)
    assert "cache_control" not in json.dumps(messages)


def test_bedrocks_cache_points_do_not_matter(heard: Heard) -> None:
    client = Client("bedrock").say("Find it")
    client.messages[0]["content"].append({"cachePoint": {"type": "default"}})
    name = heard.turn(client, answer("bedrock", 1, "Here."))
    client.messages[0]["content"].pop()
    _goes_on(heard, client, name)


def test_a_title_is_what_a_person_said(heard: Heard) -> None:
    client = Client("openai-responses").say(
        "<environment_context>\n<cwd>/</cwd>\n</environment_context>"
    )
    heard.turn(client.say("Find it\n\tplease"), answer("openai-responses", 1, "Here."))
    assert next(heard.store.sessions()).title == "Find it please"


def test_reminders_do_not_matter(heard: Heard) -> None:
    client = Client(A)
    note = {"type": "text", "text": "<system-reminder>\nThe list is empty\n</system-reminder>"}
    client.messages.append({"role": "user", "content": [note, {"type": "text", "text": "Find it"}]})
    name = heard.turn(client, answer(A, 1, "Here."))
    assert next(heard.store.sessions()).title == "Find it"
    del client.messages[0]["content"][0]
    _goes_on(heard, client, name)
    # what was sent is kept as it was sent
    assert "The list is empty" in heard.said(name)[0]


def test_ids_that_the_client_makes_anew_do_not_matter(heard: Heard, dialect: str) -> None:
    client = Client(dialect).say("Find the lost key")
    first = heard.turn(client, answer(dialect, 1, "Let me look.", "call_a", "call_b"))
    client.give([("call_a", "look", "under the mat"), ("call_b", "look", "not there")])
    text = json.dumps(client.messages).replace('"call_a"', '"id_1"').replace('"call_b"', '"id_2"')
    client.messages = json.loads(text)
    assert heard.turn(client, answer(dialect, 2, "Under the mat.")) == first
    assert heard.said(first)[-3:] == [
        *("tool: under the mat", "tool: not there", "assistant: Under the mat.")
    ]


def test_messages_that_the_client_joins_do_not_matter(heard: Heard) -> None:
    client = Client(A).say("Find it").say("the key")
    name = heard.turn(client, answer(A, 1, "Here."))
    blocks = [{"type": "text", "text": text} for text in ("Find it", "the key")]
    client.messages[:2] = [{"role": "user", "content": blocks}]
    _goes_on(heard, client, name)


def test_white_space_and_spelling_do_not_matter(heard: Heard) -> None:
    client = Client(A).say("Find it")
    name = heard.turn(client, answer(A, 1, "Here. ", "call_a"))
    client.messages[-1]["content"][0]["text"] = "Here."
    client.messages[0]["content"] = [{"type": "text", "text": "Find it"}]
    client.give([("call_a", "look", "yes")])
    assert heard.turn(client, answer(A, 2, "Done.")) == name


def test_other_instructions_make_another_conversation(heard: Heard, dialect: str) -> None:
    one, two = Client(dialect, system="Be kind."), Client(dialect, system="Be quick.")
    first = heard.turn(one.say("Hello"), answer(dialect, 1, "Hello!"))
    second = heard.turn(two.say("Hello"), answer(dialect, 2, "Hi"))
    assert heard.said(first)[0] == "system: Be kind."
    assert heard.said(second)[0] == "system: Be quick."
    assert len(heard.sessions()) == 2


def test_instructions_that_change_in_a_conversation_are_part_of_it(heard: Heard) -> None:
    client, name = talked(heard, system="Be kind.")
    client.system = "Be quick."
    _goes_on(heard, client, name)
    assert heard.store.read(name).system(A) == "Be quick."
    # what came in between keeps what it was told
    before = Client(A, client.messages[:3], system="Be kind.")
    fork = heard.turn(before, answer(A, 9, "Elsewhere."))
    assert heard.store.read(fork).system(A) == "Be kind."


def test_instructions_that_are_taken_back(heard: Heard) -> None:
    client, name = talked(heard, system="Be kind.")
    client.system = ""
    _goes_on(heard, client, name)
    assert not heard.store.read(name).system(A)


def test_a_header_that_varies_is_no_change_of_instructions(heard: Heard) -> None:
    client, name = talked(heard, system="x-anthropic-billing-header: cch=1;\nBe kind.")
    seq = heard.store.read(name).seq
    client.system = "x-anthropic-billing-header: cch=2;\nBe kind."
    _goes_on(heard, client, name)
    assert heard.store.read(name).seq <= seq + 4


def test_a_conversation_that_the_provider_keeps(heard: Heard, url: str) -> None:
    dialect = "openai-responses"
    first = Client(dialect).say("Find the lost key")
    reply = answer(dialect, 1, "Let me look.", "call_a")
    name = heard.turn(first, reply)
    then = Client(dialect, beside={"previous_response_id": "resp_1"})
    then.give([("call_a", "look", "under the mat")])
    assert heard.turn(then, answer(dialect, 2, "Under the mat.")) == name
    other = Heard(open_backend(url))
    try:
        later = Client(dialect, beside={"previous_response_id": "resp_2"}).say("Thank you")
        assert other.turn(later, answer(dialect, 3, "Welcome.")) == name
    finally:
        other.close()
    assert heard.said(name)[1:] == [
        'assistant: Let me look.look({"q":"argument of call_a"})',
        "tool: under the mat",
        "assistant: Under the mat.",
        "user: Thank you",
        "assistant: Welcome.",
    ]
    branch = Client(dialect, beside={"previous_response_id": "resp_2"}).say("No")
    fork = heard.turn(branch, answer(dialect, 4, "Why?"))
    assert fork != name
    assert heard.said(fork)[-3:] == ["assistant: Under the mat.", "user: No", "assistant: Why?"]


def test_a_response_that_nobody_knows_begins_a_session(heard: Heard) -> None:
    dialect = "openai-responses"
    client = Client(dialect, beside={"previous_response_id": "resp_0"}).say("Go on")
    name = heard.turn(client, answer(dialect, 1, "Gladly."))
    assert heard.said(name) == ["user: Go on", "assistant: Gladly."]


def test_a_client_that_comes_with_a_history(heard: Heard, dialect: str) -> None:
    client = Client(dialect).say("Find the lost key")
    client.hear(answer(dialect, 1, "Let me look.", "call_a"))
    client.give([("call_a", "look", "under the mat")])
    client.hear(answer(dialect, 2, "Under the mat.")).say("Thank you")
    name = heard.turn(client, answer(dialect, 3, "Welcome."))
    assert [line.partition(":")[0] for line in heard.said(name)] == [
        *("user", "assistant", "tool", "assistant", "user", "assistant")
    ]
    _goes_on(heard, client, name)


def test_broken_histories_are_kept_and_sent_whole(heard: Heard, dialect: str) -> None:
    client = Client(dialect).say("Find the lost key")
    client.hear(answer(dialect, 1, "Let me look.", "call_a"))
    client.give([("call_x", "look", "nobody asked for this")])
    client.messages.append(None)
    client.say("Well?")
    name = heard.turn(client, answer(dialect, 2, "Well."))
    shown = json.dumps(heard.request(name, dialect))
    assert "nobody asked for this" in shown
    assert "Well?" in shown
    bodies = [record.body for record in heard.backend.read(name)]
    assert any(b'"name":"message"' in body and b'"payload":null' in body for body in bodies)


def test_a_late_result_finds_its_call(heard: Heard) -> None:
    dialect = "openai-responses"
    client = Client(dialect).say("Find the lost key")
    heard.turn(client, answer(dialect, 1, "Let me look.", "call_a", "call_b"))
    client.give([("call_b", "look", "not there")]).say("Well?")
    heard.turn(client, answer(dialect, 2, "Wait."))
    client.give([("call_a", "look", "under the mat")])
    name = heard.turn(client, answer(dialect, 3, "Under the mat."))
    assert "tool: under the mat" in heard.said(name)


def test_a_session_that_somebody_holds_is_forked(heard: Heard) -> None:
    client, name = talked(heard)
    with heard.store.session(name) as session:
        session.note("mine")
        client.say("Thank you")
        fork = heard.turn(client, answer(A, 3, "Welcome."))
        assert fork != name
    assert heard.said(fork)[-1] == "assistant: Welcome."
    assert len(heard.said(fork)) == len(heard.said(name)) + 2


def test_a_session_that_went_on_elsewhere_is_forked(heard: Heard) -> None:
    client, name = talked(heard)
    with heard.store.session(name) as session:
        session.say("Something else")
    fork = heard.turn(client.say("Thank you"), answer(A, 3, "Welcome."))
    assert fork != name
    assert heard.said(name)[-1] == "user: Something else"
    assert heard.said(fork)[-2:] == ["user: Thank you", "assistant: Welcome."]


def test_a_session_that_was_removed_is_not_missed(heard: Heard) -> None:
    client, name = talked(heard)
    heard.store.delete(name)
    new = heard.turn(client.say("Thank you"), answer(A, 3, "Welcome."))
    assert len(heard.said(new)) == 6


def test_a_session_that_is_damaged_is_left_alone(heard: Heard, url: str) -> None:
    client, name = talked(heard)
    damage(url, name, 4)
    other = Heard(open_backend(url))
    try:
        new = other.turn(client.say("Thank you"), answer(A, 3, "Welcome."))
        assert new != name
        assert len(other.said(new)) == 6
        assert other.turn(client.say("Bye"), answer(A, 4, "Bye.")) == new
    finally:
        other.close()


def test_conversations_that_were_forgotten_are_found_again(heard: Heard) -> None:
    heard.recorder._keeper._tree = SessionTree(most=4)  # noqa: SLF001 - room for one of them
    clients = [Client(A).say(f"Hello from {number}") for number in range(4)]
    names = [heard.turn(client, answer(A, 1, "Hello!")) for client in clients]
    for turn in range(3):
        for client, name in zip(clients, names, strict=True):
            assert heard.turn(client.say(f"More {turn}"), answer(A, 2, "Yes.")) == name
    assert sorted(names) == heard.sessions()


def test_refusals_leave_the_conversation_as_it_was(heard: Heard) -> None:
    client, name = talked(heard)
    client.say("Thank you")
    body = b'{"error": {"message": "Incorrect API key provided: sk-secret"}}'
    for status in (401, 429, 529):
        assert heard.commit(heard.begin(client), body, status) == name
    assert heard.turn(client, answer(A, 3, "Welcome.")) == name
    assert heard.sessions() == [name]
    assert not any(b"secret" in record.body for record in heard.backend.read(name))


def test_what_is_no_request_is_kept_as_it_is(heard: Heard) -> None:
    for body in (b"not json", b"[1, 2]", b'{"messages": 3}', b"\xff\xfe"):
        begun = heard.run(heard.recorder.begin(A, body, streamed=False))
        name = heard.commit(begun, whole(answer(A, 1, "What?")))
        assert "What?" in heard.shown(name)
        assert any(b"unread" in record.body for record in heard.backend.read(name))


def test_half_a_character_is_no_reason_to_lose_the_rest(heard: Heard) -> None:
    body = b'{"messages": [{"role": "user", "content": "half \\ud83d of it"}]}'
    begun = heard.run(heard.recorder.begin(A, body, streamed=False))
    name = heard.commit(begun, whole(answer(A, 1, "What?")))
    assert heard.said(name) == ["user: half ? of it", "assistant: What?"]


def test_a_reply_that_says_nothing(heard: Heard) -> None:
    client = Client(A).say("Hello")
    name = heard.turn(client, answer(A, 1, ""))
    client.messages.pop()
    client.say("Are you there?")
    there = heard.turn(client, answer(A, 2, "Yes."))
    assert heard.said(there)[-1] == "assistant: Yes."
    assert name in heard.sessions()


def test_the_keys_of_other_servers_are_not_kept(heard: Heard) -> None:
    schema = {"type": "object", "properties": {"authorization": {"type": "string"}}}
    tools = [
        {"type": "function", "name": "look", "parameters": schema},
        {
            "type": "mcp",
            "server_label": "notes",
            "server_url": "https://notes.example/?api_key=Zx81mQpLw0secret",
            "authorization": "Bearer Yt93kdLq02secret",
            "headers": {"X-Api-Key": "Wq55plMn77secret"},
        },
    ]
    servers = [{"url": "https://notes.example", "authorization_token": "Rk20vbXz19secret"}]
    beside = {"tools": tools, "mcp_servers": servers}
    client = Client("openai-responses", beside=beside).say("Hello")
    name = heard.turn(client, answer("openai-responses", 1, "Hello!"))
    kept = b"".join(record.body for record in heard.backend.read(name))
    assert b"secret" not in kept
    assert json.dumps(schema, separators=(",", ":")).encode() in kept
    seq = heard.store.read(name).seq
    heard.turn(client.say("Again"), answer("openai-responses", 2, "Again!"))
    assert heard.store.read(name).seq <= seq + 4


def test_what_was_said_is_found(heard: Heard, dialect: str) -> None:
    _, name = talked(heard, dialect)
    for words in ("lost key", "let me look", "under the mat"):
        assert {match.session for match in heard.store.search(words)} == {name}


def test_values_that_repeat_are_kept_once(heard: Heard) -> None:
    tools = [{"name": f"tool_{n}", "description": "x" * 100} for n in range(100)]
    for number in range(20):
        client = Client(A, system="Be careful. " * 200, beside={"tools": tools})
        heard.turn(client.say(f"Hello {number}"), answer(A, number, "Hello"))
    name = heard.sessions()[7]
    labels = [record.body for record in heard.backend.read(name) if b'"request"' in record.body]
    assert any(b'"label":"tools"' in body and b'"blob"' in body for body in labels)
    assert heard.store.read(name).system(A) == "Be careful. " * 200


@pytest.mark.parametrize("url", ["", "conversations.db", "jsonl:///folder", "redis://x", "memory:"])
def test_what_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--record sqlite:///"):
        open_recorder(url)


def test_an_address_that_is_wrong_is_told() -> None:
    with pytest.raises(UsageError, match="no option 'speed'"):
        open_recorder("sqlite:///a.db?speed=3")
