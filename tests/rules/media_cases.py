"""LS5xx: media, encoding and size."""

from __future__ import annotations

from base64 import b64encode
from copy import deepcopy
from typing import Any

from .case import Case
from .kits import ALL, ANTHROPIC, KITS, A, Kit

MIB = 1024 * 1024
OBJECT_ERROR = "The image data you provided does not represent a valid image."


def png(width: int = 1, height: int = 1) -> bytes:
    """The head of a PNG file, which is all that is ever looked at."""
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + size + b"\x08\x06\x00\x00\x00\x00"


def code(data: bytes) -> str:
    return b64encode(data).decode()


SMALL = code(png())
HUGE = "image/png", SMALL + "A" * 33 * MIB


def image(dialect: str, label: str, data: str) -> dict[str, Any]:
    """An image block of a dialect; ``data`` is base64."""
    source = {"type": "base64", "media_type": label, "data": data}
    url = f"data:{label};base64,{data}"
    return {
        "anthropic": {"type": "image", "source": source},
        "openai-chat": {"type": "image_url", "image_url": {"url": url}},
        "openai-responses": {"type": "input_image", "image_url": url},
        "gemini": {"inlineData": {"mimeType": label, "data": data}},
        "bedrock": {
            "image": {"format": label.removeprefix("image/"), "source": {"bytes": data}},
        },
        "langchain": {"type": "image_url", "image_url": {"url": url}},
    }[dialect]


def shown(dialect: str, *images: tuple[str, str]) -> list[Any]:
    """A user who shows images."""
    message = deepcopy(KITS[dialect].user()[0])
    blocks = [image(dialect, *each) for each in images]
    return [message | {"parts" if dialect == "gemini" else "content": blocks}]


def _at_image(kit: Kit, number: int = 0) -> str:
    return f"{kit.key}.0.{'parts' if kit.dialect == 'gemini' else 'content'}.{number}"


def large_images() -> list[Case]:
    large, wide = code(png(8001, 10)), code(png(10, 2001))
    many = [("image/png", SMALL)] * 20
    limit = "messages.0.content.{}.image.source.base64.data: At least one of the image dimensions "
    picture = image("anthropic", "image/png", large)
    answer = {"role": "user", "content": [ANTHROPIC.result(A, [picture])]}
    small = {
        "role": "user",
        "content": [ANTHROPIC.result(A, [image("anthropic", "image/png", SMALL)])],
    }
    return [
        Case(
            code="LS501",
            dialect="anthropic",
            broken=shown("anthropic", ("image/png", large)),
            whole=shown("anthropic", ("image/png", code(png(8000, 10)))),
            place="messages.0.content.0",
            error=limit.format(0) + "exceed max allowed size: 8000 pixels",
            loses=True,
        ),
        Case(
            code="LS501",
            dialect="anthropic",
            note="one of many",
            broken=shown("anthropic", *many, ("image/png", wide)),
            whole=shown("anthropic", *many[1:], ("image/png", wide)),
            place="messages.0.content.20",
            error=limit.format(20) + "exceed max allowed size for many-image requests: 2000 pixels",
            loses=True,
        ),
        Case(
            code="LS501",
            dialect="anthropic",
            note="in a result",
            broken=[*ANTHROPIC.user(), *ANTHROPIC.calls(A), answer],
            whole=[*ANTHROPIC.user(), *ANTHROPIC.calls(A), small],
            place="messages.2.content.0",
            error="messages.2.content.0.tool_result.content.0.image.source.base64.data: At least "
            "one of the image dimensions exceed max allowed size: 8000 pixels",
            loses=True,
        ),
        Case(
            code="LS501",
            dialect="bedrock",
            broken=shown("bedrock", ("image/png", large)),
            whole=shown("bedrock", ("image/png", SMALL)),
            place="messages.0.content.0",
            loses=True,
        ),
    ]


