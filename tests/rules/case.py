"""What a case is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Case:
    """A list (or body) that breaks one rule at one place, and its nearest neighbour that does not.

    ``error`` is what the provider says, to the letter: None where the catalogue knows no wording,
    ``...`` where nobody has quoted one. With ``offset`` it goes on with an offset into bytes that
    only the sender of the request knows.
    ``severity`` is given where this place is judged otherwise than the rule in general.
    ``loses`` says that the repair cannot keep everything; ``also`` names the other rules that the
    same list breaks, each with the reason why it cannot be written without.
    """

    code: str
    dialect: str
    broken: Any
    whole: Any
    place: str
    error: str | EllipsisType | None = None
    offset: bool = False
    model: str | None = None
    loses: bool = False
    fixable: bool = True
    severity: str = ""
    note: str = ""
    also: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.code, self.dialect, self.model, self.note)))
