"""What the provider answers: a constant word, or replies to order, with tool calls and faults.

They come from a program's own tests or from a file: JSON, JSON lines, TOML, or a Python program.
"""

from __future__ import annotations

import json
import runpy
import tomllib
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.errors import LockstitchError, Unreadable, UsageError
from lockstitch.provider.faults import InjectedFault, fault_in


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call in a reply."""

    name: str
    arguments: dict[str, Any] = {}


class Reply(Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the model: some text, some calls, or both.

    ``thinking`` goes before them where the API has a place for it: not in OpenAI Chat.
    ``fault`` says what goes wrong with it, in the words of ``faults``.
    """

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    thinking: str = ""
    fault: str = ""

    def __post_init__(self) -> None:
        """Raise UsageError for a fault that is none."""
        fault = self.parsed_fault
        if fault.only or fault.times is not None:
            raise UsageError("the fault of a reply takes neither only= nor times=")

    @property
    def parsed_fault(self) -> InjectedFault:
        """The fault that its words name."""
        return fault_in(self.fault)


OK = Reply("ok")


class Incoming(Struct, frozen=True):
    """A request that was accepted, as a script sees it.

    ``messages`` is the conversation (``contents`` or ``input`` in the APIs that call it so), and
    ``is_summary`` whether the request looks like one for a summary or a title.
    """

    number: int
    dialect: str
    path: str
    model: str
    tools: frozenset[str]
    messages: Any
    body: Mapping[str, Any]
    is_summary: bool


class Script:
    """Replies in order, each given once; before, between and after them the answer is ``ok``."""

    def __init__(self, replies: Iterable[Reply] = ()) -> None:
        self._left = list(replies)

    def add(self, *replies: Reply) -> None:
        """Put these replies behind the others."""
        self._left += replies

    def reply(self, request: Incoming) -> Reply:
        """Return the reply for a request, and use it up."""
        return self.answer(request.tools)

    def preview(self, request: Incoming) -> Reply:
        """Return the reply for a request that will not get all of it; it is given again."""
        return self._left[0] if self._fits(request.tools) else OK

    def answer(self, tools: AbstractSet[str]) -> Reply:
        """Return the reply for a request that offers these tools.

        A reply with calls waits for a request that offers all of them: clients also send
        requests of their own, for a title or a summary, and those must not use it up.
        """
        return self._left.pop(0) if self._fits(tools) else OK

    def _fits(self, tools: AbstractSet[str]) -> bool:
        return bool(self._left) and all(call.name in tools for call in self._left[0].calls)


def replies_of(values: Any) -> list[Reply]:
    """Return the replies in a list of them, of texts, or of plain data; raise Unreadable."""
    if not isinstance(values, list | tuple):
        raise Unreadable("holds no list of replies")
    replies = []
    for number, value in enumerate(values, 1):
        try:
            replies.append(reply_of(value))
        except Unreadable as error:
            raise Unreadable(f"reply {number} {error}") from None
    return replies


def reply_of(value: Any) -> Reply:
    """Return a reply, also of a text or of plain data; raise Unreadable for anything else."""
    if isinstance(value, str):
        value = {"text": value}
    try:
        reply = value if isinstance(value, Reply) else msgspec.convert(value, Reply)
    except msgspec.ValidationError as error:
        raise Unreadable(f"is no reply: {error}") from None
    if not (reply.text or reply.calls or reply.parsed_fault.breaks):
        raise Unreadable("has neither text nor calls")
    return reply


class FunctionScript(Script):
    """Replies that a function makes up from each request; None stands for ``ok``."""

    def __init__(self, function: Callable[[Incoming], Any], path: str = "") -> None:
        super().__init__()
        self._function = function
        self._path = path

    def reply(self, request: Incoming) -> Reply:
        """Return what the function says; raise Unreadable if it fails or says nothing usable."""
        try:
            made = self._function(request)
            return OK if made is None else reply_of(made)
        except Unreadable as error:
            raise Unreadable(f"what reply() returned {error}") from None
        except Exception as error:
            line = _line_of(error, self._path)
            raise Unreadable(f"reply() raised {type(error).__name__}{line}") from error

    def preview(self, request: Incoming) -> Reply:
        return self.reply(request)


def script_in(path: str, data: bytes) -> Script:
    """Read a file of replies by the ending of its name; raise Unreadable."""
    if path.endswith(".py"):
        try:
            names = runpy.run_path(path, run_name="lockstitch_replies")
        except LockstitchError:
            raise
        except (Exception, SystemExit) as error:
            where = _line_of(error, path)
            raise Unreadable(f"cannot be run: {type(error).__name__}{where}: {error}") from error
        if callable(names.get("reply")):
            return FunctionScript(names["reply"], path)
        if "replies" in names:
            return Script(replies_of(names["replies"]))
        raise Unreadable("defines neither a function reply(request) nor a list replies")
    values: Any
    try:
        if path.endswith(".toml"):
            values = tomllib.loads(data.decode()).get("replies")
        elif data.lstrip().startswith(b"["):
            values = json.loads(data)
        else:
            values = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is not a list of replies: {error}") from None
    return Script(replies_of(values))


def _line_of(error: BaseException, path: str) -> str:
    """Return where in a program it failed, as in `` at line 3``; nothing if that is not known."""
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == Path(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f" at line {lines[-1]}" if lines else ""
