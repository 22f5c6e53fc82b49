from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import lockstitch
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph import HealMiddleware, areconcile, reconcile
from lockstitch.integrations.langgraph.report import Reconciled
from tests.integrations.langgraph.agents import (
    AGENTS,
    JOBS,
    MODEL_NODES,
    STUCK,
    Bench,
    calling,
    on,
    result_of,
    sqlite,
)
from tests.integrations.langgraph.reconcile.breaking import (
    FINISHED,
    THREAD,
    Thread,
    asked,
    repair_checkpoint,
    texts,
    unwritten,
)
from tests.integrations.langgraph.scripted import Scripted

every_kind = pytest.mark.parametrize("kind", AGENTS)
both_sources = pytest.mark.parametrize("source", ["graph", "saver"])


def reconciled(thread: Thread, source: str, *args: Any, **options: Any) -> Reconciled:
    return reconcile(getattr(thread, source), THREAD, *args, **options)


@every_kind
@both_sources
def test_finished_results_come_before_anything_made_up(kind: str, source: str) -> None:
    thread = Thread(kind).break_off()
    report = reconciled(thread, source)
    assert report.changed
    assert report.results == thread.finishing
    assert report.synthetic == len(JOBS) - thread.finishing
    assert thread.stored == report.messages == thread.state.values["messages"]
    assert thread.state.next == report.next
    known = [result_of(job) if job != STUCK and thread.finishing else None for job in JOBS]
    assert [text if not is_placeholder(text) else None for text in texts(thread.stored)] == known
    assert thread.invoke()[:-1] == report.messages


@pytest.mark.parametrize("kind", ["fanned", "changing"])
def test_a_graph_applies_what_finished_tasks_wrote_elsewhere(kind: str) -> None:
    thread = Thread(kind).break_off()
    assert thread.state.values["done"] != thread.head.checkpoint["channel_values"].get("done")
    report = reconcile(thread.graph, THREAD)
    assert report.unapplied == ()
    assert thread.head.checkpoint["channel_values"]["done"] == list(FINISHED)


def test_a_saver_alone_says_what_it_could_not_apply() -> None:
    thread = Thread("fanned").break_off()
    assert reconcile(thread.saver, THREAD).unapplied == ("done",)
    assert thread.head.checkpoint["channel_values"].get("done", []) == []


@every_kind
@both_sources
def test_where_nothing_is_wrong_nothing_is_written(kind: str, source: str) -> None:
    thread = Thread(kind, model=Scripted(calling("one", "two")))
    thread.graph.invoke(asked("Go."), THREAD)
    with unwritten(thread):
        report = reconciled(thread, source)
    assert not report.changed
    assert not report.findings
    assert report.before == report.after == thread.head.config
    assert report.messages == thread.state.values["messages"]
    with unwritten(thread):
        assert not reconciled(thread, source, report.messages).changed


@every_kind
@both_sources
def test_a_second_time_changes_nothing(kind: str, source: str) -> None:
    thread = Thread(kind).break_off()
    first = reconciled(thread, source)
    for messages in (None, first.messages):
        with unwritten(thread):
            again = reconciled(thread, source, messages)
        assert not again.changed
        assert again.messages == first.messages
        assert again.after == first.after


@every_kind
def test_the_old_checkpoint_and_its_writes_stay(kind: str) -> None:
    thread = Thread(kind).break_off()
    old = thread.head
    report = reconcile(thread.graph, THREAD)
    assert thread.saver.get_tuple(report.before) == old
    new = thread.head
    assert new.parent_config == old.config
    assert new.checkpoint["id"] > old.checkpoint["id"]
    assert new.metadata["lockstitch"] == {"repaired": old.checkpoint["id"], "codes": report.codes}
    assert new.metadata["step"] == old.metadata["step"] + 1


def test_a_run_that_is_still_alive_is_never_hidden_behind_a_repair() -> None:
    thread = Thread("agent").break_off()
    report = reconcile(thread.graph, THREAD)
    later = thread.graph.update_state(report.before, asked("A live turn."), as_node="model")
    assert (
        thread.head.config["configurable"]["checkpoint_id"]
        == (later["configurable"]["checkpoint_id"])
    )


@every_kind
@both_sources
def test_healing_the_same_thread_twice_gives_the_same_ids(kind: str, source: str) -> None:
    thread = Thread(kind).break_off()
    first = reconciled(thread, source)
    again = reconcile(getattr(thread, source), first.before)
    assert not again.changed
    assert again.after == first.after
    copy = Thread(kind, saver=_copy(thread.saver, first.before))
    assert reconciled(copy, source).messages == first.messages


