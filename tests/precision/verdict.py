"""The class of a repair, from what a client sends before and after it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .evidence import BESIDE, CLEARED, COMMANDS, COMPACTED
from .sent import Difference, Piece

# harmful: worse after it. true: something was wrong, and less is after it. harmless: the same is
# sent. unsure: other things are sent, and only a person can say whether they should be.
HARMFUL, TRUE, HARMLESS, UNSURE = "harmful", "true", "harmless", "unsure"
_WORST_FIRST = (HARMFUL, UNSURE, TRUE, HARMLESS)


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of one resume: the pieces of the request, and why it would be refused."""

    pieces: tuple[Piece, ...] = ()
    refused: tuple[str, ...] = ()
    failed: str | None = None

    @property
    def is_taken(self) -> bool:
        """Whether the client asked for the next turn, and the provider would answer."""
        return self.failed is None and not self.refused


@dataclass(frozen=True, slots=True)
class Verdict:
    """A class with the reasons for it."""

    name: str
    why: str
    changes: Difference = field(default_factory=Difference)
    reasons: Mapping[str, list[int]] = field(default_factory=dict)


def unchanged(before: Sent) -> Verdict:
    """Return the class of what is found in a file that repair leaves as it is."""
    if before.is_taken:
        return Verdict(HARMLESS, "accepted, and left as it is")
    return Verdict(TRUE, f"{_trouble(before)}, and left as it is")


def changed(
    before: Sent, after: Sent, changes: Difference, reasons: Mapping[str, list[int]]
) -> Verdict:
    """Return the class of a repair."""

    def verdict(name: str, why: str) -> Verdict:
        return Verdict(name, why, changes, reasons)

    if after.failed and before.failed:
        return verdict(UNSURE, f"{before.failed} before it, {after.failed} after it")
    old, new = _kinds(before), _kinds(after)
    if new - old:
        return verdict(HARMFUL, f"{_trouble(after)} after it")
    if old - new:
        return verdict(TRUE, f"{_trouble(before)} before it")
    on_purpose = [name for name in (CLEARED, COMPACTED, COMMANDS) if name in reasons]
    weighed = (
        (changes.less, HARMFUL, "sends less"),
        (changes.repeated, HARMFUL, "sends something twice"),
        (on_purpose, HARMFUL, f"sends what was left out on purpose: {' '.join(on_purpose)}"),
        (BESIDE in reasons, UNSURE, "sends a prompt beside another: rewound, or a second window?"),
        (changes.is_moved, UNSURE, "sends it in another order"),
        (changes.more, TRUE, "sends more"),
        (True, HARMLESS, "sends the same"),
    )
    return next(verdict(name, why) for holds, name, why in weighed if holds)


def worst(names: Iterable[str]) -> str:
    """Return the class over several clients: harm with one is harm, use with one is use."""
    names = set(names)
    return next((name for name in _WORST_FIRST if name in names), HARMLESS)


def is_right(severity: str, name: str) -> bool:
    """Whether a finding of this severity may have this class."""
    return name == (HARMLESS if severity == "note" else TRUE)


def _kinds(sent: Sent) -> set[str]:
    """Return the kinds of trouble, without their places: those shift."""
    return {
        re.sub(r"[\w.']*\d[\w.']*", "", each) for each in (*sent.refused, sent.failed or "")
    } - {""}


def _trouble(sent: Sent) -> str:
    return sent.failed or "refused"
