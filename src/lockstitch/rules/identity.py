"""LS2xx: ids, names, arguments and tool lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from lockstitch.conversation import json_text
from lockstitch.conversation.json_text import dump
from lockstitch.conversation.pairing import PairedCall
from lockstitch.conversation.parts import (
    CALL,
    OTHER,
    REASONING,
    RESULT,
    SERVER_CALL,
    Message,
    Part,
    Place,
)
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.openai_responses import ID_PREFIXES
from lockstitch.rules.rule import ERROR, WARNING, Case, Finding, finder, rule, shown

_UNIQUE = {"anthropic": "messages.<N>.content.<M>: `tool_use` ids must be unique"}
_UNIQUE_IN_TURN = {
    **_UNIQUE,
    "bedrock": "The toolUse blocks at messages.<N>.content contain duplicate Ids: <id>",
}
_UNIQUE_IN_REQUEST = {
    **_UNIQUE,
    "openai-responses": "Duplicate function_call_output for call_id <id>",
    "bedrock": "The model returned the following errors: messages.<N>.content.<M>: `tool_use` ids "
    "must be unique",
}
_ITEM_ID_MAX = 64
_DECODE = msgspec.json.Decoder().decode
_CUT_OFF = "cut off"
_NO_JSON = "not valid JSON"
INVALID = "invalid_tool_calls"

REPEATED_CALL = rule(
    code="LS201",
    name="repeated-call",
    counted=("tool call id used twice", "tool call ids used twice"),
    errors=_UNIQUE_IN_TURN,
    summary="two calls of one turn share an id",
    help="heal drops an exact repeat, and gives the second of two different calls a new id",
    what="The same call id appears twice inside one turn.",
    cause="One response was stored as several lines and merged twice, or a history was replayed.",
    repair="An exact repeat is dropped. Calls that differ both stay; the second gets a new id, and "
    "its result follows it.",
    failures=("F15",),
)
REUSED_ID = rule(
    code="LS202",
    name="reused-id",
    counted=("tool call id used again", "tool call ids used again"),
    dialects=(
        "anthropic",
        "openai-responses",
        "bedrock",
        *("openai-chat:mistral", "openai-chat:deepseek", "openai-chat:minimax", "openai-chat:glm"),
        "langchain:mistral",
        "langchain:anthropic",
    ),
    errors=_UNIQUE_IN_REQUEST,
    summary="a call id from an earlier turn is used again",
    help="heal gives the later call and its result a unique id, in the request only",
    what="Some models make ids that are unique only inside one response, such as `bash:0`.",
    cause="The provider's ids restart at every turn, but this provider requires them to be unique "
    "in the request.",
    repair="Calls and results are paired by position first. The first occurrence keeps its id, so "
    "the cached prefix is stable; later ones get a derived id. Native ids that a model was "
    "trained on (Kimi) are never rewritten.",
    failures=("F16",),
)
MISSING_ID = rule(
    code="LS203",
    name="missing-id",
    counted=("tool call without an id", "tool calls without ids"),
    dialects=("anthropic", "openai-chat", "openai-responses", "bedrock", "langchain"),
    errors={
        "anthropic": "messages.<N>.content.<M>.tool_use.id: String should match pattern "
        "'^[a-zA-Z0-9_-]+$'",
    },
    summary="a call, or its result, has no id",
    help="heal makes an id from the call's place, or gives the result the id of its call",
    what="The id of a call is empty or missing.",
    cause="A stream chunk came without an id.",
    repair="The call is paired with its result by position, then both get the same new id.",
    failures=("F17",),
)
ID_ALPHABET = rule(
    code="LS204",
    name="id-alphabet",
    counted=("id that the provider refuses", "ids that the provider refuses"),
    dialects=(
        "anthropic",
        "bedrock",
        "openai-chat:mistral",
        "langchain:mistral",
        "langchain:anthropic",
    ),
    errors={
        "anthropic": "messages.<N>.content.<M>.tool_use.id: String should match pattern "
        "'^[a-zA-Z0-9_-]+$'",
        "openai-chat:mistral": "Tool call id was <id> but must be a-z, A-Z, 0-9, with a length of "
        "9.",
    },
    summary="an id has characters or a length that this provider refuses",
    help="heal maps the id to one that the provider accepts, the same for call and result",
    what="The id was made by another provider and does not match this provider's pattern.",
    cause="A history that was built with one provider is sent to another.",
    repair="A deterministic mapping, which never gives two ids the same replacement, is applied to "
    "call and result together. What is stored keeps its ids.",
    failures=("F18",),
)
ID_LENGTH = rule(
    code="LS205",
    name="id-too-long",
    counted=("tool call id that is too long", "tool call ids that are too long"),
    dialects=("openai-responses", "bedrock"),
    errors={
        "openai-responses": "Invalid 'input[<N>].call_id': string too long. Expected a string "
        "with maximum length 64, but got a string with length <n> instead.",
    },
    summary="a call id is longer than this provider accepts",
    help="heal replaces it with a hash, the same for call and result",
    what="The id is longer than the provider's limit.",
    cause="The id contains a tool's name and a UUID, or comes from another provider with opaque "
    "ids.",
    repair="It is hashed, not cut, so that long ids that begin alike stay distinct.",
    failures=("F19",),
)
ITEM_ID = rule(
    code="LS206",
    name="bad-item-id",
    dialects=("openai-responses",),
    errors={
        "openai-responses": "Duplicate item found with id <id>. Remove duplicate items from your "
        "input and try again.",
        "openai-responses (long)": "Invalid 'input[<N>].id': string too long. Expected a string "
        "with maximum length 64, but got a string with length <n> instead.",
        "openai-responses (prefix)": "Invalid 'input[<N>].id': '<id>'. Expected an ID that begins "
        "with '<prefix>'.",
    },
    summary="an item id is repeated, too long or of the wrong type",
    help="heal drops the optional item id; call_id stays",
    what="Item ids in the Responses API must be unique, short and start with the prefix of their "
    "type.",
    cause="Items were replayed after a model switch, or one id was used for two items.",
    repair="The item's optional id is dropped; a reasoning item that cannot be sent without one is "
    "quarantined.",
    failures=("F20",),
)
BAD_ARGUMENTS = rule(
    code="LS207",
    name="bad-arguments",
    counted=("tool call with broken arguments", "tool calls with broken arguments"),
    lossy=True,
    errors={
        "anthropic": "messages.<N>.content.<M>.tool_use.input: Input should be a valid dictionary",
        "openai-chat:minimax": "invalid params, invalid function arguments json string, "
        "tool_call_id: <id> (2013)",
        "openai-chat:strict": "unexpected character: line 1 column <column> (char <char>)",
    },
    summary="a call's arguments are not valid",
    help="heal empties them and keeps the original in the quarantine; nothing is guessed",
    what="The arguments of a call cannot be parsed, or are not an object. OpenAI itself does not "
    "check them, so bad JSON that its own model wrote is a warning there; strict servers of "
    "the same API, and other providers, refuse it.",
    cause="The stream was cut in the middle of the arguments, or the model wrote bad JSON.",
    repair="Complete arguments in another format's form (text for an object, an object for text, "
    "nothing for no arguments) are converted to this format's form. Otherwise they become "
    "`{}` and the original is quarantined. A valid prefix is never salvaged, because a "
    "truncated command could then be run.",
    failures=("F21",),
)
TOOL_REFERENCE = rule(
    code="LS208",
    name="dead-tool-reference",
    counted=("reference to a missing tool", "references to missing tools"),
    lossy=True,
    dialects=("anthropic",),
    errors={
        "anthropic": "Tool reference '<id>' not found in available tools",
        "anthropic (names)": "Tool names must be unique.",
    },
    summary="the history refers to a tool that the request does not offer",
    help="heal drops the dead reference, or the second tool with the same name",
    what="A tool-search result names a tool that is not in `tools`, or `tools` lists one twice.",
    cause="A snapshot of the tool list was stored, and the tools have changed since.",
    repair="Dead references, and tools whose name is already taken, are dropped and quarantined.",
    failures=("F22",),
)
TOOLS_MISSING = rule(
    code="LS209",
    name="tools-missing",
    counted=("tool that is not declared", "tools that are not declared"),
    dialects=("anthropic", "bedrock"),
    errors={
        "bedrock": "The toolConfig field must be defined when using toolUse and toolResult "
        "content blocks.",
        "anthropic": "Requests which have `tool_use` or `tool_result` blocks in messages must "
        "define tools",
    },
    summary="the history has tool blocks, but the request has no tools",
    help="heal declares the tools by name, with an open schema",
    what="A request whose history holds tool calls must define tools, even if it only summarises.",
    cause="A compaction, title or fail-over request sends the history without `tools`.",
    repair="Each tool that the history names gets a placeholder definition; on Anthropic the tool "
    "choice is set to none.",
    failures=("F23",),
    known="found only if the whole request body is given",
)
TOOL_NAME = rule(
    code="LS210",
    name="bad-tool-name",
    lossy=True,
    errors={
        "anthropic": "messages.<N>.content.<M>.tool_use.name: String should match pattern "
        "'^[a-zA-Z0-9_-]{1,128}$'",
        "openai-chat": "Invalid 'messages[<N>].tool_calls[<M>].function.name': string does not "
        "match pattern.",
    },
    summary="a tool name is missing, too long or has forbidden characters",
    help="heal keeps the valid beginning of the name and quarantines the original",
    what="The name of a called tool does not fit the provider's pattern.",
    cause="A model put parameters into the name, or the stream lost it.",
    repair="The longest valid beginning is kept. A call without any name gets the one in its other "
    "copy (LangChain), or else `unknown_tool`.",
    failures=("F21", "F22"),
)


@finder(REPEATED_CALL, REUSED_ID, MISSING_ID, ID_ALPHABET, ID_LENGTH, having=(CALL,))
def call_ids(case: Case) -> Iterator[Finding]:
    """LS201 to LS205."""
    profile = case.profile
    pattern = re.compile(profile.id_pattern) if profile.id_pattern else None
    seen: dict[str, PairedCall] = {}
    for one in case.paired.calls:
        call = one.part
        if not call.id:
            if not case.dialect.ids_are_optional:
                yield case.find(MISSING_ID, call, "a call has no id")
            continue
        if profile.native_ids:
            continue
        before = seen.get(call.id)
        seen[call.id] = one
        is_same_turn = before is not None and before.zone is one.zone
        if before is not None and (is_same_turn or profile.ids_unique):
            rule_ = REPEATED_CALL if is_same_turn else REUSED_ID
            where = "appears twice in one turn" if is_same_turn else "was used in an earlier turn"
            yield case.find(rule_, call, f"call id {shown(call.id)} {where}", id=call.id)
        elif profile.id_max and len(call.id) > profile.id_max:
            text = f"call id of {len(call.id)} characters, at most {profile.id_max} are accepted"
            yield case.find(ID_LENGTH, call, text, n=len(call.id))
        elif pattern is not None and not pattern.fullmatch(call.id):
            text = f"call id {shown(call.id)} does not match {profile.id_pattern}"
            yield case.find(ID_ALPHABET, call, text, id=call.id)


@finder(REUSED_ID, having=(SERVER_CALL,))
def server_ids(case: Case) -> Iterator[Finding]:
    """LS202 for tools the provider runs itself."""
    seen: set[str | None] = set()
    for part in case.parts.servers:
        if part.kind == SERVER_CALL:
            if part.id in seen:
                text = f"server tool id {shown(part.id)} was used before"
                yield case.find(REUSED_ID, part, text, id=part.id)
            seen.add(part.id)


@finder(MISSING_ID, having=(RESULT,))
def result_ids(case: Case) -> Iterator[Finding]:
    """LS203 for results that name no call, but stand where only one can be meant."""
    for one in case.paired.results:
        if not one.part.id and one.call is not None and one.call.id:
            yield case.find(MISSING_ID, one.part, "a result does not name its call")


@finder(ITEM_ID)
def item_ids(case: Case) -> Iterator[Finding]:
    """LS206."""
    seen: set[str] = set()
    for message in case.messages:
        fault = item_id_fault(message, seen)
        if fault:
            item = message.raw["id"]
            yield case.find(
                ITEM_ID,
                case.place_at(message.index, ("id",)),
                f"item id {shown(item)} {fault}",
                wording=_ITEM_WORDINGS.get(fault.split()[0], ""),
                lossy=is_reference(message) or message.has(REASONING),
                id=item,
                prefix=fault.split()[-1],
                n=len(item),
            )


_ITEM_WORDINGS = {"does": "prefix", "has": "long"}


def item_id_fault(message: Message, seen: set[str]) -> str:
    """Return what is wrong with an item's own id, or ""; remembers the ids it has seen."""
    raw = message.raw
    item_id = raw.get("id") if isinstance(raw, dict) and not message.flaw else None
    part = message.parts[0] if message.parts else None
    # the id of a local shell's output may be that of its call
    names_call = part is not None and part.kind == RESULT and part.raw.get("id") == part.id
    if not isinstance(item_id, str) or names_call:
        return ""
    if item_id in seen:
        return "appears twice"
    seen.add(item_id)
    if is_reference(message):
        return ""
    kind = raw.get("type") or "message"
    prefix = ID_PREFIXES.get(kind) if isinstance(kind, str) else None
    if prefix and not item_id.startswith(prefix):
        return f"does not begin with {prefix}"
    if len(item_id) > _ITEM_ID_MAX:
        return f"has {len(item_id)} characters"
    return ""


