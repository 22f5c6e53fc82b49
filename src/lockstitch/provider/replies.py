"""What the provider answers: a constant word, or replies to order, with tool calls."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.errors import Unreadable


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call in a reply."""

    name: str
    arguments: dict[str, Any] = {}


class Reply(Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the model: some text, some calls, or both.

    ``thinking`` goes before them where the API has signed thinking, and nowhere else.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""


OK = Reply("ok")


class Script:
    """Replies in order, each given once; before, between and after them the answer is ``ok``."""

    def __init__(self, replies: Iterable[Reply] = ()) -> None:
        self._left = list(replies)

    def answer(self, tools: AbstractSet[str]) -> Reply:
        """The reply for a request that offers these tools.

        A reply with calls waits for a request that offers all of them: clients also send
        requests of their own, for a title or a summary, and those must not use it up.
        """
        if self._left and all(call.name in tools for call in self._left[0].calls):
            return self._left.pop(0)
        return OK


def read(data: bytes) -> list[Reply]:
    """The replies in a file: a JSON list of them, or one a line; raises Unreadable."""
    try:
        if data.lstrip().startswith(b"["):
            replies = msgspec.json.decode(data, type=list[Reply])
        else:
            replies = msgspec.json.Decoder(Reply).decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"is not a list of replies: {error}") from None
    if not all(reply.text or reply.calls for reply in replies):
        raise Unreadable("holds a reply with neither text nor calls")
    return replies
