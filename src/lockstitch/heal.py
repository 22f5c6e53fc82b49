"""heal, check, plan, detect and explain: message lists in, findings, plans or healed lists out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from lockstitch.conversation.sdk_objects import is_plain, to_plain
from lockstitch.dialects.recognize import dialect_of
from lockstitch.errors import Unhealed, UsageError
from lockstitch.repair.plan import Plan
from lockstitch.rules import RULES, Finding, Rule


def heal(  # noqa: PLR0913 - options, all by name
    messages: Any,
    dialect: str | None = None,
    *,
    model: str | None = None,
    waiting: Iterable[str] = (),
    strict: bool = False,
    on_heal: Callable[[Plan], object] | None = None,
) -> Any:
    """Return a message list (or a whole request body) that the provider accepts.

    ``dialect`` is detected if it is unambiguous; ``model`` adjusts the rules that depend on it.
    ``waiting`` names calls that wait on purpose: they are closed in the copy that is returned. A
    list in which nothing is wrong comes back as the same object, and untouched messages are shared.
    A list that cannot be made valid comes back unchanged, with an ``Unhealed`` warning; with
    ``strict`` the warning is raised as an error.

    Whenever something was wrong, the codes and the places, never any content, are logged to
    ``lockstitch``, and ``on_heal`` is called with the plan.
    """
    made = Plan(messages, dialect, model=model, waiting=waiting)
    if made.is_proven:  # nearly every request: there is nothing to log
        return made.messages
    outcome = made.outcome
    if made.findings or outcome.changes:
        import logging  # noqa: PLC0415 - a list in which nothing is wrong needs no log

        log = logging.getLogger("lockstitch")
        for change in outcome.changes:
            log.info("%s: %s %s at %s", made.dialect, change.code, change.action, change.place)
        for finding in outcome.remaining:
            log.info("%s: %s remains at %s", made.dialect, finding.code, finding.place)
        if on_heal is not None:
            on_heal(made)
    if not outcome.healed:
        codes = tuple(sorted({finding.code for finding in outcome.remaining}))
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
    """Return what the provider would reject in a message list, and why; nothing is changed."""
    return plan(messages, dialect, model=model, waiting=waiting).findings


def plan(
    messages: Any,
    dialect: str | None = None,
    *,
    model: str | None = None,
    waiting: Iterable[str] = (),
) -> Plan:
    """Return the repair plan for a message list; nothing is changed."""
    return Plan(messages, dialect, model=model, waiting=waiting)


def detect(messages: Any) -> str:
    """Return the dialect of a list or body; raise AmbiguousDialect unless exactly one fits."""
    plain = messages if is_plain(messages) else to_plain(messages)[0]
    return dialect_of(plain)


def explain(code: str) -> Rule:
    """Return the rule with this code or name; raise UsageError if there is none."""
    wanted = code.strip()
    found = RULES.get(wanted.upper())
    if found is None:
        found = next((rule for rule in RULES.values() if rule.name == wanted.lower()), None)
    if found is None:
        raise UsageError(f"no rule {code!r}; `lockstitch explain` lists them all")
    return found
