"""Pass: ids, names and arguments that the provider accepts (LS2xx)."""

from __future__ import annotations

import re
from typing import Any

from lockstitch.conversation.pairing import PairedCall
from lockstitch.conversation.parts import CALL, REASONING, SERVER_CALL, SERVER_RESULT, Part
from lockstitch.dialects.langchain import LangChain
from lockstitch.repair.draft import RepairDraft
from lockstitch.repair.reasoning import forget_item_id, unlink_followers
from lockstitch.rules import identity as rules
from lockstitch.rules import pairing as pairing_rules
from lockstitch.rules.rule import Rule, shown

_UNNAMED = "unknown_tool"


def fit_ids(draft: RepairDraft) -> None:
    """LS201 to LS205: give calls ids that are present, unique and well formed."""
    case, optional = draft.case(), draft.dialect.ids_are_optional
    here = {part.id for part in case.parts.calls + case.parts.results if part.id}
    minter = _Minter(draft, here | draft.origin.request.ids)
    renamed: dict[int, str] = {}
    for one in case.paired.calls:
        call, verdict = one.part, minter.judge(one)
        result = None if one.answer is None else one.answer.part
        if verdict is None:
            if result is not None and not result.id and call.id and not optional:
                renamed[id(result)] = call.id
                note = f"a result got the id of its call {shown(call.id)}"
                draft.note(rules.MISSING_ID, "relabelled", result, note)
            continue
        rule, new_id = verdict
        renamed[id(call)] = new_id
        if result is not None:
            renamed[id(result)] = new_id
        note = f"call id {shown(call.id)} became {new_id} in the request"
        draft.note(rule, "relabelled", call, note)
    _rename_servers(draft, minter, renamed)
    if renamed:
        _rename(draft, renamed)


def _rename_servers(draft: RepairDraft, minter: _Minter, renamed: dict[int, str]) -> None:
    """Give each later use of a server tool's id a new id, for call and result together."""
    current: dict[str, str] = {}
    for message in draft.messages:
        for part in message.parts:
            if part.kind == SERVER_CALL and part.id:
                if part.id in current:
                    current[part.id] = renamed[id(part)] = minter.another(part.id)
                    note = (
                        f"server tool id {shown(part.id)} became {current[part.id]} in the request"
                    )
                    draft.note(rules.REUSED_ID, "relabelled", part, note)
                else:
                    current[part.id] = part.id
            elif part.kind == SERVER_RESULT and current.get(part.id or "", part.id) != part.id:
                renamed[id(part)] = current[part.id or ""]


class _Minter:
    """Decides which ids must change, and to what; never maps two ids to one."""

    def __init__(self, draft: RepairDraft, taken: set[str]) -> None:
        self.profile = draft.profile
        self.ids_are_optional = draft.dialect.ids_are_optional
        self.number = draft.origin.number
        self.taken = taken
        self.seen: dict[str, PairedCall] = {}
        self.uses: dict[str, int] = {}
        self.pattern = re.compile(self.profile.id_pattern or r"(?s:.+)")

    def judge(self, one: PairedCall) -> tuple[Rule, str] | None:
        """Return the rule that a call's id breaks, and its new id; None if the id may stay."""
        call = one.part
        if not call.id and self.ids_are_optional:
            return None
        if not call.id:
            return rules.MISSING_ID, self._mint(f"{self.number(call.home)}.{call.at}", "call")
        if self.profile.native_ids:
            return None
        before = self.seen.get(call.id)
        self.seen[call.id] = one
        self.uses[call.id] = self.uses.get(call.id, 0) + 1
        is_same_turn = before is not None and before.zone is one.zone
        if before is not None and (is_same_turn or self.profile.ids_unique):
            rule = rules.REPEATED_CALL if is_same_turn else rules.REUSED_ID
            return rule, self._mint(f"{call.id}\0{self.uses[call.id]}", call.id)
        if self.profile.id_max and len(call.id) > self.profile.id_max:
            return rules.ID_LENGTH, self._mint(call.id, call.id[:16])
        if not self.pattern.fullmatch(call.id):
            return rules.ID_ALPHABET, self._mint(call.id, call.id)
        return None

    def another(self, used: str) -> str:
        """Return a new id for one more use of an id."""
        self.uses[used] = self.uses.get(used, 1) + 1
        return self._mint(f"{used}\0{self.uses[used]}", used)

    def _mint(self, seed: str, stem: str) -> str:
        for salt in range(1 << 20):
            new_id = self.profile.new_id(stem, f"{seed}\0{salt}" if salt else seed)
            if new_id not in self.taken:
                self.taken.add(new_id)
                return new_id
        raise AssertionError("a million digests collided")


