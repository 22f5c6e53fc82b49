"""Turn messages and replies into events, whole or as they are streamed.

JSON given as bytes or text is kept byte for byte. For an SDK's object, the JSON that its provider
sent is written: only fields that were received, under their names on the wire, including fields
that the SDK does not know. Where a wire format carries bytes (Gemini's signatures and inline data,
Bedrock's redacted reasoning) its JSON has base64, and so has the event.

Of a streamed reply, whatever has arrived is kept, even if the rest never comes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

import msgspec
from msgspec import Raw, structs

from lockstitch.conversation import json_text
from lockstitch.conversation.parts import ASSISTANT
from lockstitch.conversation.sdk_objects import is_langchain, reader_of, to_plain
from lockstitch.dialects.exchange import (
    Accumulator,
    accumulator_for,
    calls_in,
    exchange_of,
    messages_in,
    plain_of,
    provider_of,
)
from lockstitch.dialects.profiles import new_dialect, profile_named
from lockstitch.dialects.recognize import (
    confirm_dialect,
    dialect_of,
    dialect_of_class,
    dialect_of_event,
    dialect_of_response,
)
from lockstitch.errors import AmbiguousDialect, Busy, LockstitchError, UsageError
from lockstitch.journal.events import (
    AskedCall,
    Partial,
    Replied,
    payload_of,
    text_payload,
    value_of,
)
from lockstitch.session import decisions
from lockstitch.session.writing import DeferredSignals, SessionWriter, new_name, reason_of

_WANTED = "say takes a string, or content blocks in the form of the dialect"
_USERS = ("user", "human")


def said_payload(content: Any, dialect: str) -> Raw:
    """Return the payload of a user's message; of a whole message, that is its content.

    Raises ``UsageError`` for a value that fits in no message, before anything is written.
    """
    if isinstance(content, str):
        return text_payload(content)
    if not dialect:
        raise UsageError("content blocks have the form of some dialect: name it (dialect=…)")
    has_types = exchange_of(profile_named(dialect).dialect).has_typed_blocks
    blocks = to_plain(content)[0]
    if isinstance(blocks, dict) and _role(blocks):
        if _role(blocks) not in _USERS:
            raise UsageError(f"{_WANTED}; this is another author's message: record takes replies")
        blocks = blocks.get("content", blocks.get("parts"))
    elif isinstance(blocks, dict):
        blocks = [blocks]
    if not isinstance(blocks, str | list):
        raise UsageError(f"{_WANTED}; this is of type {type(blocks).__name__}")
    for block in [] if isinstance(blocks, str) else blocks:
        fault = ""
        if isinstance(block, str):
            continue
        if not isinstance(block, dict):
            fault = f"something of type {type(block).__name__} in it"
        elif _role(block):
            fault = "messages in it: say them one by one"
        elif not block or (has_types and not isinstance(block.get("type"), str)):
            fault = "a block in it that has no type"
        if fault:
            raise UsageError(f"{_WANTED}; this is a list with {fault}")
    return json_payload(blocks)


def _role(block: Any) -> Any:
    """Return the role of a whole message; a content block has none."""
    if not isinstance(block, dict):
        return None
    is_message = "content" in block and block.get("type") in {"human", "ai", "system", "tool"}
    return block.get("role") or (block["type"] if is_message else None)


def content_payload(content: Any, dialect: str) -> Raw:
    """Return the payload for content blocks; raise ``UsageError`` if the value is not content."""
    profile_named(dialect)
    return json_payload(to_plain(content)[0])


def json_payload(value: Any) -> Raw:
    """Return the payload for plain data; characters that UTF-8 cannot encode are replaced."""
    try:
        return Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return Raw(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(error).__name__
        raise UsageError(f"this cannot be written as JSON ({kind}); nothing was written") from None


_UNFINISHED = ("queued", "in_progress")
_UNWRITABLE = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)


def reply_event(
    reply: Any,
    dialect: str | None = None,
    *,
    provider: str | None = None,
    model: str | None = None,
    likely: str = "",
) -> Replied:
    """Return the event for a reply, which is a whole response or the message in one.

    ``reply`` is an SDK's object, plain data, or JSON. If ``dialect`` is not given, it is recognized
    by the class or shape of the reply, and otherwise assumed to be ``likely``. ``provider``
    defaults to the usual provider of the dialect, ``model`` to the one named in the reply. Raises
    ``UsageError`` if the value is not a reply but a request, an error, or a message of somebody
    else.
    """
    payload, value = _read_reply(reply)
    shaped = dialect_of_class(reply) or dialect_of_response(value)
    name = _dialect_of_reply(dialect, shaped, value, likely)
    messages = _check_reply(name, value)
    return Replied(
        payload=payload,
        dialect=profile_named(name).dialect,
        provider=provider if provider is not None else provider_of(name),
        model=model if model is not None else _model_in(value),
        calls=_asked(name, messages),
    )


def _read_reply(reply: Any) -> tuple[Raw, Any]:
    """Return the JSON to store, and its decoded value."""
    if isinstance(reply, (bytes, bytearray, memoryview, str)):
        text = reply if isinstance(reply, str) else bytes(reply)
        try:
            payload = payload_of(text)
            return payload, value_of(payload, inner=True)
        except (ValueError, RecursionError):
            raise UsageError(_why_unreadable(text)) from None
    kind: type = type(reply)
    if not isinstance(reply, (dict, list)) and reader_of(kind) is None:
        raise UsageError(
            f"cannot read a reply from {kind.__module__}.{kind.__qualname__}; pass the response, "
            "its JSON, or plain data"
        )
    value = plain_of(reply)
    hook = _plain_or_text if is_langchain(kind) else None
    try:
        payload = Raw(msgspec.json.encode(value, enc_hook=hook))
    except UnicodeError:
        # Python accepts half a surrogate pair; the stored JSON has a replacement for it.
        payload = payload_of(json.dumps(msgspec.to_builtins(value, enc_hook=hook)))
    except _UNWRITABLE:
        raise UsageError(
            f"cannot write this {type(value).__name__} as JSON; nothing was recorded"
        ) from None
    return payload, value_of(payload, inner=True)


def _why_unreadable(text: bytes | str) -> str:
    """Return why a text is not accepted as a reply."""
    try:
        plain = text.decode() if isinstance(text, bytes) else text
        json_text.decode(plain, constants=False)
    except ValueError:
        return "this reply is text that is not JSON; pass the response itself"
    return (
        f"this reply holds an integer of more than {json_text.LONGEST} digits, or is nested too "
        "deeply, so it cannot be recorded; ask the model again"
    )


def _plain_or_text(value: Any) -> Any:
    """Return plain data for what LangChain keeps beside messages, such as an SDK's objects."""
    kind: type = type(value)
    return plain_of(value) if reader_of(kind) is not None else str(value)


