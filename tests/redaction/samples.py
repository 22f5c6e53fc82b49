"""One made-up secret of every kind; put together here, so that no scanner takes them for real."""

from __future__ import annotations

import base64
import json
from random import Random
from string import ascii_letters, ascii_uppercase, digits

ALNUM = ascii_letters + digits
HEX = "0123456789abcdef"
BASE64URL = ALNUM + "_-"
BASE64 = ALNUM + "+/"


def made(length: int, alphabet: str = ALNUM, seed: int = 7) -> str:
    """A random text of one alphabet; of letters and digits it has some of each."""
    choose = Random(f"{length}{alphabet}{seed}")  # noqa: S311 - repeatable on purpose
    while True:
        text = "".join(choose.choices(alphabet, k=length))
        mixed = any(map(str.isdigit, text)) and not text.isdigit()
        if mixed and text[0].isalnum() and text[-1].isalnum():
            return text


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _pem(label: str, lines: int = 6, end: str = "\n") -> str:
    body = [made(64, BASE64, seed) for seed in range(lines)]
    return end.join((f"-----BEGIN {label}-----", *body, made(20, BASE64), f"-----END {label}-----"))


JWT = ".".join((_encoded({"alg": "HS256", "typ": "JWT"}), _encoded({"sub": "1"}), made(43)))

# By the kind in the placeholder; all of these are found anywhere, without a name.
KNOWN: dict[str, list[str]] = {
    "anthropic-key": [f"sk-ant-{kind}-{made(93, BASE64URL)}AA" for kind in ("api03", "oat01")],
    "openai-key": [
        f"sk-{made(20)}T3BlbkFJ{made(20)}",
        f"sk-proj-{made(120, BASE64URL)}",
        f"sk-svcacct-{made(100, BASE64URL)}",
        f"sk-or-v1-{made(64, HEX)}",
    ],
    "github-token": [
        *(f"gh{kind}_{made(36)}" for kind in "pousr"),
        f"github_pat_{made(22)}_{made(59)}",
    ],
    "gitlab-token": [f"glpat-{made(20, BASE64URL)}"],
    "aws-key-id": [
        f"AKIA{made(16, ascii_uppercase + '234567')}",
        f"ASIA{made(16, ascii_uppercase + '234567')}",
    ],
    "google-key": [f"AIza{made(35, BASE64URL)}"],
    "google-secret": [f"GOCSPX-{made(28, BASE64URL)}"],
    "slack-token": [f"xox{kind}-{made(12, digits + 'a')}-{made(24)}" for kind in "bpars"],
    "stripe-key": [f"{kind}_live_{made(24)}" for kind in ("sk", "rk", "pk")],
    "stripe-webhook-secret": [f"whsec_{made(32)}"],
    "npm-token": [f"npm_{made(36)}"],
    "pypi-token": [f"pypi-AgEIcHlwaS5vcmc{made(120, BASE64URL)}"],
    "huggingface-token": [f"hf_{made(34)}", "hf_" + "aBcDeFgHiJkLmNoPqR" + "sTuVwXyZaBcDeFgH"],
    "telegram-token": [f"{7 * 123456789}:AA{made(33, BASE64URL)}"],
    "discord-token": [f"MTk4{made(22)}.{made(6)}.{made(38, BASE64URL)}"],
    "jwt": [JWT],
    "groq-key": [f"gsk_{made(52)}"],
    "digitalocean-token": [f"dop_v1_{made(64, HEX)}"],
    "token": [f"SG.{made(22)}.{made(43)}", f"ya29.{made(60, BASE64URL)}"],
    "private-key": [
        _pem("RSA PRIVATE KEY"),
        _pem("OPENSSH PRIVATE KEY"),
        _pem("PRIVATE KEY", end="\\n"),
        _pem("EC PRIVATE KEY").rpartition("\n")[0],
        "\n".join(f"{n:6}\t{line}" for n, line in enumerate(_pem("PRIVATE KEY").split("\n"), 1))[
            7:
        ],
    ],
    "webhook": [f"T{made(8).upper()}/B{made(8).upper()}/{made(24)}"],
    "secret": [made(40), made(44, BASE64URL), made(64, BASE64)],
}
PASSWORD = "hunter2-" + made(6)

