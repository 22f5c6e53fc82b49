"""LS5xx: media, encoding and size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import structs

from lockstitch.conversation.parts import MEDIA, RESULT, Path
from lockstitch.dialects.base import UNSENDABLE
from lockstitch.dialects.media import (
    ACCEPTED,
    Image,
    head_of,
    images_in,
    is_decodable,
    pixels,
    sniff,
)
from lockstitch.rules.rule import ERROR, NOTE, WARNING, Case, Finding, Rule, finder, rule, word

_LONGEST_PATH = 16
GIANT = 10 * 1024 * 1024
_NUL = re.compile("\x00")
_SURROGATE = re.compile("[\ud800-\udfff]")

IMAGE_TOO_LARGE = rule(
    code="LS501",
    name="image-too-large",
    counted=("image that is too large", "images that are too large"),
    dialects=("anthropic", "bedrock"),
    lossy=True,
    errors={
        "anthropic": "<where>.image.source.base64.data: At least one of the image dimensions "
        "exceed max allowed size<many>: <n> pixels",
    },
    summary="an image has more pixels than the provider accepts",
    help="heal replaces it with a note and lists the image in the quarantine",
    what="One side of an image is longer than the limit. The limit is lower for requests with "
    "many images, so an old image that was accepted can become invalid later.",
    cause="Full-resolution screenshots pile up in a long session.",
    repair="The image is replaced by a text note; the image itself is quarantined.",
    failures=("F49",),
)
BAD_IMAGE = rule(
    code="LS502",
    name="bad-image",
    counted=("broken image", "broken images"),
    lossy=True,
    errors={
        "anthropic": "<where>.image.source.base64.media_type: Input should be 'image/jpeg', "
        "'image/png', 'image/gif' or 'image/webp'",
        "anthropic (label)": "<where>.image.source.base64: The image was specified using the "
        "<label> media type, but the image appears to be a <kind> image",
        "openai-chat": "The image data you provided does not represent a valid image.",
        "openai-responses": "The image data you provided does not represent a valid image.",
    },
    summary="an image cannot be decoded, or does not match its label",
    help="heal corrects a wrong label; an image that cannot be decoded is replaced by a note",
    what="The payload is not valid base64, is not an image, or is of another type than its label "
    "says.",
    cause="A PDF or other file was returned as an image, the bytes are corrupt, or the label was "
    "guessed.",
    repair="If the bytes are an image that the provider accepts, only the label changes. Otherwise "
    "the part is replaced by a text note and quarantined. No other part is touched.",
    failures=("F50",),
)
ERROR_MEDIA = rule(
    code="LS503",
    name="media-in-error-result",
    counted=("image in an error result", "images in error results"),
    dialects=("anthropic",),
    errors={"anthropic": "all content must be type `text` if `is_error` is true"},
    summary="an error result holds something other than text",
    help="heal moves it after the results and keeps the text",
    what="A result with `is_error` may hold text only.",
    cause="A failed tool returned a screenshot, or a repair marked a result as an error.",
    repair="Everything that is not text moves after the results of the same message.",
    failures=("F51",),
)
TOO_MANY_BYTES = rule(
    code="LS504",
    name="request-too-large",
    counted=("request that is too large", "requests that are too large"),
    dialects=("anthropic", "bedrock", "openai-responses:copilot"),
    lossy=True,
    errors={
        "anthropic": "Request too large (max 32MB)",
        "openai-responses:copilot": "The request is too large to send through CAPI Responses. Try "
        "shortening the conversation or prompt. (<size> MB request; <limit> MB limit)",
    },
    summary="the request has more bytes than the provider accepts",
    help="heal replaces the oldest images with notes until it fits",
    what="Bytes are limited separately from tokens: an image counts for few tokens but many bytes.",
    cause="Screenshots and documents pile up as base64 while the token count stays low.",
    repair="The oldest images are replaced by notes and quarantined. If no image is left to "
    "remove, the list is returned unchanged, with this finding.",
    failures=("F52",),
)
LONE_SURROGATE = rule(
    code="LS505",
    name="lone-surrogate",
    counted=("broken character", "broken characters"),
    errors={
        "anthropic": "The request body is not valid JSON: no low surrogate in string: line 1 "
        "column <n> (char <n>)",
    },
    summary="a text holds half of a surrogate pair",
    help="heal replaces it with U+FFFD",
    what="A lone UTF-16 surrogate cannot be encoded; the body is not valid JSON.",
    cause="The output was cut between the two halves of an emoji, or it is binary.",
    repair="Each lone half becomes U+FFFD; the rest of the text does not change. A signed block "
    "that contains one is dropped, since its signature would no longer match.",
    failures=("F53",),
)
NUL = rule(
    code="LS506",
    name="nul-character",
    counted=("NUL character", "NUL characters"),
    errors={
        "anthropic": "The request body is not valid JSON: unexpected end of data: line 1 column "
        "<n> (char <n>)",
    },
    summary="a text holds a NUL character",
    help="heal replaces it with U+FFFD",
    what="NUL ends the text for some parsers and is refused by others (PostgreSQL's jsonb). The "
    "Responses API accepts it, so this is a note there.",
    cause="Binary command output was stored as text.",
    repair="Each NUL becomes U+FFFD; the rest of the text does not change.",
    failures=("F54",),
    known="Codex sends output with NUL to the Responses API, and gets an answer",
)
GIANT_RESULT = rule(
    code="LS507",
    name="giant-result",
    counted=("tool result over 10 MB", "tool results over 10 MB"),
    severity=WARNING,
    fixable=False,
    summary="one tool result is larger than 10 MB",
    help="shorten it before it is stored; heal leaves it alone",
    what="A single result this large freezes clients, and later exceeds every context window.",
    cause="A diff, a dump or a log was returned inline.",
    repair="None: shortening it is a task for compaction, and is never done silently.",
    failures=("F55",),
)


@finder(IMAGE_TOO_LARGE, BAD_IMAGE, having=(MEDIA, RESULT))
def images(case: Case) -> Iterator[Finding]:
    """LS501 and LS502."""
    found = all_images(case)
    limit = pixel_limit(case, len(found))
    for image in found:
        place = case.place(image.part)
        head = head_of(image.data)
        fault = image_fault(image, head)
        # Anthropic names an image through the result that holds it, if there is one
        is_held = image.path[:1] == ("content",)
        where = f"{place}.tool_result.content.{image.path[1]}" if is_held else str(place)
        if fault:
            only_label = can_relabel(image, head)
            yield case.find(
                BAD_IMAGE,
                place,
                fault,
                wording="label" if only_label and image.label in ACCEPTED else "",
                lossy=not only_label,
                where=where,
                label=word(image.label),
                kind=sniff(head),
            )
        elif limit and pixels(head) > limit:
            text = f"an image of {pixels(head)} pixels, at most {limit} are accepted"
            many = " for many-image requests" if limit == case.profile.max_pixels_many else ""
            yield case.find(IMAGE_TOO_LARGE, place, text, n=limit, many=many, where=where)


def all_images(case: Case) -> list[Image]:
    """Return every inline image of a case, oldest first."""
    parts = [part for part in case.parts.rest if part.kind == MEDIA]
    parts += [part for part in case.parts.results if type(part.raw.get("content")) is not str]
    parts.sort(key=lambda part: part.home)
    return [image for part in parts for image in images_in(part)]


def pixel_limit(case: Case, count: int) -> int:
    """Return the limit for an image's longer side, 0 for none."""
    profile = case.profile
    if profile.max_pixels_many and profile.many_images and count > profile.many_images:
        return profile.max_pixels_many
    return profile.max_pixels


