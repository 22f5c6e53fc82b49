"""Whether the id of a test is the same in every process, as workers that share tests need it.

What looks random, like the time, an address or a folder of this run, has to stand in the source
of the tests word for word. Sets are no concern: their order is that of the hash seed, which
``make test`` fixes.
"""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent
RANDOM = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|0x[0-9a-f]{6,}"  # the address of an object
    r"|(?<![0-9A-Za-z])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{12,}(?![0-9A-Za-z])"
    r"|(?<!\d)1[6-9]\d{8}(?:\d{3}){0,3}(?!\d)"  # seconds of these years, or parts of them
    r"|20\d\d-\d\d-\d\d[T ]\d\d:\d\d"
    rf"|{re.escape(tempfile.gettempdir())}[\w./-]*|pytest-of-\w+",
    re.IGNORECASE,
)


def is_made_up(item: pytest.Item) -> bool:
    """Whether a part of its id was made while tests were collected."""
    _, _, given = item.nodeid.partition("[")
    return any(not _is_written(found[0], item.path) for found in RANDOM.finditer(given))


def _is_written(text: str, path: Path) -> bool:
    return text in _source(path) or any(text in _source(each) for each in HERE.rglob("*.py"))


@cache
def _source(path: Path) -> str:
    return path.read_text("utf-8")
