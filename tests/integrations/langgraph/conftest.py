"""What all tests of the integration share: ids of checkpoints that begin at the clock."""

from __future__ import annotations

import pytest
from langgraph.checkpoint.base import id as ids


@pytest.fixture(autouse=True)
def _own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that are ahead of the clock do not reach the next test of this process."""
    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
