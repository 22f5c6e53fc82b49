"""HTTP as the proxy uses it: paths, headers, access, bodies, and replies that are recorded.

The path alone says which API a request uses, and errors are answered in the format of that API.
Compressed bodies are decoded within limits, and replies as they arrive.
"""

from __future__ import annotations

import asyncio
import hmac
import importlib
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct, structs

from lockstitch.dialects import ANTHROPIC, BEDROCK, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES
from lockstitch.dialects.profiles import VIEWS
from lockstitch.provider import ERROR_KINDS
from lockstitch.proxy import LOOPBACK, Settings
from lockstitch.proxy.healing import HealDecision

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from lockstitch.proxy.recording import StoreExchange

# A path that leaves the folder of its upstream, in any spelling.
_DOTS = re.compile(r"(?:^|[/\\])(?:\.|%2e){1,2}(?:[/\\;?#]|$)", re.IGNORECASE)
_HIDDEN = re.compile(r"%2f|%5c|%00|[\x00-\x20\x7f\\#]", re.IGNORECASE)


class ProxyRoute(Struct, frozen=True):
    """What is known about a request before its body is read.

    ``dialect`` is that of the body, and ``vendor`` says whose API it came to; they differ if a
    vendor serves another's models. ``name`` is for logs and metrics, and comes from a fixed list.
    ``model`` is set if the path names it, ``streams`` if the path asks for a stream.
    """

    name: str
    dialect: str = ""
    vendor: str = ""
    model: str | None = None
    streams: bool = False

    @property
    def is_known(self) -> bool:
        """Whether the body is a conversation that can be checked."""
        return bool(self.dialect)


_MODEL = r"(?P<model>[^/:?]+(?:(?::|%3A)[^/:?]+)*)"
_VERTEX = rf"(?:/[^?]*)?/publishers/anthropic/models/{_MODEL}"
_GOOGLE = rf"(?:/[^?]*)?/models/{_MODEL}"
# By the pattern of a path: the name of its route, the dialect, the vendor, and whether it streams.
_ROUTES = {
    re.compile(path): ProxyRoute(name, dialect, vendor, streams=streams)
    for path, name, dialect, vendor, streams in (
        (r"/v1/messages", "messages", ANTHROPIC, ANTHROPIC, False),
        (r"/v1/messages/count_tokens", "count_tokens", ANTHROPIC, ANTHROPIC, False),
        (r"(?:/v1)?/chat/completions", "chat", OPENAI_CHAT, OPENAI_CHAT, False),
        (r"(?:/v1)?/responses", "responses", OPENAI_RESPONSES, OPENAI_RESPONSES, False),
        (r"/openai/deployments/[^/?]+/chat/completions", "chat", OPENAI_CHAT, OPENAI_CHAT, False),
        (r"/openai(?:/v1)?/responses", "responses", OPENAI_RESPONSES, OPENAI_RESPONSES, False),
        (r"/openai/v1/chat/completions", "chat", OPENAI_CHAT, OPENAI_CHAT, False),
        (rf"{_VERTEX}:rawPredict", "messages", ANTHROPIC, GEMINI, False),
        (rf"{_VERTEX}:streamRawPredict", "messages", ANTHROPIC, GEMINI, True),
        (rf"{_GOOGLE}:generateContent", "generateContent", GEMINI, GEMINI, False),
        (rf"{_GOOGLE}:streamGenerateContent", "streamGenerateContent", GEMINI, GEMINI, True),
        (rf"/model/{_MODEL}/converse", "converse", BEDROCK, BEDROCK, False),
        (rf"/model/{_MODEL}/converse-stream", "converse-stream", BEDROCK, BEDROCK, True),
    )
}
OTHER = "other"
NAMES = (*dict.fromkeys(route.name for route in _ROUTES.values()), OTHER)


