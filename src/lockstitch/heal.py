"""heal, check, plan, detect and explain: message lists in, findings, plans or healed lists out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from msgspec import structs

from lockstitch.conversation.message_list import MessageList
from lockstitch.conversation.sdk_objects import FromPlain, is_plain, to_plain
from lockstitch.dialects.fast import Excerpt, narrow
from lockstitch.dialects.profiles import Profile, profile_named, traits_of
from lockstitch.dialects.registry import dialect_of, new_dialect
from lockstitch.errors import Unhealed, UsageError
from lockstitch.repair.draft import Change, Quarantined, RepairedMessage, earlier_forms
from lockstitch.repair.edits import Edit, diff
from lockstitch.repair.engine import NONE, RepairOutcome, repair_case
from lockstitch.rules import ERROR, RULES, Case, Finding, RequestContext, Rule, examine


class HealInput:
    """One call's input, opened: the raw list, the body around it, and the receiver.

    Where a quick walk can tell, ``excerpt`` holds the part of the list that needs a look; an
    excerpt of nothing proves that the list is fine. ``clean`` says that it is known to hold no
    text that cannot be sent, and not to be large.
    """

    def __init__(  # noqa: PLR0913 - the last ones by keyword
        self,
        value: Any,
        dialect: str | None,
        model: str | None,
        waiting: Iterable[str],
        *,
        stored: bool = False,
        clean: bool = False,
    ) -> None:
        self.value = value
        self.clean = clean
        self.stored = stored
        self.plain: Any = list(value) if type(value) is MessageList else value
        self.freeze: FromPlain | None = None
        if isinstance(waiting, str) or not isinstance(waiting, Iterable):
            raise UsageError("waiting takes a collection of call ids, such as {'toolu_1'}")
        self.waiting = frozenset(waiting)
        self.excerpt: Excerpt | None = None
        if dialect is not None:
            self.excerpt = self._excerpt(profile_named(dialect), model)
        if self.excerpt is None and not is_plain(self.plain):
            self.plain, self.freeze = to_plain(value)
        self.profile = profile_named(dialect or dialect_of(self.plain))
        key, plain = self.profile.list_key, self.plain
        self.body: dict[str, Any] | None = plain if isinstance(plain, dict) else None
        listed = plain.get(key) if self.body is not None else plain
        if not isinstance(listed, list) and (self.body is None or not isinstance(listed, str)):
            raise UsageError(
                f"expected a list of messages or a request body with a list under {key!r}, "
                f"got {type(plain).__name__}"
            )
        self.raw: Sequence[Any] = listed if isinstance(listed, list) else []
        named = (self.body or {}).get("model") or (self.body or {}).get("modelId")
        self.model = model if model is not None else named if isinstance(named, str) else None
        self.traits = traits_of(self.model)
        if dialect is None and self.freeze is None:
            self.excerpt = self._excerpt(self.profile, model)

    def _excerpt(self, profile: Profile, model: str | None) -> Excerpt | None:
        """Narrow a list down, where no rule on the whole request needs to see all of it."""
        value = self.plain
        body = value if type(value) is dict else None
        raw = value.get(profile.list_key) if body is not None else value
        # without tools a call anywhere counts, so that all of the list has to be seen
        lacks_tools = body is not None and profile.tools_needed and not body.get("tools")
        if self.waiting or type(raw) is not list or lacks_tools:
            return None
        ends = not self.stored and (body is not None or model is not None)
        dialect = new_dialect(profile.dialect)
        found = narrow(dialect, profile, raw, with_ends=ends, clean=self.clean)
        if found is None or not is_plain([raw[number] for number in found.numbers]):
            return None
        return found

    @property
    def is_proven(self) -> bool:
        """Whether it is proven already that nothing is wrong."""
        return self.excerpt is not None and not self.excerpt.numbers

    @property
    def unchanged(self) -> Any:
        """What was given; an iterator, which is spent by now, comes back as its items."""
        return self.value if self.freeze is None else self.freeze(self.plain, {})

    @property
    def looked_at(self) -> Sequence[Any]:
        """The raw messages that need a look."""
        if self.excerpt is None:
            return self.raw
        return [self.raw[number] for number in self.excerpt.numbers]

    def case(self) -> Case:
        """View what needs a look, for the rules."""
        dialect = new_dialect(self.profile.dialect)
        request = RequestContext(
            dialect,
            self.profile,
            self.traits,
            self.body,
            self.waiting,
            self.model,
            stored=self.stored,
        )
        if self.excerpt is not None:
            request = structs.replace(request, numbers=self.excerpt.numbers, ids=self.excerpt.ids)
        return Case(request, dialect.read(self.looked_at))

    def can_be_whole(self, outcome: RepairOutcome) -> bool:
        """Whether what was left out can be put back between the messages of a repair."""
        if self.excerpt is None:
            return True
        raw = self.raw
        return self.excerpt.keeps_seams(
            one.origin
            for one in outcome.messages
            if one.origin is not None and one.message is raw[one.origin]
        )


class Plan:
    """What is wrong with a list, what would be done about it, and the healed list.

    ``messages`` is in the kind that was given; where nothing had to change it is the very object.
    If something cannot be repaired, ``remaining`` says what, and ``messages`` is the original.
    Who only asks for the ``findings`` has no repair worked out.
    """

    def __init__(
        self, given: HealInput, spared: frozenset[str] = NONE, *, only_errors: bool = False
    ) -> None:
        self.dialect = given.profile.full_name
        self.findings: list[Finding] = []
        self._given = given
        self._spared = spared
        self._only_errors = only_errors
        self._case = self._examined()

    def _examined(self) -> Case | None:
        """List what is wrong, and return what has to be repaired; None if nothing has to be."""
        self.findings = []
        if self._given.is_proven:
            return None
        case = self._given.case()
        self.findings = examine(case)
        # to repair what is only odd would change bytes of a prefix that a cache holds
        if self._only_errors and not any(found.severity == ERROR for found in self.findings):
            return None
        closes = bool(case.waiting) and any(call.id in case.waiting for call in case.parts.calls)
        return case if closes or any(found.fixable for found in self.findings) else None

    @cached_property
    def _attempt(self) -> RepairOutcome | None:
        """What the repair comes to, worked out when somebody asks; None if there is none."""
        while self._case is not None:
            given, sent = self._given, self._only_errors
            found = repair_case(
                self._case, given.looked_at, self.findings, self._spared, only_errors=sent
            )
            left = any(one.severity == ERROR or not sent for one in found.remaining)
            if given.excerpt is None or not (left or not given.can_be_whole(found)):
                return found
            # the excerpt was too short: the whole list has to be seen
            given.excerpt = None
            self._case = self._examined()
        return None

    @cached_property
    def remaining(self) -> list[Finding]:
        """What a repair would leave: all of it where none is made."""
        attempt = self._attempt
        return self.findings if attempt is None else attempt.remaining

    @cached_property
    def healed(self) -> bool:
        """Whether nothing is left that the provider refuses."""
        return not any(
            found.severity == ERROR and found.code not in self._spared for found in self.remaining
        )

    @property
    def _outcome(self) -> RepairOutcome | None:
        return self._attempt if self.healed else None

    @cached_property
    def changes(self) -> list[Change]:
        """What would be done."""
        return self._outcome.changes if self._outcome else []

    @cached_property
    def quarantine(self) -> list[Quarantined]:
        """What could not stay, whole."""
        return self._outcome.quarantine if self._outcome else []

    def __repr__(self) -> str:
        """Count what was found and what would be done; no content."""
        counts = f"{len(self.findings)} findings, {len(self.changes)} changes"
        state = "healed" if self.healed else f"{len(self.remaining)} findings remain"
        return f"<Plan for {self.dialect}: {counts}, {state}>"

    @property
    def count(self) -> int:
        """How many messages were given."""
        return len(self._given.raw)

    @cached_property
    def changed(self) -> bool:
        """Whether the healed list differs from the one given."""
        outcome, before = self._outcome, self._given.looked_at
        if outcome is None:
            return False
        same = len(before) == len(outcome.messages) and all(
            new.message is old for new, old in zip(outcome.messages, before, strict=True)
        )
        return not same or outcome.body is not self._given.body

    @cached_property
    def repaired(self) -> list[RepairedMessage]:
        """The healed messages, each with where it and its parts were in the list given."""
        raw = self._given.raw
        if self._outcome is None or not self.changed:
            return [RepairedMessage(message, number) for number, message in enumerate(raw)]
        whole: list[RepairedMessage] = []
        gaps = self._given.excerpt.gaps if self._given.excerpt is not None else {}
        for one in self._outcome.messages:
            whole.append(one)
            if one.origin in gaps:  # behind it come messages that needed no look
                behind = range(one.origin + 1, gaps[one.origin])
                whole += [RepairedMessage(raw[number], number) for number in behind]
        return whole

    @cached_property
    def plain(self) -> Any:
        """The healed value as plain data."""
        outcome, raw = self._outcome, self._given.raw
        if outcome is None or not self.changed:
            return self._given.plain
        messages: list[Any] = []
        gaps = self._given.excerpt.gaps if self._given.excerpt is not None else {}
        for one in outcome.messages:
            messages.append(one.message)
            if one.origin in gaps:  # behind it come messages that needed no look
                messages += raw[one.origin + 1 : gaps[one.origin]]
        if outcome.body is None:
            return messages
        return {**outcome.body, self._given.profile.list_key: messages}

    @cached_property
    def messages(self) -> Any:
        """The healed value in the kind that was given."""
        if not self.changed:
            return self._given.unchanged
        freeze = self._given.freeze
        return self.plain if freeze is None else freeze(self.plain, self._earlier)

    @cached_property
    def edits(self) -> list[Edit]:
        """The difference in named places, in the original's coordinates."""
        root = () if self._given.body is not None else (self._given.profile.list_key,)
        return diff(self._given.plain, self.plain, root, self._earlier)

    @cached_property
    def _earlier(self) -> dict[int, Any]:
        """What each changed message and part was before."""
        changed = self._outcome.messages if self._outcome is not None else ()
        return earlier_forms(changed, self._given.raw)