# With a place for the secret; ``kind`` is what the name says.
NAMED: list[tuple[str, str, str]] = [
    ("password", "postgres://admin:{}@db.example.org:5432/app", PASSWORD),
    ("password", "redis://:{}@cache:6379", PASSWORD),
    ("password", "mongodb+srv://user:{}@cluster0.example.net/?retryWrites=true", PASSWORD),
    ("password", "DB_PASSWORD={}\nDB_HOST=db", PASSWORD),
    ("password", "DB_PASSWORD={}", "correcthorse"),
    ("password", "export PGPASSWORD='{}'; psql", PASSWORD),
    ("password", "password: {}", PASSWORD),
    ("password", "    password = {}\n", PASSWORD),
    ("password", 'connect(host="db", password="{}")', "letmein"),
    ("password", "{{'user': 'a', 'password': '{}'}}", PASSWORD),
    ("password", "The password is: {}", PASSWORD),
    ("password", "**Password:** {}", PASSWORD),
    ("password", "mysql --user=root --password {} app", PASSWORD),
    ("password", "mysql --password={} app", PASSWORD),
    ("password", "Server=db;User Id=sa;Password={};Encrypt=True", PASSWORD),
    ("password", "Server=db;Uid=sa;Pwd={};", PASSWORD),
    ("password", "<server><password>{}</password></server>", PASSWORD),
    ("password", "curl -u admin:{} https://example.org", PASSWORD),
    ("password", "curl -s --user 'admin:{}' https://example.org", PASSWORD),
    ("api-key", "AWS_SECRET_KEY_X={}", made(40, BASE64)),
    ("api-key", "aws_secret_access_key = {}", made(40, BASE64)),
    ("api-key", "AWS_SECRET_ACCESS_KEY={}", made(40, BASE64)),
    ("api-key", "aws configure set aws_secret_access_key {} --profile x", made(40, BASE64)),
    ("api-key", "AccountName=x;AccountKey={};EndpointSuffix=core.windows.net", made(86, BASE64)),
    ("api-key", '{{"api_key": "{}"}}', made(24)),
    ("api-key", '"cmd": "{{\\"apiKey\\": \\"{}\\"}}"', made(24)),
    ("api-key", "x-api-key: {}", made(32, HEX)),
    ("api-key", "MY_API_KEY_PROD={}", made(20)),
    ("api-key", "private_key: {}", made(64, HEX)),
    ("secret", 'client_secret = "{}"', made(32)),
    ("secret", "SECRET={}", "abcdefghij"),
    ("secret", "the app secret: {} (keep it)", made(40, HEX)),
    ("token", "Authorization: Bearer {}", made(40)),
    ("token", "Authorization: Basic {}", base64.b64encode(b"user:pass1word").decode()),
    ("token", "curl -H 'Authorization: token {}' x", made(30)),
    ("token", "'Authorization': 'Bearer {}'", made(20)),
    ("token", "bearer {}", made(24)),
    ("token", "GET /?access_token={}&page=2", made(20)),
    ("token", "refreshToken: '{}'", made(20)),
    ("token", "//registry.example.org/:_authToken={}", made(36)),
    ("token", "my token, as promised, is {} so there", made(26)),
    ("token", "TOKEN={}", "6f1ed002-ab5b-4f6c-9c2e-0a3a8b6f3f10"),
    ("credential", "credentials: {}", made(30)),
]

