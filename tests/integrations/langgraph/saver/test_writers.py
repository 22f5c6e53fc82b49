"""Several writers on one thread, and writers that die: no turn is lost without a word."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from lockstitch.errors import Closed, Conflict, Held, Unsure
from lockstitch.integrations.langgraph import Saver
from lockstitch.integrations.langgraph.saver.threads import CommitPatience
from lockstitch.stores.opening import open_backend
from tests.integrations.langgraph.saver.places import Where
from tests.integrations.langgraph.saver.worker import CONFIG, answering, working

TURNS = 5


def other(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integrations.langgraph.saver.worker", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kept(saver: Saver) -> list[str]:
    state = answering(saver).get_state(CONFIG)
    return [str(one.content) for one in state.values["messages"]]


def test_two_processes_lose_no_turn(where: Where) -> None:
    refused, messages = contended(where, TURNS)
    said = [one for one in messages if not one.startswith("reply")]
    every = {f"{name}{turn}" for name in "ab" for turn in range(TURNS)}
    assert set(said) == every
    assert {f"reply to {one}" for one in every} <= set(messages)
    # A turn that was refused in its middle had its question stored; only such are there twice.
    assert len(said) - len(every) <= refused


def contended(where: Where, turns: int) -> tuple[int, list[str]]:
    """Let two processes take turns on one thread; gives how many were refused, and what is kept."""
    both = [other("turns", where.url, name, str(turns)) for name in "ab"]
    refused = 0
    for process in both:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        refused += int(output.split()[1])
    return refused, kept(where.open())


def test_a_turn_between_the_repair_and_the_run_is_not_lost(
    where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = where.open(), where.open()
    call = {"name": "tool", "args": {}, "id": "c0"}
    answering(one).invoke({"messages": [HumanMessage("first")]}, CONFIG)
    answering(one).update_state(CONFIG, {"messages": [AIMessage("", tool_calls=[call])]})
    repair = one._reconcile  # noqa: SLF001 - the moment right after it

    def overtaken(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        after = repair(*given, **named)
        answering(two).invoke({"messages": [HumanMessage("theirs")]}, CONFIG)
        assert after is not None
        return after

    monkeypatch.setattr(one, "_reconcile", overtaken)
    answering(one).invoke({"messages": [HumanMessage("ours")]}, CONFIG)
    assert {"first", "theirs", "reply to theirs", "ours", "reply to ours"} <= set(kept(two))


def test_who_is_overtaken_is_told(where: Where) -> None:
    slow, quick = where.open(), where.open()
    is_begun, may_go_on = threading.Event(), threading.Event()
    answering(slow).invoke({"messages": [HumanMessage("first")]}, CONFIG)

    def wait(_state: Any) -> dict[str, Any]:
        is_begun.set()
        assert may_go_on.wait(60)
        return {"messages": []}

    graph = answering(slow).builder.add_node(wait).add_edge("answer", "wait").compile(slow)
    told: list[BaseException] = []

    def run() -> None:
        try:
            graph.invoke({"messages": [HumanMessage("slow")]}, CONFIG, durability="sync")
        except Conflict as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert is_begun.wait(60)
    answering(quick).invoke({"messages": [HumanMessage("quick")]}, CONFIG)
    may_go_on.set()
    thread.join()
    assert "another writer was quicker" in str(told[0])
    assert "shared" in str(told[0])
    # What the slow one had stored before is in the line of the quick one.
    assert kept(slow)[0] == "first"
    assert kept(slow)[-2:] == ["quick", "reply to quick"]


def test_of_two_first_turns_the_second_is_told(where: Where) -> None:
    one, two = where.open(), where.open()
    assert one.get_tuple(CONFIG) is None
    assert two.get_tuple(CONFIG) is None
    checkpoint = {
        "v": 4, "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}
    }  # fmt: skip
    config: Any = {"configurable": {"thread_id": "shared", "checkpoint_ns": ""}}
    one.put(config, {**checkpoint, "id": "1"}, {}, {})  # type: ignore[typeddict-item]
    with pytest.raises(Conflict):
        two.put(config, {**checkpoint, "id": "2"}, {}, {})  # type: ignore[typeddict-item]
    assert [one.checkpoint["id"] for one in two.list(config)] == ["1"]


def test_a_clock_that_is_behind_hides_no_turn(where: Where) -> None:
    saver = where.open()
    checkpoint = {
        "v": 4, "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}
    }  # fmt: skip
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    first = saver.put(config, {**checkpoint, "id": "9"}, {}, {})  # type: ignore[typeddict-item]
    saver.put(first, {**checkpoint, "id": "5"}, {}, {})  # type: ignore[typeddict-item]
    found = where.open().get_tuple(config)
    assert found is not None
    assert found.checkpoint["id"] == "5"


def test_a_thread_that_somebody_holds_is_waited_for(where: Where) -> None:
    saver = where.open(wait=0.1)
    answering(saver).invoke({"messages": [HumanMessage("x")]}, CONFIG)
    with open_backend(where.url) as backend:
        lease = backend.acquire("langgraph.shared")
        with pytest.raises(Held):
            answering(saver).invoke({"messages": [HumanMessage("y")]}, CONFIG)
        backend.release(lease)
    answering(saver).invoke({"messages": [HumanMessage("z")]}, CONFIG)
    assert kept(saver)[-2:] == ["z", "reply to z"]


def test_a_killed_run_goes_on_with_what_its_tools_had_found(where: Where, tmp_path: Path) -> None:
    process = other("hang", where.url, str(tmp_path))
    saver = where.open()
    wait_until(lambda: written(saver) >= 2)
    process.kill()
    process.wait()
    assert process.stdout
    process.stdout.close()
    (tmp_path / "may end").touch()
    graph = working(saver, tmp_path)
    assert graph.get_state(CONFIG).next == ("tool",)
    done = graph.invoke(None, CONFIG)
    results = [one.content for one in done["messages"] if isinstance(one, ToolMessage)]
    assert results == ["result 0", "result 1", "result 2"]
    assert [(tmp_path / f"ran-{n}").read_text() for n in range(3)] == ["x", "x", "xx"]


def written(saver: Saver) -> int:
    """Count the results that are stored on the last checkpoint."""
    found = saver.get_tuple(CONFIG)
    writes = found.pending_writes or [] if found else []
    return sum(channel == "messages" and _is_result(value) for _task, channel, value in writes)


def _is_result(value: Any) -> bool:
    return isinstance(value, list) and isinstance(value[0], ToolMessage)


def wait_until(is_so: Any) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_write_of_unknown_outcome_is_there_once(
    quick: Saver, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    backend = quick._backend  # noqa: SLF001
    real, failures = backend.add, [2, 3, 5]

    def add(*words: Any, **options: Any) -> Any:
        failures[:] = [left - 1 for left in failures]
        if 0 not in failures:
            return real(*words, **options)
        if is_done:
            real(*words, **options)
        raise Unsure("the connection was lost")

    monkeypatch.setattr(backend, "add", add)
    graph = answering(quick)
    for turn in range(4):
        graph.invoke({"messages": [HumanMessage(f"{turn}")]}, CONFIG, durability="sync")
    monkeypatch.undo()
    assert kept(quick)[::2] == ["0", "1", "2", "3"]
    assert len(list(quick.list(CONFIG))) == 12
    keys = [record.key for record in backend.read("langgraph.shared")]
    assert len(keys) == len(set(keys)) == 1 + 4 * 5


def test_what_a_task_wrote_is_stored_with_the_checkpoint_behind_it(
    quick: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(quick).invoke({"messages": [HumanMessage("x")]}, CONFIG)
    found = quick.get_tuple(CONFIG)
    assert found is not None
    live = quick._threads.get("shared")  # noqa: SLF001
    monkeypatch.setattr(live, "patience", Endless())
    backend = quick._backend  # noqa: SLF001
    real, added = backend.add, []

    def add(session: str, entries: Any, *words: Any, **options: Any) -> Any:
        added.append(len(entries))
        return real(session, entries, *words, **options)

    monkeypatch.setattr(backend, "add", add)
    task = threading.Thread(target=quick.put_writes, args=(found.config, [("x", 1)], "task"))
    task.start()
    wait_until(lambda: live._commits._queue)  # noqa: SLF001
    child: Any = {**found.checkpoint, "id": f"{found.checkpoint['id']}1"}
    quick.put(found.config, child, found.metadata, {})
    task.join()
    assert added == [2]
    before = quick.get_tuple(found.config)
    assert before is not None
    assert before.pending_writes == [("task", "x", 1)]


class Endless(CommitPatience):
    """Waits for as long as it takes."""

    def seconds(self, items: int) -> float:
        return 600.0


def test_what_never_comes_is_not_waited_for_again_and_again() -> None:
    patience = CommitPatience()
    waited = 0
    for _ in range(1000):
        if patience.seconds(100) > 0:
            waited += 1
            patience.learn(is_met=False)
    assert 10 < waited < 60
    while not patience.seconds(100):
        pass
    patience.learn(is_met=True)
    assert patience.seconds(100) > 0


def test_what_one_process_stores_another_sees(where: Where) -> None:
    one, two = where.open(), where.open()
    for turn in range(6):
        saver, other_one = (one, two) if turn % 2 else (two, one)
        answering(saver).invoke({"messages": [HumanMessage(f"{turn}")]}, CONFIG)
        assert kept(other_one)[-2:] == [f"{turn}", f"reply to {turn}"]
    two.prune(["shared"])
    assert len(kept(one)) == 12
    two.delete_thread("shared")
    assert one.get_tuple(CONFIG) is None


def test_a_small_cache_is_only_slower(where: Where) -> None:
    saver = where.open(cache=1)
    for turn in range(3):
        for thread in ("a", "b", "c"):
            config: Any = {"configurable": {"thread_id": thread}}
            done = answering(saver).invoke({"messages": [HumanMessage(f"{turn}")]}, config)
            assert len(done["messages"]) == 2 * turn + 2


def test_a_closed_saver_says_so(where: Where) -> None:
    saver = where.open()
    graph = answering(saver)
    graph.invoke({"messages": [HumanMessage("x")]}, CONFIG)
    saver.close()
    saver.close()
    with pytest.raises(Closed):
        graph.invoke({"messages": [HumanMessage("y")]}, CONFIG)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_new_message_after_a_kill_finds_a_valid_conversation(tmp_path: Path, how: str) -> None:
    with Where("sqlite", tmp_path) as where:
        mended(where, tmp_path, how)


def mended(where: Where, tmp_path: Path, how: str) -> None:
    process = other("hang", where.url, str(tmp_path))
    saver = where.open()
    wait_until(lambda: written(saver) >= 2)
    process.kill()
    process.wait()
    assert process.stdout
    process.stdout.close()
    (tmp_path / "may end").touch()
    graph = answering(saver)
    given: Any = {"messages": [HumanMessage("something else")]}
    done = (
        graph.invoke(given, CONFIG) if how == "sync" else asyncio.run(graph.ainvoke(given, CONFIG))
    )
    kinds = [one.type for one in done["messages"]]
    assert kinds == ["human", "ai", "tool", "tool", "tool", "human", "ai"]
    contents = [one.content for one in done["messages"] if one.type == "tool"]
    assert contents[:2] == ["result 0", "result 1"]
    # Nothing more is done once all is well.
    count = len(list(saver.list(CONFIG)))
    graph.invoke({"messages": [HumanMessage("again")]}, CONFIG)
    assert len(list(saver.list(CONFIG))) == count + 3
