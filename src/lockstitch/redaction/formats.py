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
    heads: tuple[str, ...]
    body: str
    more: str = "[A-Za-z0-9]*+"


_BASE64URL = "[A-Za-z0-9_-]*+"
_BASE64 = "[A-Za-z0-9+/=_-]*+"
# Class names start with "sk-", too, but have no digits.
_DIGIT_NEAR = r"(?=[A-Za-z_-]{0,80}+\d)"
FORMATS = (
    Format("anthropic-key", ("sk-ant-",), "[A-Za-z0-9_-]{16}", _BASE64URL),
    Format(
        "openai-key",
        ("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-service-", "sk-or-v1-", "sk-lf-"),
        _DIGIT_NEAR + "[A-Za-z0-9_-]{20}",
        _BASE64URL,
    ),
    Format("openai-key", ("sk-",), _DIGIT_NEAR + "[A-Za-z0-9]{20}"),
    Format("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "[A-Za-z0-9]{20}"),
    Format("github-token", ("github_pat_",), "[A-Za-z0-9_]{22}", "[A-Za-z0-9_]*+"),
    Format(
        "gitlab-token",
        ("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glft-", "glsoat-", "gloas-", "glagent-"),
        "[A-Za-z0-9_-]{20}",
        _BASE64URL,
    ),
    Format("aws-key-id", ("AKIA", "ASIA", "ABIA", "ACCA"), "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Format("google-key", ("AIza",), "[A-Za-z0-9_-]{35}", _BASE64URL),
    Format("google-secret", ("GOCSPX-",), "[A-Za-z0-9_-]{20}", _BASE64URL),
    Format(
        "slack-token",
        tuple(f"xox{kind}-" for kind in "abcdeoprst"),
        "[A-Za-z0-9-]{10}",
        "[A-Za-z0-9-]*+",
    ),
    Format("slack-token", ("xapp-",), r"\d-[A-Za-z0-9-]{20}", "[A-Za-z0-9-]*+"),
    Format(
        "stripe-key",
        ("sk_live_", "rk_live_", "pk_live_", "sk_test_", "rk_test_", "pk_test_"),
        "[A-Za-z0-9]{10}",
    ),
    Format("stripe-webhook-secret", ("whsec_",), "[A-Za-z0-9]{14}", _BASE64),
    Format("npm-token", ("npm_",), "[A-Za-z0-9]{36}"),
    Format("pypi-token", ("pypi-",), "[A-Za-z0-9_-]{50}", _BASE64URL),
    Format("huggingface-token", ("hf_",), "[A-Za-z0-9]{30}"),
    Format("groq-key", ("gsk_",), "[A-Za-z0-9]{40}"),
    Format("xai-key", ("xai-",), "[A-Za-z0-9]{60}"),
    Format("perplexity-key", ("pplx-",), "[A-Za-z0-9]{40}"),
    Format("replicate-token", ("r8_",), "[A-Za-z0-9]{30}"),
    Format("digitalocean-token", ("dop_v1_", "doo_v1_", "dor_v1_"), "[a-f0-9]{60}"),
    Format("docker-token", ("dckr_pat_",), "[A-Za-z0-9_-]{20}", _BASE64URL),
    Format("databricks-token", ("dapi",), "[a-f0-9]{32}(?![A-Za-z0-9])", r"(?:-\d)?"),
    Format("shopify-token", ("shpat_", "shpca_", "shppa_", "shpss_"), "[a-fA-F0-9]{32}"),
    Format("linear-key", ("lin_api_",), "[A-Za-z0-9]{30}"),
    Format("notion-token", ("ntn_",), "[A-Za-z0-9]{40}"),
    Format("notion-token", ("secret_",), _DIGIT_NEAR + "[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    Format("sentry-token", ("sntrys_", "sntryu_"), "[A-Za-z0-9]{40}", _BASE64),
    Format("grafana-token", ("glc_", "glsa_"), "[A-Za-z0-9]{32}", _BASE64),
    Format("supabase-key", ("sbp_", "sb_secret_"), "[A-Za-z0-9_-]{20}", _BASE64URL),
    Format("tailscale-key", ("tskey-",), "[A-Za-z0-9_-]{20}", _BASE64URL),
    Format("atlassian-token", ("ATATT3",), "[A-Za-z0-9_-]{60}", _BASE64),
    Format("age-key", ("AGE-SECRET-KEY-1",), "[A-Z0-9]{50}"),
    Format("1password-token", ("ops_eyJ",), "[A-Za-z0-9_-]{40}", _BASE64URL),
    Format("planetscale-token", ("pscale_tkn_", "pscale_pw_"), "[A-Za-z0-9_-]{30}", _BASE64URL),
    Format("postman-key", ("PMAK-",), "[a-f0-9]{24}-[a-f0-9]{34}"),
    Format("newrelic-key", ("NRAK-", "NRJS-"), "[A-Za-z0-9]{19}"),
    Format("netlify-token", ("nfp_",), "[A-Za-z0-9]{36}"),
    Format("rubygems-key", ("rubygems_",), "[a-f0-9]{48}"),
    Format("pulumi-token", ("pul-",), "[a-f0-9]{40}"),
    Format("circleci-token", ("CCIPAT_",), "[A-Za-z0-9_]{40}", "[A-Za-z0-9_]*+"),
    Format("buildkite-token", ("bkua_",), "[a-f0-9]{40}"),
    Format("langsmith-key", ("lsv2_pt_", "lsv2_sk_"), "[a-f0-9]{32}", "[A-Za-z0-9_]*+"),
    Format("tavily-key", ("tvly-",), "[A-Za-z0-9-]{30}", "[A-Za-z0-9-]*+"),
    Format("figma-token", ("figd_",), "[A-Za-z0-9_-]{36}", _BASE64URL),
    Format("render-key", ("rnd_",), "[A-Za-z0-9]{28}"),
    Format("square-token", ("sq0atp-", "sq0csp-"), "[A-Za-z0-9_-]{22}", _BASE64URL),
)


def _either(heads: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(map(re.escape, heads))})"


_HEADS = re.compile(
    "(?<![A-Za-z0-9])(?:"
    + "|".join(f"(?P<f{number}>{_either(known.heads)})" for number, known in enumerate(FORMATS))
    + ")"
)
_TOKENS = tuple(re.compile(_either(known.heads) + known.body + known.more) for known in FORMATS)
# Cheap to ask of a run: the first word of every head, and the heads that are no words.
_ALL_HEADS = [head for known in FORMATS for head in known.heads]
_FIRST_WORDS = frozenset(re.split("[_-]", head)[0] for head in _ALL_HEADS if not head.isalnum())
_BARE_HEADS = re.compile(_either(tuple(head for head in _ALL_HEADS if head.isalnum())))

_TELEGRAM = re.compile(r"[A-Za-z0-9_-]{34,36}(?![A-Za-z0-9_-])")
_DIGITS_BEFORE = re.compile(r"(?<![0-9A-Za-z])\d{6,12}:$")
_DISCORD = re.compile(
    r"[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{5,8}\.[A-Za-z0-9_-]{27,45}(?![A-Za-z0-9_-])"
)
_JWT = re.compile(
    r"eyJ[A-Za-z0-9_-]{16,}+"
    r"(?:(?:\.[A-Za-z0-9_-]*+){1,3}\.[A-Za-z0-9_-]++|\.eyJ[A-Za-z0-9_-]++)"
)
_DOTTED = ("SG.", "ya29.", "hvs.", "hvb.", "hvr.", "dp.pt.", "dp.st.", "1//")
_LONGEST_DOTTED = 6
_REST_OF_DOTTED = re.compile(r"[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]++)*+")


def in_run(text: str, start: int, end: int) -> list[Span]:
    """Find the keys in one run of letters, digits, ``_`` and ``-``, or around it."""
    run = text[start:end]
    found: list[Span] = []
    if not _FIRST_WORDS.isdisjoint(run.replace("-", "_").split("_")) or _BARE_HEADS.search(run):
        found += _with_head(text, start, end)
    if text.endswith(_DOTTED, max(0, start - _LONGEST_DOTTED), start):
        found += _dotted(text, start)
    if text.startswith(":", start - 1):
        found += _telegram(text, start)
    if text.startswith(".", end):
        found += _in_three(text, start, run)
    return found


def _with_head(text: str, start: int, end: int) -> Iterator[Span]:
    at = start
    while head := _HEADS.search(text, at, end):
        number = int(str(head.lastgroup)[1:])
        token = _TOKENS[number].match(text, head.start())
        at = head.end() if token is None else token.end()
        if token is not None and not token[0].endswith("EXAMPLE"):
            yield Span(*token.span(), FORMATS[number].kind)


def _telegram(text: str, start: int) -> Iterator[Span]:
    digits = _DIGITS_BEFORE.search(text[max(0, start - 14) : start])
    token = _TELEGRAM.match(text, start)
    if digits and token and is_random(token[0], share=0.2):
        yield Span(start - len(digits[0]), token.end(), "telegram-token")


def _dotted(text: str, start: int) -> Iterator[Span]:
    head = next(head for head in _DOTTED if text.endswith(head, 0, start))
    rest = _REST_OF_DOTTED.match(text, start)
    is_word = text[start - len(head) - 1 : start - len(head)].isalnum()
    if rest and not is_word and is_random(rest[0], share=0.2):
        yield Span(start - len(head), rest.end(), "token")


def _in_three(text: str, start: int, run: str) -> Iterator[Span]:
    """Find the tokens of three parts or more between dots."""
    if run.startswith("eyJ") and (token := _JWT.match(text, start)):
        yield Span(*token.span(), "jwt")
    elif run.startswith(("M", "N", "O")) and (token := _DISCORD.match(text, start)):
        yield Span(*token.span(), "discord-token")


# Between two lines of a key: line ends, also written out, line numbers, quotes, diff marks.
_GAP = "[^A-Za-z]{0,32}?"
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_GAP}(?:Proc-Type|DEK-Info|Version|Comment|Hash)\b[^\n\\]{{0,200}}+)*+"
    rf"(?:{_GAP}[A-Za-z0-9+/]{{16,}}+={{0,2}})++"
    r"(?:(?:[^-]|-(?!----)){0,160}+-----END [A-Z0-9 ]{1,40}-----)?"
)


