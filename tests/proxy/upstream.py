"""A provider for tests that keeps the very bytes it got, and answers as it is told."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

Headers = list[tuple[str, str]]


@dataclass
class Seen:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: Headers
    body: bytes

    def all(self, name: str) -> list[str]:
        """The values of a header."""
        return [value for key, value in self.headers if key.lower() == name]

    def one(self, name: str) -> str | None:
        """The value of a header that may be there once."""
        found = self.all(name)
        assert len(found) < 2, f"{name} was sent twice"
        return found[0] if found else None


class Wire:
    """The connection of one client: what was asked on it, and how to answer."""

    def __init__(self, sock: socket.socket, seen: Seen) -> None:
        self.sock = sock
        self.seen = seen

    def send(self, data: bytes) -> None:
        """Send bytes at once."""
        self.sock.sendall(data)

    def whole(self, body: bytes, status: str = "200 OK", *headers: str) -> None:
        """Send a reply in one piece."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def begin(self, *headers: str, status: str = "200 OK") -> None:
        """Send the head of a stream."""
        kind = [] if headers else ["Content-Type: text/event-stream"]
        lines = [f"HTTP/1.1 {status}", "Transfer-Encoding: chunked", *kind, *headers]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def chunk(self, data: bytes) -> None:
        """Send a chunk of a stream; an empty one ends it."""
        self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def is_gone(self) -> bool:
        """Wait until the other side goes away; whether it did within a minute."""
        self.sock.settimeout(60)
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


Script = Callable[[Wire], None]


def ok(wire: Wire) -> None:
    """Answer with a little JSON."""
    wire.whole(b'{"ok":true}', "200 OK", "Content-Type: application/json")


@dataclass
class Upstream:
    """A provider that runs: where it is, what it does, and what it saw."""

    url: str
    script: Script = ok
    seen: list[Seen] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)

    @property
    def last(self) -> Seen:
        """The request that came last."""
        return self.seen[-1]


@contextmanager
def listening() -> Iterator[Upstream]:
    """Run a provider on a free port for as long as the block lasts."""
    made = Upstream("")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with self.request.makefile("rb") as reader, suppress(ConnectionError):
                while (seen := _read(reader)) is not None:
                    made.seen.append(seen)
                    try:
                        made.script(Wire(self.request, seen))
                    except ConnectionError:
                        raise
                    except BaseException as error:  # noqa: BLE001 - told to the test
                        made.failed.append(error)
                        return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 512

    with Server(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def _read(reader: BinaryIO) -> Seen | None:
    line = reader.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: Headers = []
    while (line := reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("utf-8", "surrogateescape").partition(":")
        headers.append((name, value.strip()))
    return Seen(method, target, headers, _body(reader, {k.lower(): v for k, v in headers}))


def _body(reader: BinaryIO, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        pieces = []
        while size := int(reader.readline(), 16):
            pieces.append(reader.read(size))
            reader.readline()
        reader.readline()
        return b"".join(pieces)
    return reader.read(int(headers.get("content-length", "0")))
