"""How a dialect talks to its provider, apart from the view: one subclass in each package.

It knows what a response says, how a stream is gathered, how turns of another dialect are written,
and the everyday parts of a request. Everyday parts are written without a view: a long conversation
consists of little else, and the code that knows every case would write the same.
"""

from __future__ import annotations

import json
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct

from lockstitch.conversation.parts import ASSISTANT, CALL, RESULT, TEXT, Message, Part, Path
from lockstitch.conversation.sdk_objects import is_google, to_plain
from lockstitch.dialects.base import Dialect, copy_part, scrub, value_at
from lockstitch.dialects.langchain import fields_of
from lockstitch.dialects.profiles import CLASSES, Profile, new_dialect, profile_named
from lockstitch.dialects.script import TurnWriter

Fields = dict[str, Any]

# The wrapping that Anthropic documents for arguments that are not JSON: a model understands it, and
# no tool takes it for its own arguments.
UNREADABLE = "INVALID_JSON"
# What separates the values in a streamed list.
_GAP = re.compile(r"[, \r\n\t]*")
# Some servers repeat these fields in every chunk; a chunk adds to all other fields.
_SAID_ONCE = frozenset({"role", "type", "id", "name", "format", "index", "object"})

# What google-genai adds to a response by itself.
_NOT_RECEIVED = frozenset({"sdk_http_response", "parsed", "automatic_function_calling_history"})


def plain_of(value: Any) -> Any:
    """Return an SDK object as the plain data its provider sent; plain data stays as it is."""
    kinds: list[type] = [type(item) for item in (value if type(value) is list else [value])]
    if any(map(is_google, kinds)):
        return _plain_google(value)
    return to_plain(value)[0]


def _plain_google(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain_google(item) for item in value]
    if isinstance(value, (bytes, Enum, date)):
        return msgspec.to_builtins(value)
    kind: type = type(value)
    if not is_google(kind) or not hasattr(value, "model_fields_set"):
        return value
    fields: Fields = type(value).model_fields
    return {
        fields[name].alias or name: _plain_google(inner)
        for name, inner in vars(value).items()
        if inner is not None and name not in _NOT_RECEIVED
    }


def events_in(data: bytes) -> Iterator[Any]:
    """Yield the events of a stream, as far as they have come; none if it is not a stream."""
    begin, text = data[:64].lstrip()[:1], data.decode("utf-8", "replace")
    if begin == b"[":
        # without ``alt=sse`` Gemini streams a list, which may be cut off
        decoder, at = json.JSONDecoder(), text.find("[") + 1
        while 0 < at < len(text):
            gap = _GAP.match(text, at)
            try:
                value, at = decoder.raw_decode(text, gap.end() if gap else at)
            except (ValueError, RecursionError):
                return
            yield value
    elif begin != b"{":
        for block in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
            lines = (line[5:] for line in block.split("\n") if line.startswith("data:"))
            said = "\n".join(line.removeprefix(" ") for line in lines)
            value = _event_value(said) if said and said.strip() != "[DONE]" else None
            if value is not None:
                yield value


def _event_value(text: str) -> Any:
    """Return the value of an event, None if it was cut off."""
    try:
        return msgspec.json.decode(text)
    except ValueError:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


class Accumulator(ABC):
    """Gathers a streamed reply event by event; an unknown event changes nothing.

    ``complete`` says whether the provider has said that the reply is over. It stays false if a
    stream breaks off, however it does. ``blocks_closed`` counts the blocks that will not change any
    more.
    """

    # The kinds of event that matter, None for all. SDK helpers mix in others, with snapshots.
    kinds: frozenset[str] | None = None

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.complete = False
        self.blocks_closed = 0

    def feed(self, event: Any) -> None:
        """Take the next event, as an SDK object or as plain data."""
        kind = event.get("type") if isinstance(event, dict) else getattr(event, "type", None)
        if self.kinds is not None and not (isinstance(kind, str) and kind in self.kinds):
            return
        plain = plain_of(event)
        if isinstance(plain, dict):
            self.take(plain)

    @abstractmethod
    def take(self, event: Fields) -> None:
        """Take the next event as plain data."""

    def whole(self) -> Fields:
        """Return the response as it would have come in one piece; of use once it is complete."""
        whole: Fields = _join_halves(self.response_so_far())
        return whole

    def closed(self) -> Any:
        """Return the part of the reply that can be kept as it stands, or None.

        That is a message (in OpenAI Responses a list of items) with the text so far and the blocks
        that are closed. It never holds half a call, or a thought without its end or its signature.
        """
        return scrub(_join_halves(self.part_to_keep()))

    @abstractmethod
    def response_so_far(self) -> Fields:
        """Return the response so far."""

    @abstractmethod
    def part_to_keep(self) -> Any:
        """Return the part of the reply that may be kept, or None."""


