"""Dialects and profiles by their names, and models: what one provider accepts, as data.

A dialect fixes the shape of a message; a profile fixes the rules and limits of its receiver.
``openai-chat`` is the dialect as its author serves it; ``openai-chat:mistral`` is the same shape
under Mistral's rules. For single models, the rules are listed that came or went with a version.
"""

from __future__ import annotations

import hashlib
import re

from msgspec import Struct, structs

from lockstitch.dialects.anthropic import Anthropic
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.bedrock import Bedrock
from lockstitch.dialects.gemini import Gemini, signs_thoughts
from lockstitch.dialects.langchain import LangChain
from lockstitch.dialects.openai_chat import OpenAIChat
from lockstitch.dialects.openai_responses import OpenAIResponses
from lockstitch.errors import UsageError, suggestion

MIB = 1024 * 1024

BLANK = "blank"
EMPTY = "empty"
ANYTHING = "anything"
# A new id is the beginning of an old one, an underscore, and this many digits.
_DIGITS, _LONGEST_STEM, _LONGEST_ID = 12, 32, 64
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")


class Profile(Struct, frozen=True, kw_only=True):
    """The rules and limits of one receiver.

    ``id_max`` is the longest accepted length of an id, ``id_length`` the only accepted one.
    Receivers with ``native_ids`` were trained on the ids that they mint, so those are never
    rewritten. ``rejects_text`` is ``blank`` (white space counts as empty), ``empty``, or
    ``anything`` if every text is accepted. ``arguments`` is ``object``, ``json-object`` (text that
    must hold one) or ``json`` (text that should hold one, which this receiver does not check).
    """

    dialect: str
    name: str = ""
    full_name: str = ""
    vendor: str
    layout: str
    list_key: str = "messages"
    id_pattern: str = ""
    id_length: int = 0
    id_max: int = 0
    ids_unique: bool = True
    native_ids: bool = False
    name_pattern: str = ""
    arguments: str = "json"
    starts_with_user: bool = False
    ends_with_user: bool = False
    alternates: bool = False
    template: bool = False
    user_after_tool: bool = True
    system_first: bool = False
    rejects_text: str = ANYTHING
    null_content: str = "with-calls"
    reasoning_required: bool = False
    signed_reasoning: bool = False
    tools_needed: bool = False
    max_bytes: int = 0
    max_markers: int = 0
    many_images: int = 0
    max_pixels: int = 0
    max_pixels_many: int = 0

    def __post_init__(self) -> None:
        """Set ``full_name``, as a user writes it: ``dialect`` or ``dialect:profile``."""
        full_name = f"{self.dialect}:{self.name}" if self.name else self.dialect
        structs.force_setattr(self, "full_name", full_name)

    def new_id(self, stem: str, seed: str) -> str:
        """Return the id that a seed makes, no longer than what is accepted, with ``stem`` in front.

        If the receiver wants exactly ``id_length`` characters, they come from the seed alone.
        """
        digest = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()
        if self.id_length:
            return digest[: self.id_length]
        most = self.id_max or _LONGEST_ID
        head = _NOT_PLAIN.sub("_", stem)[: max(min(_LONGEST_STEM, most - _DIGITS - 1), 0)]
        return f"{head}_{digest[:_DIGITS]}" if head else digest[: min(most, _DIGITS)]


ANTHROPIC = Profile(
    dialect="anthropic",
    vendor="Anthropic",
    layout="grouped",
    id_pattern=r"[a-zA-Z0-9_-]+",
    name_pattern=r"[a-zA-Z0-9_-]{1,128}",
    arguments="object",
    starts_with_user=True,
    rejects_text=BLANK,
    signed_reasoning=True,
    tools_needed=True,
    max_bytes=32 * MIB,
    max_markers=4,
    many_images=20,
    max_pixels=8000,
    max_pixels_many=2000,
)

