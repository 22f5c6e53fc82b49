"""Pass: media the provider takes, text that can be encoded (LS5xx)."""

from __future__ import annotations

from typing import Any

from lockstitch.conversation.parts import MEDIA, RESULT, Message, Part, Path
from lockstitch.dialects import ANTHROPIC
from lockstitch.dialects.base import replace_all_at, replace_at
from lockstitch.dialects.fast import encoded_size
from lockstitch.dialects.media import Image, head_of, pixels, sniff
from lockstitch.repair.draft import RepairDraft
from lockstitch.rules import media as rules
from lockstitch.rules.rule import Rule

REMOVED_NOTE = "[lockstitch] An image was removed here: {why}."


def repair_images(draft: RepairDraft) -> None:
    """LS501 and LS502: relabel images, put notes where one cannot be sent."""
    case = draft.case()
    found = rules.all_images(case)
    limit = rules.pixel_limit(case, len(found))
    swaps: dict[int, list[tuple[Path, Any]]] = {}
    for image in found:
        swap = _judge(draft, image, limit)
        if swap is not None:
            swaps.setdefault(id(image.part), []).append((image.path, swap))
    if swaps:
        _swap(draft, swaps)


def _judge(draft: RepairDraft, image: Image, limit: int) -> Any:
    """Give what must stand in an image's place, or None if it may stay."""
    head = head_of(image.data)
    fault = rules.image_fault(image, head)
    if fault and rules.can_relabel(image, head):
        kind = sniff(head)
        note = f"an image labelled as another kind was relabelled {kind}"
        draft.ledger.note(rules.BAD_IMAGE, "relabelled", draft.place(image.part), note)
        return _relabelled(image, kind)
    if fault:
        return _noted(draft, image, rules.BAD_IMAGE, "it could not be decoded")
    if limit and pixels(head) > limit:
        why = f"its {pixels(head)} pixels exceed the limit of {limit}"
        return _noted(draft, image, rules.IMAGE_TOO_LARGE, why)
    return None


def _relabelled(image: Image, kind: str) -> Any:
    if image.label_at:
        label = kind.removeprefix("image/") if image.label_at[0] == "image" else kind
        return replace_at(image.block, image.label_at, label)
    url = image.block["image_url"]
    old = url["url"] if isinstance(url, dict) else url
    fresh = f"data:{kind};base64,{old.partition(';base64,')[2]}"
    return {**image.block, "image_url": {**url, "url": fresh} if isinstance(url, dict) else fresh}


def _noted(draft: RepairDraft, image: Image, rule: Rule, why: str) -> Any:
    place = draft.place(image.part)
    draft.ledger.note(rule, "removed", place, f"a note took the place of an image: {why}")
    draft.ledger.set_aside(rule, place, image.block)
    return draft.dialect.note_block(REMOVED_NOTE.format(why=why))


def _swap(draft: RepairDraft, swaps: dict[int, list[tuple[Path, Any]]]) -> None:
    for message in draft.messages:
        if any(id(part) in swaps for part in message.parts):
            parts = [_with_swaps(part, swaps.get(id(part), [])) for part in message.parts]
            draft.keep_parts(message, parts)


def _with_swaps(part: Part, swaps: list[tuple[Path, Any]]) -> Part:
    raw = replace_all_at(part.raw, swaps)
    if raw is part.raw:
        return part
    if part.kind == MEDIA and isinstance(raw, dict) and isinstance(raw.get("text"), str):
        return Part("text", raw, part.at, part.home, flavor="text", text=raw["text"])
    return Part(part.kind, raw, part.at, part.home, part.id, part.name, part.flavor)


def free_error_media(draft: RepairDraft) -> None:
    """LS503: move what is not text out of error results, behind the results."""
    if draft.profile.dialect != ANTHROPIC:
        return
    for message in draft.messages:
        if any(p.kind == RESULT and rules.has_error_media(p.raw) for p in message.parts):
            _free(draft, message)


def _free(draft: RepairDraft, message: Message) -> None:
    parts: list[Part] = []
    freed: list[Part] = []
    for part in message.parts:
        if part.kind != RESULT or not rules.has_error_media(part.raw):
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
        draft.ledger.note(rules.ERROR_MEDIA, "moved", draft.place(part), note)
    heads = sum(part.kind == RESULT for part in parts)
    draft.keep_parts(message, parts[:heads] + freed + parts[heads:])


def shed_bytes(draft: RepairDraft) -> None:
    """LS504: replace the oldest images by notes until the request fits."""
    limit = draft.profile.max_bytes
    if not limit:
        return
    over = encoded_size(draft.render()) - limit
    swaps: dict[int, list[tuple[Path, Any]]] = {}
    for image in rules.all_images(draft.case()):
        if over <= 0:
            break
        over -= len(image.data) - len(REMOVED_NOTE)
        swap = _noted(draft, image, rules.TOO_MANY_BYTES, "the request was too large")
        swaps.setdefault(id(image.part), []).append((image.path, swap))
    if swaps:
        _swap(draft, swaps)
