"""Clients of five providers, each with its list of messages, and a recorder that listens to them.

Nothing of what a client sends is made by the engine: replies are those of ``tests.journal`` and
``tests.session``, handed back as a client hands them back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lockstitch.dialects.bedrock.exchange import encode_event
from lockstitch.proxy.recording import StoreExchange, StoreRecorder
from lockstitch.session.store import Store
from lockstitch.stores.base import Backend
from tests.inprocess import command
from tests.journal.replies import Asked, Reply, Speech, reply_of
from tests.session import events, spoken

T = TypeVar("T")
Json = Any
DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock")
LIST = {"gemini": "contents", "openai-responses": "input"}
SYSTEM = {
    "openai-responses": "instructions",
    "gemini": "systemInstruction",
    "bedrock": "system",
    "anthropic": "system",
}


@dataclass
class Client:
    """One client: what it has in its list, and what it sends beside it."""

    dialect: str
    messages: list[Json] = field(default_factory=list)
    system: str = ""
    beside: dict[str, Json] = field(default_factory=dict)

    def say(self, text: str) -> Client:
        """Say something as the user."""
        block = {
            "anthropic": {"role": "user", "content": text},
            "openai-chat": {"role": "user", "content": text},
            "openai-responses": {"role": "user", "content": text},
            "gemini": {"role": "user", "parts": [{"text": text}]},
            "bedrock": {"role": "user", "content": [{"text": text}]},
        }
        self.messages.append(block[self.dialect])
        return self

    def give(self, results: Iterable[tuple[str, str, str]]) -> Client:
        """Hand in results: the id and the name of a call, and what it gave."""
        made = [_result(self.dialect, *result) for result in results]
        if self.dialect in ("openai-chat", "openai-responses"):
            self.messages += made
        else:
            key = "parts" if self.dialect == "gemini" else "content"
            self.messages.append({"role": "user", key: made})
        return self

    def hear(self, reply: Reply) -> Client:
        """Put a reply into the list, as it is to be handed back."""
        self.messages += json.loads(json.dumps(reply.messages))
        return self

    def body(self) -> bytes:
        """The request as it goes out."""
        body = {
            "model": "a-model",
            **self.beside,
            LIST.get(self.dialect, "messages"): self.messages,
        }
        if self.system and self.dialect == "openai-chat":
            body["messages"] = [{"role": "system", "content": self.system}, *self.messages]
        elif self.system:
            text: Json = self.system
            if self.dialect == "gemini":
                text = {"parts": [{"text": self.system}]}
            elif self.dialect == "bedrock":
                text = [{"text": self.system}]
            body[SYSTEM[self.dialect]] = text
        return json.dumps(body).encode()


def _result(dialect: str, call: str, name: str, text: str) -> Json:
    return {
        "anthropic": {"type": "tool_result", "tool_use_id": call, "content": text},
        "openai-chat": {"role": "tool", "tool_call_id": call, "content": text},
        "openai-responses": {"type": "function_call_output", "call_id": call, "output": text},
        "gemini": {"functionResponse": {"id": call, "name": name, "response": {"output": text}}},
        "bedrock": {"toolResult": {"toolUseId": call, "content": [{"text": text}]}},
    }[dialect]


def answer(dialect: str, number: int, text: str, *calls: str, thought: bool = False) -> Reply:
    """A reply that says something and asks for calls, by their ids."""
    asked = tuple(Asked(call, "look", f"argument of {call}") for call in calls)
    said = f"thought {number}" if thought else ""
    seal = f"c2Vh{number:04}" if thought else ""
    return reply_of(dialect, Speech(number, text=text, calls=asked, thought=said, seal=seal))


def whole(reply: Reply) -> bytes:
    """A reply as it comes in one piece."""
    response = {key: v for key, v in reply.response.items() if key != "ResponseMetadata"}
    return json.dumps(response).encode()


def streamed(dialect: str, text: str, *calls: str, thought: str = "") -> tuple[list[bytes], Json]:
    """A reply as the chunks of a stream, and the same in one piece."""
    pieces: list[spoken.Piece] = [spoken.Thought(thought, "c2ln0001")] if thought else []
    pieces.append(spoken.Said(text))
    pieces += [spoken.Asked(call, "look", {"q": f"argument of {call}"}) for call in calls]
    speaker = spoken.SPEAKERS[dialect]
    pieces = speaker.fitting(pieces)
    sent = [one.event for one in speaker.events(pieces, 4)]
    return [_chunk(dialect, event) for event in sent], speaker.whole(pieces)


def _chunk(dialect: str, event: dict[str, Any]) -> bytes:
    if dialect != "bedrock":
        return events.sse(dialect, [event])
    ((name, fields),) = event.items()
    return encode_event(name, json.dumps(fields).encode())


class Heard:
    """A recorder over a store, driven from a test; every call returns when it is durable."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.store = Store(backend)
        self.recorder = StoreRecorder(backend)
        self._loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def begin(self, client: Client, **options: str) -> StoreExchange:
        """Let a client ask."""
        sent = self.recorder.begin(client.dialect, client.body(), streamed=False, **options)
        return self.run(sent)

    def commit(
        self,
        exchange: StoreExchange,
        data: bytes | Iterable[bytes],
        status: int = 200,
        *,
        complete: bool = True,
    ) -> str:
        """Let the provider answer; gives the name of the session."""
        for chunk in [data] if isinstance(data, bytes) else data:
            exchange.feed(chunk)
        self.run(exchange.commit(status, complete=complete))
        return exchange.session

    def turn(self, client: Client, reply: Reply) -> str:
        """Let a client ask, and hear the answer."""
        name = self.commit(self.begin(client), whole(reply))
        client.hear(reply)
        return name

    def sessions(self) -> list[str]:
        return [listed.session for listed in self.store.sessions()]

    def request(self, name: str, dialect: str = "openai-chat") -> list[Json]:
        """What the session would send."""
        return list(self.store.read(name).request(dialect))

    def said(self, name: str) -> list[str]:
        """What was said in a session, one text a message: who and what."""
        return [spelled(message) for message in self.request(name)]

    def shown(self, name: str) -> str:
        """What ``lockstitch show`` prints of a session."""
        done = command("show", self.backend.url, "--session", name)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def close(self) -> None:
        self.run(self.recorder.close())
        self._loop.close()


def spelled(message: Json) -> str:
    """A message of OpenAI's as one line."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "|".join(block["text"] for block in content)
    calls = [
        f"{call['function']['name']}({call['function']['arguments']})"
        for call in message.get("tool_calls", ())
    ]
    return f"{message['role']}: {content}{' '.join(calls)}"
