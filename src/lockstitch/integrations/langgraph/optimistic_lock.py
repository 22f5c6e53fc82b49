"""Decide who may build on a checkpoint, by claims in a store that offers no locks.

A saver has no compare-and-set, but of two writes with the same key it keeps the first, which is
enough. Every checkpoint has a register: writes on a channel of ours, under the keys 1, 2, 3 …. The
highest one names the run whose child counts; with an empty register, that is the run that wrote the
checkpoint. The metadata of a checkpoint names the run that put it.

To begin on a head P, a run R (1) sees that P is the head, (2) claims P under the next key, and (3)
reads again that the claim is its own and that P is still the head. To put X on P, it (4) sees that
the register of P names no other run, (5) puts X, and (6) reads the register again. If it still
names no other run, X has won. Otherwise R gives X up and raises ``Conflict``: it claims X under the
key 1 in nobody's name, which makes X a checkpoint that does not count. If somebody has claimed X
before, X is in that run's history and counts, and R loses only what it would put next.

Steps (1) and (4) only avoid needless writes: a run that has just seen that P is the head, because
it loaded or put P a moment ago, skips them. P may even be known before it is read: the run claims
what this process put last, under the key 1, and its load is step (3). If that was not the head any
more, or was claimed by somebody else before, nothing that counts was written, and the run begins in
the usual way.

Of two children X and Y of P, at most one wins. Say the claim for Y is the later one (or the only
one, if X belongs to the run that wrote P). If X won, its step (6) read the register before Y was
claimed, so X was in the store by then, and Y's run found it in step (3) and gave up. Both may lose,
which is a clear conflict. This needs a store in which a finished write is seen by every later read,
and in which the first of two writes with the same key is kept, as LangGraph's own stores do.

A crash leaves a claim without a child, or a child that has neither won nor been given up. Of the
children that exist, the one that was named last counts, or the only one if none is named. A run
that begins on a child that was not named last first makes the register of its parent name nobody,
so that the other run, if it was only asleep, finds in step (6) that it has lost. It gives up if the
other child has appeared meanwhile. Then it makes the register name the child.

The first checkpoint of a thread has no parent to claim. It is given up if there is another one, and
it claims itself before it counts. Of its own claim and that of a run which gives it up, the first
is kept, under the key 1. A run that begins on an unclaimed first checkpoint makes all other
unclaimed first ones not count. A run that puts another checkpoint on one of those anyway learns in
step (6) which of the two claims was kept; what stands on a checkpoint that does not count does not
count either.

Time plays no part, except that LangGraph takes the greatest id for the newest: see run_ids.follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast
from uuid import NAMESPACE_URL, uuid5

from lockstitch.errors import Conflict
from lockstitch.formats.langgraph.snapshot import CLAIM, COUNTERS
from lockstitch.integrations.langgraph.run_ids import Overtaken, ThreadPlace, place_of
from lockstitch.integrations.langgraph.saver_steps import (
    ListHeaders,
    PutCheckpoint,
    PutWrites,
    ReadHeader,
    SaverStep,
    Steps,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple

RUN = "lockstitch_run"

_NOBODY = "nobody"
_KEYS = uuid5(NAMESPACE_URL, "lockstitch:langgraph:claims")
_PAGE = 4

IsKnown = Callable[[ThreadPlace], bool]


@dataclass(frozen=True, slots=True)
class ThreadHead:
    """The head of a thread, and what has to be secured before anybody builds on it."""

    saved: CheckpointTuple
    # The parent, if its register names another child that does not exist.
    parent: CheckpointTuple | None = None
    # Other first checkpoints that may or may not count.
    rivals: list[CheckpointTuple] = field(default_factory=list)
    # The greatest id beside it, if that checkpoint does not count.
    newest: str = ""


def id_of(saved: CheckpointTuple) -> str:
    """Return the id of a checkpoint."""
    return saved.checkpoint["id"]


def run_of(saved: CheckpointTuple) -> str | None:
    """Return the run that put a checkpoint; None if it was put without a guard."""
    return cast("Mapping[str, Any]", saved.metadata).get(RUN)


def sign(metadata: CheckpointMetadata, run: str) -> CheckpointMetadata:
    """Return the metadata of a checkpoint, with the run that puts it added."""
    return cast("CheckpointMetadata", {**metadata, RUN: run})


def strip(saved: CheckpointTuple) -> CheckpointTuple:
    """Return a checkpoint without what a guard has added to it."""
    metadata = {key: value for key, value in saved.metadata.items() if key != RUN}
    writes = saved.pending_writes
    if writes is not None:
        writes = [write for write in writes if write[1] != CLAIM]
    return saved._replace(
        metadata=cast("CheckpointMetadata", metadata),
        pending_writes=writes,
    )


def is_lost(saved: CheckpointTuple) -> bool:
    """Whether a checkpoint was given up before anybody built on it."""
    return _claims(saved).get(1) == [_NOBODY]


def _claims(saved: CheckpointTuple) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for _, channel, value in saved.pending_writes or ():
        if channel == CLAIM:
            found.setdefault(int(value["key"]), []).append(str(value["name"]))
    return found


def named_by(saved: CheckpointTuple) -> str | None:
    """Return the run or checkpoint that a checkpoint's register names; None if it is empty."""
    claims = _claims(saved)
    if not claims:
        return None
    names = set(claims[max(claims)])
    return names.pop() if len(names) == 1 else _NOBODY


