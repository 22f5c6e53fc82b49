"""Pass: reasoning that can be replayed stays; other reasoning is dropped in whole units (LS3xx)."""

from __future__ import annotations

from lockstitch.conversation.pairing import FLAT
from lockstitch.conversation.parts import ASSISTANT, REASONING, Message, Part
from lockstitch.dialects.base import copy_part, without_id
from lockstitch.dialects.gemini import Gemini
from lockstitch.dialects.profiles import issuer_of
from lockstitch.repair.draft import RepairDraft
from lockstitch.rules import reasoning as rules
from lockstitch.rules.rule import Rule

SENTINEL = "skip_thought_signature_validator"
_SIGNED = ("thinking", "redacted_thinking", "reasoningContent")


def split_steps(draft: RepairDraft) -> None:
    """LS301: split a message where the next step of its tool loop begins."""
    split: list[Message] = []
    for message in draft.messages:
        split.append(message)
        starts = rules.step_starts(message) if message.role == ASSISTANT else []
        parts = message.parts
        if starts:
            draft.keep_parts(message, parts[: starts[0]])
        for start, stop in zip(starts, [*starts[1:], len(parts)], strict=False):
            note = "a message was split where the next step begins"
            draft.note(rules.COLLAPSED_STEPS, "split", parts[start], note)
            split.append(draft.dialect.new_message(ASSISTANT, parts[start:stop]))
    draft.messages[:] = split


def drop_unsigned(draft: RepairDraft) -> None:
    """LS302 and LS303: drop thinking without a valid signature."""
    for message in draft.messages if draft.profile.signed_reasoning else ():
        kept: list[Part] = []
        for part in message.parts:
            can_be_signed = part.kind == REASONING and part.flavor in _SIGNED
            fault = rules.signature_fault(part) if can_be_signed else ""
            if fault:
                rule = rules.EMPTY_THINKING if fault == "empty" else rules.UNSIGNED_THINKING
                draft.drop(rule, part, "thinking that cannot be replayed was dropped")
            else:
                kept.append(part)
        if len(kept) != len(message.parts):
            draft.keep_parts(message, kept)


def drop_foreign(draft: RepairDraft) -> None:
    """LS304: drop reasoning that another vendor issued."""
    asked = issuer_of(draft.origin.model)
    if not asked:
        return
    what = "reasoning of another vendor"
    if draft.profile.layout == FLAT:
        left = ItemRemoval(draft)
        for message in reversed(draft.messages):
            if message.has(REASONING) and rules.is_foreign(message, asked):
                left.drop(message, rules.FOREIGN_REASONING, what)
            else:
                left.keep(message)
        left.finish()
        return
    for message in draft.messages:
        if message.has(REASONING) and rules.is_foreign(message, asked):
            for part in message.parts:
                if part.kind == REASONING:
                    draft.drop(rules.FOREIGN_REASONING, part, f"{what} was dropped")
            draft.keep_parts(message, [part for part in message.parts if part.kind != REASONING])


def drop_trailing(draft: RepairDraft) -> None:
    """LS306: drop thinking at the end of a turn; a turn left empty goes, too."""
    if not draft.profile.signed_reasoning:
        return
    kept: list[Message] = []
    ends = True
    for message in reversed(draft.messages):
        stop = len(message.parts)
        is_last = ends and message.role == ASSISTANT
        while is_last and stop and message.parts[stop - 1].kind == REASONING:
            stop -= 1
            part = message.parts[stop]
            draft.drop(rules.THINKING_LAST, part, "thinking that ends a turn was dropped")
        if stop < len(message.parts):
            draft.keep_parts(message, message.parts[:stop])
            if not stop:
                continue
        kept.append(message)
        ends = rules.ends_before(message, behind=ends)
    draft.messages[:] = kept[::-1]


def disable_thinking(draft: RepairDraft) -> None:
    """LS305: disable thinking for a request whose running tool turn has none."""
    if list(rules.thinking_first(draft.case())):
        before = (draft.body or {}).get("thinking")
        draft.set_aside(rules.THINKING_FIRST, "thinking", before)
        draft.set_field("thinking", {"type": "disabled"})
        note = "thinking was disabled for this request"
        draft.note(rules.THINKING_FIRST, "rewritten", "thinking", note)


def repair_items(draft: RepairDraft) -> None:
    """LS307, LS308 and LS310: repair reasoning items and references of the Responses API."""
    unstored = (draft.body or {}).get("store") is False
    left = ItemRemoval(draft)
    ends = True
    for message in reversed(draft.messages):
        part = message.parts[0] if message.parts else None
        if part is not None and unstored and rules.points_at_nothing(part):
            left.drop(message, rules.STORED_STATE, "a reference to state that was not kept")
            continue
        if part is not None and part.kind == REASONING:
            if ends and rules.is_named(part):
                left.drop(
                    message, rules.LONE_REASONING, "reasoning without the item that it produced"
                )
                continue
            if rules.whole_summary(part) != part.raw.get("summary"):
                # LS310: give a reasoning item a summary of texts, if only an empty one.
                before = part.raw.get("summary")
                if before is not None:
                    draft.set_aside(rules.REASONING_SHAPE, part, before)
                fresh = {**part.raw, "summary": rules.whole_summary(part)}
                draft.keep_parts(message, [copy_part(part, fresh)])
                note = (
                    "an empty summary was added"
                    if before is None
                    else "only texts stay in the summary"
                )
                draft.note(rules.REASONING_SHAPE, "rewritten", part, note)
        left.keep(message)
        ends = rules.item_ends_before(message, behind=ends)
    left.finish()


