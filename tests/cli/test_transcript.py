"""What a person sees of a history, in every dialect, whatever it holds."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

import lockstitch
from lockstitch.cli import terminal
from lockstitch.cli import terminal as rows
from lockstitch.cli.show import last_turns, message_lines, turns_around
from lockstitch.errors import UsageError
from tests.kinds_of_break import render
from tests.kinds_of_break.conversations import BROKEN, HEALTHY

RENDER = {
    "anthropic": render.anthropic,
    "openai-chat": render.openai_chat,
    "openai-responses": render.openai_responses,
    "gemini": render.gemini,
    "bedrock": render.bedrock,
    "langchain": render.langchain_plain,
}
# Everything a terminal would obey, reorder or fail on.
UNSAFE = {chr(code) for code in (*range(32), *range(127, 160), 0x202E, 0x2066, 0x200B, 0xD800)}
HOSTILE = (
    "\x1b]52;c;b3duZWQ=\x07 \x1b[2J\x1b[31m \x9b31m \u202egnp.exe\u2066 \u200bzero \ud800 lone\r"
    "over\r\n\tindented\x00\x08\x7f \u2028 line"
)


def marks_of(messages: list[Any], dialect: str) -> dict[str, list[lockstitch.Finding]]:
    marks: dict[str, list[lockstitch.Finding]] = {}
    for finding in lockstitch.check(messages, dialect):
        marks.setdefault(finding.place, []).append(finding)
    return marks


class Screen(io.StringIO):
    """A stream of some encoding that may be a terminal."""

    def __init__(self, encoding: str = "utf-8", *, is_terminal: bool = False) -> None:
        super().__init__()
        self._encoding = encoding
        self._is_terminal = is_terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._is_terminal


def shown(messages: list[Any], dialect: str = "anthropic", width: int = 80, **options: Any) -> str:
    options.setdefault("stream", Screen())
    marks = options.pop("marks", None)
    marks = marks_of(messages, dialect) if marks is None else marks
    return "\n".join(message_lines(messages, dialect, marks, width, **options))


def call(key: str = "toolu_1", name: str = "bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": key, "name": name, "input": arguments or {"command": "ls"}}


def result(content: Any = "a.txt", key: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": key, "content": content, **more}


def says(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": content[0] if isinstance(content[0], str) else list(content)}


def turns(count: int) -> list[Any]:
    return [
        message
        for number in range(count)
        for message in (
            says("user", f"question {number}"),
            says("assistant", call(f"toolu_{number}")),
            says("user", result(f"output {number}", f"toolu_{number}")),
            says("assistant", f"answer {number}"),
        )
    ]


def test_a_conversation_as_a_person_reads_it() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "EqMB"}
    messages = [
        says("user", "List the files\nplease."),
        says("assistant", thinking, {"type": "text", "text": "Sure."}, call(command="ls -la")),
        says("user", result("a.txt\nb.txt")),
        says("assistant", "Two files."),
    ]
    assert shown(messages).splitlines() == [
        "── turn 1 ── messages.0 " + "─" * 48,
        "",
        "\u276f List the files",
        "  please.",
        "",
        "  Hm.",
        "",
        "Sure.",
        "",
        '╭─ bash(command="ls -la")',
        "╰─ result (2 lines, 11 B)",
        "     a.txt",
        "     b.txt",
        "",
        "Two files.",
    ]


@pytest.mark.parametrize("dialect", RENDER)
def test_every_dialect_shows_every_word_and_joins_every_call(dialect: str) -> None:
    messages = RENDER[dialect](HEALTHY.turns)
    text = shown(messages, dialect)
    words = json.dumps(messages)
    found = [f"MARK-{word[:4]}" for word in words.split("MARK-")[1:]]
    assert found
    assert all(text.count(mark) == 1 for mark in found)
    stitches = [line[:2] for line in text.splitlines() if line[:2] in ("╭─", "╰─")]
    assert stitches == ["╭─", "╰─"] * (len(stitches) // 2)
    assert "✗" not in text


@pytest.mark.parametrize("dialect", RENDER)
@pytest.mark.parametrize("kind", BROKEN, ids=[kind.name for kind in BROKEN])
def test_broken_histories_show_what_was_found_and_lose_nothing(dialect: str, kind: Any) -> None:
    messages = RENDER[dialect](kind.turns)
    marks = marks_of(messages, dialect)
    text = shown(messages, dialect, marks=marks)
    for found in marks.values():
        assert all(f"✗ {finding.code}" in text for finding in found)
    for mark in {f"MARK-{word[:4]}" for word in json.dumps(messages).split("MARK-")[1:]}:
        assert mark in text


@pytest.mark.parametrize("dialect", RENDER)
def test_open_calls_and_orphans(dialect: str) -> None:
    by_name = {kind.name: RENDER[dialect](kind.turns) for kind in BROKEN}
    open_call = shown(by_name["01_orphan_call_at_tail"], dialect)
    assert "\n╰─ ✗ LS101 no result" in open_call
    orphan = by_name["03_orphan_result"]
    assert "╰─ ✗ LS103 result without a call (1 line, 9 B)" in shown(orphan, dialect)


def test_the_finding_says_what_is_wrong_and_where() -> None:
    messages = [says("user", "Hello"), says("assistant", "Hi."), says("user", result())]
    text = shown(messages)
    assert "   ✗ LS103 result for toolu_1 answers no call in this list" in text
    assert "(messages.2.content.0)" in text


def test_marks_find_the_part_they_are_in_or_the_message_or_the_top() -> None:
    finding = lockstitch.Finding(
        code="LS999", name="x", severity="warning", place="p", message="odd"
    )
    messages = [says("user", "Hello"), says("assistant", call()), says("user", result())]
    deep = shown(messages, marks={"messages.1.content.0.input.command": [finding]})
    assert deep.splitlines()[-1] == "   ✗ LS999 odd (p)"
    whole = shown(messages, marks={"messages.0": [finding]}).splitlines()
    assert whole[whole.index("\u276f Hello") + 1] == "✗ LS999 odd (p)"
    for place in ("tools", "messages.99", "messages"):
        assert shown(messages, marks={place: [finding]}).startswith("✗ LS999 odd (p)")


def test_a_late_result_stands_under_its_call_and_says_where_it_was() -> None:
    messages = [
        says("user", "Go"),
        says("assistant", call()),
        says("user", "Still there?"),
        says("assistant", "Yes."),
        says("user", result("late")),
    ]
    text = shown(messages)
    assert "╰─ result (1 line, 4 B, from messages.4.content.0)\n     late" in text
    assert text.count("late") == 1


def test_the_pairing_is_by_position_where_ids_repeat() -> None:
    messages = [
        says("user", "Go"),
        says("assistant", call("same", command="one")),
        says("user", result("first", "same")),
        says("assistant", call("same", command="two")),
        says("user", result("second", "same")),
    ]
    text = shown(messages, marks={})
    assert '(command="one")\n╰─ result (1 line, 5 B)\n     first' in text
    assert '(command="two")\n╰─ result (1 line, 6 B)\n     second' in text


def test_errors_media_and_reasoning_nobody_can_read() -> None:
    pixels = "A" * 16400
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}
    image["source"]["data"] = pixels  # type: ignore[index]
    messages = [
        says("user", image),
        says("assistant", {"type": "redacted_thinking", "data": "x" * 1200}, call()),
        says("user", result([{"type": "text", "text": "see"}, image], is_error=True)),
    ]
    text = shown(messages, marks={})
    assert "\u276f [image/png, 12.3 kB]" in text
    assert "  [reasoning, sealed, 1.2 kB]" in text
    assert "╰─ error result (1 line, 3 B)\n     see\n     [image/png, 12.3 kB]" in text
    assert "AAAA" not in text


def test_long_arguments_take_a_row_each() -> None:
    content = "\n".join(f"line {number}" for number in range(100))
    messages = [says("user", "Go"), says("assistant", call(path="a.py", content=content))]
    rows_ = shown(messages, marks={}).splitlines()
    start = rows_.index("╭─ bash")
    assert rows_[start + 1 : start + 5] == [
        "│  path: a.py",
        "│  content:",
        "│    line 0",
        "│    line 1",
    ]
    assert rows_[start + 9] == "│    … 94 more lines"
    assert rows_[start + 10] == "╰─ no result  toolu_1"
    assert "│    line 99" in shown(messages, marks={}, full=True)


def test_long_texts_are_cut_unless_all_of_it_is_wanted() -> None:
    output = "\n".join(f"row {number}" for number in range(220))
    messages = [says("user", "Go"), says("assistant", call()), says("user", result(output))]
    text = shown(messages)
    assert "╰─ result (220 lines, 1.6 kB)" in text
    assert text.endswith("     row 7\n     … 212 more lines")
    assert shown(messages, full=True).endswith("     row 219")


def test_nothing_is_wider_than_the_page() -> None:
    words = "word " * 100
    wide = "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 100
    answer = says("user", result(wide))
    messages = [says("user", words), says("assistant", call(command=wide)), answer]
    text = shown(messages, width=40, full=True)
    for row in text.splitlines():
        cells = sum(2 if ord(char) > 0x2E80 else 1 for char in row)
        assert cells <= 40 or row.startswith("──")
    assert text.count("\N{CJK UNIFIED IDEOGRAPH-4E2D}") == 200
    assert text.count("word") == 100


@pytest.mark.parametrize("dialect", RENDER)
@pytest.mark.parametrize("full", [False, True])
def test_hostile_content_is_harmless(dialect: str, full: bool) -> None:
    clean = json.dumps(RENDER[dialect](HEALTHY.turns))
    hostile = json.dumps(HOSTILE)[1:-1]
    for mark in {f"MARK-{word[:4]}" for word in clean.split("MARK-")[1:]}:
        clean = clean.replace(mark, hostile)
    messages = json.loads(clean)
    text = shown(messages, dialect, full=full, marks={})
    assert not set(text) & (UNSAFE - {"\n"})
    assert "\\x1b]52;c;b3duZWQ=\\x07" in text
    assert "lone\\rover" in text
    assert "    indented\\x00" in text


def test_hostile_names_ids_and_keys_are_harmless() -> None:
    messages = [
        says("user", "Go"),
        says("assistant", call(f"id{HOSTILE}", f"name{HOSTILE}", **{f"key{HOSTILE}": HOSTILE})),
        says("assistant", {"type": f"odd{HOSTILE}"}, {"type": "text", "text": 7}, HOSTILE),
        says("user", result(HOSTILE, f"other{HOSTILE}")),
        {"role": HOSTILE, "content": HOSTILE},
        HOSTILE,
        None,
    ]
    text = shown(messages)
    assert not set(text) & (UNSAFE - {"\n"})


# What is slow is slow every time; a machine that is busy at one moment is not.
ATTEMPTS = 10


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize("full", [False, True])
def test_a_line_of_a_megabyte(full: bool) -> None:
    messages = [says("user", "x" * 1_000_000), says("assistant", call(command="y" * 1_000_000))]
    assert any(seconds(lambda: shown(messages, marks={}, full=full)) < 5 for _ in range(ATTEMPTS))
    text = shown(messages, marks={}, full=full)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("x") >= 1_000_000 if full else len(text) < 10_000
    assert full or "… 1.0 MB in this line" in text


def test_two_hundred_thousand_lines() -> None:
    output = "line\n" * 200_000
    messages = [says("user", "Go"), says("assistant", call()), says("user", result(output))]
    assert any(seconds(lambda: shown(messages)) < 2 for _ in range(ATTEMPTS))
    assert shown(messages).endswith("     … 199992 more lines")
    options: dict[str, Any] = {"full": True, "stream": Screen()}
    assert sum(1 for _ in message_lines(messages, "anthropic", {}, 80, **options)) == 200_006


def test_a_huge_list_is_given_line_by_line() -> None:
    big = "z" * 1_000_000
    messages = [says("user", big) for _ in range(300)]
    page = message_lines(messages, "anthropic", {}, 80, full=True, stream=Screen())
    tracemalloc.start()
    assert len(list(islice(page, 1000))) == 1000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "no-such-encoding"])
def test_ascii_where_boxes_cannot_be_printed(encoding: str) -> None:
    messages = [says("user", "Go"), says("assistant", call())]
    text = shown(messages, stream=Screen(encoding))
    assert text.isascii()
    assert '> Go\n\n,- bash(command="ls")\n`- x LS101 no result  toolu_1' in text


def test_colours_only_where_they_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [says("user", "Go"), says("assistant", call())]
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    text = shown(messages, stream=Screen(is_terminal=True))
    assert "╰─ \x1b[1;31m✗ LS101\x1b[0m no result" in text
    assert "\x1b" not in shown(messages)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(messages, stream=Screen(is_terminal=True))


def test_the_last_turns() -> None:
    messages = turns(5)
    assert last_turns(messages, "anthropic", 2) == range(12, 20)
    assert last_turns(messages, "anthropic", 99) == range(20)
    assert last_turns(messages, "anthropic", 0) == range(20, 20)
    assert last_turns([], "anthropic", 3) == range(0)
    with pytest.raises(UsageError):
        last_turns(messages, "anthropic", -1)
    text = shown(messages, chosen=last_turns(messages, "anthropic", 2))
    assert text.startswith("… 3 earlier turns\n\n── turn 4 ── messages.12 ")
    assert "question 3" in text
    assert "output 2" not in text


def test_the_turns_around_a_place() -> None:
    messages = turns(9)
    assert turns_around(messages, "anthropic", "messages.17.content.0") == range(12, 24)
    assert turns_around(messages, "anthropic", "messages.17") == range(12, 24)
    assert turns_around(messages, "anthropic", 17) == range(12, 24)
    assert turns_around(messages, "anthropic", 0) == range(8)
    assert turns_around(messages, "anthropic", 35, turns=0) == range(32, 36)
    for place in ("messages", "", "messages.99", 99, "tools.0.x"):
        with pytest.raises(UsageError):
            turns_around(turns(0) if place == "tools.0.x" else messages, "anthropic", place)
    text = shown(messages, chosen=turns_around(messages, "anthropic", 17))
    assert text.startswith("… 3 earlier turns\n")
    assert text.endswith("\n… 3 later turns")


@pytest.mark.parametrize("dialect", RENDER)
def test_turns_start_at_prompts_in_every_dialect(dialect: str) -> None:
    messages = RENDER[dialect]([*HEALTHY.turns, *HEALTHY.turns])
    chosen = last_turns(messages, dialect, 1)
    text = shown(messages, dialect, chosen=chosen, marks={})
    assert "\n\u276f " in text
    assert "result of" not in text
    assert 0 < chosen.start < len(messages)


def test_a_result_whose_call_is_not_shown_says_so() -> None:
    messages = turns(1)
    text = shown(messages, chosen=range(2, 4))
    assert "╰─ result of bash, called elsewhere (1 line, 8 B)\n     output 0" in text


def test_sizes_for_a_person() -> None:
    shown_ = [rows.size(count) for count in (0, 999, 1000, 1400, 12_345, 4_200_000, 7e12)]
    assert shown_ == ["0 B", "999 B", "1.0 kB", "1.4 kB", "12.3 kB", "4.2 MB", "7000.0 GB"]


def test_every_row_could_be_printed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for row in message_lines([says("user", HOSTILE)], "anthropic", {}, 80):
        terminal.say(row)
    assert b"\\ud800 lone" in capfdbinary.readouterr().out
