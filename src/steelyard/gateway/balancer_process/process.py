"""The balancer process: the server with its socket, its timer, and the supervisor's view of the fleet."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection, Coroutine
from contextlib import suppress
from random import Random
from time import monotonic
from typing import Any, Final

from ...core.balancer import Balancer
from ...core.memory.ledger import MemoryLedger
from ...core.request import INFINITY
from ...link.messages import Applied, Apply, RequestsLost, ReservationsAdopted, WorkerReport
from ...link.shared_ledger import SharedLedger
from ..shared_balancer.channel import MessageChannel, peer_user
from ..shared_balancer.messages import WorkerMessage
from ..telemetry.choices import ChoiceRecorder
from ..worker.device_memory import TrackedDeviceMemory
from ..worker.model_sync import ModelSync
from ..worker.supervised_process import SupervisedProcess, run_process
from ..worker.supervisor_channel import SupervisorChannel, log
from ..worker.worker_report import balancer_report
from .server import BalancerServer, WorkerLink

MIN_TIMER_SECONDS: Final = 0.0005  # never a busy loop
DRAIN_POLL_SECONDS: Final = 0.05
NICER_WORKERS: Final = 10  # all of them wait for this process: it should not wait for a core


class BalancerProcess(SupervisedProcess):
    def __init__(
        self,
        supervisor: SupervisorChannel,
        listener: socket.socket,
        ledger: SharedLedger | None,
        recover: Collection[int],
    ) -> None:
        """`recover`: pids of workers that may have requests already."""
        self._listener = listener
        self._recover = recover
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = INFINITY
        devices = MemoryLedger(ledger)
        self._balancer = Balancer(Random(), devices)
        self._server = server = BalancerServer(self._balancer, self._wake_by, recover, log)
        server.memory = TrackedDeviceMemory(server, devices, supervisor.send)
        self._links: dict[MessageChannel, WorkerLink] = {}
        super().__init__(supervisor, server, ModelSync(server), decides=True)
        server.on_replica_failure = self.replica_failed
        server.on_requests_lost = lambda worker, requests: supervisor.send(RequestsLost(worker, requests))
        server.on_adopted = lambda reservations: supervisor.send(ReservationsAdopted(tuple(reservations)))

    def apply(self, message: Apply) -> None:
        now = monotonic()
        self._fleet.apply(message.config, message.columns, now, message.devices)
        wanted = message.config.decision_log
        self._server.choices = ChoiceRecorder(wanted.max_candidates) if wanted is not None else None
        self._balancer.on_choice = self._server.choices.on_choice if self._server.choices is not None else None
        self._wake_by(now, now)
        self.supervisor.send(Applied(message.number))

    def report(self, now: float, number: int = 0) -> WorkerReport:
        return balancer_report(self._balancer, self._server.memory, now, number)

    def open(self) -> None:
        if not self._recover:
            self.supervisor.send(ReservationsAdopted(()))  # nothing runs
        self.loop.add_reader(self._listener, self._accept)
        with suppress(PermissionError):  # only with CAP_SYS_NICE
            niceness = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, 0, niceness - NICER_WORKERS)

    def _accept(self) -> None:
        """Workers of our own user only."""
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if peer_user(connection) != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        channel = MessageChannel(WorkerMessage, self._received, self._disconnected)
        self._links[channel] = self._server.add_worker(channel.send)
        made: Any = lambda: channel  # noqa: E731  # has a protocol's callbacks without being an asyncio.Protocol
        self._attaching = asyncio.ensure_future(self.loop.create_unix_connection(made, sock=connection))

    def _received(self, channel: MessageChannel, messages: list[Any]) -> None:
        self._server.receive(self._links[channel], messages, monotonic())

    def _disconnected(self, channel: MessageChannel) -> None:
        self._server.remove_worker(self._links.pop(channel), monotonic())

    # ------------------------------------------------------------------ time

    def _wake_by(self, when: float, now: float) -> None:
        if when >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.loop.call_later(max(MIN_TIMER_SECONDS, when - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = INFINITY
        now = monotonic()
        try:
            self._server.expire(now)
        finally:  # whatever went wrong with one request, the timer goes on for the others
            if self._balancer.wake < INFINITY:
                self._wake_by(max(self._balancer.wake, now + MIN_TIMER_SECONDS), now)

    # ------------------------------------------------------------------ the end

    async def drain(self, seconds: float | None, sockets_shared: bool) -> None:
        """The supervisor drains the workers first."""
        until = monotonic() + (seconds or 0.0)
        while self._links and monotonic() < until:
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def supervisor_lost(self) -> None:
        """Its workers serve until the next supervisor's do; then this is over too."""
        while self._links:
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        self.drain_soon(None)

    def close(self) -> None:
        self.loop.remove_reader(self._listener)
        for channel in list(self._links):
            channel.close()
        if self._timer is not None:
            self._timer.cancel()


def run_balancer(
    supervisor: SupervisorChannel, listener: socket.socket, ledger: SharedLedger | None, recover: Collection[int]
) -> Coroutine[Any, Any, None]:
    return run_process(supervisor, lambda first: BalancerProcess(supervisor, listener, ledger, recover), "balancer")
