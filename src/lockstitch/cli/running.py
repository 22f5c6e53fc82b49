"""``lockstitch run``: run an agent whose session is repaired first and healed in flight."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lockstitch.cli import render, terminal
from lockstitch.cli.options import Command, Operand, option
from lockstitch.errors import Busy, LockstitchError, UsageError, reason_of
from lockstitch.files import backup
from lockstitch.rules.rule import several

if TYPE_CHECKING:
    from lockstitch.launch import KnownCommand
    from lockstitch.sources.source import Source

# For how many seconds a request may finish that is in progress when the program ends.
_GRACE = 5.0


def run(
    *,
    words: list[str],
    yes: bool,
    no_proxy: bool,
    upstream: str | None,
    record: str | None,
) -> int:
    """Repair what the command is about to resume, run it, and return its exit status."""
    from lockstitch import launch

    if not words:
        raise UsageError("run needs a command: lockstitch run -- claude --continue")
    if no_proxy and (upstream is not None or record is not None):
        raise UsageError("--upstream and --record are for the proxy, which --no-proxy turns off")
    known = launch.find_known_command(words)
    if known is None:
        terminal.note(
            f"{terminal.escape_controls(words[0])} is not a program that Lockstitch knows: no "
            "session is looked for."
            + ("" if no_proxy else " It finds the proxy in its environment.")
        )
    else:
        _repair(known, words, Path.home(), yes=yes)
    if no_proxy:
        from lockstitch.launch import processes

        return processes.run_program(words, os.environ)
    return _behind_proxy(known, words, upstream, record)


def _repair(known: KnownCommand, words: list[str], home: Path, *, yes: bool) -> None:
    """Repair the sessions that a program is about to resume, if a person agrees."""
    from lockstitch import launch

    resume = launch.find_resumed(known.client, words[known.at :])
    if resume.kind == launch.NOTHING:
        return
    found = launch.find_resumable(known.client, resume, os.getcwd(), home, os.environ)  # noqa: PTH109
    if not found:
        named = f" {render.target_name(resume.name)}" if resume.name else ""
        terminal.note(
            f"No session{named} of {known.client.title} was found that could be checked first."
        )
        return
    repaired = [_repair_one(source, yes=yes) for source in found]
    if not any(repaired):
        which = "session is" if len(found) == 1 else f"{len(found)} sessions are"
        terminal.note(f"The {which} healthy that {known.client.title} can resume here.")


def _repair_one(source: Source, *, yes: bool) -> bool:
    """Show a session's repair and make it; return whether there was anything to say about it."""
    from lockstitch.sources import operations
    from lockstitch.sources.own_stores import may_hold_many
    from lockstitch.sources.source import pasted

    name = render.session_name(source.path, source.format, source.session)
    try:
        if operations.check(source).status in ("ok", "notes"):
            return False
        session = source.open()
        planned = operations.plan_session(session)
        if not planned.changed:
            count = render.count_findings(planned.findings)
            terminal.note(f"{render.target_name(name)}: {count}, none repairable.")
            return True
        session.source.require_closed(session, is_named=False)
        terminal.note(
            f"{render.target_name(name)}: {render.count_findings(planned.findings)}. The plan:"
        )
        for line in render.describe_changes(name, planned.changes, is_done=False):
            terminal.note(line)
        question = "Repair it before it is resumed? A backup is kept."
        if yes or terminal.confirm(question, "--yes repairs it"):
            done = operations.write_plan(session, planned, backup.new_run())
            terminal.note(f"Repaired. Backup: {pasted(str(done.backup))}")
            named = f" --session {pasted(source.session)}" if source.session else ""
            more = named if may_hold_many(source.path) else ""
            terminal.note(f"To undo it: lockstitch undo {pasted(source.path)}{more}")
    except Busy as error:
        terminal.note(f"{render.target_name(name)}: {terminal.escape_controls(str(error))}")
    except (LockstitchError, OSError) as error:
        # a disk that is full, say; the program copes with its session as it did before
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        terminal.note(
            f"{render.target_name(name)}: not repaired: {terminal.escape_controls(reason)}"
        )
    return True


def _behind_proxy(
    known: KnownCommand | None, words: list[str], upstream: str | None, record: str | None
) -> int:
    """Run a program that is led to a proxy; afterwards print what the proxy did."""
    from tempfile import TemporaryDirectory

    from lockstitch.launch import processes

    processes.require_proxy()
    from lockstitch import launch
    from lockstitch.proxy import Settings, check_settings

    at = known.at if known is not None else 1
    asked = launch.CommandLine(words, at, Path.cwd(), Path.home(), os.environ)
    way = launch.find_way(known, asked, upstream)
    if way.why:
        title = known.client.title if known is not None else Path(words[0]).name
        terminal.note(f"{title} runs without the proxy: {way.why}.")
        return processes.run_program(words, os.environ)
    settings = Settings(port=0, upstreams=way.upstreams, record=record or "", grace=_GRACE)
    with processes.start_proxy(check_settings(settings)) as proxy:
        with TemporaryDirectory(prefix="lockstitch-") as folder:
            led, more = launch.fill_way(way, proxy.url, folder)
            for name, content in way.files.items():
                Path(folder, name).write_text(content.replace(launch.HERE, proxy.url), "utf-8")
            status = processes.run_program(led, {**os.environ, **more})
        done = proxy.activity()
    # only now, because the program has left the terminal
    if done.repaired:
        codes = ", ".join(f"{code}={count}" for code, count in sorted(done.repaired.items()))
        terminal.note(f"Healed {several(done.requests, 'request')} on the way: {codes}.")
    for error in dict.fromkeys(done.errors):
        terminal.note(f"The proxy had trouble: {terminal.escape_controls(error)}")
    return status


RUN = Command(
    name="run",
    run=run,
    details=(
        "Knows Claude Code, Codex, Gemini CLI, opencode, pi and goose by their command. Finds "
        "the session that CMD is about to resume, shows what is wrong with it and asks before "
        "repairing it. Then starts a proxy on a free port of this machine that heals every "
        "request, and points the program at it without changing its settings. If the program "
        "already has a base URL, the proxy forwards to it. CMD has the terminal, its signals "
        "and its exit status; when it ends, so does the proxy. Any other CMD gets "
        "ANTHROPIC_BASE_URL and OPENAI_BASE_URL. With --record, every conversation is also kept "
        "in a store. The exit status is that of CMD, or 128 plus the signal number if a signal "
        "ended it."
    ),
    examples=(
        "lockstitch run -- claude --continue",
        "lockstitch run --yes -- codex resume --last",
        "lockstitch run -- npx @google/gemini-cli --resume",
        "lockstitch run --record sqlite:///sessions.db -- claude",
        "lockstitch run --upstream http://127.0.0.1:8400 -- python agent.py",
    ),
    operand=Operand(
        "words",
        "-- CMD...",
        "The command and its arguments; everything after -- is passed on to it.",
        many=True,
        is_target=False,
    ),
    options=(
        option("--yes -y", "Repair without asking."),
        option("--no-proxy", "Only repair first; run the command without the proxy."),
        option(
            "--upstream URL", "Where the proxy forwards to, instead of where the program would."
        ),
        option(
            "--record URL",
            "Keep every conversation in this store: sqlite:///FILE or postgresql://…",
        ),
    ),
)