def _asked(name: str, messages: list[Any]) -> tuple[AskedCall, ...]:
    """Return the calls that a reply asks for; characters that UTF-8 cannot encode are replaced."""
    calls = calls_in(name, messages)
    return tuple(
        AskedCall(*(text.encode("utf-8", "replace").decode() for text in call)) for call in calls
    )


def _dialect_of_reply(dialect: str | None, shaped: str | None, value: Any, likely: str) -> str:
    """Return the dialect of a reply; raise ``UsageError`` if another one was named."""
    messages = value if isinstance(value, list) else [value]
    if dialect is not None:
        named = profile_named(dialect).dialect
        if shaped is not None and shaped != named:
            raise UsageError(f"this is a reply in {shaped}, not in {named}; name that one")
        return dialect if shaped else confirm_dialect(messages, dialect)
    if shaped:
        return shaped
    _refuse_others(value)
    try:
        return dialect_of(messages)
    except AmbiguousDialect:
        if likely:
            return confirm_dialect(messages, likely)
        raise AmbiguousDialect(
            "nothing in this reply shows its dialect; name one, or pass the whole response"
        ) from None


def _check_reply(name: str, value: Any) -> list[Any]:
    """Return the messages of a reply; raise ``UsageError`` if it is not one."""
    _refuse_others(value)
    messages = messages_in(name, value)
    dialect = profile_named(name).dialect
    view = new_dialect(dialect).read(messages)
    if dialect_of_response(value) is None and any(message.role != ASSISTANT for message in view):
        raise UsageError("this is not a reply: it holds a message that no model has sent")
    if not messages and not _is_empty_reply(dialect, value):
        raise UsageError(f"this is not a reply in {dialect}: there is no message in it")
    return messages


