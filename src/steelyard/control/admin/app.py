"""The admin application: checks access, finds the route, parses the request, calls the handler."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from ...core.errors import SteelyardError
from . import openapi, pages, request_parsing
from .call import AdminCall
from .errors import JSON_CONTENT_TYPE, ApiError, api_error_for, encode
from .live_stream import EventStream
from .metrics import CONTENT_TYPE
from .routes import MOVED_PATHS, OPENAPI_PATH, ROUTES, Endpoint
from .schemas import NoInput
from .security.access import PUBLIC_PATHS

if TYPE_CHECKING:
    from .server import AdminServer

log = logging.getLogger("steelyard.admin")


class Application:
    """ASGI. Routes match the path as it was sent: a `%2F` in a name is no slash of the path."""

    def __init__(self, server: AdminServer) -> None:
        self._server = server
        by_path: dict[str, dict[str, Endpoint]] = {}
        for route in ROUTES:
            by_path.setdefault(route.path, {})[route.method] = route
        paths = [Route(path, partial(self._answer, routes), methods=[*routes]) for path, routes in by_path.items()]
        paths += [Route(OPENAPI_PATH, self._openapi), *(Route(path, pages.page) for path in pages.files())]
        self._router = Router(paths, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].decode("ascii")
        scope["app"] = self  # makes the router raise where it finds no route
        try:
            self._check(scope)
            await self._router(scope, receive, send)
        except asyncio.CancelledError:
            return  # the server stops: the connection is gone
        except Exception as problem:
            await _error_response(scope, problem)(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        """Closes the connection of an unauthorized client; refuses an authorized one where there are too many."""
        access = self._server.access
        try:
            access.check(scope["path"], Headers(scope=scope), scope["method"])
        except ApiError as refusal:
            refusal.headers["connection"] = "close"
            raise
        if not access.is_public(scope["path"]) and not scope["state"]["let_in"]():
            raise ApiError(503, "too many connections: try again", headers={"retry-after": "1", "connection": "close"})

    async def _answer(self, routes: dict[str, Endpoint], request: Request) -> Response:
        route = routes["GET" if request.method == "HEAD" else request.method]
        path = request_parsing.path_parameters(request)
        query = NoInput() if route.path in PUBLIC_PATHS else request_parsing.query(request, route.query)
        body = NoInput() if route.method == "GET" else await request_parsing.body(request, route.accepts)
        if route.streams:
            return EventStream(self._server.watchers, request)
        call = AdminCall(self._server, path, body, query, route.status)
        value = await route.handler(call)
        if isinstance(value, str):
            return Response(value.encode(), headers={"content-type": CONTENT_TYPE})
        return _response(call.status, None if value is None else encode(value), call.headers)

    async def _openapi(self, request: Request) -> Response:
        request_parsing.query(request, NoInput)
        return _response(200, openapi.document(token=self._server.access.needs_token), {})


def _error_response(scope: Scope, problem: Exception) -> Response:
    match problem:
        case ClientDisconnect():
            return Response()  # the client is gone
        case ApiError():
            error = problem
        case SteelyardError():
            error = api_error_for(problem)
        case HTTPException():
            error = _routing_error(scope["path"], problem)
        case _:
            log.error("a bug: %s %s failed", scope["method"], scope["path"], exc_info=problem)
            error = ApiError(500, "this is a bug of Steelyard: its log says more")
    return _response(error.status, error.body, error.headers)


def _routing_error(path: str, problem: HTTPException) -> ApiError:
    if problem.status_code == 405:
        allow = Headers(problem.headers).get("allow", "")
        return ApiError(405, f"this path takes {allow}", headers={"allow": allow})
    if moved := MOVED_PATHS.get(path):
        return ApiError(404, f"this is {moved} now")
    return ApiError(404, f"no such path; GET {OPENAPI_PATH} lists them all")


def _response(status: int, content: bytes | None, headers: dict[str, str]) -> Response:
    kind = None if content is None else JSON_CONTENT_TYPE[1].decode()
    return Response(content, status, headers, media_type=kind)
