"""A strict provider on this machine that refuses what the real ones refuse, in their own words.

This module has what the provider is told to answer and to do wrong, and how the servers of this
package run: the provider, the proxy and the inspector. ``apis`` and ``openai`` contain the wire
formats, and ``service`` judges and answers requests. All of that works without sockets. Only
``server`` uses them, and needs aiohttp.
"""

from __future__ import annotations

import asyncio
import json
import math
import runpy
import signal
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct, structs

from lockstitch.conversation.parts import repr_without
from lockstitch.errors import LockstitchError, Unreadable, UsageError

if TYPE_CHECKING:
    from aiohttp.web import Application, BaseRunner

LOCALHOST = "127.0.0.1"
_REGION = "us-east-1"
_KEY = "lockstitch"


def addresses(url: str) -> dict[str, str]:
    """Return the environment variables for the address, in the form that each client expects."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "GOOGLE_GEMINI_BASE_URL": url,
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
    }


def environment(url: str) -> dict[str, str]:
    """Return all environment variables: the addresses, and keys that nobody checks."""
    return {
        **addresses(url),
        "ANTHROPIC_API_KEY": _KEY,
        "OPENAI_API_KEY": _KEY,
        "GEMINI_API_KEY": _KEY,
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _KEY,
        "AWS_REGION": _REGION,
        "AWS_DEFAULT_REGION": _REGION,
    }


# The type of an error by its status, as Anthropic, Google and AWS name it.
ERROR_KINDS = {
    400: ("invalid_request_error", "INVALID_ARGUMENT", "ValidationException"),
    401: ("authentication_error", "UNAUTHENTICATED", "UnrecognizedClientException"),
    403: ("permission_error", "PERMISSION_DENIED", "AccessDeniedException"),
    404: ("not_found_error", "NOT_FOUND", "ResourceNotFoundException"),
    408: ("timeout_error", "DEADLINE_EXCEEDED", "ModelTimeoutException"),
    413: ("request_too_large", "INVALID_ARGUMENT", "ValidationException"),
    429: ("rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException"),
    500: ("api_error", "INTERNAL", "InternalServerException"),
    502: ("api_error", "UNAVAILABLE", "ServiceUnavailableException"),
    503: ("overloaded_error", "UNAVAILABLE", "ServiceUnavailableException"),
    504: ("timeout_error", "DEADLINE_EXCEEDED", "ModelTimeoutException"),
    529: ("overloaded_error", "UNAVAILABLE", "ServiceUnavailableException"),
}


@contextmanager
def needing_aiohttp(what: str, extra: str) -> Iterator[None]:
    """Turn an ``ImportError`` in the block into an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "lockstitch":
            raise
        raise UsageError(
            f"{what} needs aiohttp, which is not installed: pip install 'lockstitch[{extra}]'"
        ) from error


# Answers, and what goes wrong with them.

REPEATED, SAME, MISSING = "repeated", "same", "missing"
SUMMARIES = "summaries"
_LOWEST_STATUS, _HIGHEST_STATUS = 400, 599
_CHOICES = {"ids": (REPEATED, SAME, MISSING), "only": (SUMMARIES,)}
_WORDS = (
    *("drop", "status", "retry-after", "stall", "after", "slow", "cut", "cut-bytes"),
    *("ids", "only", "times"),
)
# Options that are no fault by themselves: they say when and how another one happens.
_CONDITIONS = {"retry_after", "after", "only", "times"}
_TOO_MANY = 429


