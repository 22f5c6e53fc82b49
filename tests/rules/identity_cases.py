"""LS2xx: ids, names, arguments and tool lists."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from .case import Case
from .kits import (
    ANTHROPIC,
    BEDROCK,
    CHAT,
    KITS,
    MISTRAL,
    RESPONSES,
    STRICT,
    TOOL,
    A,
    B,
    Chat,
    Kit,
    LangChain,
    output,
    thoughtful,
)

WITH_IDS = ("anthropic", "openai-chat", "openai-responses", "bedrock", "langchain")
LONG = "long-" * 13
TOOLS = [{"name": TOOL, "input_schema": {"type": "object"}}]


def _pair(kit: Kit, call: str = A) -> list[Any]:
    return [*kit.user(), *kit.calls(call), *kit.results(call)]


def _changed(messages: list[Any], path: tuple[Any, ...], value: Any) -> list[Any]:
    """A copy with one value replaced."""
    fresh = deepcopy(messages)
    node: Any = fresh
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return fresh


def repeated_calls() -> list[Case]:
    """Two calls that differ share an id; and, in one dialect, an exact repeat."""
    errors = {
        "anthropic": "messages.1.content.1: `tool_use` ids must be unique",
        "bedrock": f"The toolUse blocks at messages.1.content contain duplicate Ids: {A}",
    }
    cases = []
    for name in (*WITH_IDS, "gemini"):
        kit = KITS[name]
        whole = [*kit.user(), *kit.calls(A, B), *kit.results(A, B)]
        both = deepcopy(kit.calls(A, B))
        _rename(kit, both, A)
        case = Case(
            code="LS201",
            dialect=name,
            note="two calls",
            broken=[*kit.user(), *both, *kit.results((A, output(A)), (A, output(B)))],
            whole=whole,
            place=kit.at_call(1, 1),
            error=errors.get(name),
        )
        cases.append(case)
    twice = Case(
        code="LS201",
        dialect="anthropic",
        note="one call twice",
        broken=[*ANTHROPIC.user(), *ANTHROPIC.calls(A, A), *ANTHROPIC.results(A)],
        whole=_pair(ANTHROPIC),
        place="messages.1.content.1",
        error="messages.1.content.1: `tool_use` ids must be unique",
        also={"LS102": "the repeat has no result of its own"},
    )
    return [*cases, twice]


def _rename(kit: Kit, calls: list[Any], new: str) -> None:
    """Give the last of some calls another id, in place."""
    if kit is RESPONSES:
        calls[-1]["call_id"] = new
    elif kit is BEDROCK:
        calls[0]["content"][-1]["toolUse"]["toolUseId"] = new
    elif kit.dialect == "gemini":
        calls[0]["parts"][-1]["functionCall"]["id"] = new
    else:
        calls[0][kit.call_list][-1]["id"] = new


def reused_ids() -> list[Case]:
    unique = "messages.3.content.0: `tool_use` ids must be unique"
    errors = {
        "anthropic": unique,
        "openai-responses": f"Duplicate function_call_output for call_id {A}",
        "bedrock": f"The model returned the following errors: {unique}",
    }
    kits: list[Kit] = [ANTHROPIC, RESPONSES, BEDROCK, MISTRAL]
    kits += [LangChain("langchain:mistral"), LangChain("langchain:anthropic")]
    kits += [Chat("openai-chat:minimax"), Chat("openai-chat:glm"), Chat("openai-chat:deepseek")]
    return [
        Case(
            code="LS202",
            dialect=kit.dialect,
            broken=thoughtful([*_pair(kit), *kit.calls(A), *kit.results(A)]),
            whole=thoughtful([*_pair(kit), *kit.calls(B), *kit.results(B)]),
            place=kit.at_call(3),
            error=errors.get(kit.dialect),
        )
        for kit in kits
    ]


def missing_ids() -> list[Case]:
    error = "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    return [
        Case(
            code="LS203",
            dialect=name,
            broken=_pair(KITS[name], ""),
            whole=_pair(KITS[name]),
            place=KITS[name].at_call(1),
            error=error if name == "anthropic" else None,
        )
        for name in WITH_IDS
    ]


def odd_ids() -> list[Case]:
    return [
        Case(
            code="LS204",
            dialect="anthropic",
            broken=_pair(ANTHROPIC, "ls:0"),
            whole=_pair(ANTHROPIC, "ls-0"),
            place="messages.1.content.0",
            error="messages.1.content.0.tool_use.id: String should match pattern "
            "'^[a-zA-Z0-9_-]+$'",
        ),
        Case(
            code="LS204",
            dialect="bedrock",
            broken=_pair(BEDROCK, "ls|0"),
            whole=_pair(BEDROCK, "ls:0"),
            place="messages.1.content.0",
        ),
        Case(
            code="LS204",
            dialect="openai-chat:mistral",
            note="an underscore",
            broken=_pair(MISTRAL, "call_0001"),
            whole=_pair(MISTRAL),
            place="messages.1.tool_calls.0",
            error="Tool call id was call_0001 but must be a-z, A-Z, 0-9, with a length of 9.",
        ),
        Case(
            code="LS204",
            dialect="langchain:mistral",
            broken=_pair(LangChain("langchain:mistral"), "call_0001"),
            whole=_pair(LangChain("langchain:mistral")),
            place="messages.1.tool_calls.0",
            error=...,
        ),
        Case(
            code="LS204",
            dialect="langchain:anthropic",
            broken=_pair(LangChain("langchain:anthropic"), "ls:0"),
            whole=_pair(LangChain("langchain:anthropic")),
            place="messages.1.tool_calls.0",
            error=...,
        ),
        Case(
            code="LS204",
            dialect="openai-chat:mistral",
            note="ten characters",
            broken=_pair(MISTRAL, "call000001"),
            whole=_pair(MISTRAL),
            place="messages.1.tool_calls.0",
            error="Tool call id was call000001 but must be a-z, A-Z, 0-9, with a length of 9.",
        ),
    ]


def long_ids() -> list[Case]:
    return [
        Case(
            code="LS205",
            dialect="openai-responses",
            broken=_pair(RESPONSES, LONG),
            whole=_pair(RESPONSES, LONG[:64]),
            place="input.1",
            error="Invalid 'input[1].call_id': string too long. Expected a string with maximum "
            "length 64, but got a string with length 65 instead.",
        ),
        Case(
            code="LS205",
            dialect="bedrock",
            broken=_pair(BEDROCK, LONG),
            whole=_pair(BEDROCK, LONG[:64]),
            place="messages.1.content.0",
        ),
    ]


def item_ids() -> list[Case]:
    def items(first: str, second: str) -> list[Any]:
        one, two = RESPONSES.assistant("One."), RESPONSES.assistant("Two.")
        return [*RESPONSES.user(), one[0] | {"id": first}, two[0] | {"id": second}]

    whole = items("msg_1", "msg_2")
    reasoning = {"type": "reasoning", "id": "item_1", "summary": []}
    return [
        Case(
            code="LS206",
            dialect="openai-responses",
            note="twice",
            broken=items("msg_1", "msg_1"),
            whole=whole,
            place="input.2.id",
            error="Duplicate item found with id msg_1. Remove duplicate items from your input and "
            "try again.",
        ),
        Case(
            code="LS206",
            dialect="openai-responses",
            note="prefix",
            broken=items("msg_1", "item_2"),
            whole=whole,
            place="input.2.id",
            error="Invalid 'input[2].id': 'item_2'. Expected an ID that begins with 'msg'.",
        ),
        Case(
            code="LS206",
            dialect="openai-responses",
            note="too long",
            broken=items("msg_1", "msg_" + "2" * 61),
            whole=whole,
            place="input.2.id",
            error="Invalid 'input[2].id': string too long. Expected a string with maximum length "
            "64, but got a string with length 65 instead.",
        ),
        Case(
            code="LS206",
            dialect="openai-responses",
            note="reasoning",
            broken=[*RESPONSES.user(), reasoning, *RESPONSES.assistant()],
            whole=[*RESPONSES.user(), reasoning | {"id": "rs_1"}, *RESPONSES.assistant()],
            place="input.1.id",
            error="Invalid 'input[1].id': 'item_1'. Expected an ID that begins with 'rs'.",
            loses=True,
        ),
    ]


def bad_arguments() -> list[Case]:
    cut = '{"path": "/ca'
    paths: dict[str, tuple[Any, ...]] = {
        "anthropic": (1, "content", 0, "input"),
        "openai-chat": (1, "tool_calls", 0, "function", "arguments"),
        "openai-responses": (1, "arguments"),
        "gemini": (1, "parts", 0, "functionCall", "args"),
        "bedrock": (1, "content", 0, "toolUse", "input"),
        "langchain": (1, "tool_calls", 0, "args"),
    }
    cases = [
        Case(
            code="LS207",
            dialect=name,
            broken=_changed(_pair(KITS[name]), path, cut),
            whole=_pair(KITS[name]),
            place=KITS[name].at_call(1),
            error="messages.1.content.0.tool_use.input: Input should be a valid dictionary"
            if name == "anthropic"
            else None,
            loses=True,
        )
        for name, path in paths.items()
    ]
    minimax = Chat("openai-chat:minimax")
    return [
        *cases,
        Case(
            code="LS207",
            dialect="openai-chat:minimax",
            broken=_changed(_pair(minimax), paths["openai-chat"], cut),
            whole=_pair(minimax),
            place="messages.1.tool_calls.0",
            error=f"invalid params, invalid function arguments json string, tool_call_id: {A} "
            "(2013)",
            loses=True,
        ),
        Case(
            code="LS207",
            dialect="openai-chat:strict",
            broken=_changed(_pair(STRICT), paths["openai-chat"], '{path: "/ca"}'),
            whole=_pair(STRICT),
            place="messages.1.tool_calls.0",
            error="unexpected character: line 1 column 2 (char 1)",
            loses=True,
        ),
        Case(
            code="LS207",
            dialect="openai-chat:ollama",
            note="JSON, but no object",
            broken=_changed(_pair(CHAT), paths["openai-chat"], '"/ca"'),
            whole=_pair(CHAT),
            place="messages.1.tool_calls.0",
            loses=True,
        ),
        Case(
            code="LS207",
            dialect="openai-chat",
            note="bad JSON of the model's own",
            broken=_changed(_pair(CHAT), paths["openai-chat"], '{path: "/ca"}'),
            whole=_pair(CHAT),
            place="messages.1.tool_calls.0",
            severity="warning",
            loses=True,
        ),
        *(
            Case(
                code="LS207",
                dialect=name,
                note=f"{kind} for an object",
                broken=_changed(_pair(KITS[name]), path, _as_json(name, value)),
                whole=_pair(KITS[name]),
                place=KITS[name].at_call(1),
                error="messages.1.content.0.tool_use.input: Input should be a valid dictionary"
                if name == "anthropic"
                else None,
                loses=value is not None,
            )
            for name, path in paths.items()
            for kind, value in (("a list", ["/ca"]), ("nothing", None), ("a number", 3))
            # Gemini: no arguments is what it sends itself for a call without any.
            if (name, value) != ("gemini", None)
        ),
    ]


def _as_json(name: str, value: Any) -> Any:
    if not name.startswith("openai"):
        return value
    return "" if value is None else json.dumps(value)


def dead_references() -> list[Case]:
    def body(name: str, tools: list[Any]) -> dict[str, Any]:
        found = ANTHROPIC.result(A, [{"type": "tool_reference", "tool_name": name}])
        messages = [
            *ANTHROPIC.user(),
            *ANTHROPIC.calls(A),
            {"role": "user", "content": [found]},
        ]
        return {"tools": tools, "messages": messages}

    return [
        Case(
            code="LS208",
            dialect="anthropic",
            broken=body("gone", TOOLS),
            whole=body(TOOL, TOOLS),
            place="messages.2.content.0",
            error="Tool reference 'gone' not found in available tools",
            loses=True,
        ),
        Case(
            code="LS208",
            dialect="anthropic",
            note="one tool twice",
            broken={"tools": TOOLS * 2, "messages": ANTHROPIC.user()},
            whole={"tools": TOOLS, "messages": ANTHROPIC.user()},
            place="tools.1",
            loses=True,
            error="Tool names must be unique.",
        ),
    ]


def missing_tools() -> list[Case]:
    spec = {"toolSpec": {"name": TOOL, "inputSchema": {"json": {"type": "object"}}}}
    return [
        Case(
            code="LS209",
            dialect="anthropic",
            broken={"messages": _pair(ANTHROPIC)},
            whole={"messages": _pair(ANTHROPIC), "tools": TOOLS},
            place="tools",
            error="Requests which have `tool_use` or `tool_result` blocks in messages must define "
            "tools",
        ),
        Case(
            code="LS209",
            dialect="bedrock",
            broken={"messages": _pair(BEDROCK)},
            whole={"messages": _pair(BEDROCK), "toolConfig": {"tools": [spec]}},
            place="toolConfig",
            error="The toolConfig field must be defined when using toolUse and toolResult content "
            "blocks.",
        ),
    ]


def bad_names() -> list[Case]:
    paths: dict[str, tuple[Any, ...]] = {
        "anthropic": (1, "content", 0, "name"),
        "openai-chat": (1, "tool_calls", 0, "function", "name"),
        "openai-responses": (1, "name"),
        "gemini": (1, "parts", 0, "functionCall", "name"),
        "bedrock": (1, "content", 0, "toolUse", "name"),
        "langchain": (1, "tool_calls", 0, "name"),
    }
    errors = {
        "anthropic": "messages.1.content.0.tool_use.name: String should match pattern "
        "'^[a-zA-Z0-9_-]{1,128}$'",
        "openai-chat": "Invalid 'messages[1].tool_calls[0].function.name': string does not match "
        "pattern.",
    }
    return [
        Case(
            code="LS210",
            dialect=name,
            note=note,
            broken=_changed(_pair(KITS[name]), path, wrong),
            whole=_pair(KITS[name]),
            place=KITS[name].at_call(1),
            error=errors.get(name),
            loses=True,
        )
        for name, path in paths.items()
        for note, wrong in (("no name", ""), ("parameters glued on", 'ls path="/"'))
        if wrong == "" or name not in ("gemini", "langchain")
    ]


CASES = [
    *repeated_calls(),
    *reused_ids(),
    *missing_ids(),
    *odd_ids(),
    *long_ids(),
    *item_ids(),
    *bad_arguments(),
    *dead_references(),
    *missing_tools(),
    *bad_names(),
]
