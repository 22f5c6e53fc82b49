"""Passes: content and media as the provider wants them.

LS401 to LS404 and LS413 to LS416, then LS5xx.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lockstitch.conversation.pairing import FLAT, GROUPED, SINGLE
from lockstitch.conversation.parts import (
    ASSISTANT,
    BROKEN,
    CALL,
    CHANGED,
    COSMETIC,
    MEDIA,
    RESULT,
    TEXT,
    TOOL,
    Message,
    Part,
    Path,
)
from lockstitch.dialects.anthropic import markers_outside
from lockstitch.dialects.base import (
    CALLS_ELSEWHERE,
    NO_CALLS,
    copy_part,
    replace_all_at,
    replace_at,
)
from lockstitch.dialects.fast import encoded_size
from lockstitch.dialects.media import Image, head_of, pixels, sniff
from lockstitch.dialects.profiles import ANYTHING, BLANK
from lockstitch.repair.draft import RepairDraft
from lockstitch.rules import content as rules
from lockstitch.rules import media as media_rules
from lockstitch.rules.rule import Rule, shown

REMOVED_NOTE = "[lockstitch] An image was removed here: {why}."


def repair_images(draft: RepairDraft) -> None:
    """LS501 and LS502: relabel images, and put a note in place of one that cannot be sent."""
    case = draft.case()
    found = media_rules.all_images(case)
    limit = media_rules.pixel_limit(case, len(found))
    swaps: dict[int, list[tuple[Path, Any]]] = {}
    for image in found:
        swap = _judge(draft, image, limit)
        if swap is not None:
            swaps.setdefault(id(image.part), []).append((image.path, swap))
    _put_swaps(draft, swaps)


def _judge(draft: RepairDraft, image: Image, limit: int) -> Any:
    """Return what has to replace an image, or None if it may stay."""
    head = head_of(image.data)
    fault = media_rules.image_fault(image, head)
    if fault and media_rules.can_relabel(image, head):
        kind = sniff(head)
        note = f"an image labelled as another type was relabelled {kind}"
        draft.note(media_rules.BAD_IMAGE, "relabelled", image.part, note)
        if image.label_at:
            label = kind.removeprefix("image/") if image.label_at[0] == "image" else kind
            return replace_at(image.block, image.label_at, label)
        url = image.block["image_url"]
        old = url["url"] if isinstance(url, dict) else url
        fresh = f"data:{kind};base64,{old.partition(';base64,')[2]}"
        return {
            **image.block,
            "image_url": {**url, "url": fresh} if isinstance(url, dict) else fresh,
        }
    if fault:
        return _note_removed(draft, image, media_rules.BAD_IMAGE, "it could not be decoded")
    if limit and pixels(head) > limit:
        why = f"its {pixels(head)} pixels exceed the limit of {limit}"
        return _note_removed(draft, image, media_rules.IMAGE_TOO_LARGE, why)
    return None


def _note_removed(draft: RepairDraft, image: Image, rule: Rule, why: str) -> Any:
    draft.note(rule, "removed", image.part, f"an image was replaced by a note: {why}")
    draft.set_aside(rule, image.part, image.block)
    return draft.dialect.note_block(REMOVED_NOTE.format(why=why))


def _put_swaps(draft: RepairDraft, swaps: dict[int, list[tuple[Path, Any]]]) -> None:
    def with_swaps(part: Part) -> Part:
        raw = replace_all_at(part.raw, swaps.get(id(part), ()))
        if raw is part.raw:
            return part
        if part.kind == MEDIA and isinstance(raw, dict) and isinstance(raw.get("text"), str):
            return Part(TEXT, raw, part.at, part.home, flavor="text", text=raw["text"])
        return Part(part.kind, raw, part.at, part.home, part.id, part.name, part.flavor)

    if swaps:
        draft.change_parts(with_swaps)


def free_error_media(draft: RepairDraft) -> None:
    """LS503: move everything that is not text out of error results, to after the results."""
    for message in draft.messages:
        if any(p.kind == RESULT and media_rules.has_error_media(p.raw) for p in message.parts):
            _free_media(draft, message)


def _free_media(draft: RepairDraft, message: Message) -> None:
    parts: list[Part] = []
    freed: list[Part] = []
    for part in message.parts:
        if part.kind != RESULT or not media_rules.has_error_media(part.raw):
            parts.append(part)
            continue
        content = part.raw["content"]
        texts = [b for b in content if not isinstance(b, dict) or b.get("type") == "text"]
        freed += [
            Part(MEDIA, block, part.at, part.home, flavor=str(block.get("type")))
            for block in content
            if isinstance(block, dict) and block.get("type") != "text"
        ]
        raw = {**part.raw, "content": texts}
        parts.append(Part(RESULT, raw, part.at, part.home, part.id, None, part.flavor))
        note = "non-text content of an error result was moved after the results"
        draft.note(media_rules.ERROR_MEDIA, "moved", part, note)
    heads = sum(part.kind == RESULT for part in parts)
    draft.keep_parts(message, parts[:heads] + freed + parts[heads:])


def drop_images(draft: RepairDraft) -> None:
    """LS504: replace the oldest images by notes until the request fits."""
    limit = draft.profile.max_bytes
    if not limit:
        return
    over = encoded_size(draft.render()) - limit
    swaps: dict[int, list[tuple[Path, Any]]] = {}
    for image in media_rules.all_images(draft.case()):
        if over <= 0:
            break
        over -= len(image.data) - len(REMOVED_NOTE)
        swap = _note_removed(draft, image, media_rules.TOO_MANY_BYTES, "the request was too large")
        swaps.setdefault(id(image.part), []).append((image.path, swap))
    _put_swaps(draft, swaps)


EMPTY_NOTE = "[lockstitch] This message was empty."
EMPTY_RESULT = "[lockstitch] The tool returned no text."
DOCUMENT_NOTE = "[lockstitch] This message holds a document."
ROLE_LABEL = "[lockstitch] Text of a message with role {role}:"


def clear_malformed(draft: RepairDraft) -> None:
    """LS414: turn malformed messages and parts into text if they are text, set others aside."""
    kept: list[Message] = []
    for message in draft.messages:
        if message.flaw in ("not-an-object", "type"):
            kept += _as_text_message(draft, message)
            continue
        _clear_parts(draft, message)
        kept.append(message)
    draft.messages[:] = kept


def _as_text_message(draft: RepairDraft, message: Message) -> list[Message]:
    if isinstance(message.raw, str) and message.raw.strip():
        text = f"{ROLE_LABEL.format(role='unknown')}\n{message.raw}"
        fresh = draft.user_text(text)
        fresh.index = message.index
        draft.note(rules.MALFORMED, "rewritten", message, "a bare text became a user message")
        return [fresh]
    draft.note(rules.MALFORMED, "removed", message, "this is not a message")
    draft.set_aside(rules.MALFORMED, message, message.raw)
    return []


def _clear_parts(draft: RepairDraft, message: Message) -> None:
    if message.flaw:
        message.flaw = ""
        message.touch()
        note = "the content was put into the form of this format"
        draft.note(rules.MALFORMED, "rewritten", message, note)
    kept = [p for p in message.parts if p.kind != BROKEN or p.flavor == CALLS_ELSEWHERE]
    for part in message.parts:
        if part.flavor == CALLS_ELSEWHERE:
            continue
        if part.flavor == NO_CALLS:
            draft.note(rules.MALFORMED, "removed", part, "an empty list of calls was removed")
        elif part.kind == BROKEN:
            rule = rules.EMPTY_CONTENT if part.flavor == "empty" else rules.MALFORMED
            draft.drop(rule, part, "a block that cannot be read was removed")
        elif part.flavor == "bare" and part.kind == TEXT:
            part.flavor = ""
            message.touch()
            draft.note(rules.MALFORMED, "rewritten", part, "a bare string became a text block")
    if len(kept) != len(message.parts):
        draft.keep_parts(message, kept)


def convert_payloads(draft: RepairDraft) -> None:
    """LS416: put the payload of a result into a form that the format accepts."""
    dialect = draft.dialect

    def respell(part: Part) -> Part:
        if part.kind != RESULT or dialect.is_payload(dialect.payload(part)):
            return part
        note = f"the content of the result for {shown(part.id)} was put into the right form"
        draft.note(rules.ODD_RESULT, "rewritten", part, note)
        return dialect.with_payload(part, dialect.as_payload(dialect.payload(part)))

    draft.change_parts(respell)


def move_misplaced_parts(draft: RepairDraft) -> None:
    """LS413: move calls into assistant messages, and results out of them."""
    if draft.profile.layout != GROUPED:
        _move_calls(draft)
        return
    housed: list[Message] = []
    dialect = draft.profile.dialect
    for message in draft.messages:
        if any(rules.is_misplaced(part, message.role, dialect) for part in message.parts):
            housed += _split_by_role(draft, message)
        else:
            housed.append(message)
    draft.messages[:] = housed


def _split_by_role(draft: RepairDraft, message: Message) -> list[Message]:
    runs: list[tuple[str, list[Part]]] = []
    for part in message.parts:
        role = message.role
        if rules.is_misplaced(part, message.role, draft.profile.dialect):
            role = rules.owner_of(part, draft.profile.dialect)
            note = f"a {part.kind} was moved into a message of the {role}"
            draft.note(rules.MISPLACED_PART, "moved", part, note)
        if runs and runs[-1][0] == role:
            runs[-1][1].append(part)
        else:
            runs.append((role, [part]))
    messages = [draft.dialect.new_message(role, parts) for role, parts in runs]
    messages[0].index = message.index
    others = other_fields(draft, message.raw) if isinstance(message.raw, dict) else {}
    if others:
        draft.set_aside(rules.MISPLACED_PART, message, others)
    return messages


def _move_calls(draft: RepairDraft) -> None:
    """Move calls listed in another role's message into an assistant message right after it."""
    housed: list[Message] = []
    known: set[str] = set()
    for message in draft.messages:
        housed.append(message)
        calls = [call for part in message.parts for call in _calls_elsewhere(draft, part, known)]
        kept = [part for part in message.parts if part.flavor != CALLS_ELSEWHERE]
        if len(kept) != len(message.parts):
            draft.keep_parts(message, kept)
        if calls:
            # some servers refuse null, but none refuses an empty text beside calls
            words = draft.dialect.text_part("", ASSISTANT)
            housed.append(draft.dialect.new_message(ASSISTANT, [words, *calls]))
        known.update(_canonical_text(part.raw) for part in (*kept, *calls) if part.kind == CALL)
    draft.messages[:] = housed