def _join_halves(value: Any) -> Any:
    """Join the halves of characters that came in two pieces; a lone half stays."""
    try:
        msgspec.json.encode(value, enc_hook=str)
    except UnicodeError:
        return _recode(value)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return value
    return value


def _recode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, dict):
        return {_recode(key): _recode(inner) for key, inner in value.items()}
    return [_recode(item) for item in value] if isinstance(value, list) else value


def arguments_in(text: str, *, lenient: bool = False) -> Any:
    """Decode a call's arguments; ``UNSET`` if they are not a whole JSON object.

    With ``lenient``, they may hold half a character, as the SDKs allow.
    """
    text = _join_halves(text)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        value = UNSET
        if lenient:
            with suppress(ValueError, RecursionError):
                value = json.loads(text)
    return value if isinstance(value, dict) else UNSET


def fields_at(value: Any, key: str) -> Fields:
    """Return the object under a key, an empty one where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def text_at(value: Any, key: str) -> str:
    """Return the text under a key, "" where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def list_at(value: Any, key: str) -> list[Any]:
    """Return the list under a key, an empty one where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def number_at(value: Any, key: str, otherwise: int) -> int:
    """Return the whole number under a key, or ``otherwise`` if there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if type(found) is int else otherwise


def add(fields: Fields, delta: Fields) -> None:
    """Add a delta to fields: texts and lists grow, objects are merged, the rest is replaced."""
    for key, value in delta.items():
        fields[key] = apply_delta(key, fields.get(key), value)


def apply_delta(key: str, old: Any, new: Any) -> Any:
    """Return a field's value after a delta."""
    if new is None:
        return old
    if isinstance(new, dict):
        grown = dict(old) if isinstance(old, dict) else {}
        add(grown, new)
        return grown
    if isinstance(new, list):
        return _extend(old if isinstance(old, list) else [], new)
    if isinstance(old, str) and isinstance(new, str):
        return old or new if key in _SAID_ONCE else old + new
    return new


def _extend(old: list[Any], new: list[Any]) -> list[Any]:
    """Append items to a list; an item with the index of an earlier one is added to that one."""
    grown = list(old)
    for item in new:
        index = item.get("index") if isinstance(item, dict) else None
        places = range(len(grown)) if type(index) is int else ()
        at = next(
            (n for n in places if isinstance(grown[n], dict) and grown[n].get("index") == index),
            None,
        )
        if at is None:
            grown.append(item)
        else:
            grown[at] = apply_delta("", grown[at], item)
    return grown


# The words of a reply, and the id, name and arguments of each call in it.
Spoken = tuple[list[Any], list[tuple[Any, Any, Any]]]
_SPEAKERS = ("user", "assistant", "system", "developer", "tool", "model", "function")
_SEALED = ("encrypted_content", "encrypted_index", "encrypted_stdout")


class TextResult(NamedTuple):
    """The result of a call: the call's id and name, the text, and whether it failed."""

    id: str
    name: str
    text: str
    failed: bool


