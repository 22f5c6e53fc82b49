"""LS3xx: thinking blocks, signatures, encrypted items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    REASONING,
    RESULT,
    TEXT,
    USER,
    Message,
    Part,
)
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.gemini import signature_of
from lockstitch.dialects.profiles import issuer_of
from lockstitch.rules.rule import ERROR, WARNING, Case, Finding, finder, rule

SIGNED = ("anthropic", "bedrock")
_CHANGED_TEXT = (
    "messages.<N>.content.<M>: `thinking` or `redacted_thinking` blocks in the latest assistant "
    "message cannot be modified. These blocks must remain as they were in the original response."
)
_INVALID_SIGNATURE = "messages.<N>.content.<M>: Invalid `signature` in `thinking` block"

COLLAPSED_STEPS = rule(
    code="LS301",
    name="collapsed-steps",
    counted=("message with several steps glued together", "messages with steps glued together"),
    dialects=SIGNED,
    errors={
        "anthropic": _CHANGED_TEXT,
    },
    summary="several steps of a tool loop are glued into one assistant message",
    help="heal splits the message where the next step's thinking begins",
    what="Thinking follows a tool call inside one message, but it belongs to a new step of the "
    "loop.",
    cause="A whole loop was recorded under one message id and replayed as a single message.",
    repair="The message is split after the calls, and each call gets its result after it.",
    failures=("F24", "F29"),
)
UNSIGNED_THINKING = rule(
    code="LS302",
    name="unsigned-thinking",
    counted=("thinking block without a signature", "thinking blocks without signatures"),
    dialects=SIGNED,
    lossy=True,
    errors={
        "anthropic": _INVALID_SIGNATURE,
        "bedrock": _INVALID_SIGNATURE,
    },
    summary="a thinking block has no signature",
    help="heal drops the block and lists it in the quarantine",
    what="A thinking block can only be replayed with the signature it was issued with.",
    cause="The stream was aborted before the signature arrived, or a converter lost it.",
    repair="The block is dropped, never turned into prose, because models imitate that.",
    failures=("F26", "F27"),
)
EMPTY_THINKING = rule(
    code="LS303",
    name="empty-thinking",
    counted=("empty thinking block", "empty thinking blocks"),
    dialects=SIGNED,
    errors={
        "anthropic": "messages.<N>.content.<M>.thinking: each thinking block must contain thinking",
    },
    summary="a thinking block is empty and unsigned",
    help="heal drops the block",
    what="A block with neither text nor signature holds nothing. One that is empty but signed is "
    "normal for newer models and is left alone: the signature itself is the reasoning.",
    cause="The stream was aborted, or the text was removed when the session was saved.",
    repair="The block is dropped.",
    failures=("F25",),
)
FOREIGN_REASONING = rule(
    code="LS304",
    name="foreign-reasoning",
    counted=("reasoning block from another vendor", "reasoning blocks from another vendor"),
    dialects=("anthropic", "openai-responses", "bedrock", "langchain"),
    lossy=True,
    errors={
        "anthropic": _INVALID_SIGNATURE,
        "bedrock": _INVALID_SIGNATURE,
    },
    summary="reasoning was issued by another vendor than the one the request goes to",
    help="heal drops the reasoning and lists it in the quarantine",
    what="Signatures and encrypted reasoning can be verified only by the vendor that issued them.",
    cause="The session switched to another vendor's model.",
    repair="The foreign reasoning is left out of this request. Nothing is guessed from what a "
    "signature looks like: only a message that names its model is judged.",
    failures=("F27", "F33"),
    known="if a message names the model that wrote it and the request names another vendor's",
)
THINKING_FIRST = rule(
    code="LS305",
    name="thinking-first",
    counted=("turn that does not start with thinking", "turns that do not start with thinking"),
    dialects=("anthropic",),
    errors={
        "anthropic": "messages.<N>.content.<M>.type: Expected `thinking` or `redacted_thinking`, "
        "but found `<kind>`. When `thinking` is enabled, a final `assistant` message must start "
        "with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` "
        "blocks). We recommend you include thinking blocks from previous turns. To avoid this "
        "requirement, disable `thinking`.",
    },
    summary="thinking is enabled, but the running tool turn does not start with thinking",
    help="heal disables thinking for this one request",
    what="With manual thinking, the assistant message of a running tool loop must start with its "
    "thinking block.",
    cause="Thinking was dropped by a converter, or switched on in the middle of a loop.",
    repair="Thinking is disabled in this request's body; the next turn may enable it again.",
    failures=("F28",),
    known='only for `thinking: {"type": "enabled"}` in a whole request body',
)
THINKING_LAST = rule(
    code="LS306",
    name="thinking-last",
    counted=("turn that ends with thinking", "turns that end with thinking"),
    dialects=SIGNED,
    lossy=True,
    errors={
        "anthropic": "messages.<N>: The final block in an assistant message cannot be `thinking`.",
        "bedrock": "The content field in the Message object at messages.<N> is empty. Add a "
        "ContentBlock object to the content field and try again.",
    },
    summary="an assistant turn ends with thinking",
    help="heal drops the trailing thinking and lists it in the quarantine",
    what="A turn consists of thinking alone, or its last block is thinking.",
    cause="The stream died after the thinking, before the answer.",
    repair="The trailing thinking is dropped; a turn left empty is removed with it.",
    failures=("F30",),
)
LONE_REASONING = rule(
    code="LS307",
    name="lone-reasoning",
    counted=("reasoning item without its output", "reasoning items without their output"),
    dialects=("openai-responses",),
    lossy=True,
    errors={
        "openai-responses": "Item '<id>' of type 'reasoning' was provided without its required "
        "following item.",
    },
    summary="a reasoning item is not followed by the item that it produced",
    help="heal drops the reasoning item and lists it in the quarantine",
    what="A reasoning item that is sent with its id and the item that it produced belong "
    "together. Without an id the API does not check this, and with `store: false` and "
    "encrypted content OpenAI accepts the reasoning alone (a warning there, since other "
    "servers of this API do not).",
    cause="The output item was dropped, filtered or cut off after the reasoning.",
    repair="The lone reasoning item is dropped.",
    failures=("F31",),
    known="only items with an id; Codex sends lone reasoning after an interrupt, and gets an "
    "answer",
)
STORED_STATE = rule(
    code="LS308",
    name="state-not-stored",
    counted=("reference to state that was not kept", "references to state that was not kept"),
    dialects=("openai-responses",),
    lossy=True,
    errors={
        "openai-responses": "Item with id '<id>' not found. Items are not persisted when `store` "
        "is set to false. Try again with `store` set to true, or remove this item from your input.",
    },
    summary="an item refers to state that the provider was told not to keep",
    help="heal drops the reference and lists it in the quarantine",
    what="With `store: false` a bare reference, or reasoning without its encrypted content, "
    "points at nothing.",
    cause="Ids were replayed as references to server state that was never stored.",
    repair="References and reasoning without encrypted content are dropped.",
    failures=("F32",),
    known="only if the request body says `store: false`",
)
BOUND_REASONING = rule(
    code="LS309",
    name="bound-reasoning",
    counted=("thinking block that no longer fits", "thinking blocks that no longer fit"),
    dialects=("anthropic", "bedrock"),
    lossy=True,
    errors={
        "anthropic": "messages.<N>.content.<M>: Invalid `signature` in `thinking` block. The "
        "block is bound to a different conversation.",
    },
    summary="thinking is bound to a prefix that a repair had to change",
    help="heal drops the thinking after the first change it made",
    what="Newer Claude models accept a replayed thinking block only while everything before it "
    "is unchanged. A list alone does not show this; it would result from repairing the "
    "middle of it.",
    cause="Something edited the history: a repair, a compaction, a reminder inserted later.",
    repair="The repair that changes the least of the prefix is chosen, and signed thinking after "
    "the first change is dropped. If the model is named and does not bind thinking, it "
    "stays.",
    failures=("F24",),
    known="Claude Fable 5.1 and later 5.x models; assumed if no model is named",
)
REASONING_SHAPE = rule(
    code="LS310",
    name="reasoning-shape",
    counted=("incomplete reasoning item", "incomplete reasoning items"),
    dialects=("openai-responses",),
    errors={
        "openai-responses": "Input[<N>] missing required field `summary`",
        "openai-responses (content)": "Invalid 'input[<N>].content': array too long",
    },
    summary="a reasoning item lacks a field that the provider requires",
    help="heal adds the empty `summary`",
    what="`summary` is required, even if it is empty, and may hold only texts.",
    cause="A clean-up removed empty values, or another provider wrote the item.",
    repair="An empty `summary` is added; anything in it that is not text is quarantined.",
    failures=("F34",),
)
THOUGHT_SIGNATURE = rule(
    code="LS311",
    name="missing-thought-signature",
    dialects=("gemini",),
    errors={
        "gemini": "Function call is missing a thought_signature in functionCall parts. This is "
        "required for tools to work correctly, and missing thought_signature may lead to degraded "
        "model performance. Additional data, function call `default_api:<name>` , position <n>. "
        "Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more "
        "details.",
    },
    summary="the first function call of a step has no thought signature",
    help="heal adds the documented sentinel signature",
    what="Gemini 3 and later require a thought signature on the first call of each step of the "
    "running turn.",
    cause="The field was lost in a conversion, or another model made the call.",
    repair="The documented sentinel `skip_thought_signature_validator` is added. Calls are never "
    "rewritten as prose.",
    failures=("F35",),
    known="Gemini 3 and later; only if the model is named",
)
REASONING_REQUIRED = rule(
    code="LS312",
    name="reasoning-required",
    counted=("turn without its reasoning", "turns without their reasoning"),
    dialects=("openai-chat:deepseek", "anthropic:deepseek"),
    errors={
        "openai-chat:deepseek": "The `reasoning_content` in the thinking mode must be passed back "
        "to the API.",
        "anthropic:deepseek": "The `content[].thinking` in the thinking mode must be passed back "
        "to the API.",
    },
    summary="an assistant turn lacks the reasoning that this provider wants back",
    help="heal adds the empty field",
    what="This provider requires every assistant turn that calls tools to include its reasoning, "
    "even if that is empty.",
    cause="The client dropped the field, or another model wrote the turn.",
    repair="An empty field is added if there is none; existing reasoning is never touched.",
    failures=("F36",),
)


@finder(COLLAPSED_STEPS, having=(REASONING,))
def collapsed_steps(case: Case) -> Iterator[Finding]:
    """LS301."""
    for message in case.messages:
        for start in step_starts(message)[:1] if message.role == ASSISTANT else ():
            yield case.find(COLLAPSED_STEPS, message.parts[start], "thinking follows a tool call")


def step_starts(message: Message) -> list[int]:
    """Return the positions at which a next step begins: thinking that follows a call."""
    starts: list[int] = []
    seen = False
    for position, part in enumerate(message.parts):
        if part.kind == CALL:
            seen = True
        elif seen and part.kind == REASONING:
            starts.append(position)
            seen = False
    return starts


@finder(UNSIGNED_THINKING, EMPTY_THINKING, having=(REASONING,))
def signatures(case: Case) -> Iterator[Finding]:
    """LS302 and LS303."""
    if not case.profile.signed_reasoning:
        return
    for part in case.parts.reasoning:
        fault = signature_fault(part)
        if fault == "empty":
            yield case.find(EMPTY_THINKING, part, "empty, unsigned thinking block")
        elif fault:
            yield case.find(UNSIGNED_THINKING, part, "thinking block without signature")


def signature_fault(part: Part) -> str:
    """Return why a signed-reasoning block cannot be replayed: "empty", "unsigned" or ""."""
    raw = part.raw
    if part.flavor == "redacted_thinking":
        return "" if _filled(raw.get("data")) else "empty"
    text, signature = raw.get("thinking"), raw.get("signature")
    if part.flavor == "reasoningContent":
        inner = raw["reasoningContent"]
        if not isinstance(inner, dict) or "redactedContent" in inner:
            return "" if isinstance(inner, dict) else "empty"
        inner = inner.get("reasoningText")
        inner = inner if isinstance(inner, dict) else {}
        text, signature = inner.get("text"), inner.get("signature")
    if _filled(signature) and isinstance(text, str):
        return ""
    return "unsigned" if _filled(text) else "empty"


def _filled(value: Any) -> bool:
    return isinstance(value, (str, bytes)) and bool(value)


@finder(FOREIGN_REASONING, having=(REASONING,))
def foreign_reasoning(case: Case) -> Iterator[Finding]:
    """LS304."""
    asked = issuer_of(case.model)
    if not asked:
        return
    for message in case.messages:
        if is_foreign(message, asked):
            for part in message.parts:
                if part.kind == REASONING:
                    text = "this reasoning was issued by another vendor's model"
                    yield case.find(FOREIGN_REASONING, part, text)


def is_foreign(message: Message, asked: str) -> bool:
    """Whether a message names a model of another vendor than the one asked."""
    issuer = issuer_of(_model_of(message.raw))
    return bool(issuer) and issuer != asked


def _model_of(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return None
    for key in ("data", "kwargs"):
        if isinstance(raw.get(key), dict):
            raw = raw[key]
    metadata = raw.get("response_metadata")
    if isinstance(metadata, dict):
        return metadata.get("model_name") or metadata.get("model")
    return raw.get("model")


@finder(THINKING_FIRST, having=(RESULT,))
def thinking_first(case: Case) -> Iterator[Finding]:
    """LS305."""
    if not wants_thinking_first(case.body):
        return
    index = len(case.messages) - 1
    if index < 1 or case.messages[index].role != USER or not case.messages[index].has(RESULT):
        return
    start = index - 1
    if case.messages[start].role != ASSISTANT:
        return
    while start and case.messages[start - 1].role == ASSISTANT:
        start -= 1
    parts = case.messages[start].parts
    if parts and parts[0].kind != REASONING:
        place = case.place(parts[0])
        kind = parts[0].flavor or "text"
        text = "thinking is enabled, but this tool turn does not start with thinking"
        yield case.find(THINKING_FIRST, place, text, kind=kind)


def wants_thinking_first(body: dict[str, Any] | None) -> bool:
    """Whether a request enables thinking the manual way."""
    thinking = (body or {}).get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


@finder(THINKING_LAST, having=(REASONING,))
def thinking_last(case: Case) -> Iterator[Finding]:
    """LS306."""
    if not case.profile.signed_reasoning:
        return
    for message, ends in zip(case.messages, turn_ends(case.messages), strict=True):
        if ends and ends_with_thinking(message):
            yield case.find(
                THINKING_LAST, message.parts[-1], "the assistant turn ends with thinking"
            )


def ends_with_thinking(message: Message) -> bool:
    """Whether a message of the assistant ends with thinking."""
    parts = message.parts
    return message.role == ASSISTANT and bool(parts) and parts[-1].kind == REASONING


def turn_ends(messages: list[Message]) -> list[bool]:
    """Return for each message whether a turn of the assistant would end behind it."""
    ends: list[bool] = []
    behind = True
    for message in reversed(messages):
        ends.append(behind)
        behind = ends_before(message, behind=behind)
    return ends[::-1]


def ends_before(message: Message, *, behind: bool) -> bool:
    """Whether a turn of the assistant would end before a message; ``behind``: whether behind it.

    What is nothing but thinking does not go on with a turn.
    """
    if message.role != ASSISTANT:
        return True
    is_thinking = message.parts and all(part.kind == REASONING for part in message.parts)
    return behind if is_thinking else False


@finder(LONE_REASONING, STORED_STATE, REASONING_SHAPE)
def reasoning_items(case: Case) -> Iterator[Finding]:
    """LS307, LS308 and LS310."""
    unstored = (case.body or {}).get("store") is False
    for message, ends in zip(case.messages, item_ends(case.messages), strict=True):
        part = message.parts[0] if message.parts else None
        if part is None:
            continue
        if unstored and points_at_nothing(part):
            text = "this refers to state that `store: false` does not keep"
            yield case.find(STORED_STATE, part, text, id=part.raw.get("id"))
        elif part.kind != REASONING:
            continue
        elif ends and is_named(part):
            text = "this reasoning item is not followed by what it produced"
            taken = unstored and part.raw.get("encrypted_content")
            severity = WARNING if taken else ERROR
            yield case.find(LONE_REASONING, part, text, severity=severity, id=part.id)
        elif not isinstance(part.raw.get("summary"), list):
            yield case.find(REASONING_SHAPE, part, "`summary` is missing")
        elif whole_summary(part) != part.raw["summary"]:
            text = "`summary` holds something that is not text"
            yield case.find(REASONING_SHAPE, part, text, lossy=True)


def whole_summary(part: Part) -> list[Any]:
    """Return what of a reasoning item's summary is a text."""
    listed = part.raw.get("summary")
    return [
        text
        for text in (listed if isinstance(listed, list) else ())
        if isinstance(text, dict) and isinstance(text.get("text"), str) and text.get("type")
    ]


