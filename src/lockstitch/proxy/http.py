"""HTTP as the proxy sees it: which headers pass, who may ask, and bodies that came compressed.

Those are decoded within limits, replies as they arrive.
"""

from __future__ import annotations

import hmac
import importlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from lockstitch.proxy.healing import HealDecision
from lockstitch.proxy.settings import LOOPBACK, Settings

_GZIP = 16 + zlib.MAX_WBITS
_STEP = 1 << 20


class UndecodableBody(ValueError):
    """A body is not in the encoding that it claims, or in one that is not known here."""


class TooLarge(ValueError):
    """A body is larger than is taken once it is decoded."""


def decode_body(data: bytes, encoding: str, most: int) -> bytes:
    """Return a body without its encoding; never more than ``most`` bytes are made."""
    for name in reversed(_names(encoding)):
        reader = _reader(name)
        out: list[bytes] = []
        size = 0
        for piece in reader.pieces(data):
            size += len(piece)
            if size > most:
                raise TooLarge(f"the body has more than {most} bytes once it is decoded")
            out.append(piece)
        if not reader.is_done:
            raise UndecodableBody(f"the body ends before its {name} encoding does")
        data = b"".join(out)
    return data


def readable_encodings() -> tuple[str, ...]:
    """Return the encodings beyond the usual that can be undone here."""
    return ("zstd",) if _zstandard() is not None else ()


def _names(encoding: str) -> list[str]:
    words = (word.strip().lower() for word in encoding.split(","))
    return [word for word in words if word not in ("", "identity")]


class _Zlib:
    """Undoes gzip and deflate, the latter with or without the header that it should have."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.decoder = zlib.decompressobj(_GZIP if name == "gzip" else zlib.MAX_WBITS)
        self.has_begun = False
        self.rest = b""

    @property
    def is_done(self) -> bool:
        return bool(self.decoder.eof)

    def pieces(self, data: bytes) -> Any:
        """Return what the data holds, in pieces of a bounded size."""
        if self.name == "deflate" and not self.has_begun and data and data[0] & 0x0F != 8:  # noqa: PLR2004
            self.decoder = zlib.decompressobj(-zlib.MAX_WBITS)
        self.has_begun = self.has_begun or bool(data)
        try:
            while data:
                yield self.decoder.decompress(data, _STEP)
                data = self.decoder.unconsumed_tail
                if not data and self.decoder.eof and self.decoder.unused_data:
                    # a gzip file may be several, one behind the other
                    data = self.decoder.unused_data
                    self.decoder = zlib.decompressobj(_GZIP)
        except zlib.error:
            raise UndecodableBody(f"the body is not {self.name}") from None


class _Zstd:
    """Undoes zstd, with the package that can."""

    def __init__(self, package: Any) -> None:
        self.error = package.ZstdError
        self.decoder = package.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self.is_done = False

    def pieces(self, data: bytes) -> Any:
        """Return what the data holds, in pieces."""
        # a block of a few bytes can stand for 128 KB, so that few are read at a time
        step = 512
        try:
            for at in range(0, len(data), step):
                yield self.decoder.decompress(data[at : at + step])
        except self.error:
            raise UndecodableBody("the body is not zstd") from None
        self.is_done = bool(getattr(self.decoder, "eof", True))


def _reader(name: str) -> _Zlib | _Zstd:
    if name in ("gzip", "x-gzip"):
        return _Zlib("gzip")
    if name == "deflate":
        return _Zlib("deflate")
    package = _zstandard() if name == "zstd" else None
    if package is None:
        raise UndecodableBody("the body is in an encoding that is not known here")
    return _Zstd(package)


def _zstandard() -> Any:
    try:
        return importlib.import_module("zstandard")
    except ModuleNotFoundError:
        return None


class DecodedReply:
    """A reply's body, decoded as it arrives; what cannot be decoded is given as nothing."""

    def __init__(self, encoding: str) -> None:
        self.readers: list[_Zlib | _Zstd] = []
        self.is_lost = False
        try:
            self.readers = [_reader(name) for name in reversed(_names(encoding))]
        except UndecodableBody:
            self.is_lost = True

    def read(self, chunk: bytes) -> bytes:
        """Return what a chunk adds."""
        if self.is_lost:
            return b""
        try:
            for reader in self.readers:
                chunk = b"".join(reader.pieces(chunk))
        except UndecodableBody:
            self.is_lost = True
            return b""
        return chunk


