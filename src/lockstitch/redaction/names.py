"""Secrets that their name gives away: ``API_KEY=…``, ``"password": "…"``, ``Authorization: …``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from lockstitch.redaction.formats import Span
from lockstitch.redaction.shapes import is_hex, is_random, is_reference, is_uuid, is_words

_KINDS = {
    "passphrase": "password",
    "passwd": "password",
    "password": "password",
    "pwd": "password",
    "secret": "secret",
    "token": "token",
    "credential": "credential",
    "credentials": "credential",
    "key": "api-key",
}
# What makes a key a secret one, and a token none.
_SECRET_KEYS = (
    *("api", "access", "secret", "private", "auth", "account", "encryption", "signing", "master"),
    *("service", "role", "license", "client", "shared", "storage", "subscription", "admin"),
    *("deploy", "session", "webhook", "app", "application", "consumer", "root", "bot"),
)
_PLAIN_TOKENS = (
    *("page", "next", "continuation", "pagination", "sync", "resume", "cancel", "cancellation"),
    *("stop", "eos", "bos", "pad", "unk", "mask", "sep", "special", "max", "prev", "previous"),
    *("start", "end", "first", "last", "cursor", "per", "design"),
)
_PLAIN_ENDINGS = frozenset(
    "ID URL URI PATH FILE NAME TYPE TTL EXPIRY EXPIRES COUNT LIMIT LENGTH SIZE HOST USER PREFIX "
    "HEADER ENV VAR REGEX PATTERN ENDPOINT ALGORITHM POLICY BUDGET USAGE INDEX".split()
)
_WORD_BEFORE = re.compile(r"([A-Za-z]+)[_. -]?$")
_BEFORE = 24

_NAME = re.compile(r"(?i:passphrase|passw(?:or)?d|pwd|secret|token|credentials?|key)")
_TAIL = re.compile(r"(?:_[A-Z0-9]+){1,4}|_?\d{1,3}|(?=[^A-Za-z0-9]|$)")
_PLURAL = re.compile(r"(?:_[A-Z0-9]+){1,4}|(?:s|_?\d{1,3})?$")

# The parts of an assignment; what is read is bounded, so that no text makes this quadratic.
_SEPARATOR = re.compile(
    r"""(?P<close>\\{0,3}["'`\]]{0,2})(?P<before>[ \t]{0,8})"""
    r"""(?P<sign>=>|:=|={1,2}|:(?!:)|(?<=[ \t])is(?=[ \t]))(?P<after>[ \t]{0,8})"""
)
_SPACE = re.compile(r"[ \t]+")
_ESCAPED = re.compile(r"""\\{1,7}["']([^"'\\\n]{1,256})""")
_QUOTED = re.compile(r"""[bBrRuUfF]{0,2}(["'`])((?:\\.|(?!\1)[^\\\n]){1,256}+)""")
_BARE = re.compile(r"""[^\s"'`,;<>(){}\[\]\\|&]{1,256}+""")
_IN_ENV = re.compile(r"""[^\s"'`;\\]{1,256}+""")
_REST_QUOTED = re.compile(r"""[^\s"'`\\]*+""")
_REST_BARE = re.compile(r"""[^\s"'`,;<>(){}\[\]\\|&]*+""")
_IDENTIFIER = re.compile(r"[A-Za-z_]+\d{0,2}(?:\.[A-Za-z_]\w*)*")
_NEAR = re.compile(r"[^\n]{0,40}?(?<![A-Za-z0-9+/_.-])([A-Za-z0-9+/_-]{20,256}+={0,2})(?![\w.])")

_LONGEST = 256
_SHORTEST_PASSWORD = 4
_SHORTEST = 8
_LONG_WORD = 20


def named(text: str, at: int) -> Iterator[Span]:
    """Find the secret that the name at this place announces."""
    name = _NAME.match(text, at)
    kind = _kind(text, name) if name else None
    tail = _TAIL.match(text, name.end()) if name and kind else None
    if name is None or kind is None or tail is None or _is_plain(tail[0]):
        return
    found = _assigned(text, name, tail.end(), kind)
    yield found if found else from_near(text, tail.end(), kind)


def from_near(text: str, at: int, kind: str) -> Span:
    """Give what looks random and stands close behind a name, an empty span if nothing does."""
    token = _NEAR.match(text, at)
    if token and is_random(token[1], share=0.25) and not is_id(token[1]):
        return Span(*token.span(1), kind)
    return Span(at, at, kind)


_IDS = re.compile(
    r"(?:toolu|srvtoolu|mcptoolu|tooluse|call|msg|req|resp|rs|fc|ctc|lsh|run|step|thread|asst|file"
    r"|session|item|conv|cmpl|chatcmpl|gen|batch|evt|ws|ci|cu|mcp|org|proj|user|sha\d{1,3})[_-]"
)


def is_id(token: str) -> bool:
    """Tell whether this is an id or a checksum by its prefix."""
    return _IDS.match(token) is not None


@lru_cache(4096)
def kind_of(key: str) -> str | None:
    """Give the kind of secret that a field of this name holds, None if it holds none."""
    for name in reversed(list(_NAME.finditer(key[:_LONGEST]))):
        tail = _PLURAL.match(key, name.end())
        if tail and tail.end() == len(key) and not _is_plain(tail[0]):
            return _kind(key, name)
    return None


def fits(kind: str, value: str) -> bool:
    """Tell whether a field's whole value, or a quoted text, is such a secret."""
    if is_reference(value) or len(value) > _LONGEST:
        return False
    is_spaced = any(char.isspace() for char in value)
    if kind == "password":
        has_digit = any(char.isdigit() for char in value)
        return len(value) >= _SHORTEST_PASSWORD and (has_digit or not is_spaced)
    return not is_spaced and _is_token(value)


def _kind(text: str, name: re.Match[str]) -> str | None:
    kind = _KINDS[name[0].lower()]
    word = _WORD_BEFORE.search(text[max(0, name.start() - _BEFORE) : name.start()])
    before = word[1].lower() if word else ""
    if kind == "api-key":
        if not before.endswith(_SECRET_KEYS):
            return None
        return "private-key" if before.endswith("private") else kind
    return None if kind == "token" and before.endswith(_PLAIN_TOKENS) else kind


def _is_plain(tail: str) -> bool:
    """Tell whether a name goes on to say that it is about a secret, not one."""
    return tail.rpartition("_")[2] in _PLAIN_ENDINGS


def _assigned(text: str, name: re.Match[str], at: int, kind: str) -> Span | None:
    sign = _SEPARATOR.match(text, at)
    if sign is None:
        is_flag = "--" in text[max(0, name.start() - _BEFORE) : name.start()].split(" ")[-1]
        space = _SPACE.match(text, at) if is_flag else None
        return _value(text, space.end(), kind, tight=True) if space else None
    is_env = name[0].isupper() and sign["sign"] == "=" and not (sign["before"] + sign["after"])
    if is_env and (value := _IN_ENV.match(text, sign.end())):
        return _in_env(text, value, kind)
    tight = sign["sign"] == "=" and not sign["before"] and not sign["after"]
    return _value(text, sign.end(), kind, tight=tight or bool(sign["close"]))


def _in_env(text: str, value: re.Match[str], kind: str) -> Span | None:
    """Take the value of ``NAME=value`` as a shell would, whatever it looks like."""
    secret = value[0].rstrip(",)]}&|>")
    shortest = _SHORTEST_PASSWORD if kind == "password" else _SHORTEST
    if len(secret) < shortest or is_reference(secret):
        return None
    end = value.start() + len(secret)
    return Span(value.start(), _beyond(text, end, len(secret)), kind)


def _value(text: str, at: int, kind: str, *, tight: bool) -> Span | None:
    quoted = _ESCAPED.match(text, at) or _QUOTED.match(text, at)
    if quoted:
        secret = quoted[quoted.lastindex or 0]
        start, end = quoted.span(quoted.lastindex or 0)
        return Span(start, _beyond(text, end, len(secret)), kind) if fits(kind, secret) else None
    bare = _BARE.match(text, at)
    if bare is None or text[bare.end() : bare.end() + 1] in tuple("([{"):
        return None
    secret = bare[0].rstrip(".:!?")
    if not _is_bare_secret(kind, secret, tight=tight):
        return None
    end = bare.start() + len(secret)
    return Span(bare.start(), _beyond(text, end, len(secret)), kind)


def _beyond(text: str, end: int, length: int) -> int:
    """Give the end of a value that is longer than what was read of it."""
    rest = _REST_QUOTED.match(text, end) if length >= _LONGEST else None
    return rest.end() if rest else end


def _is_bare_secret(kind: str, value: str, *, tight: bool) -> bool:
    """Tell whether a value without quotes is a secret, not a piece of code or prose."""
    if is_reference(value) or is_words(value):
        return False
    if kind == "password":
        return len(value) >= _SHORTEST_PASSWORD
    if is_hex(value) or is_uuid(value):
        return True
    return _is_token(value) and (tight or not _IDENTIFIER.fullmatch(value))


def _is_token(value: str) -> bool:
    if len(value) < _SHORTEST or is_id(value):
        return False
    if value.isalpha():
        return value.isascii() and len(value) >= _LONG_WORD
    return any(char.isdigit() for char in value) and not value.isdigit()


_AUTHORIZATION = re.compile(
    r"""(?i:authorization)[\\"'\]]{0,4}\s{0,4}[:=,]\s{0,4}[\\"'`]{0,4}"""
    r"(?:(?i:bearer|basic|token|apikey|digest|negotiate|bot)\s{1,4})?([A-Za-z0-9._~+/:-]{8,}+={0,2})"
)
_BEARER = re.compile(r"(?i:bearer)\s{1,4}([A-Za-z0-9._~+/-]{16,}+={0,2})")
_USER = re.compile(r""" -u[ =]{1,2}["']?[^\s:"'$]{1,64}:([^\s"'@$]{4,128})""")


def authorization(text: str, at: int) -> Iterator[Span]:
    """Find the credentials in an ``Authorization`` header."""
    yield from _judged(_AUTHORIZATION.match(text, at))


def bearer(text: str, at: int) -> Iterator[Span]:
    """Find the token behind the word Bearer."""
    yield from _judged(_BEARER.match(text, at))


def user_option(text: str, at: int) -> Iterator[Span]:
    """Find the password of ``curl -u user:password``."""
    found = _USER.match(text, at)
    if found and not found[1].isdigit() and not is_words(found[1]):
        yield Span(*found.span(1), "password")


def _judged(found: re.Match[str] | None) -> Iterator[Span]:
    if found and not is_words(found[1]) and not is_reference(found[1]):
        end = found.end(1) - (found[1].endswith(".") and 1)
        yield Span(found.start(1), end, "token")