def points_at_nothing(part: Part) -> bool:
    """Whether an item is only a reference to state at the provider."""
    if part.flavor == "item_reference":
        return True
    named = part.kind == REASONING and part.raw.get("id") is not None
    return named and not part.raw.get("encrypted_content")


def is_named(part: Part) -> bool:
    """Whether a reasoning item has an id, by which it asks for what it produced."""
    return part.raw.get("id") is not None


def item_ends(messages: list[Message]) -> list[bool]:
    """Return for each item whether no item of the model follows it, but for reasoning."""
    ends: list[bool] = []
    behind = True
    for message in reversed(messages):
        ends.append(behind)
        behind = item_ends_before(message, behind=behind)
    return ends[::-1]


def item_ends_before(message: Message, *, behind: bool) -> bool:
    """Whether no item of the model follows from this one on; ``behind``: whether none behind."""
    if message.parts and message.parts[0].kind == REASONING:
        return behind
    return message.role != ASSISTANT


@finder(THOUGHT_SIGNATURE, having=(CALL,), when=lambda case: case.traits.thought_signatures)
def thought_signatures(case: Case) -> Iterator[Finding]:
    """LS311."""
    for part in unsigned_first_calls(case.messages):
        text = "the first function call of this step has no thought signature"
        position = part.home + 1
        yield case.find(THOUGHT_SIGNATURE, part, text, name=part.name, n=position)


