"""Read addresses of PostgreSQL databases as libpq does, and say which parts of one may be shown.

A password can be in many places: before the host, with any character but ``@`` and ``/`` in it;
after the question mark, under a name that may itself be encoded; or in ``name=value`` pairs. So a
public address is not made by removing secrets. It is put together from the parts that are known to
be harmless. If libpq would not accept an address, only its scheme is shown.
"""

from __future__ import annotations

import os
import re

from msgspec import Struct

LIBPQ = ("postgresql://", "postgres://")
# Options in an address that are meant for Lockstitch and not for libpq.
OURS = ("schema", "owner", "lease", "timeout", "compress")
HIDDEN = "…"
UNREAD = (
    "it is not an address of a PostgreSQL database that libpq understands; write "
    "postgresql://user:password@host:port/database, with %40 for an @ in the password, %2F for "
    "a /, and %25 for a %"
)
_HARMLESS = (
    *OURS,
    "sslmode",
    "sslnegotiation",
    "connect_timeout",
    "application_name",
    "client_encoding",
    "target_session_attrs",
    "load_balance_hosts",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "channel_binding",
    "gssencmode",
    "require_auth",
    "service",
    "options",
)
_KNOWN = {
    *_HARMLESS,
    *("user", "password", "passfile", "dbname", "host", "hostaddr", "port", "servicefile"),
    *("fallback_application_name", "sslcompression", "sslcert", "sslkey", "sslcertmode"),
    *("sslpassword", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "requirepeer", "gsslib"),
    *("min_protocol_version", "max_protocol_version", "ssl_min_protocol_version"),
    *("ssl_max_protocol_version", "krbsrvname", "gssdelegation", "replication"),
    *("scram_client_key", "scram_server_key", "oauth_issuer", "oauth_client_id"),
    *("oauth_client_secret", "oauth_scope", "oauth_ca_file", "sslkeylogfile"),
}
_SECRETS = (
    *("password", "sslpassword", "sslkey", "oauth_client_secret"),
    *("scram_client_key", "scram_server_key", "options"),
)
# No path or address is longer. A longer text may be the id of a session, and is not parsed.
_LONGEST = 4096
_PATHS = ("sqlite", "jsonl", "memory", "file")
# Compiled on first use, because most targets are not addresses and start-up time matters.
_SCHEME = r"((?:[A-Za-z][\w+.\-]+:)*[A-Za-z][\w+.\-]+(?=://)|[A-Za-z][\w+.\-]+):"
_ENCODED = r"%(?![0-9A-Fa-f]{2})|%00|\0"
_TELLING = r"(?i)(?:^|\s)\w*(?:pass|pwd|secret)\w*\s*="
_USER = r"[^\s:/?#&=%'\"\\]+"
_HOST = r"[\w.\-]*|[0-9A-Fa-f:.]+(?:%\w+)?|[/@][\w./\-]*"
_PORTS = r"[0-9,]*"
_DATABASE = r"[^@:/?#&='\"\\]*"
_VALUE = r"[^@/?#&='\\]*"
_SEARCH_PATH = r"(?:\s*(?:-c\s*|--)search_path=[\w,$\"\-]*)+\s*"


class Parsed(Struct, frozen=True):
    """A parsed address: the values for libpq, and the options for Lockstitch.

    ``plain`` is the address without Lockstitch's options. ``has_query`` says whether it has a
    question mark, so that more options can be appended.
    """

    plain: str
    values: dict[str, str]
    ours: tuple[tuple[str, str], ...]
    has_query: bool

    def __repr__(self) -> str:
        """Return the address without secrets."""
        return f"Parsed({public(self.plain)!r})"

    def all_of(self, name: str) -> tuple[str, ...]:
        """Return all values of one of Lockstitch's options; each may be a list with commas."""
        return tuple(value for own, value in self.ours if own == name)

    def last(self, name: str) -> str | None:
        """Return the last value of one of Lockstitch's options, or None."""
        return next(iter(reversed(self.all_of(name))), None)

    @property
    def is_odd(self) -> bool:
        """Whether a part looks like a piece of a password that should have been percent-encoded."""
        values = self.values
        return (
            HIDDEN in _place_of(values) or re.fullmatch(_DATABASE, values.get("dbname", "")) is None
        )

    @property
    def secrets(self) -> list[str]:
        """All values that must not be shown."""
        shown = public_parts(self.values)
        named = (*_SECRETS, "user", "host", "hostaddr", "port", "dbname")
        return [self.values[one] for one in named if self.values.get(one) and one not in shown]


