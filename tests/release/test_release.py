from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import lockstitch
from tests.sessions import claude

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# Tests that need nothing but the library: no list that is healthy is touched, and what is public.
SLICE = ("tests/healthy/test_healthy.py", "tests/unit/test_surface.py")


def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        **options,  # type: ignore[call-overload]
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    words = ["-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = run(sys.executable, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and with what a plain install brings along, nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    assert run(sys.executable, "-m", "venv", "--without-pip", folder).returncode == 0
    [wheel] = built.glob("*.whl")
    python = folder / "bin" / "python"
    install = ["--python", python, "install", "--no-index", "--no-deps", "--no-compile", wheel]
    done = run(sys.executable, "-m", "pip", *install)
    assert done.returncode == 0, done.stderr
    for needed in PROJECT["dependencies"]:
        _copy(distribution(needed.partition(">")[0]), packages_of(folder))
    return folder


def packages_of(environment: Path) -> Path:
    [found] = environment.glob("lib/python*/site-packages")
    return found


def _copy(found: Distribution, target: Path) -> None:
    """Copy a package that is installed here, since nothing is fetched."""
    for name in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
        source = Path(str(found.locate_file(name)))
        if source.is_dir():
            shutil.copytree(source, target / name, dirs_exist_ok=True)


def test_the_core_needs_msgspec_only() -> None:
    assert [needed.partition(">")[0] for needed in PROJECT["dependencies"]] == ["msgspec"]


def test_the_extra_all_has_every_extra_of_users() -> None:
    [everything] = PROJECT["optional-dependencies"]["all"]
    named = set(everything.removeprefix("lockstitch[").removesuffix("]").split(","))
    developers = {"all", "bench", "dev", "interop", "suite"}
    assert named == set(PROJECT["optional-dependencies"]) - developers


def test_the_archives_hold_what_they_should(built: Path) -> None:
    [wheel], [archive] = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    assert {"lockstitch/py.typed", "lockstitch/stores/sqlite/001.sql"} <= names
    assert "lockstitch/stores/postgres/migrations/0001_journals.sql" in names
    assert not any(name.startswith(("tests/", "docs/")) for name in names)
    with tarfile.open(archive) as members:
        inside = {name.partition("/")[2] for name in members.getnames()}
    wanted = {"pyproject.toml", "mkdocs.yml", "LICENSE", "README.md", "CHANGELOG.md"}
    wanted |= {"docs/index.md", "scripts/generate_docs.py", "tests/release/test_release.py"}
    assert wanted <= inside


def test_the_installed_command_repairs_a_session(environment: Path, tmp_path: Path) -> None:
    command = environment / "bin" / "lockstitch"
    session = tmp_path / "session.jsonl"
    session.write_text(claude.broken(), "utf-8")
    version = run(command, "--version").stdout
    assert version.startswith(f"lockstitch {lockstitch.__version__}\n")
    assert "SQLite " in version
    assert "not installed: async, langgraph" in version
    assert run(command, "check", session).returncode == 1
    assert run(command, "repair", session, "--yes").returncode == 0
    assert run(command, "check", session).returncode == 0
    assert run(command, "undo", session, "--yes").returncode == 0
    assert session.read_text("utf-8") == claude.broken()


def test_the_installed_library_keeps_a_session(environment: Path, tmp_path: Path) -> None:
    program = (
        "import lockstitch\n"
        "with lockstitch.open('sqlite:///agent.db') as store, store.session('one') as session:\n"
        "    session.say('hello')\n"
        "    print(len(session.request('anthropic')))\n"
    )
    done = run(environment / "bin" / "python", "-c", program, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_missing_extra_says_how_to_get_it(environment: Path) -> None:
    done = run(environment / "bin" / "lockstitch", "provider")
    assert done.returncode == 2
    assert "pip install 'lockstitch[provider]'" in done.stderr


def test_tests_pass_with_the_installed_wheel(environment: Path) -> None:
    packages = packages_of(environment)
    env = {**os.environ, "PYTHONPATH": str(packages), "PYTEST_XDIST_WORKER": ""}
    where = run(sys.executable, "-c", "import lockstitch; print(lockstitch.__file__)", env=env)
    assert where.stdout.startswith(str(packages)), where
    words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *SLICE]
    done = run(sys.executable, *words, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
