"""A plan: what is wrong with a list, what would be done about it, and the healed list.

Requests on their way out and stored histories use the same plan. Only the few messages that need a
look are viewed, and the repair is worked out when someone asks for it.

A repair runs its passes in an order in which none breaks what an earlier one repaired. Bytes,
malformed values and roles come first, then calls and results, then reasoning, then the shape of
turns, then ids, and at last the reasoning that is bound to whatever had to change. The outcome is
examined by the full set of rules; if anything is left, the original stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, structs

from lockstitch.conversation.pairing import FLAT
from lockstitch.conversation.parts import (
    ASSISTANT,
    CHANGED,
    REASONING,
    USER,
    Message,
    MessageList,
    Part,
    repr_without,
)
from lockstitch.conversation.sdk_objects import FromPlain, is_plain, to_plain
from lockstitch.dialects.base import scrub
from lockstitch.dialects.fast import Excerpt, encoded_size, narrow
from lockstitch.dialects.profiles import new_dialect, profile_named, traits_of
from lockstitch.dialects.recognize import dialect_of
from lockstitch.errors import UsageError
from lockstitch.repair import content, identity, pairing, reasoning, turns
from lockstitch.repair import content as media
from lockstitch.repair.draft import Change, Quarantined, RepairDraft, RepairedMessage, trace_draft
from lockstitch.repair.edits import Edit, diff
from lockstitch.rules import ERROR, Case, Finding, RequestContext, examine
from lockstitch.rules import media as media_rules

Pass = Callable[[RepairDraft], None]
_ROUNDS = 5
_UNSENDABLE = ("LS505", "LS506")
NONE: frozenset[str] = frozenset()

# The findings that call for each pass; a pass without codes runs whenever there is reasoning.
PASSES: tuple[tuple[tuple[str, ...], Pass], ...] = (
    (("LS404", "LS414"), content.clear_malformed),
    (("LS416",), content.convert_payloads),
    (("LS412",), turns.assign_roles),
    (("LS413",), content.move_misplaced_parts),
    (("LS111", "LS412"), identity.list_unlisted_calls),
    (("LS301",), reasoning.split_steps),
    (("LS302", "LS303"), reasoning.drop_unsigned),
    (("LS304",), reasoning.drop_foreign),
    (("LS110",), pairing.order_texts),
    (("LS207",), identity.empty_arguments),
    (("LS1", "LS201", "LS301"), pairing.repair_pairs),
    (("LS306",), reasoning.drop_trailing),
    (("LS307", "LS308", "LS310"), reasoning.repair_items),
    (("LS503",), media.free_error_media),
    (("LS501", "LS502"), media.repair_images),
    (("LS504",), media.drop_images),
    (("LS411",), turns.place_system),
    (("LS402", "LS403"), content.drop_cache_markers),
    (("LS401", "LS404"), content.fill_blanks),
    (("LS415",), content.add_text_to_documents),
    (("LS410",), turns.separate_responses),
    (("LS405", "LS409"), turns.merge_neighbours),
    (("LS405", "LS408"), turns.bridge_turns),
    (("LS405",), turns.separate_assistants),
    (("LS406",), turns.open_with_user),
    (("LS407",), turns.close_with_user),
    (("LS210",), identity.fit_names),
    (("LS201", "LS202", "LS203", "LS204", "LS205"), identity.fit_ids),
    (("LS206",), identity.repair_item_ids),
    (("LS208",), identity.drop_dead_references),
    (("LS209",), identity.define_tools),
    (("LS311",), reasoning.sign_calls),
    (("LS312",), reasoning.add_required_reasoning),
    ((), reasoning.drop_bound_reasoning),
    (("LS305", "LS209"), reasoning.disable_thinking),
)


class RepairOutcome(Struct):
    """What a repair came to: the new list with its origins, the body, the ledger, what is left.

    ``changed`` says that the list or the body differs from before, ``healed`` that nothing is left
    that the provider refuses.
    """

    remaining: list[Finding]
    healed: bool
    messages: Sequence[RepairedMessage] = ()
    body: dict[str, Any] | None = None
    changes: list[Change] = []
    quarantine: list[Quarantined] = []
    changed: bool = False

    __repr__ = repr_without("messages", "body")


class Plan:
    """What is wrong with a list, what would be done about it, and the healed list.

    ``messages`` is of the kind that was handed in; if nothing had to change, it is the very same
    object. If something cannot be repaired, ``remaining`` says what, and ``messages`` is the
    original. A caller that only asks for the ``findings`` does not pay for a repair. ``count`` is
    the number of messages that were handed in, and ``dialect`` is the dialect they were read as.
    """

    # If a quick walk can tell, ``_excerpt`` is the part of the list that needs a look, and
    # ``_looked_at`` holds its messages. A list of which no part needs one ``is_proven`` to be fine.

    def __init__(  # noqa: PLR0913 - all but two by keyword
        self,
        value: Any,
        dialect: str | None,
        *,
        model: str | None = None,
        waiting: Iterable[str] = (),
        stored: bool = False,
        resumed: bool = False,
        clean: bool = False,
        binds_reasoning: bool = True,
        spared: frozenset[str] = NONE,
        only_errors: bool = False,
    ) -> None:
        """Internal: open what was handed in, and look for what is wrong with it.

        ``stored`` messages are kept for later, so they may end in any way. ``resumed`` messages
        were read from a store, and a prompt will follow them. ``clean`` says that the text is known
        to hold nothing that cannot be sent, and not to be large. Rules in ``spared`` are not acted
        upon; with ``only_errors``, neither is anything that the provider accepts.
        """
        if isinstance(waiting, str) or not isinstance(waiting, Iterable):
            raise UsageError("waiting must be a collection of call ids, such as {'toolu_1'}")
        waiting = frozenset(waiting)
        self._value, self._spared, self._only_errors = value, spared, only_errors
        self._plain: Any = list(value) if type(value) is MessageList else value
        self._freeze: FromPlain | None = None
        profile = None if dialect is None else profile_named(dialect)
        if profile is None:
            if not is_plain(self._plain):
                self._plain, self._freeze = to_plain(value)
            profile = profile_named(dialect_of(self._plain))
        self._profile = profile
        view = new_dialect(profile.dialect)
        if resumed:
            last = view.read(self._plain[-1:])
            if last and last[0].role == ASSISTANT:
                # a resume adds a prompt after words of the model, and after nothing else
                prompt = view.new_message(USER, [view.text_part("Go on.", USER)])
                value = self._value = self._plain = [*self._plain, view.rebuild(prompt)]
                view = new_dialect(profile.dialect)
        plain = self._plain
        body = plain if type(plain) is dict else None
        raw = plain if body is None else plain.get(profile.list_key)
        # without tools any call is a finding, wherever it is, so the whole list has to be viewed
        lacks_tools = body is not None and profile.tools_needed and not body.get("tools")
        self._excerpt: Excerpt | None = None
        if type(raw) is list and self._freeze is None and not waiting and not lacks_tools:
            ends = not stored and (body is not None or model is not None)
            found = narrow(view, profile, raw, with_ends=ends, clean=clean)
            if found is not None:
                self._looked_at: Sequence[Any] = [raw[number] for number in found.numbers]
                self._excerpt = found if resumed or is_plain(self._looked_at) else None
        if self._excerpt is None and dialect and not (resumed or is_plain(plain)):
            self._plain, self._freeze = to_plain(value)
            plain = self._plain
        body = plain if isinstance(plain, dict) else None
        listed = plain if body is None else plain.get(profile.list_key)
        if not isinstance(listed, list) and (body is None or not isinstance(listed, str)):
            raise UsageError(
                f"expected a list of messages or a request body with a list under "
                f"{profile.list_key!r}, got {type(plain).__name__}"
            )
        self._raw: Sequence[Any] = listed if isinstance(listed, list) else []
        if self._excerpt is None:
            self._looked_at = self._raw
        self.dialect, self.count = profile.full_name, len(self._raw)
        self.findings: list[Finding] = []
        self._case: Case | None = None
        self.is_proven = self._excerpt is not None and not self._excerpt.numbers
        if self.is_proven:
            return
        named = (body or {}).get("model") or (body or {}).get("modelId")
        known = model if model is not None else named if isinstance(named, str) else None
        traits = traits_of(known)
        if not binds_reasoning:
            traits = structs.replace(traits, binds_reasoning=False)
        self._request = RequestContext(view, profile, traits, body, waiting, known, stored=stored)
        self._examine()

    def _examine(self) -> None:
        """Collect the findings, and keep the case if anything has to be repaired."""
        found = self._excerpt
        request = self._request
        if found is not None:
            request = structs.replace(request, numbers=found.numbers, ids=found.ids)
        looked_at = self._looked_at
        case = Case(request, request.dialect.read(looked_at), encoded_size(looked_at))
        self.findings, self._case = examine(case), None
        # repairing what is merely odd would change bytes of a prefix that a cache holds
        if self._only_errors and not any(found.severity == ERROR for found in self.findings):
            return
        closes = bool(case.waiting) and any(call.id in case.waiting for call in case.parts.calls)
        if closes or any(found.fixable for found in self.findings):
            self._case = case

    @cached_property
    def outcome(self) -> RepairOutcome:
        """Internal: the outcome of the repair, worked out on first use."""
        spared, looked_at = self._spared, self._looked_at
        while self._case is not None:
            found = repair_case(
                self._case, looked_at, self.findings, spared, only_errors=self._only_errors
            )
            left = any(one.severity == ERROR or not self._only_errors for one in found.remaining)
            # every message that marks a gap in the excerpt must be unchanged and in order, or the
            # messages left out there could not be put back
            excerpt, raw = self._excerpt, self._raw
            is_whole = excerpt is None
            if excerpt is not None and not left:
                gaps = excerpt.gaps
                kept = [one for one in found.messages if one.origin in gaps]
                same = [one.origin for one in kept if one.message is raw[one.origin or 0]]
                is_whole = same == sorted(gaps)
            if is_whole:
                return found if found.healed else RepairOutcome(found.remaining, healed=False)
            # the excerpt was too short: look at the whole list
            self._excerpt, self._looked_at = None, raw
            looked_at = raw
            self._examine()
        refused = (one for one in self.findings if one.severity == ERROR)
        return RepairOutcome(self.findings, healed=all(one.code in spared for one in refused))

    @property
    def remaining(self) -> list[Finding]:
        """The findings that a repair would leave; all findings if none is made."""
        return self.outcome.remaining

    @property
    def healed(self) -> bool:
        """Whether nothing is left that the provider refuses."""
        return self.outcome.healed

    @property
    def changes(self) -> list[Change]:
        """The changes that the repair would make."""
        return self.outcome.changes

    @property
    def quarantine(self) -> list[Quarantined]:
        """The values that could not stay, whole."""
        return self.outcome.quarantine

    @property
    def changed(self) -> bool:
        """Whether the healed list differs from the original."""
        return self.outcome.changed

    def __repr__(self) -> str:
        """Show the numbers of findings and changes, no content."""
        counts = f"{len(self.findings)} findings, {len(self.changes)} changes"
        state = "healed" if self.healed else f"{len(self.remaining)} findings remain"
        return f"<Plan for {self.dialect}: {counts}, {state}>"

    @cached_property
    def repaired(self) -> list[RepairedMessage]:
        """The healed messages, each with where it and its parts were in the original."""
        raw = self._raw
        if not self.outcome.changed:
            return [RepairedMessage(message, number) for number, message in enumerate(raw)]
        whole: list[RepairedMessage] = []
        gaps = {} if self._excerpt is None else self._excerpt.gaps
        for one in self.outcome.messages:
            whole.append(one)
            if one.origin in gaps:  # behind it come messages that needed no look
                behind = range(one.origin + 1, gaps[one.origin])
                whole += [RepairedMessage(raw[number], number) for number in behind]
        return whole

    @cached_property
    def plain(self) -> Any:
        """The healed value as plain data."""
        outcome, raw = self.outcome, self._raw
        if not outcome.changed:
            return self._plain
        messages: list[Any] = []
        gaps = {} if self._excerpt is None else self._excerpt.gaps
        for one in outcome.messages:
            messages.append(one.message)
            if one.origin in gaps:  # behind it come messages that needed no look
                messages += raw[one.origin + 1 : gaps[one.origin]]
        if outcome.body is None:
            return messages
        return {**outcome.body, self._profile.list_key: messages}

    @cached_property
    def messages(self) -> Any:
        """The healed value, of the kind that was handed in."""
        if not self.outcome.changed:
            # an iterator, which is spent by now, comes back as its items
            return self._value if self._freeze is None else self._freeze(self._plain, {})
        freeze = self._freeze
        return self.plain if freeze is None else freeze(self.plain, self._earlier)

    @cached_property
    def edits(self) -> list[Edit]:
        """The difference from the original, in named places with the original's coordinates."""
        root = () if type(self._plain) is dict else (self._profile.list_key,)
        return diff(self._plain, self.plain, root, self._earlier)

    @cached_property
    def _earlier(self) -> dict[int, Any]:
        """What each changed message and part was before."""
        return {key: old for one in self.outcome.messages for key, old in one.earlier.items()}


