"""Every public call with the exact types of what it takes and returns: type-checked, never run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, assert_type

import lockstitch
from lockstitch import journal, sessions, stored
from lockstitch.testing import Provider, Received, Reply, assert_valid, provider


def lists(messages: list[dict[str, Any]]) -> None:
    lockstitch.heal(messages, "anthropic", strict=True, on_heal=lambda plan: plan.count)
    plan = assert_type(lockstitch.plan(messages, "openai-chat", model="o3"), lockstitch.Plan)
    assert_type(plan.edits, list[lockstitch.Edit])
    assert_type(plan.changes, list[lockstitch.Change])
    assert_type(plan.quarantine, list[lockstitch.Quarantined])
    assert_type(plan.repaired, list[lockstitch.RepairedMessage])
    assert_type(plan.remaining, list[lockstitch.Finding])
    assert_type(plan.healed, bool)
    [finding] = assert_type(lockstitch.check(messages), list[lockstitch.Finding])
    assert_type(finding.at, lockstitch.Place)
    assert_type(finding.at.message, int | None)
    assert_type(lockstitch.detect(messages), str)
    assert_type(lockstitch.explain("LS101"), lockstitch.Rule)
    assert_type(lockstitch.RULES["LS101"], lockstitch.Rule)


def stores(call: lockstitch.CurrentCall, fact: lockstitch.Fact) -> None:
    with lockstitch.open("memory:") as store:
        assert_type(store, lockstitch.Store)
        assert_type(store.session("s", wait=1.0), lockstitch.Session)
        assert_type(store.child(call), lockstitch.Session)
        assert_type(store.async_session("s"), lockstitch.Opening)
        assert_type(store.read("s"), lockstitch.Reader)
        assert_type(store.fork("s", "t", at=3), lockstitch.Head)
        assert_type(store.fork("s", "t", at="label"), lockstitch.Head)
        assert_type(store.copy("s", store), lockstitch.Copy)
        assert_type(store.import_messages("s", [], "anthropic"), lockstitch.Taken)
        assert_type(store.deliver("s", "effect", {"exit": 0}), bool)
        assert_type(store.delete("s", reason="old"), lockstitch.Deleted)
        kept = assert_type(store.retain(older_than=timedelta(days=1)), lockstitch.Retention)
        assert_type(kept.removed, list[lockstitch.Removal])
        assert_type(kept.spared, list[lockstitch.Spared])
        assert_type(store.audit(), Iterator[lockstitch.Audited])
        assert_type(store.sessions(tag="x"), Iterator[lockstitch.Listed])
        assert_type(store.search("words"), Iterator[lockstitch.Match])
        salvage = assert_type(store.salvage("s"), lockstitch.Salvage)
        assert_type(salvage.records, list[lockstitch.Salvaged])
        assert_type(salvage.records[0].record, journal.JournalRecord | None)
    assert_type(fact.event, lockstitch.Event)
    if isinstance(fact.event, journal.Replied):
        assert_type(fact.event.calls, tuple[journal.AskedCall, ...])


def session(session: lockstitch.Session, tool: Callable[[str], str]) -> None:
    turn = assert_type(session.say("hello", key="k"), lockstitch.Turn)
    assert_type(turn.calls, tuple[lockstitch.Call, ...])
    assert_type(turn.is_open, bool)
    assert_type(session.recovered, lockstitch.Recovered)
    assert_type(session.record({"role": "assistant"}, "openai-chat"), lockstitch.Turn)
    with session.stream(iter([]), "anthropic") as stream:
        assert_type(stream, lockstitch.Stream)
        assert_type(stream.complete, bool)
    reading = lockstitch.Tool(tool, repeatable=True, timeout=5)
    ran = session.run_tools({"bash": tool, "read": reading}, timeout=60)
    [call] = assert_type(ran, list[lockstitch.Call])
    assert_type(call.arguments, dict[str, Any] | None)
    assert_type(session.approve(call), lockstitch.Call)
    assert_type(session.deny("toolu_1", "no"), lockstitch.Call)
    assert_type(session.deliver(call, "done"), lockstitch.Turn)
    assert_type(session.wait(1), lockstitch.Turn)
    assert_type(session.interrupt(), lockstitch.Turn)
    assert_type(session.note("a", 1), int)
    assert_type(session.describe(title="t", tags=["x"]), lockstitch.About)
    assert_type(session.checkpoint("before"), int)
    for place in assert_type(session.checkpoints, list[lockstitch.Checkpoint]):
        assert_type(session.rewind(place), lockstitch.Turn)
    assert_type(session.rewind("before"), lockstitch.Turn)
    assert_type(session.rewind(17), lockstitch.Turn)
    session.rewind(1.5)  # type: ignore[arg-type]
    done = assert_type(session.compact(tool, budget=1000), lockstitch.Compaction)
    assert_type(done.before, lockstitch.Cost)
    assert_type(done.event, journal.Compacted | None)
    assert_type(session.notes(), list[lockstitch.Note])
    usage = assert_type(session.usage(), lockstitch.Usage)
    assert_type(usage.models, dict[str, lockstitch.Spent])
    assert_type(usage.tokens, lockstitch.Tokens)
    assert_type(session.state, journal.JournalState)
    assert_type(session.items, list[journal.Spoken | journal.ModelReply | journal.Late])
    assert_type(lockstitch.current_call(), lockstitch.CurrentCall)
    lockstitch.Result("text", error=True)
    lockstitch.Later()
    lockstitch.handle_sigterm()


async def async_session(
    store: lockstitch.Store,
    ask: Callable[[str], Awaitable[str]],
    ask_and_wait: Callable[[str], str],
    count: Callable[[str], int],
) -> None:
    async with store.async_session("s") as session:
        assert_type(session, lockstitch.AsyncSession)
        assert_type(await session.say("hello"), lockstitch.Turn)
        await session.request("anthropic", budget=1000, summarize=ask)
        assert_type(await session.compact(ask, budget=1000), lockstitch.Compaction)
        assert_type(await session.compact(ask_and_wait, budget=1000), lockstitch.Compaction)
        await session.compact(count, budget=1000)  # type: ignore[arg-type]
        assert_type(await session.run_tools({}), list[lockstitch.Call])
        assert_type(session.stream(iter([])), lockstitch.AsyncStream)
        assert_type(await session.rewind("before"), lockstitch.Turn)
        assert_type(await session.usage(), lockstitch.Usage)
    assert_type(await store.async_session("s"), lockstitch.AsyncSession)
    reader = assert_type(await store.async_read("s"), lockstitch.AsyncReader)
    following = assert_type(reader.follow(timeout=1), lockstitch.Following)
    async for fact in following:
        assert_type(fact, lockstitch.Fact)
    assert_type(await store.async_deliver("s", "effect", 1), bool)


def on_disk(report: sessions.Report) -> None:
    assert_type(sessions.scan(["folder"]), Iterator[sessions.Report])
    assert_type(report.findings, list[lockstitch.Finding])
    assert_type(sessions.summarized(report), sessions.Summary)
    [source] = sessions.sources("session.jsonl")
    assert_type(source, sessions.Source)
    assert_type(sessions.check(source), sessions.Report)
    opened = assert_type(sessions.opened(source), sessions.Opened)
    assert_type(opened.transcript, sessions.Transcript)
    assert_type(opened.before, sessions.Snapshot | None)
    plan = assert_type(sessions.planned(opened, sessions.Options(lossy=True)), sessions.Mended)
    assert_type(sessions.differences(plan), Iterator[sessions.Difference])
    assert_type(sessions.repair(source), sessions.Repaired)
    [backup] = assert_type(sessions.backups_of("session.jsonl"), list[sessions.Backup])
    assert_type(backup.manifest, sessions.Manifest)
    assert_type(sessions.undo(backup), sessions.Undone)
    assert_type(sessions.without_secrets([], "anthropic")[1], list[sessions.Redaction])


def from_outside(url: str) -> None:
    assert_type(stored.check(url), Iterator[stored.Report])
    read = assert_type(stored.read(url, "s"), stored.Journal)
    assert_type(read.records, list[journal.JournalRecord])
    assert_type(stored.rewind(url, "s", to=17), stored.Moved)
    assert_type(stored.fork(url, "s", "t", at="label"), int)
    assert_type(stored.repair(url, "s"), stored.Exchanged)
    assert_type(stored.salvage(url), lockstitch.Salvage)
    assert_type(stored.copy(url, "sqlite:///b.db"), Iterator[stored.Copied])
    assert_type(stored.search(url, "words"), Iterator[lockstitch.Match])
    assert_type(stored.compact(url, "s", budget=1000), stored.Shorter)


def in_tests(messages: list[dict[str, Any]]) -> None:
    assert_valid(messages, "anthropic")
    with provider(Reply("hello"), fault="drop") as strict:
        assert_type(strict, Provider)
        assert_type(strict.requests, list[Received])
        assert_type(strict.url, str)
