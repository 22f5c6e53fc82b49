"""Valid histories of LangChain messages, as plain dicts; the test also tries their other forms."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


def human(content: Any = "Go on", **more: Any) -> Message:
    return {"type": "human", "content": content, **more}


def ai(content: Any = "", *calls: Any, **more: Any) -> Message:
    return {"type": "ai", "content": content, "tool_calls": list(calls), **more}


def call(key: str, **args: Any) -> dict[str, Any]:
    return {"name": "bash", "args": args, "id": key, "type": "tool_call"}


def tool(key: str, content: Any = "a.py", **more: Any) -> Message:
    return {"type": "tool", "content": content, "tool_call_id": key, **more}


USE = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}
SENT = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "bash", "arguments": '{"command": "ls"}'},
}

HISTORIES: dict[str, list[Message]] = {
    "nothing": [],
    "one question": [human("Hello")],
    "a system prompt": [{"type": "system", "content": "Be brief"}, human(), ai("Yes.")],
    "same role twice": [human(), human(), ai("Yes."), ai("Yes!")],
    "parallel calls": [
        human(),
        ai("Sure.", call("call_1", command="ls"), call("call_2")),
        tool("call_1", name="bash", status="success"),
        tool("call_2", "no", status="error"),
        ai("Done."),
    ],
    "answers in another order": [
        human(),
        ai("", call("call_1"), call("call_2")),
        tool("call_2"),
        tool("call_1"),
    ],
    "an id that comes back": [
        human(),
        ai("", call("bash:0")),
        tool("bash:0"),
        ai("", call("bash:0")),
        tool("bash:0"),
    ],
    "an artifact and parts": [
        human(),
        ai("", call("call_1")),
        tool("call_1", [{"type": "text", "text": "words"}], artifact={"rows": [1, 2]}),
    ],
    "content of the Anthropic kind": [
        human([{"type": "text", "text": "Look"}]),
        ai(
            [
                {"type": "thinking", "thinking": "Hm.", "signature": "EqMB"},
                {"type": "text", "text": "Sure."},
                USE,
            ],
            call("toolu_1", command="ls"),
            response_metadata={"stop_reason": "tool_use", "model_provider": "anthropic"},
        ),
        tool("toolu_1"),
        ai([{"type": "text", "text": "Done."}]),
    ],
    "a server tool of the Anthropic kind": [
        human(),
        ai(
            [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {"type": "text", "text": "Found."},
            ]
        ),
        human(),
    ],
    "content of the Responses kind": [
        human(),
        ai(
            [
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
                {
                    "type": "function_call",
                    "id": "fc_1",
                    "call_id": "call_1",
                    "name": "bash",
                    "arguments": '{"command": "ls"}',
                },
            ],
            call("call_1", command="ls"),
            response_metadata={"model_provider": "openai"},
        ),
        tool("call_1"),
        ai([{"type": "text", "text": "Done.", "annotations": []}]),
    ],
    "calls kept twice, as OpenAI sent them": [
        human(),
        ai("", call("call_1", command="ls"), additional_kwargs={"tool_calls": [SENT]}),
        tool("call_1"),
    ],
    "standard blocks": [
        human(
            [
                {"type": "text", "text": "Look"},
                {"type": "image", "source_type": "url", "url": "https://example.org/a.png"},
            ]
        ),
        ai([{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "A pixel."}]),
    ],
    "calls as OpenAI has them": [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": "", "tool_calls": [SENT]},
        {"role": "tool", "content": "a.py", "tool_call_id": "call_1"},
    ],
    "metadata": [
        human(id="1", name="ann", additional_kwargs={"k": 1}),
        ai(
            "Yes.",
            id="run-2",
            usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        ),
    ],
}
