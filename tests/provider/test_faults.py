"""Faults to order, as the vendors' own clients and a bare connection meet them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, IncompleteRead, RemoteDisconnected
from typing import Any, ClassVar

import anthropic
import openai
import pytest
from botocore import exceptions as amazon  # type: ignore[import-untyped]
from google import genai
from google.genai import errors as google
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.errors import UsageError
from lockstitch.provider import (
    DeliveryEnd,
    InjectedFault,
    Reply,
    Silence,
    delivery_steps,
    fault_in,
    faults_in,
)
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.service import wire_at
from tests.provider.conftest import Running
from tests.provider.test_google_amazon import CLAUDE, bedrock_client
from tests.provider.test_http import BODIES, JSON, PATHS, WORDS, send, words_of
from tests.provider.test_sdks import ANTHROPIC, ASK, CHAT

Start = Callable[..., Running]

SPEECH = Reply("A speech that takes a dozen pieces and more, so that there is something to cut.")
# The same requests as streams.
STREAMS = {
    path: (
        path.replace(":generate", ":streamGenerate").replace("/converse", "/converse-stream")
        + ("?alt=sse" if ":generate" in path else ""),
        {**body, "stream": True} if "/v1/" in path else body,
    )
    for path, body in BODIES.items()
}
PATIENCE = 60
# What the clients call a stream that ends too early.
BROKEN_OFF = r"incomplete chunked read|Connection error|ended prematurely"


def until(is_so: Callable[[], Any]) -> None:
    """Wait for something."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ending(running: Running) -> DeliveryEnd:
    """How the first answer ended, once it has."""
    until(lambda: running.ended)
    return running.ended[1]


def received(running: Running, path: str, body: Any) -> tuple[bytes, bool]:
    """What arrives of an answer's body, and whether that was all of it."""
    connection = HTTPConnection(running.url.removeprefix("http://"), timeout=PATIENCE)
    with closing(connection):
        connection.request("POST", path, json.dumps(body), JSON)
        response = connection.getresponse()
        try:
            return response.read(), True
        except IncompleteRead as error:
            return error.partial, False


class TestWords:
    def test_what_they_mean(self) -> None:
        assert fault_in("") == InjectedFault()
        assert fault_in("stall").stall == math.inf
        assert fault_in(" stall=1.5  after=3 ") == InjectedFault(
            words="stall=1.5 after=3", stall=1.5, after=3
        )
        assert fault_in("cut-bytes=0").cut_bytes == 0
        assert [fault.words for fault in faults_in("drop times=2, status=500 , ")] == [
            "drop times=2",
            "status=500",
        ]

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("explode", "there is no fault 'explode'; the words for faults are drop, status"),
            ("drop=1", "the fault drop takes no value"),
            ("status=200", "status takes the status of an error"),
            ("status", "status takes a whole number"),
            ("cut=-1", "cut takes a whole number"),
            ("cut=²", "cut takes a whole number"),
            ("stall=nan", "stall takes seconds"),
            ("slow=inf", "slow takes seconds"),
            ("slow=-1", "slow takes seconds"),
            ("slow", "slow takes seconds"),
            ("ids=odd", "ids takes one of repeated, same, missing"),
            ("drop only=some", "only takes one of summaries"),
            ("drop times=0", "times takes a whole number, 1 or more"),
            ("only=summaries", "names no fault, only when one should happen"),
            ("retry-after=1", "names no fault"),
        ],
    )
    def test_what_is_none(self, text: str, why: str) -> None:
        with pytest.raises(UsageError, match=why.replace("(", r"\(")):
            fault_in(text)

    def test_a_reply_says_at_once_that_its_fault_is_none(self) -> None:
        with pytest.raises(UsageError, match="there is no fault 'bang'"):
            Reply("x", fault="bang")
        with pytest.raises(UsageError, match="takes neither only= nor times="):
            Reply("x", fault="drop times=1")


