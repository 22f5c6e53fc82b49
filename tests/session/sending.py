"""A provider on this machine that streams the events it is given, in the wire's own framing."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from zlib import crc32


class Sender:
    """Where the server is, and the events that it answers every request with."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = "text/event-stream"
        self.body = b""

    def send_sse(self, events: Iterable[dict[str, Any]]) -> None:
        """Answer with server-sent events, named by their type where they have one."""
        self.kind = "text/event-stream"
        self.body = b"".join(map(_sse, events)) + b"data: [DONE]\n\n"

    def send_json(self, value: Any) -> None:
        """Answer with one JSON value."""
        self.kind = "application/json"
        self.body = json.dumps(value, ensure_ascii=False).encode()

    def send_gemini(self, events: Iterable[dict[str, Any]]) -> None:
        """Answer with server-sent events and nothing behind them."""
        self.kind = "text/event-stream"
        self.body = b"".join(map(_sse, events))

    def send_amazon(self, events: Iterable[dict[str, Any]]) -> None:
        """Answer in Amazon's binary framing."""
        self.kind = "application/vnd.amazon.eventstream"
        self.body = b"".join(map(_framed, events))


def _sse(event: dict[str, Any]) -> bytes:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def _framed(event: dict[str, Any]) -> bytes:
    ((name, fields),) = event.items()
    marks = {":message-type": "event", ":event-type": name, ":content-type": "application/json"}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in marks.items()
    )
    payload = json.dumps(fields).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return message + struct.pack(">I", crc32(message))


@contextmanager
def sending() -> Iterator[Sender]:
    """Run the server for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", sender.kind)
            self.send_header("Content-Length", str(len(sender.body)))
            self.end_headers()
            self.wfile.write(sender.body)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sender = Sender(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield sender
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