class InjectedFault(Struct, frozen=True, kw_only=True):
    """One fault, or several at once.

    ``drop`` closes the connection before any byte. ``status`` sends this error instead of an
    answer, with ``retry_after`` if that is given.

    ``stall`` is silence for this many seconds, after ``after`` events; after none, the head of the
    answer is held back, too. ``slow`` is this many seconds between two events. ``cut`` and
    ``cut_bytes`` close the connection after this many events, or bytes of the body.

    ``ids`` makes the ids of tool calls ``repeated`` in every reply, the ``same`` within one reply,
    or ``missing``. ``only`` and ``times`` say which requests the fault happens to, and how many of
    them.
    """

    words: str = ""
    drop: bool = False
    status: int = 0
    retry_after: int | None = None
    stall: float | None = None
    after: int = 0
    slow: float = 0.0
    cut: int | None = None
    cut_bytes: int | None = None
    ids: str = ""
    only: str = ""
    times: int | None = None

    @property
    def breaks(self) -> bool:
        """Whether the answer may be incomplete, so that a client has to ask again."""
        is_cut = self.cut is not None or self.cut_bytes is not None
        return self.drop or bool(self.status) or is_cut or self.stall == math.inf

    @property
    def headers(self) -> dict[str, str]:
        """The headers of an error: a provider that is asked too often says when to try again."""
        seconds = self.retry_after
        if seconds is None and self.status == _TOO_MANY:
            seconds = 1
        return {} if seconds is None else {"retry-after": str(seconds)}


NONE = InjectedFault()


class Faults:
    """The faults for all requests: each request meets the first fault that applies to it."""

    def __init__(self, faults: Iterable[InjectedFault] = ()) -> None:
        self._left = list(faults)

    def replace(self, faults: Iterable[InjectedFault]) -> None:
        """Replace all faults."""
        self._left = list(faults)

    def take(self, *, summary: bool) -> InjectedFault:
        """Return the fault for the next request.

        ``summary`` says whether that asks for a summary.
        """
        for index, fault in enumerate(self._left):
            if fault.only == SUMMARIES and not summary:
                continue
            if fault.times == 1:
                del self._left[index]
            elif fault.times is not None:
                self._left[index] = structs.replace(fault, times=fault.times - 1)
            return fault
        return NONE


def faults_in(text: str) -> list[InjectedFault]:
    """Return the faults for all requests from a text, in which commas separate them."""
    return [fault_in(part) for part in text.split(",") if part.strip()]


def fault_in(text: str) -> InjectedFault:
    """Return a fault such as ``stall=5 after=3``; raise ``UsageError`` if it is not valid."""
    found: dict[str, Any] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name.replace("_", "-") not in _WORDS:
            known = ", ".join(_WORDS)
            raise UsageError(f"there is no fault {name!r}; the words for faults are {known}")
        found[name.replace("-", "_")] = _value_of(name, value)
    if found and found.keys() <= _CONDITIONS:
        raise UsageError(
            f"{text!r} names no fault, only when one should happen: add one, such as drop"
        )
    return InjectedFault(words=" ".join(text.split()), **found)


def _value_of(name: str, value: str) -> Any:
    """Return the value of one option of a fault; raise ``UsageError`` if it is not valid."""
    field = name.replace("-", "_")
    if field == "drop":
        if value:
            raise UsageError(f"the fault {name} takes no value")
        return True
    if known := _CHOICES.get(field):
        if value not in known:
            raise UsageError(f"{name} takes one of {', '.join(known)}, as in {name}={known[0]}")
        return value
    if field in ("stall", "slow"):
        if field == "stall" and not value:
            return math.inf
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise UsageError(f"{name} takes seconds, as in {name}=0.5")
        return seconds
    if not value.isascii() or not value.isdecimal() or len(value) > len(str(10**9)):
        raise UsageError(f"{name} takes a whole number, as in {name}=3")
    number = int(value)
    if field == "times" and not number:
        raise UsageError(f"{name} takes a whole number, 1 or more")
    if field == "status" and not _LOWEST_STATUS <= number <= _HIGHEST_STATUS:
        raise UsageError(f"{name} takes the status of an error, {_LOWEST_STATUS} to 599")
    return number


class Silence(Struct, frozen=True):
    """Send nothing for this many seconds."""

    seconds: float


