"""Pass one request from the client to its upstream, and the reply back; count what went through."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from msgspec import Struct, field, structs
from yarl import URL

from lockstitch.proxy import (
    Credentials,
    Settings,
    Upstream,
    http,
    profile_for,
    sign,
    upstream_for,
    without_prefix,
)
from lockstitch.proxy.healing import (
    HealDecision,
    decide,
    decide_quickly,
    heal_body,
    look_again,
    read_body,
)
from lockstitch.proxy.http import (
    BodySource,
    NotKept,
    Passage,
    ProxyRoute,
    Replayed,
    chunks,
    is_sound,
    route_of,
)

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

    from lockstitch.proxy.recording import StoreExchange, StoreRecorder

BOUNDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0)


Counts = dict[str, int]


class Metrics(Struct):
    """The counters of one process. Labels come from fixed lists, never from a request's text.

    ``requests`` are counted by route and status, the others by code or kind.
    """

    requests: Counts = field(default_factory=dict)
    healed: Counts = field(default_factory=dict)
    left: Counts = field(default_factory=dict)
    errors: Counts = field(default_factory=dict)
    retries: int = 0
    running: int = 0
    added: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    added_sum: float = 0.0

    def count_delay(self, seconds: float) -> None:
        """Count the time that a request spent in the proxy before it was sent on."""
        self.added[bisect_left(BOUNDS, seconds)] += 1
        self.added_sum += seconds


def add_counts(counts: Counts, more: Mapping[str, int]) -> None:
    """Add to counts."""
    for key, number in more.items():
        counts[key] = counts.get(key, 0) + number


def sum_metrics(many: Iterable[Metrics]) -> Metrics:
    """Return the sum of the counters of several processes."""
    found = Metrics()
    for one in many:
        for name in ("requests", "healed", "left", "errors"):
            add_counts(getattr(found, name), getattr(one, name))
        found.retries += one.retries
        found.running += one.running
        found.added = [a + b for a, b in zip(found.added, one.added, strict=True)]
        found.added_sum += one.added_sum
    return found


def prometheus_text(found: Metrics) -> str:
    """Return the counters in Prometheus' text format."""
    lines: list[str] = []

    def add_head(name: str, kind: str, what: str) -> str:
        whole = f"lockstitch_proxy_{name}"
        lines.extend((f"# HELP {whole} {what}", f"# TYPE {whole} {kind}"))
        return whole

    for name, what, labels, counts in (
        ("requests", "Requests answered, by route and status.", "route status", found.requests),
        ("repairs", "Findings repaired in requests, by code.", "code", found.healed),
        ("left", "Findings that could not be repaired in requests, by code.", "code", found.left),
        ("errors", "Failures while forwarding, by kind.", "kind", found.errors),
    ):
        whole = add_head(f"{name}_total", "counter", what)
        for key, number in sorted(counts.items()):
            # a key of several words has a label for each
            pairs = zip(labels.split(), key.split(), strict=True)
            shown = ",".join(f'{label}="{word}"' for label, word in pairs)
            lines.append(f"{whole}{{{shown}}} {number}")
    whole = add_head("retries_total", "counter", "Requests sent again after a refusal.")
    lines.append(f"{whole} {found.retries}")
    whole = add_head("running", "gauge", "Requests being served now.")
    lines.append(f"{whole} {found.running}")
    whole = add_head(
        "added_seconds", "histogram", "Time from the complete request to forwarding it."
    )
    seen = 0
    for bound, number in zip((*map(str, BOUNDS), "+Inf"), found.added, strict=True):
        seen += number
        lines.append(f'{whole}_bucket{{le="{bound}"}} {seen}')
    lines += [f"{whole}_sum {found.added_sum:.6f}", f"{whole}_count {seen}"]
    return "\n".join(lines) + "\n"


# A larger body takes a while to heal or even to read, so a thread does it.
_LARGE = 64 << 10
_HUGE = 4 << 20
# A client that sends fewer bytes per second is not waited for.
_SLOWEST = 16 << 10
# A longer error is not examined.
_LONGEST_REFUSAL = 64 << 10
_REFUSED = 400
_HEALTH, _METRICS = "/healthz", "/metrics"
_BY_PATH = "/lockstitch/token/"
_NO_DEFAULTS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_UNCOUNTED = "count_tokens"


class ProxyEvent(Struct, frozen=True):
    """A line of the log: what came, what became of it, and where; never what it said."""

    route: str
    status: int
    dialect: str = ""
    repaired: dict[str, int] = {}
    left: dict[str, int] = {}
    places: tuple[str, ...] = ()
    retried: bool = False
    error: str = ""


Log = Callable[[ProxyEvent], None]


class RefusedRequest(Exception):
    """The proxy refuses a request itself and does not send it on."""

    def __init__(self, status: int, text: str, kind: str = "refused") -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


