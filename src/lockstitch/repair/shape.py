"""Pass: turns, roles and content as the provider wants them (LS4xx)."""

from __future__ import annotations

from lockstitch.dialects.base import ROLE_ALIASES, replaced, reseat
from lockstitch.dialects.langchain import fields_of
from lockstitch.dialects.profiles import ANYTHING, BLANK
from lockstitch.model.parts import (
    ASSISTANT,
    BROKEN,
    CALL,
    CHANGED,
    COSMETIC,
    RESULT,
    SYSTEM,
    TEXT,
    TOOL,
    UNKNOWN,
    USER,
    Message,
    Part,
)
from lockstitch.model.zones import GROUPED
from lockstitch.repair.draft import Draft
from lockstitch.rules import shape as rules
from lockstitch.rules.rule import Rule, shown

START = "[lockstitch] The beginning of this conversation is not part of the request."
CONTINUE = "Continue."
BRIDGE = "[lockstitch] The tool results were received."
EMPTY_NOTE = "[lockstitch] This message was empty."
EMPTY_RESULT = "[lockstitch] The tool returned no text."
DOCUMENT_NOTE = "[lockstitch] This message holds a document."
ROLE_LABEL = "[lockstitch] Text of a message with role {role}:"
SYSTEM_LABEL = "[lockstitch] System message:"


def clear_malformed(draft: Draft) -> None:
    """LS414: keep what is text, set the rest aside."""
    kept: list[Message] = []
    for message in draft.messages:
        if message.flaw in ("not-an-object", "type"):
            kept += _as_text_message(draft, message)
            continue
        _clear_parts(draft, message)
        kept.append(message)
    draft.messages[:] = kept


def _as_text_message(draft: Draft, message: Message) -> list[Message]:
    place = draft.place_at(message)
    if isinstance(message.raw, str) and message.raw.strip():
        text = f"{ROLE_LABEL.format(role='unknown')}\n{message.raw}"
        fresh = draft.user_text(text)
        fresh.index = message.index
        draft.ledger.note(rules.MALFORMED, "rewritten", place, "a bare text became a user message")
        return [fresh]
    draft.ledger.note(rules.MALFORMED, "removed", place, "this is not a message")
    draft.ledger.set_aside(rules.MALFORMED, place, message.raw)
    return []


def _clear_parts(draft: Draft, message: Message) -> None:
    if message.flaw:
        message.flaw = ""
        message.touch()
        note = "the content was put into the form of this format"
        draft.ledger.note(rules.MALFORMED, "rewritten", draft.place_at(message), note)
    kept = [part for part in message.parts if part.kind != BROKEN]
    for part in message.parts:
        if part.kind == BROKEN:
            rule = rules.EMPTY_CONTENT if part.flavor == "empty" else rules.MALFORMED
            draft.drop(rule, part, "a block that cannot be read was removed")
        elif part.flavor == "bare" and part.kind == TEXT:
            part.flavor = ""
            message.touch()
            note = "a bare string became a text block"
            draft.ledger.note(rules.MALFORMED, "rewritten", draft.place(part), note)
    if len(kept) != len(message.parts):
        draft.keep_parts(message, kept)


def name_roles(draft: Draft) -> None:
    """LS412: give messages of unknown role the role they stand for."""
    for message in draft.messages:
        if message.role != UNKNOWN:
            continue
        spelled = message.raw.get("role", message.raw.get("type")) if message.raw else None
        role = _role_for(draft, message, spelled)
        label = "" if role else ROLE_LABEL.format(role=shown(spelled))
        message.role = role or USER
        if label:
            for part in message.parts:
                part.home = message.index
            message.parts = [draft.dialect.text_part(label, USER), *message.parts]
        _become_fresh(draft, message)
        note = f"role {shown(spelled)} became {message.role}"
        draft.ledger.note(rules.WRONG_ROLE, "rewritten", draft.place_at(message), note)


def _role_for(draft: Draft, message: Message, spelled: object) -> str:
    if message.has(CALL):
        return ASSISTANT
    if message.has(RESULT):
        return USER
    alias = ROLE_ALIASES.get(spelled, spelled) if isinstance(spelled, str) else ""
    if alias == SYSTEM and draft.profile.dialect == "gemini":
        return ""
    return alias if alias in (USER, ASSISTANT, SYSTEM) else ""


