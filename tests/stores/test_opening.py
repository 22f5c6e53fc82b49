"""From an address to a store: the right one, with its options, and nothing made by accident."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch.errors import Unreadable, UsageError
from lockstitch.stores.base import LEASE_SECONDS, Backend
from lockstitch.stores.jsonl import JsonlBackend
from lockstitch.stores.memory import MemoryBackend
from lockstitch.stores.opening import open_backend
from lockstitch.stores.postgres import PostgresBackend
from lockstitch.stores.sqlite import SqliteBackend
from tests.postgres_server import shared
from tests.stores.contract import entries, keys


def lease_of(backend: Backend) -> float:
    return float(backend._lease_seconds)  # noqa: SLF001


def test_memory() -> None:
    with open_backend("memory:") as backend:
        assert isinstance(backend, MemoryBackend)
        assert lease_of(backend) == LEASE_SECONDS
    with open_backend("memory:?lease=2.5") as backend:
        assert lease_of(backend) == 2.5


@pytest.mark.parametrize(("scheme", "kind"), [("jsonl", JsonlBackend), ("sqlite", SqliteBackend)])
def test_relative_and_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, kind: type[Backend]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    with open_backend(f"{scheme}:///sub/a%20store?lease=7") as backend:
        assert isinstance(backend, kind)
        backend.append(backend.acquire("s"), entries("a"), 0)
    assert (tmp_path / "sub" / "a store").exists()
    with open_backend(f"{scheme}:///{tmp_path}/sub/a store") as backend:
        assert keys(backend, "s") == ["a"]
    with open_backend(f"{scheme}:////{str(tmp_path).lstrip('/')}/sub/a store") as backend:
        assert keys(backend, "s") == ["a"]


def test_a_store_tells_its_address(tmp_path: Path) -> None:
    for url in (f"jsonl:///{tmp_path}/a%3Ffolder", f"sqlite:///{tmp_path}/a%20file.db"):
        with open_backend(url) as backend:
            backend.append(backend.acquire("s"), entries("a"), 0)
        with open_backend(backend.url, create=False) as again:
            assert keys(again, "s") == ["a"]


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_folder_whose_name_is_not_utf8(tmp_path: Path, scheme: str) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    for url in (f"{scheme}:///{tmp_path}/caf%E9/store.db", f"{scheme}:///{folder}/store.db"):
        with open_backend(url) as backend:
            backend.append(backend.acquire("s"), entries("a"), len(keys(backend, "s")))
            assert backend.url == f"{scheme}:///{tmp_path}/caf%E9/store.db"
    assert [path.name for path in folder.iterdir() if path.suffix == ".db"] == ["store.db"]
    with lockstitch.open(f"{scheme}:///{folder}/store.db") as store:
        assert [listed.session for listed in store.sessions()] == ["s"]


def test_postgres() -> None:
    dsn = shared().fresh()
    with pytest.raises(Unreadable):
        open_backend(dsn, create=False)
    joint = "&" if "?" in dsn else "?"
    with open_backend(f"{dsn}{joint}connect_timeout=10&lease=9&timeout=77") as backend:
        assert isinstance(backend, PostgresBackend)
        assert backend._pool.timeout == 77  # noqa: SLF001
        backend.append(backend.acquire("s"), entries("a"), 0)
    address = dsn.replace("postgresql://", "postgres://")
    with open_backend(address, create=False) as backend:
        assert keys(backend, "s") == ["a"]


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
def test_nothing_is_made_without_create(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(Unreadable):
        open_backend(f"{scheme}:///{tmp_path}/new", create=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Unreadable):
        open_backend("memory:", create=False)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "sessions.db",
        "/absolute/path",
        "mysql://host/db",
        "SQLITE:///a.db",
        "sqlite:a.db",
        "sqlite://a.db",
        "sqlite:///",
        "jsonl:///",
        "jsonl://host/folder",
        "jsonl:///a%00b",
        "jsonl:///a#b",
        "memory:name",
        "memory://name",
        "memory:?size=3",
        "memory:?lease=0",
        "memory:?lease=-1",
        "memory:?lease=soon",
        "memory:?lease=inf",
        "memory:?lease=nan",
        "jsonl:///a?compress=1",
        "sqlite:///a?compress=maybe",
        "sqlite:///a?lease=",
        "postgresql:///db?compress=1",
        "postgresql:///db?timeout=0",
        "postgresql:///db?timeout=soon",
        "sqlite:///a?timeout=0",
        "jsonl:///a?timeout=30",
    ],
)
def test_addresses_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        open_backend(url)
    assert list(tmp_path.iterdir()) == []


def test_compression_is_an_option_of_sqlite(tmp_path: Path) -> None:
    for number, word in enumerate(("1", "true", "0")):
        with open_backend(f"sqlite:///{tmp_path}/{number}.db?compress={word}") as backend:
            backend.append(backend.acquire("s"), entries("a"), 0)
            assert keys(backend, "s") == ["a"]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_without_its_driver_postgres_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from lockstitch.stores.opening import open_backend\n"
        "try: open_backend('postgresql://localhost/x')\n"
        "except ValueError as error: print(error)\n"
    )
    assert "pip install 'lockstitch[postgres]'" in python(code)


def test_only_the_store_that_is_named_is_loaded() -> None:
    code = (
        "import sys; from lockstitch.stores.opening import open_backend\n"
        "open_backend('memory:').close()\n"
        "print([name for name in ('sqlite3', 'psycopg', 'apsw') if name in sys.modules])\n"
    )
    assert python(code) == "[]"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (None, "the address of a store must be a string, not of type NoneType"),
        (5, "not of type int"),
        (Path("agent.db"), "sqlite:///file.db"),
        ("agent.db", "^agent.db: this is not the address of a store; write sqlite:///file.db"),
        ("sqlite:///a.db?leese=3", "^sqlite:///a.db: there is no option 'leese' here"),
        ("mysql://ada:secret@host/x", "^mysql://…: this is not the address"),
    ],
    ids=str,
)
def test_what_is_no_address_is_named(url: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        lockstitch.open(url)
    assert "secret" not in str(caught.value)