@given(
    st.lists(st.binary(min_size=1, max_size=9), max_size=9),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 99),
    st.integers(0, 9),
)
def test_what_goes_out_is_the_beginning(
    events: list[bytes], cut: int | None, cut_bytes: int | None, after: int
) -> None:
    fault = InjectedFault(cut=cut, cut_bytes=cut_bytes, stall=1.0, after=after, slow=0.5)
    *before, end = delivery_steps(events, fault)
    sent = [step for step in before if isinstance(step, bytes)]
    whole = b"".join(events)
    assert whole.startswith(b"".join(sent))
    assert sum(isinstance(step, Silence) for step in before) <= len(sent) + 1
    if end is DeliveryEnd.WHOLE:
        assert sent == events
    else:
        assert end is DeliveryEnd.CUT
        limits = [cut_bytes] if cut_bytes is not None else []
        limits += [len(b"".join(events[:cut]))] if cut is not None else []
        assert len(b"".join(sent)) == min(limits)


@pytest.mark.parametrize("path", PATHS)
class TestEveryRoute:
    """A bare connection: what arrives, to the byte."""

    @pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
    def test_dropped(self, provider: Start, path: str, streamed: bool) -> None:
        running = provider(fault="drop")
        where, body = STREAMS[path] if streamed else (path, BODIES[path])
        with pytest.raises(RemoteDisconnected):
            received(running, where, body)
        assert ending(running) is DeliveryEnd.CUT
        assert [(entry.status, entry.fault) for entry in running.log] == [(0, "drop")]

    @pytest.mark.parametrize("size", [0, 1, 77])
    @pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
    def test_cut_at_a_byte(self, provider: Start, path: str, streamed: bool, size: int) -> None:
        where, body = STREAMS[path] if streamed else (path, BODIES[path])
        whole, is_whole = received(provider(SPEECH), where, body)
        assert is_whole
        running = provider(SPEECH, fault=f"cut-bytes={size}")
        assert received(running, where, body) == (whole[:size], False)
        assert ending(running) is DeliveryEnd.CUT

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_cut_at_an_event(self, provider: Start, path: str, count: int) -> None:
        where, body = STREAMS[path]
        whole, _ = received(provider(SPEECH), where, body)
        data, is_whole = received(provider(SPEECH, fault=f"cut={count}"), where, body)
        assert not is_whole
        assert whole.startswith(data)
        longer, _ = received(provider(SPEECH, fault=f"cut={count + 1}"), where, body)
        assert len(longer) > len(data) >= count
        rest = longer[len(data) :]
        if b"\ndata:" in whole:
            assert rest.endswith((b"\n\n", b"\r\n\r\n"))

    def test_late_and_slow_but_whole(self, provider: Start, path: str) -> None:
        where, body = STREAMS[path]
        whole = received(provider(SPEECH), where, body)
        for fault in (
            "stall=0.01",
            "stall=0.01 after=2",
            "slow=0.001",
            "cut=9999",
            "after=1 stall=0",
        ):
            running = provider(SPEECH, fault=fault)
            assert received(running, where, body) == whole
            assert ending(running) is DeliveryEnd.WHOLE

    @pytest.mark.parametrize("fault", ["stall", "stall after=2"])
    def test_silent_until_the_client_goes(self, provider: Start, path: str, fault: str) -> None:
        running = provider(SPEECH, fault=fault)
        where, body = STREAMS[path]
        connection = HTTPConnection(running.url.removeprefix("http://"), timeout=PATIENCE)
        with closing(connection):
            connection.request("POST", where, json.dumps(body), JSON)
            until(lambda: running.log)
            connection.sock.settimeout(0.1)
            with pytest.raises(TimeoutError):
                connection.getresponse().read()
        assert ending(running) is DeliveryEnd.GONE

    @pytest.mark.parametrize("status", [429, 500, 503, 529])
    def test_a_status(self, provider: Start, path: str, status: int) -> None:
        fault = f"status={status} retry-after=7"
        answer = send(provider(fault=fault), path, BODIES[path])
        wire = wire_at(path)
        assert wire is not None
        assert (answer[0], answer[1]["retry-after"]) == (status, "7")
        assert wire.failure(status) in json.dumps(answer[2])

    @pytest.mark.parametrize("status", [408, 502])
    def test_a_status_of_a_gateway_has_the_kind_that_belongs_to_it(
        self, provider: Start, path: str, status: int
    ) -> None:
        kinds = {
            408: ("timeout_error", "DEADLINE_EXCEEDED", "ModelTimeoutException"),
            502: ("api_error", "UNAVAILABLE", "ServiceUnavailableException"),
        }
        _, headers, body = send(provider(fault=f"status={status}"), path, BODIES[path])
        said = f"{headers.get('x-amzn-errortype')} {json.dumps(body)}"
        is_named = [kind in said for kind in kinds[status]]
        place = {"/v1/messages": 0, "/v1beta": 1, "/model": 2}
        own = next((place[one] for one in place if path.startswith(one)), None)
        assert is_named == [number == own for number in range(3)]

    def test_a_broken_request_is_refused_whatever_else_happens(
        self, provider: Start, path: str
    ) -> None:
        wire = wire_at(path)
        assert wire is not None
        for fault in ("drop", "status=529", "stall", "cut=0"):
            running = provider(fault=fault)
            answer = send(running, path, {**BODIES[path], wire.list_key: [7]})
            assert answer[0] == 400
            assert words_of(path, answer)
            assert running.log[0].fault == ""

    def test_a_fault_of_one_reply(self, provider: Start, path: str) -> None:
        running = provider(Reply(fault="status=500"), Reply("whole"), Reply("x", fault="drop"))
        assert send(running, path, BODIES[path])[0] == 500
        assert "whole" in json.dumps(send(running, path, BODIES[path])[2])
        with pytest.raises(RemoteDisconnected):
            send(running, path, BODIES[path])
        assert '"ok"' in json.dumps(send(running, path, BODIES[path])[2])

    def test_a_reply_that_did_not_arrive_is_given_again(self, provider: Start, path: str) -> None:
        running = provider(SPEECH, fault="cut-bytes=9 times=1, status=529 times=2, drop times=1")
        assert received(running, path, BODIES[path])[1] is False
        assert [send(running, path, BODIES[path])[0] for _ in range(2)] == [529, 529]
        with pytest.raises(RemoteDisconnected):
            send(running, path, BODIES[path])
        assert SPEECH.text in json.dumps(send(running, path, BODIES[path])[2])

    @pytest.mark.parametrize("fault", ["cut=900", "cut-bytes=900000", "stall after=900"])
    def test_a_reply_that_is_too_short_for_its_fault_is_used_up(
        self, provider: Start, path: str, fault: str
    ) -> None:
        running = provider(SPEECH, Reply("second"), fault=fault)
        data, is_whole = received(running, path, BODIES[path])
        assert is_whole
        assert SPEECH.text.encode() in data
        assert b"second" in received(running, path, BODIES[path])[0]


