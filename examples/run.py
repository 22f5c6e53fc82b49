"""Heal every broken conversation beside this file, then kill an agent that cannot be broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

LOCKSTITCH = [sys.executable, "-m", "lockstitch"]


def main() -> int:
    """Show all examples and the demo; 0 when all of them ended as they should."""
    examples = sorted(Path(__file__).parent.glob("*.json"))
    healed = sum(map(show, examples))
    print(f"{healed} of {len(examples)} broken conversations healed.\n")
    return 0 if healed == len(examples) and demo() else 1


def demo() -> bool:
    """Run the demo of sessions, where its provider is installed; whether it went well."""
    if find_spec("aiohttp") is None:
        print("For the other half, `lockstitch demo`: pip install 'lockstitch[provider]'")
        return True
    return lockstitch(tempfile.gettempdir(), "demo") == 0


def show(example: Path) -> bool:
    """Run the three commands on a copy of one example; whether they ended as they should."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(example, folder)
        was_broken = lockstitch(folder, "check", example.name) == 1
        was_healed = lockstitch(folder, "heal", example.name, "-o", "healed.json") == 0
        is_clean = lockstitch(folder, "check", "healed.json") == 0
    print(flush=True)
    return was_broken and was_healed and is_clean


def lockstitch(folder: str, *words: str) -> int:
    """Run one command in a folder, showing it as a user would type it."""
    print(f"$ lockstitch {' '.join(words)}", flush=True)
    return subprocess.run([*LOCKSTITCH, *words], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
