"""``lockstitch provider``, ``proxy``, ``ui`` and ``watch``: commands that run until interrupted.

A strict provider on this machine; a proxy that heals requests between any client and its provider;
the sessions of this machine, or of a store, on a page in the browser; and checks of sessions while
their programs write them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lockstitch.cli import render, terminal
from lockstitch.cli.options import (
    JSON,
    Command,
    Operand,
    option,
    read_number,
    read_port,
    read_seconds,
)
from lockstitch.cli.targets import naming_target
from lockstitch.cli.terminal import CLEAN, INTERRUPTED, describe_bug
from lockstitch.errors import Unreadable, UsageError
from lockstitch.files.read import read_file
from lockstitch.rules.rule import several

if TYPE_CHECKING:
    from lockstitch.provider.service import RequestEntry
    from lockstitch.proxy import Settings
    from lockstitch.proxy.forwarding import ProxyEvent
    from lockstitch.proxy.server import Connect
    from lockstitch.watch import Notice, WatchStart


def run_provider(  # noqa: PLR0913 - one argument an option
    *,
    profiles: list[str],
    port: int,
    reply: str | None,
    fault: str | None,
    record: str | None,
    as_json: bool,
) -> int:
    """Serve until interrupted, and return the exit status."""
    from lockstitch.provider import Faults, Script, faults_in, needing_aiohttp, script_in
    from lockstitch.provider.service import Records, Service, choose_rules

    with needing_aiohttp("the provider", "provider"):
        from lockstitch.provider import server
    try:
        script = Script() if reply is None else script_in(reply, read_file(reply))
    except Unreadable as error:
        raise error.about(str(reply)) from None
    service = Service(
        choose_rules(profiles),
        script,
        clock=time,
        log=print_request if as_json else _log_request,
        records=None if record is None else Records(record),
        faults=Faults(faults_in(fault or "")),
    )
    server.run(service, port, print_url if as_json else announce)
    return CLEAN


def announce(url: str) -> None:
    """Print where a server listens, and the variables that lead the vendors' clients there."""
    from lockstitch.provider import addresses

    named = " ".join(f"{name}={value}" for name, value in addresses(url).items())
    terminal.note(f"Listening on {url} ({named})")


def print_url(url: str) -> None:
    """Print where a server listens, for programs."""
    render.emit_json_line(url=url)


def print_request(entry: object) -> None:
    """Print the outcome of a request, for programs."""
    render.emit_json_line(request=entry)


def _log_request(entry: RequestEntry) -> None:
    codes = "".join(f" {found.code} at {found.place};" for found in entry.findings).rstrip(";")
    path = terminal.escape_controls(entry.path)  # the model's name is text from the client
    said = f"{entry.number} {path} {entry.status} {entry.outcome}"
    colour = "green" if entry.outcome == "accepted" else "red"
    fault = f"; fault: {entry.fault}" if entry.fault else ""
    terminal.say(f"{terminal.paint(said, colour)} {entry.messages} messages{codes}{fault}")
    terminal.flush()


PROVIDER = Command(
    name="provider",
    run=run_provider,
    details=(
        "Speaks Anthropic Messages, OpenAI Responses, OpenAI Chat, Gemini and Bedrock Converse "
        "on 127.0.0.1, streaming or not. What the real provider would refuse it refuses, with "
        "status 400 and the provider's own words. Everything else it answers with `ok`, or with "
        'the replies in a file: a JSON list such as [{"text": "on it", "calls": [{"name": '
        '"bash", "arguments": {"command": "ls"}}]}], the same as TOML ([[replies]]), or a '
        "Python file with a function reply(request). A reply with calls waits for a request "
        "that offers those tools. --fault makes answers fail: drop, status=529, retry-after=7, "
        "stall=5, after=3 (events), slow=0.2, cut=3 (events), cut-bytes=100, ids=repeated, "
        "only=summaries, times=2. Words separated by spaces apply together; a comma begins the "
        "next fault. Ctrl-C stops it."
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
        "Profiles to judge by, as in openai-chat:mistral (default: the vendor's own rules).",
        many=True,
        is_target=False,
    ),
    options=(
        option(
            "--port -p PORT",
            "Port to listen on; 0 takes a free one (default: 8400).",
            default=8400,
            read=read_port,
        ),
        option("--reply FILE", "Replies to give: a JSON, TOML or Python file."),
        option("--fault WORDS", "How answers should fail."),
        option(
            "--record DIR", "Keep every request body in this folder, but never headers or keys."
        ),
        JSON,
    ),
)


