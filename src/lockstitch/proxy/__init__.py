"""A proxy between any client and its provider, which heals requests in flight and records them.

This module has its settings: where it listens and sends, its limits, and how requests to AWS are
signed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct, field, structs

from lockstitch.dialects import ANTHROPIC, BEDROCK, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES
from lockstitch.dialects.profiles import PROFILES
from lockstitch.errors import Unreadable, UsageError
from lockstitch.files import read

AWS = "aws"
# AWS gives the service the name of the dialect.
_SERVICE = BEDROCK
_ALGORITHM = "AWS4-HMAC-SHA256"
_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.")
# Headers of a client's own signature, which is for another host and perhaps another body.
_REPLACED = ("authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256")

Headers = list[tuple[str, str]]


class Credentials(Struct, frozen=True):
    """The keys of an AWS account."""

    key: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        """Return nothing of the keys, since a repr may end up in a log."""
        return "Credentials(…)"


def credentials_in(environment: Mapping[str, str]) -> Credentials:
    """Return the keys in the environment, in the variables that AWS tools use."""
    key = environment.get("AWS_ACCESS_KEY_ID", "")
    secret = environment.get("AWS_SECRET_ACCESS_KEY", "")
    if not key or not secret:
        raise UsageError(
            'an upstream has sign = "aws": set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and '
            "AWS_SESSION_TOKEN if there is one, in the proxy's environment"
        )
    return Credentials(key, secret, environment.get("AWS_SESSION_TOKEN", ""))


def region_of(url: str) -> str:
    """Return the region in an AWS address."""
    found = _REGION.search(f"{urlsplit(url).hostname}.")
    if found is None:
        raise UsageError(
            'an upstream with sign = "aws" needs an AWS address that contains a region'
        )
    return found[1]


def sign(  # noqa: PLR0913, PLR0917 - what is signed is all of these
    method: str, url: str, headers: Headers, body: bytes, keys: Credentials, now: datetime
) -> Headers:
    """Return the headers of a request with a new signature in place of the client's, if any."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    passed = [(name, value) for name, value in headers if name.lower() not in _REPLACED]
    passed.append(("X-Amz-Date", stamp))
    if keys.token:
        passed.append(("X-Amz-Security-Token", keys.token))
    parts = urlsplit(url)
    chosen = {"host": parts.netloc}
    for name, value in passed:
        if name.lower() == "content-type" or name.lower().startswith("x-amz-"):
            chosen[name.lower()] = " ".join(value.split())
    names = ";".join(sorted(chosen))
    lines = [f"{name}:{chosen[name]}" for name in sorted(chosen)]
    digest = hashlib.sha256(body).hexdigest()
    path = quote(parts.path or "/", safe="/~")
    pairs = sorted(pair.partition("=")[::2] for pair in parts.query.split("&") if pair)
    query = "&".join(f"{name}={value}" for name, value in pairs)
    asked = "\n".join([method, path, query, *lines, "", names, digest])
    scope = f"{stamp[:8]}/{region_of(url)}/{_SERVICE}/aws4_request"
    text = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for step in scope.split("/"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    said = f"{_ALGORITHM} Credential={keys.key}/{scope}, SignedHeaders={names}"
    return [*passed, ("Authorization", f"{said}, Signature={signature}")]


DIALECTS = (ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, GEMINI, BEDROCK)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MIB = 1 << 20
_HIGHEST_PORT = 65535
_SHORTEST_TOKEN = 16
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")
_TOKEN = re.compile(r"[A-Za-z0-9._~+-]+")


class Upstream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One address to which requests are sent.

    With a ``prefix`` it takes the requests whose path begins with it, and the prefix is removed.
    Without one it takes the requests of the vendors in ``dialects``, or all if none are named.
    ``profile`` names the rules if they differ from the dialect's own (``openai-chat:mistral``).
    ``proxy`` is the address of an HTTP proxy on the way. ``sign`` is ``aws`` if requests are signed
    here, with the keys in the environment of this process.
    """

    url: str
    prefix: str = ""
    dialects: tuple[str, ...] = ()
    profile: str = ""
    proxy: str = ""
    sign: str = ""


def _vendor(url: str, *dialects: str) -> Upstream:
    return Upstream(url=url, dialects=dialects)


VENDORS = (
    _vendor("https://api.anthropic.com", ANTHROPIC),
    _vendor("https://api.openai.com", OPENAI_CHAT, OPENAI_RESPONSES),
    _vendor("https://generativelanguage.googleapis.com", GEMINI),
    _vendor("https://bedrock-runtime.us-east-1.amazonaws.com", BEDROCK),
)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of the proxy; times are in seconds, sizes in bytes.

    A configuration file has the same names, a table for each ``upstream``, and ``token_file``
    instead of ``token``. If ``token`` is set, every request must have it; it has to be set in order
    to listen beyond this machine. ``hosts`` and ``origins`` are further names that requests may use
    for this host, and web pages that may send requests. ``record`` is the address of the store that
    keeps every conversation.
    """

    host: str = "127.0.0.1"
    port: int = 8484
    upstreams: tuple[Upstream, ...] = field(default=VENDORS, name="upstream")
    token: str = field(default="", name="token_file")
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    record: str = ""
    fail_closed: bool = False
    retry: bool = True
    workers: int = 1
    max_body: int = 256 * _MIB
    connect_timeout: float = 30.0
    idle_timeout: float = 900.0
    client_timeout: float = 60.0
    grace: float = 30.0

    def __repr__(self) -> str:
        """Return where it listens, but not the token or the upstreams, since a log may show it."""
        return f"Settings(host={self.host!r}, port={self.port})"

    @property
    def is_local(self) -> bool:
        """Whether only programs on this machine can reach it."""
        return self.host in LOOPBACK


def parse_settings(text: str, folder: Path) -> Settings:
    """Return the settings in a TOML file; relative paths in it start at ``folder``."""
    try:
        table = tomllib.loads(text)
        made = msgspec.convert(table, Settings)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"the configuration cannot be used: {error}") from None
    if "upstream" in table and all(one.prefix or one.dialects for one in made.upstreams):
        # if none of the named upstreams takes everything, the vendors' own come after them
        made = structs.replace(made, upstreams=made.upstreams + VENDORS)
    if "token_file" in table:
        made = structs.replace(made, token=token_in(folder / made.token))
    return check_settings(made)


