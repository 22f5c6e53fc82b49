"""``lockstitch --version``: the versions of everything that a report of a problem has to name."""

from __future__ import annotations

import platform
import re
import sqlite3
from importlib import metadata

import lockstitch

_PACKAGE = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")


def page() -> str:
    """Lockstitch, Python, SQLite, and every extra with its packages or how to get it."""
    facts = {
        "lockstitch": lockstitch.__version__,
        platform.python_implementation().replace("CPython", "Python"): platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "msgspec": metadata.version("msgspec"),
    }
    lines = [f"{name} {version}" for name, version in facts.items()]
    found, missing = extras()
    if found:
        lines.append(f"extras: {'; '.join(f'{name} ({what})' for name, what in found.items())}")
    if missing:
        lines.append(f"not installed: {', '.join(missing)} (pip install 'lockstitch[all]')")
    return "\n".join(lines) + "\n"


def extras() -> tuple[dict[str, str], list[str]]:
    """The extras whose packages are all here, with their versions; and those that are not."""
    wanted = requirements()
    found: dict[str, str] = {}
    missing: list[str] = []
    for extra, packages in sorted(wanted.items()):
        versions = {package: _version(package) for package in packages}
        if all(versions.values()):
            found[extra] = ", ".join(f"{package} {of}" for package, of in versions.items())
        else:
            missing.append(extra)
    return found, missing


def requirements() -> dict[str, list[str]]:
    """What each extra for users needs, as the installed package says it: those within ``all``."""
    try:
        named = metadata.requires("lockstitch") or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return {}
    needs: dict[str, list[str]] = {}
    for line in named:
        package, extra = _PACKAGE.match(line), _EXTRA.search(line)
        if package and extra:
            needs.setdefault(extra[1], []).append(package[0])
    every = set(needs.pop("all", []))
    return {extra: packages for extra, packages in needs.items() if every.issuperset(packages)}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