def plan_stored(
    messages: list[Any],
    dialect: str,
    model: str | None,
    spared: frozenset[str] = NONE,
) -> Plan:
    """Return the plan for messages that are kept for later, so that they may end in any way."""
    return Plan(messages, dialect, model=model, stored=True, spared=spared)


def plan_sent(
    body: dict[str, Any],
    dialect: str,
    model: str | None = None,
    *,
    strict: bool = False,
    clean: bool = False,
) -> Plan:
    """Return the plan for a request on its way out; what the provider accepts is left alone.

    Reasoning after a repaired place stays, since its author was sent the same repair. With
    ``strict`` it is dropped if the model may bind reasoning to what comes before it. ``clean`` says
    that the text of the body is known to hold no character that cannot be sent, and not to be
    large.
    """
    return Plan(body, dialect, model=model, clean=clean, binds_reasoning=strict, only_errors=True)


def repair_case(
    case: Case,
    raw: Sequence[Any],
    findings: Sequence[Finding],
    spared: frozenset[str] = NONE,
    *,
    only_errors: bool = False,
) -> RepairOutcome:
    """Repair a case; on success, ``remaining`` holds at most what no repair is meant for.

    Rules in ``spared`` are not acted upon: their findings stay and do not count as failure. With
    ``only_errors``, findings that the provider accepts stay, too, as far as a repair can tell them
    apart.
    """
    draft, remaining = RepairDraft(case), list(findings)
    for number in range(_ROUNDS):
        codes = {
            one.code
            for one in remaining
            if one.code not in spared
            and (one.severity == ERROR or (one.fixable and not only_errors))
        }
        if number and not codes:
            break
        if not number and not codes.isdisjoint(_UNSENDABLE):
            # text that cannot be encoded is cleaned in the raw data, before it is viewed
            draft = _scrubbed_draft(case, raw)
        if case.waiting:
            codes.add("LS101")
        for wanted, run in PASSES:
            if any(code.startswith(wanted) for code in codes) if wanted else draft.parts_before:
                run(draft)
        rendered = draft.render()
        # judge the outcome by the full set of rules, on a fresh view of what would be sent
        is_whole = draft.body is None and not case.traits.known
        proof = narrow(draft.dialect, draft.profile, rendered) if is_whole else None
        if proof is not None and not proof.numbers:
            remaining = []
        else:
            # the index of each message in the original; a new one gets that of the message before
            # it
            origins: list[int] = []
            for message in draft.messages:
                before = origins[-1] if origins else 0
                origins.append(before if message.index < 0 else case.number(message.index))
            request = structs.replace(
                case.request, body=draft.body, waiting=frozenset(), numbers=origins
            )
            view, size = draft.dialect.read(rendered), encoded_size(rendered)
            remaining = examine(Case(request, view, size))
    messages = trace_draft(draft, rendered, raw)
    return RepairOutcome(
        remaining=remaining,
        healed=not any(one.severity == ERROR and one.code not in spared for one in remaining),
        messages=messages,
        body=draft.body,
        changes=sorted(draft.changes, key=lambda change: change.at.order),
        quarantine=draft.ledger.quarantine,
        changed=draft.body is not case.body
        or len(messages) != len(raw)
        or any(new.message is not old for new, old in zip(messages, raw, strict=True)),
    )