def heal(  # noqa: PLR0913 - options, all by name
    messages: Any,
    dialect: str | None = None,
    *,
    model: str | None = None,
    waiting: Iterable[str] = (),
    strict: bool = False,
    on_heal: Callable[[Plan], object] | None = None,
) -> Any:
    """Make a message list (or a whole request body) one that the provider accepts.

    ``dialect`` is detected if it is unambiguous; ``model`` sharpens the rules that depend on it.
    ``waiting`` names calls that wait on purpose: they are closed in the copy that is returned.
    A list in which nothing is wrong comes back as the same object, and untouched messages are
    shared. What cannot be made valid comes back as it was, with an ``Unhealed`` warning; with
    ``strict`` that is raised.

    Whenever something was wrong, the logger ``lockstitch`` is told the codes and the places, never
    any content, and ``on_heal`` is called with the plan.
    """
    given = HealInput(messages, dialect, model, waiting)
    if given.is_proven:  # nearly every request: not even a plan is made
        return given.unchanged
    made = Plan(given)
    if made.findings or made.changes:
        import logging  # noqa: PLC0415 - a list in which nothing is wrong needs no log

        log = logging.getLogger("lockstitch")
        for change in made.changes:
            log.info("%s: %s %s at %s", made.dialect, change.code, change.action, change.place)
        for finding in made.remaining:
            log.info("%s: %s remains at %s", made.dialect, finding.code, finding.place)
        if on_heal is not None:
            on_heal(made)
    if not made.healed:
        codes = tuple(sorted({finding.code for finding in made.remaining}))
        problem = f"this list could not be made valid ({', '.join(codes)})"
        if strict:
            raise Unhealed(f"{problem}; nothing was changed", codes)
        warnings.warn(Unhealed(f"{problem}; the original was returned", codes), stacklevel=2)
    return made.messages


