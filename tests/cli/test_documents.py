"""Conversations as documents: everything is there, and nothing in it is more than text."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.cli.export import write_document
from tests.inprocess import command
from tests.sessions import claude, homes

EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\x1b]0;title\x07 \u202e & ``` x"
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "main"),
    *("section", "pre", "details", "summary"),
}


class Reader(HTMLParser):
    """The tags, the attributes and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.values: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.values |= {str(value) for name, value in attrs if name == "class"}

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: bytes) -> Reader:
    reader = Reader()
    reader.feed(page.decode())
    reader.close()
    return reader


def talk(text: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": text},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": text, "signature": "x"},
                {"type": "text", "text": text},
                {"type": "tool_use", "id": "t1", "name": text, "input": {text: text}},
            ],
        },
        {"role": "user", "content": claude.result("t1", text)},
    ]


def harmless(page: bytes) -> None:
    """Nothing but our own tags, and a policy that forbids all else."""
    reader = read(page)
    assert reader.tags <= ALLOWED
    assert reader.names <= {"lang", "charset", "http-equiv", "content", "name", "class"}
    assert reader.values <= {"dim", "user", "other", "said"}
    style = re.search(r"<style>(.*?)</style>", page.decode(), re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    assert f"default-src &#x27;none&#x27;; style-src &#x27;sha256-{digest}&#x27;" in page.decode()
    assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", page)


def test_a_page_of_scripts_and_escapes_does_nothing() -> None:
    page = write_document("html", EVIL, EVIL, talk(EVIL), "anthropic")
    harmless(page)
    assert page.count(b"alert(1)") == page.count(b"&lt;script&gt;alert(1)")
    assert read(page).text.count("<script>alert(1)</script>") >= 7


@pytest.mark.parametrize("kind", ["markdown", "html"])
def test_an_empty_message_is_not_taken_for_a_thought(kind: str) -> None:
    messages = [{"type": "human", "content": "Go."}, {"type": "human", "content": ""}]
    document = write_document(kind, "T", "", messages, "langchain").decode()
    assert "Go." in document
    assert "Thought" not in document


def test_what_the_provider_ran_stands_under_no_call_of_ours() -> None:
    served = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    outcome = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": "four"}
    told = [
        {"role": "assistant", "content": [served, *claude.call("t1")]},
        {"role": "user", "content": claude.result("t1", "[1, 2]")},
        {"role": "assistant", "content": [outcome]},
        {"role": "assistant", "content": [served, outcome]},
    ]
    page = write_document("markdown", "T", "f", told, "anthropic").decode()
    assert page.index("[1, 2]") < page.index("a result by the provider") < page.index("four")
    # right behind its own call it stands under that
    assert page.count("a result by the provider") == 1
    assert page.count("four") == 2


@given(st.text())
def test_no_text_becomes_more_than_text(text: str) -> None:
    harmless(write_document("html", text, text, talk(text), "anthropic"))


@given(st.text(alphabet="`ab\n "))
def test_no_text_closes_its_fence(text: str) -> None:
    told = [{"role": "assistant", "content": claude.call("t1")}]
    told.append({"role": "user", "content": claude.result("t1", text)})
    page = write_document("markdown", "T", "f", told, "anthropic").decode()
    fences = re.findall(r"^(`{3,})$", page, re.MULTILINE)
    runs = [len(run) for run in re.findall(r"`+", text)]
    assert max(map(len, fences)) > max([0, *runs])


@pytest.mark.parametrize("kind", ["markdown", "html"])
def test_a_session_is_exported_with_its_title(tmp_path: Path, kind: str) -> None:
    path = homes.small(tmp_path)
    output = tmp_path / "page"
    done = command("export", path, "--to", kind, "-o", output)
    assert done.returncode == 0, done.stderr
    page = output.read_text("utf-8")
    for words in ("Fix the failing test", "Build it, please.", "Are you there?", "make", "Yes."):
        assert words in page
    assert "No result was recorded" in page
    assert command("export", path, "--to", kind).stdout.decode() == page
    assert command("export", path, "--to", kind, "--raw").returncode == 2


def test_ids_of_any_kind_keep_no_title_away(tmp_path: Path) -> None:
    odd = claude.line(9, 1, "user", "Go on.").replace(f'"{claude.uuid(9)}"', '["x"]')
    title = '{"type":"summary","summary":"The build","leafUuid":{}}'
    path = tmp_path / "session.jsonl"
    path.write_text(f"{title}\n{odd}\n{claude.healthy()}", encoding="utf-8")
    done = command("export", path, "--to", "markdown")
    assert done.stdout.startswith(b"# The build"), done.stderr


def test_without_secrets(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "a1B2" * 20
    path = tmp_path / "session.jsonl"
    path.write_text(claude.healthy().replace("Build it, please.", f"Use {key}"), encoding="utf-8")
    assert key in command("export", path, "--to", "html").stdout.decode()
    page = command("export", path, "--to", "html", "--redact").stdout.decode()
    assert key not in page
    assert "It is built." in page
