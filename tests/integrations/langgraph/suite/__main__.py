"""Run LangGraph's own tests with our checkpointers, and compare with LangGraph's.

    python -m tests.integrations.langgraph.suite CHECKOUT [--with saver] [--with guard] [-k WORDS]
        [--postgres]

CHECKOUT is a checkout of LangGraph's repository, near the version that is installed. Nothing is
written to it. With ``--postgres`` those tests are run that keep their threads in PostgreSQL, and
the others without. Exit status 1: a test passes with LangGraph's own saver and fails with ours,
and is not one of those in ``excused.toml``; or one of those passes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.postgres_server import Server, shared

HERE = Path(__file__).parent
KINDS = ("saver", "guard", "guarded-saver")
# The tests of each library that have to do with checkpoints.
LIBRARIES = {
    "langgraph": ["tests"],
    "prebuilt": ["tests"],
    "checkpoint": ["tests/test_memory.py", "tests/test_encrypted.py"],
    "checkpoint-sqlite": [
        "tests/test_sqlite.py",
        "tests/test_aiosqlite.py",
        "tests/test_delta_channel_migration.py",
        "tests/test_get_delta_channel_history.py",
        "tests/test_conformance_delta.py",
    ],
    "checkpoint-conformance": ["tests"],
}
ON_SERVER = {
    "langgraph": ["tests"],
    "prebuilt": ["tests"],
    "checkpoint-postgres": [
        "tests/test_sync.py",
        "tests/test_async.py",
        "tests/test_conformance_delta.py",
        "tests/test_delta_plain_value_seed.py",
    ],
}
# The conformance tests of the checkout, which has more of them than any release.
CONFORMANCE = "checkpoint-conformance/langgraph"
# All passed, some failed, none was chosen.
_TESTS_RAN = (0, 1, 5)
# How often what failed is tried again, alone.
_TRIES = 5
Outcomes = dict[str, dict[str, object]]


class Suite:
    """The tests of all libraries, or those that ``words`` choose, in folders of their own."""

    def __init__(self, libs: Path, words: str | None, server: Server | None) -> None:
        self._libs = libs
        self._words = words
        self._server = server

    def run(self, kind: str) -> Outcomes:
        """Run the tests with one kind of checkpointer; by library and test."""
        found: Outcomes = {}
        for library, paths in (ON_SERVER if self._server else LIBRARIES).items():
            print(f"{library}, {kind} …", flush=True)
            found |= self._run(library, kind, paths, "auto")
        return found

    def again(self, kind: str, names: Iterable[str]) -> Outcomes:
        """Run these tests alone.

        Some sleep for a moment, and count on others to be done then; some race by themselves, and
        fail now and then, whatever the saver.
        """
        tests: dict[str, list[str]] = {}
        for name in names:
            library, _, test = name.partition("/")
            tests.setdefault(library, []).append(test)
        found: Outcomes = {}
        for library, paths in tests.items():
            print(f"{library}, {kind}, {len(paths)} again …", flush=True)
            found |= self._run(library, kind, paths, "0")
        return found

    def _run(self, library: str, kind: str, paths: list[str], workers: str) -> Outcomes:
        file = self._libs / "outcomes.jsonl"
        file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "--no-header", "--tb=no"]
        command += ["-p", "no:cacheprovider", "-p", "plugin", "-p", "no:langsmith_plugin", *paths]
        command += ["-k", self._words] if self._words else []
        environ = {
            **os.environ,
            "NO_DOCKER": str(self._server is None).lower(),
            "PYTHONPATH": os.pathsep.join((str(HERE), str(self._libs / "conformance"))),
            "LOCKSTITCH_SUITE": kind,
            "LOCKSTITCH_SUITE_OUTCOMES": str(file),
        }
        if self._server is not None:
            environ["LOCKSTITCH_SUITE_POSTGRES"] = self._server.address("")
        place = self._libs / library
        ran = subprocess.run(
            command, cwd=place, env=environ, capture_output=True, text=True, check=False
        )
        if ran.returncode not in _TESTS_RAN:
            print(ran.stdout[-2_000:], ran.stderr[-2_000:], sep="\n")
        found: Outcomes = {}
        for line in file.read_text().splitlines() if file.exists() else ():
            one = json.loads(line)
            name = f"{library}/{one['test']}"
            # A test that passed and then failed to clean up has failed.
            if found.get(name, {}).get("outcome") != "failed":
                found[name] = one
        return found


def compare(suite: Suite, own: Outcomes, kind: str, excused: dict[str, str]) -> bool:
    """Print what differs; whether nothing does that is not excused, and all that is does."""
    ours = suite.run(kind)
    used = {name for name, one in ours.items() if one["made"]}
    passed = {name for name in used if own.get(name, {}).get("outcome") == "passed"}
    failed = {name for name in passed if ours[name]["outcome"] != "passed"}
    listed = {name for name in failed if name.partition("[")[0] in excused}
    for _ in range(_TRIES):
        again = suite.again(kind, sorted(failed - listed))
        failed -= {name for name, one in again.items() if one["outcome"] == "passed"}
    ran = {name.partition("[")[0] for name in used}
    stale = excused.keys() & ran - {name.partition("[")[0] for name in failed}
    total = len(passed) - len(failed)
    print(f"\n{kind}: {len(used)} tests made one; LangGraph's own passes {len(passed)}, ", end="")
    print(f"ours {total} of these; excused {len(listed)}")
    for name in sorted(failed - listed):
        print(f"  FAILS  {name}\n         {str(ours[name]['why'])[:160]}")
    for name in sorted(stale):
        print(f"  passes, but is excused: {name}")
    return not (failed - listed) and not stale and bool(passed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of LangGraph's repository")
    parser.add_argument("--with", dest="kinds", action="append", choices=KINDS)
    parser.add_argument("-k", dest="words", help="only tests that pytest -k would choose")
    parser.add_argument("--postgres", action="store_true", help="the tests on PostgreSQL")
    given = parser.parse_args()
    server = shared() if given.postgres else None
    excused = tomllib.loads((HERE / "excused.toml").read_text())
    excused["guarded-saver"] = excused["saver"] | excused["guard"]
    with TemporaryDirectory() as scratch:
        libs = Path(scratch)
        for library in LIBRARIES | ON_SERVER:
            # Without its packages: those that are installed are tried.
            source = given.checkout / "libs" / library
            (libs / library).mkdir()
            shutil.copy(source / "pyproject.toml", libs / library)
            shutil.copytree(source / "tests", libs / library / "tests")
        shutil.copytree(given.checkout / "libs" / CONFORMANCE, libs / "conformance" / "langgraph")
        suite = Suite(libs, given.words, server)
        own = suite.run("own")
        good = [compare(suite, own, kind, excused[kind]) for kind in given.kinds or KINDS]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
