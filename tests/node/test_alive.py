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
ALL = ["contents of a", "signal is there", "contents of c"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("graph", ["agent", "delta"])
def test_a_repair_never_hides_what_a_live_run_does(tmp_path: Path, kind: str, graph: str) -> None:
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
        (node.folder / "signal").touch()

    begun = Act("begin", "alive", graph, {"text": HELLO, "finished": 2}, (THREE,))
    finished, further = node.outlives(
        begun, mended, Act("finish", "alive", graph), Act("say", "alive", graph, {"text": FURTHER})
    )
    for came in (finished, further):
        assert "error" not in came
        assert came["state"]["next"] == []
        assert came["state"]["messages"][-1]["content"] == "ok"
    results = [each["content"] for each in further["state"]["messages"] if each["type"] == "tool"]
    assert sorted(results) == sorted(ALL)