def _is_named(saved: CheckpointTuple, name: str) -> bool:
    return name in {run_of(saved), id_of(saved)}


def names_of(saved: CheckpointTuple) -> list[str]:
    """Return all names in a register, the last one first."""
    claims = _claims(saved)
    return [claims[key][0] for key in sorted(claims, reverse=True) if len(set(claims[key])) == 1]


def _claim(place: ThreadPlace, saved: CheckpointTuple, name: str) -> SaverStep:
    return _claim_under(place.at(id_of(saved)), max(_claims(saved), default=0) + 1, name)


def _claim_under(place: ThreadPlace, key: int, name: str) -> SaverStep:
    value = {"key": key, "name": name}
    return PutWrites(place.config, [(CLAIM, value)], str(uuid5(_KEYS, str(key))))


def thread_moved(place: ThreadPlace, by: CheckpointTuple | None) -> Conflict:
    """Return the error for a thread that went on before anything of the run was written."""
    begun = place.checkpoint or "its beginning"
    thread = f"thread {place.thread!r}{place.within}"
    if by is None:
        return Conflict(f"{thread} was removed since {begun} was read; nothing was written")
    if id_of(by) == place.checkpoint:
        return Overtaken(f"{thread} was taken over by another run at {begun}")
    return Overtaken(f"{thread} continued to {id_of(by)} since {begun} was read")


def thread_deleted(place: ThreadPlace, checkpoint: str) -> Conflict:
    """Return the error for a thread that was deleted just before the run's last put."""
    error = Conflict(
        f"thread {place.thread!r}{place.within} was removed since {place.checkpoint} was read, "
        f"and checkpoint {checkpoint} of this run was written before that was noticed: delete "
        "the thread again to remove it"
    )
    error.kept, error.checkpoint = "beside", checkpoint
    return error


def turn_lost(place: ThreadPlace, checkpoint: str) -> Conflict:
    """Return the error for a run that lost, which says where its turn can be read."""
    begun = place.checkpoint or "the beginning"
    where = f"thread {place.thread!r}{place.within}"
    return Overtaken(f"another writer has built on {begun} of {where}", "beside", checkpoint)


def clock_behind(place: ThreadPlace, checkpoint: str) -> Conflict:
    """Return the error for a checkpoint that cannot be put because it would not be the newest."""
    return Overtaken(
        f"checkpoint {checkpoint} would sort before {place.checkpoint} of thread "
        f"{place.thread!r}{place.within}, on which it builds: the clock of this machine is "
        "behind that of another writer; set it right"
    )


def _page(place: ThreadPlace, behind: CheckpointTuple | None = None) -> SaverStep:
    """List a few headers: the newest ones at a place, or those older than ``behind``."""
    before = place.at(id_of(behind)).config if behind else None
    return ListHeaders(place.at(None).config, _PAGE, before)


def find_head(
    place: ThreadPlace, known: IsKnown = lambda _: False, newest_one: CheckpointTuple | None = None
) -> Steps[ThreadHead | None]:
    """Return the newest checkpoint that counts; ``known`` ones are not examined.

    ``newest_one`` is the newest checkpoint, if it was read already.
    """
    first: CheckpointTuple | None = newest_one or (yield ReadHeader(place.at(None).config))
    page = [first] if first else []
    newest = id_of(first) if first else ""
    while page:
        for saved in page:
            if known(place.at(id_of(saved))):
                return ThreadHead(saved, newest=newest)
            if found := (yield from _find_as_head(place, saved)):
                return replace(found, newest=newest)
        page = yield _page(place, page[-1])
    return None


