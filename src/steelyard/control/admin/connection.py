"""One connection to the admin API: uvicorn's, with the bounds that it lacks.

Unauthorized clients must not crowd out operators. A connection is authorized once a request on it was allowed. Of
MAX_AUTHORIZED_CONNECTIONS, idle ones make room. Unauthorized connections have less time; beyond
MAX_UNAUTHORIZED_CONNECTIONS, the oldest of the address with the most is closed, so that `/healthz` always answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from itertools import count
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .errors import JSON_CONTENT_TYPE, ApiError, default_headers

MAX_AUTHORIZED_CONNECTIONS = 64  # beyond, requests are refused
MAX_UNAUTHORIZED_CONNECTIONS = 3 * MAX_AUTHORIZED_CONNECTIONS
_MAX_HEAD_BYTES = 64 << 10
REQUEST_TIMEOUT_SECONDS = 30.0  # for a request to arrive, and for an answer to be read
UNAUTHORIZED_TIMEOUT_SECONDS = 10.0  # the same, before a request was authorized

_order = count()  # of connections: the least is the oldest

_log = logging.getLogger("steelyard.admin.http")
_log.setLevel(logging.ERROR)  # uvicorn warns of every bad request: any client could fill the log


class AdminConnection(HttpToolsProtocol):
    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.logger = _log
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0  # bytes of a head that is not yet complete
        self.in_head = False
        self._in_body = False
        self.authorized = False  # a request on it was allowed
        self.address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self.order = next(_order)
        self._limit_unauthorized()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waited()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.in_head
        super().data_received(data)
        if self.in_head and before:
            self._head += len(data)
            if self._head > _MAX_HEAD_BYTES:
                self._refuse(ApiError(431, f"the head of the request is larger than {_MAX_HEAD_BYTES >> 10} KiB"))
        if self._timer is self.timeout_keep_alive_task is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()  # for what began no request, or ended one that was answered already

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, "this is not an HTTP/1.1 request"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head, self.in_head, self._in_body = 0, True, False
        self._wait()

    def on_headers_complete(self) -> None:
        self.in_head, self._in_body = False, True
        self.server_state.default_headers = default_headers()
        self.scope["state"]["cut"] = self.transport.abort  # for a live stream that is not read
        self.scope["state"]["let_in"] = self.authorize
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._waited()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._wait()  # also while closing, which waits for the last byte to be read

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.get_write_buffer_size():
            super().timeout_keep_alive_handler()

    @property
    def idle(self) -> bool:
        """Between two requests."""
        answered = self.cycle is not None and self.cycle.response_complete and self._timer is None
        return answered and not self.in_head and not self.transport.is_closing()

    def authorize(self) -> bool:
        """Its request is allowed. False: too many connections."""
        if not self.authorized:
            known = [other for other in self._others() if other.authorized]
            self.authorized = len(known) < MAX_AUTHORIZED_CONNECTIONS or self._make_room(known)
        return self.authorized

    def _others(self) -> list[AdminConnection]:
        return [c for c in self.connections if isinstance(c, AdminConnection) and not c.transport.is_closing()]

    @staticmethod
    def _make_room(known: list[AdminConnection]) -> bool:
        """Otherwise the idle connections of replicas that renew leases would keep others out."""
        idle = next((other for other in known if other.idle), None)
        if idle is not None:
            idle.transport.close()
        return idle is not None

    def _limit_unauthorized(self) -> None:
        unauthorized = [other for other in self._others() if not other.authorized]
        if len(unauthorized) > MAX_UNAUTHORIZED_CONNECTIONS:
            crowd = Counter(other.address for other in unauthorized).most_common(1)[0][0]
            min(
                (other for other in unauthorized if other.address == crowd), key=lambda one: one.order
            ).transport.abort()

    def _unsupported_upgrade_warning(self) -> None:
        pass  # it is answered as if it had not asked

    def _wait(self) -> None:
        self._waited()
        seconds = REQUEST_TIMEOUT_SECONDS
        if not self.authorized:
            seconds = min(seconds, UNAUTHORIZED_TIMEOUT_SECONDS)
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _waited(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if self.in_head or self._in_body:
            self._refuse(ApiError(408, "the request did not arrive in time"))
        else:
            self.transport.abort()

    def _refuse(self, refusal: ApiError) -> None:
        """Sends an error, unless a response has begun, and closes the connection."""
        if self.transport.is_closing():
            return
        response_begun = self.cycle is not None and self._in_body and self.cycle.response_started
        if not response_begun:
            length = (b"content-length", str(len(refusal.body)).encode())
            headers = [*default_headers(), JSON_CONTENT_TYPE, length, (b"connection", b"close")]
            head = b"".join(b"%b: %b\r\n" % header for header in headers)
            self.transport.write(STATUS_LINE[refusal.status] + head + b"\r\n" + refusal.body)
        self.transport.close()
        self.in_head = self._in_body = False
        self._wait()  # for the last byte to be read
