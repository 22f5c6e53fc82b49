"""The sockets of the provider: an HTTP server on the loopback address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from aiohttp import web

from lockstitch.provider import (
    LOCALHOST,
    AppServer,
    DeliveryEnd,
    InjectedFault,
    Silence,
    delivery_steps,
    serving,
    until_stopped,
)
from lockstitch.provider.apis import ApiRoute, RequestAddress, Wire, ident_of
from lockstitch.provider.service import WIRES, Service, wire_at

_NAMES = (LOCALHOST, "localhost")
_LARGEST = 64 << 20
# A larger request takes a while to judge, so a thread does it.
_LARGE = 64 << 10
# How often to check whether a waiting client is still there.
_INTERVAL = 0.05

# Lists of models are empty, in a format that fits both vendors: any model name is accepted.
_CONSTANT: dict[str, dict[str, Any]] = {
    "/v1/models": {
        "object": "list",
        "data": [],
        "has_more": False,
        "first_id": None,
        "last_id": None,
    },
    "/v1beta/models": {"models": []},
    "/": {"provider": "lockstitch"},
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(service: Service) -> web.Application:
    """Return the web application that passes requests to a service."""
    app = web.Application(middlewares=[_guard], client_max_size=_LARGEST)
    for wire in WIRES:
        for route in wire.routes:
            app.router.add_post(route.path, _handler(service, wire, route))
    for path, body in _CONSTANT.items():

        async def answer(_: web.Request, body: dict[str, Any] = body) -> web.StreamResponse:
            return web.json_response(body)

        app.router.add_get(path, answer)
    return app


def run(service: Service, port: int, ready: Callable[[str], None]) -> None:
    """Serve until a signal stops the process; ``ready`` gets the address."""
    asyncio.run(until_stopped(AppServer(application(service), port), ready))


def running(service: Service, port: int = 0) -> AbstractContextManager[str]:
    """Serve from a thread of this process during the block; yield the address."""
    return serving(AppServer(application(service), port))


def _handler(service: Service, wire: Wire, route: ApiRoute) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        # only JSON is accepted: a web page cannot send that to another origin without a preflight
        # request
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="Content-Type must be application/json")
        model = request.match_info.get("model", "")
        at = RequestAddress(request.path, route.asks, model, request.query.get("alt", ""))
        asked = service.receive(wire, await request.read(), at)
        if len(asked.data) > _LARGE:
            # other requests are served while a large one is judged
            verdict = await asyncio.to_thread(service.judge_request, asked)
        else:
            verdict = service.judge_request(asked)
        answer = service.answer(asked, verdict)
        delivery = _Delivery(request, answer.fault)
        try:
            if answer.turn is None:
                body = json.dumps(answer.body).encode()
                head = {**answer.headers, "Content-Type": "application/json; charset=utf-8"}
                return await delivery.send(answer.status, head, [body], len(body))
            head = {"Content-Type": wire.media_type(at), "Cache-Control": "no-cache"}
            return await delivery.send(200, head, wire.stream(answer.turn), None)
        finally:
            service.note_end(answer, delivery.end)

    return handle


class _Delivery:
    """One answer on its way to the client, with its fault; ``end`` is how it ended."""

    def __init__(self, request: web.Request, fault: InjectedFault) -> None:
        self._request = request
        self._fault = fault
        self.end = DeliveryEnd.GONE

    async def send(
        self, status: int, headers: Mapping[str, str], events: Iterable[bytes], size: int | None
    ) -> web.StreamResponse:
        """Send an answer; ``size`` is the announced size of its body, None for a stream."""
        response = web.StreamResponse(status=status or 200, headers=headers)
        response.content_length = size
        try:
            self.end = await self._send_steps(response, events)
        except ConnectionError:
            self.end = DeliveryEnd.GONE
        if self.end is DeliveryEnd.CUT and self._request.transport is not None:
            self._request.transport.close()
        return response

    async def _send_steps(
        self, response: web.StreamResponse, events: Iterable[bytes]
    ) -> DeliveryEnd:
        fault = self._fault
        if fault.stall is not None and not fault.after:
            await self._pause(fault.stall)
        if fault.drop:
            return DeliveryEnd.CUT
        await response.prepare(self._request)
        for step in delivery_steps(events, fault):
            if isinstance(step, Silence):
                await self._pause(step.seconds)
            elif isinstance(step, bytes):
                await response.write(step)
            elif step is DeliveryEnd.CUT:
                await response.write(b"")  # the head, if nothing else was sent
                return step
        await response.write_eof()
        return DeliveryEnd.WHOLE

    async def _pause(self, seconds: float) -> None:
        """Send nothing for a while; raise ``ConnectionResetError`` if the client goes away."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            transport = self._request.transport
            if transport is None or transport.is_closing():
                raise ConnectionResetError("the client went away")
            await asyncio.sleep(min(left, _INTERVAL))


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return every failure as an error that clients can read, without any content."""
    # A foreign host name that points here is how a web page evades the same-origin policy.
    name, _, port = request.host.partition(":")
    if name not in _NAMES or (port and not port.isdecimal()):
        return _error(request, 403, "Host must be 127.0.0.1 or localhost")
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge as error:
        return _error(request, error.status, "Request exceeds the maximum size")
    except web.HTTPNotFound as error:
        return _error(request, error.status, "Not Found")
    except web.HTTPException as error:
        return _error(request, error.status, error.text or error.reason)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - an answer, not a dropped connection
        return _error(request, 500, f"internal error: {type(error).__name__}")


def _error(request: web.Request, status: int, text: str) -> web.Response:
    """Return an error in the format of the API that was asked, or in one that most clients read."""
    refusal = (wire_at(request.path) or WIRES[0]).refusal(status, text, ident_of(b""))
    return web.json_response(refusal.body, status=status, headers=refusal.headers)