class ItemRemoval:
    """Removes items from a draft, from the last to the first.

    Items that follow a reasoning item refer to it by their ids, so when it goes, those ids go, too.
    """

    def __init__(self, draft: RepairDraft) -> None:
        self.draft = draft
        self.kept: list[Message] = []
        # The items that follow with nothing of another role in between, and still have their ids.
        self.followers: list[Message] = []

    def keep(self, message: Message) -> None:
        """Keep an item."""
        self.kept.append(message)
        if _may_follow(message):
            self.followers.append(message)
        else:
            self.followers = []

    def drop(self, message: Message, rule: Rule, what: str) -> None:
        """Remove an item, and record that."""
        part = message.parts[0]
        self.draft.drop(rule, part, f"{what} was dropped")
        if part.kind == REASONING:
            self.unlink()

    def unlink(self) -> None:
        """Drop the ids of the items after this place that refer to a reasoning item."""
        for message in self.followers:
            _forget_own_id(message)
        self.followers = []

    def finish(self) -> None:
        """Put the kept items into the draft."""
        self.draft.messages[:] = self.kept[::-1]


def unlink_followers(draft: RepairDraft, position: int) -> int:
    """Drop the ids by which the items after a reasoning item refer to it.

    Return the position up to which ids were dropped.
    """
    for behind in range(position + 1, len(draft.messages)):
        if not _may_follow(draft.messages[behind]):
            return behind
        _forget_own_id(draft.messages[behind])
    return len(draft.messages)


def _may_follow(message: Message) -> bool:
    return message.role == ASSISTANT and bool(message.parts) and isinstance(message.raw, dict)


def _forget_own_id(message: Message) -> None:
    if "id" in message.raw and message.parts[0].kind != REASONING:
        forget_item_id(message)


def forget_item_id(message: Message) -> None:
    """Remove the optional item id from a copy of an item."""
    message.raw = without_id(message.raw)
    for part in message.parts:
        if part.at == () and isinstance(part.raw, dict):
            part.raw = without_id(part.raw)
    message.touch()


def sign_calls(draft: RepairDraft) -> None:
    """LS311: add the documented sentinel to calls that lack a thought signature."""
    dialect = draft.dialect
    if not isinstance(dialect, Gemini) or not draft.origin.traits.thought_signatures:
        return
    bare = {id(part) for part in rules.unsigned_first_calls(draft.messages)}
    for message in draft.messages if bare else ():
        if any(id(part) in bare for part in message.parts):
            parts = [
                dialect.sign(part, SENTINEL) if id(part) in bare else part for part in message.parts
            ]
            draft.keep_parts(message, parts)
            note = "the sentinel signature was added"
            rule = rules.THOUGHT_SIGNATURE
            draft.note(rule, "rewritten", message, note)


def add_required_reasoning(draft: RepairDraft) -> None:
    """LS312: add the empty reasoning that the provider wants to get back."""
    if not draft.profile.reasoning_required:
        return
    field = draft.dialect.reasoning_field
    for message in draft.messages:
        if not rules.lacks_reasoning(message, draft.dialect):
            continue
        if field:
            raw = message.raw if isinstance(message.raw, dict) else {"role": "assistant"}
            message.raw = {**raw, field: ""}
            message.touch()
        else:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            empty = Part(REASONING, block, flavor="thinking")
            draft.keep_parts(message, [empty, *message.parts])
        note = "an empty reasoning field was added"
        draft.note(rules.REASONING_REQUIRED, "rewritten", message, note)


def drop_bound_reasoning(draft: RepairDraft) -> None:
    """LS309: drop signed thinking after the first place whose content changed."""
    if not draft.parts_before or not draft.origin.traits.binds_reasoning:
        return
    if not draft.profile.signed_reasoning:
        return
    position, number = draft.first_change()
    before, after = draft.origin.body or {}, draft.body or {}
    if any(before.get(key) is not after.get(key) for key in ("tools", "system", "toolConfig")):
        # tools and instructions come before all messages
        position, number = 0, 0
    for at in range(position, len(draft.messages)):
        message = draft.messages[at]
        head = message.parts[:number] if at == position else []
        tail = message.parts[len(head) :]
        bound = [part for part in tail if part.kind == REASONING]
        for part in bound:
            note = "thinking bound to a changed prefix was dropped"
            draft.drop(rules.BOUND_REASONING, part, note)
        if bound:
            draft.keep_parts(message, head + [part for part in tail if part.kind != REASONING])
