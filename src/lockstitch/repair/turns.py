"""Pass: roles and the order of turns (LS405 to LS412)."""

from __future__ import annotations

from lockstitch.conversation.pairing import GROUPED
from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    RESULT,
    SYSTEM,
    TEXT,
    TOOL,
    UNKNOWN,
    USER,
    Message,
)
from lockstitch.dialects import LANGCHAIN
from lockstitch.dialects.base import ROLE_ALIASES
from lockstitch.dialects.langchain import fields_of
from lockstitch.repair.content import ROLE_LABEL, other_fields
from lockstitch.repair.draft import RepairDraft
from lockstitch.rules import turns as rules
from lockstitch.rules.rule import word

START = "[lockstitch] The beginning of this conversation is not part of the request."
CONTINUE = "Continue."
BRIDGE = "[lockstitch] The tool results were received."
SYSTEM_LABEL = "[lockstitch] System message:"


def assign_roles(draft: RepairDraft) -> None:
    """LS412: give messages of unknown role the role they stand for."""
    for message in draft.messages:
        if message.role != UNKNOWN:
            continue
        spelled = message.raw.get("role", message.raw.get("type")) if message.raw else None
        # the tool message of another format becomes the result it stands for, if it names its call
        call_id = message.raw.get("tool_call_id") if spelled == "tool" else None
        if isinstance(call_id, str):
            result = draft.dialect.foreign_result(call_id, message.raw.get("content"))
            if result is not None:
                result.home, result.at = message.index, ("content",)
                message.parts = [result]
        role = _role_for(draft, message, spelled)
        label = "" if role else ROLE_LABEL.format(role=word(spelled))
        message.role = role or USER
        if label:
            message.parts = [draft.dialect.text_part(label, USER), *message.parts]
        # Rebuild a message without the fields of the format it came from.
        if draft.profile.layout == GROUPED:
            draft.set_aside(rules.WRONG_ROLE, message, message.raw)
            message.raw = None
        message.touch()
        note = f"role {word(spelled)} became {message.role}"
        draft.note(rules.WRONG_ROLE, "rewritten", message, note)


def _role_for(draft: RepairDraft, message: Message, spelled: object) -> str:
    if message.has(CALL) or any("twin" in part.flavor for part in message.parts):
        return ASSISTANT
    if message.has(RESULT):
        return USER
    alias = ROLE_ALIASES.get(spelled, spelled) if isinstance(spelled, str) else ""
    if alias == SYSTEM and not draft.dialect.has_system_role:
        return ""
    return alias if alias in (USER, ASSISTANT, SYSTEM) else ""


def place_system(draft: RepairDraft) -> None:
    """LS411: turn a misplaced system message into a labelled user message."""
    _lift_system(draft)
    case = draft.case()
    misplaced = [
        message
        for position, message in enumerate(draft.messages)
        if message.role == SYSTEM and rules.is_system_misplaced(case, position)
    ]
    for message in misplaced:
        label = draft.dialect.text_part(SYSTEM_LABEL, USER)
        message.role = USER
        draft.keep_parts(message, [label, *message.parts])
        note = "a system message became a labelled user message"
        draft.note(rules.SYSTEM_PLACE, "rewritten", message, note)


def _lift_system(draft: RepairDraft) -> None:
    """Move a system message at the start into the body's own field, if that is free."""
    field = draft.dialect.system_field
    if not field or draft.body is None or draft.body.get(field):
        return
    first = draft.messages[0] if draft.messages else None
    if first is None or first.role != SYSTEM or any(part.kind != TEXT for part in first.parts):
        return
    note = f"a first system message was moved into `{field}`"
    draft.note(rules.SYSTEM_PLACE, "moved", first, note)
    draft.set_aside(rules.SYSTEM_PLACE, first, first.raw)
    draft.set_field(field, "\n\n".join(part.text for part in first.parts))
    del draft.messages[0]


def separate_responses(draft: RepairDraft) -> None:
    """LS410: move what stands beside function responses into a turn of its own."""
    pure: list[Message] = []
    for message in draft.messages:
        if message.role != USER or not rules.is_mixed(message):
            pure.append(message)
            continue
        rest = [part for part in message.parts if part.kind != RESULT]
        draft.keep_parts(message, [part for part in message.parts if part.kind == RESULT])
        pure += [message, draft.dialect.new_message(USER, rest)]
        for part in rest:
            note = "a part beside function responses was moved after them"
            draft.note(rules.MIXED_RESPONSES, "moved", part, note)
    draft.messages[:] = pure