def route_of(method: str, path: str, headers: Container[str]) -> ProxyRoute:
    """Return the route of a request; an unknown one still has a vendor to be sent to.

    ``path`` is as it came, without the query; ``headers`` contains the names in any case.
    """
    if method == "POST":
        for pattern, route in _ROUTES.items():
            if found := pattern.fullmatch(path):
                named = found.groupdict().get("model")
                return route if named is None else structs.replace(route, model=unquote(named))
    return ProxyRoute(OTHER, vendor=_vendor(path, headers))


def _vendor(path: str, headers: Container[str]) -> str:
    """Return the vendor of a path that several vendors use, such as ``/v1/models``."""
    if "anthropic-version" in headers or path.startswith("/v1/messages"):
        return ANTHROPIC
    if "x-goog-api-key" in headers or path.startswith(("/v1beta", "/v1alpha", "/upload/v1beta")):
        return GEMINI
    if path.startswith(("/model/", "/guardrail/", "/async-invoke")):
        return BEDROCK
    return OPENAI_RESPONSES


def is_sound(path: str) -> bool:
    """Whether a path stays within its upstream, and means the same to every reader."""
    return path.startswith("/") and not _DOTS.search(path) and not _HIDDEN.search(path)


def error_body(status: int, text: str, vendor: str) -> tuple[bytes, list[tuple[str, str]]]:
    """Return the body of an error, and its headers."""
    common, google, amazon = ERROR_KINDS.get(status, ERROR_KINDS[500])
    said = f"lockstitch proxy: {text}"
    headers = [("Content-Type", "application/json")]
    body: dict[str, Any]
    if vendor == ANTHROPIC:
        body = {"type": "error", "error": {"type": common, "message": said}}
    elif vendor == GEMINI:
        body = {"error": {"code": status, "message": said, "status": google}}
    elif vendor == BEDROCK:
        body = {"message": said}
        headers.append(("x-amzn-ErrorType", amazon))
    else:
        body = {"error": {"message": said, "type": common, "param": None, "code": None}}
    return json.dumps(body).encode(), headers


_GZIP = 16 + zlib.MAX_WBITS
_STEP = 1 << 20


class UndecodableBody(ValueError):
    """A body is not in the encoding that it claims, or the encoding is not supported."""


class TooLarge(ValueError):
    """A decoded body exceeds the limit."""


def decode_body(data: bytes, encoding: str, most: int) -> bytes:
    """Return a body decoded; never more than ``most`` bytes are produced."""
    for name in reversed(_encodings_in(encoding)):
        reader = _decoder_for(name)
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


def _encodings_in(encoding: str) -> list[str]:
    words = (word.strip().lower() for word in encoding.split(","))
    return [word for word in words if word not in ("", "identity")]


