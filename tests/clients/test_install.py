"""What cannot be installed is said, never passed over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .install import PROJECT

WHY = "NotInstalled: @anthropic-ai/claude-code@2.1.325 cannot be installed: npm is not installed"


@pytest.mark.parametrize(
    ("asked", "status", "outcome"), [("", 0, "skipped"), ("all", 1, "failed")], ids=["slice", "all"]
)
def test_a_client_that_cannot_be_had(tmp_path: Path, asked: str, status: int, outcome: str) -> None:
    nothing = {
        "PATH": str(tmp_path),
        "LOCKSTITCH_CLIENTS": asked,
        "LOCKSTITCH_CLIENTS_CACHE": str(tmp_path),
    }
    words = ["-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base"), "-k", "2.1.325"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "tests/clients/test_killed.py"],
        cwd=PROJECT,
        env={**os.environ, **nothing},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == status, done.stdout
    assert WHY in done.stdout
    assert f"1 {outcome}" in done.stdout