def check(
    messages: Any,
    dialect: str | None = None,
    *,
    model: str | None = None,
    waiting: Iterable[str] = (),
) -> list[Finding]:
    """Return what the provider would reject in a message list, and why; changes nothing."""
    return plan(messages, dialect, model=model, waiting=waiting).findings


def plan(
    messages: Any,
    dialect: str | None = None,
    *,
    model: str | None = None,
    waiting: Iterable[str] = (),
) -> Plan:
    """Work out the repair of a message list, without applying it to anything."""
    return Plan(HealInput(messages, dialect, model, waiting))


def detect(messages: Any) -> str:
    """Return which dialect a list or body is written in; raises if several fit."""
    plain = messages if is_plain(messages) else to_plain(messages)[0]
    return dialect_of(plain)


def explain(code: str) -> Rule:
    """Look a rule up by its code or its name."""
    wanted = code.strip()
    found = RULES.get(wanted.upper())
    if found is None:
        found = next((rule for rule in RULES.values() if rule.name == wanted.lower()), None)
    if found is None:
        raise UsageError(f"no rule {code!r}; `lockstitch explain` lists them all")
    return found


def plan_stored(
    messages: list[Any], dialect: str, model: str | None, spared: frozenset[str] = NONE
) -> Plan:
    """Work out the repair of a history that is kept for later: it may end as it likes."""
    return Plan(HealInput(messages, dialect, model, (), stored=True), spared)


def plan_request(body: dict[str, Any], dialect: str, spared: frozenset[str] = NONE) -> Plan:
    """Work out the repair of a request that is kept in a file, but for some rules."""
    return Plan(HealInput(body, dialect, None, ()), spared)


def plan_sent(
    body: dict[str, Any],
    dialect: str,
    model: str | None = None,
    *,
    strict: bool = False,
    clean: bool = False,
) -> Plan:
    """Work out the repair of a request on its way out: what the provider takes is left alone.

    Reasoning behind a repaired place stays, since whoever wrote it was sent the same repair;
    with ``strict`` it is dropped where the model is one that may be bound to what was before it.
    ``clean`` says that the text of the body is known to hold no character that cannot be sent,
    and not to be large.
    """
    given = HealInput(body, dialect, model, (), clean=clean)
    if not strict:
        given.traits = structs.replace(given.traits, binds_reasoning=False)
    return Plan(given, only_errors=True)