def test_too_many_requests_say_when_to_come_back(provider: Start) -> None:
    path = "/v1/messages"
    answer = send(provider(fault="status=429"), path, BODIES[path])
    assert answer[1]["retry-after"] == "1"
    assert "retry-after" not in send(provider(fault="status=500"), path, BODIES[path])[1]


class TestClients:
    """What the vendors' clients make of it."""

    def test_anthropic(self, provider: Start) -> None:
        def client(fault: str, **options: Any) -> anthropic.Anthropic:
            url = provider(SPEECH, fault=fault).url
            return anthropic.Anthropic(
                base_url=url, api_key="none", **{"max_retries": 0, "timeout": PATIENCE, **options}
            )

        asked: Any = {"messages": ASK, **ANTHROPIC}
        with client("status=429") as one, pytest.raises(anthropic.RateLimitError):
            one.messages.create(**asked)
        with client("status=529") as one, pytest.raises(anthropic.APIStatusError) as caught:
            one.messages.create(**asked)
        assert (caught.value.status_code, caught.value.type) == (529, "overloaded_error")
        with client("drop") as one, pytest.raises(anthropic.APIConnectionError):
            one.messages.create(**asked)
        with client("stall", timeout=0.3) as one, pytest.raises(anthropic.APITimeoutError):
            one.messages.create(**asked)
        with client("status=529 retry-after=0 times=2", max_retries=2) as one:
            assert one.messages.create(**asked).content[0].text == SPEECH.text
        seen: list[Any] = []
        with (
            client("cut=4") as one,
            pytest.raises(Exception, match=BROKEN_OFF),
            one.messages.stream(**asked) as stream,
        ):
            seen.extend(stream)
        # The client keeps pings to itself, and adds events of its own.
        kinds = [event.type for event in seen if event.type != "text"]
        assert kinds == ["message_start", "content_block_start", "content_block_delta"]

    def test_openai(self, provider: Start) -> None:
        def client(fault: str, **options: Any) -> openai.OpenAI:
            url = provider(SPEECH, fault=fault).url
            return openai.OpenAI(
                base_url=f"{url}/v1",
                api_key="none",
                **{"max_retries": 0, "timeout": PATIENCE, **options},
            )

        asked: Any = {"messages": ASK, **CHAT}
        with client("status=429") as one, pytest.raises(openai.RateLimitError) as caught:
            one.chat.completions.create(**asked)
        assert caught.value.code == "rate_limit_exceeded"
        with client("status=500") as one, pytest.raises(openai.InternalServerError):
            one.responses.create(input=ASK, model="m")
        with client("stall", timeout=0.3) as one, pytest.raises(openai.APITimeoutError):
            one.responses.create(input=ASK, model="m")
        with client("drop times=1", max_retries=1) as one:
            made = one.chat.completions.create(**asked)
            assert made.choices[0].message.content == SPEECH.text
        with client("cut=3") as one:
            pieces: list[Any] = []
            with pytest.raises(Exception, match=BROKEN_OFF):
                pieces.extend(one.chat.completions.create(stream=True, **asked))
            assert len(pieces) == 3

    def test_gemini(self, provider: Start) -> None:
        def client(fault: str, timeout: int = PATIENCE * 1000) -> genai.Client:
            options = types.HttpOptions(base_url=provider(SPEECH, fault=fault).url, timeout=timeout)
            return genai.Client(api_key="none", vertexai=False, http_options=options)

        asked: Any = {"model": "gemini-2.5-flash", "contents": "Go."}
        with client("status=429") as one, pytest.raises(google.ClientError) as caught:
            one.models.generate_content(**asked)
        assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
        with client("status=503") as one, pytest.raises(google.ServerError) as failed:
            one.models.generate_content(**asked)
        assert (failed.value.code, failed.value.status) == (503, "UNAVAILABLE")
        with client("drop") as one, pytest.raises(Exception, match="disconnected"):
            one.models.generate_content(**asked)
        with client("stall", 300) as one, pytest.raises(Exception, match="timed out"):
            one.models.generate_content(**asked)
        pieces: list[Any] = []
        with client("cut=2") as one, pytest.raises(Exception, match=BROKEN_OFF):
            pieces.extend(one.models.generate_content_stream(**asked))
        assert len(pieces) == 2

    def test_bedrock(self, provider: Start) -> None:
        def client(fault: str, **options: Any) -> Any:
            return closing(bedrock_client(provider(SPEECH, fault=fault).url, **options))

        asked = {"modelId": CLAUDE, "messages": [{"role": "user", "content": [{"text": WORDS}]}]}
        with client("status=429") as one, pytest.raises(amazon.ClientError) as caught:
            one.converse(**asked)
        assert caught.value.response["Error"]["Code"] == "ThrottlingException"
        with client("status=500") as one, pytest.raises(amazon.ClientError) as caught:
            one.converse(**asked)
        assert caught.value.response["Error"]["Code"] == "InternalServerException"
        with client("drop") as one, pytest.raises(amazon.ConnectionClosedError):
            one.converse(**asked)
        with client("stall", read_timeout=0.3) as one, pytest.raises(amazon.ReadTimeoutError):
            one.converse(**asked)
        seen: list[Any] = []
        with (
            client("cut=3") as one,
            pytest.raises(Exception, match=BROKEN_OFF),
        ):
            seen.extend(one.converse_stream(**asked)["stream"])
        assert [next(iter(event)) for event in seen] == [
            "messageStart",
            "contentBlockDelta",
            "contentBlockDelta",
        ]


