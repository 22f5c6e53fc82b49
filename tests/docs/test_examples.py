from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_example_breaks_and_heals(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "run.py"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_example_is_described() -> None:
    described = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for example in (ROOT / "examples").glob("*.json"):
        assert f"`{example.name}`:" in described