class _ZlibDecoder:
    """Decodes gzip and deflate, the latter with or without its header."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.decoder = zlib.decompressobj(_GZIP if name == "gzip" else zlib.MAX_WBITS)
        self.has_begun = False
        self.rest = b""

    @property
    def is_done(self) -> bool:
        return bool(self.decoder.eof)

    def pieces(self, data: bytes) -> Any:
        """Yield the decoded data in pieces of limited size."""
        if self.name == "deflate" and not self.has_begun and data and data[0] & 0x0F != 8:  # noqa: PLR2004
            self.decoder = zlib.decompressobj(-zlib.MAX_WBITS)
        self.has_begun = self.has_begun or bool(data)
        try:
            while data:
                yield self.decoder.decompress(data, _STEP)
                data = self.decoder.unconsumed_tail
                if not data and self.decoder.eof and self.decoder.unused_data:
                    # a gzip file may consist of several
                    data = self.decoder.unused_data
                    self.decoder = zlib.decompressobj(_GZIP)
        except zlib.error:
            raise UndecodableBody(f"the body is not {self.name}") from None


class _ZstdDecoder:
    """Decodes zstd, with whichever package is installed."""

    def __init__(self, package: Any) -> None:
        self.error = package.ZstdError
        self.decoder = package.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self.is_done = False

    def pieces(self, data: bytes) -> Any:
        """Yield the decoded data in pieces."""
        # a few bytes can stand for a block of 128 KB, so feed only a few at a time
        step = 512
        try:
            for at in range(0, len(data), step):
                yield self.decoder.decompress(data[at : at + step])
        except self.error:
            raise UndecodableBody("the body is not zstd") from None
        self.is_done = bool(getattr(self.decoder, "eof", True))


def _decoder_for(name: str) -> _ZlibDecoder | _ZstdDecoder:
    if name in ("gzip", "x-gzip"):
        return _ZlibDecoder("gzip")
    if name == "deflate":
        return _ZlibDecoder("deflate")
    package = _zstandard() if name == "zstd" else None
    if package is None:
        raise UndecodableBody("the encoding of the body is not supported here")
    return _ZstdDecoder(package)


def _zstandard() -> Any:
    try:
        return importlib.import_module("zstandard")
    except ModuleNotFoundError:
        return None


class DecodedReply:
    """A reply's body, decoded as it arrives; empty if it cannot be decoded."""

    def __init__(self, encoding: str) -> None:
        self.readers: list[_ZlibDecoder | _ZstdDecoder] = []
        self.is_lost = False
        try:
            self.readers = [_decoder_for(name) for name in reversed(_encodings_in(encoding))]
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
# Headers about one connection, not about what is sent over it (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "proxy-authenticate", "proxy-authorization", "http2-settings"),
    }
)
# Set again for the outgoing request: its receiver, its size, and the wish to be asked first.
_OF_REQUEST = frozenset({"host", "content-length", "expect"})
# Requested if the reply must be read in order to be kept: encodings that can be decoded here.
_READABLE = ("gzip", "deflate", "identity")


