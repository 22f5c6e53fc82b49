"""``lockstitch.testing.provider``, with the clients that other people test."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import boto3  # type: ignore[import-untyped]
import openai
import pytest
from google import genai

from lockstitch.errors import Unreadable, UsageError
from lockstitch.testing import Call, Incoming, Reply, provider

ASK: list[Any] = [{"role": "user", "content": "List the files."}]
ORPHAN: list[Any] = [
    *ASK,
    {"role": "tool", "tool_call_id": "call_1", "content": "words of a person"},
]


def chat(url: str, messages: list[Any] = ASK, **options: Any) -> Any:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        made = client.chat.completions.create(model="m", messages=messages, **options)
        return made.choices[0].message


def test_replies_faults_and_requests() -> None:
    with provider("First.", {"text": "Second."}, Reply(calls=(Call("bash"),))) as strict:
        assert chat(strict.openai_url).content == "First."
        strict.fault("status=500 times=1")
        with pytest.raises(openai.InternalServerError):
            chat(strict.openai_url)
        assert chat(strict.openai_url).content == "Second."
        assert chat(strict.openai_url).content == "ok"
        tools: Any = [{"type": "function", "function": {"name": "bash"}}]
        assert chat(strict.openai_url, tools=tools).tool_calls[0].function.name == "bash"
        strict.reply("Last.")
        assert chat(strict.openai_url).content == "Last."
        assert [request.status for request in strict.requests] == [200, 500, 200, 200, 200, 200]
        assert [request.fault for request in strict.requests[:2]] == ["", "status=500 times=1"]
        first = strict.requests[0]
        assert (first.number, first.path, first.dialect) == (
            1,
            "/v1/chat/completions",
            "openai-chat",
        )
        assert (first.accepted, first.stream, first.body["messages"]) == (True, False, ASK)
        assert first.wait() == first.ended == "whole"
        assert strict.refused == []
        strict.assert_accepted()


def test_a_refused_request_fails_the_test_without_its_words() -> None:
    with provider() as strict:
        with pytest.raises(AssertionError, match="no request reached"):
            strict.assert_accepted()
        with pytest.raises(openai.BadRequestError):
            chat(strict.openai_url, ORPHAN)
        (request,) = strict.refused
        assert (request.status, [found.code for found in request.findings]) == (400, ["LS103"])
        with pytest.raises(AssertionError) as caught:
            strict.assert_accepted()
    said = str(caught.value)
    assert (
        "request 1 to /v1/chat/completions was refused:\n  LS103 orphan-result at messages.1"
        in said
    )
    assert "must be a response to a preceeding message with 'tool_calls'" in said
    assert "words of a person" not in said


def test_a_function_makes_replies_up() -> None:
    def say(request: Incoming) -> str:
        return f"{request.dialect} {request.model} {len(request.messages)}"

    with provider(say) as strict:
        assert chat(strict.openai_url).content == "openai-chat m 1"


def test_a_profile_is_stricter() -> None:
    call = {
        "id": "too-long-for-mistral",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }
    history = [
        *ASK,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "x"},
    ]
    with provider() as strict:
        chat(strict.openai_url, history)
    with (
        provider(profiles=["openai-chat:mistral"]) as strict,
        pytest.raises(openai.BadRequestError),
    ):
        chat(strict.openai_url, history)


def test_a_client_that_goes_away_is_seen() -> None:
    with provider("Some words in several pieces.", fault="stall after=4") as strict:
        client = anthropic.Anthropic(base_url=strict.anthropic_url, api_key="none", max_retries=0)
        with (
            client,
            client.messages.create(model="m", max_tokens=9, messages=ASK, stream=True) as stream,
        ):
            assert next(iter(stream)).type == "message_start"
        assert strict.requests[0].wait() == "gone"


def test_an_answer_that_goes_on_is_waited_for() -> None:
    with provider(fault="stall") as strict:
        asking = threading.Thread(target=_ignored, args=(strict.anthropic_url,))
        asking.start()
        while not strict.requests:
            asking.join(0.005)
        with pytest.raises(TimeoutError, match="the answer to request 1 is still being sent"):
            strict.requests[0].wait(0.01)
        assert strict.requests[0].ended == ""
    asking.join()


def _ignored(url: str) -> None:
    with (
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
        pytest.raises(anthropic.APIConnectionError),
    ):
        client.messages.create(model="m", max_tokens=9, messages=ASK)


def test_the_environment_brings_clients_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the variables: every client finds its way."""
    with provider("1", "2", "3", "4") as strict:
        for name, value in strict.environment.items():
            monkeypatch.setenv(name, value)
        with anthropic.Anthropic() as claude:
            made: Any = claude.messages.create(model="m", max_tokens=9, messages=ASK)
            assert made.content[0].text == "1"
        with openai.OpenAI() as gpt:
            assert gpt.responses.create(model="m", input="Go.").output_text == "2"
        with genai.Client() as gemini:
            asked = gemini.models.generate_content(model="gemini-3-pro", contents="Go.")
            assert asked.text == "3"
        with closing(boto3.session.Session().client("bedrock-runtime")) as bedrock:
            said = bedrock.converse(
                modelId="m", messages=[{"role": "user", "content": [{"text": "Go."}]}]
            )
            assert said["output"]["message"]["content"] == [{"text": "4"}]
        assert [request.dialect for request in strict.requests] == [
            "anthropic",
            "openai-responses",
            "gemini",
            "bedrock",
        ]
        assert strict.gemini_url == strict.bedrock_url == strict.url


@pytest.mark.parametrize("wrong", [7, {"txt": "x"}, ""])
def test_a_reply_that_is_none(wrong: Any) -> None:
    with pytest.raises(Unreadable), provider(wrong):
        pass


def test_a_fault_that_is_none() -> None:
    with pytest.raises(UsageError, match="there is no fault"), provider(fault="bang"):
        pass
    with provider() as strict, pytest.raises(UsageError, match="there is no fault"):
        strict.fault("bang")


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "aiohttp.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'aiohttp'\", name='aiohttp')\n", "utf-8"
    )
    program = "from lockstitch.testing import provider\nwith provider(): pass"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr.endswith("not installed: pip install 'lockstitch[provider]'\n")


def test_a_repr_shows_no_words() -> None:
    seen: list[Incoming] = []
    with provider(seen.append) as strict:
        chat(strict.openai_url)
        shown = f"{strict!r} {strict.requests[0]!r} {seen[0]!r}"
        assert "requests=1" in shown
    assert "List the files." not in shown
