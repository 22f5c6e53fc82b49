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

    The error lists codes, places and the provider's words, never message content. ``dialect`` is
    detected if it is unambiguous; ``model`` adjusts the rules that depend on it.
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
    """One request that reached the provider, and how it was answered.

    ``status`` is 0 if a fault dropped the connection. ``body`` is the parsed body, empty if it was
    not a JSON object. ``ended`` says how the answer ended: ``whole``, ``cut`` by a fault, or
    ``gone`` because the client went away. It is "" while the answer still goes on.
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
        """Wait until the answer has ended and return how; raise TimeoutError if it does not end."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"the answer to request {self.number} is still being sent")
        return self.ended


class Provider:
    """A running strict provider: its address, the requests it received, and its next replies."""

    def __init__(self, url: str, script: Script, faults: Faults, requests: list[Received]) -> None:
        self.url = url
        self.requests = requests
        self._new_script = script
        self._faults = faults

    def __repr__(self) -> str:
        """Show the address and the number of requests, never their content."""
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
        """The variables that direct the vendors' clients here, with keys that nobody checks."""
        return environment(self.url)

    @property
    def refused(self) -> list[Received]:
        """The requests so far that the real provider would refuse."""
        return [request for request in self.requests if not request.accepted]

    def reply(self, *replies: Said) -> None:
        """Queue these replies after the ones that are still to come."""
        self._new_script.add(*map(reply_of, replies))

    def fault(self, words: str) -> None:
        """Apply these faults from now on, in place of the earlier ones; "" for none."""
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
    """Run a strict provider in this process for the duration of the block.

    It gives the replies in order, then ``ok``. A function in place of the replies makes each reply
    from its request. ``fault`` says what goes wrong with answers. ``profiles`` names the rules to
    judge by, as in ``openai-chat:mistral``. A ``port`` of 0 takes a free one.
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
