from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from lockstitch.proxy import Settings
from lockstitch.proxy import Upstream as Target
from lockstitch.proxy.forwarding import ProxyEvent
from lockstitch.proxy.server import Connect, running
from tests.provider.conftest import provider
from tests.proxy.upstream import Upstream, listening

__all__ = ["provider"]


@dataclass
class Proxied:
    """A proxy that runs: where it is, and what it has logged so far."""

    url: str
    log: list[ProxyEvent] = field(default_factory=list)


Start = Callable[..., Proxied]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A provider that keeps the very bytes it got."""
    with listening() as made:
        yield made
        assert made.failed == []


@pytest.fixture
def proxy() -> Iterator[Start]:
    """Starts proxies in front of an address, and stops them when the test is over."""
    with ExitStack() as stack:

        def start(url: str, *, connect: Connect | None = None, **settings: Any) -> Proxied:
            log: list[ProxyEvent] = []
            fields = {"port": 0, "grace": 1.0, "upstreams": (Target(url=url),), **settings}
            made = running(Settings(**fields), log=log.append, connect=connect)
            return Proxied(stack.enter_context(made), log)

        yield start
