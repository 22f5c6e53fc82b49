"""Files of replies: the same ones in JSON, TOML and Python, and what is wrong with others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import Unreadable
from lockstitch.provider import FunctionScript, Incoming, Reply, Script, script_in
from lockstitch.provider import ScriptedCall as Call
from tests.provider.conftest import BASH, Running
from tests.provider.test_http import BODIES, WORDS, send

Start = Callable[..., Running]

REPLIES = [
    Reply("I look.", (Call("bash", {"command": "ls", "n": [1, 2.5]}), Call("bash")), "Hm."),
    Reply("Slowly.", fault="slow=0.01"),
    Reply(fault="status=529 retry-after=3"),
]
JSON = """[
  {"text": "I look.", "thinking": "Hm.", "calls": [
    {"name": "bash", "arguments": {"command": "ls", "n": [1, 2.5]}}, {"name": "bash"}]},
  {"text": "Slowly.", "fault": "slow=0.01"},
  {"fault": "status=529 retry-after=3"}
]"""
LINES = "\n".join(map(json.dumps, json.loads(JSON))) + "\n\n"
TOML = """
[[replies]]
thinking = "Hm."
text = "I look."
calls = [
    { name = "bash", arguments = { command = "ls", n = [1, 2.5] } },
    { name = "bash" },
]

[[replies]]
text = "Slowly."
fault = "slow=0.01"

[[replies]]
fault = "status=529 retry-after=3"
"""
PYTHON = f"""
import json
from lockstitch.testing import Reply

replies = [*json.loads('''{JSON}''')[:2], Reply(fault="status=529 retry-after=3")]
"""
FUNCTION = """
def reply(request):
    assert request.dialect == "anthropic" and request.path == "/v1/messages"
    if request.is_summary:
        return None
    if len(request.messages) > 1:
        return "More."
    return {"calls": [{"name": name} for name in sorted(request.tools)], "fault": "ids=same"}
"""


def script(tmp_path: Path, name: str, text: str) -> Script:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return script_in(str(path), path.read_bytes())


def asking(*tools: str) -> Incoming:
    return Incoming(1, "anthropic", "/v1/messages", "m", frozenset(tools), [], {}, not tools)


@pytest.mark.parametrize(
    ("name", "text"),
    [("r.json", JSON), ("r.jsonl", LINES), ("r.toml", TOML), ("r.py", PYTHON), ("r", JSON)],
)
def test_the_same_replies_in_every_format(tmp_path: Path, name: str, text: str) -> None:
    made = script(tmp_path, name, text)
    assert [made.reply(asking("bash")) for _ in REPLIES] == REPLIES
    assert made.reply(asking("bash")) == Reply("ok")


def test_a_preview_uses_nothing_up(tmp_path: Path) -> None:
    made = script(tmp_path, "r.toml", TOML)
    assert made.preview(asking("bash")) == made.reply(asking("bash")) == REPLIES[0]


def test_a_program_makes_replies_up(provider: Start, tmp_path: Path) -> None:
    running = provider(script=script(tmp_path, "r.py", FUNCTION))
    body = BODIES["/v1/messages"]
    tools = {"tools": [{"name": name, "input_schema": BASH} for name in ("b", "a")]}
    plain = send(running, "/v1/messages", body)[2]
    assert plain["content"][0]["text"] == "ok"
    called = send(running, "/v1/messages", {**body, **tools})[2]["content"]
    assert [block["name"] for block in called] == ["a", "b"]
    assert called[0]["id"] == called[1]["id"]
    longer = {**body, **tools, "messages": [*body["messages"], *body["messages"]]}
    assert send(running, "/v1/messages", longer)[2]["content"][0]["text"] == "More."


def test_a_program_that_fails_says_where_and_nothing_of_the_request(
    provider: Start, tmp_path: Path
) -> None:
    text = "def reply(request):\n    words = request.messages[0]\n    raise ValueError(words)\n"
    running = provider(script=script(tmp_path, "r.py", text))
    status, _, body = send(running, "/v1/messages", BODIES["/v1/messages"])
    assert (status, body["error"]["type"]) == (500, "api_error")
    assert body["error"]["message"] == (
        "The script of replies failed: reply() raised ValueError at line 3"
    )
    assert WORDS not in repr(running.log)


@pytest.mark.parametrize("made", [7, {}, {"text": ""}, {"txt": "x"}, {"text": "x", "fault": "?"}])
def test_what_a_function_may_not_return(made: Any) -> None:
    with pytest.raises(Unreadable, match=r"^what reply\(\) returned "):
        FunctionScript(lambda _: made).reply(asking())


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("r.toml", "[[replies]\n", "is not a list of replies"),
        ("r.toml", "[[reply]]\ntext = 'x'\n", "does not hold a list of replies"),
        ("r.toml", "[[replies]]\ntxt = 'x'\n", "unknown field `txt`"),
        ("r.toml", "[[replies]]\nfault = 'boom'\n", "there is no fault 'boom'"),
        ("r.toml", "[[replies]]\nfault = 'slow=1'\n", "reply 1 has neither text nor calls"),
        ("r.py", "def reply(:\n", "cannot be run: SyntaxError"),
        ("r.py", "x = 1\nraise SystemExit(3)\n", "cannot be run: SystemExit at line 2"),
        ("r.py", "import no_such_module\n", "cannot be run: ModuleNotFoundError at line 1"),
        ("r.py", "answers = []\n", "defines neither a function reply"),
        ("r.py", "replies = {}\n", "does not hold a list of replies"),
        ("r.py", "replies = ['x', 7]\n", "reply 2 is not a reply"),
        ("r.json", "[" * 100_000, "is not a list of replies"),
        ("r.json", '{"text": "a"}\n{', "is not a list of replies"),
    ],
)
def test_what_is_no_script(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(Unreadable) as caught:
        script(tmp_path, name, text)
    assert why in str(caught.value)
