"""LS4xx: turns, roles and content."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

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
    A,
    B,
    Chat,
    Kit,
    LangChain,
    output,
)
from .reasoning_cases import SIGNED

MARKED = {"cache_control": {"type": "ephemeral"}}
PREFILL = (
    "This model does not support assistant message prefill. The conversation must end with a user "
    "message."
)


def _text(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **fields}


def _user(*blocks: Any) -> list[Any]:
    return [{"role": "user", "content": list(blocks)}]


def blank_texts() -> list[Case]:
    whole = _user(_text("Look."), _text("There."))
    return [
        Case(
            code="LS401",
            dialect="anthropic",
            note="empty",
            broken=_user(_text("Look."), _text("")),
            whole=whole,
            place="messages.0.content.1",
            error="messages: text content blocks must be non-empty",
        ),
        Case(
            code="LS401",
            dialect="anthropic",
            note="white space",
            broken=_user(_text("Look."), _text(" \n")),
            whole=whole,
            place="messages.0.content.1",
            error="messages: text content blocks must contain non-whitespace text",
        ),
        Case(
            code="LS401",
            dialect="anthropic",
            note="the whole message",
            broken=[*ANTHROPIC.user(" "), *ANTHROPIC.assistant()],
            whole=[*ANTHROPIC.user(), *ANTHROPIC.assistant()],
            place="messages.0.content",
            error="messages: text content blocks must contain non-whitespace text",
        ),
        Case(
            code="LS401",
            dialect="bedrock",
            broken=_user({"text": "Look."}, {"text": ""}),
            whole=_user({"text": "Look."}, {"text": "There."}),
            place="messages.0.content.1",
            error="The text in content block cannot be null or empty.",
        ),
        Case(
            code="LS401",
            dialect="langchain:anthropic",
            broken=[*LANGCHAIN.user(" "), *LANGCHAIN.assistant()],
            whole=[*LANGCHAIN.user(), *LANGCHAIN.assistant()],
            place="messages.0.content",
            error=...,
        ),
        Case(
            code="LS401",
            dialect="gemini",
            broken=[{"role": "user", "parts": [{"text": "Look."}, {"text": ""}]}],
            whole=[{"role": "user", "parts": [{"text": "Look."}, {"text": " "}]}],
            place="contents.0.parts.1",
            error="contents[0].parts[1].data: required oneof field 'data' must have one "
            "initialized field",
        ),
    ]


def cache_markers() -> list[Case]:
    def turn(*blocks: Any) -> list[Any]:
        return [
            *ANTHROPIC.user(),
            {"role": "assistant", "content": list(blocks)},
            *ANTHROPIC.user("More."),
        ]

    five = [_text(f"Part {number}.", **MARKED) for number in range(5)]
    system = [_text("Be brief.", **MARKED)]
    return [
        Case(
            code="LS402",
            dialect="anthropic",
            note="on thinking",
            broken=turn(SIGNED | MARKED, _text("I looked.")),
            whole=turn(SIGNED, _text("I looked.", **MARKED)),
            place="messages.1.content.0",
            error="messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
        ),
        Case(
            code="LS402",
            dialect="anthropic",
            note="on an empty text",
            broken=_user(_text("Look."), _text("", **MARKED)),
            whole=_user(_text("Look.", **MARKED)),
            place="messages.0.content.1",
            error="messages.0.content.1.text: cache_control cannot be set for empty text blocks",
            also={"LS401": "an empty text is refused without a marker, too"},
        ),
        Case(
            code="LS403",
            dialect="anthropic",
            broken=_user(*five),
            whole=_user(*five[:4]),
            place="messages.0.content.0",
            error="A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        Case(
            code="LS403",
            dialect="anthropic",
            note="with the system prompt",
            broken={"system": system, "messages": _user(*five[:4])},
            whole={"system": system, "messages": _user(*five[:3])},
            place="messages.0.content.0",
            error="A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
    ]


def empty_contents() -> list[Case]:
    chat_errors = {
        "openai-chat": "Invalid value for 'content': expected a string, got null.",
        "openai-chat:ollama": "invalid message content type: <nil>",
        "openai-chat:lmstudio": "Invalid 'content': 'content' field must be a string or an array "
        "of objects.",
    }
    chats = [
        Case(
            code="LS404",
            dialect=name,
            broken=[*CHAT.user(), {"role": "assistant", "content": None}],
            whole=[*CHAT.user(), {"role": "assistant", "content": ""}],
            place="messages.1",
            error=error,
        )
        for name, error in chat_errors.items()
    ]
    call = CHAT.calls(A)[0]
    return [
        *chats,
        Case(
            code="LS404",
            dialect="openai-chat",
            note="an empty list",
            broken=[{"role": "user", "content": []}],
            whole=[{"role": "user", "content": ""}],
            place="messages.0",
            error="Invalid 'messages[0].content': empty array",
        ),
        Case(
            code="LS404",
            dialect="openai-chat:ollama",
            note="null beside calls",
            broken=[*CHAT.user(), call | {"content": None}, *CHAT.results(A)],
            whole=[*CHAT.user(), call, *CHAT.results(A)],
            place="messages.1",
            error="invalid message content type: <nil>",
        ),
        Case(
            code="LS404",
            dialect="anthropic",
            note="a turn",
            broken=[
                *ANTHROPIC.user(),
                {"role": "assistant", "content": []},
                *ANTHROPIC.user("Hello?"),
            ],
            whole=[*ANTHROPIC.user(), {"role": "assistant", "content": []}],
            place="messages.1",
            error="messages.1: all messages must have non-empty content except for the optional "
            "final assistant message",
        ),
        Case(
            code="LS404",
            dialect="anthropic",
            note="a question",
            broken=[{"role": "user", "content": []}],
            whole=ANTHROPIC.user(),
            place="messages.0",
            error="messages.0: all messages must have non-empty content except for the optional "
            "final assistant message",
        ),
        Case(
            code="LS404",
            dialect="openai-responses",
            broken=[{"type": "message", "role": "user", "content": []}],
            whole=[{"type": "message", "role": "user", "content": ""}],
            place="input.0",
        ),
        Case(
            code="LS404",
            dialect="gemini",
            broken=[{"role": "user", "parts": []}],
            whole=GEMINI.user(),
            place="contents.0",
            error="* GenerateContentRequest.contents[0].parts: contents.parts must not be empty.",
        ),
        Case(
            code="LS404",
            dialect="bedrock",
            broken=[{"role": "user", "content": []}],
            whole=BEDROCK.user(),
            place="messages.0",
            error="The content field in the Message object at messages.0 is empty. Add a "
            "ContentBlock object to the content field and try again.",
        ),
        Case(
            code="LS404",
            dialect="langchain",
            broken=[{"type": "human", "content": None}],
            whole=[{"type": "human", "content": ""}],
            place="messages.0",
        ),
    ]


def alternation() -> list[Case]:
    errors = {
        "bedrock": 'messages: roles must alternate between "user" and "assistant", but found '
        'multiple "user" roles in a row',
        "openai-chat:mistral": "Unexpected role 'user' after role 'user'",
        "openai-chat:strict": "After the optional system message, conversation roles must "
        "alternate user and assistant roles...",
    }
    users = [
        Case(
            code="LS405",
            dialect=name,
            note="users",
            broken=[*KITS[name].user(), *KITS[name].user("There.")],
            whole=KITS[name].user(),
            place="messages.0",
            error=error,
        )
        for name, error in errors.items()
    ]
    assistants = Case(
        code="LS405",
        dialect="openai-chat:mistral",
        note="assistants",
        broken=[*MISTRAL.user(), *MISTRAL.assistant(), *MISTRAL.assistant("Nothing.")],
        whole=[*MISTRAL.user(), *MISTRAL.assistant()],
        place="messages.1",
        error="Unexpected role 'assistant' after role 'assistant'",
    )
    kit = LangChain("langchain:mistral")
    langchain = Case(
        code="LS405",
        dialect=kit.dialect,
        broken=[*kit.user(), *kit.user("There.")],
        whole=kit.user(),
        place="messages.0",
        error=...,
    )
    return [*users, assistants, langchain]


def starts() -> list[Case]:
    errors = {
        "anthropic": 'messages: first message must use the "user" role',
        "gemini": "History must start with a user turn.",
        "bedrock:classic": "A conversation must start with a user message. Try again with a "
        "conversation that starts with a user message.",
        "openai-chat:mistral": None,
        "langchain:mistral": None,
        "openai-chat:strict": "No user query found in messages",
    }
    return [
        Case(
            code="LS406",
            dialect=name,
            broken=[*_kit(name).assistant(), *_kit(name).user("More.")],
            whole=[*_kit(name).user(), *_kit(name).assistant(), *_kit(name).user("More.")],
            place=f"{_kit(name).key}.0",
            error=error,
        )
        for name, error in errors.items()
    ]


def _kit(name: str) -> Kit:
    return {"bedrock:classic": BEDROCK, "langchain:mistral": LANGCHAIN}.get(name) or KITS[name]


def ends() -> list[Case]:
    gemini = (
        "Please ensure that function call turn comes immediately after a user turn or after a "
        "function response turn."
    )
    mistral = (
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got "
        "assistant"
    )
    named = [
        Case(
            code="LS407",
            dialect=kit.dialect,
            model=model,
            broken=[*kit.user(), *kit.assistant()],
            whole=[*kit.user(), *kit.assistant(), *kit.user("More.")],
            place=f"{kit.key}.1",
            error=error,
        )
        for kit, model, error in (
            (ANTHROPIC, "claude-sonnet-4-6", PREFILL),
            (GEMINI, "gemini-2.5-pro", gemini),
            (BEDROCK, "us.anthropic.claude-sonnet-4-6", PREFILL),
        )
    ]
    turn = {"role": "assistant", "content": "I loo"}
    body = Case(
        code="LS407",
        dialect="openai-chat:mistral",
        broken={"model": "mistral-large-latest", "messages": [*MISTRAL.user(), turn]},
        whole={
            "model": "mistral-large-latest",
            "messages": [*MISTRAL.user(), turn | {"prefix": True}],
        },
        place="messages.1",
        error=mistral,
    )
    langchain = Case(
        code="LS407",
        dialect="langchain:mistral",
        broken={"messages": [*LANGCHAIN.user(), *LANGCHAIN.assistant()]},
        whole={"messages": LANGCHAIN.user()},
        place="messages.1",
        error=...,
    )
    return [*named, body, langchain]


def users_after_tools() -> list[Case]:
    errors = {
        "openai-chat:mistral": "Unexpected role 'user' after role 'tool'",
        "openai-chat:strict": None,
        "langchain:mistral": ...,
    }
    return [
        Case(
            code="LS408",
            dialect=name,
            broken=[*kit.user(), *kit.calls(A), *kit.results(A), *kit.user("More.")],
            whole=[
                *kit.user(),
                *kit.calls(A),
                *kit.results(A),
                *kit.assistant(),
                *kit.user("More."),
            ],
            place="messages.3",
            error=errors[name],
        )
        for name, kit in [(name, _kit(name)) for name in errors]
    ]


def gemini_turns() -> list[Case]:
    call, result = GEMINI.call(A), GEMINI.result(A, output(A))
    both = {"role": "model", "parts": [{"text": "I look."}, call]}
    return [
        Case(
            code="LS409",
            dialect="gemini",
            broken=[
                *GEMINI.user(),
                *GEMINI.assistant("I look."),
                *GEMINI.calls(A),
                *GEMINI.results(A),
            ],
            whole=[*GEMINI.user(), both, *GEMINI.results(A)],
            place="contents.1",
            error="Please ensure that function call turn comes immediately after a user turn or "
            "after a function response turn.",
        ),
        Case(
            code="LS410",
            dialect="gemini",
            broken=[
                *GEMINI.user(),
                *GEMINI.calls(A),
                {"role": "user", "parts": [result, {"text": "Be quick."}]},
            ],
            whole=[
                *GEMINI.user(),
                *GEMINI.calls(A),
                *GEMINI.results(A),
                *GEMINI.user("Be quick."),
            ],
            place="contents.2",
            error="Please ensure that the number of function response parts is equal to the number "
            "of function call parts of the function call turn.",
        ),
    ]


def system_places() -> list[Case]:
    system = {"role": "system", "content": "Be brief."}
    errors = {
        "openai-chat:strict": "System message must be at the beginning.",
        "openai-chat:lmstudio": None,
    }
    anthropic = (
        'messages: Unexpected role "system". The Messages API accepts a top-level `system` '
        'parameter, not "system" as an input message role.'
    )
    chats = [
        Case(
            code="LS411",
            dialect=name,
            broken=[*CHAT.user(), *CHAT.assistant(), system],
            whole=[system, *CHAT.user(), *CHAT.assistant()],
            place="messages.2",
            error=error,
        )
        for name, error in errors.items()
    ]
    return [
        *chats,
        Case(
            code="LS411",
            dialect="anthropic",
            note="first",
            broken=[system, *ANTHROPIC.user()],
            whole=[*ANTHROPIC.user(), system],
            place="messages.0",
            error=anthropic,
        ),
        Case(
            code="LS411",
            dialect="anthropic",
            note="behind an answer",
            broken=[*ANTHROPIC.user(), *ANTHROPIC.assistant(), system],
            whole=[*ANTHROPIC.user(), system, *ANTHROPIC.assistant()],
            place="messages.2",
            error=...,
        ),
        Case(
            code="LS411",
            dialect="anthropic",
            note="first in a body",
            broken={"messages": [system, *ANTHROPIC.user()]},
            whole={"messages": ANTHROPIC.user(), "system": "Be brief."},
            place="messages.0",
            error=anthropic,
        ),
    ]


def documents() -> list[Case]:
    document = {"document": {"format": "txt", "name": "list", "source": {"bytes": "TG9vay4="}}}
    text = {"text": "Look."}
    case = Case(
        code="LS415",
        dialect="bedrock",
        broken=[{"role": "user", "content": [document]}],
        whole=[{"role": "user", "content": [document, text]}],
        place="messages.0",
        error="If you include a ContentBlock with a document field, you must also include a "
        "ContentBlock with a text field.",
    )
    return [case]


def odd_results() -> list[Case]:
    """A tool returned data, and the program stored it as it was."""
    paths: dict[str, tuple[Any, ...]] = {
        "anthropic": ("content", 0, "content"),
        "openai-chat": ("content",),
        "openai-responses": ("output",),
        "gemini": ("parts", 0, "functionResponse", "response"),
        "bedrock": ("content", 0, "toolResult", "content"),
        "langchain": ("content",),
    }
    error = "Invalid type for 'messages[2].content': expected one of a string or array of objects, "
    cases = []
    for name in ALL:
        kit = KITS[name]
        whole = [*kit.user(), *kit.calls(A), *kit.results(A)]
        broken = deepcopy(whole)
        *path, last = paths[name]
        node = broken[2]
        for step in path:
            node = node[step]
        node[last] = ["rows", "more"] if name == "gemini" else {"rows": "more"}
        case = Case(
            code="LS416",
            dialect=name,
            broken=broken,
            whole=whole,
            place=kit.at_result(2) if name not in SINGLE else f"{kit.key}.2",
            error=f"{error}but got an object instead." if name == "openai-chat" else None,
        )
        cases.append(case)
        if name in HOLLOW:
            hollow = deepcopy(whole)
            node = hollow[2]
            for step in path:
                node = node[step]
            node[last] = [HOLLOW[name]]
            kind = "but got a block without its content instead."
            note, other = "a text block without text", error + kind
            other = other if name == "openai-chat" else None
            cases.append(replace(case, note=note, broken=hollow, error=other))
    return cases


SINGLE = ("openai-chat", "openai-responses", "langchain")


def roles() -> list[Case]:
    errors = {
        "anthropic": "messages.1.role: Input should be 'user' or 'assistant'",
        "openai-chat": "Invalid value: 'model'. Supported values are: 'system', 'assistant', "
        "'user', 'function', 'tool', and 'developer'.",
        "openai-responses": None,
        "bedrock": "Value at 'messages.1.role' failed to satisfy constraint: Member must satisfy "
        "enum value set: [user, assistant]",
    }
    cases = [
        Case(
            code="LS412",
            dialect=name,
            broken=[*KITS[name].user(), KITS[name].assistant()[0] | {"role": "model"}],
            whole=[*KITS[name].user(), *KITS[name].assistant()],
            place=f"{KITS[name].key}.1",
            error=error,
        )
        for name, error in errors.items()
    ]
    return [
        *cases,
        Case(
            code="LS412",
            dialect="gemini",
            broken=[*GEMINI.user(), GEMINI.assistant()[0] | {"role": "assistant"}],
            whole=[*GEMINI.user(), *GEMINI.assistant()],
            place="contents.1",
            error="Please use a valid role: user, model.",
        ),
        Case(
            code="LS412",
            dialect="langchain",
            broken=[*LANGCHAIN.user(), LANGCHAIN.assistant()[0] | {"type": "model"}],
            whole=[*LANGCHAIN.user(), *LANGCHAIN.assistant()],
            place="messages.1",
        ),
        Case(
            code="LS412",
            dialect="anthropic",
            note="no known role at all",
            broken=[*ANTHROPIC.user(), {"role": "narrator", "content": "Meanwhile."}],
            whole=ANTHROPIC.user(),
            place="messages.1",
            error="messages.1.role: Input should be 'user' or 'assistant'",
        ),
    ]


def misplaced_parts() -> list[Case]:
    text = _text("I look.")
    call = "messages.1: `tool_use` blocks can only be in `assistant` messages"
    result = "messages.1: `tool_result` blocks can only be in `user` messages"
    calls = [
        Case(
            code="LS413",
            dialect=kit.dialect,
            note="a call",
            broken=[*kit.user(), *kit.assistant(), *_wrong_role(kit), *kit.results(A)],
            whole=[*kit.user(), *kit.calls(A), *kit.results(A)],
            place=kit.at_call(2),
            error=call.replace("messages.1", "messages.2") if kit is ANTHROPIC else None,
            also={"LS405": "its result is the user's, too"} if kit is BEDROCK else {},
        )
        for kit in (ANTHROPIC, GEMINI, BEDROCK)
    ]
    answer = ANTHROPIC.result(A, output(A))
    results = Case(
        code="LS413",
        dialect="anthropic",
        note="a result",
        broken=[
            *ANTHROPIC.user(),
            {"role": "assistant", "content": [ANTHROPIC.call(A), answer]},
        ],
        whole=[*ANTHROPIC.user(), *ANTHROPIC.calls(A), *ANTHROPIC.results(A)],
        place="messages.1.content.1",
        error=result,
        also={"LS104": "where it stands it is not behind its call"},
    )
    mixed = Case(
        code="LS413",
        dialect="anthropic",
        note="a call among texts",
        broken=[
            {"role": "user", "content": [_text("Look."), ANTHROPIC.call(A)]},
            *ANTHROPIC.results(A),
        ],
        whole=[
            *ANTHROPIC.user(),
            {"role": "assistant", "content": [text, ANTHROPIC.call(A)]},
            *ANTHROPIC.results(A),
        ],
        place="messages.0.content.1",
        error=call.replace("messages.1", "messages.0"),
    )
    listed = [
        Case(
            code="LS413",
            dialect=kit.dialect,
            note="calls in a tool message",
            broken=[*kit.user(), *kit.calls(A), _with_calls(kit, B), *kit.results(B)],
            whole=[*kit.user(), *kit.calls(A), *kit.results(A), *kit.calls(B), *kit.results(B)],
            place="messages.2.tool_calls",
            also={"LS103": "nobody else has made the call"},
        )
        for kit in (CHAT, LANGCHAIN)
    ]
    asked = Case(
        code="LS413",
        dialect="openai-chat",
        note="calls in a prompt",
        broken=[{**CHAT.user()[0], "tool_calls": CHAT.calls(A)[0]["tool_calls"]}],
        whole=[*CHAT.user(), *CHAT.calls(A), *CHAT.results(A)],
        place="messages.0.tool_calls",
    )
    return [*calls, results, mixed, *listed, asked]


def _with_calls(kit: Kit, *calls: str) -> dict[str, Any]:
    """A result that lists calls, as no tool could make them."""
    return kit.results(A)[0] | {"tool_calls": kit.calls(*calls)[0]["tool_calls"]}


def _wrong_role(kit: Kit) -> list[Any]:
    return [kit.calls(A)[0] | {"role": "user"}]


def malformed() -> list[Case]:
    error = "messages.1: Input should be a valid dictionary or object to extract fields from"
    numbers = [
        Case(
            code="LS414",
            dialect=name,
            note="a number",
            broken=[*KITS[name].user(), 42],
            whole=KITS[name].user(),
            place=f"{KITS[name].key}.1",
            error=error if name == "anthropic" else None,
            loses=True,
        )
        for name in ALL
    ]
    return [
        *numbers,
        Case(
            code="LS414",
            dialect="anthropic",
            note="a block without a type",
            broken=_user(_text("Look."), {"data": "x"}),
            whole=_user(_text("Look.")),
            place="messages.0.content.1",
            loses=True,
            error=...,
        ),
        Case(
            code="LS414",
            dialect="anthropic",
            note="a bare string",
            broken=_user(_text("Look."), "There."),
            whole=_user(_text("Look."), _text("There.")),
            place="messages.0.content.1",
            error="messages.0.content.1: Input should be a valid dictionary or object to extract "
            "fields from",
        ),
        Case(
            code="LS414",
            dialect="openai-chat",
            note="a bare block",
            broken=[{"role": "user", "content": _text("Look.")}],
            whole=_user(_text("Look.")),
            place="messages.0",
        ),
        Case(
            code="LS414",
            dialect="openai-responses",
            note="an item without a type",
            broken=[*RESPONSES.user(), {"call_id": A}],
            whole=RESPONSES.user(),
            place="input.1",
            loses=True,
        ),
        Case(
            code="LS414",
            dialect="openai-chat:ollama",
            note="calls that are no list",
            broken=[*Chat().user(), {"role": "assistant", "content": "I look.", "tool_calls": 1}],
            whole=[*Chat().user(), {"role": "assistant", "content": "I look."}],
            place="messages.1.tool_calls",
            loses=True,
        ),
        Case(
            code="LS414",
            dialect="openai-chat",
            note="no calls",
            broken=[*Chat().user(), {"role": "assistant", "content": "I look.", "tool_calls": []}],
            whole=[*Chat().user(), {"role": "assistant", "content": "I look.", "tool_calls": None}],
            place="messages.1.tool_calls",
            error="[] is too short - 'messages.1.tool_calls'",
        ),
        Case(
            code="LS414",
            dialect="openai-chat",
            note="neither calls nor content",
            broken=[*Chat().user(), {"role": "assistant", "content": None, "tool_calls": []}],
            whole=[*Chat().user(), {"role": "assistant", "content": ""}],
            place="messages.1.tool_calls",
            error="[] is too short - 'messages.1.tool_calls'",
            also={"LS404": "there is no content either"},
        ),
        *(
            Case(
                code="LS414",
                dialect=name,
                note="a text block without text",
                broken=_with_block(KITS[name], block),
                whole=_with_block(KITS[name], None),
                place=f"{KITS[name].key}.0.content.1",
                loses=True,
                error=...,
            )
            for name, block in HOLLOW.items()
        ),
    ]


HOLLOW = {
    "anthropic": {"type": "text"},
    "openai-chat": {"type": "text"},
    "openai-responses": {"type": "input_text", "text": None},
    "bedrock": {"text": None},
    "langchain": {"type": "text"},
}


def _with_block(kit: Kit, block: Any) -> list[Any]:
    """A prompt of a text block, with another behind it."""
    first = {"text": "Look."} if kit is BEDROCK else _text("Look.")
    if kit is RESPONSES:
        first["type"] = "input_text"
    message = {**kit.user()[0], "content": [first, *([block] if block else [])]}
    return [message]


CASES = [
    *blank_texts(),
    *cache_markers(),
    *empty_contents(),
    *alternation(),
    *starts(),
    *ends(),
    *users_after_tools(),
    *gemini_turns(),
    *system_places(),
    *roles(),
    *misplaced_parts(),
    *malformed(),
    *documents(),
    *odd_results(),
]
