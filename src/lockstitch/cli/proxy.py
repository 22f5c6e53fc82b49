"""``lockstitch proxy``: heals requests between any client and its provider."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from lockstitch.cli import terminal
from lockstitch.cli.options import JSON, Command, Operand, Option, read_number
from lockstitch.cli.provider import announce, print_request, print_url
from lockstitch.cli.terminal import CLEAN
from lockstitch.errors import Unreadable, UsageError

if TYPE_CHECKING:
    from lockstitch.proxy.forwarding import ProxyEvent
    from lockstitch.proxy.server import Connect
    from lockstitch.proxy.settings import Settings

_MISSING = "the proxy needs aiohttp, which is not installed: pip install 'lockstitch[proxy]'"
_TOKEN = "LOCKSTITCH_PROXY_TOKEN"  # noqa: S105 - the name of a variable
_MIB = 1 << 20


def run(  # noqa: PLR0913 - one keyword an option
    *,
    config: str | None,
    upstream: str | None,
    host: str | None,
    port: int | None,
    token_file: str | None,
    record: str | None,
    workers: int | None,
    max_body: int | None,
    fail_closed: bool,
    no_retry: bool,
    as_json: bool,
) -> int:
    """Serve until interrupted, and return the exit status."""
    chosen = {
        "host": host,
        "port": port,
        "workers": workers,
        "max_body": None if max_body is None else max_body * _MIB,
        "record": record,
        "fail_closed": fail_closed or None,
        "retry": False if no_retry else None,
    }
    try:
        from lockstitch.proxy import server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "lockstitch":
            raise
        raise UsageError(_MISSING) from error
    settings = _settings(config, upstream, token_file, chosen)
    log, ready = (print_request, print_url) if as_json else (_log_text, announce)
    if settings.workers == 1:
        server.serve(settings, ready, log=log, connect=_connect(settings))
    else:
        server.serve_from_workers(settings, ready, log=log, connect=_connect)
    return CLEAN


def _connect(settings: Settings) -> Connect | None:
    """Return what opens the recorder, if there is to be one."""
    from lockstitch.proxy.server import recorder_at

    return recorder_at(settings.record) if settings.record else None


def _settings(
    config: str | None, upstream: str | None, token_file: str | None, chosen: dict[str, Any]
) -> Settings:
    from pathlib import Path

    from msgspec import structs

    from lockstitch.files.read import read_file
    from lockstitch.proxy.settings import (
        Settings,
        Upstream,
        check_settings,
        parse_settings,
        token_in,
    )

    settings = Settings()
    if config is not None:
        try:
            settings = parse_settings(read_file(config).decode(), Path(config).parent)
        except UnicodeDecodeError as error:
            raise Unreadable(str(error)).about(config) from None
        except (Unreadable, UsageError) as error:
            raise error.about(config) from None
    fields = {name: value for name, value in chosen.items() if value is not None}
    if upstream is not None:
        fields["upstreams"] = (Upstream(url=upstream),)
    token = os.environ.get(_TOKEN, "") if token_file is None else token_in(Path(token_file))
    if token:
        fields["token"] = token
    return check_settings(structs.replace(settings, **fields))


def _log_text(event: ProxyEvent) -> None:
    from lockstitch.proxy.server import describe_event, is_notable

    if is_notable(event) or terminal.is_verbose():
        terminal.note(describe_event(event))


COMMAND = Command(
    name="proxy",
    run=run,
    details=(
        "Point a client's base URL here. A request that is fine goes on byte for byte; one that "
        "the provider would refuse is healed, always in the same way, and the reply says so in "
        "the header lockstitch-repaired. Speaks the APIs of Anthropic, OpenAI (Chat and "
        "Responses), Gemini and Bedrock; everything else passes. Keys pass through and are never "
        "stored or logged. The configuration is a TOML file with several upstreams; options come "
        "before what it says. A token, which is needed to listen beyond this machine, is taken "
        f"from the environment variable {_TOKEN} or from a file. Ctrl-C ends it, after "
        "what runs is done."
    ),
    examples=(
        "lockstitch proxy",
        "lockstitch proxy --upstream https://gateway.example/llm --port 8484",
        "lockstitch proxy proxy.toml --workers 4 --record sqlite:///conversations.db",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:8484 claude",
    ),
    operand=Operand(
        "config",
        "CONFIG",
        "Configuration file; none sends requests to the vendors' own addresses.",
        is_target=False,
    ),
    options=(
        Option("upstream", ("--upstream",), "Send all requests to this address.", metavar="URL"),
        Option("host", ("--host",), "Address to listen on (default: 127.0.0.1).", metavar="HOST"),
        Option(
            "port",
            ("--port", "-p"),
            "Port to listen on; 0 takes a free one (default: 8484).",
            metavar="PORT",
            read=read_number(),
        ),
        Option(
            "token_file",
            ("--token-file",),
            "File with the token that every request must bring.",
            metavar="FILE",
        ),
        Option(
            "record",
            ("--record",),
            "Keep every conversation as a session in this store.",
            metavar="URL",
        ),
        Option(
            "workers",
            ("--workers",),
            "Processes that share the port (default: 1).",
            metavar="N",
            read=read_number(),
        ),
        Option(
            "max_body",
            ("--max-body",),
            "Largest body that is taken, in MiB (default: 256).",
            metavar="MIB",
            read=read_number(),
        ),
        Option(
            "fail_closed",
            ("--fail-closed",),
            "Refuse what cannot be checked, healed or recorded, instead of passing it as it came.",
        ),
        Option(
            "no_retry",
            ("--no-retry",),
            "Do not heal and send once more what the provider refused.",
        ),
        JSON,
    ),
)
