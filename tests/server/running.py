"""The real server as a process of its own, on loopback, without a network or a licence."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langgraph_sdk import get_sync_client

from tests.server.install import packages

APP = Path(__file__).parent / "app"
PATIENCE = 120
# No word to anybody: what it would report, ask for, or look up elsewhere.
QUIET = {
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGSMITH_TRACING": "false",
    "NO_PROXY": "127.0.0.1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Server:
    """A server of the application beside this file, in a folder that outlives its process."""

    def __init__(self, folder: Path, config: str, environment: Mapping[str, str]) -> None:
        self._folder = folder / "app"
        shutil.copytree(APP, self._folder)
        self._config = config
        self._environment = {**os.environ, **QUIET, **environment, "PYTHONPATH": str(packages())}
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "server.log"

    def start(self) -> Any:
        """Start it, and give a client for it once it answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = ["dev", "--no-browser", "--no-reload", "--port", str(port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "langgraph_cli", *words, "--config", self._config],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + PATIENCE
        while not _answers(f"{address}/ok"):
            assert self._process.poll() is None, self.log.read_text("utf-8")
            assert time.monotonic() < end, self.log.read_text("utf-8")
            time.sleep(0.1)
        self._client = get_sync_client(url=address)
        return self._client

    def kill(self) -> None:
        """End it as the kernel would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Have it end in its own way."""
        if self._process is not None and self._process.poll() is None:
            self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._client.close()
        os.killpg(self._process.pid, how)
        self._process.wait(PATIENCE)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address) as answer:  # noqa: S310 - on loopback
            return bool(answer.status == 200)
    except OSError:
        return False
