"""What a conversation costs: ``python -m tests.recording.sizes --turns 1000``.

Prints the bytes of the SQLite database, after it was closed, beside the bytes of what is new in
each turn: the client's new message and the provider's reply, as they come.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lockstitch.stores.opening import open_backend
from tests.recording.talking import Client, Heard, answer, whole

WORDS = ("the", "test", "file", "error", "line", "value", "of", "returns", "which", "is")


@dataclass(frozen=True)
class Cost:
    """How many bytes were new, and how many the store has."""

    turns: int
    new: int
    stored: int

    @property
    def ratio(self) -> float:
        return self.stored / self.new


def cost_of(folder: Path, turns: int, words: int, dialect: str = "anthropic") -> Cost:
    """Lead a conversation of an agent: each turn a call with some words, and its result."""
    heard = Heard(open_backend(f"sqlite:///{folder}/conversations.db"))
    chosen = random.Random(1)  # noqa: S311 - to be had again
    client = Client(dialect, system="Be careful.").say("Fix the failing test")
    new = len(client.body())
    for number in range(turns):
        said = " ".join(chosen.choice(WORDS) for _ in range(words))
        reply = answer(dialect, number, said, f"call_{number}")
        heard.turn(client, reply)
        before = len(client.messages)
        client.give([(f"call_{number}", "look", said[::-1] * 2)])
        new += len(whole(reply)) + len(json.dumps(client.messages[before:])) - 2
    heard.close()
    return Cost(turns, new, (folder / "conversations.db").stat().st_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=1000)
    given = parser.parse_args()
    for words in (40, 100, 400):
        with tempfile.TemporaryDirectory(prefix="lockstitch-sizes-") as folder:
            cost = cost_of(Path(folder), given.turns, words)
        print(  # noqa: T201
            f"{cost.turns} turns of {cost.new // cost.turns} new bytes: {cost.new} new,"
            f" {cost.stored} stored, {cost.ratio:.2f} times"
        )


if __name__ == "__main__":
    main()
