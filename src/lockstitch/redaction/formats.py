"""Secrets that say what they are: keys with a known prefix, JWTs, private keys, webhooks.

A search for each prefix at every place would be slow. All keys are long runs of a few characters,
so the runs are found first, at the speed of C, and only a run is looked at for a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lockstitch.redaction.shapes import is_random, is_reference



class Span(NamedTuple):
    """Where a secret stands in a text, and of which kind it is."""

    start: int
    end: int
    kind: str


class Format(NamedTuple):
    """One kind of key: how it starts, what follows at least, and what it may go on with."""

    kind: str
    head: str
    body: str
    more: str = "[A-Za-z0-9]*+"


_BASE64URL = "[A-Za-z0-9_-]*+"
_BASE64 = "[A-Za-z0-9+/=_-]*+"
# Class names start with "sk-", too, but have no digits.
_DIGIT_NEAR = r"(?=[A-Za-z_-]{0,80}+\d)"
FORMATS = (
    Format("anthropic-key", "sk-ant-", "[A-Za-z0-9_-]{16}", _BASE64URL),
    Format(
        "openai-key",
        "sk-(?:proj|svcacct|admin|service|or-v1|lf)-",
        _DIGIT_NEAR + "[A-Za-z0-9_-]{20}",
        _BASE64URL,
    ),
    Format("openai-key", "sk-", _DIGIT_NEAR + "[A-Za-z0-9]{20}"),
    Format("github-token", "gh[pousr]_", "[A-Za-z0-9]{20}"),
    Format("github-token", "github_pat_", "[A-Za-z0-9_]{22}", "[A-Za-z0-9_]*+"),
    Format(
        "gitlab-token",
        "gl(?:pat|ptt|dt|rt|cbt|ft|soat|oas|imt|agent)-",
        "[A-Za-z0-9_-]{20}",
        _BASE64URL,
    ),
    Format("aws-key-id", "(?:AKIA|ASIA|ABIA|ACCA)", "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Format("google-key", "AIza", "[A-Za-z0-9_-]{35}", _BASE64URL),
    Format("google-secret", "GOCSPX-", "[A-Za-z0-9_-]{20}", _BASE64URL),
    Format("slack-token", "xox[a-z]-", "[A-Za-z0-9-]{10}", "[A-Za-z0-9-]*+"),
    Format("slack-token", "xapp-", r"\d-[A-Za-z0-9-]{20}", "[A-Za-z0-9-]*+"),
    Format("stripe-key", "[srp]k_(?:live|test)_", "[A-Za-z0-9]{10}"),
    Format("stripe-webhook-secret", "whsec_", "[A-Za-z0-9]{14}", _BASE64),
    Format("npm-token", "npm_", "[A-Za-z0-9]{36}"),
    Format("pypi-token", "pypi-", "[A-Za-z0-9_-]{50}", _BASE64URL),
    Format("huggingface-token", "hf_", "[A-Za-z0-9]{30}"),
    Format("groq-key", "gsk_", "[A-Za-z0-9]{40}"),
    Format("xai-key", "xai-", "[A-Za-z0-9]{60}"),
    Format("perplexity-key", "pplx-", "[A-Za-z0-9]{40}"),
    Format("replicate-token", "r8_", "[A-Za-z0-9]{30}"),
    Format("digitalocean-token", "do[opr]_v1_", "[a-f0-9]{60}"),
    Format("docker-token", "dckr_pat_", "[A-Za-z0-9_-]{20}", _BASE64URL),
    Format("databricks-token", "dapi", "[a-f0-9]{32}(?![A-Za-z0-9])", r"(?:-\d)?"),
    Format("shopify-token", "shp(?:at|ca|pa|ss)_", "[a-fA-F0-9]{32}"),
    Format("linear-key", "lin_api_", "[A-Za-z0-9]{30}"),
    Format("notion-token", "ntn_", "[A-Za-z0-9]{40}"),
    Format("sentry-token", "sntry[su]_", "[A-Za-z0-9]{40}", _BASE64),
    Format("grafana-token", "gl(?:c|sa)_", "[A-Za-z0-9]{32}", _BASE64),
    Format("supabase-key", "sb(?:p|_secret)_", "[A-Za-z0-9_-]{20}", _BASE64URL),
    Format("tailscale-key", "tskey-[a-z]+-", "[A-Za-z0-9_-]{16}", _BASE64URL),
    Format("atlassian-token", "ATATT3", "[A-Za-z0-9_-]{60}", _BASE64),
    Format("age-key", "AGE-SECRET-KEY-1", "[A-Z0-9]{50}"),
)
_HEADS = re.compile(
    "(?<![A-Za-z0-9])(?:"
    + "|".join(f"(?P<f{number}>{known.head})" for number, known in enumerate(FORMATS))
    + ")"
)
_TOKENS = tuple(re.compile(known.head + known.body + known.more) for known in FORMATS)

_TELEGRAM = re.compile(r"[A-Za-z0-9_-]{34,36}(?![A-Za-z0-9_-])")
_DIGITS_BEFORE = re.compile(r"(?<![0-9A-Za-z])\d{6,12}:$")
_DISCORD = re.compile(
    r"[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{5,8}\.[A-Za-z0-9_-]{27,45}(?![A-Za-z0-9_-])"
)
_DOTTED = re.compile(r"(?<![A-Za-z0-9])(?:SG|ya29|hvs|hvb|dp\.[a-z]{2,6})\.$")
_REST_OF_DOTTED = re.compile(r"[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]++)*+")


def in_run(text: str, start: int, end: int) -> Iterator[Span]:
    """Find the keys in one run of letters, digits, ``_`` and ``-``."""
    at = start
    while head := _HEADS.search(text, at, end):
        number = int(str(head.lastgroup)[1:])
        token = _TOKENS[number].match(text, head.start())
        at = head.end() if token is None else token.end()
        if token is not None:
            yield Span(*token.span(), FORMATS[number].kind)
    before = text[max(0, start - 14) : start]
    if before.endswith(":"):
        yield from _telegram(text, start, before)
    elif before.endswith("."):
        yield from _dotted(text, start, before)
    if text[end : end + 1] == "." and (token := _DISCORD.match(text, start)):
        yield Span(*token.span(), "discord-token")


def _telegram(text: str, start: int, before: str) -> Iterator[Span]:
    digits, token = _DIGITS_BEFORE.search(before), _TELEGRAM.match(text, start)
    if digits and token and is_random(token[0], share=0.2):
        yield Span(start - len(digits[0]), token.end(), "telegram-token")


def _dotted(text: str, start: int, before: str) -> Iterator[Span]:
    dotted, rest = _DOTTED.search(before), _REST_OF_DOTTED.match(text, start)
    if dotted and rest and is_random(rest[0], share=0.2):
        yield Span(start - len(dotted[0]), rest.end(), "token")


_JWT = re.compile(
    r"(?<![A-Za-z0-9+/_-])eyJ[A-Za-z0-9_-]{8,}+"
    r"(?:(?:\.[A-Za-z0-9_-]*+){1,3}\.[A-Za-z0-9_-]++|\.eyJ[A-Za-z0-9_-]++)"
)
_SHORTEST_JWT = 30


def jwt(text: str, at: int) -> Iterator[Span]:
    """Find the JSON web token that starts here."""
    token = _JWT.match(text, at)
    if token and len(token[0]) >= _SHORTEST_JWT:
        yield Span(*token.span(), "jwt")


# Between two lines of a key: line ends, also written out, line numbers, quotes, diff marks.
_GAP = r"(?:\\[nrt]|[^A-Za-z\\]){0,32}?"
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_GAP}(?:Proc-Type|DEK-Info|Version|Comment|Hash)\b[^\n\\]{{0,200}}+)*+"
    rf"(?:{_GAP}[A-Za-z0-9+/]{{16,}}+={{0,2}})*+"
    rf"(?:{_GAP}[A-Za-z0-9+/=]{{0,80}}?{_GAP}-----END [A-Z0-9 ]{{1,40}}-----)?"
)


def private_key(text: str, at: int) -> Iterator[Span]:
    """Find the private key that starts here, whole or cut."""
    block = _PEM.match(text, at)
    if block:
        yield Span(at, block.end(), "private-key")


_SLACK_HOOK = re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{8,}+)")
_HOOK = re.compile(r"/webhooks/(\d{8,}/[A-Za-z0-9_-]{20,}+)")


def slack_hook(text: str, at: int) -> Iterator[Span]:
    """Find the path of a Slack webhook, which is all its protection."""
    if hook := _SLACK_HOOK.match(text, at):
        yield Span(*hook.span(1), "slack-webhook")


def webhook(text: str, at: int) -> Iterator[Span]:
    """Find the path of a Discord webhook."""
    if hook := _HOOK.match(text, at):
        yield Span(*hook.span(1), "webhook")


_USERINFO = re.compile(r"://[^\s:/@?\"'<>\\`]{0,128}+:([^\s/?\"'<>\\`]{1,256})@(?=[\w.$\[{-])")


def password_in_url(text: str, at: int) -> Iterator[Span]:
    """Find the password of ``scheme://user:password@host``."""
    found = _USERINFO.match(text, at)
    if found and not is_reference(found[1]):
        yield Span(*found.span(1), "password")
