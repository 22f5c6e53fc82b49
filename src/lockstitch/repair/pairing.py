"""Pass: every call answered once, by its own result, in the right place (LS1xx)."""

from __future__ import annotations

from lockstitch.conversation.pairing import (
    ANSWER,
    FLAT,
    GROUPED,
    PairedCall,
    PairedResult,
    Zone,
)
from lockstitch.conversation.parts import ASSISTANT, CALL, RESULT, USER, Message, Part
from lockstitch.dialects.base import without_id
from lockstitch.dialects.openai_responses import CALL_KINDS, OpenAIResponses
from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME, WAITING, shown_part
from lockstitch.repair.draft import RepairDraft
from lockstitch.rules import pairing as rules
from lockstitch.rules.identity import REPEATED_CALL
from lockstitch.rules.rule import Case, Rule, label

ORPHAN_LABEL = "[lockstitch] Tool result kept as text: its call is not in this conversation ({id})."
SECOND_LABEL = "[lockstitch] Another result of tool call {id}, kept as text."
CALL_LABEL = "[lockstitch] Tool call kept as text: it has no result and none can be written ({id})."


def repair_pairs(draft: RepairDraft) -> None:
    """Pair calls and results; move, merge, answer or keep as text what does not fit."""
    case = draft.case()
    # drop a call that repeats another of its turn exactly and has no result of its own
    seen: dict[tuple[Zone | None, str], Part] = {}
    repeats: set[int] = set()
    for one in case.paired.calls:
        call = one.part
        first = seen.setdefault((one.zone, call.id), call) if call.id else call
        if first is call or one.answer is not None:
            continue
        try:
            # the item ids may differ, by which a provider tells the two apart
            is_same = without_id(first.raw) == without_id(call.raw)
        except RecursionError:
            is_same = False
        if is_same:
            repeats.add(id(call))
            note = f"an exact repeat of call {label(call)} was removed"
            draft.note(REPEATED_CALL, "removed", call, note)
    if repeats:
        _take_parts(draft, repeats)
        case = draft.case()
    _PairRepair(draft, case).repair()
    if draft.profile.layout == FLAT:
        match_output_kinds(draft)
    if draft.origin.parts.servers:
        drop_lone_server_parts(draft)


