"""The admin API as a server in the supervisor's event loop. Importing this brings in Starlette and uvicorn."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING

from uvicorn.config import Config
from uvicorn.server import ServerState

from ...addresses import listen_address
from ...config import AdminConfig
from ..listeners.inherited import InheritedSockets
from ..listeners.listeners import ListenerSockets
from ..listeners.tcp import LISTEN_BACKLOG
from .app import Application
from .connection import AdminConnection
from .live_subscribers import LiveSubscribers
from .metrics import MetricsCache
from .security.access import AccessControl
from .security.replica_allowlist import ReplicaAllowlist

if TYPE_CHECKING:
    from ..supervisor.fleet_admin import FleetAdmin

DEFAULT_LISTEN_ADDRESS = "127.0.0.1:9080"
_ABORT_LOOP_TURNS = 3  # of the loop, in which an aborted connection is lost
_STOP_TIMEOUT_SECONDS = 1.0  # for requests in progress


class AdminServer:
    """Serves between `start` and `stop`. It installs no signal handlers and starts no thread."""

    def __init__(self, operations: FleetAdmin, admin: AdminConfig, inherited: InheritedSockets | None = None) -> None:
        """Raises AccessError if everybody could use it, OptionError for an invalid allow-list. `inherited`: open
        sockets, used where they fit."""
        self.operations = operations
        self.watchers = LiveSubscribers(operations)
        self.scrapes = MetricsCache(operations)
        self.address = listen_address(DEFAULT_LISTEN_ADDRESS if admin.listen is None else admin.listen)
        self.follow(admin)
        self.state = ServerState()
        self._listeners = ListenerSockets(())
        self._servers: list[asyncio.Server] = []
        self._inherited = inherited

    def follow(self, admin: AdminConfig) -> None:
        """Applies a new configuration, except `listen`. If it raises, nothing changes."""
        access, allowed = AccessControl(self.address, admin), ReplicaAllowlist(admin)
        self.access, self.allowed, self.max_lease = access, allowed, float(admin.max_lease)

    async def start(self) -> None:
        """Raises ListenError if the address cannot be had. Then `address` has the real port."""
        config = Config(
            Application(self),
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        config.load()
        self._listeners = ListenerSockets([self.address], inherited=self._inherited)
        (self.address,) = self._listeners.addresses
        loop = asyncio.get_running_loop()
        protocol = partial(AdminConnection, config, self.state, {})
        for made in self.sockets():
            self._servers.append(await loop.create_server(protocol, sock=made, backlog=LISTEN_BACKLOG))

    def sockets(self) -> list[socket.socket]:
        return self._listeners.sockets()

    async def stop(self, *, handed_over: bool = False) -> None:
        """Requests in progress have a second to end. `handed_over`: another gateway listens on."""
        for server in self._servers:
            server.close()
        for _ in range(_ABORT_LOOP_TURNS):  # connections accepted just before arrive by then
            await asyncio.sleep(0)
        for connection in list(self.state.connections):
            connection.shutdown()
        self.watchers.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + _STOP_TIMEOUT_SECONDS
        while (self.state.connections or self.state.tasks) and loop.time() < until:
            await asyncio.sleep(0.01)
        await self._abort_connections()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        self._listeners.close_all(handed_over=handed_over)

    async def _abort_connections(self) -> None:
        for connection in list(self.state.connections):
            connection.transport.abort()
        for _ in range(_ABORT_LOOP_TURNS):  # they are lost before their tasks are cancelled: their clients are gone
            await asyncio.sleep(0)
        tasks = list(self.state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