def _canonical_text(raw: Any) -> str:
    """Return a call as text that does not depend on the order of its keys."""
    try:
        return msgspec.json.encode(raw, order="deterministic").decode()
    except (TypeError, ValueError, RecursionError):
        return repr(raw)


def _calls_elsewhere(draft: RepairDraft, part: Part, known: set[str]) -> list[Part]:
    """Return the calls that have to move; broken calls and repeats are removed."""
    if part.flavor != CALLS_ELSEWHERE:
        return []
    calls: list[Part] = []
    for call in draft.dialect.listed_calls(part.raw, part.home):
        call.at = (*part.at, *call.at[-1:])
        if call.kind != CALL:
            draft.drop(rules.MALFORMED, call, "a call that cannot be read was removed")
        elif _canonical_text(call.raw) in known:
            note = f"an exact repeat of call {shown(call.id)} was removed"
            draft.note(rules.MISPLACED_PART, "removed", call, note)
        else:
            note = f"call {shown(call.id)} was moved into a message of the assistant"
            draft.note(rules.MISPLACED_PART, "moved", call, note)
            calls.append(call)
    return calls


def fill_blanks(draft: RepairDraft) -> None:
    """LS401 and LS404: drop blank texts, and fill or drop messages without content."""
    kept: list[Message] = []
    for position, message in enumerate(draft.messages):
        is_last = position == len(draft.messages) - 1
        _drop_blank_texts(draft, message, is_last)
        _drop_blank_blocks(draft, message)
        if _is_empty(draft, message, is_last) and not _fill(draft, message):
            continue
        kept.append(message)
    draft.messages[:] = kept


