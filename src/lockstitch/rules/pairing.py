"""LS1xx: every call is answered exactly once, in the right place."""

from __future__ import annotations

from collections.abc import Iterator

from lockstitch.conversation.pairing import DUPLICATE, GROUPED, ORPHAN, PairedResult, Zone
from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    RESULT,
    SERVER_CALL,
    SERVER_RESULT,
    TEXT,
    TEXT_BEHIND_CALL,
    Message,
    Part,
)
from lockstitch.dialects.openai_responses import CALL_KINDS
from lockstitch.rules.rule import Case, Finding, finder, label, rule

BLOCKS = ("anthropic", "bedrock")

_NO_RESULT = {
    "anthropic": "messages.<N>: `tool_use` ids were found without `tool_result` blocks "
    "immediately after: <id>. Each `tool_use` block must have a corresponding `tool_result` block "
    "in the next message.",
    "anthropic (older)": "Did not find 1 tool_result block(s) at the beginning of this message. "
    "Messages following tool_use blocks must begin with a matching number of tool_result blocks.",
    "openai-chat": "An assistant message with 'tool_calls' must be followed by tool messages "
    "responding to each 'tool_call_id'. The following tool_call_ids did not have response "
    "messages: <id>",
    "openai-chat:deepseek": "An assistant message with 'tool_calls' must be followed by tool "
    "messages responding to each 'tool_call_id'. (insufficient tool messages following tool_calls "
    "message)",
    "openai-chat:mistral": "Not the same number of function calls and responses",
    "openai-chat:glm": "messages 参数非法。请检查文档。",
    "openai-chat:minimax": "invalid params, tool call result does not follow tool call (2013)",
    "openai-responses": "No tool output found for <kind> <id>.",
    "gemini": "Please ensure that the number of function response parts is equal to the number of "
    "function call parts of the function call turn.",
    "bedrock": "Expected toolResult blocks at messages.<next>.content for the following Ids: <id>",
    "langchain": "Found AIMessages with tool_calls that do not have a corresponding ToolMessage. "
    "Here are the first few of those tool calls: [<id>]",
}
_NO_CALL = {
    "anthropic": "messages.<N>.content.<M>: unexpected `tool_use_id` found in `tool_result` "
    "blocks: <id>. Each `tool_result` block must have a corresponding `tool_use` block in the "
    "previous message.",
    "openai-chat": "Invalid parameter: messages with role 'tool' must be a response to a "
    "preceeding message with 'tool_calls'.",
    "openai-chat:mistral": "Unexpected role 'tool' after role 'user'",
    "openai-chat:kimi": "tool message tool_call_id '<id>' does not match any tool call in the "
    "preceding assistant messages",
    "openai-chat:moonshot": "tool message tool_call_id '<id>' does not match any tool call in the "
    "preceding assistant messages",
    "openai-chat:minimax": "invalid params, tool result's tool id(<id>) not found (2013)",
    "openai-responses": "No tool call found for function call output with call_id <id>.",
    "gemini": "Please ensure that function response turn comes immediately after a function call "
    "turn.",
    "bedrock": "The number of toolResult blocks at messages.<N>.content exceeds the number of "
    "toolUse blocks of previous turn.",
}
_TWICE = {
    "anthropic": "each tool_use must have a single result. Found multiple `tool_result` blocks "
    "with id: <id>",
    "openai-responses": "Duplicate function_call_output for call_id <id>",
    "openai-chat:mistral": "Not the same number of function calls and responses",
    "openai-chat": "Invalid parameter: Duplicate value for 'tool_call_id' of '<id>', in "
    "messages[<before>] and messages[<again>].",
    "gemini": "Please ensure that the number of function response parts is equal to the number of "
    "function call parts of the function call turn.",
    "bedrock": "The number of toolResult blocks at messages.<N>.content exceeds the number of "
    "toolUse blocks of previous turn.",
}

# A result in front of its call is refused as if its call did not exist.
_EARLY = {f"{who} (early)": text for who, text in _NO_CALL.items()}