class _Body(aiohttp.Payload):
    """Bytes that are sent in one piece, unchanged."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, content_type="application/json")
        self.data = data
        self._size = len(data)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text; required by aiohttp, but not used for a body that is sent."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body."""
        await writer.write(self._value)


class ServedRequest(Struct):
    """A request being served; ``path`` and ``query`` are those that the upstream sees."""

    request: web.BaseRequest
    route: ProxyRoute
    upstream: Upstream
    path: str
    query: str
    headers: http.Headers
    data: bytes = b""
    decision: HealDecision = HealDecision(b"")
    exchange: StoreExchange | None = None
    retried: bool = False
    error: str = ""
    refusal: bytes | None = None

    @property
    def url(self) -> URL:
        """The address at the upstream, spelled as the client spelled it."""
        query = f"?{self.query}" if self.query else ""
        return URL(self.upstream.url.rstrip("/") + self.path + query, encoded=True)


class Proxy:
    """Serves requests: knows where they go, what to heal, and what to log and count."""

    def __init__(
        self,
        settings: Settings,
        session: aiohttp.ClientSession,
        log: Log,
        recorder: StoreRecorder | None = None,
        keys: Credentials | None = None,
    ) -> None:
        self.settings = settings
        self.keys = keys
        self.session = session
        self.log = log
        self.recorder = recorder
        self.counted = Metrics()
        self.siblings: Callable[[], list[Metrics]] = list
        self.keeping: set[asyncio.Task[None]] = set()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        self.counted.running += 1
        path, _, query = request.raw_path.partition("?")
        route = ProxyRoute("other")
        try:
            token = request.headers.get(http.TOKEN, "")
            if path.startswith(_BY_PATH):
                token, _, path = path.removeprefix(_BY_PATH).partition("/")
                path = f"/{path}"
            elif path in (_HEALTH, _METRICS):
                return self._answer_itself(request, path)
            route = route_of(request.method, path, request.headers)
            self._admit(request, path, token)
            upstreams = self.settings.upstreams
            upstream, path = without_prefix(upstreams, path)
            route = route_of(request.method, path, request.headers)
            upstream = upstream or upstream_for(upstreams, route.vendor)
            if upstream is None:
                raise RefusedRequest(404, "no upstream is configured for this path")  # noqa: TRY301
            passed = http.forward_headers(request.raw_headers)
            asked = ServedRequest(request, route, upstream, path, query, passed)
            if route.is_known:
                return await self._serve_conversation(asked)
            # An unknown request is sent on while it arrives.
            body: Any = _read_chunks(request, self.settings)
            if upstream.sign:
                body = _Body(b"".join([chunk async for chunk in body]))
            elif not request.body_exists:
                body = None
            elif request.content_length is not None:
                asked.headers.append(("Content-Length", str(request.content_length)))
            return await self._pass_reply(asked, await self._send(asked, body))
        except RefusedRequest as refused:
            return self._answer_error(route, refused)
        finally:
            self.counted.running -= 1

    def _answer_itself(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Answer a request to the proxy itself, under paths that no provider's API has."""
        if request.method not in ("GET", "HEAD"):
            raise RefusedRequest(405, f"{path} is read-only: send GET")
        if path == _HEALTH:
            return web.json_response({"status": "ok"})
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        token = request.headers.get(http.TOKEN, bearer)
        if why := http.find_refusal(self.settings, request.headers, token):
            raise RefusedRequest(403, why)
        found = sum_metrics([self.counted, *self.siblings()])
        return web.Response(text=prometheus_text(found), content_type="text/plain", charset="utf-8")

    def _admit(self, request: web.BaseRequest, path: str, token: str) -> None:
        """Raise ``RefusedRequest`` for a request that may not pass."""
        if why := http.find_refusal(self.settings, request.headers, token):
            raise RefusedRequest(401 if self.settings.token and "token" in why else 403, why)
        if not is_sound(path) or request.method == "CONNECT":
            raise RefusedRequest(
                400,
                "the path of a request must be plain: no `..`, no encoded slash, no control codes",
            )
        if "upgrade" in request.headers.get("Connection", "").lower():
            # Codex goes on without a WebSocket only if it gets exactly this status.
            raise RefusedRequest(
                426, "this proxy speaks HTTP only: turn WebSocket off in the client"
            )
        length = request.content_length
        if length is not None and length > self.settings.max_body:
            raise RefusedRequest(413, f"the body has more than {self.settings.max_body} bytes")

    async def _serve_conversation(self, asked: ServedRequest) -> web.StreamResponse:
        """Read a conversation, heal it if necessary, and send it on."""
        settings = self.settings
        asked.data = b"".join([chunk async for chunk in _read_chunks(asked.request, settings)])
        started = perf_counter()
        encoding = asked.request.headers.get("Content-Encoding", "")
        plain: bytes | None = None
        # a body that cannot be read is passed on as it is
        with suppress(http.UndecodableBody):
            try:
                plain = http.decode_body(asked.data, encoding, settings.max_body)
            except http.TooLarge as error:
                raise RefusedRequest(413, str(error)) from None
        await self._decide(asked, plain)
        if asked.decision.repaired:
            asked.data = asked.decision.data
            asked.headers = http.without_headers(asked.headers, "content-encoding")
        self.counted.count_delay(perf_counter() - started)
        beginning = self._begin_recording(asked, plain)
        try:
            reply = await self._send(asked, _Body(asked.data))
            if reply.status == _REFUSED and settings.retry and plain is not None:
                reply = await self._send_again(asked, reply, plain)
            if beginning is not None:
                try:
                    asked.exchange = await beginning
                except Exception as error:
                    if settings.fail_closed:
                        text = "the request could not be recorded"
                        raise RefusedRequest(500, text, "not-recorded") from error
                    self._note_failure(asked, "not-recorded", error)
        except BaseException:
            if beginning is not None:
                beginning.cancel()
            raise
        return await self._pass_reply(asked, reply)

    async def _decide(self, asked: ServedRequest, plain: bytes | None) -> None:
        """Decide what to do with the body.

        If that fails, send it unchanged and say so in the reply.
        """
        asked.decision = HealDecision(asked.data)
        if plain is None:
            return
        profile = profile_for(asked.upstream, asked.route.dialect)
        model = asked.route.model
        try:
            # if deciding takes longer than reading, a thread does it
            if len(plain) > _HUGE:
                found = await asyncio.to_thread(decide, plain, profile, model)
            elif (body := read_body(plain)) is None:
                found = HealDecision(plain)
            elif quick := decide_quickly(plain, body, profile, model):
                found = quick
            elif len(plain) > _LARGE:
                found = await asyncio.to_thread(heal_body, plain, body, profile, model)
            else:
                found = heal_body(plain, body, profile, model)
        except Exception as error:
            if self.settings.fail_closed:
                raise RefusedRequest(
                    500, "the request could not be checked", "check-failed"
                ) from error
            self._note_failure(asked, "check-failed", error)
            return
        asked.decision = found
        if found.left and self.settings.fail_closed:
            text = f"the provider would refuse the request ({http.spell_counts(found.left)})"
            raise RefusedRequest(400, text, "unrepaired")

    def _begin_recording(
        self, asked: ServedRequest, plain: bytes | None
    ) -> asyncio.Task[StoreExchange] | None:
        if self.recorder is None or plain is None or asked.route.name == _UNCOUNTED:
            return None
        asked.headers = http.ask_for_readable(asked.headers)
        streamed = asked.route.streams or asked.decision.streams
        begun = self.recorder.begin(
            asked.route.dialect,
            plain,
            streamed=streamed,
            model=asked.route.model or "",
            client=asked.request.headers.get("User-Agent", ""),
        )
        return asyncio.ensure_future(begun)

    async def _send_again(
        self, asked: ServedRequest, reply: aiohttp.ClientResponse, plain: bytes
    ) -> aiohttp.ClientResponse:
        """Heal a refused request once more, if the refusal names a place to check, and send it."""
        if reply.headers.get("Content-Encoding") or (reply.content_length or 0) > _LONGEST_REFUSAL:
            return reply
        text = asked.refusal = await reply.read()
        profile = profile_for(asked.upstream, asked.route.dialect)
        try:
            found = await asyncio.to_thread(
                look_again, plain, asked.decision, profile, asked.route.model, text
            )
        except Exception as error:  # noqa: BLE001 - the refusal passes as it came
            self._note_failure(asked, "check-failed", error)
            return reply
        if found is None:
            return reply
        again = structs.replace(
            asked, headers=http.without_headers(asked.headers, "content-encoding")
        )
        asked.retried, asked.refusal = True, None
        asked.decision = found
        self.counted.retries += 1
        return await self._send(again, _Body(found.data))

    async def _send(self, asked: ServedRequest, body: Any) -> aiohttp.ClientResponse:
        """Send a request to its upstream; return the reply as soon as its headers have arrived."""
        method, passed = asked.request.method, asked.headers
        if self.keys is not None and asked.upstream.sign and isinstance(body, _Body):
            now = datetime.now(UTC)
            passed = sign(method, str(asked.url), passed, body.data, self.keys, now)
        try:
            return await self.session.request(
                method,
                asked.url,
                data=body,
                headers=passed,
                skip_auto_headers=_NO_DEFAULTS,
                allow_redirects=False,
                proxy=asked.upstream.proxy or None,
            )
        except TimeoutError as error:
            text = f"the upstream did not answer in time ({type(error).__name__})"
            raise RefusedRequest(504, text, "upstream") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error.__cause__, RefusedRequest):
                raise error.__cause__ from None
            text = f"the upstream cannot be reached ({type(error).__name__})"
            raise RefusedRequest(502, text, "upstream") from error

    async def _pass_reply(
        self, asked: ServedRequest, reply: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        """Pass a reply to the client, chunk by chunk as it arrives."""
        notes = http.note_headers(asked.decision, retried=asked.retried, error=asked.error)
        response = web.StreamResponse(
            status=reply.status,
            reason=reply.reason,
            headers=[*http.forward_headers(reply.raw_headers, frozenset()), *notes],
        )
        source: BodySource = reply.content if asked.refusal is None else Replayed(asked.refusal)
        passage = None
        if asked.exchange is not None:

            def failed(error: Exception) -> None:
                self._log_failure(asked, "not-recorded", error)
                if self.settings.fail_closed:
                    raise NotKept from error

            passage = Passage(asked.route.dialect, reply, source, asked.exchange, failed)
        # before the first byte, so that a client with the reply knows what was done to its request
        decision = asked.decision
        add_counts(self.counted.requests, {f"{asked.route.name} {reply.status}": 1})
        add_counts(self.counted.healed, decision.repaired)
        add_counts(self.counted.left, decision.left)
        self.log(
            ProxyEvent(
                asked.route.name,
                reply.status,
                asked.route.dialect,
                decision.repaired,
                decision.left,
                decision.places,
                asked.retried,
                asked.error,
            )
        )
        try:
            await response.prepare(asked.request)
            async for chunk in chunks(source) if passage is None else passage.chunks():
                await response.write(chunk)
            await response.write_eof()
        except (aiohttp.ClientPayloadError, TimeoutError, aiohttp.ClientOSError, NotKept) as error:
            # End the reply as abruptly as the upstream did, so that nobody takes it for complete.
            if not isinstance(error, NotKept):
                self._log_failure(asked, "upstream-cut", error)
            if passage is not None:
                await passage.keep_part()
            if asked.request.transport is not None:
                asked.request.transport.close()
            raise ConnectionResetError("the reply ended before it was complete") from error
        except BaseException:
            if passage is not None:
                # Keep what arrived although the client is gone and this task is being cancelled.
                task = asyncio.ensure_future(passage.keep_part())
                self.keeping.add(task)
                task.add_done_callback(self._forget_kept)
            raise
        finally:
            reply.close()
        return response

    def _log_failure(self, asked: ServedRequest, kind: str, error: Exception) -> None:
        self._note_failure(asked, kind, error)
        self.log(ProxyEvent(asked.route.name, 0, asked.route.dialect, error=asked.error))

    def _forget_kept(self, task: asyncio.Task[None]) -> None:
        self.keeping.discard(task)
        if not task.cancelled():
            # asyncio complains about an exception that nobody has retrieved
            task.exception()

    def _note_failure(self, asked: ServedRequest, kind: str, error: Exception) -> None:
        asked.error = f"{kind}; {type(error).__name__}"
        add_counts(self.counted.errors, {kind: 1})

    def _answer_error(self, route: ProxyRoute, refused: RefusedRequest) -> web.Response:
        """Answer with an error of the proxy's own, in the format of the API that was asked."""
        add_counts(self.counted.requests, {f"{route.name} {refused.status}": 1})
        add_counts(self.counted.errors, {refused.kind: 1})
        self.log(ProxyEvent(route.name, refused.status, route.dialect, error=refused.kind))
        body, said = http.error_body(refused.status, str(refused), route.vendor)
        response = web.Response(
            body=body, status=refused.status, headers=[*said, (http.ERROR, refused.kind)]
        )
        if refused.status in (400, 408, 413):
            response.force_close()
        return response


async def _read_chunks(request: web.BaseRequest, settings: Settings) -> AsyncIterator[bytes]:
    """Yield the chunks of a request's body, within the limits of size and time."""
    size = 0
    patience = settings.client_timeout
    loop = asyncio.get_running_loop()
    while True:
        asked = loop.time()
        try:
            async with asyncio.timeout(patience):
                chunk = await request.content.readany()
        except TimeoutError:
            raise RefusedRequest(408, "the request did not arrive in time") from None
        except web.RequestPayloadError:
            raise RefusedRequest(400, "the body does not match its headers") from None
        if not chunk:
            return
        size += len(chunk)
        if size > settings.max_body:
            raise RefusedRequest(413, f"the body has more than {settings.max_body} bytes")
        patience += len(chunk) / _SLOWEST - (loop.time() - asked)
        patience = min(patience, settings.client_timeout)
        yield chunk
