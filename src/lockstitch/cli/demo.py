"""``lockstitch demo``: what a kill -9 in mid-tool does to a message list, and to a session."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lockstitch.cli import render, terminal
from lockstitch.cli.options import JSON, Command, Operand
from lockstitch.cli.terminal import CLEAN
from lockstitch.errors import UsageError

if TYPE_CHECKING:
    from lockstitch.demo.stage import Act, Stage

_MISSING = "the demo needs aiohttp for its provider: pip install 'lockstitch[provider]'"
_CALLS = ("read notes.txt", "run the tests", "deploy")


def run(*, folder: str | None, as_json: bool) -> int:
    """Play both acts, and return the exit status: 0 only if all of it really happened."""
    if find_spec("aiohttp") is None:
        raise UsageError(_MISSING)
    if os.name != "posix":
        raise UsageError("the demo needs a POSIX shell: run it on Linux or macOS")
    from lockstitch.demo.stage import Stage

    stage = Stage(_empty_folder(folder))
    with stage.open():
        plain = _plain(stage, quiet=as_json)
        session = _session(stage, quiet=as_json)
    if as_json:
        terminal.emit(render.encode_json(plain=plain, session=session, store=stage.store))
    else:
        terminal.say("")
        terminal.say("The session is still there, to look at:")
        terminal.say("")
        for name in ("show", "checkpoints"):
            terminal.say(f"    lockstitch {name} {terminal.escape_controls(stage.store)}")
    return CLEAN


def _empty_folder(wanted: str | None) -> str:
    from pathlib import Path
    from tempfile import mkdtemp

    if wanted is None:
        return mkdtemp(prefix="lockstitch-demo-")
    folder = Path(wanted).absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{wanted} is not empty: the demo needs an empty folder")
    return str(folder)


def _plain(stage: Stage, *, quiet: bool) -> Act:
    if not quiet:
        _head("An agent with a plain message list")
        terminal.say("The model asks for three tools at once: " + ", ".join(_CALLS) + ".")
        terminal.flush()
    act = stage.plain()
    if not quiet:
        terminal.say(f"kill -9 {act.killed}, while `deploy` is running and the other two are done.")
        terminal.say(f"Started again, it sends its list, and the provider answers {act.status}:")
        terminal.say("")
        terminal.say(f"    {terminal.paint(terminal.escape_controls(act.error), 'red')}")
        terminal.say("")
        terminal.say("Both results are lost, and every later request will be refused, too.")
    return act


def _session(stage: Stage, *, quiet: bool) -> Act:
    if not quiet:
        terminal.say("")
        _head("The same agent with a Lockstitch session")
        terminal.flush()
    act = stage.session()
    if not quiet:
        terminal.say(f"kill -9 {act.killed}, at the same place.")
        terminal.say("Started again, it goes on by itself. Its request says of the three calls:")
        terminal.say("")
        for name, answer in zip(_CALLS, act.answers, strict=True):
            terminal.say(f"    {name:<15} {terminal.escape_controls(' '.join(answer.split()))}")
        terminal.say("")
        terminal.say(f"The provider answers {act.status}, and the conversation goes on:")
        terminal.say("")
        terminal.say(f"    {terminal.paint(terminal.escape_controls(act.said), 'green')}")
    return act


def _head(title: str) -> None:
    terminal.say(terminal.paint(title, "bold", stream=sys.stdout))


COMMAND = Command(
    name="demo",
    run=run,
    summary="Kill an agent in mid-tool, once with a message list and once with a session.",
    details=(
        "Starts the strict provider on this machine and two agents as processes of their own, and "
        "really kills each with kill -9 while one of three tools is running: one keeps a plain "
        "message list, the other a Lockstitch session. Nothing leaves this machine. The exit "
        "status is 0 only if all of it happened as shown."
    ),
    examples=("lockstitch demo", "lockstitch demo /tmp/demo"),
    operand=Operand("folder", "FOLDER", "An empty folder to work in; else a temporary one."),
    options=(JSON,),
)