class _PairRepair:
    """Rebuilds the stretches in which calls and results do not line up."""

    def __init__(self, draft: RepairDraft, case: Case) -> None:
        self.draft = draft
        self.case = case
        self.paired = self.case.paired
        self.calls_of: dict[Zone | None, list[PairedCall]] = {}
        for call in self.paired.calls:
            self.calls_of.setdefault(call.zone, []).append(call)
        self.results = {id(one.part): one for one in self.paired.results}
        self.placed: dict[int, list[Part]] = {}
        self.taken: set[int] = set()
        self.reused: set[int] = set()
        self.as_text: dict[int, list[Part]] = {}
        self.heads: dict[Zone, set[int]] = {}
        self.wedges: dict[Zone, int] = {}
        self.answered = {call.zone for call in self.paired.calls if call.answer is not None}

    def repair(self) -> None:
        """Decide what happens to every part, then lay out the messages anew."""
        if self.paired.results:
            self._judge_results()
        # the zones whose results are missing, displaced, scattered or mixed with others
        paired, layout = self.paired, self.case.profile.layout
        due = {c.zone for c in paired.calls if c.answer is None or c.answer.is_displaced}
        if layout == GROUPED and paired.results:
            messages = self.draft.messages
            due.update(zone for zone in paired.zones if rules.is_scattered(messages, zone))
        elif layout not in (GROUPED, FLAT):
            due.update(one.zone for one in paired.results if id(one.part) in self.as_text)
        for zone in paired.zones:
            if zone in due:
                self._place_batch(zone, self.calls_of.get(zone, []))
        if self.taken or self.as_text or self.placed:
            grouped = self.case.profile.layout == GROUPED
            laid: list[Message] = []
            pending: list[Part] = []
            messages = self.draft.messages
            holders = {one.position for one in paired.results}
            # a result that was alone in its message takes the message along
            homes = {
                id(one.part): messages[one.position]
                for one in paired.results
                if id(one.part) in self.taken and len(messages[one.position].parts) == 1
            }
            # the messages of which a part moves, goes or becomes text
            touched = {
                one.position
                for one in paired.results
                if id(one.part) in self.taken or id(one.part) in self.as_text
            }
            if any(id(call.part) in self.as_text for call in paired.calls):
                touched.update(range(len(messages)))
            for position, message in enumerate(self.draft.messages):
                reused = id(message) in self.reused
                if pending and (reused or message.role != USER or position not in holders):
                    laid.append(self._message_with(pending))
                    pending = []
                if reused:
                    continue
                if pending or position in touched:
                    laid += self._rest_of(message, pending)
                    pending = []
                else:
                    laid.append(message)
                results = self.placed.get(position, [])
                if grouped:
                    pending = results
                else:
                    laid += [
                        homes.get(id(r)) or self.draft.dialect.result_message(r) for r in results
                    ]
            if pending:
                laid.append(self._message_with(pending))
            self.draft.messages[:] = laid

    def _judge_results(self) -> None:
        leans = self.case.leans_on_stored_state
        repeated = rules.repeated_orphans(self.case) if leans else set()
        for one in self.paired.results:
            if one.verdict == ANSWER:
                continue
            if one.answer is not None:
                self._judge_duplicate(one, one.answer.part)
            elif one in repeated:
                self._keep_as_text(rules.DUPLICATE_RESULT, one.part, SECOND_LABEL)
            elif not leans:
                self._keep_as_text(rules.ORPHAN_RESULT, one.part, ORPHAN_LABEL)

    def _judge_duplicate(self, duplicate: PairedResult, answer: Part) -> None:
        result = duplicate.part
        rule = rules.MASKED_RESULT if duplicate.is_masking else rules.DUPLICATE_RESULT
        dialect = self.draft.dialect
        # a placeholder may hold a part of the real output
        stands_in = dialect.is_placeholder(result) and (
            shown_part(dialect.result_text(result)) in dialect.result_text(answer)
        )
        if stands_in or dialect.same_result(result, answer):
            self.taken.add(id(result))
            what = "a placeholder" if stands_in else "an exact repeat"
            note = f"{what} of the result for {label(result)} was removed"
            self.draft.note(rule, "removed", result, note)
        else:
            self._keep_as_text(rule, result, SECOND_LABEL)

    def _keep_as_text(self, rule: Rule, result: Part, heading: str) -> None:
        """Turn a result into labelled text; a placeholder is removed, since it says nothing."""
        draft = self.draft
        if draft.dialect.says_nothing(result):
            self.taken.add(id(result))
            draft.note(rule, "removed", result, f"a placeholder for {label(result)} was removed")
            return
        text = f"{heading.format(id=label(result))}\n{draft.dialect.result_text(result)}"
        parts = [draft.dialect.text_part(text, USER), *draft.dialect.result_media(result)]
        for part in parts:
            part.home, part.at = result.home, result.at
        self.as_text[id(result)] = parts
        dialect = draft.dialect
        if not isinstance(dialect.payload(result), str) or dialect.beside_payload(result):
            draft.set_aside(rule, result, result.raw)
        note = f"the result for {label(result)} was kept as labelled text"
        draft.note(rule, "rewritten", result, note)

    def _place_batch(self, zone: Zone, calls: list[PairedCall]) -> None:
        """Place the results of one batch after its calls.

        If a result is added or moved in, they stand in the order of the calls, else in their old
        order.
        """
        draft, flat = self.draft, self.case.profile.layout == FLAT
        moved = any(one.answer is not None and one.answer.is_displaced for one in calls)
        results: list[Part] = []
        for one in calls:
            call, answer = one.part, one.answer
            if answer is not None:
                if not flat or answer.is_displaced:
                    self._take(call, answer, zone)
                    results.append(answer.part)
                continue
            # answer an open call with a neutral result, or make it text if none can be made
            waits = call.id in self.case.waiting
            result = draft.dialect.answer(call, WAITING if waits else UNKNOWN_OUTCOME)
            rule = rules.PARTIAL_BATCH if zone in self.answered else rules.ORPHAN_CALL
            if result is None:
                text = draft.dialect.text_part(CALL_LABEL.format(id=label(call)), ASSISTANT)
                text.home, text.at = call.home, call.at
                self.as_text[id(call)] = [text]
                draft.drop(rule, call, f"call {label(call)} was kept as text")
                continue
            state = "waiting call" if waits else "open call"
            note = f"{state} {label(call)} was answered with a neutral result"
            draft.note(rule, "inserted", call, note)
            results.append(result)
        if not moved and all(id(result) in self.results for result in results):
            results.sort(key=lambda result: self.results[id(result)].order)
        if results:
            self.placed[zone.caller] = results

    def _take(self, call: Part, answer: PairedResult, zone: Zone) -> None:
        """Take the result of a call from its place, and note why."""
        draft, result = self.draft, answer.part
        self.taken.add(id(result))
        if answer.is_displaced:
            note = f"the result of call {label(call)} was moved to its call"
            draft.note(rules.DISPLACED_RESULT, "moved", result, note)
        elif self.case.profile.layout == GROUPED and self._is_scattered(zone, result):
            note = f"the result of call {label(call)} was put first, with the others"
            # the first message of the zone that holds anything but results
            if zone not in self.wedges:
                self.wedges[zone] = rules.first_wedge(draft.messages, zone)
            wedged = answer.position > self.wedges[zone]
            rule = rules.DISPLACED_RESULT if wedged else rules.RESULT_LAYOUT
            draft.note(rule, "moved", result, note)

    def _is_scattered(self, zone: Zone, result: Part) -> bool:
        """Whether a result is not one of the uninterrupted results at the head of its zone."""
        if zone not in self.heads:
            parts = self.draft.messages[zone.start].parts if zone.stop > zone.start else []
            heads = parts[: len(self.calls_of[zone])]
            self.heads[zone] = {id(part) for part in heads if part.kind == RESULT}
        return id(result) not in self.heads[zone]

    def _message_with(self, results: list[Part]) -> Message:
        """Return the message that held exactly these results, or else a new one."""
        first = self.results.get(id(results[0]))
        if first is not None:
            message = self.draft.messages[first.position]
            if [id(part) for part in message.parts] == [id(result) for result in results]:
                self.reused.add(id(message))
                return message
        return self.draft.dialect.new_message(USER, results)

    def _rest_of(self, message: Message, pending: list[Part]) -> list[Message]:
        """Return what is left of a message after parts are moved out and placed ones put in."""
        kept: list[Part] = []
        text: list[Part] = []
        for part in message.parts:
            if id(part) in self.as_text:
                text += self.as_text[id(part)]
            elif id(part) not in self.taken:
                kept.append(part)
        if len(kept) == len(message.parts) and not pending:
            return [message]
        if message.parts and message.role == "tool":
            return [self._as_text(message, USER, text)] if text else []
        if text and self.case.profile.layout == FLAT:
            return [self._as_text(message, ASSISTANT, text)]
        # kept texts stand after the results at the head of the message
        parts = pending + kept
        heads = next((i for i, part in enumerate(parts) if part.kind != RESULT), len(parts))
        parts[heads:heads] = text
        if not parts:
            return []
        if [id(part) for part in parts] == [id(part) for part in message.parts]:
            return [message]
        self.draft.keep_parts(message, parts)
        return [message]

    def _as_text(self, message: Message, role: str, text: list[Part]) -> Message:
        """Return the text message that a call or a result became."""
        fresh = self.draft.dialect.new_message(role, text)
        fresh.index = message.index
        return fresh