class TestSummaries:
    TOOLS = ({"name": "bash", "input_schema": {"type": "object"}},)

    def sent(self, running: Running, text: str, *, tools: bool) -> int:
        body = {**BODIES["/v1/messages"], "messages": [{"role": "user", "content": text}]}
        return send(running, "/v1/messages", {**body, **({"tools": self.TOOLS} if tools else {})})[
            0
        ]

    def test_only_they_fail(self, provider: Start) -> None:
        running = provider(fault="status=504 only=summaries")
        assert self.sent(running, "List the files.", tools=True) == 200
        assert self.sent(running, "List the files.", tools=False) == 504
        asking = "Your task is to create a detailed summary of the conversation so far."
        assert self.sent(running, asking, tools=True) == 504
        assert self.sent(running, "Please summarize it.", tools=True) == 504

    def test_they_time_out(self, provider: Start) -> None:
        running = provider(fault="stall only=summaries")
        assert self.sent(running, "List the files.", tools=True) == 200
        client = anthropic.Anthropic(
            base_url=running.url, api_key="none", max_retries=0, timeout=0.3
        )
        with client, pytest.raises(anthropic.APITimeoutError):
            client.messages.create(model="m", max_tokens=9, messages=ASK)

    def test_a_result_that_speaks_of_one_is_none(self, provider: Start) -> None:
        running = provider(fault="status=504 only=summaries")
        call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a summary"}
        history = [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
        body = {**BODIES["/v1/messages"], "messages": history, "tools": self.TOOLS}
        assert send(running, "/v1/messages", body)[0] == 200


class TestIds:
    CALLS = Reply(calls=(Call("bash", {"n": 1}), Call("bash", {"n": 2})))
    TOOLS: ClassVar[dict[str, Any]] = {
        "/v1/messages": {"tools": [{"name": "bash", "input_schema": {"type": "object"}}]},
        "/v1/chat/completions": {"tools": [{"type": "function", "function": {"name": "bash"}}]},
        "/v1/responses": {"tools": [{"type": "function", "name": "bash"}]},
        PATHS[3]: {"tools": [{"functionDeclarations": [{"name": "bash"}]}]},
        PATHS[4]: {"toolConfig": {"tools": [{"toolSpec": {"name": "bash"}}]}},
    }

    def ids(self, running: Running, path: str, more: dict[str, Any]) -> list[str | None]:
        answer = send(running, path, {**BODIES[path], **self.TOOLS[path], **more})[2]
        blocks: list[Any] = {
            "/v1/messages": lambda: answer["content"],
            "/v1/chat/completions": lambda: answer["choices"][0]["message"]["tool_calls"],
            "/v1/responses": lambda: answer["output"],
            PATHS[3]: lambda: [
                part["functionCall"] for part in answer["candidates"][0]["content"]["parts"]
            ],
            PATHS[4]: lambda: [b["toolUse"] for b in answer["output"]["message"]["content"]],
        }[path]()
        key = {"/v1/responses": "call_id", PATHS[4]: "toolUseId"}.get(path, "id")
        return [block.get(key) for block in blocks]

    @pytest.mark.parametrize("path", PATHS)
    def test_each_kind(self, provider: Start, path: str) -> None:
        grown = {"temperature": 1}
        for fault in ("", "ids=repeated", "ids=same", "ids=missing"):
            running = provider(self.CALLS, self.CALLS, fault=fault)
            first, second = (self.ids(running, path, more) for more in ({}, grown))
            if fault == "ids=missing":
                assert first == second == [None, None]
                continue
            assert (len(set(first)) == 1) == (fault == "ids=same")
            assert (first == second) == (fault == "ids=repeated")
            assert all(first + second)
