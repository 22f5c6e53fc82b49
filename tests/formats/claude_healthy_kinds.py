"""Shapes that only look like damage: a repair must not touch one byte of them."""

from __future__ import annotations

from .claude_files import Book, Case, counted_uuid, joined, opened, sidechain, spoken
from .claude_kinds import kind

SURVIVORS = 4
NOWHERE = "00000000-0000-0000-0000-000000000000"


@kind("compacted")
def compacted(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    kept = spoken(book)[-SURVIVORS:] if book.is_tree else []
    old = [mark for mark in book.marks if not any(mark in str(record) for record in kept)]
    book.boundary(kept)
    book.summary("We looked at the settings.")
    book.work("Now the tests.", "tests")
    return book.case(aside=old, healthy=True)


@kind("compacted_twice")
def compacted_twice(book: Book) -> Case:
    opened(book).boundary()
    book.summary("We looked at the settings.")
    book.work("Now the tests.", "tests")
    old = [*book.marks]
    book.boundary()
    book.summary("Settings and tests are done.")
    book.work("Go on.", "status")
    return book.case(aside=old, healthy=True)


@kind("rewound")
def rewound(book: Book) -> Case:
    """The user went back and asked again, 40 seconds later: nothing to bring back."""
    opened(book)
    fork, before = book.tip, len(book.marks)
    book.work("Run the build.", "build")
    given_up = book.marks[before:]
    book.tip = fork
    book.wait(40)
    book.work("Run the tests instead.", "tests")
    return book.case(aside=given_up, healthy=True)


@kind("rewound_to_the_start")
def rewound_to_the_start(book: Book) -> Case:
    """What the model is sent shrinks; the newest client notes the rewind, too."""
    opened(book)
    given_up = [*book.marks]
    book.tip = None
    book.wait(40)
    book.ask("Run the tests instead.")
    book.note("last-prompt", leafUuid=NOWHERE, explicit=True) if book.is_tree else None
    book.say("They pass.")
    return book.case(aside=given_up, healthy=True)


@kind("rewound_from_an_open_call")
def rewound_from_an_open_call(book: Book) -> Case:
    """The user broke off and asked for something else; the branch given up ends in a call."""
    opened(book)
    fork, before = book.tip, len(book.marks)
    book.ask("Run the build.")
    book.say("I build it.", "build")
    given_up = book.marks[before:]
    book.tip = fork
    book.wait(40)
    book.work("Run the tests instead.", "tests")
    return book.case(aside=given_up, healthy=True)


@kind("interrupted_by_the_user")
def interrupted_by_the_user(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "build")
    refusal = "The user doesn't want to proceed with this tool use."
    result = book.answer(turn.calls[0], refusal, marked=False)
    result["message"]["content"][0]["is_error"] = True
    stop = [{"type": "text", "text": "[Request interrupted by user for tool use]"}]
    book.link("user", message={"role": "user", "content": stop})
    book.ask("Run the tests instead.")
    book.say("I run them.")
    return book.case(healthy=True)


@kind("retried_after_errors")
def retried_after_errors(book: Book) -> Case:
    """The reply hangs on the last of the errors, as it should."""
    opened(book).ask("Go on.")
    for attempt in (1, 2):
        book.system("api_error", error={"status": 529}, retryAttempt=attempt, maxRetries=10)
    book.say("I go on.")
    book.ask("Good.")
    return book.case(healthy=True)


@kind("small_compaction")
def small_compaction(book: Book) -> Case:
    """Old results were cleared in memory; the mark of it cuts nothing."""
    opened(book).system("microcompact_boundary", microcompactMetadata={"trigger": "auto"})
    book.work("Go on.", "status")
    return book.case(healthy=True)


@kind("leaves_of_hooks", "tree")
def leaves_of_hooks(book: Book) -> Case:
    """Hooks leave attachments and progress beside the result, and nobody hangs on them."""
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "build")
    call = turn.calls[0].record["uuid"]
    book.progress(turn.calls[0])
    book.tip = call
    book.attach("hook_success", hookName="PostToolUse:Bash", toolUseID=turn.calls[0].id)
    book.answer(turn.calls[0], "built")
    book.say("It is built.")
    skill = [{"type": "text", "text": "Base directory for this skill: /home/ada"}]
    book.link("user", message={"role": "user", "content": skill}, isMeta=True)
    return book.case(healthy=True)


