"""LS405 to LS412: roles, and the order of turns."""

from __future__ import annotations

from collections.abc import Iterator

from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    RESULT,
    SERVER_CALL,
    SYSTEM,
    TEXT,
    TOOL,
    UNKNOWN,
    USER,
    Message,
)
from lockstitch.dialects.profiles import Profile
from lockstitch.rules.rule import Case, Finding, finder, rule, word

ALTERNATION = rule(
    code="LS405",
    name="roles-do-not-alternate",
    counted=("message out of turn", "messages out of turn"),
    dialects=("bedrock", "openai-chat:mistral", "openai-chat:strict", "langchain:mistral"),
    errors={
        "openai-chat:strict": "After the optional system message, conversation roles must "
        "alternate user and assistant roles...",
        "bedrock": 'messages: roles must alternate between "user" and "assistant", but found '
        'multiple "<role>" roles in a row',
        "openai-chat:mistral": "Unexpected role '<role>' after role '<role>'",
    },
    summary="two messages of the same role follow each other",
    help="heal merges them; assistant turns are never merged across a tool call",
    what="This provider requires user and assistant messages to alternate.",
    cause="A summary, a retry or a reminder was put next to another message of the same role.",
    repair="Neighbouring messages of one role are merged. Servers with strict templates do not "
    "count tool messages, so two user turns with only tool messages between them get a "
    "short assistant turn between them.",
    failures=("F41",),
)
BAD_START = rule(
    code="LS406",
    name="bad-start",
    counted=("wrong first message", "wrong first messages"),
    dialects=(
        "anthropic",
        "gemini",
        "bedrock:classic",
        "openai-chat:mistral",
        "openai-chat:strict",
        "langchain:mistral",
    ),
    errors={
        "anthropic": 'messages: first message must use the "user" role',
        "bedrock:classic": "A conversation must start with a user message. Try again with a "
        "conversation that starts with a user message.",
        "gemini": "History must start with a user turn.",
        "openai-chat:strict": "No user query found in messages",
    },
    summary="the history does not start with a user message",
    help="heal puts a short user message before it",
    what="The first message is not the user's.",
    cause="A fixed-length slice or a compaction cut the beginning off.",
    repair="A minimal user message is put first; nothing is removed.",
    failures=("F42",),
    known="Bedrock relaxed this in 2025 (profile bedrock:classic keeps it)",
)
BAD_END = rule(
    code="LS407",
    name="bad-end",
    counted=("wrong last message", "wrong last messages"),
    dialects=("anthropic", "gemini", "bedrock", "openai-chat:mistral", "langchain:mistral"),
    errors={
        "anthropic": "This model does not support assistant message prefill. The conversation "
        "must end with a user message.",
        "gemini": "Please ensure that function call turn comes immediately after a user turn or "
        "after a function response turn.",
        "bedrock": "This model does not support assistant message prefill. The conversation must "
        "end with a user message.",
        "openai-chat:mistral": "Expected last role User or Tool (or Assistant with prefix True) "
        "for serving but got assistant",
    },
    summary="the request ends with an assistant message",
    help="heal appends a short user message; the assistant's words stay",
    what="Newer models refuse a request whose last message is the assistant's.",
    cause="A session was resumed after its last turn was stopped in the middle of the answer.",
    repair="A short continuation message is appended.",
    failures=("F43", "F45"),
    known="Claude Opus and Sonnet 4.6 and later, all 5.x; only for a whole request body or if the "
    "model is named, since every stored session ends this way",
)
USER_AFTER_TOOL = rule(
    code="LS408",
    name="user-after-tool",
    counted=("user message right after a result", "user messages right after results"),
    dialects=("openai-chat:mistral", "openai-chat:strict", "langchain:mistral"),
    errors={"openai-chat:mistral": "Unexpected role '<role>' after role 'tool'"},
    summary="a user message directly follows tool results",
    help="heal puts a short assistant message between them, in the request only",
    what="Mistral requires an assistant turn between tool results and the next user message.",
    cause="The user spoke right after the tools, which other providers allow.",
    repair="A short assistant message is inserted for this provider only.",
    failures=("F44",),
)
CALL_TURN = rule(
    code="LS409",
    name="misplaced-call-turn",
    counted=("call turn out of place", "call turns out of place"),
    dialects=("gemini",),
    errors={
        "gemini": "Please ensure that function call turn comes immediately after a user turn or "
        "after a function response turn.",
    },
    summary="a function call turn follows another model turn",
    help="heal merges the two model turns",
    what="A model turn with function calls must follow a user or function response turn.",
    cause="A model turn was stored in two pieces, or the turn between was trimmed.",
    repair="The model turns are merged into one.",
    failures=("F45",),
)
MIXED_RESPONSES = rule(
    code="LS410",
    name="mixed-response-turn",
    dialects=("gemini",),
    errors={
        "gemini": "Please ensure that the number of function response parts is equal to the "
        "number of function call parts of the function call turn.",
    },
    summary="a function response turn holds other parts, too",
    help="heal moves the other parts into a turn of their own",
    what="A response turn must hold the responses and nothing else.",
    cause="Text, a reminder or an image was merged into it.",
    repair="The other parts move into a user turn right after it.",
    failures=("F45", "F46"),
)
_SYSTEM_BLOCKS = ("tool_addition", "tool_removal")

