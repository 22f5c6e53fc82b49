"""LS3xx: thinking blocks, signatures, encrypted items."""

from __future__ import annotations

from typing import Any

from .case import Case
from .kits import ANTHROPIC, BEDROCK, GEMINI, LANGCHAIN, RESPONSES, TOOL, A, B, Chat

OPUS = "claude-opus-4-5"
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
UNSIGNED = {"type": "thinking", "thinking": "Hm."}
TEXT = {"type": "text", "text": "I looked."}
BEDROCK_SIGNED = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}}
BEDROCK_UNSIGNED = {"reasoningContent": {"reasoningText": {"text": "Hm."}}}
BEDROCK_TEXT = {"text": "I looked."}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z2V0"}


def _turn(*blocks: Any, **fields: Any) -> list[Any]:
    return [{"role": "assistant", "content": list(blocks), **fields}]


def _said(*blocks: Any, **fields: Any) -> list[Any]:
    return [*ANTHROPIC.user(), *_turn(*blocks, **fields), *ANTHROPIC.user("More.")]


def _bedrock_said(*blocks: Any, **fields: Any) -> list[Any]:
    return [*BEDROCK.user(), *_turn(*blocks, **fields), *BEDROCK.user("More.")]


def collapsed_steps() -> list[Case]:
    """A model that does not bind thinking is named, so that the second step may keep its own."""
    kits = ((ANTHROPIC, SIGNED), (BEDROCK, BEDROCK_SIGNED))
    return [
        Case(
            code="LS301",
            dialect=kit.dialect,
            model=OPUS,
            broken=[
                *kit.user(),
                *_turn(signed, kit.call(A), signed, kit.call(B)),
                *kit.results(A, B),
            ],
            whole=[
                *kit.user(),
                *_turn(signed, kit.call(A)),
                *kit.results(A),
                *_turn(signed, kit.call(B)),
                *kit.results(B),
            ],
            place="messages.1.content.2",
            error="messages.1.content.2: `thinking` or `redacted_thinking` blocks in the latest "
            "assistant message cannot be modified. These blocks must remain as they were in the "
            "original response."
            if kit is ANTHROPIC
            else None,
        )
        for kit, signed in kits
    ]


def unsigned_thinking() -> list[Case]:
    error = "messages.1.content.0: Invalid `signature` in `thinking` block"
    return [
        Case(
            code="LS302",
            dialect="anthropic",
            broken=_said(UNSIGNED, TEXT),
            whole=_said(SIGNED, TEXT),
            place="messages.1.content.0",
            error=error,
            loses=True,
        ),
        Case(
            code="LS302",
            dialect="bedrock",
            broken=_bedrock_said(BEDROCK_UNSIGNED, BEDROCK_TEXT),
            whole=_bedrock_said(BEDROCK_SIGNED, BEDROCK_TEXT),
            place="messages.1.content.0",
            error=error,
            loses=True,
        ),
    ]


def empty_thinking() -> list[Case]:
    """Empty but signed is what newer models send: there the signature is the reasoning."""
    empty = {"reasoningContent": {"reasoningText": {"text": ""}}}
    signed = {"reasoningContent": {"reasoningText": {"text": "", "signature": "c2ln"}}}
    error = "messages.1.content.0.thinking: each thinking block must contain thinking"
    return [
        Case(
            code="LS303",
            dialect="anthropic",
            broken=_said({"type": "thinking", "thinking": ""}, TEXT),
            whole=_said({"type": "thinking", "thinking": "", "signature": "c2ln"}, TEXT),
            place="messages.1.content.0",
            error=error,
        ),
        Case(
            code="LS303",
            dialect="bedrock",
            broken=_bedrock_said(empty, BEDROCK_TEXT),
            whole=_bedrock_said(signed, BEDROCK_TEXT),
            place="messages.1.content.0",
        ),
    ]


