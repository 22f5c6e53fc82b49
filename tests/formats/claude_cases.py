"""Every kind of session file in every layout that it has."""

from __future__ import annotations

from . import (  # noqa: F401  they register their kinds
    claude_healthy_kinds,
    claude_more_kinds,
    claude_window_kinds,
)
from .claude_files import Book, Case
from .claude_kinds import BUILDERS

CASES: list[Case] = [
    builder(Book(name, layout)) for name, layouts, builder in BUILDERS for layout in layouts
]
HEALTHY = [case for case in CASES if case.healthy]
NOTED = [case for case in CASES if case.noted]
BROKEN = [case for case in CASES if not case.healthy and not case.noted]