SYSTEM_PLACE = rule(
    code="LS411",
    name="misplaced-system",
    counted=("system message out of place", "system messages out of place"),
    dialects=("anthropic", "openai-chat:strict", "openai-chat:lmstudio"),
    errors={
        "openai-chat:strict": "System message must be at the beginning.",
        "anthropic": 'messages: Unexpected role "system". The Messages API accepts a top-level '
        '`system` parameter, not "system" as an input message role.',
    },
    summary="a system message is where the provider does not accept one",
    help="heal turns it into a labelled user message, or moves a first one into `system`",
    what="Chat templates accept one system message, at the start. Anthropic accepts one only "
    "after a user turn, before an assistant turn or at the end.",
    cause="A compaction stored its summary as a system message, or the list came from a format in "
    "which the system prompt is the first message.",
    repair="In an Anthropic request body without `system`, a first one moves there. Otherwise the "
    "text stays where it is, as a user message that says what it was.",
    failures=("F47",),
)
WRONG_ROLE = rule(
    code="LS412",
    name="unknown-role",
    counted=("message of an unknown role", "messages of an unknown role"),
    errors={
        "anthropic": "messages.<N>.role: Input should be 'user' or 'assistant'",
        "openai-chat": "Invalid value: '<role>'. Supported values are: 'system', 'assistant', "
        "'user', 'function', 'tool', and 'developer'.",
        "gemini": "Please use a valid role: user, model.",
        "bedrock": "Value at 'messages.<N>.role' failed to satisfy constraint: Member must "
        "satisfy enum value set: [user, assistant]",
    },
    summary="a message has a role that this format does not know",
    help="heal gives it the role it stands for, or makes it a labelled user message",
    what="The role is missing, or is not one of the format's roles.",
    cause="A message of another format was appended, or the field was lost.",
    repair="Known aliases (human, ai, model, tool …) are mapped by what the message holds; text of "
    "an unknown role becomes a labelled user message.",
    failures=("F41", "F47"),
)


@finder(ALTERNATION, USER_AFTER_TOOL, when=lambda case: case.profile.alternates)
def alternation(case: Case) -> Iterator[Finding]:
    """LS405 and LS408."""
    profile = case.profile
    before: Message | None = None
    previous: Message | None = None
    for message in case.messages:
        # chat templates count users, and assistants without calls, only
        if profile.template and (
            message.role not in (USER, ASSISTANT)
            or (message.role == ASSISTANT and message.has(CALL))
        ):
            previous = message
            continue
        if previous is not None and needs_bridge(previous, message, profile):
            text = f"a {message.role} message follows tool results"
            yield case.find(USER_AFTER_TOOL, message, text, role=message.role)
        elif (
            before is not None
            and message.role == before.role
            and (profile.template or previous is before)
        ):
            text = f"two {message.role} messages follow each other"
            place = case.place_at(before.index)
            yield case.find(
                ALTERNATION, place, text, role=message.role, N=case.number(message.index)
            )
        before = message if message.role in (USER, ASSISTANT) else None
        previous = message