def image_fault(image: Image, head: bytes) -> str:
    """Return what is wrong with an image, or ""."""
    if not is_decodable(image.data):
        return "an image that cannot be decoded"
    kind = sniff(head)
    if kind not in ACCEPTED:
        return f"an image labelled {word(image.label)} that is not an image the provider accepts"
    label = "image/jpeg" if image.label == "image/jpg" and not image.label_at else image.label
    return "" if kind == label else f"an image labelled {word(image.label)} that is {kind}"


def can_relabel(image: Image, head: bytes) -> bool:
    """Whether only the label of a faulty image is wrong."""
    return sniff(head) in ACCEPTED and is_decodable(image.data)


@finder(ERROR_MEDIA, having=(RESULT,))
def error_media(case: Case) -> Iterator[Finding]:
    """LS503."""
    for part in case.parts.results:
        if has_error_media(part.raw):
            yield case.find(ERROR_MEDIA, part, "an error result with non-text content")


def has_error_media(raw: Any) -> bool:
    """Whether an error result holds something other than text."""
    content = raw.get("content")
    if raw.get("is_error") is not True or not isinstance(content, list):
        return False
    return any(isinstance(block, dict) and block.get("type") != "text" for block in content)


_ONLY_WORDS = "no image is left to replace: `lockstitch compact` shortens the conversation"


