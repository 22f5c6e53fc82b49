"""Sixty secrets as they stand in sessions, made anew for every seed, and eight ways to carry them.

Every one is put together here, so that no scanner takes it for a real one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from string import ascii_letters, ascii_uppercase, digits
from typing import Any, NamedTuple

ALNUM = ascii_letters + digits
HEX = "0123456789abcdef"
URL = ALNUM + "-_"
B64 = ALNUM + "+/"
WORDS = (
    *("correct", "horse", "battery", "staple", "orbit", "lantern", "maple", "quartz", "saddle"),
    *("tunnel", "velvet", "walnut", "yonder", "anchor", "bishop", "copper", "dragon", "ember"),
    *("falcon", "garden", "harbor", "island", "jungle", "kettle"),
)


class Secret(NamedTuple):
    """One secret: what it is, the text in which it stands, and what must not be left of it."""

    name: str
    text: str
    parts: tuple[str, ...]


class Maker:
    """Makes random texts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - repeatable on purpose

    def __call__(self, length: int, alphabet: str = ALNUM) -> str:
        while True:
            text = "".join(self.random.choices(alphabet, k=length))
            if text[0].isalnum() and text[-1].isalnum() and any(map(str.isdigit, text)):
                return text

    def password(self) -> str:
        """A password as people make them: a word, a number, a sign."""
        word = self.random.choice(WORDS)
        return f"{word.capitalize()}{self.random.randint(10, 9999)}{self.random.choice('!#%*')}"

    def phrase(self) -> str:
        return " ".join(self.random.sample(WORDS, 4))

    def encoded(self, size: int) -> str:
        return base64.b64encode(self.random.randbytes(size)).decode()

    def json(self, value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    def pem(self, label: str, lines: int = 5) -> list[str]:
        body = [self(64, B64) for _ in range(lines)]
        return [f"-----BEGIN {label}-----", *body, self(28, B64), f"-----END {label}-----"]


def secrets(seed: int) -> list[Secret]:
    """Sixty secrets, each in a text of the kind in which it is met."""
    return [Secret(name, text, parts) for name, text, *parts in _rows(Maker(seed))]  # type: ignore[misc]


def _rows(m: Maker) -> Iterator[tuple[str, ...]]:
    yield from _rows_of_clouds(m)
    yield from _rows_of_services(m)
    yield from _rows_of_files(m)
    yield from _rows_of_commands(m)


def _rows_of_clouds(m: Maker) -> Iterator[tuple[str, ...]]:
    s = m(40, B64)
    yield "aws secret in .env", f"AWS_REGION=eu-west-1\nAWS_SECRET_ACCESS_KEY={s}\n", s
    s = "AKIA" + m(16, ascii_uppercase + "234567")
    yield "aws key id", f"[default]\naws_access_key_id = {s}\nregion = us-east-1\n", s
    s = m(300, B64)
    yield "aws session token", f'"SessionToken": "{s}",\n"Expiration": "2026-01-01"', s[40:]
    lines = m.pem("PRIVATE KEY")
    account = {"type": "service_account", "private_key": "\n".join(lines) + "\n"}
    yield "gcp service account", json.dumps({**account, "client_email": "a@b.iam"}), *lines[1:-1]
    s = "AIza" + m(35, URL)
    yield "google api key", f"https://maps.example.com/api/js?key={s}&callback=init", s
    s = m.encoded(64)
    yield (
        "azure account key",
        f"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={s};EndpointSuffix=core.x.net",
        s,
    )
    s = m(43, ALNUM + "%").replace("%", "%2B") + "%3D"
    yield (
        "azure sas",
        f"https://acct.blob.core.windows.net/c/f.zip?sv=2024-11-04&sp=r&se=2026-01-01&sr=b&sig={s}",
        s,
    )
    s = f"{m(3)}8Q~{m(34, URL)}"
    yield "azure client secret", f'az login --service-principal -u app-id -p "{s}" --tenant t', s
    s = m.encoded(32)
    yield "azure sql", f"Server=tcp:db.x.net,1433;User ID=sa;Password={s};Encrypt=True;", s
    s = "hvs." + m(24) + m(60, URL)
    yield "vault token", f"$ vault login {s}\nSuccess! You are now authenticated.", s
    s = "dop_v1_" + m(64, HEX)
    yield "digitalocean token", f"doctl auth init -t {s}", s
    s = m(40, URL)
    yield "cloudflare token", f'provider "cloudflare" {{\n  api_token = "{s}"\n}}', s


def _rows_of_services(m: Maker) -> Iterator[tuple[str, ...]]:
    s = f"sk-ant-api03-{m(93, URL)}AA"
    yield "anthropic key", f"client = Anthropic(api_key='{s}')", s
    s = f"sk-proj-{m(74, URL)}T3Blbk{m(60, URL)}"
    yield "openai key", f"export OPENAI_API_KEY={s}", s
    s = f"ghp_{m(36)}"
    yield (
        "github token in a remote",
        f"origin  https://x-access-token:{s}@github.com/o/r (fetch)",
        s,
    )
    s = f"github_pat_{m(22)}_{m(59)}"
    yield "github fine-grained", f"gh auth login --with-token <<< {s}", s
    s = f"glpat-{m(20, URL)}"
    yield "gitlab token", f"curl --header 'PRIVATE-TOKEN: {s}' https://gitlab.example.com/api/v4", s
    s = f"xoxb-{m(12, digits)}-{m(13, digits)}-{m(24)}"
    yield "slack token", f"SLACK_BOT_TOKEN: {s}", s
    s = f"T{m(8, ascii_uppercase + digits)}/B{m(10, ascii_uppercase + digits)}/{m(24)}"
    yield "slack webhook", f"curl -X POST https://hooks.slack.com/services/{s} -d x", s
    s = m(68, URL)
    yield "discord webhook", f"https://discord.com/api/webhooks/1234567890123456789/{s}", s
    s = f"MT{m(22)}.{m(6)}.{m(38, URL)}"
    yield "discord token", f"bot.run('{s}')", s
    s = f"{m(10, '123456789')}:AA{m(33, URL)}"
    yield "telegram token", f"GET https://api.telegram.org/bot{s}/getMe 200", s
    s = f"sk_live_{m(24)}"
    yield "stripe key", f"stripe.api_key = '{s}'", s
    s = f"SG.{m(22, URL)}.{m(43, URL)}"
    yield "sendgrid key", f"  sendgrid_key: {s}", s
    s = m(32, HEX)
    yield "twilio auth token", f"client = Client('AC{m(32, HEX)}', auth_token='{s}')", s
    s = f"npm_{m(36)}"
    yield "npm token", f"//registry.npmjs.org/:_authToken={s}", s
    s = f"pypi-AgEIcHlwaS5vcmc{m(120, URL)}"
    yield "pypi token", f"twine upload -u __token__ -p {s} dist/*", s
    s = f"hf_{m(34)}"
    yield "huggingface token", f"huggingface-cli login --token {s}", s
    s = f"{m.json({'alg': 'HS256', 'typ': 'JWT'})}.{m.json({'sub': '1'})}.{m(43, URL)}"
    yield "jwt in a log", f"2026-01-02 10:11:12 DEBUG set-cookie id_token={s}; Path=/", s[-43:]
    s = m(40, HEX)
    yield "datadog key", f"DD_API_KEY={s} DD_SITE=datadoghq.eu bash -c install", s
    s = f"AGE-SECRET-KEY-1{m(58, ascii_uppercase + digits)}"
    yield "age key", f"# created: 2026-01-01\n# public key: age1x\n{s}", s
    s = f"ops_{m.json({'email': 'a@b.c', 'x': m(80)})}"
    yield "1password token", f"export OP_SERVICE_ACCOUNT_TOKEN={s}", s[30:]
    s = m(40, URL)
    yield "chat", f"here you go, my api key for the weather service is {s} thanks", s
    s = m.password()
    yield "password in chat", f"the wifi password is {s} if you need it", s


def _rows_of_files(m: Maker) -> Iterator[tuple[str, ...]]:
    s = base64.b64encode(f"ci:{m(16)}".encode()).decode()
    yield ".npmrc _auth", f"registry=https://npm.example.com/\n_auth={s}\nalways-auth=true\n", s
    lines = m.pem("RSA PRIVATE KEY", 24)
    s = base64.b64encode("\n".join(lines).encode()).decode()
    yield "kubeconfig key", f"  user:\n    client-key-data: {s}\n", s, *lines[1:-1]
    s = f"{m.json({'alg': 'RS256'})}.{m.json({'iss': 'kubernetes'})}.{m(86, URL)}"
    yield "kubeconfig token", f"users:\n- name: ci\n  user:\n    token: {s}\n", s[-86:]
    s = m.password()
    yield ".netrc", f"machine git.example.com\n  login ada\n  password {s}\n", s
    s = m.password()
    yield ".netrc on a line", f"machine api.example.com login ada password {s}", s
    s = m(14)
    yield ".pgpass", f"db.example.com:5432:app:ada:{s}\n", s
    lines = m.pem("RSA PRIVATE KEY")
    yield "private key", "\n".join(lines), *lines[1:-1]
    lines = m.pem("OPENSSH PRIVATE KEY", 7)[:5]
    yield (
        "private key, cut",
        "\n".join(f"{n:6}\t{one}" for n, one in enumerate(lines, 1)),
        *lines[1:],
    )
    lines = m.pem("EC PRIVATE KEY", 2)
    yield (
        "private key in .env",
        'TLS_KEY="' + "\\n".join(lines) + '"',
        *lines[1:-1],
    )
    s = base64.b64encode(f"ada:{m(20)}".encode()).decode()
    yield "docker config", f'{{"auths": {{"ghcr.io": {{"auth": "{s}"}}}}}}', s
    s = m.phrase()
    yield "quoted passphrase", f'[backup]\npassphrase = "{s}"\nrepo = /srv/backup', s
    s = m.password()
    yield "terraform", f'resource "aws_db_instance" "x" {{\n  password = "{s}"\n}}', s
    s = m.password()
    yield "docker compose", f"    environment:\n      - MYSQL_ROOT_PASSWORD={s}\n", s
    s = m(24, ALNUM + "/.")
    yield "htpasswd", f"ada:$apr1${m(8)}${s}\n", s
    s = m(50, ALNUM + "!@#%^&*(-_=+)").replace("'", "")
    yield "django", f"SECRET_KEY = 'django-insecure-{s}'", s
    s = m.encoded(24)
    yield "kubernetes secret", f"kind: Secret\ndata:\n  db-password: {s}\n", s
    s = m.password()
    yield "spring", f"spring.datasource.username=app\nspring.datasource.password={s}", s
    s = m(32)
    yield "cookie", f"Cookie: theme=dark; sessionid={s}; lang=en", s


def _rows_of_commands(m: Maker) -> Iterator[tuple[str, ...]]:
    s = m.password()
    yield "mysql -p", f"mysql -h db.example.com -u root -p{s} app < dump.sql", s
    s = m.password()
    yield "curl -u", f"curl -sS -u ada:{s} https://jenkins.example.com/api/json", s
    s = m.password()
    yield "sshpass", f"sshpass -p '{s}' ssh ada@10.0.0.7 uptime", s
    s = m.password()
    yield "database url", f"DATABASE_URL=postgresql://app:{s}@db.example.com:5432/app", s
    s = m(20)
    yield "redis url", f"REDIS_URL=rediss://default:{s}@cache.example.com:6380/0", s
    s = m(40)
    yield (
        "authorization header",
        f"> GET /v1/me HTTP/1.1\n> Authorization: Bearer {s}\n> Accept: */*",
        s,
    )
    s = base64.b64encode(f"ada:{m.password()}".encode()).decode()
    yield "basic header", f"-H 'Authorization: Basic {s}'", s
    s = m.password()
    yield "password option", f"pg_dump --username app --password {s} app", s


Carrier = Callable[[str], dict[str, Any]]


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(one):04x}" for one in text)


