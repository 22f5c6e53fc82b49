"""A plan: what is wrong with a list, what would be done about it, and the healed list.

It is made for a request on its way out and for a stored history alike. Only the few messages that
need a look are viewed, and a repair is worked out only when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from msgspec import structs

from lockstitch.conversation.parts import MessageList
from lockstitch.conversation.sdk_objects import FromPlain, is_plain, to_plain
from lockstitch.dialects.fast import Excerpt, narrow
from lockstitch.dialects.profiles import profile_named, traits_of
from lockstitch.dialects.registry import CLASSES, dialect_of
from lockstitch.errors import UsageError
from lockstitch.repair.draft import Change, Quarantined, RepairedMessage, earlier_forms
from lockstitch.repair.edits import Edit, diff
from lockstitch.repair.engine import NONE, RepairOutcome, repair_case
from lockstitch.rules import ERROR, Case, Finding, RequestContext, examine


class Original:
    """What somebody handed in, opened: the raw list, the body around it, and the receiver.

    Where a quick walk can tell, ``excerpt`` holds the part of the list that needs a look, and
    ``looked_at`` its messages; where nothing does, the list ``is_proven`` to be fine. ``clean``
    says that it is known to hold no text that cannot be sent, and not to be large.
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
        self.stored = stored
        self.plain: Any = list(value) if type(value) is MessageList else value
        self.freeze: FromPlain | None = None
        if isinstance(waiting, str) or not isinstance(waiting, Iterable):
            raise UsageError("waiting takes a collection of call ids, such as {'toolu_1'}")
        self.waiting = frozenset(waiting)
        profile = None if dialect is None else profile_named(dialect)
        if profile is None:
            if not is_plain(self.plain):
                self.plain, self.freeze = to_plain(value)
            profile = profile_named(dialect_of(self.plain))
        self.profile = profile
        self.dialect = CLASSES[profile.dialect]()
        self.excerpt: Excerpt | None = None
        plain = self.plain
        body = plain if type(plain) is dict else None
        raw = plain if body is None else plain.get(profile.list_key)
        # without tools a call anywhere counts, so that all of the list has to be seen
        lacks_tools = body is not None and profile.tools_needed and not body.get("tools")
        if type(raw) is list and self.freeze is None and not self.waiting and not lacks_tools:
            ends = not stored and (body is not None or model is not None)
            found = narrow(self.dialect, profile, raw, with_ends=ends, clean=clean)
            if found is not None:
                self.looked_at: Sequence[Any] = [raw[number] for number in found.numbers]
                self.excerpt = found if is_plain(self.looked_at) else None
        if self.excerpt is None and dialect is not None and not is_plain(plain):
            self.plain, self.freeze = to_plain(value)
            plain = self.plain
        self.body: dict[str, Any] | None = plain if isinstance(plain, dict) else None
        listed = plain if self.body is None else plain.get(profile.list_key)
        if not isinstance(listed, list) and (self.body is None or not isinstance(listed, str)):
            raise UsageError(
                f"expected a list of messages or a request body with a list under "
                f"{profile.list_key!r}, got {type(plain).__name__}"
            )
        self.raw: Sequence[Any] = listed if isinstance(listed, list) else []
        if self.excerpt is None:
            self.looked_at = self.raw
        self.is_proven = self.excerpt is not None and not self.excerpt.numbers
        named = (self.body or {}).get("model") or (self.body or {}).get("modelId")
        self.model = model if model is not None else named if isinstance(named, str) else None
        self.traits = traits_of(self.model)

    @property
    def unchanged(self) -> Any:
        """What was handed in; an iterator, which is spent by now, comes back as its items."""
        return self.value if self.freeze is None else self.freeze(self.plain, {})

    def case(self) -> Case:
        """View what needs a look, for the rules."""
        excerpt = self.excerpt
        request = RequestContext(
            self.dialect,
            self.profile,
            self.traits,
            self.body,
            self.waiting,
            self.model,
            None if excerpt is None else excerpt.numbers,
            frozenset() if excerpt is None else excerpt.ids,
            self.stored,
        )
        return Case(request, self.dialect.read(self.looked_at))

    def can_be_whole(self, outcome: RepairOutcome) -> bool:
        """Whether all that was left out can be put back behind the messages of a repair."""
        if self.excerpt is None:
            return True
        raw, gaps = self.raw, self.excerpt.gaps
        kept = [one for one in outcome.messages if one.origin in gaps]
        return [one.origin for one in kept if one.message is raw[one.origin or 0]] == sorted(gaps)