def unsigned_first_calls(messages: list[Message]) -> list[Part]:
    """Return the first calls of the steps of the running turn that carry no signature."""
    start = max((i for i, m in enumerate(messages) if _is_prompt(m)), default=0)
    firsts = [
        next((part for part in message.parts if part.kind == CALL), None)
        for message in messages[start:]
        if message.role == ASSISTANT
    ]
    return [part for part in firsts if part is not None and signature_of(part.raw) is None]


def _is_prompt(message: Message) -> bool:
    return message.role == USER and message.has(TEXT) and not message.has(RESULT)


@finder(REASONING_REQUIRED, having=(CALL,), when=lambda case: case.profile.reasoning_required)
def reasoning_required(case: Case) -> Iterator[Finding]:
    """LS312."""
    for message in case.messages:
        if lacks_reasoning(message, case.dialect):
            text = "this assistant turn has no reasoning to send back"
            yield case.find(REASONING_REQUIRED, message, text)


def lacks_reasoning(message: Message, dialect: Dialect) -> bool:
    """Whether an assistant message with calls carries no reasoning at all."""
    if message.role != ASSISTANT or not message.has(CALL):
        return False
    if dialect.reasoning_field:
        raw = message.raw if isinstance(message.raw, dict) else {}
        return not isinstance(raw.get(dialect.reasoning_field), str)
    return not message.has(REASONING)
