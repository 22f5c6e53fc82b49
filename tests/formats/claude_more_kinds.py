"""More kinds of damage: what real clients were seen to trip over."""

from __future__ import annotations

from copy import deepcopy

from .claude_files import (
    Book,
    Case,
    aside_lines,
    counted_uuid,
    dumped,
    joined,
    opened,
    sidechain,
    spoken,
    torn,
)
from .claude_kinds import kind

SURVIVORS = 4


# The graph


@kind("root_in_middle")
def root_in_middle(book: Book) -> Case:
    opened(book).ask("Tell me more.")
    turn = book.say("This is more.")
    turn.records[0]["parentUuid"] = None
    book.work("Go on.", "status")
    return book.case(touched=1)


@kind("root_in_middle_result")
def root_in_middle_result(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    book.answer(turn.calls[0], "built")["parentUuid"] = None
    book.say("It is built.")
    return book.case(touched=1)


@kind("two_roots_in_middle")
def two_roots_in_middle(book: Book) -> Case:
    """Three pieces; the second begins in the middle of an API message."""
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    turn.calls[0].record["parentUuid"] = None
    book.answer(turn.calls[0], "built")
    book.say("It is built.")
    book.ask("Tell me more.")
    book.say("This is more.").records[0]["parentUuid"] = None
    book.work("Go on.", "status")
    return book.case(touched=2)


@kind("late_control_record")
def late_control_record(book: Book) -> Case:
    """A control record was flushed late, beside the reply; the next turn hangs on it."""
    prompt = opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    book.answer(turn.calls[0], "built")
    book.say("It is built.")
    book.tip = prompt["uuid"]
    book.system("api_error", error={"status": 529}, retryAttempt=1, maxRetries=10)
    book.work("Go on.", "status")
    return book.case(touched=2)


@kind("late_hook_summary")
def late_hook_summary(book: Book) -> Case:
    prompt = opened(book).ask("Tell me more.")
    book.say("This is more.")
    book.tip = prompt["uuid"]
    book.system("stop_hook_summary", hookCount=1, hookInfos=[{"command": "notify"}])
    book.ask("Go on.")
    return book.case(touched=2)


@kind("reply_dropped")
def reply_dropped(book: Book) -> Case:
    """Killed in a call; the client that resumed hung the next prompt before the call."""
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    book.tip = turn.records[0]["uuid"]
    book.wait(300)
    book.work("Are you there?", "status")
    return book.case(touched=2)


@kind("reply_dropped_whole")
def reply_dropped_whole(book: Book) -> Case:
    """The same, where the reply was nothing but the call."""
    prompt = opened(book).ask("Run the build.")
    book.say(None, "the build")
    book.tip = prompt["uuid"]
    book.wait(300)
    book.work("Are you there?", "status")
    return book.case(touched=2)


@kind("batch_dropped")
def batch_dropped(book: Book) -> Case:
    """One of three had finished; the client kept that pair and forgot the other two calls."""
    opened(book).ask("Run everything.")
    turn = book.say("All at once.", "build", "tests", "lint")
    book.answer(turn.calls[0], "built")
    book.ask("Continue from where you left off.")
    book.say("I go on.")
    return book.case()


@kind("one_uuid_every_turn")
def one_uuid_every_turn(book: Book) -> Case:
    """A kind of record that uses the same id each turn closes a circle."""
    opened(book)
    shared = counted_uuid(book.session, "fixed")
    for words in ("Tell me more.", "And more.", "And more still."):
        book.system("stop_hook_summary", hookCount=1)["uuid"] = shared
        book.tip = shared
        book.ask(words)
        book.say("This is more.")
    return book.case(touched=4)


@kind("snapshot_with_the_id_of_a_prompt")
def snapshot_collision(book: Book) -> Case:
    opened(book)
    prompt = book.ask("Tell me more.")
    snapshot = book.snapshot(prompt)
    snapshot["uuid"], snapshot["parentUuid"] = prompt["uuid"], None
    book.say("This is more.")
    return book.case(touched=2)


@kind("result_line_missing")
def result_line_missing(book: Book) -> Case:
    opened(book)
    turn = book.work("Run the build.", "the build")
    book.ask("Good.")
    lost = next(result for result, call in book.pairs.items() if call == turn.calls[0].mark)
    book.records = [record for record in book.records if lost not in str(record)]
    book.marks.remove(lost)
    return book.case(touched=1)


@kind("call_line_missing")
def call_line_missing(book: Book) -> Case:
    opened(book)
    turn = book.work("Run the build.", "the build")
    book.ask("Good.")
    book.records.remove(turn.calls[0].record)
    book.marks.remove(turn.calls[0].mark)
    return book.case(touched=2)


@kind("call_of_a_batch_missing", "tree")
def call_of_a_batch_missing(book: Book) -> Case:
    """The result of the missing call hangs aside, on nothing."""
    opened(book)
    turn = book.work("Run everything.", "build", "tests", "lint")
    book.ask("Good.")
    book.records.remove(turn.calls[1].record)
    book.marks.remove(turn.calls[1].mark)
    return book.case()


@kind("three_writers")
def three_writers(book: Book) -> Case:
    """Three processes go on from one record; one of them is killed in a call."""
    opened(book)
    fork, before, start = book.tip, len(book.records), book.now
    for number, words in enumerate(("build", "tests")):
        book.tip, book.now = fork, start
        book.wait(1.3 + number * 0.4)
        book.work(f"Run the {words}.", words)
        book.work(f"Run the {words} again.", words)
    book.tip, book.now = fork, start
    book.wait(2.2)
    book.ask("Run the linter.")
    book.say("I run it.", "lint")
    book.records[before:] = sorted(book.records[before:], key=lambda one: str(one["timestamp"]))
    return book.case()


@kind("end_written_twice_without_a_parent")
def end_written_twice_without_a_parent(book: Book) -> Case:
    """The copy of a record differs from it in nothing but its parent."""
    opened(book).ask("Tell me more.")
    turn = book.say("This is more.")
    book.work("Go on.", "status")
    at = book.records.index(turn.records[0])
    book.records += [{**turn.records[0], "parentUuid": None}, *book.records[at + 1 :]]
    return book.case()


@kind("written_twice_first_copy_damaged")
def written_twice_first_copy_damaged(book: Book) -> Case:
    opened(book).work("Tell me more.", "more")
    lines = book.lines()
    bad = [line.replace(b"echo", b"ec\xffho") for line in lines]
    return book.case(joined([*bad, *lines[-4:]]))


@kind("dangling_parent_oddly_spelt")
def dangling_parent_oddly_spelt(book: Book) -> Case:
    """What is not wrong in a line keeps its spelling: spaces, escapes, numbers, order of keys."""
    opened(book)
    book.tip = counted_uuid(book.session, "never written")
    book.ask("Caf\u00e9?", ratio=1.0, limit=2**80)
    book.say("Yes.")
    lines = book.lines()
    odd = lines[-2].replace(b'"type":"user"', b'"type" : "user"').replace(b"1.0", b"1.50E+2")
    lines[-2] = odd.replace("\u00e9".encode(), b"\\u00e9").replace(b"/home", b"\\/home") + b" "
    return book.case(joined(lines), touched=1)


# Records


@kind("doubled_lines")
def doubled_lines(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    lines = book.lines()
    doubled = [copy for line in lines[:-2] for copy in (line, line)]
    return book.case(joined([*doubled, *lines[-2:]]))


@kind("file_written_twice")
def file_written_twice(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    lines = book.lines()
    return book.case(joined([*lines, *lines]))


@kind("wrong_call_id", "tree")
def wrong_call_id(book: Book) -> Case:
    """A result names a call that is nowhere; the record says which call it belongs to."""
    opened(book).ask("Run everything.")
    turn = book.say("All at once.", "build", "tests")
    book.answer(turn.calls[0], "built")
    wrong = book.answer(turn.calls[1], "12 passed")
    wrong["message"]["content"][0]["tool_use_id"] = "toolu_01wrong000000000000000000"
    book.say("All good.")
    book.ask("Good.")
    return book.case(touched=1)


@kind("agent_had_finished", "tree")
def agent_had_finished(book: Book) -> Case:
    """The call of a sub-agent is open, but the sub-agent's own file holds its report."""
    opened(book).ask("Explore the code.")
    prompt = book.words("Find all settings.")
    asked = book.last
    call = book.call("explore", "Agent", description="Explore", prompt=prompt)
    book.marks.pop()
    book.blocks(call)
    side = sidechain(book, "a1b2c3d4", prompt)
    turn = side.say("I search.", "search")
    side.answer(turn.calls[0], "3 files")
    inner = book.marks[book.marks.index(asked) + 1 :]
    side.say("There are three settings.")
    report = book.last
    book.pairs |= {report: asked}
    meta = {
        "agentType": "Explore",
        "description": "Explore",
        "toolUseId": call["id"],
        "spawnDepth": 1,
        "finished": True,
    }
    folder = f"{book.session}/subagents"
    files = {
        f"{folder}/agent-a1b2c3d4.jsonl": aside_lines(side, "a1b2c3d4"),
        f"{folder}/agent-a1b2c3d4.meta.json": dumped(meta),
    }
    return book.case(aside=inner, side=files, touched=0)


@kind("agent_was_killed", "tree")
def agent_was_killed(book: Book) -> Case:
    """The sub-agent died in a call of its own; nothing of it can be an answer."""
    opened(book).ask("Explore the code.")
    prompt = book.words("Find all settings.")
    asked = book.last
    call = book.call("explore", "Agent", description="Explore", prompt=prompt)
    book.marks.pop()
    book.blocks(call)
    side = sidechain(book, "a1b2c3d4", prompt)
    side.say("I search.", "search")
    inner = book.marks[book.marks.index(asked) + 1 :]
    meta = {"agentType": "Explore", "description": "Explore", "toolUseId": call["id"]}
    folder = f"{book.session}/subagents"
    files = {
        f"{folder}/agent-a1b2c3d4.jsonl": aside_lines(side, "a1b2c3d4"),
        f"{folder}/agent-a1b2c3d4.meta.json": dumped(meta),
    }
    return book.case(aside=inner, side=files, touched=0)


@kind("one_empty_line_of_a_message")
def one_empty_line_of_a_message(book: Book) -> Case:
    """A call was emptied; its result is left, and so are the other lines of the message."""
    opened(book)
    turn = book.work("Run everything.", "build", "tests")
    turn.calls[0].record["message"]["content"] = []
    book.marks.remove(turn.calls[0].mark)
    book.ask("Good.")
    return book.case()


@kind("empty_prompt")
def empty_prompt(book: Book) -> Case:
    opened(book)
    book.ask("nothing")["message"]["content"] = ""
    book.marks.pop()
    book.say("You said nothing.")
    book.work("Go on.", "status")
    return book.case(touched=2)


@kind("text_before_result")
def text_before_result(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    record = book.answer(turn.calls[0], "built")
    text = {"type": "text", "text": book.words("By the way.")}
    record["message"]["content"].insert(0, text)
    book.say("It is built.")
    return book.case(touched=1)


@kind("null_line")
def null_line(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    lines = book.lines()
    return book.case(joined([*lines[:5], b"null", *lines[5:]]), touched=1)


@kind("no_message")
def no_message(book: Book) -> Case:
    opened(book)
    del book.ask("nothing")["message"]
    book.marks.pop()
    book.work("Go on.", "status")
    return book.case(touched=2)


@kind("null_content")
def null_content(book: Book) -> Case:
    opened(book).ask("Say nothing.")
    book.say("nothing").records[0]["message"]["content"] = None
    book.marks.pop()
    book.work("Go on.", "status")
    return book.case(touched=2)


@kind("record_on_two_lines")
def record_on_two_lines(book: Book) -> Case:
    """A line feed inside a text was written as it is."""
    opened(book).ask("Tell me BREAK more.")
    book.say("This is more.")
    data = joined(book.lines()).replace(b" BREAK ", b"\n")
    return book.case(data, touched=2)


@kind("garbage_in_middle")
def garbage_in_middle(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    lines = book.lines()
    garbage = b'{"type":"user","message":{"role":"user","content":[{{{'
    return book.case(joined([*lines[:4], garbage, *lines[4:]]), touched=1)


@kind("words_queued_in_a_broken_batch")
def words_queued(book: Book) -> Case:
    """The user typed while the tools ran; one of the results was never written."""
    opened(book).ask("Run everything.")
    turn = book.say("All at once.", "build", "tests")
    book.answer(turn.calls[0], "built")
    book.attach("queued_command", prompt=book.words("And the docs."), commandMode="prompt")
    book.say("The docs, too.")
    book.ask("Good.")
    return book.case()


@kind("words_queued_before_two_writers")
def words_queued_before_two_writers(book: Book) -> Case:
    opened(book)
    fork = book.tip
    book.ask("One: the build.")
    turn = book.say("I build it.", "build")
    book.answer(turn.calls[0], "built")
    book.attach("queued_command", prompt=book.words("And the docs."), commandMode="prompt")
    book.say("The docs, too.")
    book.tip = fork
    book.wait(1)
    book.work("Two: the tests.", "tests")
    return book.case()


@kind("words_queued_before_a_root")
def words_queued_before_a_root(book: Book) -> Case:
    """The reply to words that the user typed meanwhile has lost its parent."""
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "build")
    book.answer(turn.calls[0], "built")
    book.attach("queued_command", prompt=book.words("And the docs."), commandMode="prompt")
    book.say("The docs, too.").records[0]["parentUuid"] = None
    book.ask("Good.")
    return book.case(touched=1)


@kind("words_queued_behind_a_torn_result")
def words_queued_behind_a_torn_result(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "build")
    book.answer(turn.calls[0], "built")
    lost = book.last
    book.attach("queued_command", prompt=book.words("And the docs."), commandMode="prompt")
    book.say("The docs, too.")
    lines = [torn(line, lost) if lost.encode() in line else line for line in book.lines()]
    return book.case(joined(lines), spare=[lost])


@kind("first_prompt_without_message")
def first_prompt_without_message(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    del book.records[0]["message"]
    book.marks.pop(0)
    return book.case()


@kind("leaf_without_a_time")
def leaf_without_a_time(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    del book.records[-1]["timestamp"]
    return book.case(touched=1)


# Compaction


@kind("compaction_without_summary")
def compaction_without_summary(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    book.boundary(spoken(book)[-SURVIVORS:] if book.is_tree else ())
    return book.case(touched=1)


@kind("compaction_with_torn_summary")
def compaction_with_torn_summary(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    book.boundary(spoken(book)[-SURVIVORS:] if book.is_tree else ())
    book.summary("We looked at the settings.")
    *lines, last = book.lines()
    return book.case(joined(lines) + torn(last, book.last), spare=[book.last])


@kind("compaction_without_summary_and_gone_on")
def compaction_without_summary_and_gone_on(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    book.boundary()
    book.work("Are you there?", "again")
    return book.case(touched=2)


@kind("compaction_without_boundary")
def compaction_without_boundary(book: Book) -> Case:
    """Both histories may be sent, or the new one alone."""
    opened(book).work("Go on.", "status")
    old = len(book.marks)
    boundary = book.boundary()
    book.summary("We looked at the settings.")
    book.work("Now the tests.", "tests")
    book.records.remove(boundary)
    del book.marks[:old]
    return book.case(touched=1)


@kind("two_roots_after_a_compaction")
def two_roots_after_a_compaction(book: Book) -> Case:
    old = [*opened(book).marks]
    book.boundary()
    book.summary("We looked at the settings.")
    book.work("Go on.", "status")
    book.ask("Tell me more.")
    for words in ("This is more.", "And more."):
        book.say(words).records[0]["parentUuid"] = None
        book.ask("And?")
    book.say("No more.")
    return book.case(aside=old, touched=2)


@kind("compaction_published_late")
def compaction_published_late(book: Book) -> Case:
    """A turn ended while the summary of what came before it was being written."""
    old = [*opened(book).marks]
    summed_up = book.tip
    book.work("Go on.", "status")
    book.tip = summed_up
    book.boundary()
    book.summary("We looked at the settings.")
    book.work("Now the tests.", "tests")
    return book.case(aside=old)


@kind("kept_by_a_compaction_but_gone", "tree")
def kept_but_gone(book: Book) -> Case:
    """A compaction names a record that is not in the file; the others are still kept."""
    opened(book).work("Go on.", "status")
    kept = spoken(book)[-SURVIVORS:]
    old = [mark for mark in book.marks if not any(mark in str(record) for record in kept)]
    lost = {**deepcopy(kept[0]), "uuid": counted_uuid(book.session, "lost")}
    book.boundary([lost, *kept])
    book.summary("We looked at the settings.")
    book.work("Now the tests.", "tests")
    return book.case(aside=old)


@kind("open_call_kept_by_a_compaction", "tree")
def open_call_kept(book: Book) -> Case:
    """A call was in flight when the compaction ran, and the compaction kept it."""
    opened(book).ask("Run the build.")
    old = [*book.marks]
    turn = book.say("I build it.", "the build")
    book.boundary(turn.records)
    book.summary("We looked at the settings.")
    book.work("Now the tests.", "tests")
    return book.case(aside=old)


@kind("side_chain_takes_over", "linear")
def side_chain_takes_over(book: Book) -> Case:
    """The next prompt hangs on the last record of a sub-agent in the same file."""
    opened(book).ask("Explore the code.")
    turn = book.say("I send someone.", "explore")
    before = len(book.marks)
    side = sidechain(book, "a1b2c3d4", f"explore for {turn.calls[0].mark}")
    side.say("There are three settings.")
    inner = book.marks[before:]
    book.records += [{**record, "isSidechain": True} for record in side.records]
    book.now = side.now
    book.answer(turn.calls[0], "three settings")
    book.say("Three.")
    book.tip = side.records[-1]["uuid"]
    book.work("Now the tests.", "tests")
    return book.case(aside=inner)
