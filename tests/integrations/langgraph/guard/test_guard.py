"""A guard is the checkpointer behind it, in all that it does not guard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base import id as ids
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import DetectedCapabilities
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.shallow import AsyncShallowPostgresSaver, ShallowPostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph

from lockstitch.errors import Conflict, UsageError
from lockstitch.integrations.langgraph import Guard, reconcile
from lockstitch.integrations.langgraph.optimistic_lock import names_of
from lockstitch.integrations.langgraph.run_ids import (
    RunProgress,
    RunRegistry,
    ThreadPlace,
    place_of,
)
from lockstitch.integrations.langgraph.saver_steps import header_reader
from tests.integrations.langgraph.guard.graphs import (
    THREAD,
    chat,
    later,
    lose,
    said,
    texts,
)
from tests.integrations.langgraph.savers import ASYNC_SAVERS, SAVERS, address_of, on

STORES = ("memory", "sqlite", "postgres")


# The suite of LangGraph


async def _passed(name: str, address: str, *, guard: bool) -> dict[str, Any]:
    """What the suite says of a saver, bare or guarded, for all that the bare one can do."""
    async with ASYNC_SAVERS[name](address) as bare:
        can = {each.value for each in DetectedCapabilities.from_instance(bare).detected}

        @checkpointer_test(name=name)
        async def made() -> AsyncIterator[Any]:
            yield Guard(bare) if guard else bare

        report = await validate(made, capabilities=can)
    return {
        key: (found.passed, found.tests_passed, sorted(found.failures))
        for key, found in report.results.items()
    }


@pytest.mark.parametrize("name", STORES)
def test_the_conformance_suite_says_the_same(name: str, tmp_path: Path) -> None:
    folders = [tmp_path / "bare", tmp_path / "guarded"]
    for folder in folders:
        folder.mkdir()
    bare, guarded = (
        asyncio.run(_passed(name, address_of(name, folder), guard=folder.name == "guarded"))
        for folder in folders
    )
    print(name, guarded)  # noqa: T201 - figures of the report
    assert guarded == bare
    assert all(bare[each][0] for each in ("put", "put_writes", "get_tuple", "list"))


# Delegation


def test_a_guard_is_put_before_a_checkpointer_once() -> None:
    for wrong in (Guard(InMemorySaver()), None, "sqlite"):
        with pytest.raises(UsageError):
            Guard(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        Guard(InMemorySaver(), on_conflict="merge")  # type: ignore[arg-type]


def test_what_only_the_saver_has_the_guard_has(tmp_path: Path) -> None:
    with SAVERS["sqlite"](str(tmp_path / "a.db")) as saver:
        guard = Guard(saver)
        assert guard.conn is saver.conn
        guard.setup()
        assert guard.is_setup
        assert guard.serde is saver.serde
        guard.serde = JsonPlusSerializer(pickle_fallback=False)
        assert saver.serde is guard.serde
        assert guard.config_specs == saver.config_specs
        assert guard.get_next_version(None, None).startswith("0" * 31 + "1.")
        with pytest.raises(AttributeError):
            _ = guard.nothing
    assert isinstance(guard, BaseCheckpointSaver)


@pytest.mark.parametrize("name", STORES)
def test_a_guard_can_do_what_its_saver_can(name: str, tmp_path: Path) -> None:
    with SAVERS[name](address_of(name, tmp_path)) as saver:
        bare = _optional(saver)
        assert _optional(Guard(saver)) == bare
        assert _optional(Guard(saver).with_allowlist([("tests", "Thing")])) == bare
        assert "copy_thread" not in bare
        with pytest.raises(NotImplementedError):
            Guard(saver).copy_thread("shared", "other")
    assert type(Guard(saver)).__name__ == "Guard"


def _optional(saver: Any) -> set[str]:
    """What LangGraph's suite takes a saver to be able to do, of what none has to."""
    found = {each.value for each in DetectedCapabilities.from_instance(saver).detected}
    return found & {"delete_thread", "delete_for_runs", "copy_thread", "prune"}


class Copying(InMemorySaver):
    """A saver that copies threads, but only if it is waited for."""

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        for saved in [*self.list(on(source_thread_id))][::-1]:
            above: Any = saved.parent_config or on(target_thread_id, checkpoint_ns="")
            above = {"configurable": {**above["configurable"], "thread_id": target_thread_id}}
            versions = saved.checkpoint["channel_versions"]
            self.put(above, saved.checkpoint, saved.metadata, versions)


class OwnPruning(Guard):
    """A guard with a method of its own that its saver lacks."""

    def prune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        raise ZeroDivisionError


class FromAName(Guard):
    """A guard that is made of something else than a checkpointer."""

    def __init__(self, _name: str) -> None:
        super().__init__(Copying())


