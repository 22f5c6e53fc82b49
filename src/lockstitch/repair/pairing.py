"""Pass: every call answered once, by its own result, in the right place (LS1xx)."""

from __future__ import annotations

from lockstitch.conversation.pairing import ANSWER, DUPLICATE, FLAT, GROUPED, NOWHERE, Zone
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
    """Pair calls and results; move, collapse, close and keep as text what needs it."""
    case = draft.case()
    paired = case.paired
    # drop a call that repeats another of its turn to the letter and has no result of its own
    seen: dict[tuple[int, str], Part] = {}
    repeats: set[int] = set()
    for number, call in enumerate(paired.calls):
        first = seen.setdefault((paired.call_zone[number], call.id), call) if call.id else call
        if first is call or paired.pairing.answers[number] != NOWHERE:
            continue
        try:
            # but for the item ids by which a provider may tell them apart
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
        self.calls_of: dict[int, list[int]] = {}
        for number, zone in enumerate(self.paired.call_zone):
            self.calls_of.setdefault(zone, []).append(number)
        self.result_number = {id(part): n for n, part in enumerate(self.paired.results)}
        self.placed: dict[int, list[Part]] = {}
        self.taken: set[int] = set()
        self.reused: set[int] = set()
        self.as_text: dict[int, list[Part]] = {}
        self.heads: dict[int, set[int]] = {}
        self.wedges: dict[int, int] = {}
        self.answered = {
            zone
            for zone, answer in zip(self.paired.call_zone, self.paired.pairing.answers, strict=True)
            if answer != NOWHERE
        }

    def repair(self) -> None:
        """Decide what happens to every part, then lay the messages out anew."""
        if self.paired.results:
            self._judge_results()
        # the zones whose results are missing, displaced, scattered or mixed with others
        paired, pairing = self.paired, self.paired.pairing
        zones = {
            zone
            for zone, answer in zip(paired.call_zone, pairing.answers, strict=True)
            if answer == NOWHERE or answer in pairing.displaced
        }
        layout = self.case.profile.layout
        if layout == GROUPED and paired.results:
            messages = self.draft.messages
            zones.update(
                n for n, zone in enumerate(paired.zones) if rules.is_scattered(messages, zone)
            )
        elif layout not in (GROUPED, FLAT):
            zones.update(
                zone
                for zone, result in zip(paired.result_zone, paired.results, strict=True)
                if id(result) in self.as_text
            )
        for number in sorted(zones - {NOWHERE}):
            self._place_batch(self.paired.zones[number], self.calls_of.get(number, []))
        if self.taken or self.as_text or self.placed:
            grouped = self.case.profile.layout == GROUPED
            laid: list[Message] = []
            pending: list[Part] = []
            where = list(zip(paired.results, paired.result_at, strict=True))
            messages = self.draft.messages
            holders = set(paired.result_at)
            # a result that was alone in its message takes that along
            homes = {
                id(result): messages[position]
                for result, position in where
                if id(result) in self.taken and len(messages[position].parts) == 1
            }
            # the messages some part of which moves, goes or becomes text
            touched = {
                position
                for result, position in where
                if id(result) in self.taken or id(result) in self.as_text
            }
            if any(id(call) in self.as_text for call in paired.calls):
                touched.update(range(len(messages)))
            for position, message in enumerate(self.draft.messages):
                reused = id(message) in self.reused
                if pending and (reused or message.role != USER or position not in holders):
                    laid.append(self._message_with(pending))
                    pending = []
                if reused:
                    continue
                if pending or position in touched:
                    laid += self._unpicked(message, pending)
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
        pairing = self.paired.pairing
        leans = self.case.leans_on_stored_state
        repeated = rules.repeated_orphans(self.case) if leans else set()
        for number, result in enumerate(self.paired.results):
            verdict = pairing.verdicts[number]
            if verdict == ANSWER:
                continue
            if verdict == DUPLICATE:
                self._judge_duplicate(number, result)
            elif number in repeated:
                self._keep_as_text(rules.DUPLICATE_RESULT, result, SECOND_LABEL)
            elif not leans:
                self._keep_as_text(rules.ORPHAN_RESULT, result, ORPHAN_LABEL)

    def _judge_duplicate(self, number: int, result: Part) -> None:
        pairing = self.paired.pairing
        answer = self.paired.results[pairing.answers[pairing.owners[number]]]
        masked = number in pairing.masked
        rule = rules.MASKED_RESULT if masked else rules.DUPLICATE_RESULT
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
        """Turn a result into labelled text; a placeholder says nothing worth keeping."""
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

    def _place_batch(self, zone: Zone, calls: list[int]) -> None:
        """Place the results of one batch behind its calls.

        They come in the order of the calls if one is added or moved in, else as they stood.
        """
        draft, flat = self.draft, self.case.profile.layout == FLAT
        answers, displaced = self.paired.pairing.answers, self.paired.pairing.displaced
        moved = any(answers[number] in displaced for number in calls)
        results: list[Part] = []
        for number in calls:
            call, answer = self.paired.calls[number], answers[number]
            if flat and answer != NOWHERE and answer not in displaced:
                continue
            if answer != NOWHERE:
                results.append(self._result_for(number, answer))
                continue
            # answer an open call with a neutral result, or make it text if none can be made
            waits = call.id in self.case.waiting
            result = draft.dialect.answer(call, WAITING if waits else UNKNOWN_OUTCOME)
            partial = self.paired.call_zone[number] in self.answered
            rule = rules.PARTIAL_BATCH if partial else rules.ORPHAN_CALL
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
        if not moved and all(id(result) in self.result_number for result in results):
            results.sort(key=lambda result: self.result_number[id(result)])
        if results:
            self.placed[zone.caller] = results

    def _result_for(self, number: int, answer: int) -> Part:
        """Return the result of a call, taken from where it stands."""
        draft, call = self.draft, self.paired.calls[number]
        result = self.paired.results[answer]
        self.taken.add(id(result))
        if answer in self.paired.pairing.displaced:
            note = f"the result of call {label(call)} was moved to its call"
            draft.note(rules.DISPLACED_RESULT, "moved", result, note)
        elif self.case.profile.layout == GROUPED and self._is_scattered(number, result):
            note = f"the result of call {label(call)} was put first, with the others"
            zone = self.paired.zones[self.paired.call_zone[number]]
            # the first message of a zone that holds anything but results
            if zone.caller not in self.wedges:
                self.wedges[zone.caller] = rules.first_wedge(self.draft.messages, zone)
            wedged = self.paired.result_at[answer] > self.wedges[zone.caller]
            rule = rules.DISPLACED_RESULT if wedged else rules.RESULT_LAYOUT
            draft.note(rule, "moved", result, note)
        return result

    def _is_scattered(self, number: int, result: Part) -> bool:
        """Whether a result is not among those that head its zone with nothing between them."""
        at = self.paired.call_zone[number]
        if at not in self.heads:
            zone = self.paired.zones[at]
            parts = self.draft.messages[zone.start].parts if zone.stop > zone.start else []
            heads = parts[: len(self.calls_of[at])]
            self.heads[at] = {id(part) for part in heads if part.kind == RESULT}
        return id(result) not in self.heads[at]

    def _message_with(self, results: list[Part]) -> Message:
        """Return the message that held just these results, whole, or a new one."""
        paired = self.paired
        first = self.result_number.get(id(results[0]))
        if first is not None:
            message = self.draft.messages[paired.result_at[first]]
            if [id(part) for part in message.parts] == [id(result) for result in results]:
                self.reused.add(id(message))
                return message
        return self.draft.dialect.new_message(USER, results)

    def _unpicked(self, message: Message, pending: list[Part]) -> list[Message]:
        """Return what is left of a message once moved parts are out and placed ones are in."""
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
        # kept texts stand behind the results that head the message
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
        """Return the message of text that a call or a result became."""
        fresh = self.draft.dialect.new_message(role, text)
        fresh.index = message.index
        return fresh


def _take_parts(draft: RepairDraft, gone: set[int]) -> None:
    """Take parts out of their messages; a message left with nothing goes too."""
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
    """LS109: rewrite outputs as the kind their call asks for."""
    dialect = draft.dialect
    if not isinstance(dialect, OpenAIResponses):
        return
    paired = draft.case().paired
    for call, answer in zip(paired.calls, paired.pairing.answers, strict=True):
        result = paired.results[answer] if answer != NOWHERE else None
        if result is None or result.flavor in CALL_KINDS[call.flavor].outputs:
            continue
        message = draft.messages[paired.result_at[answer]]
        draft.set_aside(rules.OUTPUT_KIND, result, result.raw)
        fresh = dialect.convert_output(result, call)
        if fresh is None:
            # its call cannot take it: it stays as labelled text, and the call is an open one
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
    """LS108: take out halves of server-side pairs."""
    lone = rules.lone_server_parts(draft.messages)
    for part in lone:
        draft.drop(rules.SERVER_PAIR, part, f"half of server tool pair {label(part)} was removed")
    if lone:
        _take_parts(draft, {id(part) for part in lone})


def order_texts(draft: RepairDraft) -> None:
    """LS110: move text that follows a call in front of the calls of its message."""
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
