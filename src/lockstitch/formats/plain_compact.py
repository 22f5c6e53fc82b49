"""A compaction of a message list: the list itself becomes shorter, what is kept keeps its bytes."""

from __future__ import annotations

from lockstitch.conversation.parts import USER
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import new_dialect
from lockstitch.formats.history import NEW, SourcedMessage, trace_sources
from lockstitch.heal import plan_stored
from lockstitch.journal.projection import SUMMARY
from lockstitch.repair.origins import RepairedMessage
from lockstitch.sources.compaction import Shortened, Sorting, Story
from lockstitch.sources.interface import Transcript
from lockstitch.sources.repair import LOSSY


def sorting(transcript: Transcript) -> Sorting:
    """Return the summary of an earlier compaction by its label."""
    history = transcript.history
    views = new_dialect(profile_named(history.dialect).dialect).read(history.messages)
    for number, view in enumerate(views):
        texts = [part.text or str(part.raw) for part in view.parts]
        if view.role == USER and len(texts) == 1 and texts[0].startswith(SUMMARY):
            return Sorting(summary=number, previous=texts[0], shortens=True)
    return Sorting(summary=NEW, shortens=True)


def strands(transcript: Transcript, story: Story, out: Shortened) -> list[SourcedMessage]:
    """Return the messages of the shorter list, each with where it comes from."""
    history = transcript.history
    summary = [] if out.text is None else [None]
    numbers = [*out.setup, *summary, *(number for number, _ in out.kept)]
    made = plan_stored(story.listed(out), history.dialect, history.model, LOSSY)
    return trace_sources(
        history,
        [
            RepairedMessage(one.message, None if one.origin is None else numbers[one.origin])
            for one in made.repaired
        ],
    )
