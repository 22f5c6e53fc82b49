"""LS1xx: every call is answered exactly once, in the right place."""

from __future__ import annotations

from typing import Any

from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME

from .case import Case
from .kits import (
    ALL,
    ANTHROPIC,
    BEDROCK,
    CHAT,
    GEMINI,
    KITS,
    LANGCHAIN,
    MISTRAL,
    RESPONSES,
    TOOL,
    A,
    B,
    Chat,
    Kit,
    arguments,
    output,
    thoughtful,
)


def _anthropic_open(call: str, message: int = 1) -> str:
    return (
        f"messages.{message}: `tool_use` ids were found without `tool_result` blocks immediately "
        f"after: {call}. Each `tool_use` block must have a corresponding `tool_result` block in "
        "the next message."
    )


def _open(call: str) -> dict[str, str]:
    """What each provider says of a call at message 1 that is not answered right behind it."""
    return {
        "anthropic": _anthropic_open(call),
        "openai-chat": "An assistant message with 'tool_calls' must be followed by tool messages "
        "responding to each 'tool_call_id'. The following tool_call_ids did not have response "
        f"messages: {call}",
        "openai-responses": f"No tool output found for function call {call}.",
        "gemini": "Please ensure that the number of function response parts is equal to the "
        "number of function call parts of the function call turn.",
        "bedrock": "Expected toolResult blocks at messages.2.content for the following Ids: "
        f"{call}",
        "langchain": "Found AIMessages with tool_calls that do not have a corresponding "
        f"ToolMessage. Here are the first few of those tool calls: [{call}]",
    }


NO_CALL = {
    "anthropic": "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: "
    f"{A}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
    "message.",
    "openai-chat": "Invalid parameter: messages with role 'tool' must be a response to a "
    "preceeding message with 'tool_calls'.",
    "openai-chat:mistral": "Unexpected role 'tool' after role 'user'",
    "openai-chat:kimi": f"tool message tool_call_id '{A}' does not match any tool call in the "
    "preceding assistant messages",
    "openai-chat:minimax": f"invalid params, tool result's tool id({A}) not found (2013)",
    "openai-responses": f"No tool call found for function call output with call_id {A}.",
    "gemini": "Please ensure that function response turn comes immediately after a function call "
    "turn.",
    "bedrock": "The number of toolResult blocks at messages.2.content exceeds the number of "
    "toolUse blocks of previous turn.",
    "langchain": None,
}
TWICE = {
    "anthropic": "each tool_use must have a single result. Found multiple `tool_result` blocks "
    f"with id: {A}",
    "openai-chat": f"Invalid parameter: Duplicate value for 'tool_call_id' of '{A}', in "
    "messages[2] and messages[3].",
    "openai-responses": f"Duplicate function_call_output for call_id {A}",
    "gemini": "Please ensure that the number of function response parts is equal to the number of "
    "function call parts of the function call turn.",
    "bedrock": "The number of toolResult blocks at messages.2.content exceeds the number of "
    "toolUse blocks of previous turn.",
}
OTHER_CHATS = {
    "openai-chat:deepseek": "An assistant message with 'tool_calls' must be followed by tool "
    "messages responding to each 'tool_call_id'. (insufficient tool messages following tool_calls "
    "message)",
    "openai-chat:mistral": "Not the same number of function calls and responses",
    "openai-chat:glm": "messages 参数非法。请检查文档。",
    "openai-chat:minimax": "invalid params, tool call result does not follow tool call (2013)",
}


def _answered(kit: Kit) -> list[Any]:
    return [*kit.user(), *kit.calls(A), *kit.results(A)]