class DeliveryEnd(Enum):
    """How an answer ended: whole, cut off by a fault, or because its client went away."""

    WHOLE = "whole"
    CUT = "cut"
    GONE = "gone"


Step = bytes | Silence | DeliveryEnd


def delivery_steps(events: Iterable[bytes], fault: InjectedFault) -> Iterator[Step]:
    """Yield what happens to the body of an answer, step by step."""
    left = fault.cut_bytes
    for number, event in enumerate(events):
        if fault.cut is not None and number >= fault.cut:
            yield DeliveryEnd.CUT
            return
        if number and fault.slow:
            yield Silence(fault.slow)
        if left is not None and len(event) >= left:
            yield event[:left]
            yield DeliveryEnd.CUT
            return
        left = None if left is None else left - len(event)
        yield event
        if fault.stall is not None and number + 1 == fault.after:
            yield Silence(fault.stall)
    yield DeliveryEnd.WHOLE


def arrives_whole(events: Iterable[bytes], fault: InjectedFault) -> bool:
    """Whether an answer arrives in full because it is too short for its fault."""
    if fault.drop or fault.status or (fault.stall == math.inf and not fault.after):
        return False
    steps = list(delivery_steps(events, fault))
    return steps[-1] is DeliveryEnd.WHOLE and Silence(math.inf) not in steps


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call in a reply."""

    name: str
    arguments: dict[str, Any] = {}

    __repr__ = repr_without("arguments")


class Reply(Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the model: some text, some calls, or both.

    ``thinking`` comes before them if the API has a place for it, which OpenAI Chat has not.
    ``fault`` says what goes wrong with the answer, in the words of ``faults``.
    """

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    thinking: str = ""
    fault: str = ""

    __repr__ = repr_without("text", "thinking")

    def __post_init__(self) -> None:
        """Raise ``UsageError`` if the fault is not valid."""
        fault = self.parsed_fault
        if fault.only or fault.times is not None:
            raise UsageError("the fault of a reply takes neither only= nor times=")

    @property
    def parsed_fault(self) -> InjectedFault:
        """The fault, parsed."""
        return fault_in(self.fault)


OK = Reply("ok")


class Incoming(Struct, frozen=True):
    """An accepted request, as a script sees it.

    ``messages`` is the conversation (``contents`` or ``input`` in some APIs), and ``is_summary``
    says whether the request seems to ask for a summary or a title.
    """

    number: int
    dialect: str
    path: str
    model: str
    tools: frozenset[str]
    messages: Any
    body: Mapping[str, Any]
    is_summary: bool

    def __repr__(self) -> str:
        """Return which request it is, but nothing of what it says."""
        return f"Incoming({self.number}, {self.dialect!r}, {self.path!r}, {self.model!r})"


class Script:
    """Replies in order, each used once; requests without a reply are answered with ``ok``."""

    def __init__(self, replies: Iterable[Reply] = ()) -> None:
        self._left = list(replies)

    def add(self, *replies: Reply) -> None:
        """Add replies after the others."""
        self._left += replies

    def reply(self, request: Incoming) -> Reply:
        """Return the reply for a request, and use it up.

        A reply with calls waits for a request that offers all of these tools: clients also send
        requests of their own, for a title or a summary, and these must not use it up.
        """
        return self._left.pop(0) if self._fits(request.tools) else OK

    def preview(self, request: Incoming) -> Reply:
        """Return the reply for a request whose answer will be cut short, without using it up."""
        return self._left[0] if self._fits(request.tools) else OK

    def use_up(self, reply: Reply) -> None:
        """Remove a reply that ``preview`` returned and that has arrived in full."""
        if self._left and self._left[0] is reply:
            del self._left[0]

    def _fits(self, tools: AbstractSet[str]) -> bool:
        return bool(self._left) and all(call.name in tools for call in self._left[0].calls)


