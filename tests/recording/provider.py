"""A provider of Anthropic's API for campaigns: it answers anything, and gives up at times."""

from __future__ import annotations

import json
import random
import threading
import time

from tests.proxy.upstream import Wire
from tests.recording.talking import answer, streamed, whole

WORDS = ("yes", "no", "perhaps")


class Moody:
    """Replies of few words, so that conversations meet: whole, streamed, cut off or refused."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - to be had again
        self._lock = threading.Lock()
        self._number = 0

    def __call__(self, wire: Wire) -> None:
        body = json.loads(wire.seen.body)
        with self._lock:
            self._number += 1
            number, mood = self._number, self._random.random()
            text = self._random.choice((*WORDS, f"reply {self._number}"))
            calls = (f"call_{number}",) if self._random.random() < 0.2 else ()
            cut = self._random.random()
        if mood < 0.03:
            wire.whole(
                b'{"type": "error", "error": {"type": "overloaded_error"}}', "529 Overloaded"
            )
        elif body.get("stream"):
            self._stream(wire, text, calls, cut if mood < 0.1 else 1.0)
        else:
            kind = "Content-Type: application/json"
            wire.whole(whole(answer("anthropic", number, text, *calls)), "200 OK", kind)

    def _stream(self, wire: Wire, text: str, calls: tuple[str, ...], share: float) -> None:
        chunks, _ = streamed("anthropic", text, *calls)
        wire.begin()
        for chunk in chunks[: int(len(chunks) * share)]:
            wire.chunk(chunk)
            time.sleep(0.002)
        if share < 1:
            raise ConnectionAbortedError("cut off on purpose")
        wire.chunk(b"")