def bad_images() -> list[Case]:
    """A wrong label is put right; what is no image at all has to go."""
    pdf = code(b"%PDF-1.7 and more")
    errors = {"openai-chat": OBJECT_ERROR, "openai-responses": OBJECT_ERROR}
    undecodable = [
        Case(
            code="LS502",
            dialect=name,
            note="not base64",
            broken=shown(name, ("image/png", "?!")),
            whole=shown(name, ("image/png", SMALL)),
            place=_at_image(KITS[name]),
            error=errors.get(name),
            loses=True,
        )
        for name in ALL
        if name != "anthropic"
    ]
    labelled = [
        Case(
            code="LS502",
            dialect=name,
            note="wrong label",
            broken=shown(name, ("image/jpeg", SMALL)),
            whole=shown(name, ("image/png", SMALL)),
            place=_at_image(KITS[name]),
            error="messages.0.content.0.image.source.base64: The image was specified using the "
            "image/jpeg media type, but the image appears to be a image/png image"
            if name == "anthropic"
            else errors.get(name),
        )
        for name in ALL
    ]
    media_type = (
        "image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or "
        "'image/webp'"
    )
    answer = ANTHROPIC.result(A, [image("anthropic", "application/pdf", pdf)])
    good = ANTHROPIC.result(A, [image("anthropic", "image/png", SMALL)])
    return [
        *undecodable,
        *labelled,
        Case(
            code="LS502",
            dialect="anthropic",
            note="a PDF",
            broken=shown("anthropic", ("application/pdf", pdf)),
            whole=shown("anthropic", ("image/png", SMALL)),
            place="messages.0.content.0",
            error=f"messages.0.content.0.{media_type}",
            loses=True,
        ),
        Case(
            code="LS502",
            dialect="anthropic",
            note="a PDF in a result",
            broken=[
                *ANTHROPIC.user(),
                *ANTHROPIC.calls(A),
                {"role": "user", "content": [answer]},
            ],
            whole=[*ANTHROPIC.user(), *ANTHROPIC.calls(A), {"role": "user", "content": [good]}],
            place="messages.2.content.0",
            error=f"messages.2.content.0.tool_result.content.0.{media_type}",
            loses=True,
        ),
    ]


def error_media() -> list[Case]:
    picture = image("anthropic", "image/png", SMALL)
    text = {"type": "text", "text": "It broke."}
    failed = ANTHROPIC.result(A, [text]) | {"is_error": True}
    start = [*ANTHROPIC.user(), *ANTHROPIC.calls(A)]
    case = Case(
        code="LS503",
        dialect="anthropic",
        broken=[
            *start,
            {"role": "user", "content": [failed | {"content": [text, picture]}]},
        ],
        whole=[*start, {"role": "user", "content": [failed, picture]}],
        place="messages.2.content.0",
        error="all content must be type `text` if `is_error` is true",
    )
    return [case]


def too_many_bytes() -> list[Case]:
    copilot = "image/png", SMALL + "A" * 6 * MIB
    large = {"anthropic": HUGE, "bedrock": HUGE, "openai-responses:copilot": copilot}
    errors = {
        "anthropic": "Request too large (max 32MB)",
        "openai-responses:copilot": "The request is too large to send through CAPI Responses. Try "
        "shortening the conversation or prompt. (6.0 MB request; 5.0 MB limit)",
    }
    return [
        Case(
            code="LS504",
            dialect=name,
            broken=shown(name.partition(":")[0], picture),
            whole=shown(name.partition(":")[0], ("image/png", SMALL)),
            place=_at_image(KITS[name.partition(":")[0]]),
            error=errors.get(name),
            loses=True,
        )
        for name, picture in large.items()
    ]


def characters() -> list[Case]:
    surrogate = "The request body is not valid JSON: no low surrogate in string: line 1 column "
    nul = "The request body is not valid JSON: unexpected end of data: line 1 column "
    cases = []
    for name in ALL:
        kit = KITS[name]
        place = f"{kit.key}.0.parts.0.text" if name == "gemini" else f"{kit.key}.0.content"
        place += ".0.text" if name == "bedrock" else ""
        for rule, character, error in (("LS505", "\ud83d", surrogate), ("LS506", "\x00", nul)):
            case = Case(
                code=rule,
                dialect=name,
                broken=kit.user(f"Look.{character}"),
                whole=kit.user("Look.\U0001f600"),
                place=place,
                error=error if name == "anthropic" else None,
                offset=name == "anthropic",
                severity="note" if (name, rule) == ("openai-responses", "LS506") else "",
            )
            cases.append(case)
    return cases


def giant_results() -> list[Case]:
    giant = "x" * (10 * MIB + 1)
    return [
        Case(
            code="LS507",
            dialect=name,
            broken=[*kit.user(), *kit.calls(A), *kit.results((A, giant))],
            whole=[*kit.user(), *kit.calls(A), *kit.results((A, giant[1:]))],
            place=kit.at_result(2),
            fixable=False,
        )
        for name, kit in KITS.items()
        if name in ALL
    ]


CASES = [
    *large_images(),
    *bad_images(),
    *error_media(),
    *too_many_bytes(),
    *characters(),
    *giant_results(),
]
