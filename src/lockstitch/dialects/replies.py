"""What a provider answered, as the messages that a later request hands back, and what it cost.

Everything inside a message stays as it was received: blocks, their order, signatures and fields
that are not known here. Only what a request refuses is left behind: the envelope of the response,
and the few fields that providers write and do not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lockstitch.conversation.parts import ASSISTANT, CALL, RESULT, TEXT, Message, Part
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.exchange import Accumulator
from lockstitch.dialects.langchain import fields_of
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import VIEWS, exchange_of, new_dialect

Fields = dict[str, Any]
Path = tuple[str, ...]

# Profiles that differ in what is accepted, not in who serves it.
_NO_PROVIDERS = ("classic", "strict")


def messages_in(dialect: str, value: Any) -> list[Any]:
    """Return the messages (or items) to replay of a response, a message, or a list of either.

    Of several choices or candidates the first counts. What says nothing, and what is no answer
    at all, gives an empty list.
    """
    name = profile_named(dialect).dialect
    found = exchange_of(name).messages_in(value)
    if all(map(_plainly_says, found)):
        return found
    view = new_dialect(name)
    return [raw for raw, seen in zip(found, view.read(found), strict=True) if says(view, seen)]


def calls_in(dialect: str, messages: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the id and the name of every call in order, "" for what is missing.

    Calls that the provider ran itself are none, nor are those that the reply itself answers.
    """
    view = new_dialect(profile_named(dialect).dialect)
    return [(call.id or "", call.name or "") for call in call_parts(view.read(messages))]


def call_parts(messages: Sequence[Message]) -> list[Part]:
    """Return the calls in a reply's view that wait for an answer, in order."""
    parts = [part for message in messages for part in message.parts]
    answered = {part.id for part in parts if part.kind == RESULT and part.id}
    return [part for part in parts if part.kind == CALL and part.id not in answered]


def provider_of(dialect: str) -> str:
    """Return who serves a dialect or a profile, where nobody says otherwise."""
    profile = profile_named(dialect)
    is_named = bool(profile.name) and profile.name not in _NO_PROVIDERS
    return profile.name if is_named else exchange_of(profile.dialect).provider


def without_reasoning(dialect: str, messages: Sequence[Any]) -> list[Any]:
    """Return the same messages for a receiver that did not issue them.

    Reasoning, signatures, sealed content and ids that only the issuer can look up are left out,
    and so is a message with nothing else in it. Messages that had none are the same objects.
    """
    name = profile_named(dialect).dialect
    view, exchange = new_dialect(name), exchange_of(name)
    freed: list[Any] = []
    for message in view.read(messages):
        if message.role != ASSISTANT:
            freed.append(message.raw)
            continue
        raw = exchange.unbind(view, message)
        if raw is message.raw or (raw is not None and says(view, view.read([raw])[0])):
            freed.append(raw)
    return freed


def _plainly_says(raw: Any) -> bool:
    """Whether a message begins with words or a call, which every view counts as saying."""
    content = raw.get("content") if type(raw) is dict else None
    if type(content) is not list or not content or type(content[0]) is not dict:
        return type(content) is str and content != ""
    first = content[0]
    return first.get("type") == "tool_use" or (
        type(first.get("text")) is str and first["text"] != ""
    )


def says(view: Dialect, message: Message) -> bool:
    """Whether anything is in a message: a reply may be empty, a message in a request not."""
    if any(part.kind != TEXT or part.text for part in message.parts):
        return True
    return isinstance(message.raw, dict) and view.has_content_beside(message)


def dialect_of_class(value: Any) -> str | None:
    """Name the dialect of an SDK's object by where its class was defined."""
    kind: type = type(value)
    homes = [f"{base.__module__}." for base in kind.__mro__]
    for view in VIEWS.values():
        if any(home.startswith(view.sdk_modules) for home in homes):
            return view.name
    return next((name for name, view in VIEWS.items() if view.is_sdk_class(kind)), None)


def dialect_of_response(value: Any) -> str | None:
    """Name the dialect of a whole response by its envelope; None if it has none that is known."""
    if not isinstance(value, dict):
        return None
    return next((name for name, view in VIEWS.items() if view.is_response(value)), None)


