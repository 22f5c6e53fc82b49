"""A store in a PostgreSQL as the inspector shows it."""

from __future__ import annotations

from lockstitch.inspector import actions
from lockstitch.inspector.views import Catalog, describe_store, list_row
from tests.inspector import scenes


def test_sessions_are_shown_rewound_and_forked(dsn: str) -> None:
    scenes.filled(dsn, 2)
    found = list(actions.scan(dsn))
    assert [subject.session for subject, _ in found] == ["ticket-40", "ticket-41", "ticket-43"]
    assert {list_row(*one)["level"] for one in found} == {"healthy"}
    assert Catalog(dsn).is_store
    subject = found[0][0]
    assert [one["kind"] for one in actions.read_session(subject).timeline.asides] == ["left"]
    for action, options in (("rewind", {"to": 6}), ("unrewind", {}), ("fork", {"name": "copy"})):
        shown = actions.plan_action(subject, action, options).preview
        actions.perform(subject, action, options, shown.stamp)
    told = describe_store(dsn)
    assert (told["sessions"], told["held"]) == (4, [])
    assert [one["session"] for one in told["compactions"]] == ["ticket-43"]
