"""What a dialect must be able to do, and what several of them share."""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET

from lockstitch.conversation.parts import (
    ASSISTANT,
    BROKEN,
    CHANGED,
    MEDIA,
    OTHER,
    RESULT,
    SYSTEM,
    TEXT,
    UNKNOWN,
    USER,
    Message,
    Part,
    Path,
)
from lockstitch.dialects.placeholders import is_partial, is_placeholder

_ENCODE = msgspec.json.Encoder(order="sorted").encode
# Fields that tell results apart, and fields that no model gets to see.
_NAMES = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "cache_control"})

ROLE_ALIASES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "developer": "system",
    "function": "tool",
}


SPEAKERS = frozenset({"user", "assistant", "system"})
# A message of any dialect but those that override ``fits`` has at least one of these fields.
_SAID = frozenset({"content", "tool_calls", "function_call", "refusal", "audio"})


PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class QuickProof(ABC):
    """Walks over raw messages of one dialect and proves that everyday ones are fine.

    ``met`` maps every id that may not come again to the index of its message. If ``plain_ids`` is
    set, the ids have to consist of what it matches.
    """

    plain_ids: re.Pattern[str] | None = None

    def __init__(self) -> None:
        self.met: dict[str, int] = {}
        self.names: set[str] = set()
        self.waiting: list[Any] = []

    @abstractmethod
    def run(self, raw: Sequence[Any], start: int, seams: list[int]) -> int:
        """Walk from a message at which no call is open to the first that is not plain.

        Return its index, and add the seams that were passed to ``seams``. A call that is still open
        at the end fails at the last message.
        """

    def ids_in(self, message: Any) -> Iterable[str]:
        """Return the ids of calls and results in a message, even in a broken one."""
        return ()

    def is_sound(self) -> bool:
        """Whether the ids and names gathered over the whole walk are fine."""
        ids, pattern = self.met, self.plain_ids
        if pattern is not None and ("" in ids or not pattern.fullmatch("".join(ids))):
            return False
        return all(PLAIN_NAME.fullmatch(name) for name in self.names)

    def ids(self) -> Iterable[str]:
        """Return every id that was met."""
        return self.met


class Walker(QuickProof):
    """A proof that can continue after a message that it could not prove."""

    @abstractmethod
    def run(self, raw: Sequence[Any], start: int, seams: list[int], stop: int | None = None) -> int:
        """Walk up to ``stop``; if ``start`` is where the last walk ended, continue that walk."""

    @abstractmethod
    def is_prompt(self, message: Any) -> bool:
        """Whether a new stretch may start at this message after a failure."""

    @abstractmethod
    def is_quiet(self, message: Any) -> bool:
        """Whether this is an assistant message without calls, at which a turn can end."""

    def note(self, message: Any, index: int) -> None:
        """Record the ids of a message in a suspect stretch, so that later uses fail, too."""
        for call in self.ids_in(message):
            self.met.setdefault(call, index)

    def home_of(self, call: str) -> int | None:
        """Return the index of the message that made a call, -1 if several did."""
        return self.met.get(call)


