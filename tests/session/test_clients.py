"""Whole agents with the vendors' own clients, against a provider that refuses what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from lockstitch.provider import Reply, Script
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.server import running
from lockstitch.provider.service import RequestEntry, Service, choose_rules
from lockstitch.session.store import Store

from .talk import DIALECTS, faults, results

BASH = {"type": "object", "properties": {"command": {"type": "string"}}}
REPLIES = (
    Reply("On it.", (Call("bash", {"command": "ls"}), Call("bash", {"command": "pwd é"}))),
    Reply("One more.", (Call("bash", {"command": "id"}),)),
    Reply("All done."),
)


class Vendor:
    """How a client is made and asked, whole and streamed."""

    def __init__(self, dialect: str, sdk: str, *, is_async: bool = False) -> None:
        self.dialect = dialect
        self.sdk = pytest.importorskip(sdk)
        names = {"anthropic": ("Anthropic", "AsyncAnthropic"), "openai": ("OpenAI", "AsyncOpenAI")}
        self.kind = getattr(self.sdk, names[sdk][is_async])
        self.path = "" if sdk == "anthropic" else "/v1"

    def client(self, url: str) -> Any:
        return self.kind(base_url=f"{url}{self.path}", api_key="none", max_retries=0)

    def ask(self, client: Any, messages: list[Any], **options: Any) -> Any:
        if self.dialect == "anthropic":
            tools = [{"name": "bash", "input_schema": BASH}]
            fixed = {"model": "claude-fable-5", "max_tokens": 100, "tools": tools}
            return client.messages.create(messages=messages, **fixed, **options)
        if self.dialect == "openai-chat":
            tools = [{"type": "function", "function": {"name": "bash", "parameters": BASH}}]
            chat = client.chat.completions
            return chat.create(messages=messages, model="gpt-5", tools=tools, **options)
        tools = [{"type": "function", "name": "bash", "parameters": BASH, "strict": False}]
        return client.responses.create(input=messages, model="gpt-5", tools=tools, **options)


VENDORS = pytest.mark.parametrize(
    ("dialect", "sdk"),
    [("anthropic", "anthropic"), ("openai-chat", "openai"), ("openai-responses", "openai")],
)
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@contextmanager
def provider() -> Iterator[tuple[str, list[RequestEntry]]]:
    log: list[RequestEntry] = []
    desk = Service(choose_rules([]), Script(REPLIES), clock=lambda: 1_700_000_000.5, log=log.append)
    with running(desk) as url:
        yield url, log


def check(store: Store, log: list[RequestEntry], *, streamed: bool) -> None:
    assert [(entry.status, entry.stream) for entry in log] == [(200, streamed)] * 3
    reader = store.read("s")
    assert reader.turn.state == "ended"
    assert sorted(results(reader.request("openai-chat")).values()) == ["id!", "ls!", "pwd é!"]
    for dialect in DIALECTS:
        assert faults(dialect, reader.request(dialect)) == []


@VENDORS
@STREAMED
def test_an_agent(disk: Store, dialect: str, sdk: str, streamed: bool) -> None:
    vendor = Vendor(dialect, sdk)
    with provider() as (url, log), vendor.client(url) as client, disk.session("s") as session:
        session.say("List the files.")
        while session.turn.is_open:
            messages = session.request(dialect)
            if streamed:
                with session.stream(vendor.ask(client, messages, stream=True)) as stream:
                    assert stream.finish().complete
            else:
                session.record(vendor.ask(client, messages))
            session.run_tools({"bash": lambda command: f"{command}!"})
        check(disk, log, streamed=streamed)


@VENDORS
@STREAMED
def test_an_async_agent(disk: Store, dialect: str, sdk: str, streamed: bool) -> None:
    vendor = Vendor(dialect, sdk, is_async=True)

    async def bash(command: str) -> str:
        return f"{command}!"

    async def body(url: str) -> None:
        async with vendor.client(url) as client, disk.async_session("s") as session:
            await session.say("List the files.")
            while session.turn.is_open:
                messages = await session.request(dialect)
                if streamed:
                    async with session.stream(vendor.ask(client, messages, stream=True)) as stream:
                        await stream.finish()
                    assert stream.complete
                else:
                    await session.record(await vendor.ask(client, messages))
                await session.run_tools({"bash": bash})

    with provider() as (url, log):
        anyio.run(body, url)
    check(disk, log, streamed=streamed)


def test_the_helper_of_anthropics_client(disk: Store) -> None:
    vendor = Vendor("anthropic", "anthropic")
    tools = [{"name": "bash", "input_schema": BASH}]
    options = {"model": "claude-fable-5", "max_tokens": 100, "tools": tools}
    with provider() as (url, log), vendor.client(url) as client, disk.session("s") as session:
        session.say("List the files.")
        while session.turn.is_open:
            messages = session.request("anthropic")
            with session.stream(client.messages.stream(messages=messages, **options)) as stream:
                assert [event for event in stream if event.type == "text"]
            session.run_tools({"bash": lambda command: f"{command}!"})
        check(disk, log, streamed=True)
