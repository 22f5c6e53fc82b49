"""What is known of single models, as data: rules that came or went with a model's version."""

from __future__ import annotations

import re

from msgspec import Struct


class Traits(Struct, frozen=True):
    """What a model's version decides.

    ``known`` is false when no model was named: then ``prefill`` is given the benefit of the
    doubt, and reasoning is treated as bound to its prefix, the stricter reading.
    """

    known: bool = False
    prefill: bool = True
    binds_reasoning: bool = True
    thought_signatures: bool = False


UNKNOWN_MODEL = Traits()

_CLAUDE = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d{1,9})(?:-(\d{1,2}))?(?!\d)")
_OLDER_CLAUDE = re.compile(
    r"claude-(\d+)(?:-(\d{1,2}))?-(?:opus|sonnet|haiku)|claude-(?:instant|2)"
)
_GEMINI = re.compile(r"gemini-(\d{1,9})")

# First version of each family that refuses a trailing assistant message.
_PREFILL_REMOVED = {
    "opus": (4, 6),
    "sonnet": (4, 6),
    "haiku": (5, 0),
    "fable": (5, 0),
    "mythos": (5, 0),
}
# First version of each family that accepts replayed reasoning only behind an unchanged prefix.
_PRESERVED_THINKING = {
    "opus": (5, 5),
    "sonnet": (5, 5),
    "haiku": (5, 5),
    "fable": (5, 1),
    "mythos": (5, 1),
}
_FIRST_SIGNED_GEMINI = 3


def traits_of(model: str | None) -> Traits:
    """Look up what is known of a model; an unknown name gives the defaults."""
    if not model:
        return UNKNOWN_MODEL
    model = model.lower().replace(".", "-")
    if claude := _CLAUDE.search(model):
        family = claude[1]
        version = (int(claude[2]), int(claude[3] or 0))
        return Traits(
            known=True,
            prefill=version < _PREFILL_REMOVED[family],
            binds_reasoning=version >= _PRESERVED_THINKING[family],
        )
    if _OLDER_CLAUDE.search(model):
        return Traits(known=True, binds_reasoning=False)
    if gemini := _GEMINI.search(model):
        return Traits(
            known=True,
            binds_reasoning=False,
            thought_signatures=int(gemini[1]) >= _FIRST_SIGNED_GEMINI,
        )
    return UNKNOWN_MODEL


_ISSUERS = tuple(
    (vendor, re.compile(rf"(?:^|[^a-z0-9])(?:{marks})"))
    for vendor, marks in (
        ("anthropic", "claude"),
        ("google", "gemini|gemma"),
        ("openai", "gpt|o[134](?![a-z])|codex|chatgpt"),
        ("deepseek", "deepseek"),
        ("moonshot", "kimi|moonshot"),
        ("zhipu", "glm"),
        ("minimax", "minimax|abab"),
        ("mistral", "mistral|devstral|codestral|magistral|ministral"),
        ("xai", "grok"),
        ("alibaba", "qwen"),
    )
)


def issuer_of(model: object) -> str:
    """Name the vendor that issues a model's reasoning, or "" if it cannot be told."""
    if not isinstance(model, str):
        return ""
    name = model.lower()
    return next((vendor for vendor, mark in _ISSUERS if mark.search(name)), "")


# Through whom a model is reached, and which issue of it: the same model all the same.
_ROUTE = re.compile(r"^(?:.*/)?(?:[a-z]{2,6}\.)?(?:anthropic\.|amazon\.|meta\.|mistral\.)?")
_ISSUE = re.compile(r"(?:[-@](?:20\d{6}|20\d{2}-\d{2}-\d{2}|\d{3}|latest))?(?:-v\d+:\d+)?$")


def same_model(one: str, other: str) -> bool:
    """Tell whether two names mean one model: an alias and its dated issue do."""
    return _bare(one) == _bare(other)


def _bare(model: str) -> str:
    return _ISSUE.sub("", _ROUTE.sub("", model.lower()))
