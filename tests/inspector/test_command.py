"""``lockstitch ui`` as a process."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.inspector import scenes

LOCKSTITCH = [sys.executable, "-m", "lockstitch", "ui"]


def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    scenes.interrupted(tmp_path)
    command = [*LOCKSTITCH, str(tmp_path), "--port", "0", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = urlsplit(line.removeprefix("Open ").strip())
        assert address.hostname == "127.0.0.1"
        assert address.fragment.startswith("token=")
        connection = http.client.HTTPConnection(address.netloc, timeout=60)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert err == "The address lets one browser in, once. Ctrl-C stops it.\nEnded.\n"


def test_the_browser_is_opened_without_telling_others_the_token(tmp_path: Path) -> None:
    scenes.interrupted(tmp_path)
    told, opener = tmp_path / "told", tmp_path / "browser"
    opener.write_text(f'#!/bin/sh\necho "$1" > {told}.new && mv {told}.new {told}\n')
    opener.chmod(0o700)
    command = [*LOCKSTITCH, str(tmp_path), "--port", "0"]
    environ = {**os.environ, "BROWSER": f"{opener} %s"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("Open ").strip()
        for _ in range(600):
            if told.exists():
                break
            time.sleep(0.1)
        given = urlsplit(told.read_text().strip())
        assert given.scheme == "file"
        page = Path(unquote(given.path))
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert address in page.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    assert not page.exists()


def said(*words: str, **environ: str) -> str:
    """What the command says when it cannot start; its status is 2 and stdout is empty."""
    done = subprocess.run(
        [*LOCKSTITCH, "--no-browser", *words],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        env={**os.environ, **environ},
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_what_cannot_be_shown_or_served_is_said(tmp_path: Path) -> None:
    assert "no such file" in said(str(tmp_path / "none.jsonl"))
    assert "--port takes a number" in said("--port", "x", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on port {port}" in said("--port", str(port), str(tmp_path))


def test_a_missing_extra_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "aiohttp.py").write_text("raise ModuleNotFoundError('no', name='aiohttp')\n")
    assert "pip install 'lockstitch[ui]'" in said(PYTHONPATH=str(tmp_path))


@pytest.mark.parametrize("ending", ["html", "css", "js", "svg"])
def test_the_assets_are_in_the_package(ending: str) -> None:
    names = [one.name for one in (files("lockstitch.inspector") / "assets").iterdir()]
    assert any(name.endswith(ending) for name in names)


def test_the_page_asks_nobody_else_for_anything() -> None:
    for one in (files("lockstitch.inspector") / "assets").iterdir():
        text = one.read_text("utf-8")
        for scheme in ("https://", "http://"):
            found = [part.split('"')[0] for part in text.split(scheme)[1:]]
            assert set(found) <= {"www.w3.org/2000/svg"}, one.name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, one.name


def test_json_tells_a_program_the_address(tmp_path: Path) -> None:
    command = [*LOCKSTITCH, str(tmp_path), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["version"] == 1
        assert "#token=" in told["url"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
