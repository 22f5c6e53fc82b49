"""What is installed is locked; what cannot be installed is said, never passed over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import install
from .install import LOCKS, PROJECT, NotInstalled, installed
from .test_claude_code import NEW, OLD
from .test_pi import PI
from .test_running import SLICE

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


def test_everything_that_clients_bring_along_has_a_hash() -> None:
    versions = {("claude-code", version) for version in (*NEW, *OLD)}
    versions |= {(client.package.rpartition("/")[2], client.version) for client in (*SLICE, PI)}
    for name, version in versions:
        locked = json.loads((LOCKS / f"{name}-{version}.json").read_text())["packages"]
        packages = {where: each for where, each in locked.items() if where}
        assert packages
        assert [where for where, each in packages.items() if not each.get("integrity")] == []


def test_a_package_that_is_not_the_one_that_was_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "LOCKS", tmp_path)
    monkeypatch.setattr(install, "CACHE", tmp_path / "cache")
    other = {"version": "2.0.0", "integrity": f"sha512-{'A' * 86}=="}
    packages = {"": {"dependencies": {"isexe": "2.0.0"}}, "node_modules/isexe": other}
    locked = {"name": "client", "lockfileVersion": 3, "requires": True, "packages": packages}
    (tmp_path / "isexe-2.0.0.json").write_text(json.dumps(locked))
    found = installed("isexe", "2.0.0")
    assert isinstance(found, NotInstalled)
    assert "cannot be installed" in str(found)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