def merge_neighbours(draft: RepairDraft) -> None:
    """LS405 and LS409: merge neighbouring messages of one role."""
    only_calls = draft.dialect.calls_follow_user
    if not draft.profile.alternates and not only_calls:
        return
    merged: list[Message] = []
    rule = rules.CALL_TURN if only_calls else rules.ALTERNATION
    calls = is_own = False
    for message in draft.messages:
        before = merged[-1] if merged else None
        if before is None or not _may_merge(before, calls, message, only_calls):
            merged.append(message)
            calls, is_own = message.has(CALL), False
            continue
        note = f"a message of the {message.role} was merged into the one before"
        draft.note(rule, "merged", message, note)
        if not is_own:
            # from here on its parts and fields are copies, which grow in place however many are
            # merged
            draft.keep_parts(before, list(before.parts))
            before.raw = dict(before.raw) if isinstance(before.raw, dict) else before.raw
            is_own = True
        _keep_fields(draft, before, message)
        if message.index >= 0 and not 0 <= before.index < message.index:
            before.index = message.index  # a new or late result joins it, not the other way round
        before.parts += message.parts
        calls = calls or message.has(CALL)
    draft.messages[:] = merged


def _keep_fields(draft: RepairDraft, before: Message, message: Message) -> None:
    """Carry over the other fields of a merged message; fields that clash are set aside.

    The fields of ``before`` must be a copy that nothing else shares.
    """
    if not isinstance(message.raw, dict):
        return
    raw = message.raw
    if draft.profile.dialect == LANGCHAIN:
        raw = {key: value for key, value in fields_of(raw).items() if key != "type"}
    others = other_fields(draft, raw)
    takes = isinstance(before.raw, dict) and draft.profile.dialect != LANGCHAIN
    fresh = {k: v for k, v in others.items() if takes and before.raw.get(k) is None}
    clash = {key: value for key, value in others.items() if key not in fresh and value is not None}
    if fresh:
        before.raw.update(fresh)
    if clash:
        draft.set_aside(rules.ALTERNATION, message, clash)


def _may_merge(before: Message, calls: bool, message: Message, only_calls: bool) -> bool:
    if before.role != message.role or message.role not in (USER, ASSISTANT):
        return False
    if only_calls:
        return message.role == ASSISTANT and message.has(CALL)
    return not calls and not message.has(RESULT)


def bridge_turns(draft: RepairDraft) -> None:
    """LS405 and LS408: insert a short assistant turn where two user turns would meet."""
    profile = draft.profile
    if not profile.alternates or (profile.user_after_tool and not profile.template):
        return
    bridged: list[Message] = []
    for message in draft.messages:
        if bridged and rules.needs_bridge(bridged[-1], message, profile):
            bridged.append(draft.assistant_text(BRIDGE))
            note = "an assistant turn was put between tool results and a user message"
            draft.note(rules.USER_AFTER_TOOL, "inserted", message, note)
        bridged.append(message)
    draft.messages[:] = bridged


def separate_assistants(draft: RepairDraft) -> None:
    """LS405: insert a short user turn between assistant turns that may not be merged."""
    if not draft.profile.alternates:
        return
    spaced: list[Message] = []
    last: str = ""
    for message in draft.messages:
        counts = message.role in (USER, ASSISTANT)
        if draft.profile.template:
            counts = counts and (message.role == USER or not message.has(CALL))
        elif not counts:
            last = ""
        if counts and message.role == last == ASSISTANT:
            spaced.append(draft.user_text(CONTINUE))
            note = "a user turn was put between two assistant turns"
            draft.note(rules.ALTERNATION, "inserted", message, note)
        if counts:
            last = message.role
        spaced.append(message)
    draft.messages[:] = spaced


def open_with_user(draft: RepairDraft) -> None:
    """LS406: insert a minimal user message at the start."""
    if not draft.profile.starts_with_user:
        return
    at = next((i for i, m in enumerate(draft.messages) if m.role != SYSTEM), None)
    if at is None or draft.messages[at].role not in (ASSISTANT, TOOL):
        return
    note = "a short user message was put first"
    draft.note(rules.BAD_START, "inserted", draft.messages[at], note)
    draft.messages.insert(at, draft.user_text(START))


def close_with_user(draft: RepairDraft) -> None:
    """LS407: append a short user message to a request that ends with the assistant."""
    if rules.ends_badly(draft.case()):
        last = draft.messages[-1]
        draft.note(rules.BAD_END, "inserted", last, "a short user message was appended")
        draft.messages.append(draft.user_text(CONTINUE))