ORPHAN_CALL = rule(
    code="LS101",
    name="orphan-call",
    counted=("tool call without a result", "tool calls without results"),
    errors=_NO_RESULT,
    summary="a tool call has no result",
    help="heal answers it with a neutral error result right after the call",
    what="The model asked for a tool, and the history has no result for that call.",
    cause="The call is stored when the model asks for it, the result only after the tool has run. "
    "Ctrl-C, a crash, a timeout or a new message in between leaves the call open for good: "
    "at the end of the history or, once more turns follow, in the middle.",
    repair="A real result is first looked for everywhere in the list. If there is none, a result "
    "with a constant, neutral text is inserted where the provider expects it. It claims no "
    "cause, and it is marked, so that a real result that turns up later replaces it. If the "
    "format has a status beside the text (shell, apply_patch), it is set to failure.",
    failures=("F01", "F02", "F12", "F13"),
)
PARTIAL_BATCH = rule(
    code="LS102",
    name="partial-batch",
    counted=("tool call without a result", "tool calls without results"),
    errors=_NO_RESULT,
    summary="one of several parallel calls has no result",
    help="heal keeps the real results and answers only the missing ones",
    what="The model made several tool calls at once, and only some of them have a result.",
    cause="Parallel results are written one by one, and one was lost, cut off or never written.",
    repair="Real results stay; only the missing ones are added, all in the order of the calls.",
    failures=("F03",),
)
ORPHAN_RESULT = rule(
    code="LS103",
    name="orphan-result",
    counted=("tool result without a call", "tool results without calls"),
    errors=_NO_CALL,
    summary="a tool result answers no call",
    help="heal keeps its content as labelled text",
    what="A tool result names a call that is not in the history.",
    cause="A cut, a summary or a hand-over removed the call and left its result behind.",
    repair="The call is never made up, since its arguments are unknown. The result's content "
    "stays, as text that says what it is.",
    failures=("F04",),
)
DISPLACED_RESULT = rule(
    code="LS104",
    name="displaced-result",
    counted=("tool result in the wrong place", "tool results in the wrong place"),
    errors={
        **_NO_RESULT,
        **_EARLY,
    },
    summary="the result exists, but not where the provider looks for it",
    help="heal moves the result to its call; whatever was in between comes after it",
    what="Call and result are both there, but something is between them, or the result comes "
    "before its call.",
    cause="A queued or steering message was appended while the tools ran, or results came late.",
    repair="The result moves to its call if exactly one call can own it; nothing is deleted.",
    failures=("F05", "F08"),
)
RESULT_LAYOUT = rule(
    code="LS105",
    name="result-layout",
    counted=("set of results in the wrong order", "sets of results in the wrong order"),
    dialects=("anthropic", "bedrock", "gemini"),
    errors=_NO_RESULT,
    summary="results are not first and together in the message after their calls",
    help="heal puts all results first, together, in the order of the calls",
    what="The results of one turn are spread over several messages, or text comes before them.",
    cause="Each result was put in a message of its own instead of all in one, or text or images "
    "were put before them.",
    repair="The results are gathered at the start of the first message; the rest follows.",
    failures=("F06",),
)
DUPLICATE_RESULT = rule(
    code="LS106",
    name="duplicate-result",
    counted=("tool call with two results", "tool calls with two results"),
    errors=_TWICE,
    summary="a call is answered more than once",
    help="heal keeps one result; a second one with different content stays as labelled text",
    what="Several results answer the same occurrence of a call.",
    cause="A resume ran the tool or recorded its result again, or two repairs each added one.",
    repair="Exact repeats and placeholders are removed; a different real result is kept as "
    "labelled text. Nothing is matched by tool name or by id alone, since ids repeat across "
    "turns.",
    failures=("F07",),
)
MASKED_RESULT = rule(
    code="LS107",
    name="masked-result",
    counted=("tool result hidden by a placeholder", "tool results hidden by placeholders"),
    errors=_TWICE,
    summary="a placeholder answers a call whose real result is in the list",
    help="heal puts the real result in the placeholder's place",
    what="A program closed the call with a placeholder, and then the real result arrived.",
    cause="A repair or a resume wrote “interrupted” or “aborted” while the tool was still running.",
    repair="The real result replaces any placeholder, ours or another program's.",
    failures=("F08",),
)
SERVER_PAIR = rule(
    code="LS108",
    name="broken-server-pair",
    counted=("half of a server tool call", "halves of server tool calls"),
    dialects=BLOCKS,
    lossy=True,
    errors={
        "anthropic": "messages.<N>: `<name>` tool use with id `<id>` was found without a "
        "corresponding `<name>_tool_result` block",
        "anthropic (result)": "messages.<N>.content.<M>: unexpected `tool_use_id` found in "
        "`<kind>` blocks: <id>. Each `<kind>` block must have a corresponding `server_tool_use` "
        "block before it.",
    },
    summary="a tool that the provider runs itself lacks its call or its result",
    help="heal removes the half that is left; it is listed in the quarantine",
    what="A server-side tool call (web search, code execution, MCP …) lost its result, or the "
    "result lost its call.",
    cause="A paused turn was stored as finished, or a record was written into the middle of it.",
    repair="The lone half is removed and kept in the quarantine list. No result is made up for it, "
    "because only the provider may write one. A call that ends the list is a paused turn "
    "and is left alone.",
    failures=("F09",),
)
OUTPUT_KIND = rule(
    code="LS109",
    name="wrong-output-kind",
    counted=("tool result of the wrong type", "tool results of the wrong type"),
    lossy=True,
    dialects=("openai-responses",),
    errors={"openai-responses": "No tool output found for <kind> <id>."},
    summary="the output has the wrong type for the call",
    help="heal rewrites it as the output type that belongs to the call",
    what="Each call type of the Responses API has its own output type; these two do not match.",
    cause="Code that knows only function_call answered a custom, shell or patch call.",
    repair="The output is rewritten as the right type with the same text, and the original is kept "
    "in the quarantine. If the right type cannot hold text (computer, tool search), the "
    "text stays as a labelled message and the call is treated as an open one.",
    failures=("F10",),
)
TEXT_AFTER_CALL = rule(
    code="LS110",
    name="text-after-call",
    counted=("text after a tool call", "texts after tool calls"),
    dialects=BLOCKS,
    errors=_NO_RESULT,
    summary="text follows a tool call inside one assistant message",
    help="heal moves the text before the calls",
    what="Calls must be the last thing in an assistant message.",
    cause="Two assistant turns were glued together by a merge or a compaction.",
    repair="The text moves before the first call of that message; nothing is dropped.",
    failures=("F11",),
)
TWO_RECORDS = rule(
    code="LS111",
    name="calls-disagree",
    counted=("tool call missing from its list", "tool calls missing from their list"),
    dialects=("langchain",),
    errors=_NO_RESULT,
    summary="a content block holds a call that `tool_calls` does not list",
    help="heal adds the call to `tool_calls`",
    what="LangChain keeps calls twice, as content blocks and in `tool_calls`; here the two "
    "disagree.",
    cause="A middleware edited one of the two but not the other.",
    repair="The block's call is added to `tool_calls`; blocks whose call was removed are removed, "
    "too.",
    failures=("F14",),
)