def _refuse_others(value: Any) -> None:
    """Raise ``UsageError`` for a request or an error, which are not part of a conversation."""
    if not isinstance(value, dict):
        return
    if any(isinstance(value.get(key), list) for key in ("messages", "contents", "input")):
        raise UsageError("this is a request body, not a reply; nothing was recorded")
    status = value.get("status")
    if value.get("type") == "error" or value.get("error") or status == "failed":
        raise UsageError("this is an error from the provider, not a reply; nothing was recorded")
    if value.get("object") == "response" and status in _UNFINISHED:
        raise UsageError("this response is not finished; nothing was recorded")


def _is_empty_reply(dialect: str, value: Any) -> bool:
    """Whether this is a reply without content, which models do give."""
    if dialect_of_response(value) == dialect:
        return True
    if not isinstance(value, dict):
        return False
    fields = value.get("data") or value.get("kwargs") or value
    fields = fields if isinstance(fields, dict) else value
    is_said = fields.get("role") in ("assistant", "model") or fields.get("type") == "ai"
    return is_said or str(value.get("type")) in ("ai", "AIMessageChunk", "constructor")


def _model_in(value: Any) -> str:
    """Return the model that a response names; "" if it names none."""
    fields = value if isinstance(value, dict) else {}
    for key in ("data", "kwargs", "response_metadata"):
        inner = fields.get(key)
        fields = inner if isinstance(inner, dict) else fields
    names = (fields.get(key) for key in ("model", "model_name", "modelVersion", "model_version"))
    return next((name for name in names if isinstance(name, str) and name), "")


OFTEN = 2.0