def test_a_guard_has_one_method_and_lacks_the_other() -> None:
    guard = Guard(Copying())
    chat(guard).invoke(said("a"), THREAD)
    guard.copy_thread("shared", "other")
    assert texts(chat(guard), on("other")) == ["a", "done a"]
    chat(guard).invoke(said("b"), on("other"))
    assert texts(chat(guard)) == ["a", "done a"]
    with pytest.raises(NotImplementedError):
        asyncio.run(guard.acopy_thread("shared", "another"))
    with pytest.raises(ZeroDivisionError):
        OwnPruning(Copying()).prune(["shared"])
    assert isinstance(OwnPruning(Copying()), OwnPruning)
    assert _optional(FromAName("a name")) == _optional(Copying())


def test_a_saver_without_a_history_is_declined() -> None:
    for shallow in (ShallowPostgresSaver, AsyncShallowPostgresSaver):
        made = object.__new__(type("Mine", (shallow,), {}))
        with pytest.raises(UsageError, match="keeps only the last checkpoint"):
            Guard(made)


class Old(InMemorySaver):
    """A saver from before there were paths of tasks."""

    def put_writes(self, config: Any, writes: Any, task_id: str) -> None:  # type: ignore[override]
        super().put_writes(config, writes, task_id)


def test_a_saver_that_knows_no_paths() -> None:
    graph = chat(Guard(Old()))
    for name in ("a", "b"):
        graph.invoke(said(name), THREAD)
    assert texts(graph) == ["a", "done a", "b", "done b"]


def test_a_narrowed_guard_shares_its_runs() -> None:
    guard = Guard(InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=[])))
    narrowed = guard.with_allowlist([("tests", "Thing")])
    assert isinstance(narrowed, Guard)
    assert narrowed is not guard
    assert narrowed.serde is not guard.serde
    assert narrowed.forks is guard.forks
    loaded = chat(guard).invoke(said("a"), THREAD)
    assert loaded
    saved = narrowed.get_tuple(THREAD)
    assert saved
    body: Any = {**saved.checkpoint, "id": later(saved.checkpoint["id"])}
    guard.put(saved.config, body, {"source": "update", "step": 9, "parents": {}}, {})


def test_other_keys_of_the_config_reach_the_saver() -> None:
    seen: list[Any] = []

    class Tenants(InMemorySaver):
        def get_tuple(self, config: Any) -> Any:
            seen.append(config["configurable"]["tenant"])
            return super().get_tuple(config)

    config = on("shared", tenant="one")
    graph = chat(Guard(Tenants()))
    for name in ("a", "b"):
        graph.invoke(said(name), config)
    assert set(seen) == {"one"}
    assert set(graph.get_state(config).config["configurable"]) == {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
    }


def test_a_run_that_was_forgotten_goes_on() -> None:
    guard = Guard(InMemorySaver())
    guard._guarding.runs._limit = 1  # noqa: SLF001 - so many runs would take long
    for durability in ("sync", "exit", "async"):
        look = chat(guard)
        graph = chat(guard, lambda look=look: look.invoke(said("x"), on("other")))
        graph.invoke(said(durability), THREAD, durability=durability)
    assert texts(graph)[::2] == ["sync", "exit", "async"]


@pytest.mark.parametrize("name", ["postgres"])
def test_pruning(name: str, tmp_path: Path) -> None:
    with SAVERS[name](address_of(name, tmp_path)) as saver:
        guard = Guard(saver)
        graph = chat(guard)
        for text in ("a", "b"):
            graph.invoke(said(text), THREAD)
        guard.prune(["shared"])
        assert len(list(saver.list(THREAD))) == 1
        graph.invoke(said("c"), THREAD)
        assert texts(graph) == ["a", "done a", "b", "done b", "c", "done c"]
        lose(saver, guard)
        with pytest.raises(Conflict, match="nothing was pruned"):
            guard.prune(["shared"])
        assert texts(graph) == ["a", "done a", "b", "done b", "c", "done c"]
        graph.invoke(said("d"), THREAD)
        guard.prune(["shared"])
        assert texts(graph)[-2:] == ["d", "done d"]
        guard.delete_thread("shared")
        assert guard.get_tuple(THREAD) is None


def test_a_newest_checkpoint_that_lost_is_not_the_head() -> None:
    saver = InMemorySaver()
    graph = chat(Guard(saver))
    graph.invoke(said("a"), THREAD)
    lose(saver, Guard(saver))
    assert texts(chat(saver)) != ["a", "done a"]
    other = chat(Guard(saver))
    assert texts(other) == ["a", "done a"]
    other.invoke(said("b"), THREAD)
    assert texts(graph) == ["a", "done a", "b", "done b"]


# Clocks


def test_a_machine_whose_clock_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    bare, guarded = InMemorySaver(), InMemorySaver()
    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    chat(bare).invoke(said("ahead"), THREAD)
    chat(Guard(guarded)).invoke(said("ahead"), THREAD)
    hour = 3_600 * 10**9
    now = time.time_ns
    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    monkeypatch.setattr(ids.time, "time_ns", lambda: now() - hour)
    chat(bare).invoke(said("behind"), THREAD)
    # Nobody ever finds it, and nobody was told.
    assert texts(chat(bare)) == ["ahead", "done ahead"]
    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    graph = chat(Guard(guarded))
    graph.invoke(said("behind"), THREAD)
    assert texts(graph) == ["ahead", "done ahead", "behind", "done behind"]