def foreign_reasoning() -> list[Case]:
    error = "messages.1.content.0: Invalid `signature` in `thinking` block"
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}

    def langchain(model: str) -> list[Any]:
        turn = {
            "type": "ai",
            "content": [thought, TEXT],
            "response_metadata": {"model_name": model},
        }
        return [*LANGCHAIN.user(), turn, *LANGCHAIN.user("More.")]

    def responses(model: str) -> list[Any]:
        return [*RESPONSES.user(), REASONING | {"model": model}, *RESPONSES.assistant()]

    return [
        Case(
            code="LS304",
            dialect="anthropic",
            model=OPUS,
            broken=_said(SIGNED, TEXT, model="kimi-k2-thinking"),
            whole=_said(SIGNED, TEXT, model="claude-sonnet-4-5"),
            place="messages.1.content.0",
            error=error,
            loses=True,
        ),
        Case(
            code="LS304",
            dialect="bedrock",
            model="us.anthropic.claude-opus-4-5-v1:0",
            broken=_bedrock_said(BEDROCK_SIGNED, BEDROCK_TEXT, model="deepseek.r1-v1:0"),
            whole=_bedrock_said(BEDROCK_SIGNED, BEDROCK_TEXT, model=OPUS),
            place="messages.1.content.0",
            error=error,
            loses=True,
        ),
        Case(
            code="LS304",
            dialect="openai-responses",
            model="gpt-5.2",
            broken=responses("claude-opus-4-5"),
            whole=responses("gpt-5.1-codex"),
            place="input.1",
            loses=True,
        ),
        Case(
            code="LS304",
            dialect="langchain",
            model="gpt-5.2",
            broken=langchain("claude-opus-4-5"),
            whole=langchain("gpt-5.1"),
            place="messages.1.content.0",
            loses=True,
        ),
    ]


