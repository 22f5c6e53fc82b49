"""The server of the page: sockets on the loopback address, with a guard that checks every request.

Only the person who started the page may send requests, and only from that page. The printed address
contains a token after ``#``, which browsers do not send. The page hands the token in once, and gets
a cookie and a second token for a header in return. Every request for data needs both: a cookie
alone is sent to every port of this machine, and a token alone is not bound to this browser.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from importlib.resources import files
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from lockstitch.dialects.profiles import DIALECTS, profile_named
from lockstitch.errors import Conflict, LockstitchError, UsageError
from lockstitch.inspector import actions, views
from lockstitch.inspector.actions import Subject
from lockstitch.inspector.plans import shorten_home
from lockstitch.inspector.views import (
    Catalog,
    CatalogEntry,
    SessionPage,
    SessionPageCache,
    describe_store,
    list_row,
)
from lockstitch.provider import LOCALHOST, AppServer, serving, until_stopped
from lockstitch.stores.addresses import public

NAMES = (LOCALHOST, "localhost")
HEADER = "X-Lockstitch-Token"
_JSON_TYPE = "application/json"
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


class PageGuard:
    """The secrets of one run of the page; the first one can be used once."""

    def __init__(self) -> None:
        self.entrance: str | None = secrets.token_urlsafe(32)
        self.cookie = secrets.token_urlsafe(32)
        self.token = secrets.token_urlsafe(32)
        self.port = 0

    @property
    def cookie_name(self) -> str:
        """The name of the cookie, with the port, since browsers send other ports' cookies, too."""
        return f"lockstitch-{self.port}"

    def address(self) -> str:
        """Return the address that lets one browser in."""
        return f"http://{NAMES[0]}:{self.port}/#token={self.entrance}"

    def refusal(self, method: str, headers: Mapping[str, str], *, is_data: bool) -> str:
        """Return why a request does not come from the page; "" if it may.

        A page of another site can request this address under a host name that it owns, or from its
        own origin, so the host and origin that the browser sends are checked. Following a link from
        anywhere is allowed, and leads to the empty page.
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
        if method not in {"GET", "HEAD"} and media != _JSON_TYPE:
            return f"the Content-Type of a request must be {_JSON_TYPE}"
        return ""

    def enters(self, token: object) -> bool:
        """Whether a token is the printed one, which is not valid any more afterwards."""
        if self.entrance is None or not _is_same(token, self.entrance):
            return False
        self.entrance = None
        return True

    def knows(self, cookie: object, token: object) -> bool:
        """Whether a request has both secrets that were handed out."""
        return _is_same(cookie, self.cookie) & _is_same(token, self.token)


def _is_same(sent: object, known: str) -> bool:
    if not isinstance(sent, str):
        return False
    return secrets.compare_digest(sent.encode("utf-8", "surrogatepass"), known.encode())


_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_LARGEST = 1 << 20
_MOST_ROWS = 400
_ALIVE = 15.0

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OnFailure = Callable[[Exception], None]


class Inspector:
    """One run of the page: what it may show, and to whom."""

    def __init__(self, target: str | None, on_failure: OnFailure = lambda _: None) -> None:
        self.catalog = Catalog(target)
        self.guard = PageGuard()
        self.shelf = SessionPageCache()
        self.on_failure = on_failure
        # Sessions are read and changed one at a time, because none of this is made for several
        # threads.
        self._one = asyncio.Lock()
        self._scan: threading.Thread | None = None

    def application(self) -> web.Application:
        """Return the web application."""
        app = web.Application(middlewares=[self._guard_request], client_max_size=_LARGEST)
        app.router.add_get("/", _asset)
        app.router.add_get("/assets/{name}", _asset)
        app.router.add_post("/api/enter", self._enter)
        app.router.add_get("/api/events", self._events)
        app.router.add_get("/api/store", self._store)
        app.router.add_post("/api/scan", self._rescan)
        app.router.add_get("/api/session/{id}", self._session)
        app.router.add_get("/api/session/{id}/rows", self._rows)
        app.router.add_get("/api/session/{id}/find", self._find)
        app.router.add_post("/api/session/{id}/plan", self._plan)
        app.router.add_post("/api/session/{id}/do", self._do)
        app.router.add_post("/api/session/{id}/export", self._export)
        app.router.add_post("/api/session/{id}/branch", self._branch)
        return app

    @web.middleware
    async def _guard_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse strangers, and add headers to every answer; failures show no content."""
        is_data = request.path.startswith("/api/")
        cookie = request.cookies.get(self.guard.cookie_name)
        why = self.guard.refusal(request.method, request.headers, is_data=is_data)
        response: web.StreamResponse
        if why:
            response = _error(403, why)
        elif (
            is_data
            and request.path != "/api/enter"
            and not self.guard.knows(cookie, request.headers.get(HEADER))
        ):
            response = _error(401, "open the address that lockstitch ui printed")
        else:
            response = await self._answer(request, handler)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _error(error.status, error.reason)
        except Conflict as error:
            return _error(409, str(error))
        except LockstitchError as error:
            return _error(422, str(error))
        except ConnectionError:
            raise
        except OSError as error:
            return _error(422, error.strerror or "cannot be read")
        except Exception as error:  # noqa: BLE001 - an answer, not a dropped connection
            self.on_failure(error)
            return _error(500, f"internal error: {type(error).__name__}")

    # Entering.

    async def _enter(self, request: web.Request) -> web.Response:
        sent = await _fields(request)
        if not self.guard.enters(sent.get("token")):
            return _error(403, "this address was already used, or belongs to another run")
        response = _json({"token": self.guard.token})
        name, value = self.guard.cookie_name, self.guard.cookie
        response.set_cookie(name, value, httponly=True, samesite="Strict", path="/")
        return response

    # The list.

    async def _events(self, request: web.Request) -> web.StreamResponse:
        headers = {**HEADERS, "Content-Type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        target = self.catalog.target
        named = "" if target is None else shorten_home(public(target))
        hello = {"target": named, "is_store": self.catalog.is_store}
        with self.catalog.listening() as queue, suppress(ConnectionError):
            await response.write(_event({"hello": {**hello, "dialects": DIALECTS}}))
            while True:
                try:
                    event = await asyncio.wait_for(queue.get(), _ALIVE)
                    await response.write(_event(event))
                except TimeoutError:
                    await response.write(b": still here\n\n")
        return response

    async def _store(self, _: web.Request) -> web.Response:
        if not self.catalog.is_store:
            raise UsageError("the page does not show a Lockstitch store, so there is no summary")
        return _json(await self._alone(describe_store, str(self.catalog.target)))

    async def _rescan(self, _: web.Request) -> web.Response:
        self.scan()
        return _json({})

    def scan(self) -> None:
        """Start a scan unless one is running; must be called in the loop."""
        if self._scan is not None and self._scan.is_alive():
            return
        self.catalog.set_state(is_done=False, error="")
        loop = asyncio.get_running_loop()
        self._scan = threading.Thread(target=self.catalog.scan, args=(loop,), daemon=True)
        self._scan.start()

    def close(self) -> None:
        """End a scan, and wait for that."""
        self.catalog.close()
        if self._scan is not None:
            self._scan.join(timeout=10)

    # One session.

    def _subject(self, request: web.Request) -> Subject:
        subject = self.catalog.find(request.match_info["id"])
        if subject is None:
            raise web.HTTPNotFound(reason="there is no such session, or it was not found yet")
        return subject

    async def _alone(self, call: Callable[..., T], *args: Any) -> T:
        """Do slow work in a thread, one call after the other."""
        async with self._one:
            return await asyncio.to_thread(call, *args)

    async def _session(self, request: web.Request) -> web.Response:
        subject = self._subject(request)
        view = await self._alone(self.shelf.read, subject)
        row = await self._alone(list_row, subject, view.reading.report)
        return _json(views.describe_page(view, row))

    async def _rows(self, request: web.Request) -> web.Response:
        view, query = await self._view(request), request.query
        start = _number(query.get("from", "0"))
        stop = start + min(_number(query.get("count", "100")), _MOST_ROWS)
        rows = view.rows(reveal=query.get("reveal") == "1")
        return _json({"rows": views.slice_rows(rows, start, stop, full=query.get("full") == "1")})

    async def _find(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        rows = view.rows(reveal=request.query.get("reveal") == "1")
        return _json(await self._alone(views.find_matches, rows, request.query.get("q", "")))

    async def _view(self, request: web.Request) -> SessionPage:
        view = self.shelf.view(self._subject(request), _number(request.query.get("version", "0")))
        if view is None:
            raise web.HTTPGone(reason="the session has been read again since: look again")
        return view

    # What can be done with it.

    async def _plan(self, request: web.Request) -> web.Response:
        subject, sent = self._subject(request), await _fields(request)
        plan = await self._alone(actions.plan_action, subject, *_action_in(sent))
        return _json(msgspec.to_builtins(plan.preview))

    async def _do(self, request: web.Request) -> web.Response:
        subject, sent = self._subject(request), await _fields(request)
        action, options = _action_in(sent)
        stamp = str(sent.get("stamp", ""))
        says = await self._alone(actions.perform, subject, action, options, stamp)
        report = await self._alone(actions.check_again, subject)
        self.catalog.put([CatalogEntry(subject, await self._alone(list_row, subject, report))])
        if action in {"fork", "undo", "repair"} and subject.is_own:
            self.scan()
        return _json({"says": says})

    async def _export(self, request: web.Request) -> web.Response:
        subject, sent = self._subject(request), await _fields(request)
        dialect, redact = sent.get("dialect"), sent.get("redact")
        wanted = profile_named(str(dialect)).full_name if dialect else None
        data, name = await self._alone(
            lambda: actions.export_session(subject, wanted, redact=str(redact or ""))
        )
        return _download(data, f"{subject.session or subject.id}.{name.partition(':')[0]}.json")

    async def _branch(self, request: web.Request) -> web.Response:
        subject, sent = self._subject(request), await _fields(request)
        return _download(
            *await self._alone(actions.export_branch, subject, str(sent.get("place", "")))
        )


def _action_in(sent: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    options = sent.get("options")
    return str(sent.get("action", "")), options if isinstance(options, dict) else {}


async def _fields(request: web.Request) -> dict[str, Any]:
    """Return the object in a request's body."""
    try:
        value = msgspec.json.decode(await request.read())
    except ValueError:
        raise web.HTTPBadRequest(reason="the body of a request must be JSON") from None
    if not isinstance(value, dict):
        raise web.HTTPBadRequest(reason="the body of a request must be a JSON object")
    return value


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:  # noqa: PLR2004 - any number
        raise web.HTTPBadRequest(reason="this part of a request must be a number")
    return int(text)


def _json(value: Any, status: int = 200) -> web.Response:
    # ASCII, because a text may contain half a character, which UTF-8 cannot encode
    return web.Response(body=json.dumps(value).encode(), status=status, content_type=_JSON_TYPE)


def _error(status: int, text: str) -> web.Response:
    return _json({"error": text}, status)


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _download(data: bytes, name: str) -> web.Response:
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    headers = {"Content-Disposition": f'attachment; filename="{safe}"'}
    return web.Response(body=data, content_type="application/octet-stream", headers=headers)


# The assets.


async def _asset(request: web.Request) -> web.Response:
    name = request.match_info.get("name", "index.html")
    if name not in ASSETS:
        raise web.HTTPNotFound(reason="not found")
    kind = _TYPES[name.rpartition(".")[2]]
    return web.Response(body=ASSETS[name], content_type=kind, charset="utf-8")


# The files of the page, read once; nothing else on the disk is ever served.
ASSETS = {
    one.name: one.read_bytes()
    for one in (files("lockstitch.inspector") / "assets").iterdir()
    if one.name.rpartition(".")[2] in _TYPES
}


# Running it.


def run(inspector: Inspector, port: int | None, ready: Callable[[str], None]) -> None:
    """Serve until a signal stops the process; ``ready`` gets the address."""
    asyncio.run(until_stopped(InspectorServer(inspector, port), ready))


DEFAULT_PORT = 8407


class InspectorServer(AppServer):
    """An inspector with its sockets, on a given port, or else on the usual one or any free one."""

    def __init__(self, inspector: Inspector, port: int | None) -> None:
        ports = (DEFAULT_PORT, 0) if port is None else (port,)
        super().__init__(inspector.application(), *ports, cancels=True)
        self.inspector = inspector

    async def start(self) -> str:
        """Listen, begin to scan, and return the address that lets one browser in."""
        await super().start()
        self.inspector.guard.port = self.runner.addresses[0][1]
        self.inspector.scan()
        return self.inspector.guard.address()

    async def stop(self) -> None:
        """Stop the scan, and close the connections."""
        self.inspector.close()
        await super().stop()


def running(inspector: Inspector, port: int = 0) -> AbstractContextManager[str]:
    """Serve from a thread of this process during the block; yield the address."""
    return serving(InspectorServer(inspector, port))
