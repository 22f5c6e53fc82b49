"""Valid histories of Bedrock's Converse API."""

from __future__ import annotations

import base64
from typing import Any

from tests.property.pieces import PIXEL

Block = dict[str, Any]
BYTES = base64.b64decode(PIXEL)


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"text": c} if isinstance(c, str) else c for c in content]}


def assistant(*content: Any) -> dict[str, Any]:
    return {**user(*content), "role": "assistant"}


def call(key: str, **more: Any) -> Block:
    return {"toolUse": {"toolUseId": key, "name": "bash", "input": {"command": "ls"}, **more}}


def result(key: str, *content: Any, **more: Any) -> Block:
    return {"toolResult": {"toolUseId": key, "content": list(content or [{"text": "a"}]), **more}}


CACHE = {"cachePoint": {"type": "default"}}
PICTURE = {"image": {"format": "png", "source": {"bytes": BYTES}}}
DOCUMENT = {"document": {"format": "pdf", "name": "paper", "source": {"bytes": b"%PDF-"}}}
SIGNED = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "EqMB"}}}

HISTORIES: dict[str, Any] = {
    "nothing": [],
    "one question": [user("Hello")],
    "parallel calls": [
        user("Look around"),
        assistant("Sure.", call("tooluse_1"), call("tooluse_2")),
        user(result("tooluse_1"), result("tooluse_2", status="success")),
        assistant("Done."),
    ],
    "results in another order, then words": [
        user("Look around"),
        assistant(call("tooluse_1"), call("tooluse_2")),
        user(result("tooluse_2"), result("tooluse_1"), "and hurry"),
        assistant("Done."),
    ],
    "results of every kind": [
        user("Look around"),
        assistant(call("tooluse_1"), call("tooluse_2"), call("tooluse_3")),
        user(
            result("tooluse_1", {"json": {"files": ["a"]}}),
            result("tooluse_2", {"text": "words"}, PICTURE, DOCUMENT),
            result("tooluse_3", {"text": "no such file"}, status="error"),
        ),
    ],
    "cache points": [
        user("Look around", CACHE),
        assistant(call("tooluse_1"), CACHE),
        user(result("tooluse_1"), CACHE),
        assistant("Done."),
        user("Thanks", {"cachePoint": {"type": "default", "ttl": "1h"}}),
    ],
    "reasoning": [
        user("Look around"),
        assistant(SIGNED, "Sure.", call("tooluse_1")),
        user(result("tooluse_1")),
        assistant({"reasoningContent": {"redactedContent": b"EmwK"}}, "Done."),
        user("Thanks"),
    ],
    "a document with words": [user("Summarise", DOCUMENT), assistant("Short.")],
    "a picture alone": [user(PICTURE), assistant("A pixel.")],
    "media in a bucket": [
        user(
            "Watch",
            {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://bucket/a.mp4"}}}},
        ),
        assistant("Seen."),
    ],
    "content for the guardrail": [
        user({"guardContent": {"text": {"text": "Hello", "qualifiers": ["query"]}}}),
        assistant("Hi."),
    ],
    "citations": [
        user("Cite", {"searchResult": {"source": "s", "title": "t", "content": [{"text": "w"}]}}),
        assistant(
            {"citationsContent": {"content": [{"text": "w"}], "citations": [{"title": "t"}]}}
        ),
        user("Thanks"),
    ],
    "a tool that the provider runs": [
        user("Search"),
        assistant(
            call("tooluse_1", type="server_tool_use"),
            result("tooluse_1", type="nova_grounding_result"),
            "Found.",
        ),
        user("Thanks"),
    ],
    "a whole body": {
        "modelId": "anthropic.claude-sonnet-4-5-v1:0",
        "messages": [user("Hello")],
        "system": [{"text": "Be brief"}, CACHE],
        "toolConfig": {"tools": []},
        "inferenceConfig": {"maxTokens": 100},
    },
    "ids of other makers": [
        user("Look around"),
        assistant(call("functions.bash:0")),
        user(result("functions.bash:0")),
    ],
}
