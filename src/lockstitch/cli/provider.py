"""``lockstitch provider``: a strict provider on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstitch.cli import CLEAN, terminal
from lockstitch.cli.arguments import JSON, Command, Operand, Option
from lockstitch.errors import Unreadable, UsageError
from lockstitch.unread import is_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockstitch.provider.desk import Desk, Entry
    from lockstitch.provider.replies import Reply

_HIGHEST_PORT = 65535
_MISSING = "the provider needs aiohttp, which is not installed: pip install 'lockstitch[provider]'"


def run(
    *, profiles: list[str], port: str, reply: str | None, record: str | None, as_json: bool
) -> int:
    """Serve until interrupted, and return the exit status."""
    server = _server()
    from time import time

    from lockstitch.provider.desk import Desk, Records
    from lockstitch.provider.judge import chosen
    from lockstitch.provider.replies import Script

    desk = Desk(
        chosen(profiles),
        Script([] if reply is None else _replies(reply)),
        clock=time,
        log=_log_json if as_json else _log_text,
        records=None if record is None else Records(record),
    )
    server(desk, _number(port), _announce_json if as_json else _announce_text)
    return CLEAN


def _server() -> Callable[[Desk, int, Callable[[str], None]], None]:
    try:
        from lockstitch.provider import server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "lockstitch":
            raise
        raise UsageError(_MISSING) from error
    return server.run


def _replies(path: str) -> list[Reply]:
    from lockstitch.inputs import content
    from lockstitch.provider.replies import read

    try:
        return read(content(path))
    except Unreadable as error:
        raise Unreadable(f"{path}: {error}") from None


def _number(port: str) -> int:
    if not is_index(port) or int(port) > _HIGHEST_PORT:
        raise UsageError(f"--port takes a number from 0 to {_HIGHEST_PORT}")
    return int(port)


def _announce_text(url: str) -> None:
    terminal.note(f"Listening on {url} (ANTHROPIC_BASE_URL={url} OPENAI_BASE_URL={url}/v1)")


def _announce_json(url: str) -> None:
    _emit(url=url)


def _log_text(entry: Entry) -> None:
    codes = "".join(f" {found.code} at {found.place};" for found in entry.findings).rstrip(";")
    said = f"{entry.number} {entry.path} {entry.status} {entry.outcome}"
    colour = "green" if entry.outcome == "accepted" else "red"
    terminal.say(f"{terminal.paint(said, colour)} {entry.messages} messages{codes}")
    terminal.flush()


def _log_json(entry: Entry) -> None:
    _emit(request=entry)


def _emit(**fields: object) -> None:
    """Write a line for a program at once: it waits for it."""
    from lockstitch.cli import machine

    terminal.emit(machine.encode(**fields))
    terminal.flush()


COMMAND = Command(
    name="provider",
    group="requests",
    run=run,
    summary="Run a strict provider on this machine, for tests and demos.",
    details=(
        "Speaks Anthropic Messages, OpenAI Responses and OpenAI Chat on 127.0.0.1, streaming or "
        "not. What the real provider would refuse it refuses, with status 400 and the provider's "
        "own words; everything else it answers with `ok`, or with the replies of a file: a JSON "
        'list such as [{"text": "on it", "calls": [{"name": "bash", "arguments": '
        '{"command": "ls"}}]}]. A reply with calls waits for a request that offers those tools; '
        'with "thinking" it begins with signed thinking, in Anthropic\'s API. Ctrl-C ends it.'
    ),
    examples=(
        "lockstitch provider",
        "lockstitch provider --port 8400 --reply replies.json --record requests",
        "lockstitch provider openai-chat:mistral --json",
    ),
    operand=Operand(
        "profiles",
        "PROFILE",
        "Profiles to judge by, as in openai-chat:mistral; else the vendor's own rules.",
        many=True,
        is_target=False,
    ),
    options=(
        Option(
            "port",
            ("--port", "-p"),
            "Port to listen on; 0 takes a free one (default: 8400).",
            metavar="PORT",
            default="8400",
        ),
        Option("reply", ("--reply",), "Replies to give, in order.", metavar="FILE"),
        Option(
            "record",
            ("--record",),
            "Keep every request body in this folder; never headers or keys.",
            metavar="DIR",
        ),
        JSON,
    ),
)