@finder(ORPHAN_CALL, PARTIAL_BATCH, having=(CALL,))
def open_calls(case: Case) -> Iterator[Finding]:
    """LS101 and LS102."""
    calls = case.paired.calls
    answered = {one.zone for one in calls if one.answer is not None}
    for one in calls:
        call = one.part
        if one.answer is not None or call.id in case.waiting:
            continue
        kind = PARTIAL_BATCH if one.zone in answered else ORPHAN_CALL
        text = f"call {label(call)} has no result"
        if kind is PARTIAL_BATCH:
            text += ", although the other calls in its batch do"
        place = case.place(call)
        flavor, behind = call.flavor.replace("_", " "), (place.message or 0) + 1
        yield case.find(kind, place, text, id=call.id, kind=flavor, next=behind)


@finder(ORPHAN_RESULT, DUPLICATE_RESULT, MASKED_RESULT, having=(RESULT,))
def unpaired_results(case: Case) -> Iterator[Finding]:
    """LS103, LS106 and LS107."""
    repeated = repeated_orphans(case) if case.leans_on_stored_state else set()
    latest: dict[str | None, Part] = {}
    for one in case.paired.results:
        result = one.part
        if one.verdict == ORPHAN and case.leans_on_stored_state:
            if one in repeated:
                text = f"call {label(result)} is answered again"
                yield case.find(DUPLICATE_RESULT, result, text, id=result.id)
        elif one.verdict == ORPHAN:
            text = f"result for {label(result)} answers no call in this list"
            yield case.find(ORPHAN_RESULT, result, text, id=result.id)
        elif one.verdict == DUPLICATE:
            yield _repeated(case, one, latest.get(result.id, result))
        latest[result.id] = result


