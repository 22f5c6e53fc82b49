"""Valid inputs of the Responses API."""

from __future__ import annotations

from typing import Any

from tests.property.pieces import PIXEL

Item = dict[str, Any]


def user(words: str = "Go on") -> Item:
    return {"role": "user", "content": words}


def answer(words: str = "Done.", key: str = "msg_1") -> Item:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return {
        "type": "message",
        "id": key,
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def call(key: str, item: str | None = None, arguments: str = '{"command": "ls"}') -> Item:
    own = {} if item is None else {"id": item, "status": "completed"}
    return {"type": "function_call", "call_id": key, "name": "bash", "arguments": arguments, **own}


def output(key: str, content: Any = "a.py") -> Item:
    return {"type": "function_call_output", "call_id": key, "output": content}


def reasoning(key: str, **more: Any) -> Item:
    return {"type": "reasoning", "id": key, "summary": [], **more}


SCREEN = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PIXEL}"}
SECRET = {"encrypted_content": "gAAAAABo"}

HISTORIES: dict[str, Any] = {
    "nothing": [],
    "a body with a string": {"model": "gpt-5.2", "input": "Hello"},
    "easy messages": [
        {"role": "developer", "content": "Be brief"},
        user(),
        {"role": "assistant", "content": "Yes."},
        user(),
    ],
    "messages with parts": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look"},
                {"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"},
                {"type": "input_file", "file_id": "file_1"},
            ],
        },
        answer(),
    ],
    "a refusal": [
        user(),
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "refusal", "refusal": "No."}],
        },
        user(),
    ],
    "a phase": [
        user(),
        {**answer("Looking."), "phase": "commentary"},
        call("call_1"),
        output("call_1"),
    ],
    "parallel calls": [user(), call("call_1"), call("call_2"), output("call_1"), output("call_2")],
    "outputs in another order": [
        user(),
        call("call_1"),
        call("call_2"),
        output("call_2"),
        output("call_1"),
        answer(),
    ],
    "an output after a message": [
        user(),
        call("call_1"),
        user("and hurry"),
        output("call_1"),
        answer(),
    ],
    "an output with parts": [
        user(),
        call("call_1"),
        output(
            "call_1",
            [
                {"type": "input_text", "text": "words"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
            ],
        ),
    ],
    "reasoning before an answer and before calls": [
        user(),
        reasoning("rs_1", **SECRET),
        call("call_1", "fc_1"),
        output("call_1"),
        reasoning("rs_2", summary=[{"type": "summary_text", "text": "Enough."}], **SECRET),
        answer(),
        user(),
    ],
    "reasoning with its text": [
        user(),
        reasoning("rs_1", content=[{"type": "reasoning_text", "text": "Hm."}], status="completed"),
        answer(),
    ],
    "reasoning in a row": [
        user(),
        reasoning("rs_1"),
        reasoning("rs_2"),
        call("call_1"),
        output("call_1"),
    ],
    "a custom tool": [
        user(),
        {
            "type": "custom_tool_call",
            "id": "ctc_1",
            "call_id": "call_1",
            "name": "sql",
            "input": "select",
        },
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "1"},
        answer(),
    ],
    "the local shell": [
        user(),
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "call_1",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "local_shell_call_output", "call_id": "call_1", "id": "lsho_1", "output": "{}"},
        answer(),
    ],
    "the local shell, output tied by its id": [
        user(),
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "call_1",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "local_shell_call_output", "id": "call_1", "output": "{}"},
        answer(),
    ],
    "the shell": [
        user(),
        {"type": "shell_call", "call_id": "call_1", "action": {"commands": ["ls"]}},
        {
            "type": "shell_call_output",
            "call_id": "call_1",
            "output": [
                {"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
            ],
        },
        answer(),
    ],
    "apply patch": [
        user(),
        {
            "type": "apply_patch_call",
            "call_id": "call_1",
            "status": "completed",
            "operation": {"type": "delete_file", "path": "a.py"},
        },
        {"type": "apply_patch_call_output", "call_id": "call_1", "status": "completed"},
        answer(),
    ],
    "the computer": [
        user(),
        reasoning("rs_1"),
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "call_1",
            "status": "completed",
            "pending_safety_checks": [],
            "action": {"type": "screenshot"},
        },
        {"type": "computer_call_output", "call_id": "call_1", "output": SCREEN},
        answer(),
    ],
    "tools the provider runs": [
        user(),
        reasoning("rs_1"),
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "weather"},
        },
        {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["a"]},
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "status": "completed",
            "container_id": "cntr_1",
            "code": "1",
            "outputs": None,
        },
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PIXEL},
        answer(),
        user(),
    ],
    "an MCP server with approval": [
        user(),
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "files", "tools": []},
        {
            "type": "mcp_approval_request",
            "id": "mcpr_1",
            "name": "read",
            "server_label": "files",
            "arguments": "{}",
        },
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "name": "read",
            "server_label": "files",
            "arguments": "{}",
            "output": "words",
            "approval_request_id": "mcpr_1",
        },
        answer(),
    ],
    "an approval that is still open": [
        user(),
        {
            "type": "mcp_approval_request",
            "id": "mcpr_1",
            "name": "read",
            "server_label": "files",
            "arguments": "{}",
        },
    ],
    "tool search": [
        user(),
        {
            "type": "tool_search_call",
            "id": "tsc_1",
            "call_id": None,
            "execution": "server",
            "arguments": {"query": "weather"},
            "status": "completed",
        },
        {
            "type": "tool_search_output",
            "id": "tso_1",
            "call_id": None,
            "execution": "server",
            "tools": [],
            "status": "completed",
        },
        call("call_1"),
        output("call_1"),
    ],
    "a compaction item": [
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABo"},
        user(),
        answer(),
    ],
    "references to stored items": [
        user(),
        {"type": "item_reference", "id": "rs_1"},
        {"type": "item_reference", "id": "fc_1"},
        output("call_1"),
    ],
    "a reference without a type": [user(), {"id": "msg_1"}, user()],
    "an output for a stored response": {
        "model": "gpt-5.2",
        "previous_response_id": "resp_1",
        "input": [output("call_1")],
    },
    "an output for a stored conversation": {
        "model": "gpt-5.2",
        "conversation": "conv_1",
        "input": [output("call_1")],
    },
    "a call id of 64 characters": [user(), call("c" * 64), output("c" * 64)],
    "fields nobody knows": [
        {**user(), "shade": "blue"},
        {"type": "hologram", "id": "hg_1", "beam": [1, None]},
        answer(),
    ],
}
