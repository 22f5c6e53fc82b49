"""LangGraph Server with our checkpointer: killed in mid-tool, it goes on with a valid thread."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstitch.integrations.langgraph import Saver
from lockstitch.provider import Reply
from tests.integrations.langgraph.agents import (
    Provider,
    finished_tasks,
    on,
    provided,
    replying,
    result_of,
)
from tests.integrations.langgraph.savers import address_of, postgres
from tests.postgres_server import shared
from tests.server.running import PATIENCE, Server

FINE = tuple(Reply(f"fine {number}") for number in range(8))


class Seat:
    """A server, the model behind it, and a look at its checkpoints from outside."""

    def __init__(self, server: Server, provider: Provider, look: Callable[[], Any]) -> None:
        self.server = server
        self.provider = provider
        self.look = look

    def until_finished(self, thread: str, count: int) -> None:
        """Wait until so many tools have left their results."""
        end = time.monotonic() + PATIENCE
        with self.look() as saver:
            while len(finished_tasks(saver.get_tuple(on(thread)))) < count:
                assert time.monotonic() < end, self.server.log.read_text("utf-8")
                time.sleep(0.05)

    def sent(self) -> str:
        """What the model was asked last; the provider has refused nothing so far."""
        assert {entry.status for entry in self.provider.log} == {200}
        return json.dumps(self.provider.bodies[-1])


KINDS = ("sqlite", "postgres", "guarded", "isolated loops")


def environment(kind: str, folder: Path) -> tuple[dict[str, str], Callable[[], Any]]:
    if kind == "guarded":
        address = address_of("postgres", folder)
        return {"CHECKPOINTS": address}, lambda: postgres(address)
    url = shared().fresh() if kind == "postgres" else f"sqlite:///{folder}/agent.db"
    more = {"BG_JOB_ISOLATED_LOOPS": "true"} if kind == "isolated loops" else {}
    return {"LOCKSTITCH_STORE": url, **more}, lambda: Saver(url)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def begun(tmp_path: Path, kind: str) -> Iterator[Callable[..., Seat]]:
    """Begin with what the model says."""
    opened: list[Any] = []

    def begin(*replies: Reply) -> Seat:
        model = provided(tmp_path / "bodies", *replies, *FINE)
        provider = model.__enter__()
        variables, look = environment(kind, tmp_path)
        config = "guarded.json" if kind == "guarded" else "langgraph.json"
        server = Server(tmp_path, config, {"PROVIDER": provider.url, **variables})
        opened.extend([server, model])
        return Seat(server, provider, look)

    yield begin
    if opened:
        opened[0].stop()
        opened[1].__exit__(None, None, None)


def said(text: str) -> Any:
    return {"messages": [{"role": "user", "content": text}]}


def texts(state: Any) -> list[str]:
    """What was said, by whom; replies of the model may come in pieces."""
    return [f"{one['type']}: {_text(one['content'])}" for one in state["messages"]]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_killed_in_mid_tool(begun: Callable[..., Seat]) -> None:
    seat = begun(replying("one", "stuck", "three"))
    client = seat.server.start()
    thread = client.threads.create()["thread_id"]
    client.runs.create(thread, "agent", input=said("go"))
    seat.until_finished(thread, 2)
    seat.server.kill()
    client = seat.server.start()
    client.threads.create(thread_id=thread, if_exists="do_nothing", graph_id="agent")
    state = client.runs.wait(
        thread, "agent", input=said("and now?"), multitask_strategy="interrupt"
    )
    request = seat.sent()
    assert result_of("one") in request
    assert result_of("three") in request
    assert request.count("No result was recorded") == 1
    assert texts(state)[-2:] == ["human: and now?", "ai: fine 0"]
    state = client.runs.wait(thread, "agent", input=said("thank you"))
    assert texts(state)[-1] == "ai: fine 1"
    assert result_of("three") in seat.sent()


@pytest.mark.parametrize("kind", ["sqlite", "guarded"], indirect=True)
def test_a_run_that_the_server_tries_again_goes_on(
    begun: Callable[..., Seat], tmp_path: Path
) -> None:
    """It notes its runs every ten seconds, and starts those again that were under way."""
    seat = begun(replying("one", "stuck", "three"))
    client = seat.server.start()
    thread = client.threads.create()["thread_id"]
    run = client.runs.create(thread, "agent", input=said("go"))["run_id"]
    seat.until_finished(thread, 2)
    time.sleep(12)
    seat.server.kill()
    (tmp_path / "app" / "unstuck").touch()
    client = seat.server.start()
    state = client.runs.join(thread, run)
    assert texts(state)[2:] == [
        f"tool: {result_of('one')}",
        f"tool: {result_of('stuck')}",
        f"tool: {result_of('three')}",
        "ai: fine 0",
    ]
    seat.sent()
    jobs = (tmp_path / "app" / "jobs").read_text("utf-8").split()
    assert sorted(jobs) == ["one", "stuck", "stuck", "three"]


@pytest.mark.parametrize("kind", ["sqlite", "guarded"], indirect=True)
def test_asked_over_a_restart(begun: Callable[..., Seat]) -> None:
    seat = begun(replying("one", "asking"))
    client = seat.server.start()
    thread = client.threads.create()["thread_id"]
    client.runs.wait(thread, "agent", input=said("go"))
    [asked] = interrupts(client, thread)
    assert asked["value"] == {"question": "asking"}
    seat.server.kill()
    client = seat.server.start()
    client.threads.create(thread_id=thread, if_exists="do_nothing", graph_id="agent")
    assert interrupts(client, thread) == [asked]
    state = client.runs.wait(thread, "agent", command={"resume": "yes"})
    assert texts(state)[2:] == [
        f"tool: {result_of('one')}",
        "tool: a person said yes",
        "ai: fine 0",
    ]
    seat.sent()


def interrupts(client: Any, thread: str) -> list[Any]:
    state = client.threads.get_state(thread)
    return [one for task in state["tasks"] for one in task["interrupts"]]


@pytest.mark.parametrize("kind", KINDS[:3], indirect=True)
def test_history_copies_forks_and_removal(begun: Callable[..., Seat]) -> None:
    seat = begun(replying("one", "two"))
    client = seat.server.start()
    thread = client.threads.create()["thread_id"]
    whole = client.runs.wait(thread, "agent", input=said("go"))
    history = client.threads.get_history(thread, limit=50)
    assert [one["next"] for one in history][:2] == [[], ["model"]]
    assert all(one["parent_checkpoint"] for one in history[:-1])
    # a fork, and a run from the past
    early = next(one for one in history if len(one["values"].get("messages", [])) == 1)
    place = early["checkpoint"]
    client.threads.update_state(thread, {"messages": []}, checkpoint=place, as_node="model")
    again = client.runs.wait(thread, "agent", input=said("other"), checkpoint=place)
    assert texts(again)[-1] == "ai: fine 1"
    # a copy is a thread of its own
    copy = client.threads.copy(thread)["thread_id"]
    before = client.threads.get_state(copy)["values"]
    assert texts(before) == texts(client.threads.get_state(thread)["values"])
    client.runs.wait(copy, "agent", input=said("to the copy"))
    assert len(client.threads.get_state(thread)["values"]["messages"]) == len(again["messages"])
    assert len(client.threads.get_history(copy, limit=50)) > len(history)
    assert whole["messages"][0]["content"] == "go"
    # removal
    client.threads.delete(copy)
    assert client.http.post("/threads/prune", json={"thread_ids": [thread], "strategy": "delete"})
    with seat.look() as saver:
        assert [*saver.list(on(copy))] == []
        assert [*saver.list(on(thread))] == []
    seat.sent()


@pytest.mark.parametrize("kind", KINDS[:2], indirect=True)
def test_a_run_that_is_rolled_back_leaves_nothing(begun: Callable[..., Seat]) -> None:
    seat = begun(Reply("first"), replying("one", "stuck"))
    client = seat.server.start()
    thread = client.threads.create()["thread_id"]
    client.runs.wait(thread, "agent", input=said("hello"))
    client.runs.create(thread, "agent", input=said("wrong"))
    seat.until_finished(thread, 1)
    state = client.runs.wait(thread, "agent", input=said("right"), multitask_strategy="rollback")
    assert texts(state) == ["human: hello", "ai: first", "human: right", "ai: fine 0"]
    assert "wrong" not in seat.sent()
    with seat.look() as saver:
        assert "wrong" not in str([*saver.list(on(thread))])
