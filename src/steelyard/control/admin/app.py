"""The application: who may ask is checked, the path is found, what was said is read, and a handler does it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Receive, Scope, Send

from ...core.errors import SteelyardError
from ..operations import Operations
from . import openapi, pages, reading
from .access import OPEN, Access
from .allow import Allowed
from .bodies import Nothing
from .calls import Call
from .metrics import TEXT
from .metrics.scrapes import Scrapes
from .refusals import JSON, Refusal, encode, refused
from .routes import OPENAPI, ROUTES, Route
from .stream import Stream
from .watchers import Watchers

log = logging.getLogger("steelyard.admin")
Endpoint = Callable[[Request], Awaitable[Response]]


class Situation(Protocol):
    """What is in force. It may be another one at the next request."""

    operations: Operations
    access: Access
    allowed: Allowed
    lease: float
    watchers: Watchers
    scrapes: Scrapes


class Application:
    """ASGI. Routes are found by the path as it was sent: a `%2F` in a name is no slash of the path."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._app = _router(situation)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].decode("ascii")
        try:
            self._check(scope)
            await self._app(scope, receive, send)
        except Refusal as refusal:
            await _answer(refusal)(scope, receive, send)
        except asyncio.CancelledError:
            return  # only the server cancels, when it stops, and nobody is there any more to be answered

    def _check(self, scope: Scope) -> None:
        """Who may not ask is not kept; who may, and is one too many, is told before anything is done for it."""
        try:
            self._situation.access.check(scope["path"], Headers(scope=scope), scope["method"])
        except Refusal as refusal:
            refusal.headers["connection"] = "close"
            raise
        if not self._situation.access.is_open(scope["path"]) and not scope["state"]["let_in"]():
            raise Refusal(503, "too many connections: try again", headers={"retry-after": "1", "connection": "close"})


def _router(situation: Situation) -> ASGIApp:
    paths: dict[str, dict[str, Endpoint]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = _endpoint(situation, route)
    paths[OPENAPI] = {"GET": _guarded(_document(situation))}
    paths.update({path: {"GET": _guarded(pages.page)} for path in pages.files()})
    app = Starlette(
        routes=[Path(path, _by_method(methods), methods=[*methods]) for path, methods in paths.items()],
        exception_handlers={HTTPException: _not_found},
    )
    app.router.redirect_slashes = False
    return app


def _by_method(methods: dict[str, Endpoint]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await methods["GET" if request.method == "HEAD" else request.method](request)

    return endpoint


def _endpoint(situation: Situation, route: Route) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        path = reading.segments(request)
        query = Nothing() if route.path in OPEN else reading.query(request, route.query)
        body = Nothing() if route.method == "GET" else await reading.body(request, route.takes)
        call = Call(
            situation.operations,
            situation.allowed,
            situation.lease,
            path,
            body,
            query,
            situation.watchers,
            situation.scrapes,
        )
        if route.streams:
            return Stream(situation.watchers, request)
        reply = await route.handler(call)
        if isinstance(reply.value, str):
            return Response(reply.value.encode(), headers={"content-type": TEXT})
        content = None if reply.value is None else encode(reply.value)
        return _response(reply.status or route.status, content, dict(reply.headers))

    return _guarded(endpoint)


def _document(situation: Situation) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        reading.query(request, Nothing)
        return _response(200, openapi.document(token=situation.access.needs_token), {})

    return endpoint


def _guarded(endpoint: Endpoint) -> Endpoint:
    """Whatever goes wrong is one typed answer."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refusal as refusal:
            return _answer(refusal)
        except SteelyardError as problem:
            return _answer(refused(problem))
        except ClientDisconnect:
            return Response()  # nobody reads it
        except Exception:
            log.exception("a bug: %s %s failed", request.method, request.scope["path"])
            return _answer(Refusal(500, "this is a bug of Steelyard: its log says more"))

    return guarded


async def _not_found(request: Request, problem: Exception) -> Response:
    """What Starlette itself says: no such path, or another method."""
    assert isinstance(problem, HTTPException)
    if problem.status_code == 405:
        allow = (problem.headers or {}).get("allow") or (problem.headers or {}).get("Allow", "")
        return _answer(Refusal(405, f"this path takes {allow}", headers={"allow": allow}))
    return _answer(Refusal(404, f"no such path; GET {OPENAPI} lists them all"))


def _answer(refusal: Refusal) -> Response:
    return _response(refusal.status, refusal.body, refusal.headers)


def _response(status: int, content: bytes | None, headers: dict[str, str]) -> Response:
    kind = None if content is None else JSON[1].decode()
    return Response(content, status, headers, media_type=kind)