def token_in(path: Path) -> str:
    """Return the token in a file."""
    try:
        return read.read_file(path).decode().strip()
    except Unreadable as error:
        raise Unreadable(f"{error}").about(path) from None
    except UnicodeDecodeError as error:
        raise Unreadable("the token is not text; `openssl rand -hex 24` makes one").about(
            path
        ) from error


def check_settings(settings: Settings) -> Settings:
    """Return the settings; raise ``UsageError`` if they would not work or not be safe."""
    if not 0 <= settings.port <= _HIGHEST_PORT:
        raise UsageError(f"the port must be a number from 0 to {_HIGHEST_PORT}")
    if not settings.upstreams:
        raise UsageError("there is no upstream to send requests to: name one")
    if settings.workers < 1:
        raise UsageError("the number of workers must be 1 or more")
    if settings.token and (
        len(settings.token) < _SHORTEST_TOKEN or not _TOKEN.fullmatch(settings.token)
    ):
        raise UsageError(
            f"a token must have at least {_SHORTEST_TOKEN} characters, all of them letters, digits "
            "or one of . _ ~ + -; `openssl rand -hex 24` makes one"
        )
    if not settings.is_local and not settings.token:
        raise UsageError(
            f"listening on {settings.host} lets other machines in: set a token first, in the "
            "environment variable LOCKSTITCH_PROXY_TOKEN or with --token-file"
        )
    numbers = (settings.max_body, settings.connect_timeout, settings.idle_timeout)
    if min(*numbers, settings.client_timeout) <= 0 or settings.grace < 0:
        raise UsageError("sizes and times must be greater than 0; only `grace` may be 0")
    for upstream in settings.upstreams:
        for address in filter(None, (upstream.url, upstream.proxy)):
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
                raise UsageError(
                    "an upstream must be an http or https address without a user in it"
                )
            if parts.query or parts.fragment:
                raise UsageError("the address of an upstream must have no query and no fragment")
        if not _PREFIX.fullmatch(upstream.prefix) or upstream.prefix.startswith("/lockstitch"):
            raise UsageError(
                "a prefix must be a path such as /openrouter that does not begin with /lockstitch"
            )
        unknown = [name for name in upstream.dialects if name not in DIALECTS]
        if unknown:
            raise UsageError(f"unknown API {unknown[0]!r}; known: {', '.join(DIALECTS)}")
        if upstream.sign:
            if upstream.sign != AWS:
                raise UsageError('`sign` must be "aws", or be left out')
            region_of(upstream.url)
        if upstream.profile and upstream.profile not in PROFILES:
            raise UsageError(f"unknown profile {upstream.profile!r}; known: {', '.join(PROFILES)}")
    return settings


def without_prefix(upstreams: tuple[Upstream, ...], path: str) -> tuple[Upstream | None, str]:
    """Return the upstream with the longest prefix of a path, and the rest of the path."""
    for upstream in sorted(upstreams, key=lambda one: len(one.prefix), reverse=True):
        if upstream.prefix and path.startswith(f"{upstream.prefix}/"):
            return upstream, path[len(upstream.prefix) :]
    return None, path


def upstream_for(upstreams: tuple[Upstream, ...], vendor: str) -> Upstream | None:
    """Return the first upstream without a prefix that takes a vendor's requests."""
    for upstream in upstreams:
        if not upstream.prefix and (not upstream.dialects or vendor in upstream.dialects):
            return upstream
    return None


def profile_for(upstream: Upstream, dialect: str) -> str:
    """Return the rules for a body: the upstream's, if they are for its dialect."""
    return upstream.profile if upstream.profile.partition(":")[0] == dialect else dialect
