"""Valid contents of the Gemini API, as REST has them and as the Python SDK writes them."""

from __future__ import annotations

from typing import Any

from tests.property.pieces import PIXEL

Content = dict[str, Any]


def user(*parts: Any) -> Content:
    return {"role": "user", "parts": [{"text": p} if isinstance(p, str) else p for p in parts]}


def model(*parts: Any) -> Content:
    return {**user(*parts), "role": "model"}


def call(name: str, key: str | None = None, **more: Any) -> dict[str, Any]:
    own = {} if key is None else {"id": key}
    return {"functionCall": {**own, "name": name, "args": {"path": "a"}}, **more}


def response(name: str, key: str | None = None, **more: Any) -> dict[str, Any]:
    own = {} if key is None else {"id": key}
    return {"functionResponse": {**own, "name": name, "response": {"output": "words"}, **more}}


def snake(value: Any) -> Any:
    """The same contents with the names that the Python SDK uses."""
    if isinstance(value, list):
        return [snake(item) for item in value]
    if isinstance(value, dict):
        return {NAMES.get(key, key): snake(item) for key, item in value.items()}
    return value


NAMES = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "inlineData": "inline_data",
    "fileData": "file_data",
    "mimeType": "mime_type",
    "fileUri": "file_uri",
    "thoughtSignature": "thought_signature",
    "executableCode": "executable_code",
    "codeExecutionResult": "code_execution_result",
    "toolCall": "tool_call",
    "toolResponse": "tool_response",
    "videoMetadata": "video_metadata",
    "startOffset": "start_offset",
    "toolType": "tool_type",
}
PICTURE = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
SIGNED = {"thoughtSignature": "CpYBAVSo"}

HISTORIES: dict[str, Any] = {
    "nothing": [],
    "one question": [user("Hello")],
    "no role": [{"parts": [{"text": "Hello"}]}],
    "a body": {
        "contents": [user("Hello")],
        "systemInstruction": {"parts": [{"text": "Be brief"}]},
        "generationConfig": {"temperature": 0},
    },
    "a call": [user("Look"), model(call("read")), user(response("read")), model("Done.")],
    "words before the call": [user("Look"), model("Sure.", call("read")), user(response("read"))],
    "parallel calls without ids": [
        user("Look"),
        model(call("read"), call("read"), call("grep")),
        user(response("read"), response("read"), response("grep")),
        model("Done."),
    ],
    "parallel calls with ids": [
        user("Look"),
        model(call("read", "a", **SIGNED), call("read", "b")),
        user(response("read", "a"), response("read", "b")),
        model("Done."),
    ],
    "two steps": [
        user("Look"),
        model(call("read")),
        user(response("read")),
        model(call("grep")),
        user(response("grep")),
    ],
    "the user speaks after the response": [
        user("Look"),
        model(call("read")),
        user(response("read")),
        user("and hurry"),
        model("Done."),
    ],
    "a call without arguments": [
        user("Look"),
        model({"functionCall": {"name": "list"}}),
        user(response("list")),
    ],
    "a response with pictures": [
        user("Look"),
        model(call("read")),
        user(response("read", parts=[PICTURE])),
    ],
    "an error as response": [
        user("Look"),
        model(call("read")),
        user({"functionResponse": {"name": "read", "response": {"error": "no such file"}}}),
    ],
    "the older role for responses": [
        user("Look"),
        model(call("read")),
        {"role": "function", "parts": [response("read")]},
        model("Done."),
    ],
    "pictures, files and films": [
        user(
            "Compare",
            PICTURE,
            {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://bucket/a.pdf"}},
            {
                "fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a.mp4"},
                "videoMetadata": {"startOffset": "1s"},
            },
        ),
        model("Same."),
    ],
    "code that the model ran": [
        user("Compute"),
        model(
            {"executableCode": {"language": "PYTHON", "code": "2+2"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}},
            "Four.",
        ),
        user("Thanks"),
    ],
    "tools that the provider ran": [
        user("Search"),
        model(
            {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["a"]}}},
            {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}},
            "Found.",
        ),
        user("Thanks"),
    ],
    "thoughts and signatures": [
        user("Think"),
        model({"text": "Hm.", "thought": True}, {"text": "Yes.", **SIGNED}),
        user("Fine"),
    ],
    "a signature on an empty text": [
        user("Think"),
        model("Yes.", {"text": "", **SIGNED}),
        user("Fine"),
    ],
    "a signature on the first call only": [
        user("Look"),
        model(call("read", **SIGNED), call("grep")),
        user(response("read"), response("grep")),
        model(call("list", **SIGNED)),
        user(response("list")),
    ],
    "same role twice": [user("Hello"), user("There?"), model("Yes."), user("Good")],
}
HISTORIES |= {f"{name}, snake case": snake(value) for name, value in HISTORIES.items()}