def _become_fresh(draft: Draft, message: Message) -> None:
    """Rebuild a message without the fields of the format it came from."""
    if draft.profile.dialect in ("anthropic", "bedrock", "gemini"):
        draft.ledger.set_aside(rules.WRONG_ROLE, draft.place_at(message), message.raw)
        message.raw = None
    message.touch()


def house_parts(draft: Draft) -> None:
    """LS413: move calls out of user messages and results out of assistant messages."""
    if draft.profile.layout != GROUPED:
        return
    housed: list[Message] = []
    dialect = draft.profile.dialect
    for message in draft.messages:
        if any(rules.is_misplaced(part, message.role, dialect) for part in message.parts):
            housed += _split_by_role(draft, message)
        else:
            housed.append(message)
    draft.messages[:] = housed


def _split_by_role(draft: Draft, message: Message) -> list[Message]:
    runs: list[tuple[str, list[Part]]] = []
    for part in message.parts:
        role = message.role
        if rules.is_misplaced(part, message.role, draft.profile.dialect):
            role = rules.owner_of(part, draft.profile.dialect)
            note = f"a {part.kind} was moved into a message of the {role}"
            draft.ledger.note(rules.MISPLACED_PART, "moved", draft.place(part), note)
        if runs and runs[-1][0] == role:
            runs[-1][1].append(part)
        else:
            runs.append((role, [part]))
    messages = [draft.dialect.new_message(role, parts) for role, parts in runs]
    messages[0].index = message.index
    return messages


def fill_blanks(draft: Draft) -> None:
    """LS401 and LS404: no blank texts, no messages without content."""
    kept: list[Message] = []
    for position, message in enumerate(draft.messages):
        is_last = position == len(draft.messages) - 1
        _drop_blank_texts(draft, message, is_last)
        _drop_blank_blocks(draft, message)
        if _is_empty(draft, message, is_last) and not _fill(draft, message):
            continue
        kept.append(message)
    draft.messages[:] = kept


def _drop_blank_texts(draft: Draft, message: Message, is_last: bool) -> None:
    if draft.profile.rejects_text == ANYTHING:
        return
    if is_last and message.role == ASSISTANT and [part.raw for part in message.parts] == [""]:
        return
    kept = [p for p in message.parts if p.kind != TEXT or not rules.is_blank(p, draft.profile)]
    if len(kept) == len(message.parts):
        return
    for part in message.parts:
        if part.kind == TEXT and rules.is_blank(part, draft.profile):
            note = f"a text of {len(part.text)} blank characters was removed"
            draft.ledger.note(rules.BLANK_TEXT, "removed", draft.place(part), note)
    draft.keep_parts(message, kept)


def _drop_blank_blocks(draft: Draft, message: Message) -> None:
    """No blank text blocks inside results either."""
    if draft.profile.rejects_text != BLANK or not message.has(RESULT):
        return
    parts = [_without_blank_blocks(draft, part) for part in message.parts]
    if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
        draft.keep_parts(message, parts)


def _without_blank_blocks(draft: Draft, part: Part) -> Part:
    if part.kind != RESULT or not rules.has_blank_block(part):
        return part
    path = ("toolResult", "content") if "toolResult" in part.raw else ("content",)
    content = part.raw.get("toolResult", part.raw)["content"]
    blocks = [block for block in content if not rules.is_blank_block(block)]
    note = "a blank text block in a result was removed"
    draft.ledger.note(rules.BLANK_TEXT, "removed", draft.place(part), note)
    fresh = blocks or [draft.dialect.note_block(EMPTY_RESULT)]
    return reseat(part, replaced(part.raw, path, fresh))


def _is_empty(draft: Draft, message: Message, is_last: bool) -> bool:
    if draft.profile.dialect in ("openai-chat", "langchain"):
        return message.raw is not None and rules.lacks_content(draft.case_of(message), 0)
    if message.parts:
        return False
    if draft.profile.dialect == "openai-responses":
        return isinstance(message.raw, dict) and message.raw.get("content") in (None, [])
    content = message.raw.get("content") if isinstance(message.raw, dict) else None
    allowed = draft.profile.dialect == "anthropic" and is_last and content is not None
    return not (allowed and message.role == ASSISTANT and message.state != CHANGED)


