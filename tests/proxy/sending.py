"""A bare client, for what no well-behaved one would send."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

JSON = {"Content-Type": "application/json"}
PATIENCE = 60


@dataclass
class Got:
    """An answer: the status, the headers and the body, as bytes and as what they say."""

    status: int
    headers: list[tuple[str, str]]
    data: bytes

    def header(self, name: str) -> str | None:
        """The value of a header."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def value(self) -> Any:
        """The body as JSON."""
        return json.loads(self.data)


def send(
    url: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    method: str = "POST",
) -> Got:
    """Send one request, and return the answer."""
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)) as connection:
        connection.request(method, path, body, JSON if headers is None else headers)
        answer = connection.getresponse()
        return Got(answer.status, answer.getheaders(), answer.read())


def raw(url: str, data: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes, and return all that comes back until the connection ends."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port or 80), PATIENCE) as sock:
        try:
            sock.sendall(data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass
        got = b""
        try:
            while chunk := sock.recv(1 << 16):
                got += chunk
        except ConnectionError:
            pass
        return got
