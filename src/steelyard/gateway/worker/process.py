"""The worker process: a proxy with its listeners, its logs, and how it drains."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

from ...config import Config, TracingConfig
from ...core.balancer import Balancer
from ...core.memory.ledger import MemoryLedger
from ...link.handover import HandoverError
from ...link.messages import Applied, Apply, WorkerReport
from ...link.shared_ledger import SharedLedger
from ..proxy.proxy import Proxy
from ..shared_balancer.client import BalancerClient
from ..telemetry.access_log import AccessLog
from ..telemetry.decision_log import DecisionLog
from .acceptor import Acceptor
from .balancer_link import BalancerLink
from .device_memory import TrackedDeviceMemory
from .fleet import WorkerFleet
from .overload import MemoryMonitor
from .remote_memory import RemoteMemory
from .supervised_process import SupervisedProcess, run_process
from .supervisor_channel import SupervisorChannel, offer_listeners
from .tls import listener_context, tls_fingerprint
from .worker_report import worker_report

SUPERVISOR_SEARCH_SECONDS: Final = 0.1
DRAIN_POLL_SECONDS: Final = 0.05  # in which connections just accepted become known
LAST_REPLY_SECONDS: Final = 1.0  # for clients to take the last answers


@dataclass(frozen=True)
class WorkerPlace:
    """What the supervisor says of a worker when it starts it."""

    index: int
    workers: int  # all of them
    listeners: list[socket.socket]
    ledger: SharedLedger | None  # where the worker decides
    balancer: str  # the address of the balancer process; empty: the worker decides
    control_socket: Path | None  # where the next supervisor is found, should this one die


class Worker(SupervisedProcess):
    def __init__(self, supervisor: SupervisorChannel, config: Config, place: WorkerPlace) -> None:
        self._place = place
        loop = asyncio.get_running_loop()
        self._link: BalancerLink | None = None
        self._linking: asyncio.Task[None] | None = None
        if place.balancer:
            client = BalancerClient(place.index, os.getpid())
            self._proxy = proxy = Proxy(loop, client, config)
            proxy.dispatcher.memory = RemoteMemory(client)
            self._link = BalancerLink(proxy.dispatcher, client, place.balancer)
            proxy.dispatcher.on_replica_failure = client.replica_failed
        else:
            devices = MemoryLedger(place.ledger)
            self._proxy = proxy = Proxy(loop, Balancer(Random(), devices), config)
            proxy.dispatcher.memory = TrackedDeviceMemory(proxy.dispatcher, devices, supervisor.send)
            proxy.dispatcher.on_replica_failure = self.replica_failed
        super().__init__(supervisor, proxy.dispatcher, WorkerFleet(proxy), decides=not place.balancer)
        self._acceptor = Acceptor(proxy, place.listeners)
        self._tls_fingerprint: tuple[object, ...] = ()

    def apply(self, message: Apply) -> None:
        config = message.config
        fingerprint = tls_fingerprint(config.tls)
        tls = listener_context(config.tls) if config.tls is not None else None
        self._apply_config(message)
        if fingerprint != self._tls_fingerprint:
            self._acceptor.tls, self._tls_fingerprint = tls, fingerprint
        self.supervisor.send(Applied(message.number))

    def _apply_config(self, message: Apply) -> None:
        config, recorder, place = message.config, self._proxy.recorder, self._place
        if recorder.tracing_settings != config.tracing:
            self._set_tracing(config.tracing)
        # Reopened at each reload, so that a log that was moved away is let go; first, because it may fail.
        with ExitStack() as undo:
            log = AccessLog(config.access_log) if config.access_log is not None else None
            if log is not None:
                undo.callback(log.close)
            decisions = None
            if config.decision_log is not None:
                decisions = DecisionLog(config.decision_log, self._proxy.balancer, config, place.index, place.workers)
                undo.callback(decisions.close)
            self._fleet.apply(config, message.columns, monotonic(), message.devices)
            undo.pop_all()
        recorder.replace_logs(log, decisions)

    def _set_tracing(self, settings: TracingConfig | None) -> None:
        made = None
        if settings is not None:
            from ..telemetry.otel import OtelTracer  # not everybody has it installed

            made = OtelTracer(settings, self._place.index)
        self._proxy.recorder.set_tracer(made, settings)

    def open(self) -> None:
        self.loop.set_exception_handler(MemoryMonitor(self._proxy).handle_loop_exception)
        if self._link is not None:
            self._linking = asyncio.create_task(self._link.run())
        self._acceptor.open()

    def report(self, now: float, number: int = 0) -> WorkerReport:
        return worker_report(self._proxy, now, number, decides=self.decides)

    async def supervisor_lost(self) -> None:
        """Gives the listening sockets to the next supervisor, and leaves when its workers serve."""
        control_socket = self._place.control_socket
        while control_socket is not None and not self._draining:
            with suppress(HandoverError):
                if await offer_listeners(control_socket, self._place.listeners):
                    self.drain_soon(None, sockets_shared=True)
            await asyncio.sleep(SUPERVISOR_SEARCH_SECONDS)

    async def drain(self, seconds: float | None, sockets_shared: bool) -> None:
        """No new connections; what is in flight has its time; then the end.

        `sockets_shared`: other workers hold the same sockets and accept. An idle connection then stays open until
        the answer to its next request closes it: closed before, it might meet a request under way.
        """
        proxy = self._proxy
        self._acceptor.close()
        if not sockets_shared:
            self._acceptor.accept_backlog()
        for listener in self._place.listeners:
            listener.close()
        await asyncio.sleep(DRAIN_POLL_SECONDS)
        proxy.drain(sockets_shared=sockets_shared)
        until = monotonic() + (proxy.timeouts.drain if seconds is None else seconds)
        while proxy.clients and monotonic() < until:
            if not self.supervisor.connected:  # no supervisor can report a replica as ready
                proxy.reject_pending(only_without_replica=True)
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        self._acceptor.cancel_handshakes()
        proxy.reject_pending()
        until = monotonic() + LAST_REPLY_SECONDS
        while any(client.closing for client in proxy.clients) and monotonic() < until:
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        proxy.abort_all()

    def close(self) -> None:
        self._proxy.close()
        if self._link is not None and self._linking is not None:
            self._linking.cancel()
            self._link.close()


def run_worker(supervisor: SupervisorChannel, place: WorkerPlace) -> Coroutine[Any, Any, None]:
    return run_process(supervisor, lambda first: Worker(supervisor, first.config, place), f"worker {place.index}")
