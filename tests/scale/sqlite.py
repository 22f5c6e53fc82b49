"""100 000 sessions, and one of 20 000 messages, in one SQLite file.

python -m tests.scale.sqlite
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from lockstitch.stores.sqlite import SqliteBackend

from . import soak


def main() -> int:
    given = soak.options((__doc__ or "").splitlines()[0])
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=given.folder))
        paths = {size: Path(folder, f"{size}.db") for size in soak.steps(given.sessions)}
        backends = {size: stack.enter_context(SqliteBackend(p)) for size, p in paths.items()}
        status = soak.run(backends, given)
        soak.say(
            "  file, MB                  " + "".join(f"{_mb(p):12.1f}" for p in paths.values())
        )
    return status


def _mb(path: Path) -> float:
    return path.stat().st_size / 1e6


if __name__ == "__main__":
    sys.exit(main())
