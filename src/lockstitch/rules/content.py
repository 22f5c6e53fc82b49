"""LS401 to LS404 and LS413 to LS416: what stands inside a message."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any

from lockstitch.conversation.pairing import GROUPED, SINGLE
from lockstitch.conversation.parts import (
    ASSISTANT,
    BLANK_TEXTS,
    BROKEN,
    CALL,
    EMPTY,
    FLAWED,
    MARKED,
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
from lockstitch.dialects.anthropic import markers_outside
from lockstitch.dialects.base import CALLS_ELSEWHERE, NO_CALLS
from lockstitch.dialects.langchain import fields_of
from lockstitch.dialects.openai_chat import OpenAIChat
from lockstitch.dialects.profiles import ANYTHING, BLANK, Profile
from lockstitch.rules.rule import Case, Finding, finder, label, rule

BLOCKS = ("anthropic", "bedrock", "gemini")
BLANK_TEXT = rule(
    code="LS401",
    name="blank-text",
    dialects=(*BLOCKS, "langchain:anthropic"),
    errors={
        "anthropic": "messages: text content blocks must be non-empty",
        "anthropic (white space)": "messages: text content blocks must contain non-whitespace text",
        "bedrock": "The text in content block cannot be null or empty.",
        "gemini": "contents[<N>].parts[<M>].data: required oneof field 'data' must have one "
        "initialized field",
    },
    summary="a text block is empty or only white space",
    help="heal removes the block, or puts a visible note there if nothing else is left",
    what="This provider refuses text blocks without text.",
    cause="Only spaces or an image were sent, or a stream was finalised before its text arrived.",
    repair="The block is removed if others remain. A user message with nothing else gets a visible "
    "note, never an empty string; an assistant turn with nothing at all is removed.",
    failures=("F37", "F38"),
)
CACHE_MARKER = rule(
    code="LS402",
    name="misplaced-cache-marker",
    dialects=("anthropic",),
    errors={
        "anthropic": "messages.<N>.content.<M>.text: cache_control cannot be set for empty text "
        "blocks",
        "anthropic (thinking)": "messages.<N>.content.<M>.thinking.cache_control: Extra inputs "
        "are not permitted",
    },
    summary="a cache marker is on a block that cannot carry one",
    help="heal removes the marker",
    what="Thinking blocks and empty texts cannot carry `cache_control`.",
    cause="A marker was put on the last block without looking at its type.",
    repair="The marker is removed; the block stays.",
    failures=("F30", "F39"),
)
CACHE_MARKERS = rule(
    code="LS403",
    name="too-many-cache-markers",
    counted=("cache marker too many", "cache markers too many"),
    dialects=("anthropic",),
    errors={"anthropic": "A maximum of 4 blocks with cache_control may be provided. Found <n>."},
    summary="there are more cache markers than the provider accepts",
    help="heal removes the oldest markers",
    what="At most four blocks in a request may carry `cache_control`.",
    cause="Markers were saved with the history, and more were added at each step.",
    repair="The newest four stay, counting those of `system` and `tools`.",
    failures=("F39",),
)
EMPTY_CONTENT = rule(
    code="LS404",
    name="empty-content",
    counted=("empty message", "empty messages"),
    errors={
        "anthropic": "messages.<N>: all messages must have non-empty content except for the "
        "optional final assistant message",
        "openai-chat": "Invalid value for 'content': expected a string, got null.",
        "openai-chat (array)": "Invalid 'messages[<N>].content': empty array",
        "openai-chat:ollama": "invalid message content type: <nil>",
        "openai-chat:lmstudio": "Invalid 'content': 'content' field must be a string or an array "
        "of objects.",
        "gemini": "* GenerateContentRequest.contents[<N>].parts: contents.parts must not be empty.",
        "bedrock": "The content field in the Message object at messages.<N> is empty. Add a "
        "ContentBlock object to the content field and try again.",
    },
    summary="a message has no content",
    help="heal gives it the emptiest content that the provider accepts, or drops a turn that "
    "holds nothing",
    what="The content is null, missing or an empty list, but the provider requires some.",
    cause="A turn with neither text nor calls was stored, or a clean-up emptied it.",
    repair="OpenAI-style servers get an empty string; elsewhere an empty assistant turn is "
    "removed, and an empty user turn gets a visible note.",
    failures=("F38", "F40"),
)
MISPLACED_PART = rule(
    code="LS413",
    name="part-in-wrong-role",
    counted=("part in the wrong message", "parts in the wrong message"),
    dialects=(*BLOCKS, "openai-chat", "langchain"),
    errors={
        "anthropic": "messages.<N>: `tool_use` blocks can only be in `assistant` messages",
        "anthropic (result)": "messages.<N>: `tool_result` blocks can only be in `user` messages",
    },
    summary="a call is outside the assistant's messages, or a result is inside one of them",
    help="heal moves the part into a message of the right role",
    what="Calls belong in assistant messages, results on the user's side. In OpenAI Chat and "
    "LangChain, this means `tool_calls` in a message of another role, typically a `tool` "
    "message.",
    cause="Messages were rebuilt by role without looking at their blocks.",
    repair="The part moves into a message of its own beside the old one. Calls that repeat earlier "
    "ones exactly are removed.",
    failures=("F06",),
)
MALFORMED = rule(
    code="LS414",
    name="malformed",
    counted=("malformed message", "malformed messages"),
    lossy=True,
    errors={
        "anthropic": "<place>: Input should be a valid dictionary or object to extract fields from",
        "openai-chat (no calls)": "[] is too short - 'messages.<N>.tool_calls'",
    },
    summary="a message or a block does not have the form that this format requires",
    help="heal removes it and lists it in the quarantine; text is kept",
    what="A value has the wrong type, lacks the field that says what it is or the field with its "
    "content, or is an empty list where none is allowed (`tool_calls` of OpenAI Chat).",
    cause="A file was edited by hand, cut, or written by another program.",
    repair="Whatever can be read as text stays; the rest is removed and kept in the quarantine "
    "list.",
    failures=("F40",),
)
DOCUMENT_TEXT = rule(
    code="LS415",
    name="document-without-text",
    counted=("document without a text", "documents without a text"),
    dialects=("bedrock",),
    errors={
        "bedrock": "If you include a ContentBlock with a document field, you must also include a "
        "ContentBlock with a text field.",
    },
    summary="a document has no text beside it",
    help="heal adds a short text",
    what="Converse requires a text block in every message that holds a document.",
    cause="A document was sent or kept without text.",
    repair="A short text is added after it.",
    failures=("F40",),
)


ODD_RESULT = rule(
    code="LS416",
    name="odd-result",
    counted=("malformed tool result", "malformed tool results"),
    errors={
        "openai-chat": "Invalid type for 'messages[<N>].content': expected one of a string or "
        "array of objects, but got <kind> instead.",
    },
    summary="a result holds neither text nor blocks, or a text block without text",
    help="heal keeps the value, as text or in the form that the format has for it",
    what="A result must hold text, a list of blocks (a text block must have its text) or, with "
    "Gemini, an object.",
    cause="A tool returned a dict, a number or a list, and the program stored it unchanged.",
    repair="The whole value stays: as JSON text, or as the block that the format has for data. A "
    "text block that holds nothing is removed.",
    failures=("F40",),
)


_ASSISTANT_ONLY = (REASONING, SERVER_CALL, SERVER_RESULT)
# Which kinds of parts stand where a format may not have them.
_MISPLACED = (
    *((kind, role) for kind in (CALL, *_ASSISTANT_ONLY) for role in (USER, SYSTEM, TOOL)),
    *((RESULT, role) for role in (ASSISTANT, SYSTEM, TOOL)),
)


@finder(BLANK_TEXT, having=(BLANK_TEXTS, RESULT))
def blank_texts(case: Case) -> Iterator[Finding]:
    """LS401, inside results, too."""
    if case.profile.rejects_text == ANYTHING:
        return
    last = len(case.messages) - 1
    for part in case.parts.results if case.profile.rejects_text == BLANK else ():
        if has_blank_block(part):
            yield case.find(BLANK_TEXT, part, "a result with a blank text block")
    for part in case.parts.texts if BLANK_TEXTS in case.parts.signs else ():
        if (part.text and not part.text.isspace()) or not is_blank(part, case.profile):
            continue
        message = case.messages[part.home]
        if part.home == last and message.role == ASSISTANT and message.raw.get("content") == "":
            continue
        text = f"text of {len(part.text)} blank characters"
        wording = "white space" if part.text else ""
        yield case.find(BLANK_TEXT, part, text, wording=wording)


def has_blank_block(part: Part) -> bool:
    """Whether a result holds a blank text block."""
    content = part.raw.get("toolResult", part.raw).get("content")
    return type(content) is list and any(map(is_blank_block, content))


def is_blank_block(block: Any) -> bool:
    """Whether this is a text block without text."""
    if not isinstance(block, dict) or block.get("type", "text") != "text":
        return False
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def is_blank(part: Part, profile: Profile) -> bool:
    """Whether this receiver refuses a text as empty."""
    if profile.rejects_text == BLANK:
        return not part.text or part.text.isspace()
    return profile.rejects_text != ANYTHING and not part.text


@finder(CACHE_MARKER, CACHE_MARKERS, having=(MARKED,))
def cache_markers(case: Case) -> Iterator[Finding]:
    """LS402 and LS403."""
    marked: list[Part] = []
    for message in case.messages:
        for part in message.parts:
            if type(part.raw) is dict and part.raw.get("cache_control") is not None:
                marked.append(part)
                if cannot_be_marked(part):
                    what = "thinking" if part.kind == REASONING else "empty text"
                    yield case.find(CACHE_MARKER, part, f"cache marker on {what}", wording=what)
    good = [part for part in marked if not cannot_be_marked(part)]
    most = case.profile.max_markers
    surplus = len(good) + markers_outside(case.body) - most
    if most and surplus > 0:
        for part in good[:surplus]:
            text = (
                f"{len(good) + markers_outside(case.body)} cache markers, at most {most} are "
                "accepted"
            )
            yield case.find(CACHE_MARKERS, part, text, n=surplus + most)


def cannot_be_marked(part: Part) -> bool:
    """Whether a block may not carry a cache marker."""
    return part.kind == REASONING or (part.kind == TEXT and not part.text.strip())


# where results and calls have messages or fields of their own, content may be missing beside them
@finder(
    EMPTY_CONTENT,
    when=lambda case: case.profile.layout == SINGLE or EMPTY in case.parts.signs,
)
def empty_contents(case: Case) -> Iterator[Finding]:
    """LS404."""
    for position, message in enumerate(case.messages):
        if not message.flaw and lacks_content(case, position):
            place = case.place_at(message.index)
            content = message.raw.get("content") if isinstance(message.raw, dict) else None
            wording = "array" if content == [] else ""
            yield case.find(EMPTY_CONTENT, place, "this message has no content", wording=wording)


def lacks_content(case: Case, position: int) -> bool:
    """Whether this receiver refuses a message as empty."""
    message = case.messages[position]
    dialect = case.profile.dialect
    if dialect == "openai-chat":
        return _chat_lacks_content(case, message)
    if dialect == "langchain":
        is_said = message.parts or case.profile.rejects_text == ANYTHING
        if not is_said and message.role in (USER, ASSISTANT):
            return True
        return isinstance(message.raw, dict) and fields_of(message.raw).get("content") is None
    if message.parts:
        return False
    if dialect == "anthropic" and message.role == SYSTEM and isinstance(message.raw, dict):
        # one without words may set options from there on, such as the effort
        return not message.raw.keys() - {"role", "content"}
    if dialect == "openai-responses":
        return isinstance(message.raw, dict) and message.raw.get("content") in (None, [])
    is_last = position == len(case.messages) - 1
    if case.dialect.may_end_empty and message.role == ASSISTANT and is_last:
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


@finder(ODD_RESULT, having=(RESULT,))
def odd_results(case: Case) -> Iterator[Finding]:
    """LS416."""
    payload, is_payload = case.dialect.payload, case.dialect.is_payload
    for part in case.parts.results:
        value = payload(part)
        if not is_payload(value):
            kind = _JSON_KINDS.get(type(value), "an object")
            if isinstance(value, list) and all(isinstance(block, dict) for block in value):
                kind = "a block without its content"
            text = f"the result for {label(part)} carries {kind}"
            yield case.find(ODD_RESULT, part, text, kind=kind)


_JSON_KINDS = {
    NoneType: "null",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    str: "a string",
    list: "an array of something else",
}


@finder(DOCUMENT_TEXT)
def documents(case: Case) -> Iterator[Finding]:
    """LS415."""
    for message in case.messages:
        if lacks_text_beside_document(message):
            yield case.find(DOCUMENT_TEXT, message, "a document without a text in the same message")


def lacks_text_beside_document(message: Message) -> bool:
    """Whether a message holds a document and no text."""
    return any(part.flavor == "document" for part in message.parts) and not message.has(TEXT)


@finder(MISPLACED_PART, having=(*_MISPLACED, BROKEN))
def misplaced_parts(case: Case) -> Iterator[Finding]:
    """LS413, for calls that are a field of their own and for those that are blocks."""
    parts = case.parts
    for part in parts.rest:
        if part.flavor == CALLS_ELSEWHERE:
            text = f"calls are in a {case.messages[part.home].role} message"
            yield case.find(MISPLACED_PART, part, text)
    if case.profile.layout != GROUPED:
        return
    for part in (*parts.calls, *parts.results, *parts.reasoning, *parts.servers):
        role = case.messages[part.home].role
        if is_misplaced(part, role, case.profile.dialect):
            text = f"a {part.kind} is in a message of the {role}"
            wording = "result" if part.kind == RESULT else ""
            yield case.find(MISPLACED_PART, part, text, wording=wording)


def is_misplaced(part: Part, role: str, dialect: str) -> bool:
    """Whether a part may not stand in a message of this role."""
    owner = owner_of(part, dialect)
    return bool(owner) and role not in (UNKNOWN, owner)


def owner_of(part: Part, dialect: str) -> str:
    """Return the only role that may hold a part of this kind, "" if several may."""
    if part.kind == RESULT:
        return USER
    if part.kind == CALL or (dialect != "gemini" and part.kind in _ASSISTANT_ONLY):
        return ASSISTANT
    return ""


@finder(MALFORMED, having=(FLAWED, BROKEN))
def malformed(case: Case) -> Iterator[Finding]:
    """LS414."""
    for message in case.messages:
        if message.flaw:
            text = _FLAWS.get(message.flaw, "this message is malformed")
            lossy = not keeps_text(message)
            yield case.find(MALFORMED, message, text, lossy=lossy)
    for part in case.parts.rest:
        if part.kind != BROKEN or part.flavor == CALLS_ELSEWHERE:
            continue
        if case.messages[part.home].flaw:
            continue
        place = case.place(part)
        if part.flavor == NO_CALLS:
            text = "an empty list of calls"
            yield case.find(MALFORMED, place, text, wording="no calls", lossy=False)
        else:
            broken = EMPTY_CONTENT if part.flavor == "empty" else MALFORMED
            yield case.find(
                broken, place, "this block does not have the form that its type requires"
            )
    for part in case.parts.texts:
        if part.flavor == "bare" and case.profile.dialect != "langchain":
            yield case.find(MALFORMED, part, "a bare string where a block is required", lossy=False)


def keeps_text(message: Message) -> bool:
    """Whether all of a malformed message can be put into the right form."""
    if message.flaw == "content":
        return not message.has(BROKEN)
    return isinstance(message.raw, str) and bool(message.raw.strip())


_FLAWS = {
    "not-an-object": "this message is not an object",
    "content": "the content is neither text nor a list of blocks",
    "type": "this item does not say what it is",
}
