"""The proxy: what all connections and requests of a worker share.

A request goes from its ClientConnection to the RequestIntake, the Dispatcher and an UpstreamConnection; its response
comes back through the TurnWriter, and the RequestRecorder records it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ...config import Config
from ...core.balancer import Balancer
from ...core.request import INFINITY
from ...core.slo.verdicts import GATEWAY
from ...link.messages import WorkerAlarm
from ..http import local_replies
from ..http.headers import REQUEST_ROLES, RESPONSE_ROLES, HeaderTable
from ..http.response_head import StatusLineCache
from ..routing.client_identity import TrustPolicy
from ..routing.router import Router
from ..telemetry import model_stats
from .body_buffers import BodyBuffers
from .deadlines import SWEEP_SECONDS, Deadlines
from .dispatcher import WAITING, Dispatcher
from .fair_turns import FairTurns
from .intake import RequestIntake
from .recorder import RequestRecorder
from .turn_writer import TurnWriter

if TYPE_CHECKING:
    from .client_connection import ClientConnection
    from .upstream_connection import UpstreamConnection

ALARM_HOLD_SECONDS: Final = 10.0  # what comes and goes is one alarm


class ResourceAlarm:
    """A lack of file descriptors or memory: one alarm while it lasts, not one for each request."""

    def __init__(self, code: str) -> None:
        self.code = code
        self._since = 0.0
        self._last = -INFINITY
        self._what = ""

    def trigger(self, what: str, now: float) -> None:
        if not self.is_active(now):
            self._since = now
        self._last = now
        self._what = what

    def is_active(self, now: float) -> bool:
        return now - self._last < ALARM_HOLD_SECONDS

    def alarm(self, now: float) -> WorkerAlarm | None:
        return WorkerAlarm(self.code, self._what, now - self._since) if self.is_active(now) else None


class Proxy:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        balancer: Balancer,
        config: Config,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.loop = loop
        self.clock = clock  # read once in each callback of the loop, which passes `now` on
        now = clock()
        self.balancer = balancer
        self.clients: dict[ClientConnection, None] = {}
        self.active: dict[UpstreamConnection, None] = {}  # connections with a request on them
        self.partial_heads: dict[ClientConnection, None] = {}  # part of a head has come
        self.connection_pools: dict[tuple[Any, ...], Any] = {}
        self.recorder = RequestRecorder()
        self.writer = TurnWriter(loop)
        self.turns = FairTurns(loop, clock)
        self.resource_alarms: list[ResourceAlarm] = []
        self.memory_tight = False  # every body counts (overload.py)
        self.memory_low = False  # nothing new is taken
        self.buffers = BodyBuffers(config.limits, config.timeouts, now)
        self.draining = False
        self.sockets_shared = False  # of the listening sockets, by other workers
        self.response_fields = HeaderTable(RESPONSE_ROLES)
        self.statuses = StatusLineCache()
        self.deadlines = Deadlines(self, now)
        self.dispatcher = Dispatcher(self)
        self.intake = RequestIntake(self)
        self.configure(config, now)

    def configure(self, config: Config, now: float) -> None:
        self.limits = config.limits
        self.timeouts = config.timeouts
        self.buffers.configure(config.limits, config.timeouts)
        self.trust_rule = TrustPolicy(config)
        for client in self.clients:  # connected clients may have other rights now
            client.identity = self.trust_rule.identify(client.forwarding.client.decode())
        self.router = Router(config)
        self.intake.configure(config, self.router, self.trust_rule)
        wanted = {name for dialect in self.router.dialects for name in dialect.wanted_headers}
        tenant_header = config.tenant_header.lower().encode()
        names = (*sorted(wanted), tenant_header) if tenant_header else tuple(sorted(wanted))
        self.request_fields = HeaderTable(REQUEST_ROLES, names)
        self.recorder.configure(config)
        self.deadlines.wake_by(now + SWEEP_SECONDS, now)

    @property
    def held(self) -> int:
        return self.buffers.held_bytes

    def add_client(self, client: ClientConnection) -> bool:
        leaving = self.draining and not self.sockets_shared
        if leaving or self.memory_low or len(self.clients) >= self.limits.connections:
            return False
        self.clients[client] = None
        return True

    def remove_client(self, client: ClientConnection) -> None:
        self.clients.pop(client, None)
        self.partial_heads.pop(client, None)

    def sweep(self, now: float) -> None:
        """Closes connections whose time is up, and flushes the logs."""
        for client in [c for c in self.clients if c.expires <= now]:
            client.on_timeout(now)
        self.buffers.sweep(now)
        for connection in [c for c in self.active if c.expires <= now]:
            connection.on_timeout(now)
        for pool in self.connection_pools.values():
            pool.sweep(now)
        self.recorder.flush()

    def drain(self, *, sockets_shared: bool = False) -> None:
        """Each connection ends with the answer in progress; an idle one soon, or, `sockets_shared`, with the next."""
        self.draining = True
        self.sockets_shared = sockets_shared
        now = self.clock()
        for client in list(self.clients):
            client.drain(now)

    def reject_pending(self, *, only_without_replica: bool = False) -> None:
        """Requests without a response yet fail; `only_without_replica`: those waiting for a model without one."""
        now = self.clock()
        left = [client.exchange for client in self.clients if client.exchange is not None]
        waiting = [e for e in left if e.phase is WAITING]
        if only_without_replica:
            waiting = [e for e in waiting if e.pool is not None and not e.pool.members]
        others = [] if only_without_replica else [e for e in left if e.phase is not WAITING and not e.response_started]
        for exchange in waiting + others:  # waiting requests first: none must take a slot that another leaves
            exchange.close = True
            exchange.client.fail(exchange, local_replies.STOPPING, now)

    def abort_all(self) -> None:
        now = self.clock()
        for client in list(self.clients):
            exchange = client.exchange
            if exchange is not None:
                exchange.fault = exchange.fault or GATEWAY
                exchange.end(exchange.outcome or model_stats.FAILED, local_replies.STOPPING.code, now)
            self.writer.abort(client.transport)

    def close(self) -> None:
        self.abort_all()
        for pool in self.connection_pools.values():
            pool.close()
        self.deadlines.close()
        self.recorder.close()