def _find_as_head(place: ThreadPlace, saved: CheckpointTuple) -> Steps[ThreadHead | None]:
    if is_lost(saved):
        return None
    above = _parent_of(saved)
    if above is None:
        if run_of(saved) is None or named_by(saved):
            return ThreadHead(saved)
        # The first checkpoint of a thread: other runs may have begun it, too.
        rivals: list[CheckpointTuple] = []
        page: list[CheckpointTuple] = yield _page(place, saved)
        while page:
            for other in page:
                if is_lost(other):
                    continue
                if _parent_of(other) or run_of(other) is None or named_by(other):
                    return None
                rivals.append(other)
            page = yield _page(place, page[-1])
        return ThreadHead(saved, rivals=rivals)
    parent: CheckpointTuple | None = yield ReadHeader(place.at(above).config)
    if parent is None:
        return ThreadHead(saved)
    return None if is_lost(parent) else (yield from _find_child_as_head(place, saved, parent))


def _find_child_as_head(
    place: ThreadPlace, saved: CheckpointTuple, parent: CheckpointTuple
) -> Steps[ThreadHead | None]:
    names = names_of(parent)
    if not _claims(parent) or (names and _is_named(saved, names[0])):
        return ThreadHead(saved)
    # The parent's children that are not marked as lost; all of them are newer than the parent.
    children: list[CheckpointTuple] = []
    page: list[CheckpointTuple] = yield _page(place)
    while page:
        newer = [one for one in page if id_of(one) > id_of(parent)]
        same = [one for one in newer if _parent_of(one) == id_of(parent)]
        children += [one for one in same if not is_lost(one)]
        page = [] if len(newer) < len(page) else (yield _page(place, page[-1]))
    for name in names:
        if _is_named(saved, name):
            break
        if any(_is_named(child, name) for child in children):
            # A writer without a guard takes no part in this: for it, the newest checkpoint is the
            # head.
            return None if run_of(saved) else ThreadHead(saved)
    return ThreadHead(saved, parent)


def _parent_of(saved: CheckpointTuple) -> str | None:
    config = saved.parent_config
    return place_of(config).checkpoint if config else None


def outline(found: ThreadHead) -> ThreadHead:
    """Return a head without its values, so that it can be remembered for a moment."""
    saved = found.saved
    body = cast("Checkpoint", {"id": id_of(saved)})
    writes = [write for write in saved.pending_writes or () if write[1] == CLAIM]
    return replace(found, saved=saved._replace(checkpoint=body, pending_writes=writes))


def claim_ahead(place: ThreadPlace, run: str) -> SaverStep:
    """Return a step that claims the presumed head before it is read; the load shows if it is."""
    return _claim_under(place, 1, run)


def is_claimed(place: ThreadPlace, saved: CheckpointTuple, run: str) -> bool:
    """Whether the newest checkpoint is this one, and is claimed by this run."""
    return id_of(saved) == place.checkpoint and named_by(saved) == run


def claim_head(
    place: ThreadPlace,
    run: str,
    known: IsKnown,
    seen: int | None = None,
    found: ThreadHead | None = None,
) -> Steps[None]:
    """Claim a head for a run.

    Raise ``Conflict``, before the run has written anything, if that fails.

    ``seen`` is how many task writes the head had when the run loaded it: the run does not know the
    result of a task that finished later. ``found`` is the head, if it was seen a moment ago.
    """
    if found is None:
        found = yield from find_head(place, known)
    if found is None or id_of(found.saved) != place.checkpoint:
        raise thread_moved(place, found.saved if found else None)
    # Close whatever else the head depends on to others, or give up if they have come already.
    if found.parent:
        yield from _name_child(place, found.parent, found.saved, f"secured by {run}")
    for rival in found.rivals:
        if not (yield from _take_back(place.at(id_of(rival)))):
            raise thread_moved(place, rival)
    yield _claim(place, found.saved, run)
    again: CheckpointTuple | None = yield ReadHeader(place.at(None).config)
    if again is None or id_of(again) != place.checkpoint:
        after = yield from find_head(place, known)
        again = after.saved if after else None
    if again is None or id_of(again) != place.checkpoint or named_by(again) != run:
        raise thread_moved(place, again)
    if seen is not None and writes_on(again) != seen:
        raise thread_moved(place, again)


def writes_on(saved: CheckpointTuple) -> int:
    """Return the number of task writes on a checkpoint."""
    return len(strip(saved).pending_writes or ())


def _take_back(place: ThreadPlace) -> Steps[bool]:
    """Make a checkpoint not count; return False if somebody has claimed it before."""
    yield _claim_under(place, 1, _NOBODY)
    saved: CheckpointTuple | None = yield ReadHeader(place.config)
    return saved is None or is_lost(saved)


