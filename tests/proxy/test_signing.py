"""What the proxy signs for AWS is what AWS's own library would have signed."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials as Theirs  # type: ignore[import-untyped]

from lockstitch.errors import UsageError
from lockstitch.proxy import Credentials, Settings, credentials_in, region_of, sign
from lockstitch.proxy import Upstream as Target
from lockstitch.proxy.server import running
from tests.kinds_of_break.conversations import BROKEN
from tests.proxy.bodies import CASES
from tests.proxy.sending import send
from tests.proxy.upstream import Upstream

CONVERSE = CASES[-2]
URL = "https://bedrock-runtime.eu-central-1.amazonaws.com"


@pytest.mark.parametrize("token", ["", "a-session-token"])
@pytest.mark.parametrize("query", ["", "b=2&a=1"])
def test_the_signature_is_that_of_botocore(token: str, query: str) -> None:
    url = f"{URL}{CONVERSE.path}" + (f"?{query}" if query else "")
    body = CONVERSE.body(BROKEN[0].turns)
    request = AWSRequest("POST", url, {"Content-Type": "application/json"}, body)
    SigV4Auth(Theirs("AKID", "secret", token or None), "bedrock", "eu-central-1").add_auth(request)
    now = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    sent = [
        ("Content-Type", "application/json"),
        ("authorization", "AWS4-HMAC-SHA256 of the client"),
        ("x-amz-date", "19700101T000000Z"),
    ]
    made = sign("POST", url, sent, body, Credentials("AKID", "secret", token), now)
    found = {name.lower(): value for name, value in made}
    assert len(found) == len(made)
    assert found["authorization"] == request.headers["Authorization"]


def test_a_healed_request_is_signed_as_it_goes_out(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-proxy")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    named = Target(url=URL.replace("https", "http"), sign="aws", proxy=upstream.url)
    log: list[object] = []
    with running(Settings(port=0, upstreams=(named,)), log=log.append) as url:
        headers = {"Content-Type": "application/json", "Authorization": "AWS4-HMAC-SHA256 x"}
        got = send(url, CONVERSE.path, CONVERSE.body(BROKEN[1].turns), headers)
        assert got.header("lockstitch-repaired")
        assert send(url, "/model/x/invoke", b"{}", headers).status == 200
    for seen in upstream.seen:
        (said,) = seen.all("authorization")
        names = dict(seen.headers)
        request = AWSRequest("POST", seen.target, {"Content-Type": "application/json"}, seen.body)
        request.headers["X-Amz-Date"] = names["X-Amz-Date"]
        request.context["timestamp"] = names["X-Amz-Date"]
        auth = SigV4Auth(Theirs("AKID", "a-secret-of-the-proxy"), "bedrock", "eu-central-1")
        text = auth.string_to_sign(request, auth.canonical_request(request))
        assert said.endswith(f"Signature={auth.signature(text, request)}")
        assert urlsplit(seen.target).hostname == urlsplit(URL).hostname
    assert len(upstream.seen) == 2
    assert "a-secret" not in str(log)


def test_without_keys_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="AWS_ACCESS_KEY_ID"):
        credentials_in({})
    with pytest.raises(UsageError):
        region_of("https://example.org")
    assert "secret" not in repr(Credentials("AKID", "secret"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    made = Settings(port=0, upstreams=(Target(url=URL, sign="aws"),))
    with pytest.raises(UsageError), running(made):
        pass
