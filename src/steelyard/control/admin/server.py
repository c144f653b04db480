"""The admin API as a server in the supervisor's event loop. Importing this brings in Starlette and uvicorn."""

from __future__ import annotations

import asyncio
import errno
import socket

import msgspec
from uvicorn.config import Config
from uvicorn.server import ServerState

from ...addresses import Address, listen_address
from ...config import AdminConfig
from ..errors import ADDRESS_ABSENT_ERRNOS, ListenError, listen_error
from ..listeners import tcp
from ..listeners.inherited import InheritedSockets
from ..listeners.unix import UnixListener
from ..supervisor.admin_service import AdminService
from .app import Application
from .connection import AdminConnection
from .live_subscribers import LiveSubscribers
from .metrics import MetricsCache
from .security.access import AccessControl
from .security.replica_allowlist import ReplicaAllowlist

DEFAULT_LISTEN_ADDRESS = "127.0.0.1:9080"
_LISTEN_BACKLOG = 128
_ABORT_LOOP_TURNS = 3  # of the loop, in which an aborted connection is lost
_STOP_TIMEOUT_SECONDS = 1.0  # seconds for requests in progress when it stops


class AdminServer:
    """Serves between `start` and `stop`. It installs no signal handlers and starts no thread."""

    def __init__(self, operations: AdminService, admin: AdminConfig, inherited: InheritedSockets | None = None) -> None:
        """Raises AccessError if everybody could use it, OptionError for an allow-list that cannot be. `inherited`:
        sockets that are open already, and used where they fit."""
        self.operations = operations
        self.watchers = LiveSubscribers(operations)
        self.scrapes = MetricsCache(operations)
        self._address = listen_address(DEFAULT_LISTEN_ADDRESS if admin.listen is None else admin.listen)
        self.follow(admin)
        self.state = ServerState()
        self._servers: list[asyncio.Server] = []
        self._unix: UnixListener | None = None
        self._inherited = inherited or InheritedSockets()
        self.sockets: list[socket.socket] = []  # that it listens on

    def follow(self, admin: AdminConfig) -> None:
        """What a new configuration says of tokens, addresses and leases holds from now on; `listen` stays."""
        access, allowed = (
            AccessControl(self._address, admin),
            ReplicaAllowlist(admin),
        )  # each may raise: then nothing is changed
        self.access, self.allowed, self.lease = access, allowed, float(admin.max_lease)

    @property
    def address(self) -> Address:
        """With the real port, once it is started."""
        return self._address

    async def start(self) -> None:
        """Raises ListenError if the address cannot be had."""
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
        loop = asyncio.get_running_loop()
        self.sockets = self._bind()
        for made in self.sockets:
            made.setblocking(False)
            self._servers.append(
                await loop.create_server(
                    lambda: AdminConnection(config, self.state, {}), sock=made, backlog=_LISTEN_BACKLOG
                )
            )

    async def stop(self, *, handed_over: bool = False) -> None:
        """What is in progress has a second to end. `handed_over`: another listens on."""
        for server in self._servers:
            server.close()
        for _ in range(_ABORT_LOOP_TURNS):  # who was let in just before is here by then
            await asyncio.sleep(0)
        for connection in list(self.state.connections):
            connection.shutdown()
        self.watchers.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + _STOP_TIMEOUT_SECONDS
        while (self.state.connections or self.state.tasks) and loop.time() < until:
            await asyncio.sleep(0.01)
        await self._cut_off()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        if self._unix is not None:
            self._unix.close(keep_file=handed_over)
            self._unix = None

    async def _cut_off(self) -> None:
        for connection in list(self.state.connections):
            connection.transport.abort()
        for _ in range(
            _ABORT_LOOP_TURNS
        ):  # they hear of it before their tasks are cancelled: there is nobody to answer
            await asyncio.sleep(0)
        tasks = list(self.state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _bind(self) -> list[socket.socket]:
        try:
            if self._address.path:
                path = self._address.path
                self._unix = UnixListener(path, made=self._inherited.claim_path(path))
                return [self._unix.socket]
            sockets = _tcp_sockets(self._address, self._inherited)
        except socket.gaierror as problem:
            what = f"{self._address.host!r} is no host that is known here"
            raise ListenError(f"cannot listen on {self._address}: {what}: {problem.strerror}") from None
        except OSError as problem:
            raise listen_error(self._address, problem) from None
        self._address = msgspec.structs.replace(self._address, port=sockets[0].getsockname()[1])
        return sockets


def _tcp_sockets(address: Address, inherited: InheritedSockets) -> list[socket.socket]:
    """Without SO_REUSEPORT: two supervisors that share an address would each get half of what is asked."""
    made: list[socket.socket] = []
    port, absent = address.port, OSError(errno.EADDRNOTAVAIL, "")
    for place in tcp.resolve(address):
        try:
            made += inherited.claim(place) or [_listening(place, port)]
        except OSError as problem:
            if problem.errno in ADDRESS_ABSENT_ERRNOS:
                absent = problem
                continue
            for one in made:
                one.close()
            raise
        port = made[0].getsockname()[1]  # a port that the kernel chose for one is the port for all
    if not made:
        raise absent
    return made


def _listening(place: tcp.BindAddress, port: int) -> socket.socket:
    return socket.create_server(
        (place.host, port), family=place.family, dualstack_ipv6=place.dual_stack, backlog=_LISTEN_BACKLOG
    )