@finder(TOO_MANY_BYTES, when=lambda case: 0 < case.profile.max_bytes < case.size)
def request_bytes(case: Case) -> Iterator[Finding]:
    """LS504."""
    limit, size = case.profile.max_bytes, case.size
    found = all_images(case)
    place = case.place(found[0].part) if found else case.place_at(0)
    some = bool(found)
    text = f"{size} bytes, at most {limit} are accepted"
    finding = case.find(
        TOO_MANY_BYTES,
        place,
        text,
        fixable=some,
        lossy=some,
        size=f"{size / 2**20:.1f}",
        limit=f"{limit / 2**20:.1f}",
    )
    yield finding if some else structs.replace(finding, place=place, help=_ONLY_WORDS)


@finder(LONE_SURROGATE, NUL, when=lambda case: case.size < 0)
def characters(case: Case) -> Iterator[Finding]:
    """LS505 and LS506."""
    for message in case.messages:
        for path, text in bad_texts(message.raw):
            kind = LONE_SURROGATE if _SURROGATE.search(text) else NUL
            what = "a lone surrogate" if kind is LONE_SURROGATE else "a NUL character"
            taken = kind is NUL and case.profile.dialect == "openai-responses"
            yield case.find(
                kind,
                case.place_at(message.index, path),
                f"{what} in this text",
                severity=NOTE if taken else ERROR,
            )


def bad_texts(value: Any) -> Iterator[tuple[Path, str]]:
    """Yield every string in a value that holds a NUL or a lone surrogate, with its path.

    Walks with a stack and linked paths, so that no depth of nesting can hurt it.
    """
    stack: list[tuple[Any, _Link]] = [(value, None)]
    while stack:
        node, link = stack.pop()
        if type(node) is str:
            if UNSENDABLE.search(node):
                yield _path(link), node
        elif isinstance(node, dict):
            for key, inner in node.items():
                if isinstance(key, str) and UNSENDABLE.search(key):
                    yield _path(link), key
                stack.append((inner, (link, word(key))))
        elif isinstance(node, list):
            stack += [(inner, (link, number)) for number, inner in enumerate(node)]


_Link = tuple[Any, str | int] | None


def _path(link: _Link) -> Path:
    steps: list[str | int] = []
    while link is not None:
        link, step = link
        steps.append(step)
    return tuple(reversed(steps[-_LONGEST_PATH:]))


def unsendable(value: Any) -> list[Rule]:
    """Return the rules that the texts of a value break."""
    texts = [text for _, text in bad_texts(value)]
    found = {LONE_SURROGATE: _SURROGATE, NUL: _NUL}
    return [rule for rule, mark in found.items() if any(mark.search(text) for text in texts)]


@finder(GIANT_RESULT, having=(RESULT,), when=lambda case: not 0 <= case.size <= GIANT)
def giant_results(case: Case) -> Iterator[Finding]:
    """LS507."""
    for part in case.parts.results:
        size = len(case.dialect.result_text(part))
        if size > GIANT:
            yield case.find(GIANT_RESULT, part, f"a result of {size} characters")
