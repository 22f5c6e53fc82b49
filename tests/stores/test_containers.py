"""A holder in another container, or on a machine that was started again: waited for, not for ever.

Every try is a process of its own that does not wait, as a program that is started again and again.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import Held
from lockstitch.stores.opening import open_backend
from tests import tools

SHORT = 2.0
LONG = 600.0
UPTIMES = {"longer": 1e7, "shorter": -1e7, "a little longer": 0.4}
HOLD = """
import sys
from lockstitch.stores.opening import open_backend
store = open_backend(sys.argv[1])
lease = store.acquire("s")
print("held", flush=True)
sys.stdin.read()
"""
NAMED = ["sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]
CONTAINERS = {
    "process numbers and name": ["--pid", "--uts", "--fork", "--mount-proc", "--kill-child"],
    "name": ["--uts"],
    "a clock ahead": ["--time", "--boottime", "1000000", "--fork", "--kill-child"],
    "a clock behind": ["--time", "--boottime", "-100", "--fork", "--kill-child"],
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")


@pytest.fixture(params=["sqlite", "jsonl"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path}/store"


def contained(container: str) -> list[str]:
    """Give the command that runs another one in a container."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        tools.leave_out("namespaces need unshare and root", could_be_here=False)
    options = CONTAINERS[container]
    command = [unshare, *options, *(NAMED if "--uts" in options else [])]
    done = subprocess.run([*command, "true"], capture_output=True, check=False)
    if done.returncode:
        told = done.stderr.decode().strip()
        tools.leave_out(f"no namespace can be made here ({told})", could_be_here=False)
    return command


def tried(url: str, lease: float = LONG) -> int | None:
    """Try once to take the session, as a new program would; gives the epoch, None if it is held."""
    with open_backend(f"{url}?lease={lease}") as backend:
        try:
            return backend.acquire("s").epoch
        except Held:
            return None


def taken(url: str) -> int:
    """Try again and again, until the session is taken over."""
    while (epoch := tried(url)) is None:
        time.sleep(0.05)
    return epoch


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_holder_in_another_container(url: str, container: str) -> None:
    command = [*contained(container), sys.executable, "-c", HOLD, f"{url}?lease={SHORT}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        for _ in range(6):
            assert tried(url) is None
            time.sleep(SHORT / 3)
        holder.kill()
    assert taken(url) == 2


def left_behind(url: str, change: Callable[[dict[str, Any]], dict[str, Any]], shift: float) -> None:
    """Leave a session as a holder does that died, with another holder and another clock."""
    command = [sys.executable, "-c", HOLD, f"{url}?lease={SHORT}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    path = Path(url.partition(":///")[2])
    if path.is_dir():
        [claim] = [one for one in (path / ".leases").iterdir() if not one.name.endswith(".lock")]
        found = json.loads(claim.read_bytes())
        found |= {"holder": change(found["holder"]), "deadline": found["deadline"] + shift}
        claim.write_text(json.dumps(found).ljust(512))
        return
    with closing(sqlite3.connect(path)) as base, base:
        [(text, deadline)] = base.execute("select holder, deadline from sessions")
        holder_text = json.dumps(change(json.loads(text)))
        base.execute(
            "update sessions set holder = ?, deadline = ?", (holder_text, deadline + shift)
        )


@pytest.mark.parametrize("uptime", UPTIMES)
def test_a_machine_that_was_started_again(url: str, uptime: str) -> None:
    left_behind(url, lambda holder: holder | {"boot": "another"}, UPTIMES[uptime])
    assert tried(url) == 2


@pytest.mark.parametrize("uptime", UPTIMES)
def test_a_store_that_came_from_another_machine(url: str, uptime: str) -> None:
    elsewhere = {"boot": "another", "host": "elsewhere", "pid": 1}
    left_behind(url, lambda holder: holder | elsewhere, UPTIMES[uptime])
    assert taken(url) == 2


@pytest.mark.parametrize("uptime", UPTIMES)
def test_a_machine_that_does_not_tell_its_boot(url: str, uptime: str) -> None:
    unknown = {"boot": "", "start": "", "namespace": ""}
    left_behind(url, lambda holder: holder | unknown, UPTIMES[uptime])
    assert taken(url) == 2


def test_a_holder_of_another_machine_that_goes_on(tmp_path: Path) -> None:
    """Lines in a folder that two machines share, against advice: what changes is alive."""
    url = f"jsonl:///{tmp_path}/store"
    elsewhere = {"boot": "another", "host": "elsewhere", "pid": 1}
    left_behind(url, lambda holder: holder | elsewhere, 0)
    [claim] = [one for one in (tmp_path / "store" / ".leases").iterdir() if ".lock" not in one.name]
    for number in range(8):
        found = json.loads(claim.read_bytes())
        claim.write_text(json.dumps(found | {"deadline": 1000.0 + number}).ljust(512))
        assert tried(url) is None
        time.sleep(SHORT / 3)
    assert taken(url) == 2
