"""Who may ask: the person who started the page, from that page, and nobody else on this machine.

Pure. The address that is printed holds a token behind ``#``, which browsers do not send; the page
hands it in once, and gets a cookie and a second token for a header in return. Both are asked for
with every request for data: a cookie alone is sent to every port of this machine, and a token
alone is not bound to this browser.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

NAMES = ("127.0.0.1", "localhost")
HEADER = "X-Lockstitch-Token"
JSON = "application/json"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Server": "lockstitch",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_SITES = ("same-origin", "none")


class Guard:
    """The secrets of one run of the page; the first one is good for one use."""

    def __init__(self) -> None:
        self.entrance: str | None = secrets.token_urlsafe(32)
        self.cookie = secrets.token_urlsafe(32)
        self.token = secrets.token_urlsafe(32)
        self.port = 0

    @property
    def cookie_name(self) -> str:
        """The cookie's name, with the port: those of other ports are sent along."""
        return f"lockstitch-{self.port}"

    def address(self) -> str:
        """Return the address that lets one browser in."""
        return f"http://{NAMES[0]}:{self.port}/#token={self.entrance}"

    def refusal(self, method: str, headers: Mapping[str, str], *, is_data: bool) -> str:
        """Say why a request is none of the page's own; empty if it may be.

        A page of another site can have this address called under a name that it owns, or from
        its own origin: what the browser says of both is compared. Whoever follows a link may
        come from anywhere, and gets the empty page.
        """
        hosts = [f"{name}:{self.port}" for name in NAMES]
        if headers.get("Host", "").lower() not in hosts:
            return "the Host of a request must be 127.0.0.1 or localhost, with the port"
        origin = headers.get("Origin")
        if origin is None and method not in {"GET", "HEAD"}:
            return "a request that changes something needs an Origin"
        if origin is not None and origin not in [f"http://{host}" for host in hosts]:
            return "the Origin of a request must be this page"
        if is_data and headers.get("Sec-Fetch-Site", "same-origin") not in _SITES:
            return "a request must come from this page"
        media = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if method not in {"GET", "HEAD"} and media != JSON:
            return f"the Content-Type of a request must be {JSON}"
        return ""

    def enters(self, token: object) -> bool:
        """Whether a token is the one that was printed; from then on it is good for nothing."""
        if self.entrance is None or not _is_same(token, self.entrance):
            return False
        self.entrance = None
        return True

    def knows(self, cookie: object, token: object) -> bool:
        """Whether a request has both secrets that were handed out."""
        return _is_same(cookie, self.cookie) & _is_same(token, self.token)


def _is_same(given: object, known: str) -> bool:
    if not isinstance(given, str):
        return False
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), known.encode())
