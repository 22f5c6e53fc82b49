"""A run that is not dead, but only slow, and a repair behind its back: it loses nothing.

Who holds a file is known on its machine, and then nothing is written. Who is at work in a
database on a server is not: what a repair adds there must not get into the way.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.campaign import Home

from .databases import fresh
from .drive import Act, Node, called
from .threads import FURTHER, HELLO

THREE = called(("read", "a"), ("hang", "signal"), ("read", "c"))
GRAPHS = ("agent", "delta")
ALL = ["contents of a", "signal is there", "contents of c"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_repair_never_hides_what_a_live_run_does(tmp_path: Path, kind: str) -> None:
    database = fresh(kind, tmp_path)
    schema = "" if kind == "sqlite" else "?schema=agents"
    node = Node(database.address + schema, tmp_path / "requests")

    def mended() -> None:
        ran = Home(tmp_path).run("repair", "--yes", database.address)
        if kind == "sqlite":
            assert ran.status == 2
            assert "has it open" in ran.err
            assert "nothing was written" in ran.err
        else:
            assert ran.status == 0, ran.err
            assert "Repaired 2 of 2 threads" in ran.err
        (node.folder / "signal").touch()

    begun = [
        Act("begin", graph, graph, {"text": HELLO, "finished": 2}, (THREE,)) for graph in GRAPHS
    ]
    finished = [Act("finish", graph, graph) for graph in GRAPHS]
    further = [Act("say", graph, graph, {"text": FURTHER}) for graph in GRAPHS]
    for came in node.outlives(begun, mended, *finished, *further):
        assert "error" not in came
        assert came["state"]["next"] == []
        messages = came["state"]["messages"]
        assert messages[-1]["content"] == "ok"
        results = [message["content"] for message in messages if message["type"] == "tool"]
        assert sorted(results) == sorted(ALL)
