"""For `httpx`: `httpx.Client(transport=Transport(lb))` sends each request to a replica of `lb`. See docs/library.md."""

from __future__ import annotations

import httpx

from ..library.failures import Refused
from ._transport import AsyncRoutingTransport, SyncRoutingTransport


class RefusedError(Refused, httpx.TransportError):
    """`Refused`, as an error of the client."""


class Transport(SyncRoutingTransport[httpx.BaseTransport, httpx.Request], httpx.BaseTransport):
    """For `httpx.Client`: replicas are URLs, which replace the scheme, host and port of a request.

    `transport` sends; `describe(request)` returns arguments of `lb.route` (features, kind, key, tenant, priority,
    timeout); `idempotent`: may a request that a replica has begun be sent again? None: by its method.
    """

    http = httpx
    refused = RefusedError


class AsyncTransport(AsyncRoutingTransport[httpx.AsyncBaseTransport, httpx.Request], httpx.AsyncBaseTransport):
    """The same for `httpx.AsyncClient`."""

    http = httpx
    refused = RefusedError
