"""For `httpx`: `httpx.Client(transport=Transport(lb))` sends each request to a replica of `lb`. See docs/library.md."""

from __future__ import annotations

import httpx

from ..library.failures import Refused
from ._transport import AsyncRoutingTransport, SyncRoutingTransport


class RefusedError(Refused, httpx.TransportError):
    """`Refused`, as an error of the client."""


class Transport(SyncRoutingTransport[httpx.BaseTransport, httpx.Request], httpx.BaseTransport):
    """For `httpx.Client`; its arguments: `RoutingTransport`."""

    http = httpx
    refused = RefusedError


class AsyncTransport(AsyncRoutingTransport[httpx.AsyncBaseTransport, httpx.Request], httpx.AsyncBaseTransport):
    """The same for `httpx.AsyncClient`."""

    http = httpx
    refused = RefusedError
