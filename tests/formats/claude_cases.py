"""Every kind of session file in every layout that it has."""

from __future__ import annotations

from . import claude_healthy_kinds, claude_more_kinds  # noqa: F401  they register their kinds
from .claude_files import Book, Case
from .claude_kinds import BUILDERS

CASES: list[Case] = [
    builder(Book(name, layout)) for name, layouts, builder in BUILDERS for layout in layouts
]
HEALTHY = [case for case in CASES if case.healthy]
BROKEN = [case for case in CASES if not case.healthy]