def orphan_calls() -> list[Case]:
    cases = [
        Case(
            code="LS101",
            dialect=name,
            broken=[*kit.user(), *kit.calls(A)],
            whole=_answered(kit),
            place=kit.at_call(1),
            error=_open(A)[name],
        )
        for name, kit in KITS.items()
        if name in ALL
    ]
    for name, error in OTHER_CHATS.items():
        kit = Chat(name)
        case = Case(
            code="LS101",
            dialect=name,
            broken=thoughtful([*kit.user(), *kit.calls(A)]),
            whole=thoughtful(_answered(kit)),
            place=kit.at_call(1),
            error=error,
        )
        cases.append(case)
    buried = Case(
        code="LS101",
        dialect="anthropic",
        note="in the middle",
        broken=[*ANTHROPIC.user(), *ANTHROPIC.calls(A), *ANTHROPIC.user("Hello?")],
        whole=[*_answered(ANTHROPIC), *ANTHROPIC.user("Hello?")],
        place="messages.1.content.0",
        error=_anthropic_open(A),
    )
    return [*cases, buried, *_other_call_kinds()]


def _other_call_kinds() -> list[Case]:
    kinds = {
        "custom_tool_call": (
            {"name": "patch", "input": "x"},
            "custom_tool_call_output",
            f"No tool output found for custom tool call {A}.",
        ),
        "local_shell_call": (
            {"action": {"type": "exec", "command": ["ls"]}},
            "local_shell_call_output",
            ...,
        ),
        "apply_patch_call": (
            {"operation": {"type": "delete_file", "path": "x"}, "status": "completed"},
            "apply_patch_call_output",
            ...,
        ),
    }
    return [
        Case(
            code="LS101",
            dialect="openai-responses",
            note=kind,
            broken=[*RESPONSES.user(), {"type": kind, "call_id": A, **fields}],
            whole=[
                *RESPONSES.user(),
                {"type": kind, "call_id": A, **fields},
                {"type": answer, "call_id": A, "output": output(A)},
            ],
            place="input.1",
            error=error,
        )
        for kind, (fields, answer, error) in kinds.items()
    ]


def partial_batches() -> list[Case]:
    return [
        Case(
            code="LS102",
            dialect=name,
            broken=[*kit.user(), *kit.calls(A, B), *kit.results(A)],
            whole=[*kit.user(), *kit.calls(A, B), *kit.results(A, B)],
            place=kit.at_call(1, 1),
            error=(_open(B) | OTHER_CHATS)[name],
        )
        for name, kit in KITS.items()
        if name in ALL or name == "openai-chat:mistral"
    ]


def orphan_results() -> list[Case]:
    kits = {**KITS, **{name: Chat(name) for name in NO_CALL if name not in KITS}}
    del kits["bedrock"]
    cases = [
        Case(
            code="LS103",
            dialect=name,
            broken=[*kits[name].user(), *kits[name].results(A)],
            whole=_answered(kits[name]),
            place=kits[name].at_result(1),
            error=error,
        )
        for name, error in NO_CALL.items()
        if name in kits
    ]
    bedrock = Case(
        code="LS103",
        dialect="bedrock",
        broken=[*BEDROCK.user(), *BEDROCK.assistant(), *BEDROCK.results(A)],
        whole=_answered(BEDROCK),
        place="messages.2.content.0",
        error=NO_CALL["bedrock"],
    )
    return [*cases, bedrock]


def displaced_results() -> list[Case]:
    """A message got between; an output of the Responses API may come late, but not early."""
    wedged = [
        Case(
            code="LS104",
            dialect=name,
            note="something between",
            broken=[*kit.user(), *kit.calls(A), *kit.user("Hurry."), *kit.results(A)],
            whole=[*kit.user(), *kit.calls(A), *kit.results(A), *kit.user("Hurry.")],
            place=kit.at_call(1),
            error=_open(A)[name],
        )
        for name, kit in KITS.items()
        if name in ALL and name not in ("openai-responses", "bedrock")
    ]
    between = [*BEDROCK.user("Hurry."), *BEDROCK.assistant("Wait.")]
    bedrock = Case(
        code="LS104",
        dialect="bedrock",
        note="something between",
        broken=[*BEDROCK.user(), *BEDROCK.calls(A), *between, *BEDROCK.results(A)],
        whole=[*_answered(BEDROCK), *BEDROCK.assistant("Wait."), *BEDROCK.user("Hurry.")],
        place="messages.1.content.0",
        error=_open(A)["bedrock"],
    )
    early = [
        Case(
            code="LS104",
            dialect=kit.dialect,
            note="before its call",
            broken=[*kit.user(), *kit.results(A), *kit.calls(A)],
            whole=_answered(kit),
            place=kit.at_result(1),
            error=NO_CALL[kit.dialect],
        )
        for kit in (ANTHROPIC, CHAT, RESPONSES)
    ]
    return [*wedged, bedrock, *early]