def _take_parts(draft: RepairDraft, gone: set[int]) -> None:
    """Remove parts from their messages; a message left empty goes, too."""
    kept: list[Message] = []
    for message in draft.messages:
        parts = [part for part in message.parts if id(part) not in gone]
        if len(parts) != len(message.parts):
            draft.keep_parts(message, parts)
            if not parts:
                continue
        kept.append(message)
    draft.messages[:] = kept


def match_output_kinds(draft: RepairDraft) -> None:
    """LS109: rewrite outputs as the kind that their call asks for."""
    dialect = draft.dialect
    if not isinstance(dialect, OpenAIResponses):
        return
    for one in draft.case().paired.calls:
        if one.answer is None or one.answer.part.flavor in CALL_KINDS[one.part.flavor].outputs:
            continue
        call, result = one.part, one.answer.part
        message = draft.messages[one.answer.position]
        draft.set_aside(rules.OUTPUT_KIND, result, result.raw)
        fresh = dialect.convert_output(result, call)
        if fresh is None:
            # the call cannot take it, so it stays as labelled text, and the call is open
            text = f"{SECOND_LABEL.format(id=label(result))}\n{dialect.result_text(result)}"
            message.raw, message.role = None, USER
            media = dialect.result_media(result)
            draft.keep_parts(message, [dialect.text_part(text, USER), *media])
            note = f"the output of {label(result)} was kept as labelled text"
        else:
            draft.keep_parts(message, [fresh])
            note = f"the output of {label(call)} was rewritten as {fresh.flavor}"
        draft.note(rules.OUTPUT_KIND, "rewritten", result, note)


def drop_lone_server_parts(draft: RepairDraft) -> None:
    """LS108: remove halves of server-side pairs."""
    lone = rules.lone_server_parts(draft.messages)
    for part in lone:
        draft.drop(rules.SERVER_PAIR, part, f"half of server tool pair {label(part)} was removed")
    if lone:
        _take_parts(draft, {id(part) for part in lone})


def order_texts(draft: RepairDraft) -> None:
    """LS110: move text that follows a call to before the calls of its message."""
    for message in draft.messages:
        late = rules.text_behind_calls(message) if message.role == ASSISTANT else []
        if not late:
            continue
        first = next(i for i, part in enumerate(message.parts) if part.kind == CALL)
        moved = {id(part) for part in late}
        rest = [part for part in message.parts[first:] if id(part) not in moved]
        draft.keep_parts(message, [*message.parts[:first], *late, *rest])
        for part in late:
            note = "text after a call was moved before it"
            draft.note(rules.TEXT_AFTER_CALL, "moved", part, note)
