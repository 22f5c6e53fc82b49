"""``lockstitch search``: find sessions by what was said in them."""

from __future__ import annotations

import os
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING

from lockstitch.cli import render, terminal
from lockstitch.cli.options import JSON, SESSION, Command, Operand, option, read_number
from lockstitch.cli.render import home_folder, shorten_path
from lockstitch.cli.targets import is_own_store
from lockstitch.cli.terminal import CLEAN, FAILED, ProgressBar
from lockstitch.errors import LockstitchError, UnknownFormat, UsageError
from lockstitch.journal.queries import SearchWords
from lockstitch.sources import listing
from lockstitch.sources.source import OWN, Report
from lockstitch.sources.targets import resolve_sources, session_paths, stores_below
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.journal.queries import Match

_MOST = 50
Found = tuple[str, str, "Match"]


def run(*, words: list[str], limit: int, session: str | None, as_json: bool) -> int:
    """Search, print matches as they are found, and return the exit status."""
    if not words:
        raise UsageError('name the words to look for: lockstitch search "failing test" [TARGET]...')
    failures: list[tuple[str, str]] = []
    found = islice(_search_all(words[0], words[1:], session, failures), limit)
    if as_json:
        matches = [
            {
                "target": public(target),
                "format": form,
                "session": match.session or None,
                "seq": match.seq,
                "who": match.who,
                "excerpt": match.excerpt,
                "at": render.iso_time(match.at),
            }
            for target, form, match in found
        ]
        errors = [{"target": public(target), "error": error} for target, error in failures]
        terminal.emit(render.encode_json(matches=matches, errors=errors))
    else:
        _print(found, limit)
    for target, error in failures:
        terminal.complain(f"{render.target_name(target)}: {error}")
    return FAILED if failures else CLEAN


def _search_all(
    words: str, targets: list[str], session: str | None, failures: list[tuple[str, str]]
) -> Iterator[Found]:
    """Yield matches in all targets; targets that cannot be read are added to ``failures``."""
    wanted, given = SearchWords(words), targets or list(session_paths())
    with ProgressBar("Searching", len(given), "files") as advance:
        for target in given:
            try:
                stores, found = [target], []
                if not is_own_store(target, None):
                    is_folder = os.path.isdir(target)  # noqa: PTH112 - start-up time
                    stores = [one.path for one in stores_below(target)] if is_folder else []
                    found = resolve_sources(target, session=session)
                for store in stores:
                    yield from _search_store(store, words, session, failures)
                for source in found:
                    for match in listing.search(source, wanted):
                        yield source.path, source.format, match
            except UnknownFormat as error:
                # files of other programs in the known folders are ignored
                if targets:
                    failures.append((target, error.message))
            except LockstitchError as error:
                failures.append((target, error.message_with_session))
            advance(1)


def _search_store(
    store: str, words: str, session: str | None, failures: list[tuple[str, str]]
) -> Iterator[Found]:
    """Yield matches in a Lockstitch store.

    Damage in one store does not end the search in others.
    """
    from lockstitch import stored

    try:
        for match in stored.search(store, words, session):
            yield store, OWN, match
    except LockstitchError as error:
        failures.append((store, error.message_with_session))


def _print(found: Iterator[Found], most: int) -> None:
    """Print matches: for people below the name of their session, otherwise one on each line."""
    titles = listing.Summaries()
    is_grouped = sys.stdout is not None and sys.stdout.isatty()
    count = 0
    last: tuple[str, str] | None = None
    for target, form, match in found:
        if is_grouped and (target, match.session) != last:
            last = (target, match.session)
            for line in _head(titles, target, form, match.session):
                terminal.say(line)
        place = f"{'record' if form == OWN else 'message'} {match.seq}"
        said = f"{place}, {match.who}: {terminal.escape_controls(match.excerpt)}"
        name = render.session_name(render.target_name(target), form, match.session)
        terminal.say(f"  {said}" if is_grouped else f"{terminal.paint(name, 'bold')}: {said}")
        count += 1
    if not count:
        terminal.note("Nothing was found.")
    elif count == most:
        terminal.note(f"Stopped after {most} matches; --limit N shows more.")


def _head(titles: listing.Summaries, target: str, form: str, session: str) -> Iterator[str]:
    """Yield the lines that say which session a match is in, and where that session is."""
    try:
        updated = os.stat(target).st_mtime  # noqa: PTH116 - start-up time
    except OSError:
        updated = 0.0
    one = titles.of(Report(target, form, session or None, updated=updated))
    project = shorten_path(one.project, home_folder()) if one.project else ""
    facts = " · ".join(filter(None, (one.program, project, one.age(time.time()))))
    if one.title:
        title = terminal.paint(terminal.escape_controls(one.title), "bold")
        yield f"{title} · {terminal.escape_controls(facts)}" if facts else title
    name = render.target_name(render.session_name(target, form, session or None))
    yield f"{terminal.paint(name, 'bold') if not one.title else f'  {name}'}:"


COMMAND = Command(
    name="search",
    run=run,
    details=(
        "WORDS is one argument, in quotes if there are several: one message must contain all of "
        "them, in upper or lower case. Searches what users, models and tools said. Without a "
        "TARGET it searches the sessions of all known programs on this machine, as a resume "
        "would send them. A TARGET may also be a Lockstitch store; turns that were rewound are "
        "found there, too. Prints the record or message with a little of the text around the "
        "match; a terminal also shows the session's title, project and age above it. With "
        '--json: "matches", each with target, format, session, seq, who, excerpt and at, and '
        '"errors". Changes nothing.'
    ),
    examples=(
        'lockstitch search "failing test"',
        "lockstitch search teapot sqlite:///agent.db",
        'lockstitch search "rate limit" ~/.claude/projects --limit 200',
    ),
    operand=Operand(
        "words",
        "WORDS [TARGET]",
        "What to look for; files, folders or stores.",
        many=True,
        is_target=False,
    ),
    options=(
        option(
            "--limit -n N",
            f"Stop after this many matches (default: {_MOST}).",
            default=_MOST,
            read=read_number("a number of matches, 1 or more", 1),
        ),
        SESSION,
        JSON,
    ),
)