class Dialect(ABC):
    """A lossless view over one wire format, and the marks by which it is recognized.

    ``read`` builds the view, ``rebuild`` turns a changed message back into raw data, and the
    constructors make the few things that a repair may have to add. ``proof`` and ``walker``
    (some dialects have none) are quick walks over everyday shapes.

    ``message_fields`` are all the fields that a message may have, as it is sent or as it came with
    a reply; None if there are too many to list. ``owns`` is only asked about messages with one of
    ``own_keys``, and ``marks_message`` about those with one of ``mark_keys``. ``own_blocks`` are
    types of blocks, ``body_keys`` are fields of a request and ``sdk_modules`` are the modules of an
    SDK's classes; no other format has them. ``also_reads`` names dialects whose lists this one
    reads, too. ``signature_keys`` are the fields in which a part carries the signature of the
    thought that led to it. ``ids_never_repeat`` says that every receiver, variants of the vendor's
    included, refuses an id that comes again.

    ``stream_end`` matches the mark in a stream which says that the reply is whole. That mark cannot
    stand inside a JSON string, in which quotes are escaped and lines do not break.
    ``newest_models`` are the models to which every rule for any model applies; they stand in for
    names that say nothing about their version. ``previous_key`` is the field by which a request
    continues from a response that the provider keeps.

    ``ids_are_optional`` says that a call may have no id, ``has_system_role`` that a message may
    have the system role, ``calls_follow_user`` that a message with calls may not follow another
    message of the model. ``system_field`` is the request field for instructions of text.
    ``part_fields`` are the message fields that its parts stand for, and ``reasoning_field`` is the
    field for reasoning outside of parts. With ``may_end_empty``, an assistant message at the end of
    a list may be empty.
    """

    name: str
    layout: str
    proof: type[QuickProof]
    walker: type[Walker] | None = None
    roles: frozenset[Any] = SPEAKERS
    message_fields: frozenset[str] | None = None
    own_keys: frozenset[str] = frozenset()
    mark_keys: frozenset[str] = frozenset()
    own_blocks: frozenset[str] = frozenset()
    body_keys: frozenset[str] = frozenset()
    sdk_modules: tuple[str, ...] = ()
    also_reads: frozenset[str] = frozenset()
    signature_keys: tuple[str, ...] = ()
    ids_never_repeat = False
    stream_end: re.Pattern[bytes] | None = None
    newest_models: tuple[str, ...] = ()
    previous_key = ""
    ids_are_optional = False
    has_system_role = True
    calls_follow_user = False
    system_field = ""
    reasoning_field = ""
    may_end_empty = False
    part_fields = frozenset({"role", "content", "parts"})

    def read(self, raw: Sequence[Any]) -> list[Message]:
        """View a raw list; odd values become flaws or broken parts, and none raises."""
        view = self._message
        return [view(index, message) for index, message in enumerate(raw)]

    @abstractmethod
    def _message(self, index: int, raw: Any) -> Message:
        """View one message."""

    @abstractmethod
    def rebuild(self, message: Message) -> Any:
        """Return the raw form of a changed or new message, sharing every untouched part."""

    @abstractmethod
    def answer(self, call: Part, text: str, *, failed: bool = True) -> Part | None:
        """Make a result of text for a call, or None if the format cannot express one."""

    @abstractmethod
    def text_part(self, text: str, role: str) -> Part:
        """Make a text part for a message of this role."""

    @abstractmethod
    def result_text(self, part: Part) -> str:
        """Return the text of a result, structured content as JSON."""

    @abstractmethod
    def with_id(self, part: Part, new_id: str) -> Part:
        """Return a copy of a call or a result under another id."""

    @abstractmethod
    def with_name(self, part: Part, name: str) -> Part:
        """Return a copy of a call (or result) under another tool name."""

    @abstractmethod
    def arguments(self, part: Part) -> Any:
        """Return a call's raw arguments; ``msgspec.UNSET`` if this kind of call has none."""

    @abstractmethod
    def with_arguments(self, part: Part, arguments: dict[str, Any]) -> Part:
        """Return a copy of a call with these arguments, in this format's spelling."""

    def is_proven(self, body: dict[str, Any], raw: list[Any], model: str | None) -> bool:
        """Whether a request that is clean text of a usual size certainly breaks no rule.

        May raise KeyError, IndexError, TypeError or AttributeError for a request that is not
        everyday.
        """
        return self.ends_well(body, raw, model) and self.first_odd(raw) == len(raw)

    def ends_well(self, body: dict[str, Any], raw: list[Any], model: str | None) -> bool:
        """Whether the end of everyday messages, and the request around them, are certainly fine."""
        return False

    def first_odd(self, raw: list[Any]) -> int:
        """Return the index of the first message that is not plain, or the length of the list.

        Returns 0 if the ids and names in the list are not fine.
        """
        proof = self.proof()
        at = proof.run(raw, 0, [])
        return at if at < len(raw) or proof.is_sound() else 0

    def owns(self, message: dict[str, Any]) -> bool:
        """Whether a message is written as only this format writes one, whatever it holds."""
        return False

    def marks_message(self, message: dict[str, Any]) -> bool:
        """Whether a message that no format owns has a mark of this one outside its content."""
        return False

    def marks_block(self, block: dict[str, Any]) -> bool:
        """Whether a block without a type is one of this format's."""
        return False

    def marks_body(self, body: dict[str, Any]) -> bool:
        """Whether a request is written as only this format writes one."""
        return isinstance(body.get("messages"), list) and not self.body_keys.isdisjoint(body)

    def is_response(self, value: dict[str, Any]) -> bool:
        """Whether this is a whole response, recognized by its envelope."""
        return False

    def is_event(self, event: dict[str, Any]) -> bool:
        """Whether a value is an event of a stream."""
        return False

    def is_sdk_class(self, kind: type) -> bool:
        """Whether a class is one of the vendor's SDK, recognized by where it was defined."""
        return any(f"{base.__module__}.".startswith(self.sdk_modules) for base in kind.__mro__)

    def fits(self, message: dict[str, Any]) -> bool:
        """Whether a message, sound or broken, may be one of this format's."""
        role = message.get("role")
        is_known = type(role) in (str, type(None)) and role in self.roles
        return is_known and not _SAID.isdisjoint(message)

    def foreign_calls(self, message: dict[str, Any]) -> Iterable[bool]:
        """Return for every call, or result, whether this format never writes it like that."""
        return ()

    def find_doubt(self, messages: list[dict[str, Any]]) -> str:
        """Return why a list that looks like this format's may not be; empty if it surely is."""
        return ""

    def declare_tools(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the fields of a request that declare tools by name, the list of tools first.

        Only called for dialects in which a request with calls needs tools.
        """
        raise NotImplementedError

    def speaker(self, message: Message) -> tuple[str, str]:
        """Return who speaks, and a label unless it is the user, the assistant or the system.

        The words of a tool or of an unknown speaker never become a system message.
        """
        return (message.role if message.role in (USER, ASSISTANT, SYSTEM) else USER), ""

    def beside_content(self, message: Message) -> tuple[dict[str, Any], Path]:
        """Return the fields in which an assistant speaks outside the content, and their path."""
        return {}, ()

    def has_content_beside(self, message: Message) -> bool:
        """Whether a message says something outside its content and its calls."""
        return False

    def new_message(self, role: str, parts: list[Part]) -> Message:
        """Make a message that was not in the list before."""
        return Message(None, -1, role, parts, state=CHANGED)

    def result_message(self, result: Part) -> Message:
        """Make the message that carries one result, in formats where each has its own."""
        return self.new_message("tool", [result])

    def result_media(self, part: Part) -> list[Part]:
        """Return the media in a result, as parts that a user message may hold."""
        return []

    def foreign_result(self, call_id: str, content: Any) -> Part | None:
        """Make a result from the tool message of another format, which this one has no role for."""
        return None

    def beside_payload(self, part: Part) -> Any:
        """Return what a result keeps besides its payload, None if that is nothing."""
        return None

    def listed_calls(self, calls: list[Any], home: int) -> list[Part]:
        """Return the parts for a message's list of calls, in formats that have such a list."""
        return []

    def payload(self, part: Part) -> Any:
        """Return the payload of a result; ``UNSET`` where a result may do without one."""
        return part.raw.get("content", UNSET)

    def with_payload(self, part: Part, payload: Any) -> Part:
        """Return a copy of a result with another payload."""
        return copy_part(part, {**part.raw, "content": payload})

    def is_payload(self, value: Any) -> bool:
        """Whether this format accepts a value of this kind as the payload of a result."""
        if type(value) is str or value is UNSET:
            return True
        return type(value) is list and all(map(is_whole_block, value))

    def as_payload(self, value: Any) -> Any:
        """Convert any value to a payload that this format accepts, keeping all of it."""
        if not isinstance(value, list):
            return as_text(value)
        said = (block for block in value if not is_hollow(block))
        return [b if is_whole_block(b) else self.note_block(as_text(b)) for b in said] or ""

    def note_block(self, text: str) -> Any:
        """Make a text block that can take the place of a media block."""
        return {"type": "text", "text": text}

    def is_placeholder(self, part: Part) -> bool:
        """Whether a program wrote this result in place of a real one."""
        payload = self.payload(part)
        if isinstance(payload, list) and len(payload) > 1:
            return False
        return is_placeholder(self.result_text(part)) and not self.result_media(part)

    def says_nothing(self, part: Part) -> bool:
        """Whether a result is a placeholder that holds no part of the real output."""
        return self.is_placeholder(part) and not is_partial(self.result_text(part))

    def same_result(self, one: Part, other: Part) -> bool:
        """Whether two results say the same."""
        try:
            return _ENCODE(self.outcome(one)) == _ENCODE(self.outcome(other))
        except (TypeError, ValueError, RecursionError, UnicodeError):
            return False

    def outcome(self, part: Part) -> Any:
        """Return everything that a result says, without the ids that tell it apart from others."""
        return {key: value for key, value in part.raw.items() if key not in _NAMES}


class BlockDialect(Dialect):
    """Base of formats whose messages hold one list of blocks.

    ``neutral_roles`` maps the wire's role names to neutral roles. ``role_names`` maps neutral roles
    to the wire's names where they differ. With ``takes_string``, content may be a single text.
    """

    container = "content"
    takes_string = True
    neutral_roles: Mapping[str | None, str] = MappingProxyType(
        {"user": USER, "assistant": ASSISTANT, "system": SYSTEM}
    )
    role_names: Mapping[str, str] = MappingProxyType({})

    def rebuild(self, message: Message) -> Any:
        raw = dict(message.raw) if isinstance(message.raw, dict) else {}
        role, spelled = message.role, raw.get("role")
        if (
            message.raw is None
            or self.neutral_role(spelled) != role
            or (spelled is None and role == USER)
        ):
            spelled = self.role_names.get(role, role)
        raw["role"] = spelled
        blocks: Any = [
            self.text_part(part.raw, ASSISTANT).raw if isinstance(part.raw, str) else part.raw
            for part in message.parts
        ]
        if self.takes_string and len(blocks) == 1 and isinstance(message.parts[0].raw, str):
            blocks = message.parts[0].raw
        raw[self.container] = blocks
        if self.container != "content":
            raw.pop("content", None)
        return raw

    def neutral_role(self, role: object) -> str:
        """Return the neutral role for a wire role, "unknown" if the format has no such role."""
        if not isinstance(role, str | None):
            return UNKNOWN
        return self.neutral_roles.get(role, UNKNOWN)


class KeyedDialect(BlockDialect):
    """Base of formats whose blocks name their kind by the key of their one field.

    The keys below are those of a call's or result's id, of a call's arguments, of a result's
    payload, and of the list in a result that may hold media.
    """

    takes_string = False
    id_key = "id"
    arguments_key: str
    payload_key: str
    media_key: str
    media_kinds: tuple[str, ...]

    def text_part(self, text: str, role: str) -> Part:
        return Part(TEXT, {"text": text}, flavor="text", text=text)

    def note_block(self, text: str) -> Any:
        return {"text": text}

    def outcome(self, part: Part) -> Any:
        return super().outcome(Part(RESULT, part.raw[part.flavor]))

    def result_media(self, part: Part) -> list[Part]:
        nested = part.raw[part.flavor].get(self.media_key)
        blocks = nested if isinstance(nested, list) else []
        return [
            Part(MEDIA, block, flavor=next(iter(block)))
            for block in blocks
            if isinstance(block, dict) and block and next(iter(block)) in self.media_kinds
        ]

    def with_id(self, part: Part, new_id: str) -> Part:
        return copy_part(part, replace_at(part.raw, (part.flavor, self.id_key), new_id), id=new_id)

    def with_name(self, part: Part, name: str) -> Part:
        return copy_part(part, replace_at(part.raw, (part.flavor, "name"), name), name=name)

    def arguments(self, part: Part) -> Any:
        return part.raw[part.flavor].get(self.arguments_key, UNSET)

    def with_arguments(self, part: Part, arguments: dict[str, Any]) -> Part:
        return copy_part(part, replace_at(part.raw, (part.flavor, self.arguments_key), arguments))

    def payload(self, part: Part) -> Any:
        return part.raw[part.flavor].get(self.payload_key)

    def with_payload(self, part: Part, payload: Any) -> Part:
        return copy_part(part, replace_at(part.raw, (part.flavor, self.payload_key), payload))


# Why a block is broken: a list of calls that is empty, or calls in a message that is not the
# assistant's.
NO_CALLS = "no-calls"
CALLS_ELSEWHERE = "calls-elsewhere"


def broken_part(raw: Any, at: Path, home: int, why: str) -> Part:
    """Return a part for a block that cannot be read; ``flavor`` says why."""
    return Part(BROKEN, raw, at, home, flavor=why)


def view_content(
    view: Callable[[Any, Path, int], Part], content: Any, home: int, key: str = "content"
) -> tuple[list[Part], str]:
    """Return the parts of content that is a list of blocks, and a flaw if it is not."""
    if isinstance(content, list):
        return [view(block, slot_path(key, i), home) for i, block in enumerate(content)], ""
    if content is None:
        return [], ""
    return [view(content, (key,), home)], "content"


def view_block(
    raw: Any, at: Path, home: int, media: tuple[str, ...], texts: tuple[str, ...] = ("text",)
) -> Part:
    """View a block of a format whose blocks name their type: a text, media, or another."""
    if isinstance(raw, str):
        return Part(TEXT, raw, at, home, flavor="bare", text=raw)
    if not is_typed_block(raw):
        return broken_part(raw, at, home, "not-an-object")
    kind = raw["type"]
    if kind in texts:
        if isinstance(raw.get("text"), str):
            return Part(TEXT, raw, at, home, flavor=kind, text=raw["text"])
        return broken_part(raw, at, home, "text")
    return Part(MEDIA if kind in media else OTHER, raw, at, home, flavor=kind)


def is_typed_block(value: Any) -> bool:
    """Whether a value is a block that names its type."""
    return isinstance(value, dict) and isinstance(value.get("type"), str) and bool(value["type"])


_TEXTS = ("text", "input_text", "output_text")
_LABELS = ("type", "cache_control")


def is_whole_block(value: Any) -> bool:
    """Whether a value is a block that names its type and, if it is a text block, has a text."""
    if not is_typed_block(value):
        return False
    return value["type"] not in _TEXTS or isinstance(value.get("text"), str)


def is_hollow(value: Any) -> bool:
    """Whether a value is a text block that holds nothing at all, not even an empty text."""
    return (
        is_typed_block(value)
        and value["type"] in _TEXTS
        and all(held in (None, [], {}) for key, held in value.items() if key not in _LABELS)
    )


# NUL and lone surrogates: providers refuse the one, and the other cannot be encoded.
UNSENDABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Replace every NUL and lone surrogate by U+FFFD."""
    return UNSENDABLE.sub("\ufffd", text)


def scrub(value: Any) -> Any:
    """Copy a value with every NUL and lone surrogate replaced; clean values are shared."""
    if type(value) is str:
        fresh = clean_text(value)
        return value if fresh == value else fresh
    if isinstance(value, dict):
        pairs = {
            clean_text(key) if isinstance(key, str) else key: scrub(inner)
            for key, inner in value.items()
        }
        same = all(key in pairs and pairs[key] is inner for key, inner in value.items())
        return value if same and len(pairs) == len(value) else pairs
    if isinstance(value, list):
        items = [scrub(inner) for inner in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    return value


def objects_at(message: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects in the list under a key; none if there is no list."""
    listed = message.get(key)
    return [one for one in listed if type(one) is dict] if type(listed) is list else []


def as_text(value: Any) -> str:
    """Return a value as text: a string as it is, nothing as "", anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else as_json(value)


_SLOTS: dict[str, tuple[Path, ...]] = {
    key: tuple((key, number) for number in range(64)) for key in ("content", "parts", "tool_calls")
}
CONTENT_SLOTS = _SLOTS["content"]


def slot_path(key: str, number: int) -> Path:
    """Return the path to a list element; the common ones are made once and shared."""
    paths = _SLOTS[key]
    return paths[number] if number < len(paths) else (key, number)


def as_id(value: object) -> str | None:
    """Read an id; anything but a string counts as missing."""
    return value if isinstance(value, str) else None


def as_json(value: Any) -> str:
    """Return structured content as JSON text; a value that JSON cannot express, as its repr.

    A value that is nested too deeply is named by its type.
    """
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, UnicodeError):
        return repr(value)
    except RecursionError:
        return f"<{type(value).__name__}, nested too deeply>"


def value_at(value: Any, path: Path) -> Any:
    """Return the value at a path of plain data, None if there is none."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def replace_at(raw: Any, path: Path, value: Any) -> Any:
    """Return a copy of nested dicts and lists with one value replaced; the rest is shared."""
    if not path:
        return value
    if isinstance(raw, list):
        at = int(path[0])
        return [*raw[:at], replace_at(raw[at], path[1:], value), *raw[at + 1 :]]
    fields = raw if isinstance(raw, dict) else {}
    return {**fields, path[0]: replace_at(fields.get(path[0]), path[1:], value)}


def replace_all_at(raw: Any, values: Sequence[tuple[Path, Any]]) -> Any:
    """Return a copy with several values replaced, one after the other; the rest is shared."""
    grown: dict[str | int, list[tuple[Path, Any]]] = {}
    for path, value in values:
        if not path:
            raw, grown = value, {}
        else:
            step = int(path[0]) if isinstance(raw, list) else path[0]
            grown.setdefault(step, []).append((path[1:], value))
    if not grown:
        return raw
    if isinstance(raw, list):
        return [replace_all_at(item, grown.get(at, ())) for at, item in enumerate(raw)]
    fields = raw if isinstance(raw, dict) else {}
    fresh = {step: replace_all_at(fields.get(step), below) for step, below in grown.items()}
    return {**fields, **fresh}


def without_calls(raw: dict[str, Any]) -> dict[str, Any]:
    """Copy a message without the calls listed in it."""
    return {key: value for key, value in raw.items() if key != "tool_calls"}


def without_id(raw: dict[str, Any]) -> dict[str, Any]:
    """Copy an item without its own, optional id."""
    return {key: value for key, value in raw.items() if key != "id"}


def text_of_blocks(content: Any, key: str = "text") -> str:
    """Join the texts of a list of blocks; a string is returned as it is."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else as_json(content)
    texts = [
        block if isinstance(block, str) else block[key]
        for block in content
        if isinstance(block, str) or (isinstance(block, dict) and isinstance(block.get(key), str))
    ]
    return "\n".join(texts)


def media_blocks(content: Any, kinds: tuple[str, ...]) -> list[Part]:
    """Return the blocks of these kinds as parts."""
    blocks = content if isinstance(content, list) else []
    return [
        Part(MEDIA, block, flavor=block["type"])
        for block in blocks
        if isinstance(block, dict) and block.get("type") in kinds
    ]


def copy_part(part: Part, raw: Any, **changes: Any) -> Part:
    """Copy a part over new raw data; it keeps its home, so that edits can name it."""
    fields = {
        "kind": part.kind,
        "at": part.at,
        "home": part.home,
        "id": part.id,
        "name": part.name,
        "flavor": part.flavor,
        "text": part.text,
    }
    return Part(raw=raw, **{**fields, **changes})


def keep_if_same(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the old object if the new one has the very same fields, else the new one."""
    is_whole = old.keys() == new.keys() and all(map(operator.is_, map(new.get, old), old.values()))
    return old if is_whole else new
