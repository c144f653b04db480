"""The admin application: checks access, finds the path, parses the request, and calls its handler."""

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
from ..supervisor.admin_service import AdminService
from . import openapi, pages, request_parsing
from .errors import JSON_CONTENT_TYPE, ApiError, api_error_for, encode
from .handlers.call import AdminCall
from .live_stream import EventStream
from .live_subscribers import LiveSubscribers
from .metrics import CONTENT_TYPE, MetricsCache
from .routes import MOVED_PATHS, OPENAPI_PATH, ROUTES, Route
from .schemas import NoInput
from .security.access import PUBLIC_PATHS, AccessControl
from .security.replica_allowlist import ReplicaAllowlist

log = logging.getLogger("steelyard.admin")
Endpoint = Callable[[Request], Awaitable[Response]]


class AdminContext(Protocol):
    """What is in force. It may be another one at the next request."""

    operations: AdminService
    access: AccessControl
    allowed: ReplicaAllowlist
    lease: float
    watchers: LiveSubscribers
    scrapes: MetricsCache


class Application:
    """ASGI. Routes are found by the path as it was sent: a `%2F` in a name is no slash of the path."""

    def __init__(self, situation: AdminContext) -> None:
        self._situation = situation
        self._app = _router(situation)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].decode("ascii")
        try:
            self._check(scope)
            await self._app(scope, receive, send)
        except ApiError as refusal:
            await _error_response(refusal)(scope, receive, send)
        except asyncio.CancelledError:
            return  # only the server cancels, when it stops, and nobody is there any more to be answered

    def _check(self, scope: Scope) -> None:
        """Who may not ask is not kept; who may, and is one too many, is told before anything is done for it."""
        try:
            self._situation.access.check(scope["path"], Headers(scope=scope), scope["method"])
        except ApiError as refusal:
            refusal.headers["connection"] = "close"
            raise
        if not self._situation.access.is_public(scope["path"]) and not scope["state"]["let_in"]():
            raise ApiError(503, "too many connections: try again", headers={"retry-after": "1", "connection": "close"})


def _router(situation: AdminContext) -> ASGIApp:
    paths: dict[str, dict[str, Endpoint]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = _endpoint(situation, route)
    paths[OPENAPI_PATH] = {"GET": _with_error_responses(_openapi_endpoint(situation))}
    paths.update({path: {"GET": _with_error_responses(pages.page)} for path in pages.files()})
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


def _endpoint(situation: AdminContext, route: Route) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        path = request_parsing.path_parameters(request)
        query = NoInput() if route.path in PUBLIC_PATHS else request_parsing.query(request, route.query)
        body = NoInput() if route.method == "GET" else await request_parsing.body(request, route.accepts)
        call = AdminCall(
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
            return EventStream(situation.watchers, request)
        reply = await route.handler(call)
        if isinstance(reply.value, str):
            return Response(reply.value.encode(), headers={"content-type": CONTENT_TYPE})
        content = None if reply.value is None else encode(reply.value)
        return _response(reply.status or route.status, content, dict(reply.headers))

    return _with_error_responses(endpoint)


def _openapi_endpoint(situation: AdminContext) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        request_parsing.query(request, NoInput)
        return _response(200, openapi.document(token=situation.access.needs_token), {})

    return endpoint


def _with_error_responses(endpoint: Endpoint) -> Endpoint:
    """Whatever goes wrong is one typed answer."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ApiError as refusal:
            return _error_response(refusal)
        except SteelyardError as problem:
            return _error_response(api_error_for(problem))
        except ClientDisconnect:
            return Response()  # nobody reads it
        except Exception:
            log.exception("a bug: %s %s failed", request.method, request.scope["path"])
            return _error_response(ApiError(500, "this is a bug of Steelyard: its log says more"))

    return guarded


async def _not_found(request: Request, problem: Exception) -> Response:
    """What Starlette itself says: no such path, or another method."""
    assert isinstance(problem, HTTPException)
    if problem.status_code == 405:
        allow = (problem.headers or {}).get("allow") or (problem.headers or {}).get("Allow", "")
        return _error_response(ApiError(405, f"this path takes {allow}", headers={"allow": allow}))
    if moved := MOVED_PATHS.get(request.scope["path"]):
        return _error_response(ApiError(404, f"this is {moved} now"))
    return _error_response(ApiError(404, f"no such path; GET {OPENAPI_PATH} lists them all"))


def _error_response(refusal: ApiError) -> Response:
    return _response(refusal.status, refusal.body, refusal.headers)


def _response(status: int, content: bytes | None, headers: dict[str, str]) -> Response:
    kind = None if content is None else JSON_CONTENT_TYPE[1].decode()
    return Response(content, status, headers, media_type=kind)
