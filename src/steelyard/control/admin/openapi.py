"""The OpenAPI 3.1 document, made from the routes and their types."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from ... import __version__
from .errors import ERROR_CODES, encode
from .routes import OPENAPI_PATH, ROUTES, Endpoint
from .schemas import PRINTABLE_PATTERN, ApiInput, ErrorResponse, NoInput, Status
from .security.access import PUBLIC_PATHS

_REF = "#/components/schemas/{name}"
_DEFAULT_HEADERS = ("cache-control", "x-content-type-options")
_HEADERS = {
    "cache-control": ("always `no-store`", {"type": "string", "const": "no-store"}),
    "x-content-type-options": ("always `nosniff`", {"type": "string", "const": "nosniff"}),
    "www-authenticate": ("authentication scheme", {"type": "string", "pattern": "^Bearer"}),
    "allow": ("allowed methods", {"type": "string"}),
    "retry-after": ("seconds", {"type": "string", "pattern": "^[0-9]+$"}),
    "location": ("path of the created replica", {"type": "string", "pattern": "^/v1/models/"}),
}
_EXTRA_HEADERS = {401: ("www-authenticate",), 405: ("allow",), 503: ("retry-after",)}  # refusals with more headers
_STREAM_MEANING = (
    "`text/event-stream`: the event `history` with a `LiveHistoryView`, then every second the event `state` with a "
    "`LiveView`"
)
_COMMON_STATUSES = [400, 403, 408, 431, 500]  # also where nothing is read and no token needed
_PATH_PARAMETERS = {
    "model": (
        "name of a model, percent-encoded where it has slashes or the like",
        {"type": "string", "minLength": 1, "maxLength": 256, "pattern": PRINTABLE_PATTERN, "format": "model"},
    ),
    "replica": (
        "id of a replica, percent-encoded in the same way",
        {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$", "format": "replica"},
    ),
    "device": (
        "name of a device, percent-encoded in the same way",
        {"type": "string", "minLength": 1, "maxLength": 256, "pattern": PRINTABLE_PATTERN, "format": "device"},
    ),
}


@cache
def document(*, token: bool) -> bytes:
    types = [kind for route in ROUTES for kind in (route.accepts, route.returns) if kind not in (None, str, NoInput)]
    _, schemas = msgspec.json.schema_components([*types, ErrorResponse], ref_template=_REF)
    schemas["ModelChanges"]["minProperties"] = 1
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, token)
    paths[OPENAPI_PATH] = {"get": _this(token)}
    about = "Shows and changes the running fleet. Every error is an `ErrorResponse` in JSON."
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Steelyard admin API", "version": __version__, "description": about},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "headers": {name: _header(name) for name in _HEADERS},
            "responses": {code: _refusal(status) for status, (code, _) in ERROR_CODES.items()},
        },
    }
    if token:
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return encode(made)


def _operation(route: Endpoint, token: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": route.name, "summary": route.about, **_security(route.path, token)}
    if parameters := [*map(_segment, _names(route)), *_query(route.query)]:
        made["parameters"] = parameters
    if route.accepts is not NoInput:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(route.accepts)}}}
    made["responses"] = {str(status): _refused(status) for status in _refusals(route, token)}
    made["responses"][str(route.status)] = _success(route)
    if route.path in PUBLIC_PATHS:
        made["responses"]["503"] = _answer("no; `reasons` says why", _ref(Status))
    return made


def _this(token: bool) -> dict[str, Any]:
    found = {"200": _answer("the document", {"type": "object"})}
    found |= {str(status): _refused(status) for status in _always(token)}
    return {"operationId": "openapi", "summary": "This document.", "responses": found, **_security(OPENAPI_PATH, token)}


def _security(path: str, token: bool) -> dict[str, Any]:
    return {"security": [{"token": []}]} if token and path not in PUBLIC_PATHS else {}


def _names(route: Endpoint) -> list[str]:
    return re.findall(r"{(\w+)}", route.path)


def _segment(name: str) -> dict[str, Any]:
    about, schema = _PATH_PARAMETERS[name]
    return {"name": name, "in": "path", "required": True, "description": about, "schema": schema}


def _query(kind: type[ApiInput]) -> list[dict[str, Any]]:
    _, found = msgspec.json.schema_components([kind], ref_template=_REF)
    fields = found[kind.__name__]["properties"].items()
    return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in fields]


def _refusals(route: Endpoint, token: bool) -> list[int]:
    if route.path in PUBLIC_PATHS:
        return _COMMON_STATUSES
    named = [404] if _names(route) else []
    changes = [409, 413, 415] if route.method != "GET" else []
    return sorted([*_always(token), *named, *changes])


def _always(token: bool) -> list[int]:
    return [*_COMMON_STATUSES, *([401] if token else []), 422, 503]


def _refused(status: int) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{ERROR_CODES[status][0]}"}


def _refusal(status: int) -> dict[str, Any]:
    return _answer(ERROR_CODES[status][1], _ref(ErrorResponse), _EXTRA_HEADERS.get(status, ()))


def _success(route: Endpoint) -> dict[str, Any]:
    if route.streams:
        return _answer(_STREAM_MEANING, {"type": "string"}, kind="text/event-stream")
    if route.returns is str:
        return _answer("done", {"type": "string"}, kind="text/plain")
    schema = None if route.returns is None else _ref(route.returns)
    return _answer("done", schema, ("location",) if route.status == 201 else ())


def _answer(
    about: str, schema: dict[str, Any] | None, more: tuple[str, ...] = (), kind: str = "application/json"
) -> dict[str, Any]:
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in (*_DEFAULT_HEADERS, *more)}
    content = {} if schema is None else {"content": {kind: {"schema": schema}}}
    return {"description": about, "headers": headers, **content}


def _header(name: str) -> dict[str, Any]:
    about, schema = _HEADERS[name]
    return {"description": about, "required": True, "schema": schema}


def _ref(kind: type[Any]) -> dict[str, Any]:
    return {"$ref": _REF.format(name=kind.__name__)}
