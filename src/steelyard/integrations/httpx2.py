"""For `httpx2`: `httpx2.Client(transport=Transport(lb))` sends each request to a replica of `lb`. docs/library.md"""

from __future__ import annotations

import httpx2

from ..library.failures import Refused
from ._transport import AsyncRoutingTransport, SyncRoutingTransport


class RefusedError(Refused, httpx2.TransportError):
    """`Refused`, as an error of the client."""


class Transport(SyncRoutingTransport[httpx2.BaseTransport, httpx2.Request], httpx2.BaseTransport):
    """For `httpx2.Client`: replicas are URLs, which replace the scheme, host and port of a request.

    `transport` sends; `describe(request)` returns arguments of `lb.route` (features, kind, key, tenant, priority,
    timeout); `idempotent`: may a request that a replica has begun be sent again? None: by its method.
    """

    http = httpx2
    refused = RefusedError


class AsyncTransport(AsyncRoutingTransport[httpx2.AsyncBaseTransport, httpx2.Request], httpx2.AsyncBaseTransport):
    """The same for `httpx2.AsyncClient`."""

    http = httpx2
    refused = RefusedError