def result_layouts() -> list[Case]:
    anthropic = Case(
        code="LS105",
        dialect="anthropic",
        note="text first",
        broken=[
            *ANTHROPIC.user(),
            *ANTHROPIC.calls(A),
            {
                "role": "user",
                "content": [{"type": "text", "text": "Here:"}, ANTHROPIC.result(A, output(A))],
            },
        ],
        whole=[
            *ANTHROPIC.user(),
            *ANTHROPIC.calls(A),
            {
                "role": "user",
                "content": [ANTHROPIC.result(A, output(A)), {"type": "text", "text": "Here:"}],
            },
        ],
        place="messages.2",
        error=_anthropic_open(A),
    )
    bedrock = Case(
        code="LS105",
        dialect="bedrock",
        note="text first",
        broken=[
            *BEDROCK.user(),
            *BEDROCK.calls(A),
            {"role": "user", "content": [{"text": "Here:"}, BEDROCK.result(A, output(A))]},
        ],
        whole=[
            *BEDROCK.user(),
            *BEDROCK.calls(A),
            {"role": "user", "content": [BEDROCK.result(A, output(A)), {"text": "Here:"}]},
        ],
        place="messages.2",
        error=_open(A)["bedrock"],
    )
    apart = [
        Case(
            code="LS105",
            dialect=kit.dialect,
            note="one message a result",
            broken=[*kit.user(), *kit.calls(A, B), *kit.results(A), *kit.results(B)],
            whole=[*kit.user(), *kit.calls(A, B), *kit.results(A, B)],
            place=f"{kit.key}.2",
            error=_open(B)[kit.dialect],
        )
        for kit in (ANTHROPIC, GEMINI)
    ]
    return [anthropic, bedrock, *apart]


def repeated_results() -> list[Case]:
    """Inside one message where a message holds several results, else one behind the other."""
    same = [
        Case(
            code="LS106",
            dialect=name,
            note="the same again",
            broken=[*kit.user(), *kit.calls(A), *kit.results(A, A)],
            whole=_answered(kit),
            place=kit.at_result(2, 1),
            error=TWICE.get(name),
        )
        for name, kit in KITS.items()
        if name in ALL
    ]
    mistral = Case(
        code="LS106",
        dialect="openai-chat:mistral",
        broken=[*MISTRAL.user(), *MISTRAL.calls(A), *MISTRAL.results(A, A)],
        whole=_answered(MISTRAL),
        place="messages.3",
        error="Not the same number of function calls and responses",
    )
    other = [
        Case(
            code="LS106",
            dialect=name,
            note="another answer",
            broken=[*kit.user(), *kit.calls(A), *kit.results(A, (A, "something else"))],
            whole=_answered(kit),
            place=kit.at_result(2, 1),
            error=TWICE.get(name),
        )
        for name, kit in KITS.items()
        if name in ALL
    ]
    return [*same, mistral, *other]


def masked_results() -> list[Case]:
    return [
        Case(
            code="LS107",
            dialect=name,
            broken=[*kit.user(), *kit.calls(A), *kit.results((A, UNKNOWN_OUTCOME), A)],
            whole=_answered(kit),
            place=kit.at_result(2),
            error=TWICE.get(name),
        )
        for name, kit in KITS.items()
        if name in ALL
    ]


