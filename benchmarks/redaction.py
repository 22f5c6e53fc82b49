"""How many of sixty secrets ``--redact`` lets through in eight carriers, and what else it takes.

    python benchmarks/redaction.py            # prints two tables and every leak
    python benchmarks/redaction.py --keep     # and writes benchmarks/results/DATE-redaction.json

The secrets are made anew for every seed, in the shapes of real ones. The same values are given to
detect-secrets, if it is installed (``pip install 'lockstitch[bench]'``).
For what is taken by mistake, the sources that are on this machine are read as they are: the
standard library and all packages of this Python, and what packages of Node.js are found. Every
place that is redacted counts there, made-up passwords in tests included.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import sysconfig
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from lockstitch.redaction import redact_value  # noqa: E402
from tests.redaction.realistic import CARRIERS, Secret, is_leaked, secrets  # noqa: E402

RESULTS = Path(__file__).parent / "results"
LARGEST = 2_000_000
MEGABYTE = 1_000_000
NODE = ROOT / ".cache" / "clients"
KINDS = {
    "JavaScript": ("js", "mjs", "cjs"),
    "TypeScript": ("ts", "mts"),
    "JSON and lock files": ("json", "lock"),
    "Markdown, shell, YAML": ("md", "sh", "yml", "yaml"),
}


def leaks(seed: int) -> dict[str, list[str]]:
    """The names of the secrets that can still be read, by carrier."""
    found: dict[str, list[str]] = {}
    for name, carry in CARRIERS.items():
        left = (one for one in secrets(seed) if is_leaked(redact_value([carry(one.text)])[0], one))
        found[name] = [one.name for one in left]
    return found


def missed(seed: int) -> dict[str, list[str]]:
    """The same for detect-secrets, which is given the values as JSON."""
    from detect_secrets.core.scan import scan_line  # type: ignore[import-not-found]  # noqa: PLC0415
    from detect_secrets.settings import default_settings  # type: ignore[import-not-found]  # noqa: PLC0415

    found: dict[str, list[str]] = {}
    with default_settings():
        for name, carry in CARRIERS.items():
            found[name] = []
            for one in secrets(seed):
                lines = json.dumps(carry(one.text), ensure_ascii=False).replace("\\n", "\n")
                hits = [
                    hit.secret_value or "" for line in lines.split("\n") for hit in scan_line(line)
                ]
                if not is_found(one, hits):
                    found[name].append(one.name)
    return found


def is_found(secret: Secret, hits: list[str]) -> bool:
    """Whether a scanner named a secret, or most of it."""
    return any(
        part in hit or (hit in part and 2 * len(hit) > len(part))
        for part in secret.parts
        for hit in hits
    )


def sources(megabytes: float) -> Iterator[tuple[str, list[Path]]]:
    """Sources by kind, in a random order that is the same in every run."""
    paths = sysconfig.get_paths()
    library, packages = Path(paths["stdlib"]), Path(paths["purelib"])
    inside = [path for path in library.rglob("*.py") if "site-packages" not in path.parts]
    yield "Python: standard library", some(inside, megabytes)
    yield "Python: packages", some([*packages.rglob("*.py")], megabytes)
    for name, endings in KINDS.items():
        files = [path for ending in endings for path in NODE.rglob(f"*.{ending}")]
        yield name, some(files, megabytes)


def some(files: list[Path], megabytes: float) -> list[Path]:
    """Files of at most some size together."""
    files = sorted(path for path in files if path.is_file() and path.stat().st_size <= LARGEST)
    Random(1).shuffle(files)  # noqa: S311 - repeatable
    size = 0
    chosen = []
    for path in files:
        size += path.stat().st_size
        chosen.append(path)
        if size > megabytes * MEGABYTE:
            break
    return chosen


def mistakes(files: list[Path]) -> tuple[float, int, float]:
    """Megabytes of sources, places in them that are redacted, and seconds that takes."""
    size = places = 0
    start = time.process_time()
    for path in files:
        text = path.read_text("utf-8", "replace")
        size += len(text)
        places += len({(one.place, one.placeholder) for one in redact_value([text])[1]})
    return size / MEGABYTE, places, time.process_time() - start


def main() -> None:
    """Measure, print, and keep the results if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    results: dict[str, object] = {"python": platform.python_version()}
    results["leaks"] = print_leaks(range(1, given.seeds + 1))
    results["mistakes"] = print_mistakes(given.megabytes)
    if given.keep:
        now = datetime.now(UTC)
        path = RESULTS / f"{now:%Y-%m-%d}-redaction.json"
        path.write_text(json.dumps({"at": f"{now:%Y-%m-%dT%H:%MZ}", **results}, indent=1) + "\n")
        print(f"\nwritten to {path.relative_to(ROOT)}")


def print_leaks(seeds: range) -> dict[str, object]:
    """Print the first table, and every leak below it."""
    ours = {seed: leaks(seed) for seed in seeds}
    has_rival = find_spec("detect_secrets") is not None
    theirs = {seed: missed(seed) for seed in seeds} if has_rival else {}
    print(f"Of 60 secrets, left in the worst of {len(seeds)} seeds:\n")
    print(f"{'carrier':<14}{'lockstitch':>12}{'detect-secrets':>18}")
    worst: dict[str, object] = {}
    for name in CARRIERS:
        mine = max(len(found[name]) for found in ours.values())
        rival = max((len(found[name]) for found in theirs.values()), default=None)
        worst[name] = {"lockstitch": mine, "detect-secrets": rival}
        print(f"{name:<14}{mine:>12}{'not installed' if rival is None else rival:>18}")
    for seed, found in ours.items():
        for name, left in found.items():
            for one in left:
                print(f"left: {one} in {name} (seed {seed})")
    return worst


def print_mistakes(megabytes: float) -> list[dict[str, object]]:
    """Print the second table."""
    print(f"\n{'redacted in':<28}{'MB':>8}{'places':>8}{'a MB':>8}{'MB/s':>8}")
    rows: list[dict[str, object]] = []
    total, all_places = 0.0, 0
    for name, files in sources(megabytes):
        size, places, seconds = mistakes(files)
        if not size:
            continue
        total, all_places = total + size, all_places + places
        rows.append({"kind": name, "megabytes": round(size, 2), "places": places})
        speed = size / seconds if seconds else 0.0
        print(f"{name:<28}{size:>8.1f}{places:>8}{places / size:>8.2f}{speed:>8.1f}")
    print(f"{'all':<28}{total:>8.1f}{all_places:>8}{all_places / max(total, 1e-9):>8.2f}")
    return rows


if __name__ == "__main__":
    main()