def _drop_blank_texts(draft: RepairDraft, message: Message, is_last: bool) -> None:
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
            draft.note(rules.BLANK_TEXT, "removed", part, note)
    draft.keep_parts(message, kept)


def _drop_blank_blocks(draft: RepairDraft, message: Message) -> None:
    """Drop blank text blocks inside results, too."""
    if draft.profile.rejects_text != BLANK or not message.has(RESULT):
        return
    parts = list(message.parts)
    for number, part in enumerate(message.parts):
        if part.kind != RESULT or not rules.has_blank_block(part):
            continue
        path = ("toolResult", "content") if "toolResult" in part.raw else ("content",)
        content = part.raw.get("toolResult", part.raw)["content"]
        blocks = [block for block in content if not rules.is_blank_block(block)]
        fresh = blocks or [draft.dialect.note_block(EMPTY_RESULT)]
        parts[number] = copy_part(part, replace_at(part.raw, path, fresh))
        draft.note(rules.BLANK_TEXT, "removed", part, "a blank text block in a result was removed")
    if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
        draft.keep_parts(message, parts)


def _is_empty(draft: RepairDraft, message: Message, is_last: bool) -> bool:
    layout = draft.profile.layout
    if layout == SINGLE:
        return message.raw is not None and rules.lacks_content(draft.case_of(message), 0)
    if message.parts:
        return False
    if layout == FLAT:
        return isinstance(message.raw, dict) and message.raw.get("content") in (None, [])
    content = message.raw.get("content") if isinstance(message.raw, dict) else None
    # a last message may be empty if it came so, not if a pass has emptied it
    allowed = draft.dialect.may_end_empty and is_last and content is not None
    return not (allowed and message.role == ASSISTANT and message.state != CHANGED)


