"""Old results and media of a message list with less in them, as the first step of a compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from lockstitch.conversation.parts import RESULT
from lockstitch.journal.projection import each_item
from lockstitch.journal.state import Item, JournalView, ModelReply

if TYPE_CHECKING:
    from lockstitch.formats.compacting import Story

_POINTER = "; record {seq} has all of it."
_ELSEWHERE = "; the file as it was before has all of it."


def less_of_results(story: Story, view: JournalView) -> dict[int, Any]:
    """Give, by number, the messages of which less is sent than the history has."""
    if view.summary is None or not view.summary.event.shortened:
        return {}
    bare = structs.replace(view, summary=None)
    dialect = story.history.dialect
    pairs = zip(each_item(bare, dialect), each_item(view, dialect), strict=True)
    found: dict[int, Any] = {}
    for (item, whole), (_, short) in pairs:
        if whole != short and not view.hides(item.seq):
            _put(story, found, item, _pointed(item, short))
    return found


def _put(story: Story, found: dict[int, Any], item: Item, messages: list[Any]) -> None:
    """Put the messages of an item where they stand; the reply itself stays as it came."""
    kind = "found" if isinstance(item, ModelReply) else "said"
    homes = [number for number, owners in story.owners.items() if (item.seq, kind) in owners]
    if not homes:
        return
    made = messages[-len(homes) :]
    if len(made) < len(homes) or (kind == "said" and len(messages) != len(homes)):
        return
    for number, message in zip(homes, made, strict=True):
        found[number] = _joined(story, found.get(number, story.history.messages[number]), message)


def _joined(story: Story, old: Any, new: Any) -> Any:
    """Give a message with new results, or new words, and the other of both as it was."""
    [before], [after] = story.dialect.read([old]), story.dialect.read([new])
    is_result = {part.kind == RESULT for part in after.parts}
    rest = [part for part in before.parts if (part.kind == RESULT) not in is_result]
    if not rest:
        return new
    parts = [*after.parts, *rest] if True in is_result else [*rest, *after.parts]
    return story.dialect.rebuild(structs.replace(before, parts=parts))


def _pointed(item: Item, messages: list[Any]) -> list[Any]:
    """Let the notes on what is left out lead to where it still is."""
    if not isinstance(item, ModelReply):
        return messages
    text = msgspec.json.encode(messages)
    for call in item.calls:
        if call.outcome is not None:
            note = _POINTER.format(seq=call.outcome.seq)
            text = text.replace(note.encode(), _ELSEWHERE.encode())
    found: list[Any] = msgspec.json.decode(text)
    return found
