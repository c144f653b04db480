"""The way to one server: a bounded stack of open connections, and how to make another."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...addresses import Address
from ...system import LOCAL_ERRNOS, NOT_LISTENING_ERRNOS
from .upstream_connection import UpstreamConnection

if TYPE_CHECKING:
    from .proxy import Proxy

UNCHECKED_IDLE_SECONDS: Final = 0.01  # longer unused, a system call checks whether the server closed it


class ConnectionPool:
    def __init__(
        self, proxy: Proxy, address: Address, tls: Callable[[], ssl.SSLContext] | None, server_name: str
    ) -> None:
        self.proxy = proxy
        self.address = address
        self.authority = address.authority.encode()
        self.references = 0  # replicas of models that are reached through it
        self.idle: list[UpstreamConnection] = []  # a stack: those at the bottom may grow old and go
        self.closed = False
        self._tls = tls
        self._server_name = server_name or address.host
        self._opening: set[asyncio.Task[None]] = set()

    def acquire(self, lasting: float, now: float) -> UpstreamConnection:
        """For one attempt: open, or about to be. `lasting`: the most seconds it may have been unused."""
        idle = self.idle
        while idle:
            connection = idle.pop()
            unused = now - connection.last_activity
            if (
                not connection.transport.is_closing()
                and unused < lasting
                and (unused < UNCHECKED_IDLE_SECONDS or connection.is_reusable())
            ):
                connection.reused = True
                return connection
            connection.close()
        return self.connect()

    def connect(self) -> UpstreamConnection:
        connection = UpstreamConnection(self)
        task = self.proxy.loop.create_task(self._open(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return connection

    async def _open(self, connection: UpstreamConnection) -> None:
        address, loop = self.address, self.proxy.loop
        made: Any = lambda: connection  # noqa: E731  # has a protocol's callbacks without being an asyncio.Protocol
        try:
            async with asyncio.timeout(self.proxy.timeouts.connect):
                if address.path:
                    await loop.create_unix_connection(made, address.path)
                elif self._tls is None:
                    await loop.create_connection(made, address.host, address.port)
                else:
                    tls, name = self._tls(), self._server_name
                    await loop.create_connection(made, address.host, address.port, ssl=tls, server_hostname=name)
        except Exception as problem:  # OSError, TimeoutError, SSLError, UnicodeError of a host name…
            local = getattr(problem, "errno", None) in LOCAL_ERRNOS
            connection.connect_failed(local, _all_refused(problem), self.proxy.clock())

    def release(self, connection: UpstreamConnection, now: float) -> None:
        if self.closed or len(self.idle) >= self.proxy.limits.idle_connections_per_replica:
            connection.close()
            return
        connection.last_activity = now
        self.idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        if connection in self.idle:
            self.idle.remove(connection)

    def sweep(self, now: float) -> None:
        longest = self.proxy.timeouts.replica_idle
        while self.idle and self.idle[0].last_activity + longest <= now:
            self.idle.pop(0).close()

    def close(self) -> None:
        self.closed = True
        while self.idle:
            self.idle.pop().close()


def _all_refused(problem: Exception) -> bool:
    """By every address of the host: asyncio joins their problems into one without an errno."""
    if not isinstance(problem, OSError):
        return False
    if problem.errno is not None:
        return problem.errno in NOT_LISTENING_ERRNOS
    return "Multiple exceptions" in str(problem) and str(problem).count("refused") > str(problem).count(", ")