def repeated_orphans(case: Case) -> set[PairedResult]:
    """Return the results that answer a call out of our sight for the second time."""
    seen: set[str | None] = set()
    repeated: set[PairedResult] = set()
    for one in case.paired.results:
        if one.verdict != ORPHAN:
            continue
        if one.part.id in seen:
            repeated.add(one)
        seen.add(one.part.id)
    return repeated


def _repeated(case: Case, one: PairedResult, before: Part) -> Finding:
    """Make the finding on a duplicate; ``before`` is the result with its id that precedes it."""
    result, real = one.part, one.answer if one.is_masking else None
    other = before if real is None else real.part
    if real is None:
        kind, text = DUPLICATE_RESULT, f"call {label(result)} is answered again"
    else:
        kind = MASKED_RESULT
        text = f"a placeholder answers call {label(result)}, but its real result "
        text += f"is at {case.place(other)}"
    first, last = sorted((result, other), key=lambda part: (part.home, part.at))
    return case.find(
        kind,
        result if real is None else first,
        text,
        id=result.id,
        before=case.number(first.home),
        again=case.number(last.home),
    )


@finder(DISPLACED_RESULT, having=(RESULT,))
def displaced_results(case: Case) -> Iterator[Finding]:
    """LS104 for results outside their zone."""
    for one in case.paired.results:
        if one.is_displaced and one.call is not None:
            yield _displaced(case, one.call, one.part)


def _displaced(case: Case, call: Part, result: Part) -> Finding:
    is_early = (result.home, result.at) < (call.home, call.at)
    place = case.place(result if is_early else call)
    text = f"the result of call {label(call)} is at {case.place(result)}, not right after it"
    wording = "early" if is_early else ""
    kind, behind = call.flavor.replace("_", " "), case.number(call.home) + 1
    return case.find(
        DISPLACED_RESULT, place, text, wording=wording, id=call.id, kind=kind, next=behind
    )


@finder(DISPLACED_RESULT, RESULT_LAYOUT, having=(RESULT,))
def scattered_results(case: Case) -> Iterator[Finding]:
    """LS104 and LS105 for results inside their zone, but not first and together."""
    if case.profile.layout != GROUPED:
        return
    scattered = [zone for zone in case.paired.zones if is_scattered(case.messages, zone)]
    answered = (one for one in (case.paired.calls if scattered else ()) if one.answer is not None)
    calls = {id(one.answer.part): one.part for one in answered if one.answer is not None}
    for zone in scattered:
        first = case.messages[zone.holders[0]]
        wedged = False
        spread: list[str] = []
        for position in zone.holders:
            message = case.messages[position]
            clean = True
            for part in message.parts:
                if part.kind != RESULT:
                    clean = False
                    continue
                call = calls.get(id(part))
                if call is None:
                    continue
                if wedged:
                    yield _displaced(case, call, part)
                elif not clean or message is not first:
                    spread.append(label(call))
            wedged = wedged or not clean
        if spread:
            caller = case.messages[zone.caller]
            text = "the results are not first and together in this message"
            place = case.place_at(first.index)
            number = case.number(caller.index)
            ids = ", ".join(spread)
            yield case.find(RESULT_LAYOUT, place, text, N=number, id=ids, next=number + 1)


def is_scattered(messages: list[Message], zone: Zone) -> bool:
    """Whether a result of a zone stands anywhere but at the head of its first message."""
    behind = False
    for position in zone.holders:
        for part in messages[position].parts:
            if part.kind != RESULT:
                behind = True
            elif behind:
                return True
        behind = True
    return False


def first_wedge(messages: list[Message], zone: Zone) -> int:
    """Return the position of the first message of a zone that holds anything but results."""
    for position in zone.holders:
        if any(part.kind != RESULT for part in messages[position].parts):
            return position
    return zone.stop


