"""Many requests at once in one process: each conversation stays by itself."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator

import pytest

from lockstitch.errors import Moved
from lockstitch.journal.events import Noted, entry_of
from lockstitch.proxy.recording.facts import Linking, beginning, parse_request
from lockstitch.proxy.recording.keeping import Keeper
from tests.recording.talking import Client, Heard, answer, whole

PEOPLE = 24
TURNS = 4


@pytest.fixture(autouse=True)
def _restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


async def _talk(heard: Heard, who: int, client: Client, lines: list[str]) -> None:
    for turn in range(TURNS):
        client.say(f"{who} says {turn}")
        begun = await heard.recorder.begin("anthropic", client.body(), streamed=False)
        reply = answer("anthropic", who, f"to {who}" if who % 2 else "to all")
        begun.feed(whole(reply))
        await begun.commit(200, complete=True)
        client.hear(reply)
        text = reply.messages[0]["content"][0]["text"]
        lines += [f"user: {who} says {turn}", f"assistant: {text}"]


def test_clients_that_go_on_from_the_same_place_at_once(heard: Heard) -> None:
    first = Client("anthropic").say("Hello")
    heard.turn(first, answer("anthropic", 1, "Hello!"))
    people = [Client("anthropic", list(first.messages)) for _ in range(PEOPLE)]
    said = [["user: Hello", "assistant: Hello!"] for _ in people]

    async def all_at_once() -> None:
        talks = (_talk(heard, n, people[n], said[n]) for n in range(PEOPLE))
        await asyncio.gather(*talks)

    heard.run(all_at_once())
    shown = {tuple(heard.said(name)) for name in heard.sessions()}
    assert shown == set(map(tuple, said))


def test_the_same_request_many_times_at_once(heard: Heard) -> None:
    client = Client("anthropic").say("Hello")

    async def ask(number: int) -> str:
        begun = await heard.recorder.begin("anthropic", client.body(), streamed=False)
        begun.feed(whole(answer("anthropic", number, f"reply {number}")))
        await begun.commit(200, complete=True)
        return begun.session

    async def all_at_once() -> list[str]:
        return await asyncio.gather(*map(ask, range(PEOPLE)))

    names = heard.run(all_at_once())
    for number, name in enumerate(names):
        assert heard.said(name) == ["user: Hello", f"assistant: reply {number}"]


def test_who_is_cancelled_loses_nothing(heard: Heard) -> None:
    client = Client("anthropic").say("Hello")
    begun = heard.begin(client)
    begun.feed(whole(answer("anthropic", 1, "Hello!")))

    async def leave() -> None:
        keeping = asyncio.ensure_future(begun.commit(200, complete=True))
        await asyncio.sleep(0)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    heard.run(leave())
    for _ in range(6000):
        if len(heard.said(begun.session)) > 1:
            break
        time.sleep(0.01)
    assert heard.said(begun.session) == ["user: Hello", "assistant: Hello!"]


def test_a_decision_holds_only_where_it_was_made(heard: Heard) -> None:
    client = Client("anthropic").say("Hello")
    heard.turn(client, answer("anthropic", 1, "Hello!"))
    linking, keeper = Linking(), Keeper(heard.backend)
    requests = []
    for word in ("one", "two"):
        body = Client("anthropic", list(client.messages)).say(word).body()
        asking = parse_request("anthropic", body, linking)
        chain = beginning("anthropic").extend(one.links for one in asking.linked)
        keeper.look(chain)
        requests.append((chain, asking, keeper.decide(chain, "", asking.replies)))
    (_, _, first), (_, _, second) = requests
    assert first.branch is second.branch
    assert first.branch is not None
    note = [entry_of(Noted(name="x"), "key-1", 1)]
    keeper.add(first.branch, note, first.head)
    with pytest.raises(Moved):
        keeper.add(first.branch, [entry_of(Noted(name="y"), "key-2", 1)], second.head)