def replies_of(values: Any) -> list[Reply]:
    """Return the replies in a list of replies, texts or plain data; raise ``Unreadable``."""
    if not isinstance(values, list | tuple):
        raise Unreadable("does not hold a list of replies")
    replies = []
    for number, value in enumerate(values, 1):
        try:
            replies.append(reply_of(value))
        except Unreadable as error:
            raise Unreadable(f"reply {number} {error}") from None
    return replies


def reply_of(value: Any) -> Reply:
    """Return a reply made from a text or plain data; raise ``Unreadable`` for anything else."""
    if isinstance(value, str):
        value = {"text": value}
    try:
        reply = value if isinstance(value, Reply) else msgspec.convert(value, Reply)
    except msgspec.ValidationError as error:
        raise Unreadable(f"is not a reply: {error}") from None
    if not (reply.text or reply.calls or reply.parsed_fault.breaks):
        raise Unreadable("has neither text nor calls")
    return reply


class FunctionScript(Script):
    """Replies that a function makes for each request; None stands for ``ok``."""

    def __init__(self, function: Callable[[Incoming], Any], path: str = "") -> None:
        super().__init__()
        self._function = function
        self._path = path

    def reply(self, request: Incoming) -> Reply:
        """Return the function's reply.

        Raise ``Unreadable`` if it fails or returns anything else.
        """
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
    """Return the script in a file, read according to its suffix; raise ``Unreadable``."""
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
    """Return where in a program it failed, such as `` at line 3``; "" if that is unknown."""
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == Path(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f" at line {lines[-1]}" if lines else ""


# How a server runs.


class StartStop(Protocol):
    """A server that can be started and stopped."""

    async def start(self) -> str:
        """Listen, and return the address."""

    async def stop(self) -> None:
        """Accept no more requests, and release everything."""


class AppServer:
    """A web application that listens on this machine, on the first free port of several."""

    def __init__(self, app: Application, *ports: int, cancels: bool = False) -> None:
        from aiohttp import web  # noqa: PLC0415 - an extra

        self.ports = ports
        self.runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=1, handler_cancellation=cancels
        )

    async def start(self) -> str:
        """Listen, and return the address."""
        try:
            return await listen(self.runner, LOCALHOST, *self.ports)
        except OSError as error:
            await self.stop()
            raise port_is_taken(f"port {self.ports[0]}") from error

    async def stop(self) -> None:
        """Accept no more requests, and close the connections."""
        await self.runner.cleanup()


async def listen(runner: BaseRunner, host: str, *ports: int, is_shared: bool = False) -> str:
    """Listen on the first free port of several, and return the address."""
    from aiohttp import web  # noqa: PLC0415 - an extra

    await runner.setup()
    for port in ports:
        try:
            await web.TCPSite(runner, host, port, reuse_port=is_shared or None).start()
        except OSError:
            if port == ports[-1]:
                raise
        else:
            break
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{runner.addresses[0][1]}"


def port_is_taken(where: str) -> UsageError:
    """Return the error for a port on which nothing can listen."""
    return UsageError(f"cannot listen on {where}: the address is in use or not allowed")


async def until_stopped(
    server: StartStop, ready: Callable[[str], None], *, stop: asyncio.Event | None = None
) -> None:
    """Serve until a signal comes, or until ``stop`` is set; ``ready`` gets the address."""
    stop = asyncio.Event() if stop is None else stop
    loop = asyncio.get_running_loop()
    # Windows has no signal handlers in an event loop.
    with suppress(NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
    url = await server.start()
    try:
        ready(url)
        await stop.wait()
    finally:
        await server.stop()


@contextmanager
def serving(server: StartStop) -> Iterator[str]:
    """Serve from a thread of this process during the block; yield the address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="lockstitch-server", daemon=True)
    thread.start()
    try:
        url = asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        try:
            yield url
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        # Threads of the loop may still be judging a request.
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
