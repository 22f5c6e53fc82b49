"""For the tests of your own agent: a check that raises, and a strict provider on this machine.

from lockstitch.testing import Call, Reply, assert_valid, provider

with provider(Reply(calls=(Call("bash", {"command": "ls"}),)), "Two files.") as strict:
    run_my_agent(base_url=strict.url)
    strict.assert_accepted()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import time
from typing import Any

from lockstitch.heal import check, detect
from lockstitch.provider import (
    DeliveryEnd,
    Faults,
    FunctionScript,
    Incoming,
    InjectedFault,
    Reply,
    Script,
    environment,
    faults_in,
    needing_aiohttp,
    reply_of,
)
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.service import ACCEPTED, RequestEntry, Service, choose_rules
from lockstitch.rules import ERROR, Finding

__all__ = [
    "Call",
    "Incoming",
    "InjectedFault",
    "Provider",
    "Received",
    "Reply",
    "assert_valid",
    "provider",
]

_PATIENCE = 60.0

Said = str | Reply | Mapping[str, Any]


def assert_valid(messages: Any, dialect: str | None = None, *, model: str | None = None) -> None:
    """Raise AssertionError if the provider would refuse a message list or a request body.

    The error lists codes, places and the provider's words, never what was said. ``dialect`` is
    detected if it is unambiguous; ``model`` is used by rules that depend on the model.
    """
    name = dialect or detect(messages)
    errors = [found for found in check(messages, name, model=model) if found.severity == ERROR]
    if errors:
        raise AssertionError(f"{name} would refuse this:\n{_describe_findings(errors)}")


def _describe_findings(findings: Sequence[Finding]) -> str:
    return "\n".join(
        f"  {found.code} {found.name} at {found.place}: {found.error or found.message}"
        for found in findings
    )


@dataclass(eq=False)
class Received:
    """One request that reached the provider, and its outcome.

    ``status`` is 0 if a fault dropped the connection. ``body`` is the parsed body, empty if it was
    not a JSON object. ``ended`` is how the answer ended: ``whole``, ``cut`` by a fault, ``gone``
    because the client went away; "" until then.
    """

    number: int
    path: str
    dialect: str
    status: int
    accepted: bool
    stream: bool
    fault: str
    findings: tuple[Finding, ...]
    body: Mapping[str, Any] = field(repr=False)
    ended: str = ""
    _over: threading.Event = field(default_factory=threading.Event, repr=False)

    def wait(self, timeout: float = _PATIENCE) -> str:
        """Wait until the answer has ended, and return how; raise TimeoutError."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"the answer to request {self.number} is still being sent")
        return self.ended


class Provider:
    """A running strict provider: its address, the requests so far, and the replies to come."""

    def __init__(self, url: str, script: Script, faults: Faults, requests: list[Received]) -> None:
        self.url = url
        self.requests = requests
        self._new_script = script
        self._faults = faults

    def __repr__(self) -> str:
        """Show where it is and how many requests came, never what they said."""
        return f"Provider({self.url!r}, requests={len(self.requests)})"

    @property
    def anthropic_url(self) -> str:
        """The ``base_url`` for ``anthropic.Anthropic``."""
        return self.url

    @property
    def openai_url(self) -> str:
        """The ``base_url`` for ``openai.OpenAI``."""
        return f"{self.url}/v1"

    @property
    def gemini_url(self) -> str:
        """The ``base_url`` for ``google.genai``'s ``HttpOptions``."""
        return self.url

    @property
    def bedrock_url(self) -> str:
        """The ``endpoint_url`` for boto3's ``bedrock-runtime`` client."""
        return self.url

    @property
    def environment(self) -> dict[str, str]:
        """The variables that point the vendors' clients here, with keys that nobody checks."""
        return environment(self.url)

    @property
    def refused(self) -> list[Received]:
        """The requests so far that the real provider would refuse."""
        return [request for request in self.requests if not request.accepted]

    def reply(self, *replies: Said) -> None:
        """Give these replies next, after those that are still to come."""
        self._new_script.add(*map(reply_of, replies))

    def fault(self, words: str) -> None:
        """Inject this fault from now on, instead of the previous one; "" for none."""
        self._faults.replace(faults_in(words))

    def assert_accepted(self) -> None:
        """Raise AssertionError if a request was refused, or if none arrived."""
        if not self.requests:
            raise AssertionError("no request reached the provider: does the agent use its address?")
        lines = [
            f"request {request.number} to {request.path} was refused:\n"
            f"{_describe_findings(request.findings)}"
            for request in self.refused
        ]
        if lines:
            raise AssertionError("\n".join(lines))


@contextmanager
def provider(
    *replies: Said | Callable[[Incoming], Said | None],
    fault: str = "",
    profiles: Sequence[str] = (),
    port: int = 0,
) -> Iterator[Provider]:
    """Run a strict provider in this process for as long as the block lasts.

    It gives the replies in order, then ``ok``; a function instead makes a reply for each request.
    ``fault`` is how answers fail, ``profiles`` are the rules to judge by, as in
    ``openai-chat:mistral``, and a ``port`` of 0 takes a free one.
    """
    with needing_aiohttp("the provider", "provider"):
        from lockstitch.provider import server  # noqa: PLC0415 - an extra

    first = replies[0] if len(replies) == 1 else None
    script = FunctionScript(first) if callable(first) else Script(map(reply_of, replies))
    faults = Faults(faults_in(fault))
    requests: list[Received] = []

    def seen(entry: RequestEntry, body: Mapping[str, Any]) -> None:
        requests.append(
            Received(
                number=entry.number,
                path=entry.path,
                dialect=entry.dialect,
                status=entry.status,
                accepted=entry.outcome == ACCEPTED,
                stream=entry.stream,
                fault=entry.fault,
                findings=entry.findings,
                body=body,
            )
        )

    def ended(number: int, end: DeliveryEnd) -> None:
        request = requests[number - 1]
        request.ended = end.value
        request._over.set()  # noqa: SLF001 - set by nobody else

    rules = choose_rules(list(profiles))
    service = Service(rules, script, clock=time, seen=seen, ended=ended, faults=faults)
    with server.running(service, port) as url:
        yield Provider(url, script, faults, requests)
