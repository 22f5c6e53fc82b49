"""No text makes it slow."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import lockstitch
from lockstitch.redaction import redact_value

from .samples import ALNUM, BASE64, made

SIZE = 200_000
# A slow walk fails every one of them; a machine that is busy at one moment does not.
ATTEMPTS = 10


def repeated(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


ENCODED = base64.b64encode(b"password=hunter2xyz and more text, ").decode()
HOSTILE = [
    *("\\u0041", "%2541", "\x1b[", "mysql -pabcd ", "cookie: a=b; ", "a:5432:b:c:", "$6$"),
    *("passphrase: aa bb ", f"{ENCODED} "),
    *(
        "a",
        "A",
        "9",
        "-",
        "_",
        "=",
        "/",
        ".",
        " ",
        "\n",
        "@",
        "{",
        '["',
        "\\",
        '"',
        "\ud800",
        "\u4e2d",
    ),
    *("sk-", "sk-a ", "ghp_", "AKIA", "AKIA-", "xoxb-", "eyJ", "eyJ.", "eyJaaaaaaaaaaaaaaaaaaaa."),
    *(
        "key",
        "api_key=",
        "token=",
        "token: ",
        "password ",
        'password="',
        "password='\\",
        "PASSWORD=",
    ),
    *("://", "://a:", "://a:b@", "a@", "://" + "a@" * 200, "Authorization: ", "Bearer ", "curl "),
    *("curl -u a", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----" + "1+" * 300),
    *("-----BEGIN PRIVATE KEY-----\n" + "a" * 15, "hooks.slack.com/services/", "[redacted:"),
    *(
        "[redacted:a:1]",
        "1234567:",
        "M" * 24 + ".",
        "token " + "a" * 39 + " ",
        made(76, BASE64) + "\n",
    ),
]


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def is_in_proportion(short: str, long: str) -> bool:
    """Whether eight times the text takes much less than 64 times as long, on a busy machine too."""
    base = min(seconds(lambda: redact_value([short])) for _ in range(3))
    return seconds(lambda: redact_value([long])) < 30 * base + 0.2


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts_take_time_in_proportion(piece: str) -> None:
    short, long = repeated(piece, SIZE // 8), repeated(piece, SIZE)
    assert any(is_in_proportion(short, long) for _ in range(ATTEMPTS))


def test_long_base64_takes_time_in_proportion() -> None:
    text = "".join(Random(1).choices(ALNUM + "+/", k=2_000_000))  # noqa: S311 - repeatable
    assert any(seconds(lambda: redact_value([text])) < 2 for _ in range(ATTEMPTS))


def test_many_secrets_take_time_in_proportion() -> None:
    choose = Random(2)  # noqa: S311 - repeatable on purpose
    few = [f"password={''.join(choose.choices(ALNUM, k=14))}" for _ in range(200)]
    many = [f"password={''.join(choose.choices(ALNUM, k=14))}" for _ in range(3200)]

    def is_in_proportion() -> bool:
        base = seconds(lambda: redact_value(few))
        return seconds(lambda: redact_value(many)) < 40 * base + 0.2

    assert any(is_in_proportion() for _ in range(ATTEMPTS))


def test_ordinary_text_is_not_slower_than_finding_its_words() -> None:
    # Ordinary code: what speaks of keys and tokens on every page is looked at more closely.
    source = Path(lockstitch.__file__).parent / "formats"
    text = "\n".join(path.read_text("utf-8") for path in source.rglob("*.py"))
    messages = [
        {"role": "user", "content": text[at : at + 4000]} for at in range(0, len(text), 4000)
    ]
    words = re.compile(r"\w+")

    def is_as_fast() -> bool:
        base = min(seconds(lambda: words.findall(text)) for _ in range(5))
        return min(seconds(lambda: redact_value(messages)) for _ in range(5)) < 1.5 * base

    assert any(is_as_fast() for _ in range(ATTEMPTS))
