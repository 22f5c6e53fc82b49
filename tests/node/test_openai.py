"""The same with a model of OpenAI's, whose messages look otherwise and who refuses otherwise."""

from __future__ import annotations

from pathlib import Path

from tests.formats.campaign import Home

from .databases import Sqlite
from .drive import Act, Json, Node
from .threads import FURTHER, HELLO, THREE

REFUSED = "An assistant message with 'tool_calls' must be followed by tool messages"
KILLED = Act("begin", "killed", "agent", {"text": HELLO, "finished": 2}, (THREE,))
FURTHER_ON = Act("say", "killed", "agent", {"text": FURTHER})


def test_a_thread_with_openai_is_refused_and_then_goes_on(tmp_path: Path) -> None:
    database = Sqlite(str(tmp_path / "agent.db"))
    Node(database.address, tmp_path / "made", dialect="openai").dies_in(KILLED)
    control = Node(database.copy().address, tmp_path / "control", dialect="openai")
    (refused,) = control.does(FURTHER_ON)
    assert refused["status"] == 400
    assert REFUSED in refused["text"]

    ran = Home(tmp_path).run("repair", "--yes", database.address)
    assert ran.status == 0, ran.err
    node = Node(database.address, tmp_path / "sent", dialect="openai")
    (came,) = node.does(FURTHER_ON)
    assert "error" not in came
    assert came["state"]["next"] == []
    assert came["state"]["messages"][-1]["content"] == "ok"
    first, unknown, third = _results(node.bodies()[-1])
    assert first == "contents of a"
    assert unknown not in {first, third}
    assert third == "contents of c"


def _results(request: Json) -> list[str]:
    """The results in a request, which follow each other behind their calls."""
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]
