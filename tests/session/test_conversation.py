"""Talking: what was said and replied is in the next request, in every dialect, once."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from lockstitch.errors import Closed, Held, Unreadable, UsageError
from lockstitch.journal.events import INLINE
from lockstitch.session.store import Store

from .talk import asks, faults, says, texts
from .twins import Twin, check_everywhere


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_a_turn_from_the_first_word_to_the_last(twin: Twin, store: Store, dialect: str) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            assert session.turn.state == "none"
            turn = await session.say("What is 1 + 2?")
            assert (turn.state, turn.began, turn.is_open) == ("open", 1, True)
            await session.request(dialect)
            turn = await session.record(asks(dialect, ("c1", "add", {"a": 1, "b": 2})))
            assert [(c.name, c.arguments) for c in turn.calls] == [("add", {"a": 1, "b": 2})]
            (call,) = await session.run_tools({"add": twin.tool(lambda a, b: a + b)})
            assert (call.outcome, await session.output(call)) == ("ok", "3")
            await check_everywhere(session)
            turn = await session.record(says(dialect, "It is 3."))
            assert (turn.state, turn.is_open) == ("ended", False)
            await check_everywhere(session)
            assert texts(await session.request("openai-chat"), "assistant")[-1] == "It is 3."
            assert [c.kind for c in session.checkpoints] == ["batch", "turn"]

    twin.run(body)


def test_the_same_key_says_nothing_twice(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Hello", key="web-1")
            seq = session.seq
            await session.say("Hello", key="web-1")
            assert session.seq == seq
            await session.record(says("anthropic", "Hi"), key="web-1")
            seq = session.seq
            await session.record(says("anthropic", "Hi"), key="web-1")
            assert session.seq == seq
        async with twin.opened(store) as session:
            await session.say("Hello", key="web-1")
            assert session.seq == seq

    twin.run(body)


def test_what_was_taken_back_can_be_said_again_under_its_key(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Hello", key="k")
            await session.interrupt()
            await session.revert_interrupted()
            assert texts(await session.request("openai-chat"), "user") == []
            await session.say("Hello", key="k")
            await session.say("Hello", key="k")
            assert texts(await session.request("openai-chat"), "user") == ["Hello"]

    twin.run(body)


def test_what_is_said_while_a_batch_is_open_stands_behind_it(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Look")
            await session.record(asks("openai-chat", ("c1", "look", {})))
            await session.say("And hurry")
            await check_everywhere(session)
            roles = [m["role"] for m in await session.request("openai-chat")]
            assert roles == ["user", "assistant", "tool", "user"]

    twin.run(body)


def test_a_reply_stands_behind_what_it_answers_whoever_made_the_request(
    twin: Twin, store: Store
) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One")
            await session.request("anthropic")
            await session.record(says("anthropic", "First"))
            await session.say("Two")
            await session.record(says("anthropic", "Second"))
            await session.rewind(session.checkpoints[0])
            await session.say("Three")
            await session.record(says("anthropic", "Third"))
            messages = await session.request("openai-chat")
            assert [m["content"] for m in messages] == ["One", "First", "Three", "Third"]
            await session.undo_rewind()
            messages = await session.request("openai-chat")
            assert [m["content"] for m in messages] == ["One", "First", "Two", "Second"]

    twin.run(body)


def test_a_large_reply_and_a_large_result_come_back_from_their_blobs(
    twin: Twin, disk: Store
) -> None:
    large = "x" * (INLINE + 1)

    async def body() -> None:
        async with twin.opened(disk) as session:
            await session.say("Go")
            await session.record(asks("anthropic", ("c1", "echo", {"text": large})))
        async with twin.opened(disk) as session:
            (call,) = await session.run_tools({"echo": twin.tool(lambda text: text)})
            assert call.arguments == {"text": large}
            assert await session.output(call) == large
            assert large in json.dumps(await session.request("gemini"))

    twin.run(body)


def test_content_blocks_are_said_in_a_dialect(twin: Twin, store: Store) -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}

    async def body() -> None:
        async with twin.opened(store) as session:
            blocks = [{"type": "image", "source": picture}, {"type": "text", "text": "What is it?"}]
            await session.say(blocks, dialect="anthropic")
            assert (await session.request("anthropic"))[0]["content"] == blocks
            assert "image_url" in json.dumps(await session.request("openai-chat"))
            with pytest.raises(UsageError, match="dialect"):
                await session.say(blocks)
            with pytest.raises(UsageError, match="unknown dialect"):
                await session.say(blocks, dialect="klingon")

    twin.run(body)


def test_what_is_no_reply_is_not_recorded(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Hi")
            with pytest.raises(UsageError):
                await session.record({"type": "error", "error": {"type": "overloaded_error"}})
            with pytest.raises(UsageError):
                await session.record(object())
            assert session.seq == 1

    twin.run(body)


def test_a_turn_left_open_on_purpose_is_not_called_a_crash(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One step a process")
        async with twin.opened(store) as session:
            assert not session.recovered
            assert session.turn.state == "open"
            await session.record(asks("anthropic", ("c1", "look", {})))
        async with twin.opened(store) as session:
            assert not session.recovered
            (call,) = await session.run_tools({"look": twin.tool(lambda: "seen")})
            assert call.outcome == "ok"

    twin.run(body)


def test_an_exception_leaves_the_turn_open(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async def failing() -> None:
            async with twin.opened(store) as session:
                await session.say("Look")
                await session.record(asks("anthropic", ("c1", "look", {})))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await failing()
        async with twin.opened(store) as session:
            assert session.turn.state == "open", "nobody asked for the turn to end"
            assert [c.status for c in session.recovered.never_started] == ["open"]
            await check_everywhere(session)

    twin.run(body)


def test_rewind_and_back(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One")
            await session.record(says("anthropic", "First"))
            await session.checkpoint("here")
            await session.say("Two")
            await session.record(says("anthropic", "Second"))
            first, here, second = session.checkpoints
            assert (here.kind, here.label) == ("named", "here")
            for place in ("here", here, here.seq, first):
                await session.rewind(place)
                assert texts(await session.request("openai-chat"), "user") == ["One"]
                await session.undo_rewind()
                assert texts(await session.request("openai-chat"), "user") == ["One", "Two"]
            await session.rewind(first)
            await session.say("Three")
            await session.undo_rewind()
            assert texts(await session.request("openai-chat"), "user") == ["One", "Two"]
            with pytest.raises(UsageError, match="nothing was rewound"):
                await session.undo_rewind()
            await session.rewind("here")
            await session.say("Four")
            await session.rewind(first)
            for shown in (["One", "Four"], ["One", "Two"]):
                await session.undo_rewind()
                assert texts(await session.request("openai-chat"), "user") == shown
            await check_everywhere(session)
            for wrong in ("nowhere", 999, -1, None, 1.5):
                with pytest.raises(UsageError):
                    await session.rewind(wrong)
            assert second.kind == "turn"

    twin.run(body)


def test_rewinding_to_where_a_tool_ran_leaves_nothing_running(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Go")
            await session.record(asks("openai-chat", ("c1", "look", {})))
            await session.run_tools({"look": twin.tool(lambda: "seen")})
            await session.rewind(3)
            assert [c.outcome for c in session.calls] == ["unknown"]
            await check_everywhere(session)

    twin.run(body)


def test_nothing_to_undo_and_nothing_to_revert_is_said(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One")
            with pytest.raises(UsageError):
                await session.undo_rewind()
            with pytest.raises(UsageError):
                await session.revert_interrupted()

    twin.run(body)


def test_reverting_goes_back_to_before_the_interrupted_turn(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One")
            await session.record(says("anthropic", "First"))
            await session.say("Two")
            await session.record(asks("anthropic", ("c1", "look", {})))
            turn = await session.interrupt()
            assert turn.state == "interrupted"
            turn = await session.revert_interrupted()
            assert turn.state == "ended"
            assert texts(await session.request("openai-chat"), "user") == ["One"]
            await check_everywhere(session)

    twin.run(body)


def test_notes_are_kept_and_no_model_sees_them(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One")
            await session.note("cost", {"usd": 0.01})
            assert "cost" not in json.dumps(await session.request("anthropic"))
            with pytest.raises(UsageError):
                await session.note("checkpoint", "x")
            with pytest.raises(UsageError, match="JSON"):
                await session.note("x", object())

    twin.run(body)


def test_a_closed_session_says_so_and_can_still_be_read(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("One")
            await session.close()
            await session.close()
            with pytest.raises(Closed, match="open it again"):
                await session.say("Two")
            assert texts(await session.request("openai-chat"), "user") == ["One"]

    twin.run(body)


def test_one_writer_at_a_time(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Mine")
            with pytest.raises(Held):
                async with twin.opened(store):
                    pass
            reader = store.read("s")
            assert texts(reader.request("openai-chat"), "user") == ["Mine"]
        async with twin.opened(store) as session:
            assert session.turn.state == "open"
        with pytest.raises(Unreadable):
            async with twin.opened(store, "other", create=False):
                pass
        with pytest.raises(UsageError):
            async with twin.opened(store, "no/such/name"):
                pass

    twin.run(body)


def test_a_session_without_a_with_block(store: Store) -> None:
    session = store.session("s")
    session.say("One")
    session.close()
    assert store.session("s").turn.state == "open"


def test_a_session_that_was_forgotten_is_given_back(twin: Twin, disk: Store) -> None:
    async def body() -> None:
        if twin.kind == "sync":
            disk.session("s").say("One")
        else:
            await (await disk.async_session("s")).say("One")
        gc.collect()
        async with twin.opened(disk, wait=10) as session:
            assert texts(await session.request("openai-chat"), "user") == ["One"]

    twin.run(body)


def test_a_fork_goes_its_own_way(store: Store) -> None:
    with store.session("old") as old:
        old.say("One")
        old.record(says("anthropic", "First"))
        old.checkpoint("here")
        old.say("Two")
        old.record(asks("anthropic", ("c1", "look", {})))
        head = store.fork("old", "new", at="here")
        assert head.seq == 5
        assert store.fork("old", "new", at="here") == head
        with pytest.raises(Held):
            store.fork("old", "new")
        store.fork("old", "end")
        with store.session("new") as new:
            assert not new.recovered
            new.say("Other")
            assert texts(new.request("openai-chat"), "user") == ["One", "Other"]
        with store.session("end") as end:
            assert end.turn.state == "open"
            assert [c.outcome for c in end.run_tools({"look": lambda: "seen"})] == ["ok"]
        assert [c.status for c in old.calls] == ["open"]
    assert [one.session for one in store.sessions()] == ["end", "new", "old"]


def test_a_fork_of_a_running_tool_does_not_run_it(store: Store) -> None:
    def look() -> str:
        store.fork("old", "new")
        return "seen"

    with store.session("old") as old:
        old.say("One")
        old.record(asks("anthropic", ("c1", "look", {})))
        (call,) = old.run_tools({"look": look})
        assert call.outcome == "ok"
    with store.session("new") as new:
        assert [c.outcome for c in new.calls] == ["unknown"]
        assert new.turn.state == "open"


def test_a_reader_follows_a_writer(store: Store) -> None:
    with store.session("s") as session:
        session.say("One")
        reader = store.read("s")
        assert reader.turn.state == "open"
        session.record(says("anthropic", "First"))
        assert reader.turn.state == "open"
        kinds = [type(fact.event).__name__ for fact in reader.follow(timeout=0)]
        assert kinds == ["Replied", "Ended"]
        assert (reader.turn.state, reader.seq) == ("ended", session.seq)
        assert reader.refresh() == []
    with pytest.raises(Unreadable):
        store.read("nobody")


def test_a_profile_is_a_request_of_its_own(store: Store) -> None:
    with store.session("s") as session:
        session.say("One")
        session.record(asks("openai-chat", ("call_with_a_long_id", "look", {})))
        messages = session.request("openai-chat", profile="mistral")
        assert faults("openai-chat:mistral", messages) == []
        with pytest.raises(UsageError, match="unknown dialect"):
            session.request("openai-chat", profile="nobody")


def test_another_provider_goes_on_in_the_middle_of_a_turn(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Look")
            await session.record(asks("anthropic", ("toolu_1", "look", {})))
            await session.run_tools({"look": twin.tool(lambda: "seen")})
            await session.request("openai-chat")
            await session.record(asks("openai-chat", ("call_1", "look", {})))
            await session.run_tools({"look": twin.tool(lambda: "seen again")})
            await check_everywhere(session)

    twin.run(body)


_ASYNC = ("lockstitch.session.async_session",)


def test_a_missing_extra_says_how_to_get_it(store: Store, monkeypatch: Any) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith(_ASYNC)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "anyio", None)
    with pytest.raises(UsageError, match=r"pip install 'lockstitch\[async\]'"):
        store.async_session("s")


def test_errors_name_no_content(store: Store) -> None:
    with store.session("s") as session:
        session.say("secret words")
        with pytest.raises(UsageError) as caught:
            session.rewind("secret label")
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock"])
def test_a_result_larger_than_a_provider_takes_is_sent_in_part(store: Store, dialect: str) -> None:
    """And stays whole in the store: no tool can make a session that nobody accepts."""
    huge = "<BEGIN>" + "line\n" * 7_000_000 + "<END>"
    with store.session("s") as session:
        session.say("Read it")
        session.record(asks("anthropic", ("c1", "read", {}), ("c2", "look", {})))
        session.run_tools({"read": lambda: huge, "look": lambda: "seen"})
        messages = session.request(dialect)
        assert faults(dialect, messages) == []
        text = json.dumps(messages)
        assert len(text) < 2_000_000
        assert all(mark in text for mark in ("<BEGIN>", "<END>", "seen"))
        assert session.output(session.calls[0]) == huge
