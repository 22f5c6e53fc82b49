"""A conversation of LangChain messages made valid by the core, and what that took."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage, ToolMessage
from msgspec import Struct, field

from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.heal import Plan, plan_stored
from lockstitch.integrations.langgraph.repairing.identity import DUPLICATE, distinct, named
from lockstitch.integrations.langgraph.repairing.partial import EMPTY_REPLY, HALF_CALL, completed
from lockstitch.rules import Finding

DIALECT = "langchain"


class Mended(Struct):
    """A conversation after its repair, and the counts of what was done.

    ``healed`` is False where something is left that no repair is meant for: then the messages
    are those given. Untouched messages are the very objects.
    """

    messages: list[BaseMessage]
    findings: list[Finding] = field(default_factory=list)
    healed: bool = True
    synthetic: int = 0
    partial: int = 0
    duplicates: int = 0


def mended(messages: Sequence[BaseMessage]) -> Mended:
    """Make a stored conversation valid: no half call, no id twice, every call answered once."""
    whole, partial = completed(messages)
    single, doubled = distinct(whole)
    plan: Plan = plan_stored(single, DIALECT, None)
    findings = [*partial, *doubled, *plan.findings]
    if not plan.healed:
        return Mended(list(messages), findings, healed=False)
    found = named(plan.messages, messages)
    return Mended(
        found,
        findings,
        synthetic=_made_up(found, messages),
        partial=sum(f.code in (HALF_CALL, EMPTY_REPLY) for f in partial),
        duplicates=sum(f.code == DUPLICATE for f in doubled),
    )


def is_real(message: BaseMessage) -> bool:
    """Tell a tool's own result from a text that stands for one."""
    return isinstance(message, ToolMessage) and not is_placeholder(str(message.text))


def _made_up(messages: Sequence[BaseMessage], given: Sequence[BaseMessage]) -> int:
    known = {id(message) for message in given}
    return sum(
        isinstance(message, ToolMessage) and id(message) not in known and not is_real(message)
        for message in messages
    )
