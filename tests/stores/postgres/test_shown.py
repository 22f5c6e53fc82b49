"""A store in a PostgreSQL as the inspector shows it."""

from __future__ import annotations

from lockstitch.inspector import actions
from lockstitch.inspector.catalog import Catalog, row_of
from lockstitch.inspector.overview import overview
from tests.inspector import scenes


def test_sessions_are_shown_rewound_and_forked(dsn: str) -> None:
    scenes.filled(dsn, 2)
    found = list(actions.scanned(dsn))
    assert [subject.session for subject, _ in found] == ["ticket-40", "ticket-41", "ticket-43"]
    assert {row_of(*one)["level"] for one in found} == {"healthy"}
    assert Catalog(dsn).is_store
    subject = found[0][0]
    assert [one["kind"] for one in actions.read(subject).timeline.asides] == ["left"]
    for action, options in (("rewind", {"to": 6}), ("unrewind", {}), ("fork", {"name": "copy"})):
        shown = actions.planned(subject, action, options).preview
        actions.perform(subject, action, options, shown.stamp)
    told = overview(dsn)
    assert (told["sessions"], told["held"]) == (4, [])
    assert [one["session"] for one in told["compactions"]] == ["ticket-43"]
