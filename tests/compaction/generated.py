"""Generated sessions that are worth a compaction: long texts, images, what providers counted.

Every mark of the journal's generator is followed by padding that ends in a mark of its own, so
that a text which is whole can be told from one that is not.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st

from lockstitch.compaction.ladder import (
    AcceptedAnswer,
    Ask,
    Compaction,
    Failure,
    PauseStep,
    Steps,
    Unasked,
)
from lockstitch.journal.records import blob_name
from tests.journal.replies import DIALECTS
from tests.journal.sessions import ABSURD, Session, Writer

MARK = re.compile(r"<[TAD]\d+>")
GOOD = "<G1> The user asked for several things; some of them are done, and others are left open."
API_ERROR = "API Error: 529 {'type': 'overloaded_error', 'message': 'Overloaded'}"
HTML = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body></body></html>"
# What may come of a question: a text, a failure, or something that is no text at all.
ANSWERS: tuple[Any, ...] = (
    *[GOOD] * 4,
    *["", "  \n ", "??", API_ERROR, HTML, "x " * 400_000, None, "I'm sorry, I can't do that here."],
    Failure("TimeoutError"),
    Failure("BadRequestError (400)"),
    Failure("OverloadedError (529)"),
)


def png(width: int, height: int, size: int = 0) -> str:
    """A PNG as base64: its header is real, and it has some bytes behind it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    image = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk
    image += struct.pack(">I", zlib.crc32(chunk)) + bytes(range(256)) * (size // 256)
    return base64.b64encode(image).decode()


def image_in(dialect: str, data: str) -> Any:
    """An image as a part of a message of the user's."""
    url = f"data:image/png;base64,{data}"
    return {
        "anthropic": {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": data},
        },
        "openai-chat": {"type": "image_url", "image_url": {"url": url}},
        "openai-responses": {"type": "input_image", "image_url": url, "detail": "auto"},
        "gemini": {"inlineData": {"mimeType": "image/png", "data": data}},
        "bedrock": {"image": {"format": "png", "source": {"bytes": data}}},
        "langchain": {"type": "image_url", "image_url": {"url": url}},
    }[dialect]


class Longer(Writer):
    """Draws sessions with images in them, too, and from one number: that is far faster."""

    def __init__(self, seed: int, dialects: tuple[str, ...], *, wild: bool) -> None:
        self.dice = Random(seed)  # noqa: S311 - luck, not secrets
        super().__init__(self._any_record, dialects, wild=wild)

    def _any_record(self, _strategy: Any) -> Any:
        return self.dice.randint(1, max(len(self.session.records), 1))

    def pick(self, *values: Any) -> Any:
        return self.dice.choice(values)

    def chance(self, of: int) -> bool:
        return self.dice.randint(1, of) == of

    def place(self) -> int:
        near = range(len(self.session.records) + 1)
        return self.pick(*near, *ABSURD) if self.wild else self.pick(*near)

    def say(self) -> None:
        if not self.chance(4):
            super().say()
            return
        dialect = self.pick(*self.dialects)
        text = self.mark("T")
        key = "type" if dialect not in {"gemini", "bedrock"} else ""
        kind = "input_text" if dialect == "openai-responses" else "text"
        words = {"type": kind, "text": text} if key else {"text": text}
        self.put("said", [words, image_in(dialect, png(640, 480, 512))], dialect=dialect)
        self.turn = True

    def whole_turn(self) -> None:
        """A turn as it should be."""
        self.say()
        self.reply()
        self.run()
        self.put("ended")
        self.turn = False


def padding(mark: str, scale: int) -> str:
    """What stands behind a mark; its length is the mark's own."""
    number = int(mark[2:-1])
    letters = mark[1:-1].lower()
    return f"{mark} " + f"{letters} " * (number * 37 % 100 * scale // 100) + f"/{letters}/"


def _lengthened(raw: bytes, scale: int) -> bytes:
    text = raw.decode("utf-8", "surrogatepass")
    longer = MARK.sub(lambda found: padding(found[0], scale), text)
    return longer.encode("utf-8", "surrogatepass")


def lengthened(session: Session, scale: int) -> Session:
    """The same session with long texts."""
    made = Session()
    names: dict[str, str] = {}
    for name, raw in session.blobs.items():
        longer = _lengthened(raw, scale)
        names[name] = blob_name(longer)
        made.blobs[names[name]] = longer
    for record in session.records:
        body = _lengthened(record.body, scale)
        for name, new in names.items():
            body = body.replace(name.encode(), new.encode())
        made.add(body, key=record.key)
    return made


@st.composite
def sessions(draw: st.DrawFn, *, wild: bool = False, most: int = 10) -> Session:
    """A session with texts of up to some thousand characters."""
    dialects = draw(st.sampled_from([DIALECTS, *((dialect,) for dialect in DIALECTS)]))
    writer = Longer(draw(st.integers(0, 10**9)), dialects, wild=wild)
    for _ in range(draw(st.sampled_from([0, 2, 4, 6]))):
        writer.whole_turn()
    session = writer.write(draw(st.integers(1, most)))
    return lengthened(session, draw(st.sampled_from([20, 400, 400, 2000])))


@dataclass
class Schedule:
    """What becomes of each question, and how long it takes, on a clock that nobody waits for."""

    answers: Sequence[Any]
    seconds: float = 1.0
    deadline: float = 60.0
    each: float = 30.0
    now: float = 0.0
    kept: dict[str, str] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def run(self, steps: Steps) -> Compaction:
        """Drive a compaction as the runner does."""
        sent: Any = None
        while True:
            try:
                step = steps.send(sent)
            except StopIteration as done:
                result: Compaction = done.value
                return result
            sent = self._taken(step)

    def _taken(self, step: Ask | PauseStep | AcceptedAnswer) -> Any:
        left = max(self.deadline - self.now, 0)
        if isinstance(step, AcceptedAnswer):
            self.kept[step.key] = step.text
            return None
        if isinstance(step, PauseStep):
            assert step.seconds > 0
            self.pauses.append(step.seconds)
            self.now += min(step.seconds, left)
            return None
        if left <= 0:
            return Unasked("there was no time left")
        self.prompts.append(step.prompt)
        self.now += min(self.seconds, self.each, left)
        if self.seconds > min(self.each, left):
            return Failure("no answer in time")
        return self.answers[(len(self.prompts) - 1) % len(self.answers)]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any failures in any order, fast or slow."""
    answers = draw(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4))
    return Schedule(
        answers,
        seconds=draw(st.sampled_from([0.0, 1.0, 29.0, 1e9])),
        deadline=draw(st.sampled_from([0.0, 0.5, 60.0, 1e6])),
    )


def each(value: Any, wanted: Callable[[Any], bool]) -> Iterator[Any]:
    """Everything in a value that is wanted."""
    if wanted(value):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from each(one, wanted)
