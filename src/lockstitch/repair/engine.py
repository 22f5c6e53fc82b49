"""The repair engine: the passes, in the order that does not break what an earlier one repaired.

Bytes, malformed values and roles come first, then calls and results, then reasoning, then the
shape of turns, then ids, and at last the reasoning that is bound to whatever had to change.
The outcome is examined by the full set of rules; if anything is left, the original stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, structs

from lockstitch.conversation.pairing import FLAT
from lockstitch.conversation.parts import CHANGED, REASONING, Message, Part, repr_without
from lockstitch.dialects.base import scrub
from lockstitch.dialects.fast import encoded_size, narrow
from lockstitch.repair import content, identity, pairing, reasoning, turns
from lockstitch.repair import content as media
from lockstitch.repair.draft import Change, Quarantined, RepairDraft, RepairedMessage, trace_draft
from lockstitch.rules import ERROR, Case, Finding, examine
from lockstitch.rules import media as media_rules

Pass = Callable[[RepairDraft], None]
_ROUNDS = 5
_UNSENDABLE = ("LS505", "LS506")
NONE: frozenset[str] = frozenset()

# Which findings call for which pass; one without codes runs wherever there is reasoning.
PASSES: tuple[tuple[tuple[str, ...], Pass], ...] = (
    (("LS404", "LS414"), content.clear_malformed),
    (("LS416",), content.spell_results),
    (("LS412",), turns.name_roles),
    (("LS413",), content.house_parts),
    (("LS111", "LS412"), identity.list_twins),
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
    (("LS504",), media.shed_bytes),
    (("LS411",), turns.place_system),
    (("LS402", "LS403"), content.unmark_cache),
    (("LS401", "LS404"), content.fill_blanks),
    (("LS415",), content.add_text_to_documents),
    (("LS410",), turns.purify_responses),
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
    (("LS312",), reasoning.add_required),
    ((), reasoning.drop_bound),
    (("LS305", "LS209"), reasoning.allow_no_thinking),
)


class RepairOutcome(Struct):
    """What a repair came to: the new list with its origins, the body, the ledger, what is left.

    ``changed`` says that the list or the body is another one than before, ``healed`` that nothing
    is left that the provider refuses.
    """

    remaining: list[Finding]
    healed: bool
    messages: Sequence[RepairedMessage] = ()
    body: dict[str, Any] | None = None
    changes: list[Change] = []
    quarantine: list[Quarantined] = []
    changed: bool = False

    __repr__ = repr_without("messages", "body")


def repair_case(
    case: Case,
    raw: Sequence[Any],
    findings: Sequence[Finding],
    spared: frozenset[str] = NONE,
    *,
    only_errors: bool = False,
) -> RepairOutcome:
    """Repair a case; on success ``remaining`` holds at most what no repair is meant for.

    Rules in ``spared`` are not acted upon: what they find stays, and does not count as failure.
    With ``only_errors`` neither is what the provider takes, as far as a repair can tell it apart.
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
            # text that cannot be encoded is cleaned in the raw data, before the view
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
            # each message's place in the original; a new one counts as the one before it
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
    """Make the draft of a list with text that cannot be encoded."""
    clean: list[Any] = []
    for message in raw:
        try:
            clean.append(scrub(message))
        except RecursionError:
            clean.append(message)
    draft = RepairDraft(Case(case.request, case.dialect.read(clean), case.size))
    # from the end, since a reasoning item that is hit goes as a whole
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
    """Note what was replaced in a message; False if it goes, since reasoning was hit."""
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
