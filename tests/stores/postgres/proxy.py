"""A wire between a client and PostgreSQL that can be cut at any byte, in either direction."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NOTHING_LEFT = struct.pack("ii", 1, 0)


class Proxy:
    """Passes bytes on until the next one would be beyond what is allowed, then hangs up.

    ``allow(sent, received)`` lets so many more bytes through to the server and back; None is no
    limit. ``cuts`` counts the connections that were cut, ``sent`` and ``received`` the bytes
    passed on since.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.allow(None, None)

    def allow(self, sent: int | None, received: int | None) -> None:
        with self._lock:
            self._limits = (sent, received)
            self.sent = self.received = self.cuts = 0

    def run(self) -> None:
        self._listener.settimeout(0.1)
        while not self._ending.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._carry, args=(client,))
                self._threads.append(thread)
                thread.start()

    def end(self) -> None:
        self._ending.set()

    def close(self) -> None:
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            # A packet is passed on at once, as on a wire.
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(OSError):
                while not self._ending.is_set() and self._pass_on(client, server):
                    pass
            for one in (client, server):
                with suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOTHING_LEFT)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> bool:
        ready, _, _ = select.select([client, server], [], [], 0.1)
        for source in ready:
            data = source.recv(1 << 16)
            if not data:
                return False
            target, way = (server, 0) if source is client else (client, 1)
            allowed, is_cut = self._allowed(len(data), way)
            target.sendall(data[:allowed])
            if is_cut:
                return False
        return True

    def _allowed(self, amount: int, way: int) -> tuple[int, bool]:
        with self._lock:
            done = (self.sent, self.received)[way]
            limit = self._limits[way]
            allowed = amount if limit is None else min(amount, limit - done)
            if way:
                self.received += allowed
            else:
                self.sent += allowed
            is_cut = allowed < amount
            self.cuts += is_cut
            if is_cut:
                # One cut a time: what connects anew gets through.
                self._limits = (None, None)
            return allowed, is_cut


@contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """Run a proxy before a port of this machine."""
    proxy = Proxy(port)
    thread = threading.Thread(target=proxy.run)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.end()
        thread.join(10)
        proxy.close()
