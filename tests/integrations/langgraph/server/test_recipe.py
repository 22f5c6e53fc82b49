"""What LangGraph Server wants of a checkpointer that its configuration names; without the server.

``make server`` runs the real one with the same files (``tests/server``).
"""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph import Saver
from lockstitch.integrations.langgraph.server import checkpointer
from tests.docs.pages import DOCS, blocks
from tests.integrations.langgraph.migrating.shapes import Broken, Tools, on

APP = Path(__file__).parents[3] / "server" / "app"
# What the server looks for, and does worse or not at all without.
ABILITIES = ("adelete_thread", "adelete_for_runs", "acopy_thread", "aprune")
REQUIRED = ("aput", "aput_writes", "aget_tuple", "alist")


def test_the_path_in_the_configuration_leads_to_the_checkpointer() -> None:
    """A dotted name is split at its last dot; no colon is known there."""
    path = json.loads((APP / "langgraph.json").read_text("utf-8"))["checkpointer"]["path"]
    module, _, name = path.rpartition(".")
    assert getattr(import_module(module), name) is checkpointer
    assert not {"/", ":"} & set(path)


def test_it_opens_and_closes_the_store_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def entered() -> None:
        async with checkpointer() as saver:
            assert isinstance(saver, Saver)
            bench = Tools()
            bench.is_whole = True
            await bench.graph(saver).ainvoke({"messages": [HumanMessage("go", id="h")]}, on("1"))
        with pytest.raises(Exception, match="closed"):
            await saver.aget_tuple(on("1"))

    monkeypatch.setenv("LOCKSTITCH_STORE", f"sqlite:///{tmp_path}/agent.db")
    asyncio.run(entered())
    with Saver(f"sqlite:///{tmp_path}/agent.db") as saver:
        assert saver.get_tuple(on("1"))


def test_without_a_store_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    async def entered() -> None:
        async with checkpointer():
            pass

    monkeypatch.delenv("LOCKSTITCH_STORE", raising=False)
    with pytest.raises(UsageError, match="set LOCKSTITCH_STORE"):
        asyncio.run(entered())


@pytest.mark.parametrize("name", [*ABILITIES, *REQUIRED])
def test_the_saver_has_every_ability_that_the_server_looks_for(name: str) -> None:
    assert getattr(Saver, name) is not getattr(BaseCheckpointSaver, name)


class Adapter(BaseCheckpointSaver[Any]):
    """Hands everything on, and knows nothing else: as the server wraps what it is given."""

    def __init__(self, inner: Saver) -> None:
        super().__init__(serde=inner.serde)
        self._inner = inner

    async def aget_tuple(self, config: Any) -> Any:
        return await self._inner.aget_tuple(config)

    async def alist(self, config: Any, **options: Any) -> Any:
        async for one in self._inner.alist(config, **options):
            yield one

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new: Any) -> Any:
        run = (config.get("metadata") or {}).get("run_id")
        enriched = {**metadata, **({"run_id": run} if run else {})}
        return await self._inner.aput(config, checkpoint, enriched, new)

    async def aput_writes(self, config: Any, writes: Any, task: str, path: str = "") -> None:
        await self._inner.aput_writes(config, writes, task, path)

    def get_next_version(self, current: Any, channel: None) -> Any:
        number = int(current.split(".")[0]) if current else 0
        return f"{number + 1:032}.5"


def test_through_an_adapter_a_broken_thread_is_healed(tmp_path: Path) -> None:
    bench = Tools()

    async def run() -> Any:
        async with Saver(f"sqlite:///{tmp_path}/agent.db") as saver:
            given = {"messages": [HumanMessage("go", id="h")]}
            with pytest.raises(Broken):
                await bench.graph(Adapter(saver)).ainvoke(given, on("1", run_id="r1"))
            head = saver.get_tuple(on("1"))
            assert head is not None
            writes = head.pending_writes or []
            found = [value for _, channel, value in writes if channel == "messages"]
            results = {one.content for one in chain(*found)}
            bench.is_whole = True
            again = {"messages": [HumanMessage("new", id="h2")]}
            return results, await bench.graph(Adapter(saver)).ainvoke(again, on("1", run_id="r2"))

    results, state = asyncio.run(run())
    said = [one.content for one in state["messages"]]
    assert said[5] == "new"
    assert {one for one in said[2:5] if one.startswith("result")} == results
    assert [one.type for one in state["messages"][2:5]] == ["tool"] * 3


@pytest.mark.parametrize("strategy", ["delete", "delete_all"])
def test_both_words_for_removing_a_thread(strategy: str) -> None:
    bench = Tools()
    bench.is_whole = True
    with Saver("memory:") as saver:
        bench.graph(saver).invoke({"messages": [HumanMessage("go", id="h")]}, on("1"))
        saver.prune(["1"], strategy=strategy)
        assert saver.get_tuple(on("1")) is None


@pytest.mark.parametrize("name", ["langgraph.json", "guarded.py"])
def test_the_page_prints_what_is_tested(name: str) -> None:
    printed = [code for _, _, code in blocks(DOCS / "langgraph.md")]
    assert (APP / name).read_text("utf-8") in printed
