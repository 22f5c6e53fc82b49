"""Documents that break off: read as far as they go, closed behind what is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstitch.formats.records import close_document

from .campaign import Home, quarantined, session_of
from .stored import Json, Marks, marks_in

LISTS = (("messages",), ("messages", None, "parts"))


def opencode(book: Marks) -> tuple[str, Json]:
    """An export with three turns, and where it may stand."""
    messages = []
    for count in range(3):
        for role in ("user", "assistant"):
            own = f"msg_{count}{role}"
            info = {"id": own, "sessionID": "ses_1", "role": role, "time": {"created": 1}}
            texts = [book.words('Say "}]" ü.') for _ in range(2)]
            parts = [
                {"id": f"prt_{count}{role}{n}", "messageID": own, "type": "text", "text": text}
                for n, text in enumerate(texts)
            ]
            messages.append({"info": info, "parts": parts})
    info = {"id": "ses_1", "directory": "/home/ada", "version": "1.18.33", "tags": [[1, 2], []]}
    return "export.json", {"info": info, "messages": messages}


def gemini(book: Marks) -> tuple[str, Json]:
    """A chat as it was kept until 2026, in one document."""
    messages: list[Json] = []
    for count in range(3):
        said = {"id": f"u{count}", "timestamp": "t", "type": "user", "content": book.words("Ask.")}
        call = {"id": f"c{count}", "name": "ls", "args": {}, "status": "success"}
        response = {"id": f"c{count}", "name": "ls", "response": {"output": book.words("ok")}}
        call["result"] = [{"functionResponse": response}]
        reply = {"id": f"g{count}", "timestamp": "t", "type": "gemini", "content": "Done."}
        messages += [said, {**reply, "toolCalls": [call], "tokens": {"input": 12}}]
    head = {"sessionId": "s1", "projectHash": "ab" * 32, "startTime": "t0", "lastUpdated": "t1"}
    path = ".gemini/tmp/project/chats/session-2025-09-01T10-00-s1.json"
    return path, {**head, "messages": messages}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("make", [opencode, gemini])
def test_it_is_read_and_closed_wherever_it_breaks_off(
    tmp_path: Path, make: Any, indent: int | None
) -> None:
    book = Marks("cut")
    name, document = make(book)
    data = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    home = Home(tmp_path)
    for share in (0.5, 0.77, 0.98):
        cut = data[: int(len(data) * share)]
        path = home.put("it", name, cut)
        ran = home.run("check", "--json", path)
        report = session_of(ran, path)
        assert (ran.status, report["status"]) == (1, "broken"), ran.err
        torn = [found for found in report["findings"] if found["code"] == "LS601"]
        assert [(found["severity"], found["fixable"]) for found in torn] == [("error", True)]
        done = home.run("repair", "--yes", "--json", path)
        assert done.status == 0, done.err
        whole = json.loads(path.read_bytes())
        assert whole.keys() == document.keys()
        kept = set(marks_in(whole)) | set(marks_in(quarantined(done, path)))
        assert {mark for mark in book.made if mark.encode() in cut} <= kept
        assert len(set(marks_in(whole))) > len(book.made) * (share - 0.3)
        assert session_of(home.run("check", "--json", path), path)["status"] == "ok"
        assert home.run("undo", "--yes", path).status == 0
        assert path.read_bytes() == cut


@pytest.mark.parametrize("indent", [None, 1])
def test_every_cut_gives_a_beginning_of_the_lists(indent: int | None) -> None:
    _, document = opencode(Marks("every"))
    data = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    size = -1
    for end in range(len(data)):
        found = close_document(data[:end], LISTS)
        if found is None:
            assert size < 0
            continue
        assert found.data.startswith(data[: found.end])
        assert json.loads(found.data) == found.value
        assert found.value["info"] == document["info"]
        parts = [part for message in found.value["messages"] for part in message["parts"]]
        every = [part for message in document["messages"] for part in message["parts"]]
        assert parts == every[: len(parts)]
        assert len(parts) >= size
        size = len(parts)
    assert size == len(every)


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"messages"', b'{"messages": [}', b"[1, 2", b'"text', b"]", b"{]", b"x"]
)
def test_what_is_no_such_document_is_none(data: bytes) -> None:
    found = close_document(data, LISTS)
    assert found is None or found.value == {"messages": []}


def test_a_torn_document_of_nobody_is_declined(tmp_path: Path) -> None:
    home = Home(tmp_path)
    data = b'{"messages": [{"role": "user", "content": "Hi."}, {"role": "ass'
    path = home.put("it", "notes.json", data)
    assert home.run("repair", "--yes", path).status == 2
    assert home.run("check", path).status == 2
    assert path.read_bytes() == data
