"""Secrets that their name gives away: ``API_KEY=…``, ``"password": "…"``, ``Authorization: …``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from lockstitch.redaction import encodings
from lockstitch.redaction.formats import Span
from lockstitch.redaction.shapes import (
    RANDOM_NEAR_A_NAME,
    is_hex,
    is_id,
    is_name,
    is_random,
    is_reference,
    is_uuid,
    is_words,
)

# Every name by which a secret goes, in small letters, and the kind it stands for.
NAMES = {
    b"key": "key",
    b"password": "password",
    b"passwd": "password",
    b"passphrase": "password",
    b"pwd": "password",
    b"pass": "password",
    b"psk": "password",
    b"secret": "secret",
    b"token": "token",
    b"credential": "credential",
}
_PASS = b"pass"
_QUOTES = ('"', "'")
_PASS_OF = ("become_", "sudo_", "ssh_", "db_", "smtp_", "mail_", "mysql_", "ldap_", "ftp_")
# What makes a key a secret, and what makes a token none.
_SECRET_KEYS = (
    *(b"api", b"access", b"secret", b"private", b"auth", b"account", b"encryption", b"signing"),
    *(b"master", b"service", b"role", b"license", b"client", b"shared", b"storage"),
    *(b"subscription", b"admin", b"deploy", b"session", b"webhook", b"app", b"application"),
    *(b"consumer", b"root", b"bot"),
)
_PLAIN_TOKENS = (
    *(b"page", b"next", b"continuation", b"pagination", b"resume", b"cancel", b"cancellation"),
    *(b"cursor", b"previous", b"special", b"design"),
)
_PLAIN_TOKEN = re.compile(
    rb"(?s:.*[^a-z])?(?:stop|eos|bos|pad|unk|mask|sep|max|prev|start|end|first|last|per|sync)"
)
_PLAIN_ENDINGS = (
    *("ID", "URL", "URI", "PATH", "FILE", "NAME", "TYPE", "TTL", "EXPIRY", "EXPIRES", "COUNT"),
    *("LIMIT", "LENGTH", "SIZE", "HOST", "USER", "PREFIX", "HEADER", "ENV", "VAR", "REGEX"),
    *("PATTERN", "ENDPOINT", "ALGORITHM", "POLICY", "BUDGET", "USAGE", "INDEX", "PARAM", "SCOPE"),
    *("MS", "SECONDS", "MINUTES", "HOURS", "DAYS", "AGE", "LIFETIME", "TIMEOUT", "VERSION"),
    *("STATUS", "PROVIDER", "SOURCE", "FORMAT", "MODE", "CLAIM", "AUDIENCE", "ISSUER", "ERROR"),
)
_BEFORE = 16
_FLAG = re.compile(r"(?:^|\s)--[\w-]*$")

_TAIL = re.compile(
    r"(?:_[A-Z0-9]+){1,4}|_?\d{1,3}|_(?:base|prod|dev|staging)(?![a-z0-9_])|(?![A-Za-z0-9_])"
)
_FIELD = re.compile(
    rb"(.*)(passw(?:or)?d|passphrase|pwd|secret|token|credential|key)s?((?:_?\d{1,3})?|_[a-z0-9_]+)"
)

# Every part is bounded in what it reads, so that no text makes this quadratic.
_LONGEST = 256
_SIGN = re.compile(
    r"""(?P<close>\\{0,3}["'`\]]{0,2})(?P<before>[ \t*]{0,8})"""
    r"""(?P<sign>=>|:=|={1,2}|:(?!:)|(?<=[ \t])is:?(?=[ \t])|(?<=["'`]),|>(?=[^\s<@:/]))"""
    r"""(?P<after>[ \t*]{0,8})"""
)
_SPACE = re.compile(r"[ \t]{1,8}(?=\S)")
_ESCAPED = re.compile(
    r"""\\["'](?![\s),;\]}])((?:[^"'\\\n]|\\{2,15}+.){1,256}+)"""
    r"""|\\{2,7}["'](?![\s),;\]}])([^"'\\\n]{1,256}+)"""
)
_QUOTED = re.compile(r"""[bBrRuUfF]{0,2}(["'`])(?![\s),;\]}])((?:\\.|(?!\1)[^\\\n]){1,256}+)""")
_BARE = re.compile(r"""[^\s"'`,;<>(){}\[\]\\|&=]{1,256}+={0,2}""")
_IN_ENV = re.compile(r"""[^\s"'`;\\]{1,256}+""")
_REST = re.compile(r"""[^\s"'`\\,;]*+""")
# Word by word over a few short ones of the same line to a long one.
_NEAR = re.compile(
    r"(?:[A-Za-z0-9+/_-]{0,19}+[^A-Za-z0-9+/_\n-]{1,20}+){1,8}+"
    r"(?<!\.)([A-Za-z0-9+/_-]{20,256}+={0,2})(?![A-Za-z0-9.])"
)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*")
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\]")
_CODE = ("(", "[", "{")

