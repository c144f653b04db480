"""The dashboard's files. They need no token: the page gets all data from the API."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...core.policies import POLICIES

_CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
SECURITY_HEADERS = {
    # Nothing from elsewhere, nothing inline, and no frame: a click in one could be a click on `drain`.
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class File(NamedTuple):
    content: bytes
    type: str


@cache
def files() -> dict[str, File]:
    """By path."""
    made = {"/ui/policies.json": File(msgspec.json.encode(list(POLICIES)), "application/json")}
    for file in (resources.files(__package__) / "page").iterdir():
        if kind := _CONTENT_TYPES.get(file.name.rpartition(".")[2]):
            path = "/" if file.name == "index.html" else f"/ui/{file.name}"
            made[path] = File(file.read_bytes(), kind)
    return made


async def page(request: Request) -> Response:
    file = files()[request.scope["path"]]
    return Response(file.content, headers={**SECURITY_HEADERS, "content-type": file.type})
