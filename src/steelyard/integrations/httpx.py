"""For `httpx`: `httpx.Client(transport=Transport(lb))` sends each request to a replica of `lb`. See docs/library.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import httpx

from ..library.balancer import LoadBalancer
from ..library.failures import Refused
from ._transport import AsyncRoutingTransport, AsyncStream, SyncRoutingTransport, SyncStream

CONNECTION_LIMITS = httpx.Limits(
    max_connections=None, max_keepalive_connections=100
)  # how many at once is the balancer's to say


class RefusedError(Refused, httpx.TransportError):
    """`Refused`, as an error of the client."""


class _Stream(SyncStream, httpx.SyncByteStream):
    pass


class _AsyncStream(AsyncStream, httpx.AsyncByteStream):
    pass


class Transport(SyncRoutingTransport, httpx.BaseTransport):
    """Replicas are URLs; the scheme, host and port of a request are replaced by those of the replica.

    `transport` does the sending. `describe(request)` returns what `lb.route` takes: features, kind, key, tenant,
    priority, timeout. `idempotent`: may a request be sent again after it may have begun? None: by its method.
    """

    http = httpx
    refused = RefusedError
    stream = _Stream

    def __init__(
        self,
        balancer: LoadBalancer,
        *,
        transport: httpx.BaseTransport | None = None,
        describe: Callable[[httpx.Request], Mapping[str, Any]] | None = None,
        idempotent: bool | None = None,
    ) -> None:
        super().__init__(balancer, transport or httpx.HTTPTransport(limits=CONNECTION_LIMITS), describe, idempotent)


class AsyncTransport(AsyncRoutingTransport, httpx.AsyncBaseTransport):
    """The same for `httpx.AsyncClient`."""

    http = httpx
    refused = RefusedError
    stream = _AsyncStream

    def __init__(
        self,
        balancer: LoadBalancer,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        describe: Callable[[httpx.Request], Mapping[str, Any]] | None = None,
        idempotent: bool | None = None,
    ) -> None:
        super().__init__(
            balancer, transport or httpx.AsyncHTTPTransport(limits=CONNECTION_LIMITS), describe, idempotent
        )
