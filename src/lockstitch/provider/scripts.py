"""Files of replies: JSON, JSON lines, TOML, or a Python program that makes them up."""

from __future__ import annotations

import json
import runpy
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstitch.errors import LockstitchError, Unreadable
from lockstitch.provider.replies import OK, Incoming, Reply, Script, replies_of, reply_of


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
        return _program(path)
    if path.endswith(".toml"):
        return Script(replies_of(_toml(data)))
    return Script(replies_of(_json(data)))


def _json(data: bytes) -> Any:
    """Return a JSON list, or the values of a file with one on every line."""
    try:
        if data.lstrip().startswith(b"["):
            return json.loads(data)
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is not a list of replies: {error}") from None


def _toml(data: bytes) -> Any:
    try:
        return tomllib.loads(data.decode()).get("replies")
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is not a list of replies: {error}") from None


def _program(path: str) -> Script:
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


def _line_of(error: BaseException, path: str) -> str:
    """Return where in a program it failed, as in `` at line 3``; nothing if that is not known."""
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == Path(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f" at line {lines[-1]}" if lines else ""