@kind("unknown_records")
def unknown_records(book: Book) -> Case:
    opened(book)
    tip = book.tip
    book.link("hologram", payload={"depth": 3, "ratio": 1.0, "big": 2**70})
    book.tip = tip
    book.ask("Go on.")
    book.note("shimmer", state=[1, None, {"x": "\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}"}])
    book.say("I go on.")
    return book.case(healthy=True)


@kind("windows_line_ends")
def windows_line_ends(book: Book) -> Case:
    opened(book)
    return book.case(joined(book.lines()).replace(b"\n", b"\r\n"), healthy=True)


@kind("open_call_with_windows_line_ends")
def open_call_with_windows_line_ends(book: Book) -> Case:
    opened(book).ask("Run the build.")
    book.say("I build it.", "the build")
    return book.case(joined(book.lines()).replace(b"\n", b"\r\n"), touched=0)


@kind("called_and_answered_in_turns", "tree")
def called_and_answered_in_turns(book: Book) -> Case:
    """A tool runs while the message still streams: calls and results alternate in one message."""
    opened(book).ask("Run everything.")
    turn = book.say("One by one.", "build", "tests")
    one, two = turn.calls
    book.tip = one.record["uuid"]
    book.answer(one, "built")
    two.record["parentUuid"] = book.tip
    book.records.remove(two.record)
    book.add(two.record)
    two.record["timestamp"] = book.stamp()
    book.answer(two, "12 passed")
    book.say("All good.")
    return book.case(healthy=True)


@kind("progress_in_the_chain", "tree")
def progress_in_the_chain(book: Book) -> Case:
    opened(book).ask("Run the build.")
    turn = book.say("I build it.", "the build")
    book.progress(turn.calls[0])
    above = book.progress(turn.calls[0])["uuid"]
    book.answer(turn.calls[0], "built")["parentUuid"] = above
    book.say("It is built.")
    book.system("turn_duration", durationMs=5408)
    return book.case(healthy=True)


@kind("child_before_its_parent")
def child_before_its_parent(book: Book) -> Case:
    opened(book).work("Go on.", "status")
    book.ask("Good.")
    records = book.records
    records[-4], records[-3] = records[-3], records[-4]
    return book.case(healthy=True)


@kind("sidechain_in_the_file", "linear")
def sidechain_in_the_file(book: Book) -> Case:
    """Old clients wrote the sub-agent's records into the same file."""
    opened(book).ask("Explore the code.")
    turn = book.say("I send someone.", "explore")
    prompt = f"explore for {turn.calls[0].mark}"
    before = len(book.marks)
    side = sidechain(book, "a1b2c3d4", prompt)
    side.say("There are three settings.")
    inner = book.marks[before:]
    book.records += [{**record, "isSidechain": True} for record in side.records]
    book.now = side.now
    book.answer(turn.calls[0], "three settings")
    book.say("Three.")
    return book.case(aside=inner, healthy=True)


@kind("error_of_the_api_shown")
def error_of_the_api_shown(book: Book) -> Case:
    opened(book).ask("Go on.")
    (record,) = book.blocks({"type": "text", "text": "API Error: Request rejected (429)"})
    record |= {"isApiErrorMessage": True, "error": "rate_limit"}
    record["message"]["model"] = "<synthetic>"
    book.ask("Try again.")
    book.say("I go on.")
    return book.case(healthy=True)


@kind("continued_elsewhere")
def continued_elsewhere(book: Book) -> Case:
    """Titles of other sessions on top, records that came from another session below."""
    book.add({"type": "summary", "summary": "Other work", "leafUuid": counted_uuid("elsewhere")})
    opened(book)
    other = counted_uuid(book.session, "other")
    for record in book.records[1:4]:
        if "sessionId" in record:
            record["sessionId"] = other
    book.work("Go on.", "status")
    return book.case(healthy=True)
