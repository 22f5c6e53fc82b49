"""What is installed is what the lock file says, from any registry; what cannot be, is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .install import HERE

PROGRAM = "from tests.node.install import program; program()"


def test_the_lock_file_names_no_registry_and_exact_versions() -> None:
    asked = json.loads((HERE / "package.json").read_bytes())
    locked = json.loads((HERE / "package-lock.json").read_bytes())["packages"]
    for name, version in {**asked["dependencies"], **asked["optionalDependencies"]}.items():
        assert locked[f"node_modules/{name}"]["version"] == version
    for name, package in locked.items():
        assert "resolved" not in package, name
        assert not name or package["integrity"].startswith("sha512-"), name


def test_without_npm_the_failure_says_what_to_install(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path), "LOCKSTITCH_NODE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=HERE.parents[1],
        env={**os.environ, **nothing},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    assert "npm is missing: apt-get install npm" in done.stderr