CHAT = Profile(
    dialect="openai-chat",
    vendor="OpenAI",
    layout="single",
    ids_unique=False,
    name_pattern=r"[a-zA-Z0-9_.-]{1,256}",
)

RESPONSES = Profile(
    dialect="openai-responses",
    vendor="OpenAI",
    layout="flat",
    list_key="input",
    id_max=64,
    name_pattern=r"[a-zA-Z0-9_.-]{1,256}",
)

GEMINI = Profile(
    dialect="gemini",
    vendor="Google",
    layout="grouped",
    list_key="contents",
    ids_unique=False,
    name_pattern=r"(?s:.+)",
    arguments="object",
    starts_with_user=True,
    ends_with_user=True,
    rejects_text=EMPTY,
)

BEDROCK = Profile(
    dialect="bedrock",
    vendor="Amazon Bedrock",
    layout="grouped",
    id_pattern=r"[a-zA-Z0-9_.:-]+",
    id_max=64,
    name_pattern=r"[a-zA-Z0-9_-]{1,64}",
    arguments="object",
    ends_with_user=True,
    alternates=True,
    rejects_text=BLANK,
    signed_reasoning=True,
    tools_needed=True,
    max_bytes=25 * MIB,
    max_pixels=8000,
)

LANGCHAIN = Profile(
    dialect="langchain",
    vendor="LangChain",
    layout="single",
    ids_unique=False,
    name_pattern=r"(?s:.+)",
    arguments="object",
)

_MISTRAL = {
    "vendor": "Mistral",
    "id_pattern": r"[a-zA-Z0-9]{9}",
    "id_length": 9,
    "ids_unique": True,
    "starts_with_user": True,
    "ends_with_user": True,
    "alternates": True,
    "user_after_tool": False,
}
_STRICT = {
    "vendor": "a strict chat template",
    "starts_with_user": True,
    "alternates": True,
    "template": True,
    "user_after_tool": False,
    "system_first": True,
    "null_content": "never",
    "arguments": "json-object",
}


def _variant(base: Profile, name: str, **rules: object) -> Profile:
    return structs.replace(base, name=name, **rules)


_ALL = (
    ANTHROPIC,
    _variant(ANTHROPIC, "deepseek", vendor="DeepSeek", reasoning_required=True,
             signed_reasoning=False, tools_needed=False, max_bytes=0),
    _variant(ANTHROPIC, "minimax", vendor="MiniMax", signed_reasoning=False, tools_needed=False),
    _variant(ANTHROPIC, "kimi", vendor="Moonshot", native_ids=True, ids_unique=False,
             id_pattern="", signed_reasoning=False, tools_needed=False),
    _variant(ANTHROPIC, "glm", vendor="Zhipu", signed_reasoning=False, tools_needed=False),
    CHAT,
    _variant(CHAT, "mistral", **_MISTRAL),
    _variant(CHAT, "strict", **_STRICT),
    _variant(CHAT, "deepseek", vendor="DeepSeek", reasoning_required=True, ids_unique=True),
    _variant(CHAT, "kimi", vendor="Moonshot", native_ids=True),
    _variant(CHAT, "moonshot", vendor="Moonshot", native_ids=True),
    _variant(CHAT, "minimax", vendor="MiniMax", arguments="json-object", ids_unique=True),
    _variant(CHAT, "glm", vendor="Zhipu", arguments="json-object", null_content="never",
             ids_unique=True),
    _variant(CHAT, "azure", vendor="Azure OpenAI"),
    _variant(CHAT, "ollama", vendor="Ollama", null_content="never", arguments="json-object"),
    _variant(CHAT, "lmstudio", vendor="LM Studio", null_content="never",
             arguments="json-object", system_first=True),
    RESPONSES,
    _variant(RESPONSES, "azure", vendor="Azure OpenAI"),
    _variant(RESPONSES, "copilot", vendor="GitHub Copilot", max_bytes=5 * MIB),
    GEMINI,
    _variant(GEMINI, "vertex", vendor="Vertex AI"),
    BEDROCK,
    _variant(BEDROCK, "classic", starts_with_user=True),
    LANGCHAIN,
    _variant(LANGCHAIN, "mistral", **_MISTRAL),
    _variant(LANGCHAIN, "anthropic", vendor="Anthropic", ids_unique=True,
             id_pattern=ANTHROPIC.id_pattern, name_pattern=ANTHROPIC.name_pattern,
             rejects_text=BLANK),
    _variant(LANGCHAIN, "openai", vendor="OpenAI", name_pattern=CHAT.name_pattern),
)  # fmt: skip

