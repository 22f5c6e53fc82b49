"""The sockets: an HTTP server on the loopback address, for programs on this machine only."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from aiohttp import web

from lockstitch.errors import UsageError
from lockstitch.provider.desk import Answer, Asked, Desk
from lockstitch.provider.judge import WIRES
from lockstitch.provider.wire import Wire

HOST = "127.0.0.1"
_NAMES = ("127.0.0.1", "localhost")
_LARGEST = 64 << 20
# What is larger takes a while to judge: that is done in a thread of its own.
_LARGE = 64 << 10
_COUNT = "/v1/messages/count_tokens"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(desk: Desk) -> web.Application:
    """The web application that brings requests to a desk."""
    app = web.Application(middlewares=[_strangers, _failures], client_max_size=_LARGEST)
    for wire in WIRES:
        app.router.add_post(wire.path, _sampled(desk, wire))
    app.router.add_post(_COUNT, _counted(desk, WIRES[0]))
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/", _root)
    return app


def run(desk: Desk, port: int, ready: Callable[[str], None]) -> None:
    """Serve until the process is told to stop; ``ready`` is told the address."""
    asyncio.run(_until_stopped(desk, port, ready))


@contextmanager
def running(desk: Desk, port: int = 0) -> Iterator[str]:
    """Serve from a thread of this process for as long as the block lasts; gives the address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        runner = asyncio.run_coroutine_threadsafe(_started(desk, port), loop).result()
        try:
            yield _address(runner)
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _until_stopped(desk: Desk, port: int, ready: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    runner = await _started(desk, port)
    try:
        with suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
        ready(_address(runner))
        await stop.wait()
    finally:
        await runner.cleanup()


async def _started(desk: Desk, port: int) -> web.AppRunner:
    runner = web.AppRunner(application(desk), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
    except OSError as error:
        await runner.cleanup()
        raise UsageError(f"cannot listen on port {port}: it is taken or not allowed") from error
    return runner


def _address(runner: web.AppRunner) -> str:
    return f"http://{HOST}:{runner.addresses[0][1]}"


def _sampled(desk: Desk, wire: Wire) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        _require_json(request)
        answer = await _answer(desk, desk.received(wire, await request.read()))
        if answer.turn is None:
            return _whole(answer)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        for event in wire.stream(answer.turn):
            await response.write(event)
        await response.write_eof()
        return response

    return handle


def _counted(desk: Desk, wire: Wire) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        _require_json(request)
        return _whole(await _answer(desk, desk.received(wire, await request.read(), _COUNT)))

    return handle


async def _answer(desk: Desk, asked: Asked) -> Answer:
    """Answer a request; while a large one is judged, others are served."""
    if len(asked.data) > _LARGE:
        verdict = await asyncio.to_thread(desk.judged, asked)
    else:
        verdict = desk.judged(asked)
    return desk.answered(asked, verdict)


def _whole(answer: Answer) -> web.Response:
    return web.json_response(answer.body, status=answer.status)


def _require_json(request: web.Request) -> None:
    """Only JSON is taken: a web page cannot send that to another origin without asking first."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="Content-Type must be application/json")


async def _models(_: web.Request) -> web.Response:
    """An empty list, in a shape that fits both vendors: every model's name is taken."""
    ends = {"has_more": False, "first_id": None, "last_id": None}
    return web.json_response({"object": "list", "data": [], **ends})


async def _root(_: web.Request) -> web.Response:
    return web.json_response({"provider": "lockstitch"})


@web.middleware
async def _strangers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a name that only points here: that is how a web page gets past same-origin."""
    name, _, port = request.host.partition(":")
    if name not in _NAMES or (port and not port.isdecimal()):
        return _error(403, "permission_error", "Host must be 127.0.0.1 or localhost")
    return await handler(request)


@web.middleware
async def _failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give every failure the shape that clients can read, and none of them any content."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge as error:
        return _error(error.status, "request_too_large", "Request exceeds the maximum size")
    except web.HTTPNotFound as error:
        return _error(error.status, "not_found_error", "Not Found")
    except web.HTTPException as error:
        return _error(error.status, "invalid_request_error", error.text or error.reason)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - an answer, not a dropped connection
        return _error(500, "api_error", f"internal error: {type(error).__name__}")


def _error(status: int, kind: str, text: str) -> web.Response:
    """An error that clients of all three APIs can read."""
    body = {"type": "error", "error": {"type": kind, "message": text}}
    return web.json_response(body, status=status)