def private_key(text: str, at: int) -> Iterator[Span]:
    """Find the private key that starts here, whole or cut."""
    block = _PEM.match(text, at)
    if block:
        yield Span(at, block.end(), "private-key")


_PUTTY = re.compile(
    r"(?i:private-lines):[ \t]{0,4}\d{1,3}((?:\s{1,8}[A-Za-z0-9+/]{16,80}={0,2}){1,200})"
)


def putty_key(text: str, at: int) -> Iterator[Span]:
    """Find the private lines of a key of PuTTY."""
    if found := _PUTTY.match(text, at):
        yield Span(*found.span(1), "private-key")


_HOOK = re.compile(
    r"hooks(?:\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{8,}+)"
    r"|/(\d{8,}+/[A-Za-z0-9_-]{20,}+))"
)


def webhook(text: str, at: int) -> Iterator[Span]:
    """Find the path of a Slack or Discord webhook, which is all its protection."""
    if hook := _HOOK.match(text, at):
        yield Span(*hook.span(hook.lastindex or 0), "webhook")


_USERINFO = re.compile(r"://[^\s:/@?\"'<>\\`]{0,128}+:([^\s/?\"'<>\\`]{1,256})@(?=[\w.$\[{-])")
_FARTHEST = 400


def password_in_url(text: str, at: int) -> Iterator[Span]:
    """Find the password of ``scheme://user:password@host``, given the place of the ``@``."""
    scheme = text.rfind("://", max(0, at - _FARTHEST), at)
    found = _USERINFO.match(text, scheme) if scheme >= 0 else None
    if found and found.end(1) >= at and not is_reference(found[1]):
        yield Span(*found.span(1), "password")
