"""Secrets that their name gives away: ``API_KEY=…``, ``"password": "…"``, ``Authorization: …``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from lockstitch.redaction.formats import Span
from lockstitch.redaction.shapes import (
    RANDOM_NEAR_A_NAME,
    is_hex,
    is_id,
    is_random,
    is_reference,
    is_uuid,
    is_words,
)

_KINDS = {
    "passphrase": "password",
    "passwd": "password",
    "password": "password",
    "pwd": "password",
    "secret": "secret",
    "token": "token",
    "credential": "credential",
    "credentials": "credential",
    "key": "key",
}
# What makes a key a secret, and what makes a token none.
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
_BEFORE = 24
_WORD_BEFORE = re.compile(r"([A-Za-z]+)[_. -]?$")
_FLAG = re.compile(r"(?:^|\s)--[\w-]*$")

_NAME = re.compile(r"(?i:passphrase|passw(?:or)?d|pwd|secret|token|credentials?|key)")
_TAIL = re.compile(r"(?:_[A-Z0-9]+){1,4}|_?\d{1,3}|(?![A-Za-z0-9])")
_FIELD_TAIL = re.compile(r"(?:_[A-Z0-9]+){1,4}|(?:s|_?\d{1,3})?$")

# Every part is bounded in what it reads, so that no text makes this quadratic.
_LONGEST = 256
_SIGN = re.compile(
    r"""(?P<close>\\{0,3}["'`\]]{0,2})(?P<before>[ \t*]{0,8})"""
    r"""(?P<sign>=>|:=|={1,2}|:(?!:)|(?<=[ \t])is:?(?=[ \t])|(?<=["'`]),|>(?=[^\s<]))"""
    r"""(?P<after>[ \t*]{0,8})"""
)
_SPACE = re.compile(r"[ \t]{1,8}(?=\S)")
_ESCAPED = re.compile(r"""\\{1,7}["'](?![\s),;\]}])([^"'\\\n]{1,256})""")
_QUOTED = re.compile(r"""[bBrRuUfF]{0,2}(["'`])(?![\s),;\]}])((?:\\.|(?!\1)[^\\\n]){1,256}+)""")
_BARE = re.compile(r"""[^\s"'`,;<>(){}\[\]\\|&]{1,256}+""")
_IN_ENV = re.compile(r"""[^\s"'`;\\]{1,256}+""")
_REST = re.compile(r"""[^\s"'`\\,;]*+""")
_NEAR = re.compile(
    r"[^\n]{0,40}?(?<![A-Za-z0-9+/_.-])([A-Za-z0-9+/_-]{20,256}+={0,2})(?![A-Za-z0-9.])"
)
_IDENTIFIER = re.compile(r"[A-Za-z_]+\d{0,2}(?:\.[A-Za-z_]\w*)*")
_CODE = ("(", "[", "{")

_SHORTEST_PASSWORD = 4
_SHORTEST = 8
_LONG_WORD = 20


def named(text: str, at: int) -> Iterator[Span]:
    """Find the secret that the name at this place announces: assigned to it, or close behind."""
    name = _NAME.match(text, at)
    tail = _TAIL.match(text, name.end()) if name else None
    if name is None or tail is None or _is_plain(tail[0]):
        return
    kind = _kind(text, name)
    if kind is None:
        return
    found = _assigned(text, name, tail.end(), kind) or _near(text, tail.end(), kind)
    if found:
        yield found


@lru_cache(4096)
def kind_of(field: str) -> str | None:
    """Give the kind of secret that a field of this name holds, None if it holds none."""
    for name in reversed(list(_NAME.finditer(field[:_LONGEST]))):
        tail = _FIELD_TAIL.match(field, name.end())
        if tail and tail.end() == len(field):
            return None if _is_plain(tail[0]) else _kind(field, name)
    return None


def fits(kind: str, value: str) -> bool:
    """Tell whether a field's whole value, or a text in quotes, is a secret of this kind."""
    if is_reference(value):
        return False
    is_spaced = any(map(str.isspace, value))
    if kind == "password":
        return len(value) >= _SHORTEST_PASSWORD and (not is_spaced or _has_digit(value))
    return not is_spaced and _is_token(value)


def _kind(text: str, name: re.Match[str]) -> str | None:
    kind = _KINDS[name[0].lower()]
    word = _WORD_BEFORE.search(text[max(0, name.start() - _BEFORE) : name.start()])
    before = word[1].lower() if word else ""
    if kind == "key":
        return "api-key" if before.endswith(_SECRET_KEYS) else None
    return None if kind == "token" and before.endswith(_PLAIN_TOKENS) else kind


def _is_plain(tail: str) -> bool:
    """Tell whether a name goes on to say that it is about a secret, not one."""
    return tail.rpartition("_")[2] in _PLAIN_ENDINGS


def _assigned(text: str, name: re.Match[str], at: int, kind: str) -> Span | None:
    before = text[max(0, name.start() - _BEFORE) : name.start()]
    sign = _SIGN.match(text, at)
    if sign is None:
        space = _SPACE.match(text, at) if _FLAG.search(before) else None
        return _value(text, space.end(), kind, tight=True) if space else None
    if sign["sign"] == ">" and "<" not in before:
        return None
    tight = sign["sign"] in ("=", ">") and not sign["before"] and not sign["after"]
    if tight and name[0].isupper() and (value := _IN_ENV.match(text, sign.end())):
        return _in_env(text, value, kind)
    return _value(text, sign.end(), kind, tight=tight or bool(sign["close"]))


def _in_env(text: str, value: re.Match[str], kind: str) -> Span | None:
    """Take the value of ``NAME=value`` as a shell would, whatever it looks like."""
    secret = value[0].rstrip(",)]}&|>")
    shortest = _SHORTEST_PASSWORD if kind == "password" else _SHORTEST
    if len(secret) < shortest or is_reference(secret):
        return None
    return _whole(text, value.start(), secret, kind)


def _value(text: str, at: int, kind: str, *, tight: bool) -> Span | None:
    quoted = _ESCAPED.match(text, at) or _QUOTED.match(text, at)
    if quoted:
        group = quoted.lastindex or 0
        secret = quoted[group]
        return _whole(text, quoted.start(group), secret, kind) if fits(kind, secret) else None
    bare = _BARE.match(text, at)
    if bare is None or text[bare.end() : bare.end() + 1] in _CODE:
        return None
    secret = bare[0].rstrip(".:!?")
    return _whole(text, bare.start(), secret, kind) if _is_bare(kind, secret, tight) else None


def _whole(text: str, start: int, secret: str, kind: str) -> Span:
    """Give the span of a value, beyond what was read of it if that was not all."""
    end = start + len(secret)
    rest = _REST.match(text, end) if len(secret) == _LONGEST else None
    return Span(start, rest.end() if rest else end, kind)


def _is_bare(kind: str, value: str, tight: bool) -> bool:
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
    return _has_digit(value) and not value.isdigit()


def _has_digit(value: str) -> bool:
    return any(map(str.isdigit, value))


def _near(text: str, at: int, kind: str) -> Span | None:
    token = _NEAR.match(text, at)
    if token is None or is_id(token[1]) or not is_random(token[1], RANDOM_NEAR_A_NAME):
        return None
    return Span(*token.span(1), kind)


_AUTHORIZATION = re.compile(
    r"""(?i:authorization)[\\"'\]]{0,4}\s{0,4}[:=,]\s{0,4}[\\"'`]{0,4}"""
    r"(?:(?i:bearer|basic|token|apikey|digest|negotiate|bot)\s{1,4})?"
    r"([A-Za-z0-9._~+/:-]{7,}+={0,2}(?<!\.))"
)
_BEARER = re.compile(r"(?i:bearer)\s{1,4}([A-Za-z0-9._~+/-]{15,}+={0,2}(?<!\.))")
_USER = re.compile(r""" -u[ =]{1,2}["']?[^\s:"'$]{1,64}:([^\s"'@$]{4,128})""")


def authorization(text: str, at: int) -> Iterator[Span]:
    """Find the credentials in an ``Authorization`` header."""
    yield from _credentials(_AUTHORIZATION.match(text, at), "token")


def bearer(text: str, at: int) -> Iterator[Span]:
    """Find the token behind the word Bearer."""
    yield from _credentials(_BEARER.match(text, at), "token")


def user_option(text: str, at: int) -> Iterator[Span]:
    """Find the password of ``curl -u user:password``."""
    yield from _credentials(_USER.match(text, at), "password")


def _credentials(found: re.Match[str] | None, kind: str) -> Iterator[Span]:
    if found and not (is_words(found[1]) or is_reference(found[1]) or found[1].isdigit()):
        yield Span(*found.span(1), kind)