def dialect_of_event(event: Any) -> str | None:
    """Name the dialect of a stream by one of its events; None if this one does not tell."""
    if not isinstance(event, dict):
        return dialect_of_class(event)
    return next((name for name, view in VIEWS.items() if view.is_event(event)), None)


def accumulator_for(dialect: str) -> Accumulator:
    """Make what gathers a stream in a dialect, or of a profile of one."""
    profile = profile_named(dialect)
    return exchange_of(profile.dialect).stream(profile)


# Anthropic and Bedrock count what came from the cache beside the other input, everybody else among
# it; Gemini counts thoughts beside the other output, everybody else among it. Here ``input`` and
# ``output`` are always all of it.
class Tokens(Struct, frozen=True):
    """Numbers of tokens: ``cached`` and ``cache_write`` are among ``input``.

    ``reasoning`` is among ``output``, as far as a provider reports it.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        """Add up, number by number."""
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )


class _UsageSpelling(Struct, frozen=True):
    """Where a response has its usage, and the counts that add up to each number.

    Counts below another field go by their path, and the first of several that is there is taken.
    The first name of ``input`` or ``output`` shows which spelling it is.
    """

    home: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    cached: tuple[Path, ...] = ()
    cache_write: tuple[Path, ...] = ()
    reasoning: tuple[Path, ...] = ()


_USAGES = (
    # Anthropic and OpenAI Responses; what the other one has beside it is not there.
    _UsageSpelling(
        "usage",
        ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        ("output_tokens",),
        cached=(("cache_read_input_tokens",), ("input_tokens_details", "cached_tokens")),
        cache_write=(("cache_creation_input_tokens",),),
        reasoning=(
            ("output_tokens_details", "reasoning_tokens"),
            ("output_tokens_details", "thinking_tokens"),
        ),
    ),
    _UsageSpelling(
        "usage",
        ("prompt_tokens",),
        ("completion_tokens",),
        cached=(("prompt_tokens_details", "cached_tokens"), ("prompt_cache_hit_tokens",)),
        reasoning=(("completion_tokens_details", "reasoning_tokens"),),
    ),
    _UsageSpelling(
        "usage",
        ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
        ("outputTokens",),
        cached=(("cacheReadInputTokens",),),
        cache_write=(("cacheWriteInputTokens",),),
    ),
    _UsageSpelling(
        "usageMetadata",
        ("promptTokenCount", "toolUsePromptTokenCount"),
        ("candidatesTokenCount", "thoughtsTokenCount"),
        cached=(("cachedContentTokenCount",),),
        reasoning=(("thoughtsTokenCount",),),
    ),
    _UsageSpelling(
        "usage_metadata",
        ("prompt_token_count", "tool_use_prompt_token_count"),
        ("candidates_token_count", "thoughts_token_count"),
        cached=(("cached_content_token_count",),),
        reasoning=(("thoughts_token_count",),),
    ),
    _UsageSpelling(
        "usage_metadata",
        ("input_tokens",),
        ("output_tokens",),
        cached=(("input_token_details", "cache_read"),),
        cache_write=(("input_token_details", "cache_creation"),),
        reasoning=(("output_token_details", "reasoning"),),
    ),
)


def tokens_in(response: Any) -> Tokens | None:
    """Return what a response, or a message with such a field, says it cost; None if it does not."""
    if isinstance(response, list):
        found = [tokens for tokens in map(tokens_in, response) if tokens is not None]
        return found[-1] if found else None
    if not isinstance(response, dict):
        return None
    fields = fields_of(response)
    for spelling in _USAGES:
        usage = fields.get(spelling.home)
        if not isinstance(usage, dict):
            continue
        if all(_count(usage, (mark,)) is None for mark in (spelling.input[0], spelling.output[0])):
            continue
        return Tokens(
            sum(_first(usage, ((name,),)) for name in spelling.input),
            sum(_first(usage, ((name,),)) for name in spelling.output),
            _first(usage, spelling.cached),
            _first(usage, spelling.cache_write),
            _first(usage, spelling.reasoning),
        )
    return None


def _first(usage: Fields, paths: tuple[Path, ...]) -> int:
    counts = (_count(usage, path) for path in paths)
    return next((count for count in counts if count is not None), 0)


def _count(usage: Fields, path: Path) -> int | None:
    value: Any = usage
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return max(value, 0) if is_number else None
