"""Requests signed for AWS (Signature Version 4), which binds them to one host and one body."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote, urlsplit

from msgspec import Struct

from lockstitch.errors import UsageError

AWS = "aws"
_SERVICE = "bedrock"
_ALGORITHM = "AWS4-HMAC-SHA256"
_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.")
# What a client that signs itself sends: of another host, and perhaps of another body.
_REPLACED = ("authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256")

Headers = list[tuple[str, str]]


class Credentials(Struct, frozen=True):
    """Keys of an account."""

    key: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        """Show nothing: a repr may end up in a log."""
        return "Credentials(…)"


def credentials_in(environment: Mapping[str, str]) -> Credentials:
    """Return the keys that the environment holds, as the tools of AWS read them."""
    key = environment.get("AWS_ACCESS_KEY_ID", "")
    secret = environment.get("AWS_SECRET_ACCESS_KEY", "")
    if not key or not secret:
        raise UsageError(
            'an upstream has sign = "aws": set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and '
            "AWS_SESSION_TOKEN if there is one, in the proxy's environment"
        )
    return Credentials(key, secret, environment.get("AWS_SESSION_TOKEN", ""))


def region_of(url: str) -> str:
    """Return the region that an address of AWS names."""
    found = _REGION.search(f"{urlsplit(url).hostname}.")
    if found is None:
        raise UsageError('an upstream with sign = "aws" has an address of AWS that names a region')
    return found[1]


def sign(  # noqa: PLR0913, PLR0917 - what is signed is all of these
    method: str, url: str, headers: Headers, body: bytes, keys: Credentials, now: datetime
) -> Headers:
    """Return the headers of a request with a signature in place of the client's, if it had one."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    passed = [(name, value) for name, value in headers if name.lower() not in _REPLACED]
    passed.append(("X-Amz-Date", stamp))
    if keys.token:
        passed.append(("X-Amz-Security-Token", keys.token))
    parts = urlsplit(url)
    chosen = {"host": parts.netloc}
    for name, value in passed:
        if name.lower() == "content-type" or name.lower().startswith("x-amz-"):
            chosen[name.lower()] = " ".join(value.split())
    names = ";".join(sorted(chosen))
    lines = [f"{name}:{chosen[name]}" for name in sorted(chosen)]
    digest = hashlib.sha256(body).hexdigest()
    path = quote(parts.path or "/", safe="/~")
    pairs = sorted(pair.partition("=")[::2] for pair in parts.query.split("&") if pair)
    query = "&".join(f"{name}={value}" for name, value in pairs)
    asked = "\n".join([method, path, query, *lines, "", names, digest])
    scope = f"{stamp[:8]}/{region_of(url)}/{_SERVICE}/aws4_request"
    text = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for step in scope.split("/"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    said = f"{_ALGORITHM} Credential={keys.key}/{scope}, SignedHeaders={names}"
    return [*passed, ("Authorization", f"{said}, Signature={signature}")]
