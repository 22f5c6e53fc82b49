"""Tools as a session runs them: what may be declared of one, and what its results become."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct, structs

from lockstitch.errors import UsageError
from lockstitch.journal.events import Finished, Started, Waiting, text_payload
from lockstitch.session.calls import Call
from lockstitch.session.content import content_payload, text_of

_TOOLS = "tools are a dictionary of names and functions, or Tool(function, …)"
Policy = bool | Callable[[Call], Any]
Outcome = Finished | Waiting


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call, with its properties.

    ``repeatable``: running it again after a crash does no harm; it gets the same idempotency key
    (``current_call().effect``). ``timeout``: seconds, in place of the one for all tools.
    ``approve``: true, or a function of the call that says so, if somebody has to agree first.
    """

    function: Callable[..., Any]
    repeatable: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)
    approve: Policy = field(default=False, kw_only=True)

    @property
    def is_async(self) -> bool:
        """Whether it has to be awaited."""
        made = getattr(self.function, "__call__", None)  # noqa: B004 - the method, not the question
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(made)


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool returns if a plain value is not enough: content blocks, or a failure.

    ``content`` is a text, or content as ``dialect`` spells it in a tool's result.
    """

    content: Any
    dialect: str = field(default="", kw_only=True)
    error: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Later:
    """What a tool returns when its result will come from elsewhere, in a minute or in a week.

    The call waits, also over restarts, for ``store.deliver(session, effect, result)``.
    """


@dataclass(frozen=True, slots=True)
class CurrentCall:
    """The call that a running tool serves.

    ``effect`` is the same for every attempt: pass it on as an idempotency key. ``abort`` is set
    when nobody waits for the result any more.
    """

    id: str
    name: str
    session: str
    reply: int
    index: int
    effect: str
    attempt: int
    abort: threading.Event

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from every other call of its session."""
        return self.reply, self.index


CURRENT: ContextVar[CurrentCall] = ContextVar("lockstitch_call")


def current_call() -> CurrentCall:
    """Return the call that the running tool serves; raises ``UsageError`` outside a tool."""
    try:
        return CURRENT.get()
    except LookupError:
        raise UsageError("no tool is running here: ask inside a function of run_tools") from None


def toolbox(tools: Mapping[str, Callable[..., Any] | Tool], *, can_await: bool) -> dict[str, Tool]:
    """Read the tools of a call of ``run_tools``; whatever is wrong with them is said first."""
    if not isinstance(tools, Mapping):
        raise UsageError(_TOOLS)
    found = {name: _tool(name, tool) for name, tool in tools.items()}
    for name, tool in found.items():
        if tool.is_async and not can_await:
            raise UsageError(f"the tool {name} is async: run it in a session of async_session()")
        if tool.timeout is not None:
            checked_timeout(tool.timeout)
    return found


def _tool(name: object, tool: object) -> Tool:
    if isinstance(tool, Tool):
        return tool
    if not isinstance(name, str) or not callable(tool):
        raise UsageError(_TOOLS)
    return Tool(tool)


def checked_timeout(seconds: object) -> float:
    """Give a timeout back if it is a number of seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise UsageError("a timeout is a number of seconds above 0")
    return float(seconds)


class Job(Struct):
    """A call about to run: the fact that says so, its tool, and what it is called with."""

    event: Started
    call: CurrentCall
    tool: Tool
    arguments: dict[str, Any]
    timeout: float | None = None
    is_launched: bool = False
    deadline: float = math.inf

    @property
    def key(self) -> tuple[int, int]:
        """The call it runs."""
        return self.event.reply, self.event.index

    def run(self) -> Outcome:
        """Call the tool here and now; whatever it does becomes an outcome."""
        CURRENT.set(self.call)
        try:
            return self._finished(_at_hand(self.tool.function(**self.arguments)))
        except BaseException as error:  # noqa: BLE001 - a thread's end: there is nobody to raise to
            return self.failed(error)

    async def run_async(self) -> Outcome:
        """Await the tool; cancellation goes on, anything else becomes an outcome."""
        CURRENT.set(self.call)
        try:
            return self._finished(await self.tool.function(**self.arguments))
        except Exception as error:  # noqa: BLE001 - a tool's failure is for the model to see
            return self.failed(error)

    def failed(self, error: BaseException) -> Finished:
        """Say how the tool failed: the kind and the message, never the traceback."""
        return finished(self.key, self.event.attempt, error)

    def _finished(self, value: Any) -> Outcome:
        if isinstance(value, Later):
            return Waiting(reply=self.event.reply, index=self.event.index, outside=True)
        return finished(self.key, self.event.attempt, value)


def finished(key: tuple[int, int], attempt: int, value: Any) -> Finished:
    """Say what a call gave: a value, content in some dialect, or an exception."""
    made = Finished(reply=key[0], index=key[1], attempt=attempt)
    if isinstance(value, BaseException):
        value = Result(_said_by(value), error=True)
    result = value if isinstance(value, Result) else Result(value)
    if result.error:
        made = structs.replace(made, outcome="error")
    if not result.dialect:
        return structs.replace(made, payload=text_payload(text_of(result.content)))
    payload = content_payload(result.content, result.dialect)
    return structs.replace(made, payload=payload, dialect=result.dialect)


def _at_hand(value: Any) -> Any:
    """Give a value back if it is one; nobody here can await it otherwise."""
    if not inspect.isawaitable(value):
        return value
    close = getattr(value, "close", None)
    if callable(close):
        close()
    raise UsageError("the tool gave something to await: declare it with async def")


def _said_by(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot even say what it is
        return name
    return f"{name}: {text}" if text else name


def unfit(tool: Tool, arguments: dict[str, Any]) -> str:
    """Say why a tool cannot be called with these arguments; "" if it can, or nobody can tell."""
    try:
        signature = inspect.signature(tool.function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(**arguments)
    except TypeError as error:
        return f"The arguments do not fit the tool: {error}."
    return ""
