"""The known kinds of break on every route: refused in the real provider's words and shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.kinds_of_break.conversations import BROKEN, HEALTHY, Ask, Conversation, Say
from tests.kinds_of_break.render import FORMS
from tests.oracles import problems
from tests.provider.conftest import BASH, Running
from tests.provider.test_http import send, words_of

Start = Callable[..., Running]

NAMES = ("read_file", "grep", "list_files")
# Where each form is sent: the routes, the rest of the body, and what a stream is asked for with.
ROUTES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "anthropic": (
        "/v1/messages",
        "/v1/messages",
        {
            "model": "claude-sonnet-4-5",
            "max_tokens": 9,
            "tools": [{"name": name, "input_schema": BASH} for name in NAMES],
        },
        {"stream": True},
    ),
    "openai-chat": (
        "/v1/chat/completions",
        "/v1/chat/completions",
        {"model": "m"},
        {"stream": True},
    ),
    "openai-responses": ("/v1/responses", "/v1/responses", {"model": "m"}, {"stream": True}),
    "gemini": (
        "/v1beta/models/gemini-2.5-pro:generateContent",
        "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
        {},
        {},
    ),
    "gemini-snake": (
        "/v1/models/gemini-2.5-pro:generateContent",
        "/v1/models/gemini-2.5-pro:streamGenerateContent",
        {},
        {},
    ),
    "bedrock": (
        "/model/amazon.nova-pro-v1%3A0/converse",
        "/model/amazon.nova-pro-v1%3A0/converse-stream",
        {
            "toolConfig": {
                "tools": [{"toolSpec": {"name": n, "inputSchema": {"json": BASH}}} for n in NAMES]
            }
        },
        {},
    ),
}
KEYS = {"openai-responses": "input", "gemini": "contents"}
# How the real ones begin what they say about calls and results.
WORDS = {
    "anthropic": r"(messages\.\d+(\.content\.\d+)?: (`tool_use` ids|unexpected `tool_use_id`))"
    r"|each tool_use must have a single result\.|The request body is not valid JSON",
    "openai-chat": r"An assistant message with 'tool_calls' must be followed by tool messages"
    r"|Invalid parameter: (messages with role 'tool' must be a response to"
    r"|Duplicate value for 'tool_call_id' of 'call00001', in messages\[2\] and messages\[3\]\.)",
    "openai-responses": r"No tool (output|call) found for function call|Duplicate function_call",
    "gemini": r"Please ensure that (the number of )?function (response|call)",
    "bedrock": r"Expected toolResult blocks at |The number of toolResult blocks at "
    r"|This model does not support assistant message prefill\."
    r"|The model returned the following errors: messages\.5\.content\.1: `tool_use` ids must be",
}
# What nobody has seen the words of: these are refused in ours.
OWN_WORDS = {
    "openai-chat": ("17",),
    "openai-responses": ("17",),
    "gemini": ("17",),
    "bedrock": ("17",),
}


def asked(form: str, conversation: Conversation, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """A path and a whole body."""
    dialect, render = FORMS[form]
    whole, streamed, rest, switch = ROUTES[form]
    key = KEYS.get(dialect, "messages")
    turns = conversation.turns
    if isinstance(turns[-1], Say) and not turns[-1].calls:
        # The model has spoken: somebody asks again.
        turns = (*turns, Ask("And now?"))
    body = {**rest, key: render(turns), **(switch if stream else {})}
    return (streamed if stream else whole), body


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("form", ROUTES)
def test_every_kind_is_refused_and_the_healthy_accepted(
    provider: Start, form: str, stream: bool
) -> None:
    running = provider()
    dialect = FORMS[form][0]
    for conversation in (HEALTHY, *BROKEN):
        path, body = asked(form, conversation, stream=stream)
        answer = send(running, path, body)
        key = KEYS.get(dialect, "messages")
        if not problems(dialect, body[key]):
            assert answer[0] == 200, (conversation.name, answer)
            continue
        assert answer[0] == 400, conversation.name
        words = words_of(path, answer)
        in_its_words = re.match(WORDS[dialect], words) is not None
        known = conversation.name[:2] not in OWN_WORDS.get(dialect, ())
        assert in_its_words == known, (conversation.name, words)
        assert "MARK" not in words
    assert "MARK" not in repr(running.log)
    accepted = [entry.outcome for entry in running.log].count("accepted")
    # Where a provider does not mind an id that comes back, or a late output: those, too.
    assert accepted == {"anthropic": 1, "bedrock": 1, "openai-responses": 3}.get(dialect, 2)
