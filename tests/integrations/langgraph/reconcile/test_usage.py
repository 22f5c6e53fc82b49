"""What is no conversation, no thread and no channel is said so before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph import Saver, reconcile
from tests.integrations.langgraph.reconcile.breaking import THREAD, Thread, asked
from tests.integrations.langgraph.scripted import Scripted

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a text": ({"messages": "hello"}, "messages must be the list of messages"),
    "a number": ({"messages": 5}, "messages must be the list of messages"),
    "a channel that is none": ({"channel": "zzz"}, "no channel 'zzz'"),
}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_usage_writes_nothing(how: str) -> None:
    given, text = WRONG[how]
    thread = Thread("agent", model=Scripted())
    thread.graph.invoke(asked("Go."), THREAD)
    before = list(thread.saver.list(THREAD))
    with pytest.raises(UsageError, match=text):
        reconcile(thread.graph, THREAD, **given)
    assert list(thread.saver.list(THREAD)) == before


@pytest.mark.parametrize("config", [None, {}, {"configurable": {}}, "thread"], ids=str)
def test_a_config_that_names_no_thread(config: Any) -> None:
    thread = Thread("agent", model=Scripted())
    with pytest.raises(UsageError, match="names no thread"):
        reconcile(thread.graph, config)


def test_what_a_saver_is_made_of(tmp_path: Path) -> None:
    for url in (None, tmp_path, "agent.db"):
        with pytest.raises(UsageError, match="address of a store"):
            Saver(url)  # type: ignore[arg-type]
    for allow in ([5], [()], [("os", 5)]):
        with pytest.raises(UsageError, match="allow must name classes"):
            Saver("memory:", allow=allow)  # type: ignore[arg-type]