def _copy(saver: InMemorySaver, head: Any) -> InMemorySaver:
    """A saver as it was when this checkpoint was the head."""
    new = InMemorySaver()
    for found in reversed(list(saver.list(on("a thread")))):
        if found.config["configurable"]["checkpoint_id"] > head["configurable"]["checkpoint_id"]:
            continue
        config = found.parent_config or on("a thread", checkpoint_ns="")
        versions = found.checkpoint["channel_versions"]
        made = new.put(config, found.checkpoint, found.metadata, versions)
        for task in {task for task, _, _ in found.pending_writes or ()}:
            writes = [(name, value) for own, name, value in found.pending_writes if own == task]
            new.put_writes(made, writes, task)
    return new


@every_kind
@both_sources
def test_results_that_a_refused_message_has_left_behind_are_found(kind: str, source: str) -> None:
    thread = Thread(kind).break_off()
    thread.graph.update_state(THREAD, asked("And now?"), as_node="__start__")
    report = reconciled(thread, source)
    assert report.results == thread.finishing
    assert [message.type for message in report.messages[-4:]] == ["tool", "tool", "tool", "human"]
    wanted = list(FINISHED) if thread.finishing else []
    real = [text for text in texts(report.messages) if not is_placeholder(text)]
    assert real == [result_of(job) for job in wanted]


@pytest.mark.parametrize("kind", ["agent", "fanned", "changing"])
def test_a_call_whose_id_was_used_before_does_not_get_the_old_result(kind: str) -> None:
    thread = Thread(kind, model=Scripted(calling("one"), AIMessage("Done."), calling("one", STUCK)))
    thread.graph.invoke(asked("First."), THREAD)
    thread.finishing = 1
    thread.break_off()
    thread.graph.update_state(THREAD, asked("And now?"), as_node="__start__")
    writes = list(thread.saver.get_tuple(THREAD).pending_writes)
    report = reconcile(thread.graph, THREAD)
    assert lockstitch.check(report.messages, "langchain") == []
    assert len({message.id for message in report.messages}) == len(report.messages)
    assert writes == list(thread.saver.get_tuple(report.before).pending_writes)
    answers = texts(report.messages)
    assert len(answers) == 3
    assert is_placeholder(answers[-1])


@both_sources
def test_a_checkpoint_of_the_past_is_mended_as_a_child_of_it(source: str) -> None:
    thread = Thread("agent").break_off()
    past = thread.head.config
    reconcile(thread.graph, THREAD)
    thread.invoke()
    latest = thread.head
    report = reconcile(getattr(thread, source), past)
    assert thread.head == latest
    assert thread.saver.get_tuple(report.after).parent_config == past
    thread.graph.invoke(asked("Another way."), report.after)
    assert lockstitch.check(thread.model.sent[-1], "langchain") == []


@both_sources
@pytest.mark.parametrize(
    "given", [asked("Go."), {"messages": [{"role": "user", "content": "Go."}]}]
)
@pytest.mark.parametrize("taken_up", [True, False])
def test_a_message_that_no_step_took_up_is_not_lost(
    source: str, given: Any, taken_up: bool
) -> None:
    thread = Thread("fanned", saver=_Failing(at=2), model=Scripted())
    with pytest.raises(OSError, match="disk"):
        thread.graph.invoke(given, THREAD, durability="sync")
    if not taken_up:
        thread.saver.writes.clear()
    assert "__start__" in thread.head.checkpoint["channel_values"]
    with unwritten(thread) if is_left_alone(source, given, taken_up) else nullcontext():
        report = reconciled(thread, source)
    assert report.codes == ["LS908"]
    if is_left_alone(source, given, taken_up):
        assert not report.changed
        assert not any(found.fixable for found in report.findings)
        assert [message.text for message in thread.invoke()] == ["And now?"]
        return
    assert [message.text for message in report.messages] == ["Go."]
    assert report.messages == thread.stored
    assert thread.state.next == report.next
    assert [message.text for message in thread.invoke()] == ["Go.", "And now?"]


def is_left_alone(source: str, given: Any, taken_up: bool) -> bool:
    """Whether nobody can tell what this is: the input of a workflow, or dicts that stay dicts."""
    return source == "saver" and (not taken_up or isinstance(given["messages"][0], dict))


