from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from lockstitch.provider import DeliveryEnd, Faults, Reply, Script, faults_in
from lockstitch.provider.server import running
from lockstitch.provider.service import Records, RequestEntry, Service, choose_rules

BASH = {"type": "object", "properties": {"command": {"type": "string"}}}


@dataclass
class Running:
    """A provider that runs: where it is, what it has logged, and which answers have ended how."""

    url: str
    log: list[RequestEntry] = field(default_factory=list)
    ended: dict[int, DeliveryEnd] = field(default_factory=dict)


@pytest.fixture
def provider() -> Iterator[Callable[..., Running]]:
    """Starts providers on free ports and stops them when the test is over."""
    with ExitStack() as stack:

        def start(
            *replies: Reply,
            profiles: tuple[str, ...] = (),
            fault: str = "",
            script: Script | None = None,
            **options: Any,
        ) -> Running:
            made = Running("")
            if "records" in options:
                options["records"] = Records(options["records"])
            service = Service(
                choose_rules(list(profiles)),
                script or Script(replies),
                clock=lambda: 1_700_000_000.5,
                log=made.log.append,
                ended=made.ended.__setitem__,
                faults=Faults(faults_in(fault)),
                **options,
            )
            made.url = stack.enter_context(running(service))
            return made

        yield start
