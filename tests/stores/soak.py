"""Many writers of the same sessions that are killed and stopped all the time: nothing is lost.

``python -m tests.stores.soak jsonl:///store --seconds 600 --writers 8`` (any address) runs
until the time is up and prints what it saw; it fails if anything acknowledged is not there, is
there twice, or not where it was acknowledged.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress

from lockstitch.errors import Conflict, LockstitchError
from lockstitch.stores.base import Backend, StoreFault
from lockstitch.stores.opening import open_backend
from tests.driven import say
from tests.stores.contract import entry

SESSIONS = ("a", "b", "c")


def write(address: str, name: str, seed: int) -> None:
    """Be a writer: take a session, add to it, say what was acknowledged, and so on."""
    chance = random.Random(seed)  # noqa: S311
    number = 0
    with open_backend(address) as backend:
        while True:
            session = chance.choice(SESSIONS)
            try:
                lease = backend.acquire(session, wait=0.2)
                seq = lease.head.seq
                for _ in range(chance.randrange(1, 20)):
                    keys = [f"{name}-{number + part}" for part in range(chance.randrange(1, 4))]
                    number += len(keys)
                    large = (b"%d" % number * 100,) if chance.random() < 0.2 else ()
                    sent = [entry(key, b'{"n":1}', *large) for key in keys]
                    backend.append(lease, sent, seq)
                    for key in keys:
                        seq += 1
                        say(f"acked {session} {seq} {key} {lease.epoch}")
                backend.release(lease)
            except Conflict as error:
                say(f"refused {type(error).__name__}")
            except LockstitchError as error:
                say(f"failed {type(error).__name__} {error}")


class Writers:
    """The writers, and what they said."""

    def __init__(self, address: str, seed: int) -> None:
        self.address = address
        self.chance = random.Random(seed)  # noqa: S311
        self.living: list[subprocess.Popen[bytes]] = []
        self.readers: list[threading.Thread] = []
        self.said: list[str] = []
        self.counts: Counter[str] = Counter()

    def start(self) -> None:
        self.counts["started"] += 1
        name = f"w{self.counts['started']}"
        seed = str(self.chance.randrange(1 << 30))
        command = [sys.executable, "-m", "tests.stores.soak", self.address, "--write", name, seed]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        reader = threading.Thread(target=self._listen, args=(process,))
        reader.start()
        self.living.append(process)
        self.readers.append(reader)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        with process.stdout:
            for line in process.stdout:
                if line.endswith(b"\n"):
                    self.said.append(line.decode())

    def listen(self, count: int) -> None:
        """Wait until so much was said: one that is killed before its first word shows little."""
        deadline = time.monotonic() + 120
        while len(self.said) < count and time.monotonic() < deadline:
            time.sleep(0.01)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.living.remove(process)
        self.counts["killed"] += 1

    def disturb(self, pause: float) -> None:
        """Kill a writer and start another, or stop one for a while, mostly beyond its lease."""
        process = self.chance.choice(self.living)
        if self.chance.random() < 0.5:
            self.kill(process)
            self.start()
        else:
            process.send_signal(signal.SIGSTOP)
            time.sleep(pause * self.chance.random())
            process.send_signal(signal.SIGCONT)
            self.counts["stopped"] += 1

    def end(self) -> None:
        for process in list(self.living):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            self.kill(process)
        for reader in self.readers:
            reader.join()


def soak(address: str, seconds: float, writers: int, lease: float, seed: int) -> Counter[str]:
    """Let writers work and disturb them; raises AssertionError, or tells what was seen."""
    joint = "&" if "?" in address else "?"
    crowd = Writers(f"{address}{joint}lease={lease}", seed)
    with open_backend(address) as backend:
        try:
            for _ in range(writers):
                crowd.start()
            crowd.listen(30)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline or not crowd.counts["stopped"]:
                crowd.disturb(lease * 3)
                assert_whole(backend)
        finally:
            crowd.end()
        return crowd.counts + judged(backend, crowd.said)


def assert_whole(backend: Backend) -> None:
    """Every session can be read at any time."""
    for session in SESSIONS:
        if backend.head(session):
            keys = [record.key for record in backend.read(session)]
            assert len(keys) == len(set(keys))


def judged(backend: Backend, said: list[str]) -> Counter[str]:
    """Compare what is there with what was acknowledged."""
    found = {
        (session, record.seq): (record.key, record.epoch)
        for session in SESSIONS
        if backend.head(session)
        for record in backend.read(session)
    }
    counts = Counter(records=len(found))
    for word, *rest in map(str.split, said):
        counts[word if word == "acked" else rest[0]] += 1
        if word == "acked":
            session, seq, key, epoch = rest
            assert found[session, int(seq)] == (key, int(epoch)), (session, seq, key)
    assert not [one for one in backend.verify() if isinstance(one, StoreFault)]
    for session in SESSIONS:
        keys = [key for (name, _), (key, _) in found.items() if name == session]
        assert len(keys) == len(set(keys))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--lease", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", nargs=2)
    chosen = parser.parse_args()
    if chosen.write:
        write(chosen.address, chosen.write[0], int(chosen.write[1]))
    counts = soak(chosen.address, chosen.seconds, chosen.writers, chosen.lease, chosen.seed)
    print(dict(counts))  # noqa: T201


if __name__ == "__main__":
    main()
