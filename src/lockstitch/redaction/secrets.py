"""Find secrets that have a known format, and those that follow a telling name.

The first are keys with a known prefix, and JWTs. Searching for each prefix at every place would be
slow. All keys are long runs of a few kinds of characters, so the runs are found first, at the speed
of C, and only runs are checked for a prefix. The others have a name before them: ``API_KEY=…``,
``"password": "…"``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from lockstitch.redaction.texts import (
    RANDOM_NEAR_A_NAME,
    is_hex,
    is_id,
    is_name,
    is_random,
    is_reference,
    is_uuid,
    is_words,
)


class SecretSpan(NamedTuple):
    """The place of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


Finder = Callable[[str, int], Iterator[SecretSpan]]


class KeyFormat(NamedTuple):
    """One kind of key: how it starts, what must follow at least, and how it may continue."""

    kind: str
    heads: tuple[str, ...]
    body: str
    more: str = "[A-Za-z0-9]*+"


_BASE64URL = "[A-Za-z0-9_-]*+"
_BASE64 = "[A-Za-z0-9+/=_-]*+"
# Class names may start with "sk-" as well, but contain no digits.
_DIGIT_NEAR = r"(?=[A-Za-z_-]{0,80}+\d)"
FORMATS = (
    KeyFormat("anthropic-key", ("sk-ant-",), "[A-Za-z0-9_-]{16}", _BASE64URL),
    KeyFormat(
        "openai-key",
        ("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-service-", "sk-or-v1-", "sk-lf-"),
        _DIGIT_NEAR + "[A-Za-z0-9_-]{20}",
        _BASE64URL,
    ),
    KeyFormat("openai-key", ("sk-",), _DIGIT_NEAR + "[A-Za-z0-9]{20}"),
    KeyFormat("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "[A-Za-z0-9]{20}"),
    KeyFormat("github-token", ("github_pat_",), "[A-Za-z0-9_]{22}", "[A-Za-z0-9_]*+"),
    KeyFormat(
        "gitlab-token",
        ("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glft-", "glsoat-", "gloas-", "glagent-"),
        "[A-Za-z0-9_-]{20}",
        _BASE64URL,
    ),
    KeyFormat("aws-key-id", ("AKIA", "ASIA", "ABIA", "ACCA"), "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    KeyFormat("google-key", ("AIza",), "[A-Za-z0-9_-]{35}", _BASE64URL),
    KeyFormat("google-secret", ("GOCSPX-",), "[A-Za-z0-9_-]{20}", _BASE64URL),
    KeyFormat(
        "slack-token",
        tuple(f"xox{kind}-" for kind in "abcdeoprst"),
        "[A-Za-z0-9-]{10}",
        "[A-Za-z0-9-]*+",
    ),
    KeyFormat("slack-token", ("xapp-",), r"\d-[A-Za-z0-9-]{20}", "[A-Za-z0-9-]*+"),
    KeyFormat(
        "stripe-key",
        ("sk_live_", "rk_live_", "pk_live_", "sk_test_", "rk_test_", "pk_test_"),
        "[A-Za-z0-9]{10}",
    ),
    KeyFormat("stripe-webhook-secret", ("whsec_",), "[A-Za-z0-9]{14}", _BASE64),
    KeyFormat("npm-token", ("npm_",), "[A-Za-z0-9]{36}"),
    KeyFormat("pypi-token", ("pypi-",), "[A-Za-z0-9_-]{50}", _BASE64URL),
    KeyFormat("huggingface-token", ("hf_",), "[A-Za-z0-9]{30}"),
    KeyFormat("groq-key", ("gsk_",), "[A-Za-z0-9]{40}"),
    KeyFormat("xai-key", ("xai-",), "[A-Za-z0-9]{60}"),
    KeyFormat("perplexity-key", ("pplx-",), "[A-Za-z0-9]{40}"),
    KeyFormat("replicate-token", ("r8_",), "[A-Za-z0-9]{30}"),
    KeyFormat("digitalocean-token", ("dop_v1_", "doo_v1_", "dor_v1_"), "[a-f0-9]{60}"),
    KeyFormat("docker-token", ("dckr_pat_",), "[A-Za-z0-9_-]{20}", _BASE64URL),
    KeyFormat("databricks-token", ("dapi",), "[a-f0-9]{32}(?![A-Za-z0-9])", r"(?:-\d)?"),
    KeyFormat("shopify-token", ("shpat_", "shpca_", "shppa_", "shpss_"), "[a-fA-F0-9]{32}"),
    KeyFormat("linear-key", ("lin_api_",), "[A-Za-z0-9]{30}"),
    KeyFormat("notion-token", ("ntn_",), "[A-Za-z0-9]{40}"),
    KeyFormat("notion-token", ("secret_",), _DIGIT_NEAR + "[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    KeyFormat("sentry-token", ("sntrys_", "sntryu_"), "[A-Za-z0-9]{40}", _BASE64),
    KeyFormat("grafana-token", ("glc_", "glsa_"), "[A-Za-z0-9]{32}", _BASE64),
    KeyFormat("supabase-key", ("sbp_", "sb_secret_"), "[A-Za-z0-9_-]{20}", _BASE64URL),
    KeyFormat("tailscale-key", ("tskey-",), "[A-Za-z0-9_-]{20}", _BASE64URL),
    KeyFormat("atlassian-token", ("ATATT3",), "[A-Za-z0-9_-]{60}", _BASE64),
    KeyFormat("age-key", ("AGE-SECRET-KEY-1",), "[A-Z0-9]{50}"),
    KeyFormat("1password-token", ("ops_eyJ",), "[A-Za-z0-9_-]{40}", _BASE64URL),
    KeyFormat("planetscale-token", ("pscale_tkn_", "pscale_pw_"), "[A-Za-z0-9_-]{30}", _BASE64URL),
    KeyFormat("postman-key", ("PMAK-",), "[a-f0-9]{24}-[a-f0-9]{34}"),
    KeyFormat("newrelic-key", ("NRAK-", "NRJS-"), "[A-Za-z0-9]{19}"),
    KeyFormat("netlify-token", ("nfp_",), "[A-Za-z0-9]{36}"),
    KeyFormat("rubygems-key", ("rubygems_",), "[a-f0-9]{48}"),
    KeyFormat("pulumi-token", ("pul-",), "[a-f0-9]{40}"),
    KeyFormat("circleci-token", ("CCIPAT_",), "[A-Za-z0-9_]{40}", "[A-Za-z0-9_]*+"),
    KeyFormat("buildkite-token", ("bkua_",), "[a-f0-9]{40}"),
    KeyFormat("langsmith-key", ("lsv2_pt_", "lsv2_sk_"), "[a-f0-9]{32}", "[A-Za-z0-9_]*+"),
    KeyFormat("tavily-key", ("tvly-",), "[A-Za-z0-9-]{30}", "[A-Za-z0-9-]*+"),
    KeyFormat("figma-token", ("figd_",), "[A-Za-z0-9_-]{36}", _BASE64URL),
    KeyFormat("render-key", ("rnd_",), "[A-Za-z0-9]{28}"),
    KeyFormat("square-token", ("sq0atp-", "sq0csp-"), "[A-Za-z0-9_-]{22}", _BASE64URL),
)


def _either(heads: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(map(re.escape, heads))})"


_HEADS = re.compile(
    "(?<![A-Za-z0-9])(?:"
    + "|".join(f"(?P<f{number}>{_either(known.heads)})" for number, known in enumerate(FORMATS))
    + ")"
)
_TOKENS = tuple(re.compile(_either(known.heads) + known.body + known.more) for known in FORMATS)
# Quick checks of a run: the first word of every prefix, and the prefixes that are not words.
_ALL_HEADS = [head for known in FORMATS for head in known.heads]
_FIRST_WORDS = frozenset(re.split("[_-]", head)[0] for head in _ALL_HEADS if not head.isalnum())
_BARE_HEADS = re.compile(_either(tuple(head for head in _ALL_HEADS if head.isalnum())))


def finder_at(
    kind: str,
    pattern: str,
    *,
    before: str = "",
    unless: Callable[[str], object] | None = None,
    reach: int = 64,
) -> Finder:
    """Return a function that finds a secret at a place by a pattern: its last group, or the match.

    ``before`` must match in front of the place, within ``reach`` characters; if it has a group, the
    secret begins there. A match for which ``unless`` is true is not a secret.
    """
    compiled, lead = re.compile(pattern), re.compile(f"(?:{before})$")

    def find(text: str, at: int) -> Iterator[SecretSpan]:
        found = compiled.match(text, at)
        if found is None:
            return
        start, end = found.span(found.lastindex or 0)
        if before:
            ahead = lead.search(text[max(0, at - reach) : at])
            if ahead is None:
                return
            start = at - len(ahead[1]) if ahead.lastindex else start
        if unless is None or not unless(text[start:end]):
            yield SecretSpan(start, end, kind)

    return find


_find_discord = finder_at(
    "discord-token",
    r"[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{5,8}\.[A-Za-z0-9_-]{27,45}(?![A-Za-z0-9_-])",
)
_find_jwt = finder_at(
    "jwt",
    r"eyJ[A-Za-z0-9_-]{16,}+"
    r"(?:(?:\.[A-Za-z0-9_-]*+){1,3}\.[A-Za-z0-9_-]++|\.eyJ[A-Za-z0-9_-]++)",
)
_find_telegram = finder_at(
    "telegram-token",
    r"[A-Za-z0-9_-]{34,36}(?![A-Za-z0-9_-])",
    before=r"(?<![0-9A-Za-z])(\d{6,12}:)",
    unless=lambda token: not is_random(token.partition(":")[2], share=0.2),
    reach=14,
)
_DOTTED = ("SG.", "ya29.", "hvs.", "hvb.", "hvr.", "dp.pt.", "dp.st.", "1//")
_LONGEST_DOTTED = 6
_REST_OF_DOTTED = re.compile(r"[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]++)*+")


def find_in_run(text: str, start: int, end: int) -> list[SecretSpan]:
    """Find the keys in one run of letters, digits, ``_`` and ``-``, or around it."""
    run = text[start:end]
    found: list[SecretSpan] = []
    if not _FIRST_WORDS.isdisjoint(run.replace("-", "_").split("_")) or _BARE_HEADS.search(run):
        found += _find_with_head(text, start, end)
    if text.endswith(_DOTTED, max(0, start - _LONGEST_DOTTED), start):
        found += _find_dotted(text, start)
    if text.startswith(":", start - 1):
        found += _find_telegram(text, start)
    # of three or more parts between dots
    if text.startswith(".", end) and run.startswith("eyJ"):
        found += _find_jwt(text, start)
    elif text.startswith(".", end) and run.startswith(("M", "N", "O")):
        found += _find_discord(text, start)
    return found


def _find_with_head(text: str, start: int, end: int) -> Iterator[SecretSpan]:
    at = start
    while head := _HEADS.search(text, at, end):
        number = int(str(head.lastgroup)[1:])
        token = _TOKENS[number].match(text, head.start())
        at = head.end() if token is None else token.end()
        if token is not None and not token[0].endswith("EXAMPLE"):
            yield SecretSpan(*token.span(), FORMATS[number].kind)


def _find_dotted(text: str, start: int) -> Iterator[SecretSpan]:
    head = next(head for head in _DOTTED if text.endswith(head, 0, start))
    rest = _REST_OF_DOTTED.match(text, start)
    is_word = text[start - len(head) - 1 : start - len(head)].isalnum()
    if rest and not is_word and is_random(rest[0], share=0.2):
        yield SecretSpan(start - len(head), rest.end(), "token")


# All names of secrets, in lower case, with the kind of secret that each stands for.
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
# Words that make a key a secret, and words that make a token harmless.
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

# Every part has a maximum length, so that no text makes this quadratic.
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
# From a name over a few short words of the same line to a long one.
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


def find_named(text: str, low: bytes) -> Iterator[SecretSpan]:
    """Find secrets that are assigned to a name, or that closely follow one."""
    for name in NAMES:
        at = low.find(name)
        while at >= 0:
            end = at + len(name)
            end += name == b"credential" and low.startswith(b"s", end)
            is_one = not low[end : end + 1].isalpha() and (name != _PASS or _is_pass(text, at))
            if is_one and (kind := _kind(low, at, name)):
                span = _find_announced(text, at, end, kind)
                if span:
                    yield span
                    end = span.end
            at = low.find(name, end)


def _is_pass(text: str, at: int) -> bool:
    """Whether ``pass`` is a password here: part of a variable in capitals, or a quoted key."""
    before, behind = text[max(0, at - 1) : at], text[at + len(_PASS) : at + len(_PASS) + 1]
    is_key = before in _QUOTES and behind in _QUOTES and before != ""
    is_key = is_key or (behind in (":", "=") and text.endswith(_PASS_OF, max(0, at - _BEFORE), at))
    return is_key or (before in ("_", "-", ".") and text[at : at + len(_PASS)] == "PASS")


@lru_cache(4096)
def kind_of(field: str) -> str | None:
    """Return the kind of secret that a field with this name holds; None if it holds none."""
    low = field[:_LONGEST].encode("latin-1", "replace").lower()
    if low == _PASS or low.endswith((b"_pass", b"-pass")) or field.endswith("Pass"):
        return "password"
    match = _FIELD.fullmatch(low)
    if match is None or (match[3].startswith(b"_") and not field.isupper()):
        return None
    return None if _is_plain(field) else _kind(low, match.start(2), match[2])


def fits(kind: str, value: str) -> bool:
    """Whether a field's entire value, or a quoted text, is a secret of this kind."""
    if _is_none(kind, value):
        return False
    is_spaced = any(map(str.isspace, value))
    if kind == "password":
        return len(value) >= _SHORTEST_PASSWORD and (not is_spaced or _has_digit(value))
    return not is_spaced and _is_token(value)


def _kind(low: bytes, at: int, name: bytes) -> str | None:
    """Return the kind of secret that a name stands for, considering the word before it."""
    kind = NAMES[name]
    if kind not in ("key", "token"):
        return kind
    before = low[max(0, at - _BEFORE) : at].rstrip(b"_. -")
    if kind == "key":
        return "api-key" if before.endswith(_SECRET_KEYS) else None
    is_plain = before.endswith(_PLAIN_TOKENS) or _PLAIN_TOKEN.fullmatch(before)
    return None if is_plain else kind


def _find_announced(text: str, start: int, end: int, kind: str) -> SecretSpan | None:
    tail = _TAIL.match(text, end)
    if tail is None or _is_plain(tail[0]):
        return None
    found = _find_assigned(text, start, tail.end(), kind)
    near = None if found else _NEAR.match(text, tail.end())
    if near and not is_id(near[1]) and is_random(near[1], RANDOM_NEAR_A_NAME):
        return SecretSpan(*near.span(1), kind)
    return found


def _is_plain(name: str) -> bool:
    """Whether a name continues in a way that makes it about a secret rather than one."""
    return name.rpartition("_")[2] in _PLAIN_ENDINGS


def _find_assigned(text: str, start: int, at: int, kind: str) -> SecretSpan | None:
    before = text[max(0, start - _BEFORE) : start]
    sign = _SIGN.match(text, at)
    if sign is None:
        space = _SPACE.match(text, at) if _FLAG.search(before) else None
        return _find_value(text, space.end(), kind, tight=True) if space else None
    if sign["sign"] == ">" and "<" not in before:
        return None
    if sign["sign"] == ",":
        # without quotes it is a name or a number
        is_quoted = _ESCAPED.match(text, sign.end()) or _QUOTED.match(text, sign.end())
        found = _find_value(text, sign.end(), kind, tight=True) if is_quoted else None
        return found if found and _has_digit(text[found.start : found.end]) else None
    tight = sign["sign"] in ("=", ">") and not sign["before"] and not sign["after"]
    if tight and text[start:at].isupper() and (value := _IN_ENV.match(text, sign.end())):
        # Read the value of ``NAME=value`` as a shell would, whatever it looks like.
        secret = value[0].rstrip(",)]}&|>")
        shortest = _SHORTEST_PASSWORD if kind == "password" else _SHORTEST
        if len(secret) < shortest or _is_none(kind, secret):
            return None
        if kind != "password" and (is_name(secret) or _PATH.match(secret)):
            return None
        return _whole_span(text, value.start(), secret, kind)
    return _find_value(text, sign.end(), kind, tight=tight or bool(sign["close"]))


def _find_value(text: str, at: int, kind: str, *, tight: bool) -> SecretSpan | None:
    quoted = _ESCAPED.match(text, at) or _QUOTED.match(text, at)
    if quoted:
        group = quoted.lastindex or 0
        secret = quoted[group]
        return _whole_span(text, quoted.start(group), secret, kind) if fits(kind, secret) else None
    bare = _BARE.match(text, at)
    if bare is None or text[bare.end() : bare.end() + 1] in _CODE:
        return None
    secret = bare[0].rstrip(".:!?")
    return _whole_span(text, bare.start(), secret, kind) if _is_bare(kind, secret, tight) else None


def _whole_span(text: str, start: int, secret: str, kind: str) -> SecretSpan:
    """Return the span of a value, extended if only a part of it was read."""
    end = start + len(secret)
    rest = _REST.match(text, end) if len(secret) >= _LONGEST else None
    return SecretSpan(start, rest.end() if rest else end, kind)


def _is_bare(kind: str, value: str, tight: bool) -> bool:
    """Whether an unquoted value is a secret, and not a piece of code or prose."""
    if _is_none(kind, value) or is_words(value):
        return False
    if kind == "password":
        return len(value) >= _SHORTEST_PASSWORD
    if is_hex(value) or is_uuid(value):
        return True
    return _is_token(value) and (tight or not _IDENTIFIER.fullmatch(value) or is_random(value))


def _is_none(kind: str, value: str) -> bool:
    """Whether a value only names a secret, or is the folder in ``PWD``."""
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
