"""For `httpx2`: `httpx2.Client(transport=Transport(lb))` sends each request to a replica of `lb`. docs/library.md"""

from __future__ import annotations

import httpx2

from ..library.failures import Refused
from ._transport import AsyncRoutingTransport, AsyncStream, SyncRoutingTransport, SyncStream


class RefusedError(Refused, httpx2.TransportError):
    """`Refused`, as an error of the client."""


class _Stream(SyncStream, httpx2.SyncByteStream):
    pass


class _AsyncStream(AsyncStream, httpx2.AsyncByteStream):
    pass


class Transport(SyncRoutingTransport[httpx2.BaseTransport, httpx2.Request], httpx2.BaseTransport):
    """For `httpx2.Client`; its arguments: `RoutingTransport`."""

    http = httpx2
    refused = RefusedError
    stream = _Stream


class AsyncTransport(AsyncRoutingTransport[httpx2.AsyncBaseTransport, httpx2.Request], httpx2.AsyncBaseTransport):
    """The same for `httpx2.AsyncClient`."""

    http = httpx2
    refused = RefusedError
    stream = _AsyncStream