_SHORTEST_PASSWORD = 4
_SHORTEST = 8
_LONG_WORD = 20


def named(text: str, low: bytes) -> Iterator[Span]:
    """Find the secrets whose names stand in a text: assigned to them, or close behind them."""
    for name in NAMES:
        at = low.find(name)
        while at >= 0:
            end = at + len(name)
            end += name == b"credential" and low.startswith(b"s", end)
            is_one = not low[end : end + 1].isalpha() and (name != _PASS or _is_pass(text, at))
            if is_one and (kind := _kind(low, at, name)):
                span = _announced(text, at, end, kind)
                if span:
                    yield span
                    end = span.end
            at = low.find(name, end)


def _is_pass(text: str, at: int) -> bool:
    """Whether this ``pass`` is a password: of a variable in capitals, or a key in quotes."""
    before, behind = text[max(0, at - 1) : at], text[at + len(_PASS) : at + len(_PASS) + 1]
    is_key = before in _QUOTES and behind in _QUOTES and before != ""
    is_key = is_key or (behind in (":", "=") and text.endswith(_PASS_OF, max(0, at - _BEFORE), at))
    return is_key or (before in ("_", "-", ".") and text[at : at + len(_PASS)] == "PASS")


@lru_cache(4096)
def kind_of(field: str) -> str | None:
    """Give the kind of secret that a field of this name holds, None if it holds none."""
    low = field[:_LONGEST].encode("latin-1", "replace").lower()
    if low == _PASS or low.endswith((b"_pass", b"-pass")) or field.endswith("Pass"):
        return "password"
    match = _FIELD.fullmatch(low)
    if match is None or (match[3].startswith(b"_") and not field.isupper()):
        return None
    return None if _is_plain(field) else _kind(low, match.start(2), match[2])


def fits(kind: str, value: str) -> bool:
    """Tell whether a field's whole value, or a text in quotes, is a secret of this kind."""
    if _is_none(kind, value):
        return False
    is_spaced = any(map(str.isspace, value))
    if kind == "password":
        return len(value) >= _SHORTEST_PASSWORD and (not is_spaced or _has_digit(value))
    return not is_spaced and _is_token(value)


def _kind(low: bytes, at: int, name: bytes) -> str | None:
    """Give the kind of secret a name stands for, given the word before it."""
    kind = NAMES[name]
    if kind not in ("key", "token"):
        return kind
    before = low[max(0, at - _BEFORE) : at].rstrip(b"_. -")
    if kind == "key":
        return "api-key" if before.endswith(_SECRET_KEYS) else None
    is_plain = before.endswith(_PLAIN_TOKENS) or _PLAIN_TOKEN.fullmatch(before)
    return None if is_plain else kind


def _announced(text: str, start: int, end: int, kind: str) -> Span | None:
    tail = _TAIL.match(text, end)
    if tail is None or _is_plain(tail[0]):
        return None
    return _assigned(text, start, tail.end(), kind) or _near(text, tail.end(), kind)


def _is_plain(name: str) -> bool:
    """Tell whether a name goes on to say that it is about a secret, not one."""
    return name.rpartition("_")[2] in _PLAIN_ENDINGS


def _assigned(text: str, start: int, at: int, kind: str) -> Span | None:
    before = text[max(0, start - _BEFORE) : start]
    sign = _SIGN.match(text, at)
    if sign is None:
        space = _SPACE.match(text, at) if _FLAG.search(before) else None
        return _value(text, space.end(), kind, tight=True) if space else None
    if sign["sign"] == ">" and "<" not in before:
        return None
    if sign["sign"] == ",":
        # without quotes it is a name or a number
        is_quoted = _ESCAPED.match(text, sign.end()) or _QUOTED.match(text, sign.end())
        found = _value(text, sign.end(), kind, tight=True) if is_quoted else None
        return found if found and _has_digit(text[found.start : found.end]) else None
    tight = sign["sign"] in ("=", ">") and not sign["before"] and not sign["after"]
    if tight and text[start:at].isupper() and (value := _IN_ENV.match(text, sign.end())):
        return _in_env(text, value, kind)
    return _value(text, sign.end(), kind, tight=tight or bool(sign["close"]))


