"""Open the store at an address: ``sqlite:///agent.db``, ``postgresql://…``, ``jsonl:///dir``."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl

from lockstitch.errors import Unreadable, UsageError
from lockstitch.stores.addresses import UNREAD, decoded_path, parsed, public, split
from lockstitch.stores.base import LEASE_SECONDS, Backend
from lockstitch.stores.memory import MemoryBackend

KNOWN = "sqlite:///file.db, postgresql://…, jsonl:///folder or memory:"
_YES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def open_given(url: object) -> Backend:
    """Open the store at an address that a program gave; errors name the address."""
    if not isinstance(url, str):
        kind = type(url).__name__
        raise UsageError(f"the address of a store must be a string, not of type {kind}: {KNOWN}")
    try:
        return open_backend(url)
    except UsageError as error:
        raise error.about(error.target or public(url).partition("?")[0]) from None


def open_backend(url: str, *, create: bool = True) -> Backend:
    """Open the store at an address.

    After the two slashes, one more slash begins a relative path and two more an absolute one.
    Options follow a question mark. ``lease=30`` is for how many seconds a silent writer keeps a
    session. ``compress=1`` makes SQLite store records compressed. ``timeout=40`` is how many
    seconds to wait for a PostgreSQL server that says nothing, or for a process that was stopped
    while it used a SQLite store. ``owner=app`` names a role whose tables in a PostgreSQL database
    are trusted, besides our own and those of superusers. Without ``create`` the store is opened for
    reading: nothing is created or changed, and a store that does not exist raises ``Unreadable``.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in _OPENERS:
        raise UsageError(f"this is not the address of a store; write {KNOWN}")
    return _OPENERS[scheme](url, create)


def _memory(url: str, create: bool) -> Backend:
    options = _options(url, {"lease"})
    if split(url).path or split(url).netloc:
        raise UsageError("a store in memory has no path; write memory:")
    if not create:
        raise Unreadable("memory: a new store is empty")
    return MemoryBackend(lease_seconds=_lease(options))


def _sqlite(url: str, create: bool) -> Backend:
    options = _options(url, {"lease", "compress", "timeout"})
    path = _path(url)
    if path.name == ":memory:":
        raise UsageError("this is not a file; write memory: for a store in this process only")
    if not create and not path.exists():
        raise Unreadable("no such file")
    from lockstitch.stores.sqlite import SqliteBackend  # noqa: PLC0415

    text = options.get("compress", "0")
    if text.lower() not in _YES:
        raise UsageError("compress must be 0 or 1")
    compress, lease = _YES[text.lower()], _lease(options)
    timeout = _seconds(options, "timeout", 0.0) if "timeout" in options else None
    return SqliteBackend(
        path, compress=compress, lease_seconds=lease, readonly=not create, timeout=timeout
    )


def _jsonl(url: str, create: bool) -> Backend:
    options = _options(url, {"lease"})
    path = _path(url)
    if not create and not path.is_dir():
        raise Unreadable("no such folder")
    from lockstitch.stores.jsonl import JsonlBackend  # noqa: PLC0415

    return JsonlBackend(path, lease_seconds=_lease(options))


def _postgres(url: str, create: bool) -> Backend:
    found = parsed(url)
    if found is None:
        raise UsageError(UNREAD)
    if found.last("compress") is not None:
        raise UsageError("compress is an option of SQLite stores; PostgreSQL compresses by itself")
    if found.last("schema") is not None:
        raise UsageError("there is no option 'schema': a store is kept in the schema lockstitch")
    try:
        from lockstitch.stores.postgres import PostgresBackend  # noqa: PLC0415
        from lockstitch.stores.postgres.connections import TIMEOUT  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"psycopg", "psycopg_pool"}:
            raise
        hint = "a PostgreSQL store needs: pip install 'lockstitch[postgres]'"
        raise UsageError(hint) from error
    ours = dict(found.ours)
    lease, timeout = _lease(ours), _seconds(ours, "timeout", TIMEOUT)
    return PostgresBackend(
        found.plain,
        lease_seconds=lease,
        create=create,
        timeout=timeout,
        owners=found.all_of("owner"),
    )


_OPENERS = {
    "jsonl": _jsonl,
    "memory": _memory,
    "postgres": _postgres,
    "postgresql": _postgres,
    "sqlite": _sqlite,
}


def _path(url: str) -> Path:
    """Return the path in an address: relative after three slashes, absolute after four."""
    parts, scheme = split(url), url.partition(":")[0]
    path = decoded_path(url)
    if parts.netloc or not path.startswith("/") or "\0" in path or path == "/" or parts.fragment:
        raise UsageError(
            f"this is not the address of a store; write {scheme}:///relative/path"
            f" or {scheme}:////absolute/path"
        )
    return Path(path[1:])


def _options(url: str, known: set[str]) -> dict[str, str]:
    found = dict(parse_qsl(split(url).query, keep_blank_values=True))
    for name in found:
        if name not in known:
            options = ", ".join(sorted(known))
            raise UsageError(f"there is no option {name!r} here; the options are: {options}")
    return found


def _lease(options: dict[str, str]) -> float:
    return _seconds(options, "lease", LEASE_SECONDS)


def _seconds(options: dict[str, str], name: str, default: float) -> float:
    text = options.get(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{name} must be a number of seconds greater than 0, as in {name}=30")
    return seconds