def parsed(address: str) -> Parsed | None:
    """Return a parsed PostgreSQL address, a URL or pairs; None if libpq would not accept it."""
    if len(address) > _LONGEST:
        return None
    if not address.startswith(LIBPQ):
        values = _pairs(address)
        if values is None:
            return None
        ours = tuple((name, value) for name, value in values.items() if name in OURS)
        return None if ours else Parsed(address, values, (), has_query=False)
    start = address.index("://") + 3
    found: dict[str, str] = {}
    credentials, at, rest = _split_at_first(address[start:], "@/")
    if at == "@":
        found["user"], colon, password = credentials.partition(":")
        found["password"] = password if colon else ""
    else:
        rest = address[start:]
    place = _hosts(rest)
    if place is None:
        return None
    found["host"], found["port"], rest = place
    database, mark, query = rest.partition("?")
    found["dbname"] = database.removeprefix("/")
    written = query.removesuffix("&").split("&") if query else []
    pairs = [one.partition("=") for one in written]
    if any(not equals or "=" in value for _, equals, value in pairs):
        return None
    decoded = [(_decoded(name), _decoded(value)) for name, _, value in pairs]
    # the way JDBC writes it
    decoded = [("sslmode", "require") if one == ("ssl", "true") else one for one in decoded]
    named = {name: _decoded(value) for name, value in found.items() if value}
    if any(None in pair for pair in decoded) or None in named.values():
        return None
    every = [*named.items(), *decoded]
    values = {str(name): str(value) for name, value in every if name not in OURS}
    ours = tuple((str(name), str(value)) for name, value in decoded if name in OURS)
    kept = zip(written, decoded, strict=True)
    plain = "&".join(raw for raw, (name, _) in kept if name not in OURS)
    before = address.removesuffix(f"{mark}{query}") if mark else address
    whole = f"{before}?{plain}" if plain else before
    return Parsed(whole, values, ours, bool(mark)) if values.keys() <= _KNOWN else None


def _split_at_first(text: str, marks: str) -> tuple[str, str, str]:
    """Split a text at the first of some marks.

    Return what is before, the mark, and what is after.
    """
    place = next((number for number, one in enumerate(text) if one in marks), len(text))
    return text[:place], text[place : place + 1], text[place + 1 :]


def _hosts(text: str) -> tuple[str, str, str] | None:
    """Return the hosts and their ports; None if a bracket is not closed."""
    hosts: list[str] = []
    ports: list[str] = []
    mark = ","
    while mark == ",":
        if text.startswith("["):
            host, closed, text = text[1:].partition("]")
            if not closed or not host or (text and text[0] not in ":/?,"):
                return None
            mark, text = text[:1], text[1:]
        else:
            host, mark, text = _split_at_first(text, ":/?,")
        port = ""
        if mark == ":":
            port, mark, text = _split_at_first(text, "/?,")
        hosts.append(host)
        ports.append(port)
    return ",".join(hosts), ",".join(ports), f"{mark}{text}"


def _decoded(text: str) -> str | None:
    """Return a part of an address decoded as libpq does it; None if it is not valid."""
    if re.search(_ENCODED, text):
        return None
    try:
        from urllib.parse import unquote_to_bytes  # noqa: PLC0415 - most targets are no addresses

        return unquote_to_bytes(text.strip(" ")).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def _pairs(text: str) -> dict[str, str] | None:
    """Return the values of ``name=value`` pairs.

    None if they are not, or have a name libpq rejects.
    """
    found: dict[str, str] = {}
    rest = text.lstrip()
    while rest:
        match = re.match(r"(\w+)\s*=\s*", rest)
        if match is None or match[1] not in _KNOWN:
            return None
        rest = rest[match.end() :]
        pattern = r"'((?:[^'\\]|\\.)*)'" if rest.startswith("'") else r"((?:[^\s\\]|\\.)*)"
        value = re.match(pattern, rest, re.DOTALL)
        if value is None:
            return None
        found[match[1]] = re.sub(r"\\(.)", r"\1", value[1], flags=re.DOTALL)
        rest = rest[value.end() :].lstrip()
    return found or None