def _fill(draft: Draft, message: Message) -> bool:
    """Give an empty message content; False means that it should go."""
    place = draft.place_at(message)
    if draft.profile.dialect in ("openai-chat", "openai-responses", "langchain"):
        if message.role == TOOL:
            message.parts = [draft.dialect.with_empty_content(message.parts[0])]
        else:
            message.parts = [draft.dialect.text_part("", message.role), *message.parts]
        message.touch()
        draft.ledger.note(rules.EMPTY_CONTENT, "rewritten", place, "empty content became a string")
        return True
    if message.role == ASSISTANT:
        draft.ledger.note(rules.EMPTY_CONTENT, "removed", place, "an empty turn was removed")
        if isinstance(message.raw, dict) and not _CONTENT_FIELDS.issuperset(message.raw):
            draft.ledger.set_aside(rules.EMPTY_CONTENT, place, message.raw)
        return False
    message.parts = [draft.dialect.text_part(EMPTY_NOTE, message.role)]
    message.touch()
    draft.ledger.note(rules.EMPTY_CONTENT, "rewritten", place, "an empty message got a note")
    return True


def unmark_cache(draft: Draft) -> None:
    """LS402 and LS403: take cache markers off where they cannot stand, or are too many."""
    if draft.profile.dialect != "anthropic":
        return
    marked = [
        (message, part)
        for message in draft.messages
        for part in message.parts
        if isinstance(part.raw, dict) and part.raw.get("cache_control") is not None
    ]
    good = [(message, part) for message, part in marked if not rules.cannot_be_marked(part)]
    for message, part in marked:
        if rules.cannot_be_marked(part):
            _unmark(draft, message, part, rules.CACHE_MARKER)
    surplus = len(good) + rules.markers_outside(draft.body) - draft.profile.max_markers
    for message, part in good[: max(surplus, 0)] if draft.profile.max_markers else ():
        _unmark(draft, message, part, rules.CACHE_MARKERS)


def _unmark(draft: Draft, message: Message, part: Part, rule: Rule) -> None:
    part.raw = {key: value for key, value in part.raw.items() if key != "cache_control"}
    message.touch(COSMETIC)
    draft.ledger.note(rule, "rewritten", draft.place(part), "a cache marker was removed")


def place_system(draft: Draft) -> None:
    """LS411: a misplaced system message becomes a labelled user message."""
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
        draft.ledger.note(rules.SYSTEM_PLACE, "rewritten", draft.place_at(message), note)


def _lift_system(draft: Draft) -> None:
    """Move a first system message into the body's own field, where that is free."""
    if draft.profile.dialect != "anthropic" or draft.body is None or draft.body.get("system"):
        return
    first = draft.messages[0] if draft.messages else None
    if first is None or first.role != SYSTEM or any(part.kind != TEXT for part in first.parts):
        return
    note = "a first system message moved into `system`"
    draft.ledger.note(rules.SYSTEM_PLACE, "moved", draft.place_at(first), note)
    draft.set_field("system", "\n\n".join(part.text for part in first.parts))
    del draft.messages[0]


def add_text_to_documents(draft: Draft) -> None:
    """LS415: a short text beside a document that stands alone."""
    if draft.profile.dialect != "bedrock":
        return
    for message in draft.messages:
        if rules.lacks_text_beside_document(message):
            text = draft.dialect.text_part(DOCUMENT_NOTE, message.role)
            draft.keep_parts(message, [*message.parts, text])
            note = "a short text was added beside a document"
            draft.ledger.note(rules.DOCUMENT_TEXT, "inserted", draft.place_at(message), note)


def purify_responses(draft: Draft) -> None:
    """LS410: what stands beside function responses moves into a turn of its own."""
    if draft.profile.dialect != "gemini":
        return
    pure: list[Message] = []
    for message in draft.messages:
        if message.role != USER or not rules.is_mixed(message):
            pure.append(message)
            continue
        rest = [part for part in message.parts if part.kind != RESULT]
        draft.keep_parts(message, [part for part in message.parts if part.kind == RESULT])
        pure += [message, draft.dialect.new_message(USER, rest)]
        for part in rest:
            note = "a part beside function responses moved behind them"
            draft.ledger.note(rules.MIXED_RESPONSES, "moved", draft.place(part), note)
    draft.messages[:] = pure


