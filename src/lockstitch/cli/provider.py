"""``lockstitch provider``: a strict provider on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstitch.cli import render, terminal
from lockstitch.cli.options import JSON, Command, Operand, Option, read_port
from lockstitch.cli.terminal import CLEAN
from lockstitch.errors import Unreadable

if TYPE_CHECKING:
    from lockstitch.provider.replies import Script
    from lockstitch.provider.service import RequestEntry


def run(  # noqa: PLR0913 - one argument an option
    *,
    profiles: list[str],
    port: int,
    reply: str | None,
    fault: str | None,
    record: str | None,
    as_json: bool,
) -> int:
    """Serve until interrupted, and return the exit status."""
    from time import time

    from lockstitch.provider import load_server
    from lockstitch.provider.replies import Faults, faults_in
    from lockstitch.provider.service import Records, Service, choose_rules

    server = load_server()
    service = Service(
        choose_rules(profiles),
        _load_script(reply),
        clock=time,
        log=print_request if as_json else _log_text,
        records=None if record is None else Records(record),
        faults=Faults(faults_in(fault or "")),
    )
    server.run(service, port, print_url if as_json else announce)
    return CLEAN


def _load_script(path: str | None) -> Script:
    from lockstitch.files.read import read_file
    from lockstitch.provider.replies import Script, script_in

    if path is None:
        return Script()
    try:
        return script_in(path, read_file(path))
    except Unreadable as error:
        raise error.about(path) from None


def announce(url: str) -> None:
    """Print where a server listens, with the variables that lead the vendors' clients there."""
    from lockstitch.provider import addresses

    named = " ".join(f"{name}={value}" for name, value in addresses(url).items())
    terminal.note(f"Listening on {url} ({named})")


def print_url(url: str) -> None:
    """Print where a server listens, for programs."""
    render.emit_json_line(url=url)


def print_request(entry: object) -> None:
    """Print what became of a request, for programs."""
    render.emit_json_line(request=entry)


def _log_text(entry: RequestEntry) -> None:
    codes = "".join(f" {found.code} at {found.place};" for found in entry.findings).rstrip(";")
    path = terminal.escape_controls(entry.path)  # the model's name in it is the client's
    said = f"{entry.number} {path} {entry.status} {entry.outcome}"
    colour = "green" if entry.outcome == "accepted" else "red"
    fault = f"; fault: {entry.fault}" if entry.fault else ""
    terminal.say(f"{terminal.paint(said, colour)} {entry.messages} messages{codes}{fault}")
    terminal.flush()


COMMAND = Command(
    name="provider",
    run=run,
    details=(
        "Speaks Anthropic Messages, OpenAI Responses, OpenAI Chat, Gemini and Bedrock Converse on "
        "127.0.0.1, streaming or not. What the real provider would refuse it refuses, with status "
        "400 and the provider's own words; everything else it answers with `ok`, or with the "
        'replies of a file: a JSON list such as [{"text": "on it", "calls": [{"name": "bash", '
        '"arguments": {"command": "ls"}}]}], the same as TOML ([[replies]]), or a Python file with '
        "a function reply(request). A reply with calls waits for a request that offers those "
        "tools. --fault makes answers go wrong: drop, status=529, retry-after=7, stall=5, after=3 "
        "(events), slow=0.2, cut=3 (events), cut-bytes=100, ids=repeated, only=summaries, times=2; "
        "words that stand together happen together, a comma begins the next fault. "
        "Ctrl-C ends it."
    ),
    examples=(
        "lockstitch provider",
        "lockstitch provider --port 8400 --reply replies.json --record requests",
        "lockstitch provider openai-chat:mistral --json",
        'lockstitch provider --fault "status=529 times=2, stall only=summaries"',
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
            default=8400,
            read=read_port,
        ),
        Option(
            "reply", ("--reply",), "Replies to give: JSON, TOML or a Python file.", metavar="FILE"
        ),
        Option("fault", ("--fault",), "What shall go wrong with answers.", metavar="WORDS"),
        Option(
            "record",
            ("--record",),
            "Keep every request body in this folder; never headers or keys.",
            metavar="DIR",
        ),
        JSON,
    ),
)