def server_pairs() -> list[Case]:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    said = {"type": "text", "text": "Found."}
    whole = [
        *ANTHROPIC.user(),
        {"role": "assistant", "content": [search, found, said]},
        *ANTHROPIC.user("More."),
    ]
    use = {"toolUseId": "srv1", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}
    result = {"toolUseId": "srv1", "content": [{"json": {}}], "type": "nova_grounding_result"}
    bedrock_whole = [
        *BEDROCK.user(),
        {"role": "assistant", "content": [{"toolUse": use}, {"toolResult": result}, {"text": "F"}]},
        *BEDROCK.user("More."),
    ]
    return [
        Case(
            code="LS108",
            dialect="anthropic",
            note="call alone",
            broken=[
                *ANTHROPIC.user(),
                {"role": "assistant", "content": [search, said]},
                *ANTHROPIC.user("More."),
            ],
            whole=whole,
            place="messages.1.content.0",
            error="messages.1: `web_search` tool use with id `srvtoolu_1` was found without a "
            "corresponding `web_search_tool_result` block",
            loses=True,
        ),
        Case(
            code="LS108",
            dialect="anthropic",
            note="result alone",
            broken=[
                *ANTHROPIC.user(),
                {"role": "assistant", "content": [said, found]},
                *ANTHROPIC.user("More."),
            ],
            whole=whole,
            place="messages.1.content.1",
            error="messages.1.content.1: unexpected `tool_use_id` found in "
            "`web_search_tool_result` blocks: srvtoolu_1. Each `web_search_tool_result` block must "
            "have a corresponding `server_tool_use` block before it.",
            loses=True,
        ),
        Case(
            code="LS108",
            dialect="bedrock",
            broken=[
                *BEDROCK.user(),
                {"role": "assistant", "content": [{"toolUse": use}, {"text": "F"}]},
                *BEDROCK.user("More."),
            ],
            whole=bedrock_whole,
            place="messages.1.content.0",
            loses=True,
        ),
    ]


def output_kinds() -> list[Case]:
    call = {"type": "custom_tool_call", "call_id": A, "name": "patch", "input": "x"}
    wrong = {"type": "function_call_output", "call_id": A, "output": output(A)}
    right = {"type": "custom_tool_call_output", "call_id": A, "output": output(A)}
    case = Case(
        code="LS109",
        dialect="openai-responses",
        broken=[*RESPONSES.user(), call, wrong],
        whole=[*RESPONSES.user(), call, right],
        loses=True,
        place="input.2",
        error=f"No tool output found for custom tool call {A}.",
    )
    return [case]


def texts_after_calls() -> list[Case]:
    text = {"type": "text", "text": "Also:"}
    anthropic = Case(
        code="LS110",
        dialect="anthropic",
        broken=[
            *ANTHROPIC.user(),
            {"role": "assistant", "content": [ANTHROPIC.call(A), text]},
            *ANTHROPIC.results(A),
        ],
        whole=[
            *ANTHROPIC.user(),
            {"role": "assistant", "content": [text, ANTHROPIC.call(A)]},
            *ANTHROPIC.results(A),
        ],
        place="messages.1.content.0",
        error=_anthropic_open(A),
    )
    bedrock = Case(
        code="LS110",
        dialect="bedrock",
        broken=[
            *BEDROCK.user(),
            {"role": "assistant", "content": [BEDROCK.call(A), {"text": "Also:"}]},
            *BEDROCK.results(A),
        ],
        whole=[
            *BEDROCK.user(),
            {"role": "assistant", "content": [{"text": "Also:"}, BEDROCK.call(A)]},
            *BEDROCK.results(A),
        ],
        place="messages.1.content.0",
        error=_open(A)["bedrock"],
    )
    return [anthropic, bedrock]


def calls_that_disagree() -> list[Case]:
    block = {"type": "tool_use", "id": A, "name": TOOL, "input": arguments(A)}
    only_a_block = {"type": "ai", "content": [block], "tool_calls": []}
    both = {"type": "ai", "content": [block], "tool_calls": [LANGCHAIN.call(A)]}
    case = Case(
        code="LS111",
        dialect="langchain",
        broken=[*LANGCHAIN.user(), only_a_block, *LANGCHAIN.results(A)],
        whole=[*LANGCHAIN.user(), both, *LANGCHAIN.results(A)],
        place="messages.1.content.0",
        error=_open(A)["langchain"],
        also={"LS103": "the only call its result could answer is not listed as one"},
    )
    return [case]


CASES = [
    *orphan_calls(),
    *partial_batches(),
    *orphan_results(),
    *displaced_results(),
    *result_layouts(),
    *repeated_results(),
    *masked_results(),
    *server_pairs(),
    *output_kinds(),
    *texts_after_calls(),
    *calls_that_disagree(),
]