def public(target: str) -> str:
    """Return a target in a form that may be shown: an address without secrets, or a path as it is.

    All messages, reports, hints and stored texts use this function.
    """
    if target.startswith(LIBPQ):
        found = parsed(target)
        scheme = target[: target.index("://") + 3]
        if found is None:
            return f"{scheme}{HIDDEN}"
        place = short_address(found.values).removeprefix("postgresql://")
        shown = [(n, found.values[n]) for n in public_parts(found.values) if n in _HARMLESS]
        query = "&".join(f"{name}={_quoted(value, ',')}" for name, value in [*shown, *found.ours])
        return f"{scheme}{place}?{query}" if query else f"{scheme}{place}"
    match = re.match(_SCHEME, target)
    if match is not None:
        rest = target[match.end() :]
        is_path = match[1].lower() in _PATHS and (rest[:3] == "///" or rest[:2] != "//")
        has_more = rest.startswith("//") and any(mark in rest for mark in "@?#")
        is_hidden = "postgres" in match[1].lower() or has_more
        return f"{match[0]}//{HIDDEN}" if is_hidden and not is_path else target
    pairs = _pairs(target[:_LONGEST]) if "=" in target else None
    if pairs is not None:
        return short_address(pairs)
    return HIDDEN if re.search(_TELLING, target[:_LONGEST]) else target


def address_problem(target: str) -> str:
    """Return why a target is not a valid address; "" if it is one, or if it is a path."""
    if target.startswith(LIBPQ):
        return "" if parsed(target) is not None else UNREAD
    match = re.match(_SCHEME, target)
    if match is not None and target.startswith("//", match.end()):
        if "postgres" in match[1].lower():
            return "an address of PostgreSQL does not begin like this: write postgresql://…"
        if match[1].lower() not in _PATHS:
            return "it is neither a file nor the address of a known store"
    pairs = _pairs(target) or {}
    if pairs.keys().isdisjoint({"host", "hostaddr", "dbname", "service", "password"}):
        return ""
    return "it is written as name=value pairs: write it as postgresql://user@host/database"


def short_address(values: dict[str, str]) -> str:
    """Return a short address of a database: user, host and name, without options."""
    database = f"/{_shown_part(values['dbname'], _DATABASE)}" if values.get("dbname") else ""
    return f"postgresql://{_place_of(values)}{database}"


def public_parts(values: dict[str, str]) -> list[str]:
    """Return the names of the values in an address that may be shown."""
    patterns = {"user": _USER, "host": _HOST, "hostaddr": _HOST, "dbname": _DATABASE}
    patterns |= dict.fromkeys(_HARMLESS, _VALUE) | {"options": _SEARCH_PATH, "port": _PORTS}
    return [
        name
        for name, value in values.items()
        if name in patterns
        and all(
            re.fullmatch(patterns[name], one)
            for one in (value.split(",") if name in {"host", "hostaddr"} else [value])
        )
    ]


def _place_of(values: dict[str, str]) -> str:
    user = f"{_shown_part(values['user'], _USER)}@" if values.get("user") else ""
    hosts = (values.get("host") or values.get("hostaddr") or "").split(",")
    ports = values.get("port", "").split(",")
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    places: list[str] = []
    for host, port in zip(hosts, ports, strict=True):
        is_ipv6 = ":" in host and re.fullmatch(_HOST, host)
        place = f"[{host}]" if is_ipv6 else _shown_part(host, _HOST)
        is_number = port.isascii() and port.isdigit()
        places.append(f"{place}:{port if is_number else HIDDEN}" if port else place)
    return f"{user}{','.join(places)}"


def _shown_part(text: str, pattern: str) -> str:
    if text == HIDDEN or re.fullmatch(pattern, text) is None:
        return HIDDEN
    return _quoted(text)


class Split(Struct, frozen=True):
    """The parts of an address of a file or folder, not decoded."""

    netloc: str
    path: str
    query: str
    fragment: str


def split(url: str) -> Split:
    """Split an address into its parts; unlike urllib, accept an unclosed bracket."""
    rest, _, fragment = url.partition(":")[2].partition("#")
    rest, _, query = rest.partition("?")
    if not rest.startswith("//"):
        return Split("", rest, query, fragment)
    netloc, slash, path = rest[2:].partition("/")
    return Split(netloc, f"{slash}{path}", query, fragment)


def _quoted(text: str, safe: str = "") -> str:
    from urllib.parse import quote  # noqa: PLC0415 - as above

    return quote(text, safe=safe, errors="surrogateescape")


def encoded_path(path: str | os.PathLike[str]) -> str:
    """Return a file's path as it is written in an address; its bytes need not be UTF-8."""
    return _quoted(os.fspath(path), safe="/")


def decoded_path(url: str) -> str:
    """Return the path in the address of a file or a folder, with the slash before it."""
    from urllib.parse import unquote  # noqa: PLC0415 - as above

    return unquote(split(url).path, errors="surrogateescape")


def with_option(url: str, name: str, value: str) -> str:
    """Return an address with one more option after those that it has."""
    found = parsed(url)
    mark = "&" if found is not None and found.has_query else "?"
    return f"{url}{mark}{name}={_quoted(value)}"
