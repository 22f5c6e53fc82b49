"""The oracles see what they are there to see; that they accept what is valid, `healthy` shows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.healthy import anthropic as a
from tests.healthy import bedrock as b
from tests.healthy import gemini as g
from tests.healthy import langchain as lc
from tests.healthy import openai_chat as c
from tests.healthy import openai_responses as r

from . import problems

ASK = a.user("go")
PDF = {"type": "base64", "media_type": "application/pdf", "data": ""}

REFUSED: dict[str, list[Any]] = {
    "anthropic": [
        [a.assistant("hi")],
        [ASK, a.assistant(a.call("1"))],
        [ASK, a.assistant(a.call("1")), ASK],
        [ASK, a.assistant(a.call("1")), ASK, a.user(a.result("1"))],
        [ASK, a.assistant(a.call("1")), a.user(a.text("x"), a.result("1"))],
        [ASK, a.assistant(a.call("1")), a.user(a.result("1"), a.result("1"))],
        [ASK, a.assistant(a.call("1"), a.call("1")), a.user(a.result("1"))],
        [ASK, a.assistant(a.call("1"), a.text("x")), a.user(a.result("1"))],
        [ASK, a.assistant(a.call("1")), a.assistant("x"), a.user(a.result("1"))],
        [ASK, a.assistant(a.call("a b")), a.user(a.result("a b"))],
        [ASK, a.assistant({**a.call("1"), "input": "{"}), a.user(a.result("1"))],
        [ASK, a.assistant(a.call("1")), a.user(a.result("1", [a.PICTURE], is_error=True))],
        [a.user(a.result("1"))],
        [a.user(" ")],
        [a.user(a.text(""))],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": None}],
        [{"role": "tool", "content": "x"}],
        [a.user("\ud83d")],
        [a.user("\0")],
        [a.user({"type": "image", "source": PDF})],
        [ASK, a.assistant(a.thinking("x", "")), ASK],
        [ASK, a.assistant(a.server("s", "web_search")), ASK],
        [ASK, a.assistant(a.answer("s", "web_search", [])), ASK],
        [ASK, a.assistant(a.server("s", "web_search"), a.answer("s", "advisor", [])), ASK],
        [{"role": "system", "content": "x"}, ASK],
        [a.user(*[a.text("x", cache_control=a.CACHE)] * 5)],
    ],
    "openai-chat": [
        [c.said("assistant", None, tool_calls=[c.call("1")])],
        [c.said("assistant", None, tool_calls=[c.call("1")]), c.said("user", "x"), c.tool("1")],
        [c.said("assistant", None, tool_calls=[c.call("1")]), c.tool("1"), c.tool("1")],
        [c.said("assistant", None, tool_calls=[c.call("1", arguments="{")]), c.tool("1")],
        [c.said("assistant", None, tool_calls=[c.call("")]), c.tool("")],
        [c.tool("1")],
        [c.said("user", None)],
        [c.said("user", [])],
        [c.said("narrator", "x")],
    ],
    "openai-chat:mistral": [
        [c.said("assistant", "hi")],
        [
            c.said("user", "x"),
            c.said("assistant", "", tool_calls=[c.call("123456789")]),
            c.tool("123456789"),
            c.said("user", "x"),
        ],
        [c.said("user", "x"), c.said("assistant", "", tool_calls=[c.call("1")]), c.tool("1")],
    ],
    "openai-responses": [
        [r.call("1")],
        [r.output("1")],
        [r.output("1"), r.call("1")],
        [r.call("1"), r.output("1"), r.output("1")],
        [r.call("1"), r.output("1"), r.call("1")],
        [r.call("1"), {**r.output("1"), "type": "custom_tool_call_output"}],
        [r.call("1" * 65), r.output("1" * 65)],
        [r.call("1", arguments="{"), r.output("1")],
        [r.call("1", item="msg_1"), r.output("1")],
        [r.answer(), r.answer()],
        [r.reasoning("rs_1")],
        [r.reasoning("rs_1"), r.user()],
        [{"type": "reasoning", "id": "rs_1"}, r.answer()],
        [{"role": "user", "content": None}],
    ],
    "gemini": [
        [g.model("x")],
        [g.user("x"), g.model(g.call("f"))],
        [g.user("x"), g.model(g.call("f")), g.user("x"), g.user(g.response("f"))],
        [g.user("x"), g.model(g.call("f")), g.user(g.response("f"), "x")],
        [g.user("x"), g.model(g.call("f")), g.user(g.response("h"))],
        [g.user("x"), g.model(g.call("f"), g.call("f")), g.user(g.response("f"))],
        [g.user("x"), g.model("x"), g.model(g.call("f")), g.user(g.response("f"))],
        [g.user("x"), g.model(g.call("f", "1")), g.user(g.response("h", "2"))],
        [g.user(g.response("f"))],
        [g.user("")],
        [g.user({})],
        [{"role": "user", "parts": []}],
        [{"role": "assistant", "parts": [{"text": "x"}]}],
    ],
    "bedrock": [
        [b.user("x"), b.user("y")],
        [b.user("x"), b.assistant(b.call("1"))],
        [b.user("x"), b.assistant(b.call("1")), b.user("y")],
        [b.user("x"), b.assistant(b.call("1")), b.user("y", b.result("1"))],
        [b.user("x"), b.assistant(b.call("1")), b.user(b.result("1"), b.result("1"))],
        [b.user("x"), b.assistant(b.call("a b")), b.user(b.result("a b"))],
        [b.user(b.result("1"))],
        [b.user(" ")],
        [b.user(b.DOCUMENT)],
        [b.user("x"), b.assistant({"reasoningContent": {"reasoningText": {"text": "x"}}})],
        [{"role": "user", "content": []}],
    ],
    "langchain": [
        [lc.ai("", lc.call("1"))],
        [lc.ai("", lc.call("1")), lc.human(), lc.tool("1")],
        [lc.ai("", lc.call("1")), lc.tool("1"), lc.tool("1")],
        [lc.tool("1")],
        [lc.ai([lc.USE]), lc.human()],
        [lc.ai("", additional_kwargs={"tool_calls": [lc.SENT]}), lc.human()],
        [lc.ai("", invalid_tool_calls=[{"name": "f", "args": "{", "id": "1"}]), lc.tool("1")],
        [{"type": "human", "content": None}],
    ],
}


@pytest.mark.parametrize(
    ("dialect", "value"),
    [(dialect, value) for dialect, values in REFUSED.items() for value in values],
)
def test_refused(dialect: str, value: Any) -> None:
    assert problems(dialect, value)
