"""``lockstitch ui``: the sessions of this machine, or of a store, on a page in the browser."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from lockstitch.cli import render, terminal
from lockstitch.cli.options import JSON, Command, Operand, Option, read_port
from lockstitch.cli.targets import naming_target
from lockstitch.cli.terminal import CLEAN, describe_bug
from lockstitch.errors import UsageError

_MISSING = "the page needs aiohttp, which is not installed: pip install 'lockstitch[ui]'"


def run(*, target: str | None, port: int | None, no_browser: bool, as_json: bool) -> int:
    """Serve until interrupted, and return the exit status."""
    try:
        from lockstitch.inspector import actions, server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "lockstitch":
            raise
        raise UsageError(_MISSING) from error
    if target is not None:
        with naming_target(target):
            actions.require_showable(target)
    inspector = server.Inspector(target, lambda error: terminal.complain(describe_bug(error)))
    with ExitStack() as stack:

        def announce(address: str) -> None:
            if as_json:
                render.emit_json_line(url=address)
                return
            terminal.say(f"Open {address}")
            terminal.note("The address lets one browser in, once. Ctrl-C ends it.")
            terminal.flush()
            if not no_browser:
                _open(address, stack)

        server.run(inspector, port, announce)
    if not as_json:
        terminal.note("Ended.")
    return CLEAN


def _open(address: str, stack: ExitStack) -> None:
    """Open the browser with a file that only this user can read and that leads to the address.

    The address itself would be seen by everybody who can list the processes of this machine.
    """
    import tempfile
    import threading
    import webbrowser
    from pathlib import Path

    if sys.platform == "linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")
    ):
        return
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstitch-"))
    path = Path(folder) / "open.html"
    path.touch(0o600)
    lead = f'<meta http-equiv="refresh" content="0; url={address}">'
    path.write_text(f"<!doctype html><title>Lockstitch</title>{lead}\n", "utf-8")
    threading.Thread(target=webbrowser.open, args=(path.as_uri(),), daemon=True).start()


COMMAND = Command(
    name="ui",
    run=run,
    details=(
        "Shows the sessions of this machine, or those of TARGET: a file, a folder, the id of a "
        "session, a store of Lockstitch's own (sqlite:///, jsonl:///, postgresql://) or a "
        "database of LangGraph's. A session is shown as a timeline in which each call stands with "
        "its result and what a resume would drop is marked. Everything that changes a session "
        "says first what it will change, and asks. The page is served on 127.0.0.1 only, to the "
        "one browser that opens the printed address; secrets are masked until they are asked for. "
        "Nothing leaves this machine. Ctrl-C ends it."
    ),
    examples=(
        "lockstitch ui",
        "lockstitch ui ~/.claude/projects",
        "lockstitch ui sqlite:///agent.db --port 8500",
        "lockstitch ui --no-browser",
    ),
    operand=Operand(
        "target", "TARGET", "A file, a folder, an id or a store; else all of this machine."
    ),
    options=(
        Option(
            "port",
            ("--port", "-p"),
            "Port to listen on; 0 takes a free one (default: 8407, or a free one).",
            metavar="PORT",
            read=read_port,
        ),
        Option("no_browser", ("--no-browser",), "Only print the address."),
        JSON,
    ),
)