# Texts in which nothing may be touched.
HARMLESS: dict[str, str] = {
    "prose": "Please rotate the token; a password is required. Secrets: none. Key takeaways: two.",
    "uuid": "6f1ed002-ab5b-4f6c-9c2e-0a3a8b6f3f10",
    "uuids": "\n".join(f"{made(8, HEX)}-{made(4, HEX)}-4{made(3, HEX)}-a{made(3, HEX)}-"
                       f"{made(12, HEX, seed)}" for seed in range(20)),
    "git hashes": f"commit {made(40, HEX)}\nMerge: {made(7, HEX)} {made(7, HEX)}\nFix the token",
    "sha256": f"sha256:{made(64, HEX)}  image.tar\n{made(64, HEX)}",
    "integrity": f'"integrity": "sha512-{made(86, BASE64)}==",',
    "go.sum": f"example.org/x v1.2.3 h1:{made(43, BASE64)}=",
    "fingerprint": f"SHA256:{made(43, BASE64)} user@host (ED25519)",
    "a public key": f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{made(43, BASE64)} user@host",
    "path": "/home/user/.local/share/Example App/v2/node_modules/@scope/pkg-name/dist/Index.d.ts",
    "long path": "src/main/java/org/example/service/V2/UserAccountServiceImplIntegrationTestCase2",
    "names": "test_the_command_line_loads_typer_and_rich_only_when_2_of_them_are_needed",
    "camel": "TestUserAuthenticationFlowV2HandlesOAuth2CallbackWithXMLHttpRequest2",
    "constant": "MAX_TOKENS=4096 TOKEN_LIMIT=128000 SECRET_NAME=my-secret-2 API_KEY_FILE=/run/x1",
    "class names": "sk-spinner sk-folding-cube-and-something-without-any-number hf_hub_download",
    "minified": "!function(e,t){var n=e.document,r=t/2+n.x1_Y2-3;for(var o=0;o<t.length;o++)"
                "if(n[o]===r)return e+t/2-1;return n.token=t.token,n.key=e.keys[0],n.password=e}",
    "pixels": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
              "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==",
    "base64": "\n".join(made(76, BASE64, seed) for seed in range(12)) + "\n" + made(40) + "=\n",
    "a big picture": made(40_000, BASE64),
    "a certificate": "-----BEGIN CERTIFICATE-----\nMIIB" + made(60, BASE64)
                     + "\n" + "\n".join(made(64, BASE64, seed) for seed in range(5))
                     + "\n-----END CERTIFICATE-----",
    "ids": " ".join(f"{kind}{made(24)}" for kind in ("toolu_01", "call_", "msg_", "req_011", "fc_"))
           + f" chatcmpl-{made(29)} resp_{made(48, HEX)}",
    "code": "token = self.next_token()\nkey = data[0:16]\npassword = getpass()\n"
            "secret = os.environ['SECRET']\napi_key=settings.api_key, password=password\n"
            "def login(user: str, password: str, token: Optional[Token] = None) -> None:\n"
            "const apiKey = process.env.API_KEY;\nif (token === null) return;\n"
            "input('Password: '), print('Token: ' + token_2)",
    "references": "TOKEN=$TOKEN password=${DB_PASSWORD} api_key: {{ api_key }} secret: <a-secret>"
                  " PASSWORD=******** TOKEN=xxxxxxxx password: '***' token: %(token)s",
    "address": "https://example.org:8080/@scope/pkg?email=a@b.example git@github.com:org/repo.git",
    "page tokens": "next_page_token: abcd1234efgh nextPageToken='Zm9vYmFy12' pad_token=abc12345",
    "numbers": "token_count: 12345678, total tokens: 87654321; key 0 1 2 3; pwd /home/user1/x2",
    "schema": '{"properties": {"password": {"type": "string"}, "token": {"type": "string"}}}',
    "environment": "HOME=/root\nPWD=/home/user/project-1\nOLDPWD=/tmp\nSHLVL=1\n"
                   '{"PWD": "/home/user/a1", "OLDPWD": "~/b2"}',
    "hex number": f"order = 0x{made(64, HEX.upper())}",
    "empty": "",
}  # fmt: skip
