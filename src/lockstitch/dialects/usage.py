"""What a provider says that a reply cost, counted alike whoever says it.

Anthropic and Bedrock count what came from the cache beside the other input, everybody else among
it; Gemini counts thoughts beside the other output, everybody else among it. Here ``input`` and
``output`` are always all of it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lockstitch.dialects.langchain import fields_of

Fields = dict[str, Any]
Path = tuple[str, ...]


class Tokens(Struct, frozen=True):
    """Numbers of tokens: ``cached`` and ``cache_write`` are among ``input``.

    ``reasoning`` is among ``output``, as far as a provider tells it.
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
    Which spelling it is, is told by the first name of ``input`` or ``output``.
    """

    home: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    cached: tuple[Path, ...] = ()
    cache_write: tuple[Path, ...] = ()
    reasoning: tuple[Path, ...] = ()


_SPELLINGS = (
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
    """Read what a response, or a message with such a field, says it cost; None if it does not."""
    if isinstance(response, list):
        found = [tokens for tokens in map(tokens_in, response) if tokens is not None]
        return found[-1] if found else None
    if not isinstance(response, dict):
        return None
    fields = fields_of(response)
    for spelling in _SPELLINGS:
        usage = fields.get(spelling.home)
        if isinstance(usage, dict) and _is_spelled(spelling, usage):
            return Tokens(
                sum(_first(usage, ((name,),)) for name in spelling.input),
                sum(_first(usage, ((name,),)) for name in spelling.output),
                _first(usage, spelling.cached),
                _first(usage, spelling.cache_write),
                _first(usage, spelling.reasoning),
            )
    return None


def _is_spelled(spelling: _UsageSpelling, usage: Fields) -> bool:
    marks = (spelling.input[0], spelling.output[0])
    return any(_count(usage, (mark,)) is not None for mark in marks)


def _first(usage: Fields, paths: tuple[Path, ...]) -> int:
    counts = (_count(usage, path) for path in paths)
    return next((count for count in counts if count is not None), 0)


def _count(usage: Fields, path: Path) -> int | None:
    value: Any = usage
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return max(value, 0) if is_number else None
