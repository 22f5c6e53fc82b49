"""What is found in a text, and what is not."""

from __future__ import annotations

import json

import pytest

from lockstitch.redaction import redact_value

from .samples import HARMLESS, KNOWN, NAMED, PASSWORD, made

KNOWN_CASES = [
    pytest.param(kind, secret, id=f"{kind}-{number}")
    for kind, secrets in KNOWN.items()
    for number, secret in enumerate(secrets)
]
AROUND = {
    "alone": "{}",
    "in a sentence": "I found {} in the log, is that bad?",
    "in backticks": "use `{}` for that",
    "in quotes": 'client = Client("{}")',
    "on a line": "first\n{}\nlast",
    "behind a tab": "1\t{}",
    "in brackets": "[{}]",
}


def text_of(text: str) -> str:
    return str(redact_value([text])[0][0])


def hooked(kind: str, secret: str) -> str:
    return f"https://hooks.slack.com/services/{secret}" if kind == "webhook" else secret


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(("kind", "secret"), KNOWN_CASES)
def test_every_format_goes_and_nothing_around_it(kind: str, secret: str, around: str) -> None:
    template = AROUND[around]
    value, found = redact_value([template.format(hooked(kind, secret))])
    placeholder = f"[redacted:{kind}:1]"
    assert value == [template.format(hooked(kind, placeholder))]
    assert [(one.place, one.kind, one.placeholder) for one in found] == [("0", kind, placeholder)]


@pytest.mark.parametrize(("kind", "secret"), KNOWN_CASES)
def test_every_format_goes_behind_a_name(kind: str, secret: str) -> None:
    if "\n" in secret or kind == "webhook":
        return
    placeholder = f"[redacted:{kind}:1]" if kind != "secret" else "[redacted:token:1]"
    assert text_of(f"export TOKEN={secret}; ls") == f"export TOKEN={placeholder}; ls"
    assert text_of(f'"token": "{secret}",') == f'"token": "{placeholder}",'


@pytest.mark.parametrize(
    ("kind", "template", "secret"), NAMED, ids=[template for _, template, _ in NAMED]
)
def test_what_a_name_gives_away(kind: str, template: str, secret: str) -> None:
    assert text_of(template.format(secret)) == template.format(f"[redacted:{kind}:1]")


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_stays(name: str) -> None:
    value = [HARMLESS[name]]
    assert redact_value(value)[0] is value


@pytest.mark.parametrize(
    "text",
    [
        "ghp_short",
        "ghp_" + made(36)[:12],
        "sk-ant-short",
        "AKIA" + "ABCDEFGH",
        "xAKIA" + made(16).upper(),
        "hf_" + made(20),
        "npm_config_registry_and_other_settings_of_npm_2",
        "eyJhbGciOiJIUzI1NiJ9",
        "12345:" + made(20),
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----BEGIN PUBLIC KEY-----\n" + made(64) + "\n-----END PUBLIC KEY-----",
        "https://hooks.slack.com/docs",
        "Authorization: required",
        "Bearer authentication is used",
        "docker run -u 1000:1000 image",
    ],
)
def test_near_misses(text: str) -> None:
    assert text_of(text) == text


def test_hashes_and_uuids_are_secrets_where_something_calls_them_so() -> None:
    digest = made(40, "0123456789abcdef")
    assert text_of(f"api_key={digest}") == "api_key=[redacted:api-key:1]"
    assert text_of(f"secret: {digest}") == "secret: [redacted:secret:1]"
    assert text_of(f"see {digest}") == f"see {digest}"


def test_one_secret_has_one_placeholder_and_two_have_two() -> None:
    first, second = f"ghp_{made(36, seed=1)}", f"ghp_{made(36, seed=2)}"
    value, found = redact_value([first, {"x": [f"{second} {first}"]}, f"TOKEN={first}"])
    one, two = "[redacted:github-token:1]", "[redacted:github-token:2]"
    assert value == [one, {"x": [f"{two} {one}"]}, f"TOKEN={one}"]
    assert [item.place for item in found] == ["0", "1.x.0", "1.x.0", "2"]


def test_what_a_name_told_is_replaced_where_it_has_none() -> None:
    value, _ = redact_value([f"echo {PASSWORD} | login", f"DB_PASSWORD={PASSWORD}", "hunter2"])
    mark = "[redacted:password:1]"
    assert value == [f"echo {mark} | login", f"DB_PASSWORD={mark}", "hunter2"]


def test_words_are_not_chased_through_the_history() -> None:
    value, _ = redact_value(["PASSWORD=changeit", "please changeit soon"])
    assert value == ["PASSWORD=[redacted:password:1]", "please changeit soon"]


def test_numbers_go_on_behind_older_placeholders() -> None:
    old = "[redacted:github-token:7]"
    value, _ = redact_value([old, f"ghp_{made(36)}"])
    assert value == [old, "[redacted:github-token:8]"]


def test_a_placeholder_is_nothing_to_redact() -> None:
    for kind in (*KNOWN, "password", "api-key"):
        for template in ("TOKEN={}", 'password="{}"', "://u:{}@h", "Authorization: Bearer {}"):
            text = template.format(f"[redacted:{kind}:1]")
            assert text_of(text) == text


def test_json_in_a_text_stays_json() -> None:
    inner = {"api_key": made(24), "note": 'a "quoted" \\ word', "password": 'pa"ss\\w0rd'}
    for text in (json.dumps(inner), json.dumps(inner, indent=2), json.dumps([json.dumps(inner)])):
        clean = text_of(text)
        assert json.loads(clean)
        assert inner["api_key"] not in clean
        assert "w0rd" not in clean


def test_placeholders_are_plain() -> None:
    for secrets in KNOWN.values():
        for one in redact_value(secrets)[1]:
            assert not set(one.placeholder) & set("\"'\\\n{}<>")
