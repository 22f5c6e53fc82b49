"""Clients, proxy, workers and store are killed; nothing that was acknowledged is lost or mixed.

A slice of ``python -m tests.recording.soak``.
"""

from __future__ import annotations

from pathlib import Path

from tests.postgres_server import PATIENT, running
from tests.recording.campaign import Plan, campaign, sqlite_in

LONGEST = 300.0


def test_on_sqlite(tmp_path: Path) -> None:
    report = campaign(Plan(sqlite_in(tmp_path), LONGEST, 2, 2, pause=(0.1, 0.3), enough=1))
    assert report.is_clean, report
    assert len(report.acknowledged) > 10


def test_on_postgresql() -> None:
    with running() as server:
        url = f"{server.fresh()}?{PATIENT}"
        report = campaign(Plan(url, LONGEST, 2, 1, pause=(0.1, 0.3), server=server, enough=1))
    assert report.is_clean, report
    assert len(report.acknowledged) > 10
