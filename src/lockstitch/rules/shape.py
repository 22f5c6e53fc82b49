"""LS4xx: turns, roles and content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstitch.dialects.langchain import fields_of
from lockstitch.dialects.openai_chat import OpenAIChat
from lockstitch.dialects.profiles import ANYTHING, BLANK, Profile
from lockstitch.model.parts import (
    ASSISTANT,
    BROKEN,
    CALL,
    REASONING,
    RESULT,
    SERVER_CALL,
    SERVER_RESULT,
    SYSTEM,
    TEXT,
    TOOL,
    UNKNOWN,
    USER,
    Message,
    Part,
)
from lockstitch.rules.case import Case
from lockstitch.rules.rule import Finding, Rule, finder, rule, shown

BLOCKS = ("anthropic", "bedrock", "gemini")
EVERY = ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock", "langchain")

BLANK_TEXT = rule(
    code="LS401",
    name="blank-text",
    dialects=BLOCKS,
    errors=(
        ("anthropic", "messages: text content blocks must be non-empty"),
        (
            "anthropic (white space)",
            "messages: text content blocks must contain non-whitespace text",
        ),
        ("bedrock", "The text in content block cannot be null or empty."),
        (
            "gemini",
            "contents[<N>].parts[<M>].data: required oneof field 'data' must have one initialized "
            "field",
        ),
    ),
    summary="a text block is empty or only white space",
    help="heal removes the block, or puts a visible note if nothing else is left",
    what="This provider refuses text blocks without text.",
    cause="Only spaces or an image were sent, or a stream was finalised before its text came.",
    repair="The block goes if others remain. A user message with nothing else gets a visible note, "
    "never an empty string; an assistant turn with nothing at all goes.",
    failures=("F37", "F38"),
)
CACHE_MARKER = rule(
    code="LS402",
    name="misplaced-cache-marker",
    dialects=("anthropic",),
    errors=(
        (
            "anthropic",
            "messages.<N>.content.<M>.text: cache_control cannot be set for empty text blocks",
        ),
        (
            "anthropic (thinking)",
            "messages.<N>.content.<M>.thinking.cache_control: Extra inputs are not permitted",
        ),
    ),
    summary="a cache marker stands on a block that cannot carry one",
    help="heal removes the marker",
    what="Thinking blocks and empty texts cannot carry `cache_control`.",
    cause="A marker was stamped on the last block without looking at it.",
    repair="The marker goes, the block stays.",
    failures=("F30", "F39"),
)
CACHE_MARKERS = rule(
    code="LS403",
    name="too-many-cache-markers",
    dialects=("anthropic",),
    errors=(("anthropic", "A maximum of 4 blocks with cache_control may be provided. Found <n>."),),
    summary="more cache markers than the provider takes",
    help="heal removes the oldest markers",
    what="At most four blocks of a request may carry `cache_control`.",
    cause="Markers were saved into the history and added again at each step.",
    repair="The newest four stay, counting those of `system` and `tools`.",
    failures=("F39",),
)
EMPTY_CONTENT = rule(
    code="LS404",
    name="empty-content",
    dialects=EVERY,
    errors=(
        (
            "anthropic",
            "messages.<N>: all messages must have non-empty content except for the optional final "
            "assistant message",
        ),
        ("openai-chat", "Invalid value for 'content': expected a string, got null."),
        ("openai-chat (array)", "Invalid 'messages[<N>].content': empty array"),
        ("openai-chat:ollama", "invalid message content type: <nil>"),
        (
            "openai-chat:lmstudio",
            "Invalid 'content': 'content' field must be a string or an array of objects.",
        ),
        (
            "gemini",
            "* GenerateContentRequest.contents[<N>].parts: contents.parts must not be empty.",
        ),
        (
            "bedrock",
            "The content field in the Message object at messages.<N> is empty. Add a ContentBlock "
            "object to the content field and try again.",
        ),
    ),
    summary="a message has no content",
    help="heal gives it the emptiest content the provider takes, or drops a turn with nothing",
    what="Content is null, missing or an empty list where the provider wants something.",
    cause="A turn with neither text nor calls was stored, or a clean-up emptied it.",
    repair="OpenAI-style servers get an empty string; elsewhere an empty assistant turn goes and "
    "an empty user turn gets a visible note.",
    failures=("F38", "F40"),
)
ALTERNATION = rule(
    code="LS405",
    name="roles-do-not-alternate",
    dialects=("bedrock", "openai-chat:mistral", "openai-chat:strict", "langchain:mistral"),
    errors=(
        (
            "openai-chat:strict",
            "After the optional system message, conversation roles must alternate user and "
            "assistant roles...",
        ),
        (
            "bedrock",
            'messages: roles must alternate between "user" and "assistant", but found multiple '
            '"<role>" roles in a row',
        ),
        ("openai-chat:mistral", "Unexpected role '<role>' after role '<role>'"),
    ),
    summary="two messages of one role follow each other",
    help="heal merges them; assistant turns are never merged across a tool call",
    what="This provider wants user and assistant to alternate.",
    cause="A summary, a retry or a reminder was put beside another message of the same role.",
    repair="Neighbours of one role are merged. Template-strict servers do not count the tool flow, "
    "so two user turns with only tool messages between them get a short assistant turn between.",
    failures=("F41",),
)
BAD_START = rule(
    code="LS406",
    name="bad-start",
    dialects=(
        "anthropic",
        "gemini",
        "bedrock:classic",
        "openai-chat:mistral",
        "openai-chat:strict",
        "langchain:mistral",
    ),
    errors=(
        ("anthropic", 'messages: first message must use the "user" role'),
        (
            "bedrock:classic",
            "A conversation must start with a user message. Try again with a conversation that "
            "starts with a user message.",
        ),
        ("gemini", "History must start with a user turn."),
        ("openai-chat:strict", "No user query found in messages"),
    ),
    summary="the history does not start with a user message",
    help="heal puts a short user message in front",
    what="The first message is not the user's.",
    cause="A fixed-length slice or a compaction cut the beginning off.",
    repair="A minimal user message goes in front; nothing is removed.",
    failures=("F42",),
    known="Bedrock relaxed this in 2025 (profile bedrock:classic keeps it)",
)
BAD_END = rule(
    code="LS407",
    name="bad-end",
    dialects=("anthropic", "gemini", "bedrock", "openai-chat:mistral", "langchain:mistral"),
    errors=(
        (
            "anthropic",
            "This model does not support assistant message prefill. The conversation must end with "
            "a user message.",
        ),
        (
            "gemini",
            "Please ensure that function call turn comes immediately after a user turn or after a "
            "function response turn.",
        ),
        (
            "bedrock",
            "This model does not support assistant message prefill. The conversation must end with "
            "a user message.",
        ),
        (
            "openai-chat:mistral",
            "Expected last role User or Tool (or Assistant with prefix True) for serving but got "
            "assistant",
        ),
    ),
    summary="the request ends with an assistant message",
    help="heal appends a short user message; the assistant's words stay",
    what="Newer models refuse a request whose last message is the assistant's.",
    cause="A resume after a turn that was torn down in the middle of its answer.",
    repair="A short continuation message is appended.",
    failures=("F43", "F45"),
    known="Claude Opus and Sonnet 4.6 and later, all 5.x; only for a whole request body or where "
    "the model is named, since every stored session ends this way",
)
USER_AFTER_TOOL = rule(
    code="LS408",
    name="user-after-tool",
    dialects=("openai-chat:mistral", "openai-chat:strict", "langchain:mistral"),
    errors=(("openai-chat:mistral", "Unexpected role '<role>' after role 'tool'"),),
    summary="a user message follows tool results directly",
    help="heal puts a short assistant message between them, on the wire copy",
    what="Mistral wants an assistant turn between tool results and the next user message.",
    cause="The user spoke right after the tools, which is legal elsewhere.",
    repair="A bridge assistant message is inserted for this provider only.",
    failures=("F44",),
)
CALL_TURN = rule(
    code="LS409",
    name="misplaced-call-turn",
    dialects=("gemini",),
    errors=(
        (
            "gemini",
            "Please ensure that function call turn comes immediately after a user turn or after a "
            "function response turn.",
        ),
    ),
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
    errors=(
        (
            "gemini",
            "Please ensure that the number of function response parts is equal to the number of "
            "function call parts of the function call turn.",
        ),
    ),
    summary="a function response turn holds other parts too",
    help="heal moves the other parts into a turn of their own",
    what="A response turn must hold exactly the responses.",
    cause="Text, a reminder or an image was merged into it.",
    repair="The other parts move into a user turn right behind it.",
    failures=("F45", "F46"),
)
SYSTEM_PLACE = rule(
    code="LS411",
    name="misplaced-system",
    dialects=("anthropic", "openai-chat:strict", "openai-chat:lmstudio"),
    errors=(
        ("openai-chat:strict", "System message must be at the beginning."),
        (
            "anthropic",
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` '
            'parameter, not "system" as an input message role.',
        ),
    ),
    summary="a system message stands where the provider takes none",
    help="heal turns it into a labelled user message, or moves a first one into `system`",
    what="Chat templates take one system message, at the start. Anthropic takes one only behind a "
    "user turn, in front of an assistant turn or at the end.",
    cause="A compaction stored its summary as a system message, or the list came from a format in "
    "which the system prompt is the first message.",
    repair="In an Anthropic request body without `system` a first one moves there. Elsewhere the "
    "text stays where it is, as a user message that says what it was.",
    failures=("F47",),
)
WRONG_ROLE = rule(
    code="LS412",
    name="unknown-role",
    dialects=EVERY,
    errors=(
        ("anthropic", "messages.<N>.role: Input should be 'user' or 'assistant'"),
        (
            "openai-chat",
            "Invalid value: '<role>'. Supported values are: 'system', 'assistant', "
            "'user', 'function', 'tool', and 'developer'.",
        ),
        ("gemini", "Please use a valid role: user, model."),
        (
            "bedrock",
            "Value at 'messages.<N>.role' failed to satisfy constraint: Member must satisfy "
            "enum value set: [user, assistant]",
        ),
    ),
    summary="a message has a role this format does not know",
    help="heal gives it the role it stands for, or makes it a labelled user message",
    what="The role is missing or not one of the format's.",
    cause="A message of another format was appended, or the field was lost.",
    repair="Known aliases (human, ai, model, tool …) are mapped by what the message holds; text of "
    "an unknown role becomes a labelled user message.",
    failures=("F41", "F47"),
)
MISPLACED_PART = rule(
    code="LS413",
    name="part-in-wrong-role",
    dialects=BLOCKS,
    errors=(
        ("anthropic", "messages.<N>: `tool_use` blocks can only be in `assistant` messages"),
        (
            "anthropic (result)",
            "messages.<N>: `tool_result` blocks can only be in `user` messages",
        ),
    ),
    summary="a call stands in a user message, or a result in an assistant message",
    help="heal moves the part into a message of the right role",
    what="Calls belong to the assistant, results to the user's side.",
    cause="Messages were rebuilt by role without looking at their blocks.",
    repair="The part moves into a message of its own beside the old one.",
    failures=("F06",),
)
MALFORMED = rule(
    code="LS414",
    name="malformed",
    dialects=EVERY,
    lossy=True,
    errors=(
        (
            "anthropic",
            "<place>: Input should be a valid dictionary or object to extract fields from",
        ),
    ),
    summary="a message or a block is not what this format calls one",
    help="heal removes it and lists it in the quarantine; text is kept",
    what="A value is of the wrong type, or lacks the field that says what it is.",
    cause="A file was edited by hand, cut, or written by another program.",
    repair="What can be read as text stays; the rest is removed and kept in the quarantine list.",
    failures=("F40",),
)
DOCUMENT_TEXT = rule(
    code="LS415",
    name="document-without-text",
    dialects=("bedrock",),
    errors=(
        (
            "bedrock",
            "If you include a ContentBlock with a document field, you must also include a "
            "ContentBlock with a text field.",
        ),
    ),
    summary="a document stands without a text",
    help="heal adds a short text",
    what="Converse wants a text block in every message that holds a document.",
    cause="A document was sent or kept alone.",
    repair="A short text is added behind it.",
    failures=("F40",),
)


@finder("anthropic", "bedrock", "gemini")
def blank_texts(case: Case) -> Iterator[Finding]:
    """LS401."""
    if case.profile.rejects_text == ANYTHING:
        return
    last = len(case.messages) - 1
    for part in case.parts.texts:
        if not is_blank(part, case.profile):
            continue
        message = case.messages[part.home]
        if part.home == last and message.role == ASSISTANT and message.raw.get("content") == "":
            continue
        text = f"text of {len(part.text)} blank characters"
        wording = "white space" if part.text else ""
        yield case.find(BLANK_TEXT, case.place(part), text, wording=wording)
    for part in case.parts.results if case.profile.rejects_text == BLANK else ():
        if has_blank_block(part):
            yield case.find(BLANK_TEXT, case.place(part), "a result with a blank text block")


def has_blank_block(part: Part) -> bool:
    """Tell whether a result holds a blank text block."""
    content = part.raw.get("toolResult", part.raw).get("content")
    return type(content) is list and any(map(is_blank_block, content))


def is_blank_block(block: Any) -> bool:
    """Tell whether this is a text block without text."""
    if not isinstance(block, dict) or block.get("type", "text") != "text":
        return False
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def is_blank(part: Part, profile: Profile) -> bool:
    """Tell whether this receiver refuses a text as empty."""
    if profile.rejects_text == BLANK:
        return not part.text or part.text.isspace()
    return profile.rejects_text != ANYTHING and not part.text


@finder("anthropic")
def cache_markers(case: Case) -> Iterator[Finding]:
    """LS402 and LS403."""
    marked: list[Part] = []
    for message in case.messages:
        for part in message.parts:
            if type(part.raw) is dict and part.raw.get("cache_control") is not None:
                marked.append(part)
                if cannot_be_marked(part):
                    what = "thinking" if part.kind == REASONING else "empty text"
                    text = f"cache marker on {what}"
                    yield case.find(CACHE_MARKER, case.place(part), text, wording=what)
    good = [part for part in marked if not cannot_be_marked(part)]
    most = case.profile.max_markers
    surplus = len(good) + markers_outside(case.body) - most
    if most and surplus > 0:
        for part in good[:surplus]:
            text = f"{len(good) + markers_outside(case.body)} cache markers, {most} are taken"
            yield case.find(CACHE_MARKERS, case.place(part), text, n=surplus + most)


def cannot_be_marked(part: Part) -> bool:
    """Tell whether a block may not carry a cache marker."""
    return part.kind == REASONING or (part.kind == TEXT and not part.text.strip())


def markers_outside(body: dict[str, Any] | None) -> int:
    """Count the cache markers of ``system`` and ``tools``."""
    fields = [(body or {}).get(key) for key in ("system", "tools")]
    blocks = [block for field in fields if isinstance(field, list) for block in field]
    return sum(isinstance(b, dict) and b.get("cache_control") is not None for b in blocks)


@finder()
def empty_contents(case: Case) -> Iterator[Finding]:
    """LS404."""
    for position, message in enumerate(case.messages):
        if not message.flaw and lacks_content(case, position):
            place = case.place_at(message.index)
            content = message.raw.get("content") if isinstance(message.raw, dict) else None
            wording = "array" if content == [] else ""
            yield case.find(EMPTY_CONTENT, place, "this message has no content", wording=wording)


def lacks_content(case: Case, position: int) -> bool:
    """Tell whether this receiver refuses a message as empty."""
    message = case.messages[position]
    dialect = case.profile.dialect
    if dialect == "openai-chat":
        return _chat_lacks_content(case, message)
    if dialect == "langchain":
        return isinstance(message.raw, dict) and fields_of(message.raw).get("content") is None
    if message.parts:
        return False
    if dialect == "openai-responses":
        return isinstance(message.raw, dict) and message.raw.get("content") in (None, [])
    is_last = position == len(case.messages) - 1
    if dialect == "anthropic" and message.role == ASSISTANT and is_last:
        return not isinstance(message.raw, dict) or message.raw.get("content") is None
    return True


def _chat_lacks_content(case: Case, message: Message) -> bool:
    raw = message.raw
    if not isinstance(raw, dict):
        return False
    content = raw.get("content")
    if content is not None and content != []:
        return False
    if message.role != ASSISTANT or content == [] or case.profile.null_content == "never":
        return True
    dialect = case.dialect
    beside = isinstance(dialect, OpenAIChat) and dialect.has_content_beside(message)
    return not message.has(CALL) and not beside


@finder("bedrock")
def documents(case: Case) -> Iterator[Finding]:
    """LS415."""
    for message in case.messages:
        if lacks_text_beside_document(message):
            text = "a document without a text in the same message"
            yield case.find(DOCUMENT_TEXT, case.place_at(message.index), text)


def lacks_text_beside_document(message: Message) -> bool:
    """Tell whether a message holds a document and no text."""
    return any(part.flavor == "document" for part in message.parts) and not message.has(TEXT)


@finder("bedrock", "openai-chat", "langchain")
def alternation(case: Case) -> Iterator[Finding]:
    """LS405 and LS408."""
    profile = case.profile
    if not profile.alternates:
        return
    before: Message | None = None
    previous: Message | None = None
    for message in case.messages:
        if profile.template and not _counts(message):
            previous = message
            continue
        if previous is not None and needs_bridge(previous, message, profile):
            text = f"a {message.role} message follows tool results"
            place = case.place_at(message.index)
            yield case.find(USER_AFTER_TOOL, place, text, role=message.role)
        elif before is not None and _clash(before, message, previous, profile):
            text = f"two {message.role} messages follow each other"
            place = case.place_at(before.index)
            yield case.find(
                ALTERNATION, place, text, role=message.role, N=case.request.number(message.index)
            )
        before = message if message.role in (USER, ASSISTANT) else None
        previous = message


def _counts(message: Message) -> bool:
    """Chat templates count users and assistants without calls only."""
    return message.role == USER or (message.role == ASSISTANT and not message.has(CALL))


def needs_bridge(previous: Message, message: Message, profile: Profile) -> bool:
    """Tell whether an assistant turn must stand between these two messages."""
    if profile.user_after_tool or previous.role != TOOL:
        return False
    return message.role == USER or (message.role == SYSTEM and not profile.template)


def _clash(before: Message, message: Message, previous: Message | None, profile: Profile) -> bool:
    if message.role != before.role or message.role not in (USER, ASSISTANT):
        return False
    return profile.template or previous is before


@finder("anthropic", "gemini", "bedrock", "openai-chat", "langchain")
def start(case: Case) -> Iterator[Finding]:
    """LS406."""
    if not case.profile.starts_with_user:
        return
    first = next((m for m in case.messages if m.role != SYSTEM), None)
    if first is not None and first.role in (ASSISTANT, TOOL):
        text = f"the history starts with the {first.role}"
        yield case.find(BAD_START, case.place_at(first.index), text)


@finder("anthropic", "gemini", "bedrock", "openai-chat", "langchain")
def end(case: Case) -> Iterator[Finding]:
    """LS407."""
    if ends_badly(case):
        place = case.place_at(case.messages[-1].index)
        yield case.find(BAD_END, place, "the request ends with an assistant message")


def ends_badly(case: Case) -> bool:
    """Tell whether this request may not end as it does."""
    if not case.is_request or not case.messages or case.messages[-1].role != ASSISTANT:
        return False
    last = case.messages[-1]
    if any(part.kind == "server-call" for part in last.parts):
        return False
    if isinstance(last.raw, dict) and last.raw.get("prefix") is True:
        return False
    return case.profile.ends_with_user or not case.traits.prefill


@finder("gemini")
def gemini_turns(case: Case) -> Iterator[Finding]:
    """LS409 and LS410."""
    for position, message in enumerate(case.messages):
        if message.role == ASSISTANT and position and message.has(CALL):
            before = case.messages[position - 1]
            if before.role == ASSISTANT:
                place = case.place_at(before.index)
                yield case.find(CALL_TURN, place, "a call turn follows another model turn")
        if message.role == USER and is_mixed(message):
            text = "this response turn holds other parts too"
            yield case.find(MIXED_RESPONSES, case.place_at(message.index), text)


def is_mixed(message: Message) -> bool:
    """Tell whether a message holds results and something else."""
    kinds = {part.kind == RESULT for part in message.parts}
    return kinds == {True, False}


@finder("anthropic", "openai-chat")
def system_place(case: Case) -> Iterator[Finding]:
    """LS411."""
    for position, message in enumerate(case.messages):
        if message.role == SYSTEM and is_system_misplaced(case, position):
            text = "a system message stands where this provider takes none"
            yield case.find(SYSTEM_PLACE, case.place_at(message.index), text)


def is_system_misplaced(case: Case, position: int) -> bool:
    """Tell whether a system message may not stand here.

    Anthropic takes them in mid-conversation: behind a user turn, and before an assistant turn or
    at the end.
    """
    if case.profile.dialect != "anthropic":
        return case.profile.system_first and position > 0
    if not position:
        return True
    before = case.messages[position - 1]
    paused = before.role == ASSISTANT and before.has(SERVER_CALL)
    behind = case.messages[position + 1 : position + 2]
    return not (before.role == USER or paused) or any(m.role != ASSISTANT for m in behind)


@finder()
def roles(case: Case) -> Iterator[Finding]:
    """LS412."""
    for message in case.messages:
        if message.role == UNKNOWN and not message.flaw:
            role = message.raw.get("role", message.raw.get("type"))
            text = f"role {shown(role)} is not one of this format's"
            yield case.find(WRONG_ROLE, case.place_at(message.index), text, role=role)


@finder("anthropic", "bedrock", "gemini")
def misplaced_parts(case: Case) -> Iterator[Finding]:
    """LS413."""
    parts = case.parts
    for part in (*parts.calls, *parts.results, *parts.reasoning, *parts.servers):
        role = case.messages[part.home].role
        if is_misplaced(part, role, case.profile.dialect):
            text = f"a {part.kind} stands in a message of the {role}"
            wording = "result" if part.kind == RESULT else ""
            yield case.find(MISPLACED_PART, case.place(part), text, wording=wording)


def is_misplaced(part: Part, role: str, dialect: str) -> bool:
    """Tell whether a part may not stand in a message of this role."""
    owner = owner_of(part, dialect)
    return bool(owner) and role not in (UNKNOWN, owner)


def owner_of(part: Part, dialect: str) -> str:
    """Give the only role that may hold a part of this kind, "" if several may."""
    if part.kind == RESULT:
        return USER
    if part.kind == CALL or (dialect != "gemini" and part.kind in _ASSISTANT_ONLY):
        return ASSISTANT
    return ""


_ASSISTANT_ONLY = (REASONING, SERVER_CALL, SERVER_RESULT)


@finder()
def malformed(case: Case) -> Iterator[Finding]:
    """LS414."""
    for message in case.messages:
        if message.flaw:
            text = _FLAWS.get(message.flaw, "this message is malformed")
            lossy = not keeps_text(message)
            yield case.find(MALFORMED, case.place_at(message.index), text, lossy=lossy)
    for part in case.parts.rest:
        if part.kind == BROKEN and not case.messages[part.home].flaw:
            yield _broken(case, part)
    for part in case.parts.texts:
        if part.flavor == "bare" and case.profile.dialect != "langchain":
            text = "a bare string where a block belongs"
            yield case.find(MALFORMED, case.place(part), text, lossy=False)


def keeps_text(message: Message) -> bool:
    """Tell whether all of a malformed message can be put into the right form."""
    if message.flaw == "content":
        return not message.has(BROKEN)
    return isinstance(message.raw, str) and bool(message.raw.strip())


def _broken(case: Case, part: Part) -> Finding:
    rule_: Rule = EMPTY_CONTENT if part.flavor == "empty" else MALFORMED
    return case.find(rule_, case.place(part), "this block cannot be read as one")


_FLAWS = {
    "not-an-object": "this message is not an object",
    "content": "the content is neither text nor a list of blocks",
    "type": "this item does not say what it is",
}