def needs_bridge(previous: Message, message: Message, profile: Profile) -> bool:
    """Whether an assistant turn must stand between these two messages."""
    if profile.user_after_tool or previous.role != TOOL:
        return False
    return message.role == USER or (message.role == SYSTEM and not profile.template)


@finder(
    BAD_START,
    having=(ASSISTANT, TOOL),
    when=lambda case: (
        case.profile.starts_with_user and any(m.role != USER for m in case.messages[:1])
    ),
)
def start(case: Case) -> Iterator[Finding]:
    """LS406."""
    first = next((m for m in case.messages if m.role != SYSTEM), None)
    if first is not None and first.role in (ASSISTANT, TOOL):
        yield case.find(BAD_START, first, f"the history starts with the {first.role}")


@finder(BAD_END, when=lambda case: case.is_request)
def end(case: Case) -> Iterator[Finding]:
    """LS407."""
    if ends_badly(case):
        yield case.find(BAD_END, case.messages[-1], "the request ends with an assistant message")


def ends_badly(case: Case) -> bool:
    """Whether this request may not end as it does."""
    if not case.is_request or not case.messages or case.messages[-1].role != ASSISTANT:
        return False
    last = case.messages[-1]
    if last.has(SERVER_CALL):
        return False
    if isinstance(last.raw, dict) and last.raw.get("prefix") is True:
        return False
    return case.profile.ends_with_user or not case.traits.prefill


@finder(CALL_TURN, MIXED_RESPONSES)
def gemini_turns(case: Case) -> Iterator[Finding]:
    """LS409 and LS410."""
    for position, message in enumerate(case.messages):
        if message.role == ASSISTANT and position and message.has(CALL):
            before = case.messages[position - 1]
            if before.role == ASSISTANT:
                yield case.find(CALL_TURN, before, "a call turn follows another model turn")
        if message.role == USER and is_mixed(message):
            yield case.find(MIXED_RESPONSES, message, "this response turn holds other parts, too")


def is_mixed(message: Message) -> bool:
    """Whether a message holds results and something else."""
    kinds = {part.kind == RESULT for part in message.parts}
    return kinds == {True, False}


@finder(SYSTEM_PLACE, having=(SYSTEM,))
def system_place(case: Case) -> Iterator[Finding]:
    """LS411."""
    for position, message in enumerate(case.messages):
        if message.role == SYSTEM and is_system_misplaced(case, position):
            text = "a system message is where this provider does not accept one"
            yield case.find(SYSTEM_PLACE, message, text)


def is_system_misplaced(case: Case, position: int) -> bool:
    """Whether a system message may not stand here.

    Anthropic takes them in mid-conversation: behind a user turn, and before an assistant turn or
    at the end; and only text, and tools that come or go, may stand in them.
    """
    if case.profile.dialect != "anthropic":
        return case.profile.system_first and position > 0
    parts = case.messages[position].parts
    if not position or any(p.kind != TEXT and p.flavor not in _SYSTEM_BLOCKS for p in parts):
        return True
    before = case.messages[position - 1]
    last = before.parts[-1].kind if before.parts else ""
    paused = before.role == ASSISTANT and last == SERVER_CALL
    behind = case.messages[position + 1 : position + 2]
    return not (before.role == USER or paused) or any(m.role != ASSISTANT for m in behind)


@finder(WRONG_ROLE, having=(UNKNOWN,))
def roles(case: Case) -> Iterator[Finding]:
    """LS412."""
    for message in case.messages:
        if message.role == UNKNOWN and not message.flaw:
            role = message.raw.get("role", message.raw.get("type"))
            text = f"role {word(role)} is not one of this format's roles"
            yield case.find(WRONG_ROLE, message, text, role=word(role))