def test_an_id_of_another_time_does_not_spread() -> None:
    saver = InMemorySaver()
    graph = chat(Guard(saver))
    graph.invoke(said("a"), THREAD)
    head = saver.get_tuple(THREAD)
    assert head
    body: Any = {**head.checkpoint, "id": later(head.checkpoint["id"], 2 * 24 * 3600)}
    saver.put(head.config, body, head.metadata, {})
    with pytest.raises(Conflict, match="clock"):
        graph.invoke(said("b"), THREAD)
    graph.invoke(said("elsewhere"), on("another"))
    found = saver.get_tuple(on("another"))
    assert found
    assert found.checkpoint["id"] < later(head.checkpoint["id"])


def test_an_id_that_nobody_would_find_is_refused() -> None:
    guard = Guard(InMemorySaver())
    chat(guard).invoke(said("a"), THREAD)
    saved = guard.get_tuple(THREAD)
    assert saved
    body: Any = {**saved.checkpoint, "id": "00000000-0000-6000-8000-000000000000"}
    with pytest.raises(Conflict, match="clock"):
        guard.put(saved.config, body, {"source": "update", "step": 9, "parents": {}}, {})


# Beside the others of this package


def test_reconciling_a_guard() -> None:
    guard = Guard(InMemorySaver())
    graph = chat(guard)
    graph.invoke(said("a"), THREAD)
    held = [*graph.get_state(THREAD).values["messages"], *said("by hand")["messages"]]
    for target in (guard, graph):
        assert reconcile(target, THREAD, held)
        assert texts(graph) == ["a", "done a", "by hand"]
    graph.invoke(said("b"), THREAD)
    assert texts(graph) == ["a", "done a", "by hand", "b", "done b"]


# Lineage


def test_a_place_is_what_a_config_names() -> None:
    assert place_of(on("t", other=1)) == ThreadPlace("t", "", None)
    assert place_of(on("t", other=1)).at("2").config == on(
        "t", other=1, checkpoint_ns="", checkpoint_id="2"
    )


def test_lineage_tells_a_branch_from_a_stale_run() -> None:
    lineage = RunRegistry(RunProgress, limit=2)
    head, old = ThreadPlace("t", "", "2"), ThreadPlace("t", "", "1")
    lineage.note_load(old.config, old, is_head=False)
    lineage.note_load(head.config, head, is_head=True)
    assert lineage.find_writer(old.config).is_branch(old)  # type: ignore[union-attr]
    assert not lineage.find_writer(head.config).is_branch(head)  # type: ignore[union-attr]
    run = RunProgress("run")
    lineage.note_put(run, old, ThreadPlace("t", "", "0"))
    assert lineage.find_writer(old.config) is lineage.writer(old) is run
    # Without a run, whoever came last is meant, until he has built on it.
    other = lineage.note_load(old.config, old, is_head=True)
    assert lineage.find_writer(old.config) is other
    assert lineage.writer(old) is run
    lineage.note_put(other, head, old)
    assert lineage.find_writer(old.config) is other
    assert lineage.find_writer(old.config, is_put=True) is run
    for number in range(3):
        new = ThreadPlace("t", "", f"new {number}")
        lineage.note_load(new.config, new, is_head=True)
    assert lineage.find_writer(head.config) is None


# Looking


class Mirror:
    """A cipher that anybody can read."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "mirror", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "mirror"
        return ciphertext[::-1]


@pytest.mark.parametrize("serde", [JsonPlusSerializer(), EncryptedSerializer(Mirror())])
def test_a_look_makes_no_objects(serde: Any) -> None:
    saver = InMemorySaver(serde=serde)
    graph = chat(Guard(saver))
    for name in ("a", "b"):
        graph.invoke(said(name), THREAD)
    assert texts(graph) == ["a", "done a", "b", "done b"]
    eyes = header_reader(saver)
    assert eyes is not saver
    for seen, real in zip(eyes.list(THREAD), saver.list(THREAD), strict=True):
        assert seen.config == real.config
        assert seen.parent_config == real.parent_config
        assert seen.metadata == real.metadata
        assert names_of(seen) == names_of(real)
        assert seen.checkpoint["id"] == real.checkpoint["id"]
        assert not any(seen.checkpoint["channel_values"].get("messages") or [])


def test_a_saver_that_nobody_knows_is_looked_at_as_it_is() -> None:
    saver = Old()
    assert header_reader(saver) is saver


def test_large_metadata_is_no_obstacle() -> None:
    """Metadata above some size is read in another way where only a header is asked for."""
    saver = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "t"}, "metadata": {"big": "y" * 1000}}
    for _ in range(2):  # two guards, so that each has to look at what the other one put
        for guard in (Guard(saver), Guard(saver)):
            builder: Any = StateGraph(MessagesState)
            builder.add_node("speak", lambda _state: {"messages": [("ai", "Done.")]})
            builder.add_edge(START, "speak")
            builder.compile(checkpointer=guard).invoke({"messages": [("user", "Hi.")]}, config)
    held = saver.get_tuple(config)
    assert held is not None
    assert len(held.checkpoint["channel_values"]["messages"]) == 8