PROFILES = {profile.full_name: profile for profile in _ALL}
# Names that people use who think of the vendor or the model.
_OTHER_NAMES = {
    "aws": "bedrock",
    "chatgpt": "openai-chat",
    "claude": "anthropic",
    "google": "gemini",
    "gpt": "openai-chat",
    "openai": "openai-chat",
    "responses": "openai-responses",
    "vertex": "gemini",
}
_CLASSES = (Anthropic, OpenAIChat, OpenAIResponses, Gemini, Bedrock, LangChain)
CLASSES: dict[str, type[Dialect]] = {kind.name: kind for kind in _CLASSES}
DIALECTS = tuple(CLASSES)
# One of each, for questions about its spelling; to read a list, make a fresh one.
VIEWS: dict[str, Dialect] = {name: kind() for name, kind in CLASSES.items()}


def _suggest_dialect(name: object) -> str:
    """Return a hint: the dialect that a name may stand for, or else all names."""
    alias = _OTHER_NAMES.get(name.lower()) if isinstance(name, str) else None
    hint = f" Did you mean {alias}?" if alias else ""
    hint = hint or (suggestion(name, PROFILES) if isinstance(name, str) else "")
    return hint or (
        f" Known dialects are {', '.join(DIALECTS)}, and profiles as in openai-chat:mistral."
    )


def profile_named(name: object) -> Profile:
    """Return the profile with the name that a user wrote; raise UsageError if there is none."""
    profile = PROFILES.get(name) if isinstance(name, str) else None
    if profile is None:
        shown = repr(name) if isinstance(name, str) else type(name).__name__
        raise UsageError(f"unknown dialect {shown}.{_suggest_dialect(name)}")
    return profile


def new_dialect(name: str) -> Dialect:
    """Return a fresh view for a dialect."""
    return CLASSES[name]()


class Traits(Struct, frozen=True):
    """What depends on a model's version.

    ``known`` is false if no model was named, or one that is not known. Then ``prefill`` is given
    the benefit of the doubt, and reasoning is treated as bound to its prefix, the stricter reading.
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


def traits_of(model: str | None) -> Traits:
    """Return what is known of a model; an unknown name gives the defaults."""
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
    signs = signs_thoughts(model)
    if signs is not None:
        return Traits(known=True, binds_reasoning=False, thought_signatures=signs)
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
    """Return the vendor that issues a model's reasoning, or "" if it is unknown."""
    if not isinstance(model, str):
        return ""
    name = model.lower()
    return next((vendor for vendor, mark in _ISSUERS if mark.search(name)), "")


# The route by which a model is reached, and the issue of it: neither makes it another model.
_ROUTE = re.compile(r"^(?:.*/)?(?:[a-z]{2,6}\.)?(?:anthropic\.|amazon\.|meta\.|mistral\.)?")
_ISSUE = re.compile(r"(?:[-@](?:20\d{6}|20\d{2}-\d{2}-\d{2}|\d{3}|latest))?(?:-v\d+:\d+)?$")


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model, as an alias and its dated issue do."""
    return _bare(one) == _bare(other)


def _bare(model: str) -> str:
    return _ISSUE.sub("", _ROUTE.sub("", model.lower()))