CARRIERS: dict[str, Carrier] = {
    "chat text": lambda text: {"role": "user", "content": text},
    "tool input": lambda text: {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "x", "input": {"value": text}}],
    },
    "tool result": lambda text: {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [{"type": "text", "text": f"$ cat it\n{text}\nexit 0"}],
            }
        ],
    },
    "arguments": lambda text: {
        "type": "function_call",
        "call_id": "call_1",
        "name": "x",
        "arguments": json.dumps({"cmd": ["bash", "-lc", f"cat <<E\n{text}\nE"]}),
    },
    "document": lambda text: {
        "role": "user",
        "content": [
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": text},
            }
        ],
    },
    "data url": lambda text: {
        "role": "user",
        "content": [
            {
                "type": "input_file",
                "filename": "notes.txt",
                "file_data": f"data:text/plain;base64,{_encoded(text)}",
            }
        ],
    },
    "escaped": lambda text: {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": f'HTTP 200: {{"output": "{_escaped(text)}", "code": 0}}',
    },
    "blob": lambda text: {
        "role": "model",
        "parts": [
            {
                "functionCall": {
                    "name": "save",
                    "args": {"file": {"mimeType": "text/plain", "data": _encoded(text)}},
                }
            }
        ],
    },
}

_RUN = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


def is_leaked(value: Any, secret: Secret) -> bool:
    """Whether a part of a secret can still be read in a value, in whatever way it is written."""
    return any(part in text for text in readings(value) for part in secret.parts)


def readings(value: Any, depth: int = 3) -> Iterator[str]:
    """Every text of a value, as it is and with each of its encodings taken off."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from readings(key, depth)
            yield from readings(inner, depth)
    elif isinstance(value, list):
        for inner in value:
            yield from readings(inner, depth)
    elif isinstance(value, str):
        yield value
        if depth:
            yield from _decoded(value, depth - 1)


def _decoded(text: str, depth: int) -> Iterator[str]:
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError):
            yield from readings(json.loads(text), depth)
    if "\\u" in text:
        yield from readings(_ESCAPE.sub(lambda one: chr(int(one[1], 16)), text), depth)
    for run in _RUN.findall(text):
        try:
            signs = b"-_" if "-" in run or "_" in run else None
            inner = base64.b64decode(run + "=" * (-len(run) % 4), altchars=signs)
            yield from readings(inner.decode(), depth)
        except ValueError:
            continue