@finder(SERVER_PAIR, having=(SERVER_CALL, SERVER_RESULT))
def server_pairs(case: Case) -> Iterator[Finding]:
    """LS108."""
    for part in lone_server_parts(case.messages):
        is_call = part.kind == SERVER_CALL
        text = f"server tool {label(part)} has no {'result' if is_call else 'call'}"
        yield case.find(
            SERVER_PAIR,
            part,
            text,
            wording="" if is_call else "result",
            id=part.id,
            name=part.name,
            kind=part.flavor,
        )


def lone_server_parts(messages: list[Message]) -> list[Part]:
    """Find the halves of server-side pairs.

    A pair may span several assistant messages as long as only results stand between them, as
    it does when the server's own tool calls ours. What is open at the very end is a paused turn.
    """
    lone: list[Part] = []
    waiting: dict[str | None, Part] = {}
    for message in messages:
        is_all_results = message.parts and all(part.kind == RESULT for part in message.parts)
        if message.role != ASSISTANT and not is_all_results:
            lone += waiting.values()
            waiting = {}
        for part in message.parts:
            if part.kind == SERVER_CALL:
                waiting[part.id] = part
            elif part.kind == SERVER_RESULT:
                if part.id in waiting and _fits_server(waiting[part.id], part):
                    del waiting[part.id]
                else:
                    lone.append(part)
    return lone


_SERVER_KINDS = {
    "advisor": "advisor_tool_result",
    "bash_code_execution": "bash_code_execution_tool_result",
    "code_execution": "code_execution_tool_result",
    "mcp_tool_use": "mcp_tool_result",
    "text_editor_code_execution": "text_editor_code_execution_tool_result",
    "tool_search_tool_bm25": "tool_search_tool_result",
    "tool_search_tool_regex": "tool_search_tool_result",
    "web_fetch": "web_fetch_tool_result",
    "web_search": "web_search_tool_result",
}


def _fits_server(call: Part, result: Part) -> bool:
    """Whether a result is of its call's kind; kinds nobody knows yet are taken to fit."""
    wanted = _SERVER_KINDS.get(
        (call.name or "") if call.flavor == "server_tool_use" else call.flavor
    )
    known = wanted is not None and result.flavor in _SERVER_KINDS.values()
    return not known or result.flavor == wanted


@finder(OUTPUT_KIND, having=(RESULT,))
def output_kinds(case: Case) -> Iterator[Finding]:
    """LS109."""
    for one in case.paired.calls:
        if one.answer is None:
            continue
        call, result = one.part, one.answer.part
        if result.flavor not in CALL_KINDS[call.flavor].outputs:
            text = f"{call.flavor} {label(call)} is answered by a {result.flavor}"
            kind = call.flavor.replace("_", " ")
            yield case.find(OUTPUT_KIND, result, text, id=call.id, kind=kind)


@finder(TEXT_AFTER_CALL, having=(TEXT_BEHIND_CALL,))
def text_after_call(case: Case) -> Iterator[Finding]:
    """LS110."""
    seen: int | None = None
    for call in case.parts.calls:
        message = case.messages[call.home]
        if call.home == seen:
            continue
        seen = call.home
        if message.role == ASSISTANT and text_behind_calls(message):
            text = f"text follows call {label(call)} in the same message"
            behind = case.number(message.index) + 1
            yield case.find(TEXT_AFTER_CALL, call, text, id=call.id, next=behind)


def text_behind_calls(message: Message) -> list[Part]:
    """Return the text parts that stand behind a call of the same message."""
    seen = False
    late: list[Part] = []
    for part in message.parts:
        if part.kind == CALL:
            seen = True
        elif seen and part.kind == TEXT:
            late.append(part)
    return late


@finder(TWO_RECORDS)
def twin_calls(case: Case) -> Iterator[Finding]:
    """LS111."""
    for message in case.messages:
        for part in unlisted_twins(message):
            text = f"content holds call {label(part)}, but tool_calls does not"
            yield case.find(TWO_RECORDS, part, text, id=part.id)


def unlisted_twins(message: Message) -> list[Part]:
    """Return the content blocks that hold a call `tool_calls` does not list."""
    if message.role != ASSISTANT:
        return []
    listed = {part.id for part in message.parts if part.kind == CALL}
    twins = ("twin", "raw-twin")
    return [part for part in message.parts if part.flavor in twins and part.id not in listed]
