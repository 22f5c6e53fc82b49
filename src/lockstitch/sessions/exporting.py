"""Sessions as the messages of a request: healed, in any dialect, without secrets if asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lockstitch.conversation.json_text import dump
from lockstitch.formats.sources import Opened
from lockstitch.heal import plan_stored
from lockstitch.rules import Finding
from lockstitch.sessions.repairing import planned

if TYPE_CHECKING:
    from lockstitch.redaction import Redaction


def exported(
    stored: Opened,
    wanted: str | None,
    *,
    raw: bool = False,
    on_heal: Callable[[int], None] | None = None,
) -> tuple[list[Any], str, list[Finding]]:
    """Return the messages of a session in a dialect, that dialect, and what is still wrong.

    ``on_heal`` is called with the number of changes if the session had to be healed.
    """
    transcript = stored.transcript
    if not raw:
        repair = planned(stored)
        transcript = repair.after
        if repair.changes and on_heal is not None:
            on_heal(len(repair.changes))
    history = transcript.history
    messages: list[Any] = history.messages
    dialect = wanted or history.dialect
    if dialect.partition(":")[0] != history.dialect.partition(":")[0]:
        from lockstitch.dialects.render import render  # noqa: PLC0415 - few need it

        messages = render(messages, history.dialect, dialect)
    if raw:
        return messages, dialect, []
    plan = plan_stored(messages, dialect, history.model)
    return list(plan.plain), dialect, plan.remaining


def without_secrets(
    messages: list[Any], dialect: str, *, personal: bool = False
) -> tuple[list[Any], list[Redaction]]:
    """Give messages without secrets, still valid, and what was taken out of them."""
    from lockstitch.redaction import drop_broken_thinking, redact_value  # noqa: PLC0415 - as above

    clean, found = redact_value(messages, personal=personal)
    if dialect.startswith("anthropic"):
        clean = drop_broken_thinking(clean, found)
    return list(plan_stored(clean, dialect, None).plain), found


def encoded(messages: Sequence[Any]) -> bytes:
    """Write a JSON list with a message a line."""
    lines = ",\n".join(dump(message) for message in messages)
    return f"[\n{lines}\n]\n".encode() if lines else b"[]\n"