def _rename(draft: RepairDraft, renamed: dict[int, str]) -> None:
    dialect = draft.dialect
    for message in draft.messages:
        if not any(id(part) in renamed for part in message.parts):
            continue
        # LangChain's content repeats calls, so a copy gets the new id of its call
        twins = {p.id: renamed[id(p)] for p in message.parts if id(p) in renamed}
        parts = []
        for part in message.parts:
            twin_id = twins.get(part.id) if part.flavor == "twin" else None
            new_id = renamed.get(id(part), twin_id)
            parts.append(dialect.with_id(part, new_id) if new_id is not None else part)
        draft.keep_parts(message, parts)


def repair_item_ids(draft: RepairDraft) -> None:
    """LS206: drop item ids that are repeated, foreign or too long."""
    seen: set[str] = set()
    gone: set[int] = set()
    unlinked = 0
    for position, message in enumerate(draft.messages):
        fault = rules.item_id_fault(message, seen)
        if not fault:
            continue
        item_id = shown(message.raw["id"])
        if message.parts and message.parts[0].kind == REASONING:
            draft.drop(
                rules.ITEM_ID, message.parts[0], f"reasoning item {item_id} {fault}, dropped"
            )
            # followers that were unlinked with an earlier item need no second visit
            if position >= unlinked:
                unlinked = unlink_followers(draft, position)
            gone.add(position)
            continue
        if rules.is_reference(message):
            draft.drop(
                rules.ITEM_ID, message.parts[0], f"item reference {item_id} {fault}, dropped"
            )
            gone.add(position)
            continue
        forget_item_id(message)
        note = f"item id {item_id} {fault} and was dropped"
        draft.note(rules.ITEM_ID, "rewritten", message, note)
    if gone:
        kept = [message for at, message in enumerate(draft.messages) if at not in gone]
        draft.messages[:] = kept


def empty_arguments(draft: RepairDraft) -> None:
    """LS207: empty arguments that do not parse; the original is quarantined."""
    case, dialect = draft.case(), draft.dialect

    def with_good_arguments(part: Part) -> Part:
        if part.kind != CALL or not rules.argument_fault(case, part):
            return part
        whole = rules.whole_arguments(dialect, part)
        if whole is not None:
            note = f"the arguments of call {shown(part.id)} were put into the form of this format"
            draft.note(rules.BAD_ARGUMENTS, "rewritten", part, note)
            return dialect.with_arguments(part, whole)
        note = f"the arguments of call {shown(part.id)} were emptied"
        draft.note(rules.BAD_ARGUMENTS, "rewritten", part, note)
        invalid = part.flavor == rules.INVALID
        value = part.raw.get("args") if invalid else dialect.arguments(part)
        draft.set_aside(rules.BAD_ARGUMENTS, part, value)
        return dialect.with_arguments(part, {})

    draft.change_parts(with_good_arguments)


def fit_names(draft: RepairDraft) -> None:
    """LS210: keep the valid beginning of a tool name."""
    profile = draft.profile
    if not profile.name_pattern:
        return
    pattern = re.compile(profile.name_pattern)
    for message in draft.messages:
        copies = {p.id: p.name for p in message.parts if "twin" in p.flavor and p.id}
        parts = [_with_good_name(draft, pattern, part, copies) for part in message.parts]
        if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
            draft.keep_parts(message, parts)
    _name_responses(draft)


def _name_responses(draft: RepairDraft) -> None:
    """Give Gemini's function responses the name of the function they answer."""
    unnamed = {id(part) for part in rules.unnamed_responses(draft.case())}
    if not unnamed:
        return
    names: dict[int, str] = {}
    for one in draft.case().paired.calls:
        result = None if one.answer is None else one.answer.part
        if result is None or id(result) not in unnamed:
            continue
        names[id(result)] = one.part.name or _UNNAMED
        note = "a function response got the name of its call"
        draft.note(rules.TOOL_NAME, "rewritten", result, note)
    with_name = draft.dialect.with_name
    draft.change_parts(lambda part: with_name(part, names[id(part)]) if id(part) in names else part)


