"""Which headers pass, who may ask at all, and what the proxy says in headers of its own."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from lockstitch.proxy.healing import Decision
from lockstitch.proxy.settings import LOOPBACK, Settings

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


def forwarded(raw: Iterable[tuple[bytes, bytes]], dropped: frozenset[str] = _OF_REQUEST) -> Headers:
    """Return the headers that pass, in their order and spelling."""
    pairs = [
        (name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in raw
    ]
    gone = dropped | _HOP_BY_HOP | _named(pairs)
    return [
        (name, value)
        for name, value in pairs
        if name.lower() not in gone and not name.lower().startswith(OWN)
    ]


def returned(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of a reply that pass, its size included."""
    return forwarded(raw, frozenset())


def _named(pairs: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Return what ``Connection`` names: those are of this connection, too."""
    named = (value for name, value in pairs if name.lower() == "connection")
    return frozenset(word.strip().lower() for value in named for word in value.split(","))


def without(headers: Headers, *names: str) -> Headers:
    """Return headers without some of them."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def readable(headers: Headers, more: Sequence[str] = ()) -> Headers:
    """Ask for a reply in an encoding that can be undone here, of those the client takes."""
    asked = ",".join(value for name, value in headers if name.lower() == "accept-encoding")
    words = [word.strip() for word in asked.split(",")]
    kept = [word for word in words if word.partition(";")[0].lower() in (*_READABLE, *more)]
    return [
        *without(headers, "accept-encoding"),
        ("Accept-Encoding", ", ".join(kept) or "identity"),
    ]


def notes(decision: Decision, *, retried: bool = False, error: str = "") -> Headers:
    """Return the headers that tell the client what was done to its request."""
    said: Headers = []
    if decision.repaired:
        said.append((REPAIRED, spelled(decision.repaired)))
    if decision.left:
        said.append((LEFT, spelled(decision.left)))
    if retried:
        said.append((RETRIED, "1"))
    if error:
        said.append((ERROR, error))
    return said


def spelled(counts: Mapping[str, int]) -> str:
    """Return counts of codes as one line: ``LS101=2, LS407=1``."""
    return ", ".join(f"{code}={count}" for code, count in counts.items())


def refusal(settings: Settings, headers: Mapping[str, str], token: str) -> str:
    """Return why a request may not pass, "" if it may.

    A name that only points here is how a web page gets past its browser's rules, and a token is
    what a web page does not have.
    """
    if settings.token:
        if not hmac.compare_digest(token.encode(), settings.token.encode()):
            return f"the token is missing or wrong: send it in the header {TOKEN}"
    elif not _is_host(settings, headers.get("host", "")):
        return "Host must be 127.0.0.1 or localhost, or one of `hosts` in the configuration"
    origin = headers.get("origin")
    if origin is not None and not _is_origin(settings, origin):
        return "requests of this web page are not taken; list its origin in `origins` to take them"
    if origin is None and headers.get("sec-fetch-site") == "cross-site":
        return "requests of a web page from elsewhere are not taken"
    return ""


def _is_host(settings: Settings, host: str) -> bool:
    name = host_name(host)
    return name is not None and (name in LOOPBACK or name in settings.hosts)


def _is_origin(settings: Settings, origin: str) -> bool:
    if origin in settings.origins:
        return True
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and host_name(rest) in LOOPBACK


def host_name(host: str) -> str | None:
    """Return the name in a ``Host`` header, without its port; None if it is not one."""
    try:
        parts = urlsplit(f"//{host}")
        port_is_fine = parts.port is None or parts.port >= 0
    except ValueError:
        return None
    is_bare = parts.netloc == host and "@" not in host
    return (parts.hostname or "") if is_bare and port_is_fine else None
