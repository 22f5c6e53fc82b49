"""The kinds of damage that were first catalogued, numbered as they were then; h is for hard.

Each is a function of a book, run once for every layout that can have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .claude_files import (
    INTERRUPTED,
    LAYOUTS,
    Book,
    Case,
    counted_uuid,
    dumped,
    joined,
    opened,
    torn,
)

Builder = Callable[[Book], Case]
NULS = b"\0" * 512
BUILDERS: list[tuple[str, tuple[str, ...], Builder]] = []


def kind(name: str, *layouts: str) -> Callable[[Builder], Builder]:
    """Register a builder under a name, for some layouts or for all."""

    def register(builder: Builder) -> Builder:
        BUILDERS.append((name, layouts or LAYOUTS, builder))
        return builder

    return register


@kind("00_healthy")
def healthy(book: Book) -> Case:
    opened(book).work("Now the tests.", "tests", "lint", "types")
    book.ask("Thank you.")
    book.say("You are welcome.", thinking="They are done.")
    book.note("mode", mode="normal")
    return book.case(healthy=True)


@kind("01_open_call_at_tail")
def open_call_at_tail(book: Book) -> Case:
    opened(book).ask("Run the build.")
    book.say("I build it.", "the build")
    return book.case(touched=0)


@kind("01_open_batch_at_tail")
def open_batch_at_tail(book: Book) -> Case:
    opened(book).ask("Run everything.")
    book.say("All at once.", "build", "tests", "lint")
    return book.case(touched=0)


@kind("02_open_call_in_middle")
def open_call_in_middle(book: Book) -> Case:
    opened(book).ask("Run the build.")
    book.say("I build it.", "the build")
    book.work("Are you there?", "status")
    return book.case(touched=1)


@kind("02_open_call_before_assistant")
def open_call_before_assistant(book: Book) -> Case:
    opened(book).ask("Run the build.")
    book.say("I build it.", "the build")
    book.say("The build is done.")
    book.ask("Good.")
    return book.case(touched=1)


@kind("03_orphan_result")
def orphan_result(book: Book) -> Case:
    opened(book)
    book.result("toolu_01nobodycalledthis00000", book.words("late output"), None)
    book.say("I see.")
    book.work("Go on.", "status")
    return book.case()


@kind("04_duplicate_result")
def duplicate_result(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    text = book.answer(turn.calls[0], "built")["message"]["content"][0]["content"]
    book.result(turn.calls[0].id, text, turn.calls[0].record["uuid"])
    book.say("It is built.")
    book.ask("Good.")
    return book.case(touched=2)


@kind("04_duplicate_result_late")
def duplicate_result_late(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    text = book.answer(turn.calls[0], "built")["message"]["content"][0]["content"]
    book.say("It is built.")
    book.result(turn.calls[0].id, text, turn.calls[0].record["uuid"])
    book.say("As I said.")
    return book.case(touched=2)


@kind("05_separated_by_user")
def separated_by_user(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    book.ask("Hurry up.")
    book.result(turn.calls[0].id, book.words("built"), turn.calls[0].record["uuid"])
    book.pairs[book.last] = turn.calls[0].mark
    book.say("It is built.")
    return book.case()


@kind("06_torn_text")
def torn_text(book: Book) -> Case:
    opened(book).ask("Tell me more.")
    book.say("This is more, and it ends")
    *lines, last = book.lines()
    return book.case(joined(lines) + torn(last, book.last), spare=[book.last])


@kind("06_torn_result")
def torn_result(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    book.answer(turn.calls[0], "built")
    *lines, last = book.lines()
    return book.case(joined(lines) + torn(last, book.last), spare=[book.last])


@kind("06_torn_in_a_character")
def torn_in_a_character(book: Book) -> Case:
    opened(book).ask("Say it in Greek.")
    book.blocks({"type": "text", "text": f"{book.words('so')} \N{GREEK SMALL LETTER ALPHA} etc."})
    *lines, last = book.lines()
    cut = last.index("\N{GREEK SMALL LETTER ALPHA}".encode()) + 1
    return book.case(joined(lines) + last[:cut], spare=[book.last])


@kind("06_no_final_newline")
def no_final_newline(book: Book) -> Case:
    opened(book)
    return book.case(joined(book.lines()).removesuffix(b"\n"), noted=True)


@kind("07_two_of_three")
def two_of_three(book: Book) -> Case:
    opened(book).ask("Run everything.")
    turn = book.say("All at once.", "build", "tests", "lint")
    book.answer(turn.calls[0], "built")
    book.answer(turn.calls[2], "no lint")
    book.say("Two of three.")
    book.ask("And the third?")
    return book.case()


@kind("07_one_of_three_at_tail")
def one_of_three_at_tail(book: Book) -> Case:
    opened(book).ask("Run everything.")
    turn = book.say("All at once.", "build", "tests", "lint")
    book.answer(turn.calls[1], "12 passed")
    return book.case()


@kind("08_id_reused")
def id_reused(book: Book) -> Case:
    opened(book)
    first = book.work("Run it.", "first")
    second = book.work("Run it again.", "second")
    rename(second.calls[0].record, book.records, first.calls[0].id)
    book.ask("Good.")
    return book.case()


@kind("09_cut_arguments")
def cut_arguments(book: Book) -> Case:
    opened(book).ask("Write the file.")
    turn = book.say("I write it.", "the file")
    block = turn.calls[0].record["message"]["content"][0]
    block["input"] = '{"command": "echo ' + turn.calls[0].mark + " and th"
    turn.calls[0].record["message"]["stop_reason"] = None
    book.ask("Are you there?")
    return book.case(spare=[turn.calls[0].mark])


@kind("10_nuls_before_a_record")
def nuls_before_a_record(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    lines = book.lines()
    lines[4] = NULS + lines[4]
    return book.case(joined(lines), touched=1)


@kind("10_nuls_on_a_line")
def nuls_on_a_line(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    lines = book.lines()
    return book.case(joined([*lines[:4], NULS, *lines[4:]]), touched=0)


@kind("10_nuls_after_a_record")
def nuls_after_a_record(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    lines = book.lines()
    lines[4] += NULS
    return book.case(joined(lines), touched=1)


@kind("10_nuls_over_a_record")
def nuls_over_a_record(book: Book) -> Case:
    """The second half of a record and its line end are gone; the next record is whole."""
    opened(book).ask("Tell me more.")
    book.say("This is more.")
    lost = book.last
    book.work("Go on.", "status")
    lines = book.lines()
    at = next(i for i, line in enumerate(lines) if lost.encode() in line)
    line = torn(lines[at], lost) + NULS + lines[at + 1]
    return book.case(joined([*lines[:at], line, *lines[at + 2 :]]), spare=[lost])


@kind("10_nuls_at_the_end")
def nuls_at_the_end(book: Book) -> Case:
    opened(book)
    return book.case(joined(book.lines()) + NULS, touched=0)


@kind("11_dangling_parent")
def dangling_parent(book: Book) -> Case:
    opened(book)
    book.tip = counted_uuid(book.session, "never written")
    book.work("Go on.", "status")
    return book.case(touched=1)


@kind("11_missing_line")
def missing_line(book: Book) -> Case:
    """A text of the assistant was never written; what hangs on it was."""
    opened(book).ask("Tell me more.")
    book.say("This is more.")
    lost = book.last
    book.work("Go on.", "status")
    book.records = [record for record in book.records if lost not in str(record)]
    book.marks.remove(lost)
    return book.case(touched=1)


@kind("12_id_reused_second_open")
def id_reused_second_open(book: Book) -> Case:
    opened(book)
    first = book.work("Run it.", "first")
    book.ask("Run it again.")
    second = book.say("Once more.", "second")
    rename(second.calls[0].record, book.records, first.calls[0].id)
    book.ask("And?")
    return book.case()


@kind("13_placeholder_then_real")
def placeholder_then_real(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    source = turn.calls[0].record["uuid"]
    book.answer(turn.calls[0], INTERRUPTED, marked=False)
    book.say("It was interrupted.")
    book.ask("Wait for it.")
    book.result(turn.calls[0].id, book.words("built after all"), source)
    book.pairs[book.last] = turn.calls[0].mark
    book.say("It is built.")
    return book.case()


@kind("14_interleaved")
def interleaved(book: Book) -> Case:
    opened(book).ask("Run everything.")
    turn = book.say("All at once.", "build", "tests", "lint")
    for call, words in ((turn.calls[0], "built"), (turn.calls[2], "no lint")):
        book.ask("Hurry up.")
        book.result(call.id, book.words(words), call.record["uuid"])
        book.pairs[book.last] = call.mark
    book.say("Two of three.")
    return book.case()


@kind("15_result_before_call")
def result_before_call(book: Book) -> Case:
    opened(book).ask("Run the build.")
    record = book.result("toolu_01early00000000000000000", book.words("built"), None)
    early = book.last
    turn = book.say("I build it.", "the build")
    block = turn.calls[0].record["message"]["content"][0]
    block["id"] = record["message"]["content"][0]["tool_use_id"]
    book.pairs[early] = turn.calls[0].mark
    book.ask("And?")
    return book.case()


@kind("16_one_turn_late")
def one_turn_late(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    book.ask("Are you there?")
    book.say("I wait for it.")
    book.result(turn.calls[0].id, book.words("built"), turn.calls[0].record["uuid"])
    book.pairs[book.last] = turn.calls[0].mark
    book.say("It is built.")
    return book.case()


@kind("17_unsendable_text")
def unsendable_text(book: Book) -> Case:
    opened(book).ask("Half an emoji: \ud83d and a NUL: \0")
    turn = book.say("The other half: \ude00.", "nul \0 in it")
    book.answer(turn.calls[0], "low and high: \udc00\ud800\0\0")
    book.say("Done.")
    return book.case(touched=4)


@kind("18_torn_and_glued")
def torn_and_glued(book: Book) -> Case:
    """A record is cut, and the next one stands on the same line."""
    opened(book).ask("Tell me more.")
    book.say("This is more.")
    lost = book.last
    book.work("Go on.", "status")
    lines = book.lines()
    at = next(i for i, line in enumerate(lines) if lost.encode() in line)
    line = torn(lines[at], lost) + lines[at + 1]
    return book.case(joined([*lines[:at], line, *lines[at + 2 :]]), spare=[lost])


@kind("18_torn_and_rewritten")
def torn_and_rewritten(book: Book) -> Case:
    """A record is cut and then written again, whole, on the same line."""
    opened(book).work("Go on.", "status")
    lines = book.lines()
    lines[-2] = lines[-2][:200] + lines[-2]
    return book.case(joined(lines), touched=1)


@kind("18_glued")
def glued(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    lines = book.lines()
    lines[2:4] = [lines[2] + lines[3]]
    lines[-3:] = [b"".join(lines[-3:])]
    return book.case(joined(lines), touched=2)


@kind("19_duplicate_uuid")
def duplicate_uuid(book: Book) -> Case:
    opened(book)
    first = book.ask("Tell me more.")
    book.say("This is more.")
    second = book.ask("And more.")
    second["uuid"] = book.tip = first["uuid"]
    book.say("There is no more.")
    book.ask("Good.")
    return book.case(touched=2)


@kind("20_compaction_between_call_and_result")
def compaction_between(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    old = [*book.marks]
    book.boundary()
    book.summary("We looked at the settings and started the build.")
    book.result(turn.calls[0].id, book.words("built"), turn.calls[0].record["uuid"])
    book.say("It is built.")
    book.ask("Good.")
    return book.case(aside=old, touched=1)


@kind("20_open_call_before_compaction")
def open_call_before_compaction(book: Book) -> Case:
    """A call was in flight when the compaction ran: harmless."""
    opened(book).ask("Run the build.")
    book.say("I build it.", "the build")
    old = [*book.marks]
    book.boundary()
    book.summary("We looked at the settings and started the build.")
    book.work("Go on.", "status")
    return book.case(aside=old, healthy=True)


@kind("21_results_on_side_branches", "tree")
def results_on_side_branches(book: Book) -> Case:
    opened(book).ask("Run everything.")
    turn = book.say("All at once.", "build", "tests", "lint")
    for call in reversed(turn.calls):
        book.answer(call, "exit status 0")
    book.say("All good.")
    book.ask("Good.")
    return book.case(healthy=True)


@kind("h1_blank_text")
def blank_text(book: Book) -> Case:
    opened(book).ask("Run the build.")
    call = book.call("the build")
    mark = book.last
    _, record = book.blocks({"type": "text", "text": "\n\n"}, call)
    book.result(call["id"], book.words("built"), record["uuid"])
    book.pairs[book.last] = mark
    book.say("It is built.")
    return book.case(noted=True)


@kind("h2_parameters_in_the_name")
def parameters_in_the_name(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    block = turn.calls[0].record["message"]["content"][0]
    command = f"make all {'VERBOSE=1 ' * 20}{turn.calls[0].mark}"
    block["name"] = f'Bash" command="{command}" description="Build all of it'
    block["input"] = {}
    book.answer(turn.calls[0], "built")
    book.say("It is built.")
    return book.case(spare=[turn.calls[0].mark], touched=1)


@kind("h3_empty_assistant")
def empty_assistant(book: Book) -> Case:
    opened(book).ask("Say nothing.")
    turn = book.say(None, "nothing")
    turn.records[0]["message"]["content"] = []
    book.marks.remove(turn.calls[0].mark)
    book.work("Go on.", "status")
    return book.case(touched=2)


@kind("h4_cycle")
def cycle(book: Book) -> Case:
    opened(book)
    first = book.ask("Tell me more.")
    turn = book.say("This is more.")
    first["parentUuid"] = turn.records[0]["uuid"]
    book.work("Go on.", "status")
    return book.case(touched=1)


@kind("h4_own_parent")
def own_parent(book: Book) -> Case:
    opened(book)
    first = book.ask("Tell me more.")
    first["parentUuid"] = first["uuid"]
    book.say("This is more.")
    return book.case(touched=1)


@kind("h5_torn_first_line")
def torn_first_line(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    first, *lines = book.lines()
    lost = book.marks[0]
    return book.case(joined([torn(first, lost), *lines]), spare=[lost])


@kind("h5_first_line_without_its_head")
def first_line_without_its_head(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    first, *lines = book.lines()
    return book.case(joined([first[first.index(b"MARK") - 9 :], *lines]), spare=[book.marks[0]])


@kind("h6_unsigned_thinking")
def unsigned_thinking(book: Book) -> Case:
    opened(book).ask("Think hard.")
    thought = {"type": "thinking", "thinking": book.words("I am thinking"), "signature": ""}
    lost = book.last
    (record,) = book.blocks(thought)
    record["message"]["stop_reason"] = None
    book.work("Go on.", "status")
    return book.case(spare=[lost], touched=2)


@kind("h7_two_writers")
def two_writers(book: Book) -> Case:
    """Two processes write at the same time; their lines alternate."""
    opened(book)
    fork, before, seconds = book.tip, len(book.records), book.now
    book.work("One: the build.", "build")
    one = book.records[before:]
    book.tip, book.now = fork, seconds
    book.wait(1.9)
    book.work("Two: the tests.", "tests")
    two = book.records[before + len(one) :]
    mixed = sorted([*one, *two], key=lambda record: str(record["timestamp"]))
    book.records[before:] = mixed
    return book.case()


@kind("h7_one_after_the_other")
def one_after_the_other(book: Book) -> Case:
    """A second process goes on from where the first one started, a second after it ended."""
    opened(book)
    fork = book.tip
    book.work("One: the build.", "build")
    book.tip = fork
    book.wait(1)
    book.work("Two: the tests.", "tests")
    return book.case()


@kind("h8_bad_byte")
def bad_byte(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    lines = book.lines()
    lines[0] = lines[0].replace(b"the settings", b"the\xff settings")
    lines[-1] = lines[-1].replace(b"Done.", b"Done\xe2\x82.")
    return book.case(joined(lines), touched=2)


@kind("h9_byte_order_mark")
def byte_order_mark(book: Book) -> Case:
    opened(book)
    return book.case(b"\xef\xbb\xbf" + joined(book.lines()), touched=1)


@kind("h10_stale_parent")
def stale_parent(book: Book) -> Case:
    """A prompt after a compaction hangs on a record from before it."""
    opened(book)
    stale, old = book.tip, [*book.marks]
    book.boundary()
    book.summary("We looked at the settings.")
    book.work("Now the tests.", "tests")
    book.tip = stale
    book.work("Go on.", "status")
    return book.case(aside=old, touched=1)


@kind("h11_lines_that_are_no_objects")
def lines_that_are_no_objects(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    words = book.words("a bare string")
    lost = book.last
    strays = [dumped(value) for value in (42, [1, 2], words, True)]
    lines = book.lines()
    data = joined([*strays[:2], *lines[:3], *strays[2:], *lines[3:], b"null"])
    return book.case(data, spare=[lost], touched=5)


@kind("h12_foreign_parent_at_the_end")
def foreign_parent(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    book.tip = counted_uuid(book.session, "in the file of a sub-agent")
    book.system("turn_duration", durationMs=54084)
    return book.case(touched=1)


@kind("h12_foreign_prompt_at_the_end")
def foreign_prompt(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    book.tip = counted_uuid(book.session, "in the file of a sub-agent")
    book.ask("And now?")
    return book.case(touched=1)


def rename(record: dict[str, Any], records: list[dict[str, Any]], new: str) -> None:
    """Give the call in *record*, and its result if it has one, another id."""
    block = record["message"]["content"][0]
    old, block["id"] = block["id"], new
    for other in records:
        content = other.get("message", {}).get("content")
        for item in content if isinstance(content, list) else ():
            if item.get("tool_use_id") == old:
                item["tool_use_id"] = new