def _with_good_name(
    draft: RepairDraft, pattern: re.Pattern[str], part: Part, copies: dict[str, str | None]
) -> Part:
    if part.kind != CALL or part.flavor in rules.NAMELESS:
        return part
    if part.name and pattern.fullmatch(part.name):
        return part
    head = pattern.match(part.name or copies.get(part.id or "") or "")
    name = head[0] if head else _UNNAMED
    note = f"the tool name of call {shown(part.id)} became {shown(name)}"
    draft.note(rules.TOOL_NAME, "rewritten", part, note)
    draft.set_aside(rules.TOOL_NAME, part, part.raw if part.name is None else part.name)
    return draft.dialect.with_name(part, name)


def define_tools(draft: RepairDraft) -> None:
    """LS209: declare the tools that the history names, so that a request may hold their blocks."""
    if not list(rules.tools_defined(draft.case())):
        return
    names = {part.name for m in draft.messages for part in m.parts if part.kind == CALL}
    listed = sorted(name for name in names if name) or [_UNNAMED]
    fields = draft.dialect.declare_tools(listed)
    key, *choices = fields
    for choice in choices:
        before = (draft.body or {}).get(choice)
        if before is not None:
            draft.set_aside(rules.TOOLS_MISSING, choice, before)
    for name, value in fields.items():
        draft.set_field(name, value)
    note = f"the tools that the history names were declared ({len(listed)})"
    draft.note(rules.TOOLS_MISSING, "inserted", key, note)


def drop_dead_references(draft: RepairDraft) -> None:
    """LS208: drop references to tools that are not offered, and repeats in the tool list."""
    tools = (draft.body or {}).get("tools")
    if not isinstance(tools, list) or not tools:
        return
    unique = _unique_tools(tools)
    if len(unique) != len(tools):
        draft.set_field("tools", unique)
        kept = {id(tool) for tool in unique}
        gone = [tool for tool in tools if id(tool) not in kept]
        draft.set_aside(rules.TOOL_REFERENCE, "tools", gone)
        note = "repeated tools were dropped from the list"
        draft.note(rules.TOOL_REFERENCE, "removed", "tools", note)
    known = {tool.get("name") for tool in unique if isinstance(tool, dict)}
    draft.change_parts(lambda part: _drop_references(draft, part, known))


def _unique_tools(tools: list[Any]) -> list[Any]:
    seen: set[Any] = set()
    unique = []
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str) and name in seen:
            continue
        seen.add(name if isinstance(name, str) else None)
        unique.append(tool)
    return unique


def _drop_references(draft: RepairDraft, part: Part, known: set[Any]) -> Part:
    dead = rules.dead_references(part, known)
    if not dead:
        return part
    content = part.raw["content"]
    nested = isinstance(content, dict)
    blocks = content["tool_references"] if nested else content
    kept = [b for b in blocks if not (isinstance(b, dict) and b.get("tool_name") in dead)]
    fresh: Any = {**content, "tool_references": kept} if nested else kept
    if not nested and not kept:
        fresh = "[lockstitch] The tools found here are no longer offered."
    note = f"{len(dead)} references to tools that are not offered were dropped"
    draft.note(rules.TOOL_REFERENCE, "rewritten", part, note)
    draft.set_aside(rules.TOOL_REFERENCE, part, dead)
    raw = {**part.raw, "content": fresh}
    return Part(part.kind, raw, part.at, part.home, part.id, part.name, part.flavor)


def list_unlisted_calls(draft: RepairDraft) -> None:
    """LS111: add calls that only a content block mentions to the list of calls."""
    dialect = draft.dialect
    if not isinstance(dialect, LangChain):
        return
    for message in draft.messages:
        calls: list[Part] = []
        for twin in pairing_rules.unlisted_twins(message):
            call = dialect.call_from_twin(twin)
            call.home, call.at = twin.home, twin.at
            calls.append(call)
            note = f"call {shown(twin.id)} was added to tool_calls"
            draft.note(pairing_rules.TWO_RECORDS, "inserted", twin, note)
        if calls:
            draft.keep_parts(message, [*message.parts, *calls])