_TOKEN = "LOCKSTITCH_PROXY_TOKEN"  # noqa: S105 - the name of a variable
_MIB = 1 << 20


def run_proxy(  # noqa: PLR0913 - one keyword an option
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
    from lockstitch.provider import needing_aiohttp

    with needing_aiohttp("the proxy", "proxy"):
        from lockstitch.proxy import server
    settings = _settings(config, upstream, token_file, chosen)
    log, ready = (print_request, print_url) if as_json else (_log_event, announce)
    if settings.workers == 1:
        server.serve(settings, ready, log=log, connect=_connect(settings))
    else:
        server.serve_from_workers(settings, ready, log=log, connect=_connect)
    return CLEAN


def _connect(settings: Settings) -> Connect | None:
    """Return a function that opens the recorder; None if nothing is recorded."""
    from lockstitch.proxy.server import recorder_at

    return recorder_at(settings.record) if settings.record else None


def _settings(
    config: str | None, upstream: str | None, token_file: str | None, chosen: dict[str, Any]
) -> Settings:
    from lockstitch.proxy import (
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


def _log_event(event: ProxyEvent) -> None:
    from lockstitch.proxy.server import describe_event, is_notable

    if is_notable(event) or terminal.is_verbose():
        terminal.note(describe_event(event))


PROXY = Command(
    name="proxy",
    run=run_proxy,
    details=(
        "Point a client's base URL here. A valid request passes through byte for byte. One that "
        "the provider would refuse is healed, always in the same way, and the reply says so in "
        "the header lockstitch-repaired. Handles the APIs of Anthropic, OpenAI (Chat and "
        "Responses), Gemini and Bedrock; everything else passes through. Keys pass through and "
        "are never stored or logged. The configuration is a TOML file with several upstreams; "
        "options take precedence over it. Listening beyond this machine needs a token, from the "
        f"environment variable {_TOKEN} or from a file. Ctrl-C stops it after running requests "
        "are done."
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
        "Configuration file; without one, requests go to the vendors' own addresses.",
        is_target=False,
    ),
    options=(
        option("--upstream URL", "Send all requests to this address."),
        option("--host HOST", "Address to listen on (default: 127.0.0.1)."),
        option(
            "--port -p PORT",
            "Port to listen on; 0 takes a free one (default: 8484).",
            read=read_number(),
        ),
        option("--token-file FILE", "File with the token that every request must carry."),
        option("--record URL", "Keep every conversation as a session in this store."),
        option("--workers N", "Processes that share the port (default: 1).", read=read_number()),
        option(
            "--max-body MIB",
            "Largest body to accept, in MiB (default: 256).",
            read=read_number(),
        ),
        option(
            "--fail-closed",
            "Refuse what cannot be checked, healed or recorded, instead of passing it through "
            "as it came.",
        ),
        option("--no-retry", "Do not heal and retry what the provider refused."),
        JSON,
    ),
)


def run_ui(*, target: str | None, port: int | None, no_browser: bool, as_json: bool) -> int:
    """Serve until interrupted, and return the exit status."""
    from lockstitch.provider import needing_aiohttp

    with needing_aiohttp("the page", "ui"):
        from lockstitch.inspector import actions, server
    if target is not None:
        with naming_target(target):
            actions.require_showable(target)
    inspector = server.Inspector(target, lambda error: terminal.complain(describe_bug(error)))
    with ExitStack() as stack:

        def show(address: str) -> None:
            if as_json:
                render.emit_json_line(url=address)
                return
            terminal.say(f"Open {address}")
            terminal.note("The address lets one browser in, once. Ctrl-C stops it.")
            terminal.flush()
            if not no_browser:
                _open_browser(address, stack)

        server.run(inspector, port, show)
    if not as_json:
        terminal.note("Ended.")
    return CLEAN


def _open_browser(address: str, stack: ExitStack) -> None:
    """Open the browser with a file that only this user can read and that leads to the address.

    As an argument, the address would be visible to everybody who can list the processes of this
    machine.
    """
    import tempfile
    import webbrowser

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


UI = Command(
    name="ui",
    run=run_ui,
    details=(
        "Shows the sessions on this machine, or those of TARGET: a file, a folder, a session "
        "id, a Lockstitch store (sqlite:///, jsonl:///, postgresql://) or a LangGraph database. "
        "A session is shown as a timeline that puts each call with its result and marks what a "
        "resume would drop. Every action that changes a session first says what it will change, "
        "and asks. The page is served on 127.0.0.1 only, to the one browser that opens the "
        "printed address; secrets are masked until you ask to see them. Nothing leaves this "
        "machine. Ctrl-C stops it."
    ),
    examples=(
        "lockstitch ui",
        "lockstitch ui ~/.claude/projects",
        "lockstitch ui sqlite:///agent.db --port 8500",
        "lockstitch ui --no-browser",
    ),
    operand=Operand(
        "target",
        "TARGET",
        "A file, a folder, a session id or a store (default: all sessions on this machine).",
    ),
    options=(
        option(
            "--port -p PORT",
            "Port to listen on; 0 takes a free one (default: 8407, or a free one).",
            read=read_port,
        ),
        option("--no-browser", "Only print the address."),
        JSON,
    ),
)


_IDLE = 30.0
_COLOURS = {"broken": "red", "refused": "yellow", "repaired": "green", "healthy": "green"}


def run_watch(  # noqa: PLR0913 - one keyword an option
    *,
    paths: list[str],
    repair: bool,
    idle: float,
    notify: bool,
    command: str | None,
    as_json: bool,
) -> int:
    """Watch until interrupted, and return the exit status."""
    from lockstitch import watch
    from lockstitch.watch import changes

    missing = [path for path in paths if not os.path.lexists(path)]
    if missing:
        raise UsageError("no such file or folder").about(render.target_name(missing[0]))
    places = changes.given_places(paths) if paths else changes.known_places(Path.home(), os.environ)
    loop = watch.WatchLoop(places, watch.Watcher(monotonic, os.environ, idle=idle, repair=repair))
    notifier = watch.find_notifier() if notify else None
    words = watch.parse_command(command) if command is not None else None
    commands = watch.EventCommands(terminal.complain)

    def say_start(found: WatchStart) -> None:
        if as_json:
            facts = {"folders": found.folders, "sessions": found.sessions}
            render.emit_json_line(event="started", **facts)
            return
        folders = several(len(found.folders), "folder")
        terminal.note(
            f"Watching {several(found.sessions, 'session')} in {folders}. Ctrl-C stops it; "
            "`lockstitch scan` checks the sessions that are not being written to."
        )

    def report(event: Notice) -> None:
        fields = {**watch.notice_fields(event), "session": render.report_fields(event.report)}
        document = render.encode_json(**fields)
        if as_json:
            terminal.emit(document)
        else:
            name = terminal.paint(render.target_name(render.report_name(event.report)), "bold")
            said = terminal.escape_controls(watch.describe_notice(event))
            next_step = f"  {terminal.escape_controls(event.command)}" if event.command else ""
            terminal.say(f"{name}: {terminal.paint(said, _COLOURS[event.kind])}{next_step}")
        terminal.flush()
        if notifier is not None:
            commands.notify(notifier, event)
        if words is not None:
            commands.run(words, event, document)

    before = signal.signal(signal.SIGTERM, lambda *_: loop.end())
    try:
        loop.run(say_start, report)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
        commands.close()
    return CLEAN


WATCH = Command(
    name="watch",
    run=run_watch,
    details=(
        "Watches the places where the known programs keep their sessions, or PATH, and reads "
        "what is appended. Each problem is reported in one line, with the command that repairs "
        "it. A call without a result at the end of a session may still be running: it is "
        "reported only if the session has not been written to for a while and its program has "
        "ended. --repair then repairs such sessions, with a backup, and never one that a "
        "program has open. The --exec command is run without a shell; it gets the event as JSON "
        "on its standard input, and in variables such as LOCKSTITCH_TARGET and LOCKSTITCH_CODES."
    ),
    examples=(
        "lockstitch watch",
        "lockstitch watch --notify",
        "lockstitch watch --repair --idle 120",
        "lockstitch watch ~/.claude/projects --json",
        "lockstitch watch --exec 'logger -t sessions -f /dev/stdin'",
    ),
    operand=Operand(
        "paths", "PATH", "Files or folders to watch, instead of the usual places.", many=True
    ),
    options=(
        option("--repair", "Repair idle sessions, with a backup."),
        option(
            "--idle SECONDS",
            "Seconds without a write after which a session is idle (default: 30).",
            default=_IDLE,
            read=read_seconds,
        ),
        option("--notify", "Show a desktop notification, too."),
        option("--exec CMD", "Run this command for every event.", name="command"),
        option("--json", "Print one JSON document per line for programs.", name="as_json"),
    ),
)
