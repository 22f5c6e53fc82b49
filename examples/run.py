"""Check every broken conversation beside this file, heal it, and check the healed one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LOCKSTITCH = [sys.executable, "-m", "lockstitch"]


def main() -> int:
    """Show all examples; 0 when every one was broken before and clean afterwards."""
    examples = sorted(HERE.glob("*.json"))
    with tempfile.TemporaryDirectory() as folder:
        healed = sum(show(example, Path(folder) / example.name) for example in examples)
    print(f"{healed} of {len(examples)} broken conversations healed.")
    return 0 if healed == len(examples) else 1


def show(example: Path, healed: Path) -> bool:
    """Run the three commands on one example; whether they ended as they should."""
    was_broken = lockstitch("check", example.name) == 1
    was_healed = lockstitch("heal", example.name, "-o", str(healed)) == 0
    is_clean = lockstitch("check", str(healed)) == 0
    print(flush=True)
    return was_broken and was_healed and is_clean


def lockstitch(*words: str) -> int:
    """Run one command where the examples are, showing it as a user would type it."""
    print(f"$ lockstitch {' '.join(words)}", flush=True)
    return subprocess.run([*LOCKSTITCH, *words], cwd=HERE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