Headers = list[tuple[str, str]]

OWN = "lockstitch-"
TOKEN = f"{OWN}token"
REPAIRED = f"{OWN}repaired"
LEFT = f"{OWN}left"
RETRIED = f"{OWN}retried"
ERROR = f"{OWN}error"
# Those of one connection, not of what is said over it (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "proxy-authenticate", "proxy-authorization", "http2-settings"),
    }
)
# Set anew for the request that goes out: its receiver, its size, and the wish to be asked first.
_OF_REQUEST = frozenset({"host", "content-length", "expect"})
# What is asked for where the reply must be read to be kept: what can be undone here.
_READABLE = ("gzip", "deflate", "identity")


def forward_headers(
    raw: Iterable[tuple[bytes, bytes]], dropped: frozenset[str] = _OF_REQUEST
) -> Headers:
    """Return the headers that pass, in their order and spelling."""
    pairs = [
        (name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in raw
    ]
    # what ``Connection`` names is of this connection, too
    named = (value for name, value in pairs if name.lower() == "connection")
    gone = dropped | _HOP_BY_HOP
    gone |= {word.strip().lower() for value in named for word in value.split(",")}
    return [
        (name, value)
        for name, value in pairs
        if name.lower() not in gone and not name.lower().startswith(OWN)
    ]


def return_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of a reply that pass, its size included."""
    return forward_headers(raw, frozenset())


def without_headers(headers: Headers, *names: str) -> Headers:
    """Return headers without some of them."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def ask_for_readable(headers: Headers, more: Sequence[str] = ()) -> Headers:
    """Ask for a reply in an encoding that can be undone here, of those the client takes."""
    asked = ",".join(value for name, value in headers if name.lower() == "accept-encoding")
    words = [word.strip() for word in asked.split(",")]
    kept = [word for word in words if word.partition(";")[0].lower() in (*_READABLE, *more)]
    return [
        *without_headers(headers, "accept-encoding"),
        ("Accept-Encoding", ", ".join(kept) or "identity"),
    ]


def note_headers(decision: HealDecision, *, retried: bool = False, error: str = "") -> Headers:
    """Return the headers that tell the client what was done to its request."""
    said: Headers = []
    if decision.repaired:
        said.append((REPAIRED, spell_counts(decision.repaired)))
    if decision.left:
        said.append((LEFT, spell_counts(decision.left)))
    if retried:
        said.append((RETRIED, "1"))
    if error:
        said.append((ERROR, error))
    return said


def spell_counts(counts: Mapping[str, int]) -> str:
    """Return counts of codes as one line: ``LS101=2, LS407=1``."""
    return ", ".join(f"{code}={count}" for code, count in counts.items())


def find_refusal(settings: Settings, headers: Mapping[str, str], token: str) -> str:
    """Return why a request may not pass, "" if it may.

    A name that only points here is how a web page gets past its browser's rules, and a token is
    what a web page does not have.
    """
    if settings.token:
        if not hmac.compare_digest(token.encode(), settings.token.encode()):
            return f"the token is missing or wrong: send it in the header {TOKEN}"
    elif host_name(headers.get("host", "")) not in (*LOOPBACK, *settings.hosts):
        return "Host must be 127.0.0.1 or localhost, or one of `hosts` in the configuration"
    origin = headers.get("origin")
    scheme, _, rest = (origin or "").partition("://")
    is_local = scheme in ("http", "https") and host_name(rest) in LOOPBACK
    if origin is not None and origin not in settings.origins and not is_local:
        return "requests of this web page are not taken; list its origin in `origins` to take them"
    if origin is None and headers.get("sec-fetch-site") == "cross-site":
        return "requests of a web page from elsewhere are not taken"
    return ""


def host_name(host: str) -> str | None:
    """Return the name in a ``Host`` header, without its port; None if it is not one."""
    try:
        parts = urlsplit(f"//{host}")
        port_is_fine = parts.port is None or parts.port >= 0
    except ValueError:
        return None
    is_bare = parts.netloc == host and "@" not in host
    return (parts.hostname or "") if is_bare and port_is_fine else None
