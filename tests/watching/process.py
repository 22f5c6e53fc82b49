"""``lockstitch watch`` as a process, and the events that it prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.inprocess import LOCKSTITCH

PATIENCE = 60.0
Json = dict[str, Any]


class Watch:
    """A watch over the sessions of a home; its events come as JSON."""

    def __init__(self, home: Path, *words: str, environ: Mapping[str, str] | None = None) -> None:
        given = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        self.process = subprocess.Popen(
            [*LOCKSTITCH, "watch", "--json", *words],
            env={**given, "HOME": str(home), **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.events: list[Json] = []
        self.said = b""
        self._threads = [threading.Thread(target=one) for one in (self._read, self._hear)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(signal.SIGKILL)

    def end(self, number: int) -> int:
        """End it by a signal, and return its status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join()
        return status

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as stream:
            for line in stream:
                self.events.append(json.loads(line))

    def _hear(self) -> None:
        assert self.process.stderr
        with self.process.stderr as stream:
            for line in stream:
                self.said += line

    def event(self, kind: str, number: int = 1) -> Json:
        """Wait for the event of a kind, the first one unless another number is given."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = [one for one in self.events if one.get("event") == kind]
            if len(found) >= number:
                return found[number - 1]
            assert self.process.poll() is None, self.said
            time.sleep(0.05)
        raise AssertionError((kind, self.events, self.said))
