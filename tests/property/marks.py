"""Marks: every generated text gets a number of its own, so that loss can be counted.

A strategy writes ``<T§>`` where the number goes.
T is text and real results, A arguments, R reasoning, U what no provider has heard of.
"""

from __future__ import annotations

import re
from itertools import count
from typing import Any

from tests.dump import dump

MARK = re.compile(r"<[TARU]\d+>")


def number(value: Any) -> Any:
    """A copy of *value* in which every ``§`` is a number that occurs once."""
    numbers = count(1)
    return _numbered(value, numbers)


def _numbered(value: Any, numbers: Any) -> Any:
    if isinstance(value, str):
        return re.sub("§", lambda _: str(next(numbers)), value)
    if isinstance(value, list):
        return [_numbered(item, numbers) for item in value]
    if isinstance(value, dict):
        return {key: _numbered(item, numbers) for key, item in value.items()}
    return value


def marks(value: Any) -> set[str]:
    """All marks below *value*."""
    return set(MARK.findall(dump(value)))