def is_reference(message: Message) -> bool:
    """Whether an item only refers to one the provider stored."""
    return bool(message.parts) and message.parts[0].flavor == "item_reference"


@finder(BAD_ARGUMENTS, having=(CALL,))
def arguments(case: Case) -> Iterator[Finding]:
    """LS207."""
    for call in case.parts.calls:
        fault = argument_fault(case, call)
        if fault:
            text = f"the arguments of call {shown(call.id)} are {fault}"
            at = _fault_position(case.dialect.arguments(call))
            taken = fault == _NO_JSON and case.profile.arguments == "json"
            yield case.find(
                BAD_ARGUMENTS,
                call,
                text,
                severity=WARNING if taken else ERROR,
                lossy=whole_arguments(case.dialect, call) is None,
                id=call.id,
                column=at + 1,
                char=at,
            )


def _is_faithful(value: Any) -> bool:
    """Whether a value can be written as JSON without changing it: no NaN, no odd keys."""
    try:
        dump(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def whole_arguments(dialect: Dialect, call: Part) -> dict[str, Any] | None:
    """Return arguments that are complete, only in another format's spelling; else None.

    Text counts only if all of it parses: a valid beginning is never taken for the whole. Nothing
    at all (null, or an empty text) says that there are no arguments. What LangChain itself lists
    as invalid is never taken for whole.
    """
    value = dialect.arguments(call)
    if call.flavor == INVALID:
        return None
    if isinstance(value, str):
        value = _decoded(value)
    if isinstance(value, str):
        value = _decoded(value)
    if value is None or value is msgspec.UNSET:
        return {}
    return value if isinstance(value, dict) and _is_faithful(value) else None


def _decoded(text: str) -> Any:
    """Return what JSON text says: nothing for an empty one, 0 for what does not parse."""
    try:
        return _DECODE(text) if text.strip() else None
    except (ValueError, RecursionError, UnicodeError):
        found = _left_as_text(text)
        return 0 if found is None else found


def _left_as_text(text: str) -> Any:
    """Return what JSON text says that holds more than can be read here, None if it is no JSON."""
    try:
        return json_text.decode(text, constants=False)
    except ValueError:
        return None


def _fault_position(arguments: Any) -> int:
    """Return where JSON text stops making sense; its end, if a string is left open."""
    try:
        json_text.decode(arguments)
    except json.JSONDecodeError as error:
        return len(arguments) if error.msg.startswith("Unterminated") else error.pos
    except json_text.TooDeep as error:
        return error.reached
    except TypeError:
        return 0
    return 0


def argument_fault(case: Case, call: Part) -> str:
    """Return what is wrong with a call's arguments, or ""."""
    value = case.dialect.arguments(call)
    if case.profile.arguments == "object":
        if value is msgspec.UNSET:
            return "" if case.profile.dialect == "gemini" else "missing"
        return "" if isinstance(value, dict) else "not an object"
    if value is msgspec.UNSET:
        return ""
    if not isinstance(value, str):
        return "not a string"
    try:
        decoded: Any = _DECODE(value)
    except (ValueError, RecursionError, UnicodeError):
        decoded = _left_as_text(value)
        if decoded is None:
            return _CUT_OFF if _fault_position(value) >= len(value.rstrip()) else _NO_JSON
    return "" if isinstance(decoded, dict) else "not a JSON object"


# Shell, patch and computer calls have no name by nature.
NAMELESS = (
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "computer_call",
    "tool_search_call",
)


@finder(TOOL_NAME, having=(CALL, RESULT))
def tool_names(case: Case) -> Iterator[Finding]:
    """LS210."""
    pattern = re.compile(case.profile.name_pattern)
    good: set[str] = set()
    for call in case.parts.calls:
        if call.name in good or call.flavor in NAMELESS:
            continue
        if call.name and pattern.fullmatch(call.name):
            good.add(call.name)
            continue
        text = f"call {shown(call.id)} names no tool"
        if call.name:
            pattern_text = case.profile.name_pattern
            text = f"the tool name of call {shown(call.id)} does not match {pattern_text}"
        yield case.find(TOOL_NAME, call, text, id=call.id)
    for result in unnamed_responses(case) if case.parts.results else ():
        text = f"the function response for {shown(result.id)} has no name"
        yield case.find(TOOL_NAME, result, text, id=result.id)


def unnamed_responses(case: Case) -> list[Part]:
    """Return the function responses that do not name their function, as Gemini's must."""
    if case.profile.dialect != "gemini":
        return []
    return [part for part in case.parts.results if not part.name]


@finder(TOOLS_MISSING, having=(CALL, RESULT), when=lambda case: case.body is not None)
def tools_defined(case: Case) -> Iterator[Finding]:
    """LS209."""
    body = case.body
    if body is None or not case.profile.tools_needed:
        return
    key = next(iter(case.dialect.declare_tools([])))
    if body.get(key) or not (case.parts.calls or case.parts.results):
        return
    yield case.find(
        TOOLS_MISSING, Place((key,)), f"the history has tool blocks, but `{key}` is not defined"
    )


@finder(TOOL_REFERENCE, when=lambda case: case.body is not None)
def tool_references(case: Case) -> Iterator[Finding]:
    """LS208."""
    tools = (case.body or {}).get("tools")
    if not isinstance(tools, list) or not tools:
        return
    names = [tool.get("name") for tool in tools if isinstance(tool, dict)]
    for number, name in enumerate(names):
        if isinstance(name, str) and name in names[:number]:
            text = f"tool {shown(name)} is listed twice"
            yield case.find(TOOL_REFERENCE, Place(("tools", number)), text, wording="names")
    known = {name for name in names if isinstance(name, str)}
    for message in case.messages:
        for part in message.parts:
            for name in dead_references(part, known):
                text = f"tool reference {shown(name)} is not in tools"
                yield case.find(TOOL_REFERENCE, part, text, id=name)


def dead_references(part: Part, known: set[str]) -> list[str]:
    """Return the names of the tools a part refers to that are not known."""
    if part.kind in (CALL, SERVER_CALL, REASONING, OTHER) or not isinstance(part.raw, dict):
        return []
    return [
        name
        for block in _reference_blocks(part.raw.get("content"))
        if isinstance(name := block.get("tool_name"), str) and name not in known
    ]


def _reference_blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, dict):
        content = content.get("tool_references")
    if not isinstance(content, list):
        return []
    return [b for b in content if isinstance(b, dict) and b.get("type") == "tool_reference"]