class Plan:
    """What is wrong with a list, what would be done about it, and the healed list.

    ``messages`` is of the kind that was handed in; where nothing had to change it is the very
    object. If something cannot be repaired, ``remaining`` says what, and ``messages`` is the
    original. Who only asks for the ``findings`` has no repair worked out.
    """

    def __init__(
        self, original: Original, spared: frozenset[str] = NONE, *, only_errors: bool = False
    ) -> None:
        self.dialect = original.profile.full_name
        self.findings: list[Finding] = []
        self._original = original
        self._spared = spared
        self._only_errors = only_errors
        self._case = None if original.is_proven else self._examine()

    def _examine(self) -> Case | None:
        """List what is wrong, and return what has to be repaired; None if nothing has to be."""
        case = self._original.case()
        self.findings = examine(case)
        # to repair what is only odd would change bytes of a prefix that a cache holds
        if self._only_errors and not any(found.severity == ERROR for found in self.findings):
            return None
        closes = bool(case.waiting) and any(call.id in case.waiting for call in case.parts.calls)
        return case if closes or any(found.fixable for found in self.findings) else None

    @cached_property
    def outcome(self) -> RepairOutcome:
        """Internal: what the repair comes to, worked out when somebody asks for it."""
        original, spared = self._original, self._spared
        while self._case is not None:
            found = repair_case(
                self._case, original.looked_at, self.findings, spared, only_errors=self._only_errors
            )
            left = any(one.severity == ERROR or not self._only_errors for one in found.remaining)
            if original.excerpt is None or (not left and original.can_be_whole(found)):
                return found if found.healed else RepairOutcome(found.remaining, healed=False)
            # the excerpt was too short: the whole list has to be seen
            original.excerpt, original.looked_at = None, original.raw
            self._case = self._examine()
        refused = (one for one in self.findings if one.severity == ERROR)
        return RepairOutcome(self.findings, healed=all(one.code in spared for one in refused))

    @property
    def remaining(self) -> list[Finding]:
        """What a repair would leave: all of it where none is made."""
        return self.outcome.remaining

    @property
    def healed(self) -> bool:
        """Whether nothing is left that the provider refuses."""
        return self.outcome.healed

    @property
    def changes(self) -> list[Change]:
        """What would be done."""
        return self.outcome.changes

    @property
    def quarantine(self) -> list[Quarantined]:
        """What could not stay, whole."""
        return self.outcome.quarantine

    @property
    def changed(self) -> bool:
        """Whether the healed list is another one than the original."""
        return self.outcome.changed

    @property
    def count(self) -> int:
        """How many messages were handed in."""
        return len(self._original.raw)

    def __repr__(self) -> str:
        """Count what was found and what would be done; no content."""
        counts = f"{len(self.findings)} findings, {len(self.changes)} changes"
        state = "healed" if self.healed else f"{len(self.remaining)} findings remain"
        return f"<Plan for {self.dialect}: {counts}, {state}>"

    @cached_property
    def repaired(self) -> list[RepairedMessage]:
        """The healed messages, each with where it and its parts were in the original."""
        raw = self._original.raw
        if not self.outcome.changed:
            return [RepairedMessage(message, number) for number, message in enumerate(raw)]
        whole: list[RepairedMessage] = []
        gaps = {} if self._original.excerpt is None else self._original.excerpt.gaps
        for one in self.outcome.messages:
            whole.append(one)
            if one.origin in gaps:  # behind it come messages that needed no look
                behind = range(one.origin + 1, gaps[one.origin])
                whole += [RepairedMessage(raw[number], number) for number in behind]
        return whole

    @cached_property
    def plain(self) -> Any:
        """The healed value as plain data."""
        outcome, raw = self.outcome, self._original.raw
        if not outcome.changed:
            return self._original.plain
        messages: list[Any] = []
        gaps = {} if self._original.excerpt is None else self._original.excerpt.gaps
        for one in outcome.messages:
            messages.append(one.message)
            if one.origin in gaps:  # behind it come messages that needed no look
                messages += raw[one.origin + 1 : gaps[one.origin]]
        if outcome.body is None:
            return messages
        return {**outcome.body, self._original.profile.list_key: messages}

    @cached_property
    def messages(self) -> Any:
        """The healed value in the kind that was handed in."""
        if not self.outcome.changed:
            return self._original.unchanged
        freeze = self._original.freeze
        return self.plain if freeze is None else freeze(self.plain, self._earlier)

    @cached_property
    def edits(self) -> list[Edit]:
        """The difference in named places, in the original's coordinates."""
        root = () if self._original.body is not None else (self._original.profile.list_key,)
        return diff(self._original.plain, self.plain, root, self._earlier)

    @cached_property
    def _earlier(self) -> dict[int, Any]:
        """What each changed message and part was before."""
        return earlier_forms(self.outcome.messages, self._original.raw)


def plan_stored(
    messages: list[Any], dialect: str, model: str | None, spared: frozenset[str] = NONE
) -> Plan:
    """Work out the repair of a history that is kept for later: it may end as it likes."""
    return Plan(Original(messages, dialect, model, (), stored=True), spared)


def plan_request(body: dict[str, Any], dialect: str, spared: frozenset[str] = NONE) -> Plan:
    """Work out the repair of a request that is kept in a file, but for some rules."""
    return Plan(Original(body, dialect, None, ()), spared)


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
    original = Original(body, dialect, model, (), clean=clean)
    if not strict:
        original.traits = structs.replace(original.traits, binds_reasoning=False)
    return Plan(original, only_errors=True)
