"""For `httpx2`: `httpx2.Client(transport=Transport(lb))` sends each request to a replica of `lb`. docs/library.md"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import httpx2

from ..library.balancer import LoadBalancer
from ..library.failures import Refused
from ._transport import AsyncRoutingTransport, AsyncStream, SyncRoutingTransport, SyncStream

CONNECTION_LIMITS = httpx2.Limits(
    max_connections=None, max_keepalive_connections=100
)  # how many at once is the balancer's to say


class RefusedError(Refused, httpx2.TransportError):
    """`Refused`, as an error of the client."""


class _Stream(SyncStream, httpx2.SyncByteStream):
    pass


class _AsyncStream(AsyncStream, httpx2.AsyncByteStream):
    pass


class Transport(SyncRoutingTransport, httpx2.BaseTransport):
    """Replicas are URLs; the scheme, host and port of a request are replaced by those of the replica.

    `transport` does the sending. `describe(request)` returns what `lb.route` takes: features, kind, key, tenant,
    priority, timeout. `idempotent`: may a request be sent again after it may have begun? None: by its method.
    """

    http = httpx2
    refused = RefusedError
    stream = _Stream

    def __init__(
        self,
        balancer: LoadBalancer,
        *,
        transport: httpx2.BaseTransport | None = None,
        describe: Callable[[httpx2.Request], Mapping[str, Any]] | None = None,
        idempotent: bool | None = None,
    ) -> None:
        super().__init__(balancer, transport or httpx2.HTTPTransport(limits=CONNECTION_LIMITS), describe, idempotent)


class AsyncTransport(AsyncRoutingTransport, httpx2.AsyncBaseTransport):
    """The same for `httpx2.AsyncClient`."""

    http = httpx2
    refused = RefusedError
    stream = _AsyncStream

    def __init__(
        self,
        balancer: LoadBalancer,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        describe: Callable[[httpx2.Request], Mapping[str, Any]] | None = None,
        idempotent: bool | None = None,
    ) -> None:
        super().__init__(
            balancer, transport or httpx2.AsyncHTTPTransport(limits=CONNECTION_LIMITS), describe, idempotent
        )