def _fill(draft: RepairDraft, message: Message) -> bool:
    """Fill an empty message; return False if it should be dropped."""
    place = draft.origin.place(message)
    takes_nothing = draft.profile.rejects_text == ANYTHING or message.role == TOOL
    if takes_nothing and draft.profile.layout != GROUPED:
        if message.role == TOOL:
            message.parts = [draft.dialect.with_payload(message.parts[0], "")]
        else:
            message.parts = [draft.dialect.text_part("", message.role), *message.parts]
        message.touch()
        draft.note(rules.EMPTY_CONTENT, "rewritten", place, "empty content became a string")
        return True
    if message.role == ASSISTANT:
        draft.note(rules.EMPTY_CONTENT, "removed", place, "an empty turn was removed")
        if isinstance(message.raw, dict) and other_fields(draft, message.raw):
            draft.set_aside(rules.EMPTY_CONTENT, place, message.raw)
        return False
    message.parts = [draft.dialect.text_part(EMPTY_NOTE, message.role)]
    message.touch()
    draft.note(rules.EMPTY_CONTENT, "rewritten", place, "an empty message got a note")
    return True


def drop_cache_markers(draft: RepairDraft) -> None:
    """LS402 and LS403: remove cache markers that are misplaced, or too many."""
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
    surplus = len(good) + markers_outside(draft.body) - draft.profile.max_markers
    # the earliest markers go: the later ones cache a longer prefix
    for message, part in good[: max(surplus, 0)] if draft.profile.max_markers else ():
        _unmark(draft, message, part, rules.CACHE_MARKERS)


def _unmark(draft: RepairDraft, message: Message, part: Part, rule: Rule) -> None:
    part.raw = {key: value for key, value in part.raw.items() if key != "cache_control"}
    message.touch(COSMETIC)
    draft.note(rule, "rewritten", part, "a cache marker was removed")


def add_text_to_documents(draft: RepairDraft) -> None:
    """LS415: add a short text beside a document that stands alone."""
    for message in draft.messages:
        if rules.lacks_text_beside_document(message):
            text = draft.dialect.text_part(DOCUMENT_NOTE, message.role)
            draft.keep_parts(message, [*message.parts, text])
            note = "a short text was added next to a document"
            draft.note(rules.DOCUMENT_TEXT, "inserted", message, note)


def other_fields(draft: RepairDraft, raw: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message that its parts do not stand for."""
    return {key: value for key, value in raw.items() if key not in draft.dialect.part_fields}
