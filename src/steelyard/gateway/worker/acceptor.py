"""Accepts the clients of a worker, and counts those in their TLS handshake too.

Not by `loop.create_server`: it does not tell how many handshakes are under way, and without a file descriptor left
libuv accepts and drops connections. The price is 40 µs of CPU a connection.

When only the reserved file descriptors are left, accepting pauses and clients wait in the kernel's queue. The kernel
gives out the lowest free number, which shows how many are in use.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from ...system import EXHAUSTED_ERRNOS
from ..proxy.client_connection import ClientConnection
from ..proxy.proxy import Proxy, ResourceAlarm

MAX_ACCEPTS_PER_TURN: Final = 16  # of one listener, in one turn of the loop
RETRY_SECONDS: Final = 0.25
RESERVED_DESCRIPTORS: Final = 64  # for connections to replicas, and files
MAX_RESERVED_SHARE: Final = 0.125  # of all


class Acceptor:
    def __init__(self, proxy: Proxy, listeners: Sequence[socket.socket], tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls  # for new connections
        self._proxy = proxy
        self._listeners = listeners
        self._listening = False
        self._handshakes: set[asyncio.Task[None]] = set()  # connections that are not yet clients
        self._retry_timer: asyncio.TimerHandle | None = None
        self._shortage = ResourceAlarm("file_descriptors_exhausted")
        proxy.resource_alarms.append(self._shortage)

    def open(self) -> None:
        self._listening = True
        for listener in self._listeners:
            listener.setblocking(False)
            self._proxy.loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """New clients wait in the kernel's queue; handshakes go on."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        if self._listening:
            self._listening = False
            for listener in self._listeners:
                self._proxy.loop.remove_reader(listener)

    def accept_backlog(self) -> None:
        """Takes the clients in the kernel's queue, and closes it at once: those that come in between are reset."""
        for listener in self._listeners:
            with suppress(OSError):
                while True:
                    self._take(listener.accept()[0])
            listener.close()

    def cancel_handshakes(self) -> None:
        for task in list(self._handshakes):
            task.cancel()

    def _accept(self, listener: socket.socket) -> None:
        most = _descriptor_limit()
        for _ in range(MAX_ACCEPTS_PER_TURN):
            try:
                accepted, _ = listener.accept()
            except OSError as problem:  # BlockingIOError: no client; others: one that left again
                if problem.errno in EXHAUSTED_ERRNOS:
                    self._pause(os.strerror(problem.errno or 0))
                return
            self._take(accepted)
            if accepted.fileno() >= most:
                self._pause(f"{accepted.fileno()} are in use")
                return

    def _take(self, accepted: socket.socket) -> None:
        proxy = self._proxy
        if self.tls is not None and len(proxy.clients) + len(self._handshakes) >= proxy.limits.connections:
            accepted.close()  # a handshake would cost more than what it guards
            return
        task = proxy.loop.create_task(self._open(accepted, self.tls))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _open(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        proxy = self._proxy
        made: Any = lambda: ClientConnection(proxy)  # noqa: E731
        limit = proxy.timeouts.header if tls is not None else None
        accepted.setblocking(False)
        try:
            await proxy.loop.connect_accepted_socket(made, accepted, ssl=tls, ssl_handshake_timeout=limit)
        except (OSError, asyncio.CancelledError):  # SSLError is one; it left, or had no time left
            accepted.close()

    def _pause(self, reason: str) -> None:
        self.close()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        what = f"no file descriptors are left for clients ({reason}, the limit is {limit}), so they wait"
        now = self._proxy.clock()
        self._shortage.trigger(f"{what}: allow more (ulimit -n, LimitNOFILE=), or lower limits.connections", now)
        self._retry_timer = self._proxy.loop.call_later(RETRY_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._retry_timer = None
        in_use = self._in_use()
        if in_use >= _descriptor_limit():
            self._pause(f"{in_use} are in use")
        else:
            self.open()

    def _in_use(self) -> int:
        try:
            copy = os.dup(self._listeners[0].fileno())
        except OSError:
            return int(resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # none
        os.close(copy)
        return copy


def _descriptor_limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 30
    return int(limit - min(RESERVED_DESCRIPTORS, MAX_RESERVED_SHARE * limit))