def merge_neighbours(draft: Draft) -> None:
    """LS405 and LS409: merge messages of one role that follow each other."""
    gemini = draft.profile.dialect == "gemini"
    if not draft.profile.alternates and not gemini:
        return
    merged: list[Message] = []
    for message in draft.messages:
        before = merged[-1] if merged else None
        if before is not None and _may_merge(before, message, gemini):
            rule = rules.CALL_TURN if gemini else rules.ALTERNATION
            note = f"a message of the {message.role} was merged into the one before"
            draft.ledger.note(rule, "merged", draft.place_at(message), note)
            _keep_fields(draft, before, message)
            draft.keep_parts(before, [*before.parts, *message.parts])
        else:
            merged.append(message)
    draft.messages[:] = merged


def _keep_fields(draft: Draft, before: Message, message: Message) -> None:
    """Carry the other fields of a merged message over; what clashes is set aside."""
    if not isinstance(message.raw, dict):
        return
    raw = message.raw
    if draft.profile.dialect == "langchain":
        raw = {key: value for key, value in fields_of(raw).items() if key != "type"}
    others = {key: value for key, value in raw.items() if key not in _CONTENT_FIELDS}
    takes = isinstance(before.raw, dict) and draft.profile.dialect != "langchain"
    fresh = {k: v for k, v in others.items() if takes and before.raw.get(k) is None}
    clash = {key: value for key, value in others.items() if key not in fresh and value is not None}
    if fresh:
        before.raw = {**before.raw, **fresh}
    if clash:
        draft.ledger.set_aside(rules.ALTERNATION, draft.place_at(message), clash)


_CONTENT_FIELDS = frozenset({"role", "content", "parts", "tool_calls"})


def _may_merge(before: Message, message: Message, gemini: bool) -> bool:
    if before.role != message.role or message.role not in (USER, ASSISTANT):
        return False
    if gemini:
        return message.role == ASSISTANT and message.has(CALL)
    return not before.has(CALL) and not message.has(RESULT)


def bridge_turns(draft: Draft) -> None:
    """LS405 and LS408: put a short assistant turn where two user turns would meet."""
    profile = draft.profile
    if not profile.alternates or (profile.user_after_tool and not profile.template):
        return
    bridged: list[Message] = []
    for message in draft.messages:
        if bridged and rules.needs_bridge(bridged[-1], message, profile):
            bridged.append(draft.assistant_text(BRIDGE))
            note = "an assistant turn was put between tool results and a user message"
            draft.ledger.note(rules.USER_AFTER_TOOL, "inserted", draft.place_at(message), note)
        bridged.append(message)
    draft.messages[:] = bridged


def separate_assistants(draft: Draft) -> None:
    """LS405: a short user turn between assistant turns that may not be merged."""
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
            draft.ledger.note(rules.ALTERNATION, "inserted", draft.place_at(message), note)
        if counts:
            last = message.role
        spaced.append(message)
    draft.messages[:] = spaced


def open_with_user(draft: Draft) -> None:
    """LS406: put a minimal user message in front."""
    if not draft.profile.starts_with_user:
        return
    at = next((i for i, m in enumerate(draft.messages) if m.role != SYSTEM), None)
    if at is None or draft.messages[at].role not in (ASSISTANT, TOOL):
        return
    note = "a short user message was put in front"
    draft.ledger.note(rules.BAD_START, "inserted", draft.place_at(draft.messages[at]), note)
    draft.messages.insert(at, draft.user_text(START))


def close_with_user(draft: Draft) -> None:
    """LS407: append a short user message to a request that ends with the assistant."""
    if rules.ends_badly(draft.case()):
        place = draft.place_at(draft.messages[-1])
        note = "a short user message was appended"
        draft.ledger.note(rules.BAD_END, "inserted", place, note)
        draft.messages.append(draft.user_text(CONTINUE))