class _Failing(InMemorySaver):
    """A saver that cannot put one of the checkpoints."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def put(self, *args: Any) -> Any:
        self.left -= 1
        if not self.left:
            raise OSError("disk full")
        return super().put(*args)


@pytest.mark.parametrize("kind", MODEL_NODES)
@both_sources
def test_a_command_that_died_at_once_has_said_what_it_said(kind: str, source: str) -> None:
    thread = Thread(kind, model=Scripted())
    thread.graph.invoke(asked("Hello."), THREAD)
    command = Command(goto=MODEL_NODES[kind], update=asked("Go."))
    thread.model.replies.append(None)
    with pytest.raises(AttributeError):
        thread.graph.invoke(command, THREAD)
    report = reconciled(thread, source)
    assert report.changed
    assert report.messages[-1].text == "Go."
    assert report.messages == thread.stored
    assert thread.state.next == report.next


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@both_sources
def test_whatever_the_durability(durability: Any, source: str) -> None:
    thread = Thread("agent").break_off(durability=durability)
    report = reconciled(thread, source)
    assert report.changed
    assert lockstitch.check(report.messages, "langchain") == []
    if durability != "exit":
        assert report.results == len(FINISHED)
    assert lockstitch.check(thread.invoke(), "langchain") == []


@pytest.mark.parametrize("kind", ["agent", "changing"])
@both_sources
def test_of_a_thread_of_which_nothing_was_kept_the_application_has_the_last_word(
    kind: str, source: str
) -> None:
    thread = Thread(kind, model=Scripted())
    with unwritten(thread):
        assert reconciled(thread, source) == Reconciled()
    held = [HumanMessage("Go."), calling("one")]
    report = reconciled(thread, source, held)
    assert report.changed
    assert report.before is None
    assert [message.type for message in report.messages] == ["human", "ai", "tool"]
    assert all(message.id for message in report.messages)
    sent = thread.invoke()
    assert [message.type for message in sent] == ["human", "ai", "tool", "human"]
    assert thread.state.values["messages"][:3] == report.messages


@every_kind
def test_what_fails_to_be_put_is_put_the_next_time(kind: str) -> None:
    thread = Thread(kind, saver=_Failing(at=0)).break_off()
    thread.saver.left = 1
    with pytest.raises(OSError, match="disk"):
        reconcile(thread.graph, THREAD)
    report = reconcile(thread.graph, THREAD)
    assert report.changed
    assert report.results == thread.finishing


@every_kind
@both_sources
def test_the_async_twin_does_the_same(kind: str, source: str) -> None:
    thread = Thread(kind).break_off()
    head = thread.head.config
    copy = Thread(kind, saver=_copy(thread.saver, head))
    mine = asyncio.run(areconcile(getattr(copy, source), THREAD))
    assert mine.messages == reconciled(thread, source).messages
    assert copy.stored == thread.stored


def test_the_async_twin_takes_a_saver_that_only_blocks(tmp_path: Any) -> None:
    with sqlite(str(tmp_path / "db")) as saver:
        thread = Thread("agent", saver=saver).break_off()
        report = asyncio.run(areconcile(thread.graph, THREAD))
        assert report.results == len(FINISHED)
        assert thread.stored == report.messages


def test_a_report_tells_no_content() -> None:
    thread = Thread("fanned").break_off(asked("my secret"))
    report = reconcile(thread.saver, THREAD)
    assert "secret" not in f"{report} {report!r}"
    assert "real result of" not in f"{report!r} {report.findings}"
    assert str(report).startswith("changed, 5 messages")


def test_a_report_says_what_a_subgraph_waits_at() -> None:
    report = Reconciled(subgraphs=[Reconciled(), Reconciled(paused="interrupt")])
    assert report.waiting
    assert str(report) == "unchanged, 0 messages, waiting at an interrupt"


def test_what_is_no_graph_and_no_checkpointer_is_refused() -> None:
    with pytest.raises(UsageError, match="compiled graph or a checkpointer"):
        reconcile(object(), THREAD)
    with pytest.raises(UsageError, match="names no thread"):
        reconcile(InMemorySaver(), {})
    with pytest.raises(UsageError, match="no checkpointer"):
        reconcile(AGENTS["agent"](Scripted(), Bench(), None), THREAD)
    thread = Thread("fanned", model=Scripted(calling("one")))
    thread.invoke()
    with pytest.raises(UsageError, match="no list of messages"):
        reconcile(thread.saver, THREAD, channel="done")


def test_results_of_every_task_are_there_after_a_crash_between_the_puts() -> None:
    """A run that resumes by itself instead of being reconciled is not in its way."""
    thread = Thread("agent").break_off()
    thread.model.replies.append(AIMessage("Done."))
    thread.bench.released.set()
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the tool fails again
        thread.graph.invoke(None, THREAD)
    assert reconcile(thread.graph, THREAD).results == len(FINISHED)


def ids(messages: list[BaseMessage]) -> list[str | None]:
    return [message.id for message in messages]


@every_kind
def test_a_graph_that_was_changed_does_not_lose_what_tasks_of_the_old_one_left(kind: str) -> None:
    thread = Thread(kind).break_off()
    writes = thread.saver.writes
    for place, found in list(writes.items()):
        writes[place] = {
            (f"f{task[1:]}", number): (f"f{task[1:]}", *rest)
            for (task, number), (_, *rest) in found.items()
        }
    report = reconcile(thread.graph, THREAD)
    assert report.results >= thread.finishing
    real = [text for text in texts(report.messages) if not is_placeholder(text)]
    assert len(real) == thread.finishing


def test_an_answer_made_up_before_is_beaten_by_the_real_one() -> None:
    thread = Thread("agent").break_off()
    held = thread.head.checkpoint["channel_values"]["messages"]
    stand_ins = lockstitch.heal(held, "langchain")
    report = reconcile(thread.graph, THREAD, stand_ins)
    assert report.results == len(FINISHED)
    assert texts(report.messages)[0] == result_of("one")
    assert all(isinstance(message, ToolMessage) for message in report.messages[2:])


def test_the_work_itself_reads_and_writes_nothing() -> None:
    thread = Thread("agent").break_off()
    with unwritten(thread):
        found = repair_checkpoint(thread.head, next_version=thread.saver.get_next_version)
    assert found is not None
    assert found.report.results == len(FINISHED)
    assert set(found.new_versions) == {"messages", "__pregel_tasks", "branch:to:model"}
    wanted = {"messages": found.report.messages, "branch:to:model": None}
    assert found.checkpoint["channel_values"] == wanted
    thread.saver.put(thread.head.config, found.checkpoint, found.metadata, found.new_versions)
    assert repair_checkpoint(thread.head, next_version=thread.saver.get_next_version) is None


def test_the_work_itself_takes_results_from_ancestors() -> None:
    thread = Thread("agent").break_off()
    past = thread.head
    thread.graph.update_state(THREAD, asked("And now?"), as_node="__start__")
    next_version = thread.saver.get_next_version
    bare = repair_checkpoint(thread.head, next_version=next_version)
    assert bare is not None
    assert bare.report.results == 0
    found = repair_checkpoint(thread.head, next_version=next_version, ancestors=[past])
    assert found is not None
    assert found.report.results == len(FINISHED)


def _closed_by_heal(thread: Thread) -> Any:
    """What a message on top of the interrupt, and `HealMiddleware`, make of the state."""
    thread.graph.update_state(THREAD, asked("And now?"), as_node="__start__")
    update = HealMiddleware().before_model({"messages": thread.stored}, None)
    return thread.graph.update_state(THREAD, update, as_node="__start__")


@both_sources
def test_what_the_middleware_made_up_gives_way_to_results_left_behind(source: str) -> None:
    thread = Thread("agent").break_off()
    _closed_by_heal(thread)
    assert [is_placeholder(text) for text in texts(thread.stored)] == [True] * len(JOBS)
    report = reconciled(thread, source)
    assert report.results == len(FINISHED)
    assert [is_placeholder(text) for text in texts(thread.stored)] == [job == STUCK for job in JOBS]
    assert not reconciled(thread, source).changed


def test_what_reconcile_made_up_gives_way_to_a_result_written_later() -> None:
    thread = Thread("agent").break_off()
    past = thread.head
    reconcile(thread.saver, THREAD)
    assert sum(map(is_placeholder, texts(thread.stored))) == 1
    (call,) = (
        message.tool_call_id
        for message in thread.stored
        if isinstance(message, ToolMessage) and is_placeholder(str(message.text))
    )
    late = ToolMessage("It took its time.", tool_call_id=call)
    thread.saver.put_writes(past.config, [("messages", [late])], "late-task")
    report = reconcile(thread.saver, THREAD)
    assert report.results == 1
    assert "It took its time." in texts(thread.stored)
    assert not any(map(is_placeholder, texts(thread.stored)))


def test_a_text_in_place_of_a_result_is_never_taken_for_one_left_behind() -> None:
    thread = Thread("agent").break_off()
    _closed_by_heal(thread)
    before = reconcile(thread.saver, THREAD)
    thread.graph.update_state(THREAD, asked("Once more."), as_node="__start__")
    again = reconcile(thread.saver, THREAD)
    assert before.results == len(FINISHED)
    assert (again.results, again.synthetic) == (0, 0)
