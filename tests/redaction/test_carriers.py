"""Sixty realistic secrets in eight carriers, and what carries them stays what it is."""

from __future__ import annotations

import base64
import json
import sysconfig
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import Raw

from lockstitch.conversation.json_text import dump
from lockstitch.redaction import redact_value

from .realistic import CARRIERS, is_leaked, secrets
from .samples import made

SEEDS = (1, 2)
PASSWORD = "hunter2-" + made(8)
TOKEN = f"ghp_{made(36)}"


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_at_most_five_of_sixty_leak(carrier: str, seed: int) -> None:
    found = secrets(seed)
    assert len(found) == 60
    assert all(is_leaked(CARRIERS[carrier](one.text), one) for one in found)
    left = [
        one.name for one in found if is_leaked(redact_value([CARRIERS[carrier](one.text)])[0], one)
    ]
    assert len(left) <= 5, left


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_carrier_stays_what_it_is(carrier: str) -> None:
    for one in secrets(3):
        value = CARRIERS[carrier](one.text)
        clean, found = redact_value([value])
        assert found
        assert _shape(clean[0]) == _shape(value)
        assert redact_value(clean) == (clean, [])


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    if isinstance(value, str) and value.startswith(("data:", "{")):
        return _shape(json.loads(value)) if value[0] == "{" else value.partition(",")[0]
    return type(value)


def test_a_secret_has_one_placeholder_in_all_carriers() -> None:
    text = f"export TOKEN={TOKEN}; ls"
    values = [carry(text) for carry in CARRIERS.values()]
    clean, found = redact_value(values)
    assert {one.placeholder for one in found} == {"[redacted:github-token:1]"}
    assert len(found) == len(CARRIERS)
    gone = text.replace(TOKEN, "[redacted:github-token:1]")
    data = base64.b64encode(gone.encode()).decode()
    assert clean[4]["content"][0]["source"]["data"] == gone
    assert clean[5]["content"][0]["file_data"] == f"data:text/plain;base64,{data}"
    assert clean[7]["parts"][0]["functionCall"]["args"]["file"]["data"] == data


def test_a_carrier_without_secrets_is_the_same_object() -> None:
    text = "Nothing to see here, only 100% text & more; see RFC 9110 \\u00e9 %20 &amp; <b>."
    values = [carry(text) for carry in CARRIERS.values()]
    assert redact_value(values)[0] is values


def encoded(text: str, **how: Any) -> str:
    data = base64.b64encode(text.encode()).decode()
    return "\n".join(data[at : at + 76] for at in range(0, len(data), 76)) if how else data


