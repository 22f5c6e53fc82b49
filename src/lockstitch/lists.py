"""Message lists in, findings, plans or healed lists out: the functions people call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from lockstitch.dialects.detect import dialect_of, new_dialect
from lockstitch.dialects.models import traits_of
from lockstitch.dialects.profiles import Profile, profile_named
from lockstitch.errors import Unhealed, UsageError
from lockstitch.kinds import Freeze, is_plain, thaw
from lockstitch.repair.edits import Edit, diff
from lockstitch.repair.engine import Outcome, mend
from lockstitch.repair.ledger import Change, Quarantined
from lockstitch.rules import ERROR, RULES, Case, Finding, Request, Rule, examine


class Plan:
    """What is wrong with a list, what would be done about it, and the healed list.

    ``messages`` is in the kind that was given; where nothing had to change it is the very object.
    If something cannot be mended, ``remaining`` says what, and ``messages`` is the original.
    """

    def __init__(self, given: _Given, findings: list[Finding], outcome: Outcome | None) -> None:
        self.dialect = given.profile.full_name
        self.findings = findings
        self.remaining: list[Finding] = findings if outcome is None else outcome.remaining
        self.healed = not any(finding.severity == ERROR for finding in self.remaining)
        self.changes: list[Change] = outcome.changes if outcome else []
        self.quarantine: list[Quarantined] = outcome.quarantine if outcome else []
        self._given = given
        self._outcome = outcome if self.healed else None

    @property
    def changed(self) -> bool:
        """Tell whether the healed list differs from the one given."""
        return self._outcome is not None and self._outcome_differs(self._outcome)

    def _outcome_differs(self, outcome: Outcome) -> bool:
        before = self._given.raw
        same = len(before) == len(outcome.messages) and all(
            new is old for new, old in zip(outcome.messages, before, strict=True)
        )
        return not same or outcome.body is not self._given.body

    @cached_property
    def plain(self) -> Any:
        """The healed value as plain data."""
        if self._outcome is None or not self.changed:
            return self._given.plain
        return self._given.wrapped(self._outcome.messages, self._outcome.body)

    @cached_property
    def messages(self) -> Any:
        """The healed value in the kind that was given."""
        if self._outcome is None or not self.changed:
            return self._given.unchanged
        return self._given.freeze(self.plain)

    @cached_property
    def edits(self) -> list[Edit]:
        """The difference in named places, in the original's coordinates."""
        root = () if self._given.body is not None else (self._given.profile.list_key,)
        return diff(self._given.plain, self.plain, root)


def heal(
    messages: Any,
    dialect: str | None = None,
    *,
    model: str | None = None,
    waiting: Iterable[str] = (),
) -> Any:
    """Make a message list (or a whole request body) one that the provider accepts.

    ``dialect`` is detected if it is unambiguous; ``model`` sharpens the rules that depend on it.
    ``waiting`` names calls that wait on purpose: they are closed in the copy that is returned.
    A list in which nothing is wrong comes back as the same object, and untouched messages are
    shared. What cannot be made valid comes back as it was, with an ``Unhealed`` warning.
    """
    given = _Given(messages, dialect, model, waiting)
    if given.is_certainly_valid:
        return messages
    made = _planned(given)
    if not made.healed:
        codes = ", ".join(sorted({finding.code for finding in made.remaining}))
        text = f"this list could not be made valid ({codes}); the original was returned"
        warnings.warn(text, Unhealed, stacklevel=2)
    return made.messages


def check(
    messages: Any,
    dialect: str | None = None,
    *,
    model: str | None = None,
    waiting: Iterable[str] = (),
) -> list[Finding]:
    """Say what the provider would reject in a message list, and why; changes nothing."""
    given = _Given(messages, dialect, model, waiting)
    return [] if given.is_certainly_valid else examine(given.case())


def plan(
    messages: Any,
    dialect: str | None = None,
    *,
    model: str | None = None,
    waiting: Iterable[str] = (),
) -> Plan:
    """Work out the repair of a message list, without applying it to anything."""
    return _planned(_Given(messages, dialect, model, waiting))


def detect(messages: Any) -> str:
    """Tell which dialect a list or body is written in; raises if several fit."""
    plain = messages if is_plain(messages) else thaw(messages)[0]
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


def _planned(given: _Given) -> Plan:
    if given.is_certainly_valid:
        return Plan(given, [], None)
    case = given.case()
    findings = examine(case)
    open_waiting = bool(given.waiting) and _closes_waiting(case)
    if not open_waiting and not any(finding.fixable for finding in findings):
        return Plan(given, findings, None)
    return Plan(given, findings, mend(case, given.raw, findings))


def _closes_waiting(case: Case) -> bool:
    return any(call.id in case.waiting for call in case.parts.calls)


class _Given:
    """One call's input: the list, the body around it, and what is known of the receiver."""

    def __init__(
        self, value: Any, dialect: str | None, model: str | None, waiting: Iterable[str]
    ) -> None:
        self.value = value
        self.plain: Any = value
        self.freeze: Freeze = _as_it_is
        self.waiting = frozenset(waiting)
        if dialect is not None and model is None and self._is_proven(profile_named(dialect)):
            self.is_certainly_valid = True
            return
        self.is_certainly_valid = False
        if not is_plain(value):
            self.plain, self.freeze = thaw(value)
        self.profile = profile_named(dialect or dialect_of(self.plain))
        self.body, self.raw = _opened(self.plain, self.profile.list_key)
        self.model = model if model is not None else _model_in(self.body)
        self.traits = traits_of(self.model)

    def _is_proven(self, profile: Profile) -> bool:
        """Prove at a glance that there is nothing to do, if that can be done."""
        if type(self.value) is not list or self.waiting:
            return False
        if not new_dialect(profile.dialect).certainly_valid(self.value, profile):
            return False
        self.profile = profile
        self.body, self.raw = None, self.value
        return True

    @property
    def unchanged(self) -> Any:
        """What was given; an iterator, which is spent by now, comes back as its items."""
        return self.value if self.freeze is _as_it_is else self.freeze(self.plain)

    def case(self) -> Case:
        """View the list for the rules."""
        dialect = new_dialect(self.profile.dialect)
        request = Request(dialect, self.profile, self.traits, self.body, self.waiting, self.model)
        return Case(request, dialect.read(self.raw))

    def wrapped(self, messages: list[Any], body: dict[str, Any] | None) -> Any:
        """Put a healed list back where it came from."""
        if body is None:
            return messages
        return {**body, self.profile.list_key: messages}


def _as_it_is(value: Any) -> Any:
    return value


def _opened(value: Any, list_key: str) -> tuple[dict[str, Any] | None, Sequence[Any]]:
    if isinstance(value, list):
        return None, value
    if isinstance(value, dict) and isinstance(value.get(list_key), list):
        return value, value[list_key]
    raise UsageError(
        f"expected a list of messages or a request body with a list under {list_key!r}, "
        f"got {type(value).__name__}"
    )


def _model_in(body: dict[str, Any] | None) -> str | None:
    model = (body or {}).get("model") or (body or {}).get("modelId")
    return model if isinstance(model, str) else None
