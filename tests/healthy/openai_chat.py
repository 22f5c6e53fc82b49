"""Valid histories of the Chat Completions API."""

from __future__ import annotations

from typing import Any

from tests.property.pieces import PIXEL

Message = dict[str, Any]


def said(role: str, content: Any, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def call(key: str, name: str = "bash", arguments: str = '{"command": "ls"}') -> dict[str, Any]:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(key: str, content: Any = "a.py", **more: Any) -> Message:
    return {"role": "tool", "tool_call_id": key, "content": content, **more}


def part(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


HISTORIES: dict[str, Any] = {
    "nothing": [],
    "one question": [said("user", "Hello")],
    "system and developer": [
        said("system", "Be brief"),
        said("developer", "Or not"),
        said("user", "Hi"),
    ],
    "a system message on the way": [
        said("user", "Hello"),
        said("assistant", "Hi."),
        said("system", "Be brief"),
        said("user", "Go on"),
    ],
    "starts with the assistant": [said("assistant", "Welcome."), said("user", "Hello")],
    "same role twice": [said("user", "Hello"), said("user", "There?"), said("assistant", "Yes.")],
    "parallel calls": [
        said("user", "Look around"),
        said("assistant", None, tool_calls=[call("call_1"), call("call_2", "read")]),
        tool("call_1"),
        tool("call_2", [part("print()")]),
        said("assistant", "Done."),
    ],
    "answers in another order": [
        said("user", "Look around"),
        said("assistant", "Sure.", tool_calls=[call("call_1"), call("call_2")]),
        tool("call_2"),
        tool("call_1"),
    ],
    "the user speaks after an answer": [
        said("user", "Look around"),
        said("assistant", "", tool_calls=[call("call_1")]),
        tool("call_1"),
        said("user", "Well?"),
    ],
    "no content beside calls": [
        said("user", "Look around"),
        {"role": "assistant", "tool_calls": [call("call_1")]},
        tool("call_1", ""),
    ],
    "ids of other makers": [
        said("user", "Look around"),
        said("assistant", None, tool_calls=[call("functions.bash:0"), call("toolu_01/x=")]),
        tool("functions.bash:0"),
        tool("toolu_01/x="),
    ],
    "an id that comes back in a later turn": [
        said("user", "Look around"),
        said("assistant", None, tool_calls=[call("bash:0")]),
        tool("bash:0"),
        said("assistant", None, tool_calls=[call("bash:0")]),
        tool("bash:0", "b.py"),
        said("assistant", "Done."),
    ],
    "a custom tool": [
        said("user", "Look around"),
        said(
            "assistant",
            None,
            tool_calls=[
                {"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": "?"}}
            ],
        ),
        tool("call_1"),
    ],
    "the older function call": [
        said("user", "Look around"),
        said("assistant", None, function_call={"name": "bash", "arguments": "{}"}),
        said("function", "a.py", name="bash"),
        said("assistant", "Done."),
    ],
    "a refusal": [
        said("user", "Do it"),
        {"role": "assistant", "content": None, "refusal": "No."},
        said("user", "Please"),
        said("assistant", [{"type": "refusal", "refusal": "No."}]),
    ],
    "sound": [
        said(
            "user",
            [part("Listen"), {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}],
        ),
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
        said("user", "Thanks"),
    ],
    "pictures and files": [
        said(
            "user",
            [
                part("Look"),
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                {"type": "file", "file": {"file_id": "file_1"}},
            ],
        ),
        said("assistant", "A pixel."),
    ],
    "empty words": [said("user", ""), said("assistant", ""), said("user", "Hello")],
    "thoughts beside the answer": [
        said("user", "Think"),
        said("assistant", "Yes.", reasoning_content="Hm."),
        said("user", "Fine"),
    ],
    "thoughts beside a call": [
        said("user", "Think"),
        said("assistant", "", reasoning_content="Hm.", tool_calls=[call("call_1")]),
        tool("call_1"),
    ],
    "fields nobody knows": [
        said("user", "Hello", name="ann", shade="blue"),
        said("assistant", "Hi.", annotations=[], shade="red"),
        said("user", "Fine"),
    ],
    "a whole body": {
        "model": "gpt-5.2",
        "messages": [said("user", "Hello")],
        "tools": [],
        "parallel_tool_calls": True,
    },
}

MISTRAL: dict[str, Any] = {
    "a call": [
        said("system", "Be brief"),
        said("user", "Look around"),
        said("assistant", "", tool_calls=[call("D681PevKs"), call("0aB9cD8eF")]),
        tool("D681PevKs", name="bash"),
        tool("0aB9cD8eF", name="bash"),
        said("assistant", "Done."),
        said("user", "Thanks"),
    ],
    "two steps": [
        said("user", "Look around"),
        said("assistant", "", tool_calls=[call("D681PevKs")]),
        tool("D681PevKs"),
        said("assistant", "", tool_calls=[call("D681PevKt")]),
        tool("D681PevKt"),
    ],
}