class Exchange(ABC):
    """What is sent to a dialect's provider, and what it answers.

    ``provider`` is who serves the dialect unless a profile says otherwise. ``results_by_id`` says
    that a result names its call by nothing but the id, ``marks_failures`` that a result says
    whether the call failed. With ``writes_results``, results of text can be written without a view;
    blank text only with ``takes_blank``, and results without ids only without ``needs_ids``.
    """

    provider: str
    writer: type[TurnWriter]
    stream: type[Accumulator]
    results_by_id = False
    marks_failures = False
    joins_user_messages = False
    has_typed_blocks = True
    writes_results = True
    needs_ids = True
    takes_blank = True

    @abstractmethod
    def messages_in(self, value: Any) -> list[Any]:
        """Return the messages to replay from a response, a message, or a list of either."""

    @abstractmethod
    def text_message(self, text: str) -> Fields:
        """Return a user message with a text that is not blank."""

    def user_message(self, content: Any) -> Fields:
        """Return a user message around content in this dialect's spelling."""
        return {"role": "user", "content": content}

    def plain_messages(self, value: Any) -> list[Fields] | None:
        """Return the messages in an everyday response, None if it needs a longer look."""
        return None

    def words_and_calls(self, messages: list[Any]) -> Spoken:
        """Read everyday messages of a reply; raise ValueError for any others."""
        raise ValueError("replies in this dialect cannot be read in one piece")

    def asked_in(self, messages: list[Fields]) -> list[tuple[str, str]]:
        """Return the ids and names of the calls, where a result needs more than the id."""
        return []

    def plain_results(self, results: Iterable[TextResult]) -> list[Fields]:
        """Return the messages with results of text."""
        raise NotImplementedError

    def leading_messages(self, texts: Mapping[Any, str], *, is_own: bool) -> list[Fields]:
        """Return the instructions before all messages; ``texts`` maps roles to instructions.

        ``is_own`` says that the dialect's author serves it, not another vendor.
        """
        return []

    def system_parameter(self, text: str) -> Any:
        """Return the request parameter for instructions beside the messages; None if none."""
        return None

    def events_in(self, data: bytes) -> Iterator[Any]:
        """Yield the events in the body of a stream, as far as they have come."""
        return events_in(data)

    def unbind(self, view: Dialect, message: Message) -> Any:
        """Return an assistant message without what is bound to its issuer; None if that empties it.

        Everybody else refuses reasoning and signatures, cannot open sealed content, and cannot look
        up the ids of items, which lead to state that only the issuer keeps. The report of a tool
        that a provider ran itself cannot be handed to another one if it exists only in such a form.
        """
        raw = message.raw
        if not isinstance(raw, dict):
            return raw
        freed = (self.free_part(part, message.parts) for part in message.parts)
        parts = [part for part in freed if part is not None]
        beside = self.free_fields(raw)
        same = len(parts) == len(message.parts) and all(map(operator.is_, parts, message.parts))
        if same and beside is raw:
            return raw
        if not parts and not any(beside.get(key) for key in ("refusal", "function_call")):
            return None
        return beside if same else view.rebuild(Message(beside, message.index, message.role, parts))

    def free_part(self, part: Part, parts: list[Part]) -> Part | None:
        """Return a part without what is bound to its issuer, None if nothing of it is left."""
        return part

    def free_fields(self, raw: Fields) -> Fields:
        """Return a message without the fields outside its content that are bound to its issuer."""
        return raw


def without(raw: Fields, keys: Iterable[str]) -> Fields:
    """Return an object without some fields; the same one if it has none of them."""
    found = {key for key in keys if key in raw}
    return {key: value for key, value in raw.items() if key not in found} if found else raw


def with_raw(part: Part, raw: Any) -> Part:
    """Return a part over other raw data; the same part if the data is the same object."""
    return part if raw is part.raw else copy_part(part, raw)


