"""What holds of every value: twice is once, nothing secret is left, nothing else is gone."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.redaction import redact_value
from lockstitch.redaction.spans import PLACEHOLDER, find_spans, suspicious

from .samples import HARMLESS, KNOWN, NAMED

SECRETS = [secret for kind, secrets in KNOWN.items() for secret in secrets if kind != "webhook"]
PIECES = [
    *SECRETS,
    *(template.format(secret) for _, template, secret in NAMED),
    *(text for text in HARMLESS.values() if len(text) < 300),
    *("token", "password", "=", ": ", '"', "'", "\\", "\n", " ", "{", "}", "[", "]", "@", "://"),
    *("[redacted:token:1]", "[redacted:", "eyJ", "sk-", "AKIA", "Authorization: ", "Bearer "),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "\ud800", "\u202e", "ß", "key"),
]


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# By number: the pieces themselves would be in every message of a failure.
pieces = st.integers(0, len(PIECES) - 1).map(PIECES.__getitem__)
secrets = st.integers(0, len(SECRETS) - 1).map(SECRETS.__getitem__)
texts = st.lists(pieces | st.text(max_size=12), max_size=8).map("".join)
fields = st.sampled_from(
    [
        *("content", "text", "input", "arguments", "id", "name", "type", "data", "signature"),
        *("password", "api_key", "token", "thinking", "response", "media_type", "x"),
    ]
)
values = st.recursive(
    texts | st.none() | st.integers() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(fields | texts, inner, max_size=4)
        | st.dictionaries(fields, inner, max_size=3).map(_as_json)
    ),
    max_leaves=12,
)


@given(values)
def test_twice_is_once(value: Any) -> None:
    once, _ = redact_value(value)
    assert redact_value(once) == (once, [])


@given(values)
def test_it_is_pure_and_tells_what_it_did(value: Any) -> None:
    before = deepcopy(value)
    new, found = redact_value(value)
    assert value == before
    assert (new is value) == (not found)
    assert redact_value(before) == (new, found)
    text = json.dumps(new)
    for one in found:
        assert one.placeholder in text
        assert PLACEHOLDER.fullmatch(one.placeholder)
        assert one.kind == one.placeholder.split(":")[1]


@given(texts, secrets, texts)
def test_a_known_secret_is_gone_wherever_it_stands(before: str, secret: str, behind: str) -> None:
    text = f"{before} {secret} {behind}"
    if secret in f"{before} | {behind}":
        return
    clean = redact_value([{"content": text}])[0][0]["content"]
    assert secret not in clean
    assert len(clean) < len(text) + 40


@given(st.lists(texts, max_size=12))
def test_texts_are_ruled_out_together_as_they_are_alone(many: list[str]) -> None:
    alone = {text for text in many if find_spans(text)}
    assert alone <= suspicious(many)


@given(texts)
def test_spans_are_in_order_and_apart(text: str) -> None:
    at = 0
    done = [match.span() for match in PLACEHOLDER.finditer(text)]
    for start, end, kind in find_spans(text):
        assert at <= start < end <= len(text)
        assert kind == kind.lower()
        assert not any(first < end and start < last for first, last in done)
        at = end


@given(st.dictionaries(fields, values, max_size=4))
def test_json_arguments_stay_json(value: dict[str, Any]) -> None:
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        return
    clean = redact_value([{"arguments": text}, {"content": text}])[0]
    assert json.loads(clean[0]["arguments"]).keys() == value.keys()
    json.loads(clean[1]["content"])
