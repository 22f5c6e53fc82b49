from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from lockstitch.provider.desk import Desk, Entry, Records
from lockstitch.provider.judge import chosen
from lockstitch.provider.replies import Reply, Script
from lockstitch.provider.server import running

BASH = {"type": "object", "properties": {"command": {"type": "string"}}}


@dataclass
class Running:
    """A provider that runs: where it is, and what it has logged so far."""

    url: str
    log: list[Entry] = field(default_factory=list)


@pytest.fixture
def provider() -> Iterator[Callable[..., Running]]:
    """Starts providers on free ports and stops them when the test is over."""
    with ExitStack() as stack:

        def start(*replies: Reply, profiles: tuple[str, ...] = (), **options: Any) -> Running:
            log: list[Entry] = []
            if "records" in options:
                options["records"] = Records(options["records"])
            desk = Desk(
                chosen(list(profiles)),
                Script(replies),
                clock=lambda: 1_700_000_000.5,
                log=log.append,
                **options,
            )
            return Running(stack.enter_context(running(desk)), log)

        yield start