LINE = f"DB_PASSWORD={PASSWORD}"
LONG = "\n".join(["# settings of the service, in the form KEY=value"] * 4) + f"\n{LINE}\n"
HIDDEN: dict[str, Any] = {
    "base64 in a text": {"content": f"echo {encoded(LONG)} | base64 -d"},
    "base64 in base64": {"content": f"blob: {encoded(encoded(LONG))}"},
    "base64 on lines": {"content": f"-----\n{encoded(LONG, wrapped=True)}\n-----"},
    "a json document": {
        "source": {"type": "base64", "media_type": "application/json", "data": encoded(LONG)}
    },
    "svg": {"inlineData": {"mimeType": "image/svg+xml", "data": encoded(f"<svg>{LINE}</svg>")}},
    "bytes": {"document": {"format": "txt", "source": {"bytes": encoded(LONG)}}},
    "no type": {"input": {"data": encoded(LONG)}},
    "a data url in a text": {"content": f"see data:text/plain;base64,{encoded(LONG)}, please"},
    "percent": {"content": f"data:text/plain,DB_PASSWORD%3D{PASSWORD}%0A"},
    "percent twice": {"content": f"https://x.example/?q=DB_PASSWORD%253D{PASSWORD}%250A"},
    "html": {"content": f"&quot;password&quot;: &quot;{PASSWORD}&quot;"},
    "html numbers": {"content": f"&#34;password&#34;&#x3a; &#34;{PASSWORD}&#34;"},
    "json in json": {"content": json.dumps({"a": json.dumps({"b": json.dumps(LINE)})})},
    "escaped letters": {"content": '{"a": "p\\u0061ssword=' + PASSWORD + '"} and more'},
    "escaped twice": {"content": "p\\\\u0061ssw\\\\u006frd=" + PASSWORD},
    "hex escapes": {"content": "pass\\x77ord=" + PASSWORD},
    "colours": {"content": f"\x1b[1mpassword\x1b[0m=\x1b[32m{PASSWORD}\x1b[0m"},
    "numbered lines": {"content": f"    12\u2192DB_PASSWORD={PASSWORD}\n    13\u2192X=1"},
    "a diff": {"content": f"@@ -1 +1 @@\n-DB_PASSWORD=x\n+DB_PASSWORD={PASSWORD}"},
    "a header": {"input": {"headers": {"Authorization": f"Basic {encoded('ada:' + PASSWORD)}"}}},
    "headers in pairs": {"input": {"headers": [["X-Api-Key", PASSWORD], ["Accept", "text/html"]]}},
    "headers by name": {"input": {"headers": [{"name": "X-Api-Key", "value": PASSWORD}]}},
    "a variable by name": {"args": {"env": [{"name": "DB_PASSWORD", "value": PASSWORD}]}},
    "an option in a list": {"input": {"command": ["tool", "--password", PASSWORD]}},
    "mysql in a list": {"input": {"command": ["mysql", "-u", "root", f"-p{PASSWORD}", "app"]}},
    "curl in a list": {"input": {"argv": ["curl", "-u", f"ada:{PASSWORD}", "https://x.example"]}},
    "lines in a list": {
        "input": {"lines": ["machine x.example", "login ada", f"password {PASSWORD}"]}
    },
    "a result's copy": {"toolUseResult": {"file": {"content": f"1\t{LINE}"}}},
    "metadata": {"metadata": {"note": LINE}},
    "unread": {"input": {"x": Raw(json.dumps({"password": PASSWORD}).encode())}},
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_written_in_another_way_is_found(name: str) -> None:
    from .realistic import Secret

    clean, found = redact_value([HIDDEN[name]])
    assert found
    secret = Secret("", "", (PASSWORD, encoded("ada:" + PASSWORD)))
    assert is_leaked(json.loads(dump([HIDDEN[name]])), secret)
    assert not is_leaked(json.loads(dump(clean)), secret)
    again, more = redact_value(clean)
    assert (json.loads(dump(again)), more) == (json.loads(dump(clean)), [])


TOLD: dict[str, str] = {
    "mysql -p": "mysql -h db -u root -p{} app",
    "mysqldump": "mysqldump -p'{}' app > x.sql",
    "sshpass": "sshpass -p {} ssh ada@x.example",
    "openssl": "openssl rsa -in k -passin pass:{}",
    "docker login": "docker login -u ada -p {} ghcr.io",
    "ssh-keygen": "ssh-keygen -t ed25519 -N '{}' -f k",
    "redis": "redis-cli -h cache -a {} ping",
    "netrc": "machine x.example\n\tlogin ada\n\tpassword {}\n",
    "netrc on a line": "machine x.example login ada password {}",
    "pgpass": "localhost:5432:*:postgres:{}",
    "pgpass with any port": "db.internal:6543:app:ada:{}\n",
    "an env with PASS": "SMTP_PASS={}\n",
    "pass in JSON": '{{"user": "ada", "pass": "{}"}}',
    "kubeconfig": "users:\n- name: a\n  user:\n    token: {}\n",
    "rails": "config.secret_key_base = '{}'",
    "ansible": "ansible_become_pass: {}",
    "kubectl": "kubectl create secret generic db --from-literal=password={}",
    "a cookie": "Set-Cookie: sid={}; HttpOnly",
    "sas": "https://a.blob.core.windows.net/c?sp=r&sig={}&se=2026",
    "aws link": "https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature={}",
}


@pytest.mark.parametrize("name", TOLD)
def test_what_its_place_gives_away(name: str) -> None:
    secret = made(26, seed=5)
    text = TOLD[name].format(secret)
    clean, found = redact_value([text])
    assert len(found) == 1
    assert clean == [text.replace(secret, found[0].placeholder)]


def test_a_passphrase_of_words() -> None:
    text = 'passphrase = "correct horse battery staple"'
    assert redact_value([text])[0] == ['passphrase = "[redacted:password:1]"']
    for harmless in (
        'passphrase = "enter your passphrase"',
        "passphrase: the one for the key",
        "passphrase is required when the key has one",
    ):
        assert redact_value([harmless])[0] == [harmless]


@pytest.mark.parametrize(
    "text",
    [
        "pytest -p no:cacheprovider; ssh -p 2222 x; mkdir -p a/b; cp -p a b; mysql -P 3306 -p",
        "src/app.py:1234:56:error:bad thing and a.c:10:5: warning: x",
        "password login passed; login page password reset",
        "cookie: a=1; theme=dark; lang=en",
        "if sig=='SIGTERM': pass\ndef f(): pass",
        "auth: none\nauth=true\nauth = BasicAuth(user)",
        "x = '\\u0041\\u0042' + \"%20\" % y && z &amp;&amp; w",
        "https://x.example/a%20b?c=d%26e",
        f"integrity: sha512-{made(86)}==",
        "aGVsbG8gd29ybGQsIHRoaXMgaXMgYSBwbGFpbiB0ZXh0IG9mIHdvcmRz",
    ],
)
def test_what_looks_alike_is_left(text: str) -> None:
    assert redact_value([text])[0] == [text]


def test_false_positives_are_below_one_in_a_megabyte_of_code() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in library.rglob("*.py") if "site-packages" not in path.parts)
    Random(7).shuffle(files)  # noqa: S311 - repeatable
    size = places = 0
    for path in files:
        text = path.read_text("utf-8", "replace")
        size += len(text)
        places += len(redact_value([text])[1])
        if size > 4_000_000:
            break
    assert places / (size / 1_000_000) < 1


