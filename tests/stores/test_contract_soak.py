"""Writers that are killed and stopped all the time, for a few seconds; ``soak`` takes longer."""

from __future__ import annotations

from tests.stores.contract import Place
from tests.stores.soak import soak


def test_nothing_acknowledged_is_lost(shared_place: Place) -> None:
    counts = soak(shared_place.url, seconds=2, writers=3, lease=0.5, seed=1)
    assert counts["acked"] > 10
    assert counts["records"] >= counts["acked"]
    assert counts["Damaged"] == counts["Unreadable"] == counts["UsageError"] == 0