def is_sealed(value: Any) -> bool:
    """Whether a block holds anything that only its issuer can open."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            if any(inner.get(key) for key in _SEALED):
                return True
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)
    return False


def unsealed_citations(block: Fields) -> Fields:
    """Return a text block without the citations that only their issuer can open."""
    citations = block.get("citations")
    if not isinstance(citations, list):
        return block
    kept = [citation for citation in citations if not is_sealed(citation)]
    if len(kept) == len(citations):
        return block
    return {**block, "citations": kept} if kept else without(block, ("citations",))


def read_each(
    values: list[Any], read: Callable[[Any], list[Any]], wrap: Callable[[list[Any]], Fields]
) -> list[Any]:
    """Read each message of a list; a list of blocks becomes one message."""
    if any(isinstance(value, dict) and value.get("role") in _SPEAKERS for value in values):
        return [message for value in values for message in read(value)]
    blocks = [value for value in values if isinstance(value, dict)]
    return [wrap(values)] if blocks and len(blocks) == len(values) else []


def is_text(value: Any) -> bool:
    """Whether a value is a text that is not empty."""
    return type(value) is str and value != ""


def is_worded(block: Any) -> bool:
    """Whether a block has a text that is not empty; any value may be asked about."""
    return type(block) is dict and is_text(block.get("text"))


@cache
def exchange_of(name: str) -> Exchange:
    """Return how a dialect talks to its provider; imported on first use, as checks need none."""
    exchange: Exchange = import_module(f"{CLASSES[name].__module__}.exchange").EXCHANGE
    return exchange


# Profiles that differ in what is accepted, not in who serves them.
_NO_PROVIDERS = ("classic", "strict")


def messages_in(dialect: str, value: Any) -> list[Any]:
    """Return the messages (or items) to replay from a response, a message, or a list of either.

    Of several choices or candidates the first one counts. A message that says nothing is left out,
    and a value that is no answer at all gives an empty list.
    """
    name = profile_named(dialect).dialect
    found = exchange_of(name).messages_in(value)
    if all(map(_plainly_says, found)):
        return found
    view = new_dialect(name)
    return [raw for raw, seen in zip(found, view.read(found), strict=True) if says(view, seen)]


def calls_in(dialect: str, messages: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the id and the name of every call in order, "" for what is missing.

    Calls that the provider ran itself are left out, and so are calls that the reply itself answers.
    """
    view = new_dialect(profile_named(dialect).dialect)
    return [(call.id or "", call.name or "") for call in call_parts(view.read(messages))]


def call_parts(messages: Sequence[Message]) -> list[Part]:
    """Return the calls in a reply that wait for an answer, in order."""
    parts = [part for message in messages for part in message.parts]
    answered = {part.id for part in parts if part.kind == RESULT and part.id}
    return [part for part in parts if part.kind == CALL and part.id not in answered]


def provider_of(dialect: str) -> str:
    """Return who serves a dialect or a profile, unless a caller says otherwise."""
    profile = profile_named(dialect)
    is_named = bool(profile.name) and profile.name not in _NO_PROVIDERS
    return profile.name if is_named else exchange_of(profile.dialect).provider


def without_reasoning(dialect: str, messages: Sequence[Any]) -> list[Any]:
    """Return the same messages for a receiver that did not issue them.

    Reasoning, signatures, sealed content and ids that only the issuer can look up are left out, and
    so is a message that holds nothing else. Messages without any of these are the same objects.
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
    """Whether a message begins with words or a call, and so says something in every view."""
    content = raw.get("content") if type(raw) is dict else None
    if type(content) is not list or not content or type(content[0]) is not dict:
        return type(content) is str and content != ""
    first = content[0]
    return first.get("type") == "tool_use" or (
        type(first.get("text")) is str and first["text"] != ""
    )


def says(view: Dialect, message: Message) -> bool:
    """Whether a message holds anything: a reply may be empty, a message in a request may not."""
    if any(part.kind != TEXT or part.text for part in message.parts):
        return True
    return isinstance(message.raw, dict) and view.has_content_beside(message)


def accumulator_for(dialect: str) -> Accumulator:
    """Return an accumulator for streams in a dialect, or in a profile of one."""
    profile = profile_named(dialect)
    return exchange_of(profile.dialect).stream(profile)


# Anthropic and Bedrock report input from the cache apart from the other input, and Gemini reports
# thoughts apart from the other output; everybody else includes them. Here ``input`` and ``output``
# always include everything.
class Tokens(Struct, frozen=True):
    """Numbers of tokens: ``input`` includes ``cached`` and ``cache_write``.

    ``output`` includes ``reasoning``, as far as a provider reports it.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        """Add number by number."""
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )


class _UsageSpelling(Struct, frozen=True):
    """Where a response has its usage, and the counts that add up to each number.

    A count inside another field is given by its path, and the first path that leads to a count is
    used. The first name of ``input`` or ``output`` shows which spelling a response has.
    """

    home: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    cached: tuple[Path, ...] = ()
    cache_write: tuple[Path, ...] = ()
    reasoning: tuple[Path, ...] = ()


_USAGES = (
    # Anthropic and OpenAI Responses; each lacks the fields that only the other one has.
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
    """Return the token counts in a response, or in a message that has them; None if it has none."""
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
        if all(type(usage.get(mark[0])) is not int for mark in (spelling.input, spelling.output)):
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
    counts = (value_at(usage, path) for path in paths)
    return next((max(count, 0) for count in counts if type(count) is int), 0)