def test_lock_files_are_left() -> None:
    packages = {
        f"node_modules/pkg-{n}": {
            "version": "1.2.3",
            "resolved": f"https://registry.npmjs.org/pkg-{n}/-/pkg-{n}-1.2.3.tgz",
            "integrity": f"sha512-{made(86, seed=n)}==",
        }
        for n in range(200)
    }
    text = json.dumps({"lockfileVersion": 3, "packages": packages}, indent=2)
    assert redact_value([text])[0] == [text]


class TestPersonal:
    TEXT = (
        "/home/ada.l/src and C:\\Users\\Grace\\x; write to ada@corp.io or +49 170 1234567, "
        "(415) 555-2671; ada.l@laptop:~/src$ ls -l\n-rw-r--r-- 1 ada.l staff x"
    )

    def test_it_is_left_unless_asked_for(self) -> None:
        assert redact_value([self.TEXT])[0] == [self.TEXT]

    def test_it_goes_when_asked_for(self) -> None:
        clean, found = redact_value([self.TEXT], personal=True)
        assert not any(word in clean[0] for word in ("ada", "Grace", "170", "555", "corp.io"))
        assert {one.kind for one in found} == {"user", "mail", "phone"}
        assert "1 [redacted:user:1] staff" in clean[0]
        assert redact_value(clean, personal=True) == (clean, [])

    @pytest.mark.parametrize(
        "text",
        [
            "git@github.com:org/repo.git pkg@1.2.3 icon@2x.png user@example.com",
            "/home/user/x /Users/runner/work /home/$USER",
            "2026-01-02 10.0.0.1 1234567890 v1.2.3 0x7f +1 -1 a+b 12-34-56",
        ],
    )
    def test_what_is_nobodys_is_left(self, text: str) -> None:
        assert redact_value([text], personal=True)[0] == [text]


def test_deep_values_are_looked_through() -> None:
    for depth in (90, 150, 900, 5000):
        value: Any = TOKEN
        for number in range(depth):
            value = {"a": [value]} if number % 2 else {"b": value}
        clean, found = redact_value([value])
        assert len(found) == 1
        assert redact_value(clean)[1] == []


def test_a_password_of_letters_of_both_cases() -> None:
    text = "kubectl create secret generic db --from-literal=password=" + "VtBfNcJuhFmL"
    assert "VtBf" not in redact_value([text])[0][0]


def test_a_key_of_putty() -> None:
    lines = "\n".join(made(64, seed=n) for n in range(3))
    text = f"PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 3\n{lines}\nPrivate-MAC: x"
    clean, _ = redact_value([text])
    assert clean[0].startswith("PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 3[redacted:")
    assert clean[0].endswith("]\nPrivate-MAC: x")