class StreamRecorder:
    """Records a streamed reply in a session; its methods may wait for the store.

    The reply so far is written whenever a block ends, and every ``OFTEN`` seconds within a text.
    Each write contains all of it and so replaces the one before.
    """

    def __init__(  # noqa: PLR0913 - options by name
        self,
        writer: SessionWriter,
        holder: object,
        dialect: str | None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> None:
        self.has_ended = False
        self.is_complete = False
        self.reply: dict[str, Any] | None = None
        self._writer = writer
        # A session that nothing refers to releases its lease, so a stream keeps a reference to its
        # session.
        self._holder = holder
        self._provider, self._model = provider, model
        self._key = key
        self._clock = time.monotonic
        self._name = new_name()
        self._after = 0
        self._dialect = dialect
        self._gathered: Accumulator | None = accumulator_for(dialect) if dialect else None
        self._early: list[Any] = []
        self._closed = 0
        self._written: Any = None
        self._at = self._clock()
        self._require_no_other()

    def begin(self) -> None:
        """Become the only open stream of the session."""
        self._require_no_other()
        self._after = self._writer.last_request()
        self._writer.streams.append(self)

    def _require_no_other(self) -> None:
        if self._writer.streams:
            raise UsageError("a stream of this session is still open: end it first")

    def take(self, event: Any) -> bool:
        """Process the next event; return whether it is time for :meth:`keep`."""
        if self._gathered is None:
            # The first events of some streams do not tell the dialect: keep them until one does.
            self._early.append(event)
            self._dialect = dialect_of_event(event)
            if self._dialect is None:
                return False
            self._gathered = accumulator_for(self._dialect)
            for early in self._early:
                self._gathered.feed(early)
        else:
            self._gathered.feed(event)
        return self._gathered.blocks_closed > self._closed or self._clock() - self._at >= OFTEN

    def keep(self) -> None:
        """Write the reply so far, if there is anything new in it.

        If the store is busy, the next event tries again.
        """
        part = self._part()
        if part is not None and self._gathered is not None:
            with suppress(Busy):
                self._writer.add(part)
                self._written = part.payload
                self._closed, self._at = self._gathered.blocks_closed, self._clock()

    def _part(self) -> Partial | None:
        """Return the event for the reply so far; None if there is nothing new in it."""
        if self._gathered is None:
            return None
        gathered, message = self._gathered, self._gathered.closed()
        if message is None:
            return None
        name = gathered.profile.full_name
        part = Partial(
            payload=json_payload(message),
            dialect=gathered.profile.dialect,
            provider=provider_of(name) if self._provider is None else self._provider,
            model=_model_in(gathered.whole()) if self._model is None else self._model,
            calls=_asked(name, messages_in(name, message)),
            stream=self._name,
            after=self._after,
        )
        return None if part.payload == self._written else part

    def end(self, error: BaseException | None = None, reason: str = "user") -> None:
        """End the stream: record the whole reply, or else the part that came and why it ended."""
        if self.has_ended:
            return
        with DeferredSignals():
            if not self._is_recorded():
                why = reason if error is None else reason_of(error)
                part, name = self._part(), self._name
                self._writer.decide(lambda state: decisions.end_stream(state, part, name, why))
            self.has_ended = True
            if self in self._writer.streams:
                self._writer.streams.remove(self)

    def leave(self, error: BaseException | None) -> None:
        """End the stream at the end of its block, but let the block's own exception through."""
        try:
            self.end(error)
        except LockstitchError:
            if error is None:
                raise

    def _is_recorded(self) -> bool:
        """Record the reply if it is complete; return False if it is not, or if it is an error."""
        gathered = self._gathered
        if gathered is None or not gathered.complete:
            return False
        whole = gathered.whole()
        try:
            event = reply_event(
                whole, gathered.profile.full_name, provider=self._provider, model=self._model
            )
        except UsageError:
            return False
        event = structs.replace(event, stream=self._name, after=self._after)
        self._writer.add_reply(event, self._key)
        self.reply, self.is_complete = whole, True
        return True


class ReplyStream:
    """What synchronous and asynchronous streams have in common."""

    def __init__(self, recorder: StreamRecorder, source: Any) -> None:
        if source is None or isinstance(source, str | bytes | int | float):
            kind = type(source).__name__
            raise UsageError(
                f"a stream must be a client's stream, or an iterator of events, not a {kind}"
            )
        self._recorder = recorder
        self._source = source

    def __repr__(self) -> str:
        """Return whether the stream has ended, but nothing of what was said."""
        ended = "ended early" if self._recorder.has_ended else "open"
        return f"<{type(self).__name__}: {'complete' if self.complete else ended}>"

    @property
    def complete(self) -> bool:
        """Whether the reply arrived in full and was recorded."""
        return self._recorder.is_complete

    @property
    def reply(self) -> dict[str, Any] | None:
        """The reply as one response, once it is complete."""
        return self._recorder.reply


class Stream(ReplyStream):
    """A streamed reply in a ``with`` block: iterate over it as over the SDK's stream.

    A reply that arrives in full is recorded as a whole, and :attr:`complete` is true. If the block
    is left earlier, the part that has arrived is kept, and its calls are not run: ``break`` and
    Ctrl-C also interrupt the turn, while after an exception, or if the provider cuts the stream,
    the turn stays open and the model can be asked again. Parts are stored as they arrive, so a
    crash keeps all but the last moments.
    """

    def __init__(self, recorder: StreamRecorder, source: Any) -> None:
        super().__init__(recorder, source)
        self._events: Iterator[Any] | None = None

    def __enter__(self) -> Self:
        """Begin to read the stream."""
        self._recorder.begin()
        try:
            source = stream_in(self._source)
            enter = getattr(source, "__enter__", None)
            self._events = iter(enter() if enter else source)
        except BaseException as error:
            self._recorder.end(error)
            raise
        return self

    def __iter__(self) -> Iterator[Any]:
        """Return the stream itself."""
        return self

    def __next__(self) -> Any:
        """Return the next event of the source, after storing what it adds."""
        if self._events is None:
            raise UsageError("a stream is read inside its with block")
        try:
            event = next(self._events)
        except StopIteration:
            self._recorder.end(reason="cut")
            raise
        with DeferredSignals():
            if self._recorder.take(event):
                self._recorder.keep()
        return event

    def finish(self) -> Stream:
        """Read the rest of the stream, and return the stream."""
        for _ in self:
            pass
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the reply, and close the source."""
        try:
            self._recorder.leave(error)
        finally:
            source = stream_in(self._source)
            if self._events is not None and hasattr(source, "__exit__"):
                source.__exit__(kind, error, trace)
            else:
                close = getattr(source, "close", None)
                if callable(close):
                    close()


def stream_in(source: Any) -> Any:
    """Return the stream in a client's response: botocore returns it inside a dict."""
    return source["stream"] if isinstance(source, dict) and "stream" in source else source
