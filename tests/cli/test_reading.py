from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lockstitch.errors import Unreadable, UsageError
from lockstitch.sources.lists import ListSource, read_document
from lockstitch.sources.source import Survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MESSAGE = {"role": "user", "content": "hello"}


@contextmanager
def without_privileges() -> Iterator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "is binary"),
        (b"SQLite format 3\x00" + b"\x01" * 80, "is binary"),
        (b'["caf\xe9"]', "is binary, or not UTF-8 (byte 5)"),
        (b'[{"role": "us', "is not JSON: Unterminated string starting at line 1 column 11"),
        (b'[{"role": "user"}', "(byte 17)"),
        (b"[1,\n2,\n\xc3\xa9]", "line 3 column 1 (byte 7)"),
        (b"hello", "is not JSON"),
        (b"[] []", "is not JSON: Extra data at line 1 column 4"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "is nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "is nested too deeply"),
        (b"[" + b"9" * 5000 + b"]", "integer too long"),
        (b"3", "neither a list of messages nor a request body"),
        (b'"hello"', "neither a list of messages nor a request body"),
        (b'{\n"role": "user"}', "neither a list of messages nor a request body"),
        (b'{"error": "overloaded"}', "neither a list of messages nor a request body"),
        (b'{"role": "user"}\n{"role": \n', "is not JSONL: Expecting value at line 2 column 10"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_sentence(
    saved: Callable[..., Path], data: bytes, reason: str
) -> None:
    with pytest.raises(Unreadable) as failure:
        read_document(str(saved(data)))
    assert reason in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no such file"):
        read_document(str(tmp_path / "missing.json"))


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="is a folder, not a file"):
        read_document(str(tmp_path))


def test_no_permission(saved: Callable[..., Path]) -> None:
    path = saved([MESSAGE])
    path.chmod(0)
    with without_privileges(), pytest.raises(Unreadable, match="permission denied"):
        read_document(str(path))


def test_a_file_over_the_limit_is_refused_unread(
    saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTITCH_MAX_BYTES", "10")
    with pytest.raises(Unreadable, match=r"over the limit of 10, .*: LOCKSTITCH_MAX_BYTES sets"):
        read_document(str(saved([MESSAGE])))


def test_an_endless_stream_is_refused_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTITCH_MAX_BYTES", "5000000")
    with open("/dev/zero", "rb") as endless:  # noqa: PTH123
        for stream in (f"/dev/fd/{endless.fileno()}", f"/proc/self/fd/{endless.fileno()}"):
            with pytest.raises(Unreadable, match="over the limit of 5000000"):
                read_document(stream)


@pytest.mark.parametrize("given", ["0", "-1", "1e9", "many", "2 GB", "\u0662"])
def test_a_limit_that_is_no_number_is_said(
    saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("LOCKSTITCH_MAX_BYTES", given)
    with pytest.raises(UsageError, match="LOCKSTITCH_MAX_BYTES must be a whole number"):
        read_document(str(saved([MESSAGE])))


@pytest.mark.parametrize(
    "text",
    ['["\\ud83d"]', "[NaN, -Infinity]", "[1e999]", "[123456789012345678901234567890]"],
)
def test_what_msgspec_refuses_and_providers_files_contain(
    saved: Callable[..., Path], text: str
) -> None:
    assert repr(read_document(str(saved(text.encode()))).value) == repr(json.loads(text))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_other_encodings(saved: Callable[..., Path], encoding: str) -> None:
    data = json.dumps([MESSAGE], ensure_ascii=False).encode(encoding)
    assert read_document(str(saved(data))).value == [MESSAGE]


@pytest.mark.parametrize(
    "data",
    [
        b'{"role": "user"}\n{"role": "assistant"}\n',
        b'{"role": "user"}\r\n\r\n{"role": "assistant"}',
        b'\n{"role": "user"}\n{"role": "assistant"}\n\n',
    ],
)
def test_jsonl(saved: Callable[..., Path], data: bytes) -> None:
    document = read_document(str(saved(data)))
    assert document.lines
    assert document.value == [{"role": "user"}, {"role": "assistant"}]


def test_jsonl_with_a_single_message(saved: Callable[..., Path]) -> None:
    document = read_document(str(saved(MESSAGE)))
    assert (document.value, document.lines) == ([MESSAGE], True)


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ([], 0),
        ([MESSAGE] * 3, 3),
        ({"model": "m", "messages": [MESSAGE] * 2}, 2),
        ({"input": "hello"}, 1),
        ({"contents": []}, 0),
    ],
)
def test_messages_are_counted(saved: Callable[..., Path], value: Any, messages: int) -> None:
    assert read_document(str(saved(value))).messages == messages


@pytest.mark.parametrize("lines", [False, True])
def test_a_list_is_a_source_like_any_other(tmp_path: Path, lines: bool) -> None:
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    path = tmp_path / "list.json"
    whole = json.dumps(messages)
    path.write_text("\n".join(map(json.dumps, messages)) if lines else whole, encoding="utf-8")
    source = ListSource(str(path), "list", "document")
    assert source.open().transcript.history.messages == messages
    [report] = source.reports(Survey(dialect="openai-chat"))
    assert (report.status, report.messages, report.dialect) == ("ok", 2, "openai-chat")
