"""One mutant: made from a format, a seed and a number alone, so that it can be made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from random import Random

import zstandard

from . import mutators, sqlite_mutants
from .seeds import is_base, seeds

# How a repair is asked for, and how often.
WAYS: dict[tuple[str, ...], int] = {
    (): 70,
    ("--notes",): 12,
    ("--lossy",): 6,
    ("--strategy", "rollback"): 6,
    ("--force-cleanup",): 6,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A damaged session: its file, and how the commands are told to go about it.

    ``given`` are words for every command, ``way`` for a repair. ``shown`` says that the commands
    which print for people are tried as well, ``asks`` that it is asked which programs have the
    file open: what that says has nothing to do with the mutant, and takes most of the time.
    ``told`` says that nothing that was said can have got into an id, which may be printed.
    """

    form: str
    name: str
    path: str
    data: bytes
    side: Mapping[str, bytes] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    way: tuple[str, ...] = ()
    shown: bool = False
    asks: bool = False
    told: bool = False

    @property
    def is_base(self) -> bool:
        return is_base(self.form)


def made(form: str, seed: str, number: int, folder: str = "") -> Mutant:
    """Return a mutant of a format; ``folder`` has real files to begin with."""
    dice = Random(f"{seed} {form} {number}")  # noqa: S311  repeatable, not secret
    found = seeds(form, folder)
    chosen, other = dice.choice(found), dice.choice(found)
    told = False
    if is_base(form):
        data = sqlite_mutants.mutant(chosen.data, dice)
        if dice.random() < 0.3 and data[18:20] == b"\1\1":
            data = data[:18] + b"\2\2" + data[20:]  # as a program with a write-ahead log leaves it
    else:
        data, told = mutators.mutated(chosen.data, dice, other.data)
    path = chosen.path if dice.random() < 0.15 else f"work/{PurePath(chosen.path).name}"
    if form == "codex" and dice.random() < 0.05:
        data, path = _packed(data, dice), f"{path}.zst"
    [way] = dice.choices(list(WAYS), WAYS.values())
    given = ("--format", form) if dice.random() < 0.3 else ()
    shown, asks = dice.random() < 0.1, dice.random() < 0.02
    return Mutant(form, chosen.name, path, data, chosen.side, given, way, shown, asks, told)


def _packed(data: bytes, dice: Random) -> bytes:
    """Return a file as Codex packs it, whole or damaged."""
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    packed = packer.compress(data) + packer.flush()
    kind = dice.randrange(4)
    if kind == 0:
        return packed[: dice.randrange(len(packed) + 1)]
    if kind == 1:
        place = dice.randrange(len(packed))
        return packed[:place] + bytes([dice.randrange(256)]) + packed[place + 1 :]
    return packed
