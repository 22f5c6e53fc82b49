"""Bugs on purpose, by which it is shown that the fuzzer finds such bugs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

from lockstitch.errors import Unreadable
from lockstitch.files import backup as backups
from lockstitch.files import backup as manifests
from lockstitch.formats import repair
from lockstitch.sources import source


def plant(name: str) -> None:
    """Put a bug into Lockstitch, for as long as this process lives."""
    FAULTS[name]()


def _around(module: Any, name: str, change: Callable[..., Any]) -> None:
    """Let a function be done by another, which gets the first one as its first argument.

    So it is wherever the function is known by now, and where it is imported from later on.
    """
    before = getattr(module, name)

    def changed(*given: Any, **named: Any) -> Any:
        return change(before, *given, **named)

    ours = [one for own, one in sys.modules.items() if own.partition(".")[0] == "lockstitch"]
    for one in ours:
        for key in [key for key, value in vars(one).items() if value is before]:
            setattr(one, key, changed)


def _raise() -> None:
    def fail(_mend: Any, _form: Any, transcript: Any, _options: Any) -> Any:
        return [][len(transcript.records)]

    _around(repair, "plan_repair", fail)


def _quote() -> None:
    def fail(_mend: Any, _form: Any, transcript: Any, _options: Any) -> Any:
        raise Unreadable(f"cannot be read: {transcript.context.data!r}")

    _around(repair, "plan_repair", fail)


def _lose() -> None:
    def shorter(saved: Any, backup: Any) -> bytes:
        kept: bytes = saved(backup)[:-1]
        return kept

    _around(manifests, "read_original", shorter)


def _spoil() -> None:
    """A repair that leaves more to find than it found."""

    _write_behind(b'{"torn\n' * 50)


def _again() -> None:
    """A repair that is never done."""

    _write_behind(b'{"torn')


def _write_behind(torn: bytes) -> None:
    """Let every file that is written have something torn at its end."""
    before = source.Source.write

    def changed(place: Any, opened: Any, plan: Any, run: str, details: Any) -> Any:
        return before(place, opened, structs.replace(plan, data=plan.data + torn), run, details)

    source.Source.write = changed  # type: ignore[method-assign] # a bug on purpose


def _stray() -> None:
    def write(replace: Any, before: Any, *given: Any, **named: Any) -> Any:
        Path(before.path).parents[1].joinpath("elsewhere").write_bytes(b"")
        return replace(before, *given, **named)

    _around(backups, "replace_with_backup", write)


def _outside() -> None:
    def write(replace: Any, *given: Any, **named: Any) -> Any:
        Path(sys.prefix, "..", "..", "fuzz-was-here").resolve().unlink(missing_ok=True)
        return replace(*given, **named)

    _around(backups, "replace_with_backup", write)


def _hang() -> None:
    def wait(_mend: Any, *_given: Any) -> Any:
        while True:
            pass

    _around(repair, "plan_repair", wait)


def _grow() -> None:
    def eat(mend: Any, *given: Any) -> Any:
        eaten = bytearray(400 << 20)
        eaten[::4096] = b"x" * len(eaten[::4096])
        return mend(*given)

    _around(repair, "plan_repair", eat)


FAULTS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "quote": _quote,
    "lose": _lose,
    "spoil": _spoil,
    "again": _again,
    "stray": _stray,
    "outside": _outside,
    "hang": _hang,
    "grow": _grow,
}