def _scrubbed_draft(case: Case, raw: Sequence[Any]) -> RepairDraft:
    """Return the draft of a list whose text cannot be encoded, with that text cleaned."""
    clean: list[Any] = []
    for message in raw:
        try:
            clean.append(scrub(message))
        except RecursionError:
            clean.append(message)
    draft = RepairDraft(Case(case.request, case.dialect.read(clean), case.size))
    # from the end, since a reasoning item with such text is removed as a whole
    left = reasoning.ItemRemoval(draft)
    for index in range(len(draft.messages) - 1, -1, -1):
        view = draft.messages[index]
        if clean[index] is raw[index] or _note_scrubbed(draft, view, raw[index]):
            left.keep(view)
        else:
            left.unlink()
    left.finish()
    return draft


def _note_scrubbed(draft: RepairDraft, message: Message, old: Any) -> bool:
    """Record what was replaced in a message; return False if it goes, since reasoning was hit."""
    message.touch(CHANGED)
    note = "characters that cannot be sent became U+FFFD"
    for rule in media_rules.unsendable(old):
        draft.note(rule, "rewritten", message, note)
    originals = type(draft.dialect)().read([old])[0].parts
    kept: list[Part] = []
    for part, before in zip(message.parts, originals, strict=True):
        if part.kind == REASONING and part.raw is not before.raw:
            note = "a signed block held such characters and was dropped"
            draft.note(media_rules.LONE_SURROGATE, "removed", part, note)
            draft.set_aside(media_rules.LONE_SURROGATE, part, before.raw)
        else:
            kept.append(part)
    stays = draft.profile.layout != FLAT or len(kept) == len(message.parts)
    message.parts = kept
    return stays