def _name_child(
    place: ThreadPlace, parent: CheckpointTuple, saved: CheckpointTuple, word: str
) -> Steps[None]:
    """Name a child in its parent's register, after a word that keeps all others from winning."""
    here = place.at(id_of(parent)).config
    yield _claim(place, parent, word)
    again: CheckpointTuple | None = yield ReadHeader(here)
    if again is None or named_by(again) != word:
        raise thread_moved(place, again)
    found = yield from _find_child_as_head(place, saved, again)
    if found is None:
        raise thread_moved(place, again)
    yield _claim(place, again, id_of(saved))
    again = yield ReadHeader(here)
    if again is None or named_by(again) != id_of(saved):
        raise thread_moved(place, again)


def put_fork(place: ThreadPlace, step: PutCheckpoint, run: str) -> Steps[RunnableConfig]:
    """Put a checkpoint on a branch that was asked for, whatever is there already."""
    if place.checkpoint:
        yield from _take(place, run)
    written: RunnableConfig = yield step
    if not place.checkpoint:
        yield from _take(place.at(step.checkpoint["id"]), run)
    return written


def _take(place: ThreadPlace, run: str) -> Steps[None]:
    saved: CheckpointTuple | None = yield ReadHeader(place.config)
    if saved is not None:
        yield _claim(place, saved, run)


def check_claim(place: ThreadPlace, run: str) -> Steps[None]:
    """Raise ``Conflict`` unless a run may still build on a checkpoint that it put or claimed."""
    parent: CheckpointTuple | None = yield ReadHeader(place.config)
    if parent is None or named_by(parent) not in {None, run}:
        raise thread_moved(place, parent)


def put(
    place: ThreadPlace, step: PutCheckpoint, run: str, tasks: Collection[str] | None = None
) -> Steps[RunnableConfig]:
    """Put a checkpoint on one that its run put or claimed; raise ``Conflict`` if another run won.

    ``tasks`` are the tasks whose writes on the parent the run knows, None if that is unknown.
    """
    written: RunnableConfig = yield step
    parent: CheckpointTuple | None = yield ReadHeader(place.config)
    if parent is None:
        if (yield from _take_back(place.at(step.checkpoint["id"]))):
            raise thread_deleted(place, step.checkpoint["id"])
        return written
    # A delta channel consists of what was written on earlier checkpoints. A late write of a run
    # that was taken over would become part of a history that no run has seen.
    counters: Any = step.metadata.get(COUNTERS)
    deltas = set(counters or ()) - set(step.checkpoint["channel_values"])
    is_mixed = tasks is not None and any(
        task not in tasks and name in deltas for task, name, _ in parent.pending_writes or ()
    )
    if is_mixed or named_by(parent) not in {None, run}:
        yield from _give_up(place, step.checkpoint["id"])
    return written


def put_first(  # noqa: PLR0913 - by name
    place: ThreadPlace,
    step: PutCheckpoint,
    run: str,
    known: IsKnown,
    *,
    is_fresh: bool = False,
    is_followed: bool = False,
) -> Steps[RunnableConfig]:
    """Put the first checkpoint of a thread; raise ``Conflict`` if another run has begun it, too.

    ``is_fresh`` says that nobody had begun it a moment ago. ``is_followed`` says that the run
    certainly puts another checkpoint on it, which shows whether it counts; until then nobody may
    assume that it does.
    """
    found = None if is_fresh else (yield from find_head(place, known))
    if found:
        raise thread_moved(place, found.saved)
    written: RunnableConfig = yield step
    mine = place.at(step.checkpoint["id"])
    page: list[CheckpointTuple] = yield _page(mine)
    while page:
        if any(id_of(saved) != mine.checkpoint and not is_lost(saved) for saved in page):
            yield from _give_up(place, step.checkpoint["id"])
            return written
        # Most threads have a single page, which is not full.
        page = [] if len(page) < _PAGE else (yield _page(mine, page[-1]))
    yield _claim_under(mine, 1, run)
    saved: CheckpointTuple | None = None if is_followed else (yield ReadHeader(mine.config))
    if not is_followed and (saved is None or is_lost(saved)):
        raise turn_lost(place, step.checkpoint["id"])
    return written


def _give_up(place: ThreadPlace, checkpoint: str) -> Steps[None]:
    """Take back a checkpoint that lost, unless another run has built on it, so that it counts."""
    if (yield from _take_back(place.at(checkpoint))):
        raise turn_lost(place, checkpoint)