def _in_env(text: str, value: re.Match[str], kind: str) -> Span | None:
    """Take the value of ``NAME=value`` as a shell would, whatever it looks like."""
    secret = value[0].rstrip(",)]}&|>")
    shortest = _SHORTEST_PASSWORD if kind == "password" else _SHORTEST
    if len(secret) < shortest or _is_none(kind, secret):
        return None
    if kind != "password" and (is_name(secret) or _PATH.match(secret)):
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
    rest = _REST.match(text, end) if len(secret) >= _LONGEST else None
    return Span(start, rest.end() if rest else end, kind)


def _is_bare(kind: str, value: str, tight: bool) -> bool:
    """Tell whether a value without quotes is a secret, not a piece of code or prose."""
    if _is_none(kind, value) or is_words(value):
        return False
    if kind == "password":
        return len(value) >= _SHORTEST_PASSWORD
    if is_hex(value) or is_uuid(value):
        return True
    return _is_token(value) and (tight or not _IDENTIFIER.fullmatch(value) or is_random(value))


def _is_none(kind: str, value: str) -> bool:
    """Tell whether a value only names a secret, or is the folder that ``PWD`` holds."""
    is_path = kind in ("password", "credential") and _PATH.match(value) is not None
    return (is_path and not is_random(value)) or is_reference(value)


def _is_token(value: str) -> bool:
    if len(value) < _SHORTEST or is_id(value) or is_name(value):
        return False
    if value.isalpha():
        return len(value) >= _LONG_WORD and (value.islower() or value.isupper())
    return _has_digit(value) and not value.isdigit()


def _has_digit(value: str) -> bool:
    return any(map(str.isdigit, value))


def _near(text: str, at: int, kind: str) -> Span | None:
    token = _NEAR.match(text, at)
    if token is None or is_id(token[1]) or not is_random(token[1], RANDOM_NEAR_A_NAME):
        return None
    return Span(*token.span(1), kind)


_AUTHORIZATION = re.compile(
    r"""(?i:authorization)[\\"'\]]{0,4}\s{0,4}[:=]\s{0,4}[\\"'`]{0,4}"""
    r"(?:(?i:bearer|basic|token|apikey|digest|negotiate|bot)\s{1,4})?"
    r"([A-Za-z0-9._~+/:-]{7,}+={0,2}(?<!\.))(?!\()"
)
_BEARER = re.compile(r"(?i:bearer)\s{1,4}([A-Za-z0-9._~+/-]{15,}+={0,2}(?<!\.))")
_USER = re.compile(r"""(?: -u|--user)[ =]{0,2}["']?[^\s:"'$]{1,64}+:([^\s"'`@$]{4,128}+)""")
_LONGEST_COMMAND = 300


def authorization(text: str, at: int) -> Iterator[Span]:
    """Find the credentials in an ``Authorization`` header."""
    found = _AUTHORIZATION.match(text, at)
    run = encodings.whole(found[1]) if found else None
    if found and run and ":" in run.text:
        # letters only, as base64 may be, would be taken for a word
        yield Span(*found.span(1), "token")
    else:
        yield from _credentials(found, "token")


def bearer(text: str, at: int) -> Iterator[Span]:
    """Find the token behind the word Bearer."""
    yield from _credentials(_BEARER.match(text, at), "token")


def user_option(text: str, at: int) -> Iterator[Span]:
    """Find the password of ``curl -u user:password``."""
    for flag in (" -u", "--user"):
        start = text.find(flag, at, at + _LONGEST_COMMAND)
        if start >= 0:
            yield from _credentials(_USER.match(text, start), "password")


def _credentials(found: re.Match[str] | None, kind: str) -> Iterator[Span]:
    if found and not (is_words(found[1]) or is_reference(found[1]) or found[1].isdigit()):
        yield Span(*found.span(1), kind)
