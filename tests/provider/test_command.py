"""``lockstitch provider`` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.provider.conftest import Running
from tests.provider.test_http import BODIES, PATHS, SECRET, WORDS, send

LOCKSTITCH = [sys.executable, "-m", "lockstitch", "provider"]


@contextmanager
def started(*words: str | Path) -> Iterator[tuple[Running, subprocess.Popen[str]]]:
    """The command on a free port, with ``--json``; killed if the test does not end it."""
    command = [*LOCKSTITCH, "--port", "0", "--json", *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Running(json.loads(process.stdout.readline())["url"]), process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[int, Any, str]:
    """Its exit status, the lines of its log, and what it said on stderr."""
    process.send_signal(number)
    out, err = process.communicate(timeout=600)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err


def failed(*words: str | Path, **options: Any) -> str:
    """What the command says when it cannot start; its status is 2 and stdout is empty."""
    command = [*LOCKSTITCH, *map(str, words)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=600, **options
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_logs_and_ends_when_told(number: int) -> None:
    body = BODIES["/v1/messages"]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": WORDS}
    orphan = {**body, "messages": [{"role": "user", "content": [result]}]}
    with started() as (running, process):
        assert send(running, "/v1/messages", body)[0] == 200
        assert send(running, "/v1/messages", orphan)[0] == 400
        status, log, err = ended(process, number)
    assert (status, err) == (0, "")
    first, second = (line["request"] for line in log)
    assert (first["number"], first["outcome"], first["findings"]) == (1, "accepted", [])
    assert (second["number"], second["outcome"], second["status"]) == (2, "refused", 400)
    assert second["findings"][0]["code"] == "LS103"
    assert second["findings"][0]["place"] == "messages.0.content.0"
    assert WORDS not in json.dumps(log)


def test_replies_and_records(tmp_path: Path) -> None:
    replies = tmp_path / "replies.jsonl"
    replies.write_text('{"text": "first"}\n{"text": "second"}\n', "utf-8")
    folder = tmp_path / "requests"
    with started("--reply", replies, "--record", folder) as (running, process):
        headers = {"Content-Type": "application/json", "x-api-key": SECRET}
        said = [
            send(running, "/v1/messages", BODIES["/v1/messages"], headers=headers)[2]
            for _ in range(3)
        ]
        _, log, _ = ended(process)
    assert [message["content"][0]["text"] for message in said] == ["first", "second", "ok"]
    assert [line["request"]["record"] for line in log] == sorted(os.listdir(folder))  # noqa: PTH208
    assert SECRET not in json.dumps(log)


def test_faults_and_a_script_in_toml(tmp_path: Path) -> None:
    replies = tmp_path / "replies.toml"
    replies.write_text('[[replies]]\ntext = "first"\n', "utf-8")
    fault = "status=529 retry-after=2 times=1, status=504 only=summaries times=1"
    path = "/v1beta/models/m:generateContent"
    tools = {"tools": [{"functionDeclarations": [{"name": "bash"}]}]}
    with started("--reply", replies, "--fault", fault) as (running, process):
        answers = [send(running, path, {**BODIES[PATHS[3]], **tools}) for _ in range(2)]
        answers.append(send(running, path, BODIES[PATHS[3]]))
        _, log, _ = ended(process)
    assert [answer[0] for answer in answers] == [529, 200, 504]
    assert answers[0][1]["retry-after"] == "2"
    assert answers[1][2]["candidates"][0]["content"]["parts"] == [{"text": "first"}]
    faults = [line["request"]["fault"] for line in log]
    assert faults == [
        "status=529 retry-after=2 times=1",
        "",
        "status=504 only=summaries times=1",
    ]


def test_a_fault_that_is_none() -> None:
    assert "there is no fault 'bang'; the words for faults are drop," in failed("--fault", "bang")


@pytest.mark.parametrize(
    ("fault", "path", "line"),
    [
        ("", PATHS[0], "1 /v1/messages 200 accepted 1 messages\n"),
        ("status=500", PATHS[0], "1 /v1/messages 500 accepted 1 messages; fault: status=500\n"),
        ("", "/model/a%1b[2J%0a%0d2/converse", r"1 /model/a\x1b[2J\n\r2/converse 200 accepted"),
    ],
)
def test_the_text_log_is_one_line_a_request(fault: str, path: str, line: str) -> None:
    with subprocess.Popen(
        [*LOCKSTITCH, "--port", "0", f"--fault={fault}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            url = said.split()[2]
            assert f"OPENAI_BASE_URL={url}/v1 GOOGLE_GEMINI_BASE_URL={url} " in said
            send(Running(url), path, BODIES.get(path, BODIES[PATHS[4]]))
        finally:
            process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=600)
    assert out.startswith(line)
    assert out.count("\n") == 1


def test_a_port_that_is_taken() -> None:
    with started() as (running, _):
        port = running.url.rpartition(":")[2]
        assert f"cannot listen on port {port}" in failed("--port", port)


@pytest.mark.parametrize("port", ["x", "65536", "1.5"])
def test_a_port_that_is_none(port: str) -> None:
    assert "--port takes a number from 0 to 65535" in failed("--port", port)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nonsense"], "nonsense"),
        (
            ["langchain"],
            "the provider speaks anthropic, openai-chat, openai-responses, gemini, bedrock, "
            "not langchain",
        ),
    ],
)
def test_a_profile_it_does_not_speak(words: list[str], why: str) -> None:
    assert why in failed(*words)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not a list of replies"),
        ('[{"txt": "ok"}]', "unknown field `txt`"),
        ("[{}]", "neither text nor calls"),
        ('[{"calls": [{"name": "bash", "arguments": "ls"}]}]', "Expected `object`"),
    ],
)
def test_replies_that_are_none(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "replies.json"
    path.write_text(text, "utf-8")
    said = failed("--port", "0", "--reply", path)
    assert why in said
    assert path.name in said


def test_a_file_of_replies_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file" in failed("--reply", tmp_path / "none.json")


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "aiohttp.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'aiohttp'\", name='aiohttp')\n", "utf-8"
    )
    said = failed(env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert "pip install 'lockstitch[provider]'" in said


def test_help_names_what_it_takes() -> None:
    done = subprocess.run(
        [*LOCKSTITCH, "--help"], check=True, capture_output=True, text=True, timeout=600
    )
    for word in ("--port", "--reply", "--fault", "--record", "--json", "PROFILE"):
        assert word in done.stdout