def thinking_first() -> list[Case]:
    def body(*blocks: Any, thinking: str = "enabled") -> dict[str, Any]:
        return {
            "messages": [*ANTHROPIC.user(), *_turn(*blocks), *ANTHROPIC.results(A)],
            "thinking": {"type": thinking, "budget_tokens": 2000},
            "tools": [{"name": TOOL, "input_schema": {"type": "object"}}],
        }

    def error(found: str) -> str:
        return (
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{found}`. When `thinking` is enabled, a final `assistant` message must start with a "
            "thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). "
            "We recommend you include thinking blocks from previous turns. To avoid this "
            "requirement, disable `thinking`."
        )

    call = ANTHROPIC.call(A)
    return [
        Case(
            code="LS305",
            dialect="anthropic",
            note="a call first",
            broken=body(call),
            whole=body(SIGNED, call),
            place="messages.1.content.0",
            error=error("tool_use"),
        ),
        Case(
            code="LS305",
            dialect="anthropic",
            note="text first",
            broken=body(TEXT, call),
            whole=body(TEXT, call, thinking="adaptive"),
            place="messages.1.content.0",
            error=error("text"),
        ),
    ]


def thinking_last() -> list[Case]:
    bedrock = (
        "The content field in the Message object at messages.1 is empty. Add a ContentBlock object "
        "to the content field and try again."
    )
    return [
        Case(
            code="LS306",
            dialect="anthropic",
            broken=_said(TEXT, SIGNED),
            whole=_said(SIGNED, TEXT),
            place="messages.1.content.1",
            error="messages.1: The final block in an assistant message cannot be `thinking`.",
            loses=True,
        ),
        Case(
            code="LS306",
            dialect="bedrock",
            broken=_bedrock_said(BEDROCK_SIGNED),
            whole=_bedrock_said(BEDROCK_SIGNED, BEDROCK_TEXT),
            place="messages.1.content.0",
            error=bedrock,
            loses=True,
        ),
    ]


def reasoning_items() -> list[Case]:
    bare = {key: value for key, value in REASONING.items() if key != "encrypted_content"}
    shapeless = {key: value for key, value in REASONING.items() if key != "summary"}
    reference = {"type": "item_reference", "id": "msg_1"}
    not_stored = (
        "Item with id '{}' not found. Items are not persisted when `store` is set to false. Try "
        "again with `store` set to true, or remove this item from your input."
    )

    def body(item: Any, *, store: bool = False) -> dict[str, Any]:
        return {"input": [*RESPONSES.user(), item, *RESPONSES.assistant()], "store": store}

    nameless = {key: value for key, value in REASONING.items() if key != "id"}

    return [
        Case(
            code="LS307",
            dialect="openai-responses",
            broken=[*RESPONSES.user(), REASONING, *RESPONSES.user("More.")],
            whole=[*RESPONSES.user(), REASONING, *RESPONSES.assistant(), *RESPONSES.user("More.")],
            place="input.1",
            error="Item 'rs_1' of type 'reasoning' was provided without its required following "
            "item.",
            loses=True,
        ),
        Case(
            code="LS307",
            dialect="openai-responses",
            note="without an id",
            broken=[*RESPONSES.user(), REASONING, *RESPONSES.user("More.")],
            whole=[*RESPONSES.user(), nameless, *RESPONSES.user("More.")],
            place="input.1",
            error="Item 'rs_1' of type 'reasoning' was provided without its required following "
            "item.",
            loses=True,
        ),
        Case(
            code="LS307",
            dialect="openai-responses",
            note="sealed and not stored",
            broken={"store": False, "input": [*RESPONSES.user(), REASONING]},
            whole={"store": False, "input": [*RESPONSES.user(), nameless]},
            place="input.1",
            error="Item 'rs_1' of type 'reasoning' was provided without its required following "
            "item.",
            severity="warning",
            loses=True,
        ),
        Case(
            code="LS308",
            dialect="openai-responses",
            note="reasoning",
            broken=body(bare),
            whole=body(REASONING),
            place="input.1",
            error=not_stored.format("rs_1"),
            loses=True,
        ),
        Case(
            code="LS308",
            dialect="openai-responses",
            note="reference",
            broken=body(reference),
            whole=body(reference, store=True),
            place="input.1",
            error=not_stored.format("msg_1"),
            loses=True,
        ),
        Case(
            code="LS310",
            dialect="openai-responses",
            broken=[*RESPONSES.user(), shapeless, *RESPONSES.assistant()],
            whole=[*RESPONSES.user(), REASONING, *RESPONSES.assistant()],
            place="input.1",
            error="Input[1] missing required field `summary`",
        ),
    ]


def thought_signatures() -> list[Case]:
    signed = {**GEMINI.call(A), "thoughtSignature": "c2ln"}
    return [
        Case(
            code="LS311",
            dialect="gemini",
            model="gemini-3-pro",
            broken=[*GEMINI.user(), *GEMINI.calls(A), *GEMINI.results(A)],
            whole=[*GEMINI.user(), {"role": "model", "parts": [signed]}, *GEMINI.results(A)],
            place="contents.1.parts.0",
            error="Function call is missing a thought_signature in functionCall parts. This is "
            "required for tools to work correctly, and missing thought_signature may lead to "
            "degraded model performance. Additional data, function call `default_api:ls` , "
            "position 2. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures "
            "for more details.",
        )
    ]


def required_reasoning() -> list[Case]:
    chat = Chat("openai-chat:deepseek")
    call = chat.calls(A)[0]
    return [
        Case(
            code="LS312",
            dialect="openai-chat:deepseek",
            broken=[*chat.user(), call, *chat.results(A)],
            whole=[*chat.user(), call | {"reasoning_content": ""}, *chat.results(A)],
            place="messages.1",
            error="The `reasoning_content` in the thinking mode must be passed back to the API.",
        ),
        Case(
            code="LS312",
            dialect="anthropic:deepseek",
            broken=[*ANTHROPIC.user(), *ANTHROPIC.calls(A), *ANTHROPIC.results(A)],
            whole=[
                *ANTHROPIC.user(),
                *_turn(UNSIGNED, ANTHROPIC.call(A)),
                *ANTHROPIC.results(A),
            ],
            place="messages.1",
            error="The `content[].thinking` in the thinking mode must be passed back to the API.",
        ),
    ]


CASES = [
    *collapsed_steps(),
    *unsigned_thinking(),
    *empty_thinking(),
    *foreign_reasoning(),
    *thinking_first(),
    *thinking_last(),
    *reasoning_items(),
    *thought_signatures(),
    *required_reasoning(),
]