def forward_headers(
    raw: Iterable[tuple[bytes, bytes]], dropped: frozenset[str] = _OF_REQUEST
) -> Headers:
    """Return the headers to pass on, in their order and spelling.

    Headers of a reply are passed on with its size: only those about the connection are ``dropped``.
    """
    pairs = [
        (name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in raw
    ]
    # headers that ``Connection`` names are about this connection, too
    named = (value for name, value in pairs if name.lower() == "connection")
    gone = dropped | _HOP_BY_HOP
    gone |= {word.strip().lower() for value in named for word in value.split(",")}
    return [
        (name, value)
        for name, value in pairs
        if name.lower() not in gone and not name.lower().startswith(OWN)
    ]


def without_headers(headers: Headers, *names: str) -> Headers:
    """Return headers without some of them."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def ask_for_readable(headers: Headers) -> Headers:
    """Ask for a reply in an encoding that the client accepts and that can be decoded here."""
    readable = {*_READABLE, *(("zstd",) if _zstandard() is not None else ())}
    asked = ",".join(value for name, value in headers if name.lower() == "accept-encoding")
    words = [word.strip() for word in asked.split(",")]
    kept = [word for word in words if word.partition(";")[0].lower() in readable]
    return [
        *without_headers(headers, "accept-encoding"),
        ("Accept-Encoding", ", ".join(kept) or "identity"),
    ]


def note_headers(decision: HealDecision, *, retried: bool = False, error: str = "") -> Headers:
    """Return the headers that tell the client what was done to its request."""
    said = {
        REPAIRED: spell_counts(decision.repaired),
        LEFT: spell_counts(decision.left),
        RETRIED: "1" if retried else "",
        ERROR: error,
    }
    return [(name, text) for name, text in said.items() if text]


def spell_counts(counts: Mapping[str, int]) -> str:
    """Return counts of codes on one line: ``LS101=2, LS407=1``."""
    return ", ".join(f"{code}={count}" for code, count in counts.items())


def find_refusal(settings: Settings, headers: Mapping[str, str], token: str) -> str:
    """Return why a request may not pass; "" if it may.

    A foreign host name that points here is how a web page evades its browser's rules. A web page
    does not have the token.
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
        return (
            "requests from this web page are refused; to accept them, list its origin in `origins`"
        )
    if origin is None and headers.get("sec-fetch-site") == "cross-site":
        return "requests sent by a web page of another site are refused"
    return ""


def host_name(host: str) -> str | None:
    """Return the name in a ``Host`` header, without its port; None if it is not valid."""
    try:
        parts = urlsplit(f"//{host}")
        port_is_fine = parts.port is None or parts.port >= 0
    except ValueError:
        return None
    is_bare = parts.netloc == host and "@" not in host
    return (parts.hostname or "") if is_bare and port_is_fine else None


_LONGEST_MARK = 64
# Data after the end of a reply arrives at once; waiting longer would be in vain.
_SILENCE = 2.0
_STREAMS = ("text/event-stream", "application/vnd.amazon.eventstream")


class BodySource(Protocol):
    """A source of a reply's body."""

    async def readany(self) -> bytes:
        """Return what has arrived; empty at the end."""


class Replayed:
    """The body of a reply that was read already."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def readany(self) -> bytes:
        """Return all of it, once."""
        data, self.data = self.data, b""
        return data


async def chunks(source: BodySource) -> AsyncIterator[bytes]:
    """Yield the chunks of a body as they arrive."""
    while chunk := await source.readany():
        yield chunk


class NotKept(Exception):
    """A reply could not be kept, and the settings forbid passing on a reply that is not."""


class Passage:
    """The chunks of one reply; the recorder keeps all of it before the last ones are passed on.

    A stream is held back from the event that ends it, any other reply by one chunk. ``failed`` is
    called if the reply cannot be kept, and may raise ``NotKept``.
    """

    def __init__(
        self,
        dialect: str,
        reply: ClientResponse,
        source: BodySource,
        exchange: StoreExchange,
        failed: Callable[[Exception], None],
    ) -> None:
        self.status = reply.status
        self.source = source
        self.exchange = exchange
        self.failed = failed
        self.is_stream = reply.content_type in _STREAMS
        self.end = VIEWS[dialect].stream_end
        self.decoded = DecodedReply(reply.headers.get("Content-Encoding", ""))
        self.tail = b""
        self.held: list[bytes] = []
        self.is_kept = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks when they may go to the client."""
        has_ended = False
        while True:
            try:
                async with asyncio.timeout(_SILENCE if has_ended and not self.is_kept else None):
                    chunk = await self.source.readany()
            except TimeoutError:
                if not has_ended or self.is_kept:
                    raise
                await self._commit(complete=True)
                yield self._release_held()
                continue
            if not chunk:
                break
            if self.is_kept:
                yield chunk
                continue
            has_ended = self._take(chunk) or has_ended
            if self.is_stream and not has_ended:
                yield chunk
                continue
            ready = b"" if self.is_stream else self._release_held()
            self.held.append(chunk)
            if ready:
                yield ready
        if not self.is_kept:
            await self._commit(complete=True)
        left = self._release_held()
        if left:
            yield left

    def _take(self, chunk: bytes) -> bool:
        """Feed a chunk to the recorder; return whether the reply ends in it."""
        text = self.decoded.read(chunk)
        if text:
            self.exchange.feed(text)
        if not self.is_stream:
            return False
        seen = self.tail + text
        self.tail = seen[-_LONGEST_MARK:]
        return self.end is not None and self.end.search(seen) is not None

    def _release_held(self) -> bytes:
        held, self.held = b"".join(self.held), []
        return held

    async def keep_part(self) -> None:
        """Keep what arrived of a reply that will not continue."""
        if not self.is_kept:
            await self._commit(complete=False)

    async def _commit(self, *, complete: bool) -> None:
        self.is_kept = True
        try:
            await self.exchange.commit(self.status, complete=complete)
        except Exception as error:  # noqa: BLE001 - whatever fails there
            self.failed(error)
