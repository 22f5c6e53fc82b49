"""Any session, any budget, any failures: a valid smaller history, or none and a clear error."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from lockstitch.compaction.ladder import ATTEMPTS, Compaction, CompactionTask, key_of, ladder
from lockstitch.compaction.plan import TokenBudget, estimate, size_of
from lockstitch.errors import Unmet
from lockstitch.journal.events import value_of
from lockstitch.journal.projection import wanted_blobs
from lockstitch.journal.state import fold
from tests.compaction.generated import GOOD, Schedule, schedules, sessions
from tests.compaction.outcomes import AROUND, After, everywhere, extended, sent
from tests.journal.replies import DIALECTS
from tests.journal.sessions import Session

SOME = settings(max_examples=max(1, settings().max_examples // 2))
FEWER = settings(max_examples=max(1, settings().max_examples // 3))
# Of what a request costs.
SHARES = st.sampled_from([0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 2.0])
BYTES = st.sampled_from([0.0, 0.0, 0.0, 0.3, 0.7])


def task_of(session: Session, budget: TokenBudget, dialect: str, **options: Any) -> CompactionTask:
    """A session as the ladder gets it; one token is what the estimate says it is."""
    view = fold(session.records).view
    blobs = {name: session.blobs[name] for name in wanted_blobs(view)}
    given = {"has_model": True, "counter": estimate, **options}
    return CompactionTask(view=view, dialect=dialect, budget=budget, blobs=blobs, **given)


def budget(session: Session, dialect: str, share: float, most: float = 0.0) -> TokenBudget:
    """A share of what a session costs; of its bytes, too, if there is a share of them."""
    whole = sent(fold(session.records).view, session, dialect)
    return TokenBudget(int(estimate(whole) * share) + 1, int(size_of(whole) * most))


def outcome(session: Session, task: CompactionTask, schedule: Schedule) -> Compaction | None:
    """Go down the ladder; whatever happens, the records are what they were."""
    before = [(record.seq, record.key, record.body) for record in session.records]
    try:
        return schedule.run(ladder(task))
    except Unmet as error:
        message = str(error)
    finally:
        assert [(record.seq, record.key, record.body) for record in session.records] == before
    assert re.search(r"has \d+ tokens and \d+ bytes", message)
    return None


def judged(session: Session, task: CompactionTask, schedule: Schedule) -> Compaction | None:
    done = outcome(session, task, schedule)
    event(done.rung if done else "unmet")
    if done is None:
        return None
    assert schedule.now <= schedule.deadline
    assert done.asked == len(schedule.prompts)
    if done.event is None:
        assert done.rung == "nothing"
        whole = sent(task.view, session, task.dialect)
        assert estimate(whole) <= task.budget.tokens + AROUND
        return done
    after = After(session, done.event, task.budget, task.dialect)
    if not after.gains():
        event("no gain")
        return None
    after.check()
    return done


@SOME
@given(
    session=sessions(),
    dialect=st.sampled_from(DIALECTS),
    share=SHARES,
    most=BYTES,
    schedule=schedules(),
    has_model=st.booleans(),
)
def test_whatever_happens_it_is_valid_and_smaller_or_as_it_was(
    session: Session, dialect: str, share: float, most: float, schedule: Schedule, has_model: bool
) -> None:
    task = task_of(session, budget(session, dialect, share, most), dialect, has_model=has_model)
    done = judged(session, task, schedule)
    if done and done.rung == "digest" and has_model:
        assert done.failures or done.unasked
        assert len(done.failures) <= done.asked
    if done and done.rung == "summary":
        assert value_of(done.event.payload) == GOOD


@FEWER
@given(
    session=sessions(wild=True), dialect=st.sampled_from(DIALECTS), share=SHARES, most=BYTES,
    schedule=schedules(),
)  # fmt: skip
def test_of_whatever_stands_in_a_journal_nothing_raises(
    session: Session, dialect: str, share: float, most: float, schedule: Schedule
) -> None:
    task = task_of(session, budget(session, dialect, share, most), dialect)
    done = outcome(session, task, schedule)
    if done and done.event:
        after = extended(session, done.event)
        everywhere(fold(after.records).view, after)


@FEWER
@given(session=sessions(), share=SHARES, schedule=schedules(), data=st.data())
def test_one_compaction_after_the_other(
    session: Session, share: float, schedule: Schedule, data: st.DataObject
) -> None:
    """What an earlier compaction hid is never shown again, and what it kept is never lost."""
    for _ in range(3):
        limit = budget(session, "anthropic", share)
        task = task_of(session, limit, "anthropic")
        done = judged(session, task, replace(schedule, prompts=[], now=0.0, kept={}))
        if done is None or done.event is None:
            return
        before = fold(session.records).view
        hidden = {item.seq for item in before.items if before.hides(item.seq)}
        session = extended(session, done.event)
        after = fold(session.records).view
        assert all(after.hides(seq) for seq in hidden)
        gone = [i.seq for i in before.sent() if after.hides(i.seq)]
        assert not gone or done.rung in {"summary", "digest"}, "hidden, and no summary says so"
        share = data.draw(SHARES)


@FEWER
@given(session=sessions(), share=SHARES, schedule=schedules())
def test_what_fits_is_left_alone(session: Session, share: float, schedule: Schedule) -> None:
    """The same compaction again finds nothing to do, and asks nobody."""
    limit = budget(session, "openai-chat", share)
    task = task_of(session, limit, "openai-chat")
    done = outcome(session, task, schedule)
    if done is None or done.event is None:
        return
    again = Schedule([GOOD])
    after = extended(session, done.event)
    task = task_of(after, TokenBudget(limit.tokens + AROUND), "openai-chat")
    second = outcome(after, task, again)
    assert second is not None
    assert (second.rung, again.prompts) == ("nothing", [])


@FEWER
@given(session=sessions(), share=SHARES, schedule=schedules())
def test_answers_are_kept_and_not_asked_for_again(
    session: Session, share: float, schedule: Schedule
) -> None:
    limit = budget(session, "gemini", share)
    task = task_of(session, limit, "gemini")
    first = outcome(session, task, schedule)
    assert all(text == GOOD for text in schedule.kept.values()), "what was no summary is kept"
    if first is None or not schedule.prompts:
        return
    again = Schedule([GOOD])
    second = outcome(session, task_of(session, limit, "gemini", known=schedule.kept), again)
    assert second is not None
    assert not {key_of(prompt) for prompt in again.prompts} & schedule.kept.keys()
    if first.rung == "summary":
        assert (second.event, second.asked) == (first.event, 0)


@FEWER
@given(share=SHARES, schedule=schedules(), session=sessions())
def test_the_model_is_asked_often_enough_and_no_more(
    share: float, schedule: Schedule, session: Session
) -> None:
    limit = budget(session, "bedrock", share)
    task = task_of(session, limit, "bedrock")
    done = outcome(session, task, schedule)
    if done is None:
        return
    asked = {prompt: schedule.prompts.count(prompt) for prompt in schedule.prompts}
    assert all(count <= ATTEMPTS for count in asked.values())
    assert all(0 < seconds <= 20 for seconds in schedule.pauses)
    assert len(done.failures) <= 2 * len(asked) + ATTEMPTS
