"""The worker process: what it does with the supervisor's messages, its reports, and how it drains."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

from ...config import Config, TracingConfig
from ...core.balancer import Balancer
from ...core.memory.ledger import MemoryLedger
from ...core.replica import Event, Replica, State
from ...link.handover import HandoverError
from ...link.load_board import LoadBoard
from ...link.messages import (
    Applied,
    Apply,
    DeviceCapacities,
    Drain,
    Heartbeat,
    LoadReadings,
    MemberUpdate,
    MemorySizes,
    Quarantine,
    ReplicaEvents,
    ReplicaFailure,
    ReportRequest,
    Started,
    StartProgress,
    StartServing,
    ToWorker,
)
from ...link.shared_ledger import SharedLedger
from ..proxy.proxy import Proxy
from ..telemetry.access_log import AccessLog
from ..telemetry.decision_log import DecisionLog
from .acceptor import Acceptor
from .device_memory import TrackedDeviceMemory
from .fleet import WorkerFleet
from .fleet_updates import apply_load_readings, apply_replica_events
from .overload import MemoryMonitor
from .passive_health import PassiveHealth
from .peer_workers import PeerWorkers
from .supervisor_channel import SupervisorChannel, offer_listeners
from .tls import listener_context, tls_fingerprint
from .worker_report import build_report

REPORT_INTERVAL_SECONDS: Final = 1.0
REPORT_CHECK_SECONDS: Final = 0.25
FAILURE_INTERVAL_SECONDS: Final = 0.2  # between two reports of the same replica
SUPERVISOR_SEARCH_SECONDS: Final = 0.1
DRAIN_POLL_SECONDS: Final = 0.05  # in which connections just accepted become known
LAST_REPLY_SECONDS: Final = 1.0  # for clients to take the last answers


class Worker:
    """From the first configuration on."""

    def __init__(
        self,
        supervisor: SupervisorChannel,
        config: Config,
        board: LoadBoard,
        listeners: list[socket.socket],
        index: int,
        ledger: SharedLedger,
        control_socket: Path | None,
    ) -> None:
        """`control_socket`: where the next supervisor is found, should this worker's die."""
        self.loop = asyncio.get_running_loop()
        self._supervisor = supervisor
        self._supervisor_silent = False  # it is gone, or frozen
        self._control_socket = control_socket
        self._workers = board.workers
        self._listeners = listeners
        self._index = index
        devices = MemoryLedger(ledger)
        self._proxy = proxy = Proxy(self.loop, Balancer(Random(), devices), config)
        proxy.dispatcher.on_replica_failure = self._replica_failed
        proxy.dispatcher.memory = TrackedDeviceMemory(proxy, devices, supervisor.send)
        if board.workers > 1:
            proxy.dispatcher.peers = PeerWorkers(proxy, board, index)
        self._fleet = WorkerFleet(proxy)
        self._passive_health = PassiveHealth(proxy)
        self._acceptor = Acceptor(proxy, listeners)
        self._tls_fingerprint: tuple[object, ...] = ()
        self._draining = False
        self._ejections = 0  # as of the last report
        self._stopped = asyncio.Event()

    async def run(self, messages: AsyncIterator[ToWorker]) -> None:
        self.loop.add_signal_handler(signal.SIGTERM, self._drain_soon, None)
        tasks = [asyncio.create_task(self._follow_supervisor(messages)), asyncio.create_task(self._report())]
        await self._stopped.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._proxy.close()

    async def _follow_supervisor(self, messages: AsyncIterator[ToWorker]) -> None:
        try:
            async for message in messages:
                match message:
                    case Apply():
                        self._reload(message)
                    case StartServing():
                        self._start_serving()
                    case Drain():
                        self._drain_soon(message.seconds, sockets_shared=message.sockets_shared)
                    case _:
                        self._apply_message(message)
        except Exception as problem:  # deaf to all that follows it would serve by what was true once
            _log(f"error invalid message from the supervisor, exiting: {problem!r}")
            self._stopped.set()
            return
        # It is gone; the last good configuration stays in force.
        if self._control_socket is not None:
            await self._find_supervisor(self._control_socket)

    async def _find_supervisor(self, control_socket: Path) -> None:
        """Gives the listening sockets to the next supervisor, and leaves when its workers serve."""
        while not self._draining:
            with suppress(HandoverError):
                if await offer_listeners(control_socket, self._listeners):
                    self._drain_soon(None, sockets_shared=True)
            await asyncio.sleep(SUPERVISOR_SEARCH_SECONDS)

    def _apply_message(self, message: ToWorker) -> None:
        """Whatever goes wrong with one message, the next is heard."""
        now = monotonic()
        proxy = self._proxy
        try:
            match message:
                case Heartbeat():
                    self._check_supervisor(now)
                case MemberUpdate():
                    self._fleet.update_members(message, now)
                case ReplicaEvents():
                    apply_replica_events(proxy, message.events, now)
                case LoadReadings():
                    apply_load_readings(proxy, message.loads, now)
                case DeviceCapacities() | MemorySizes() | Quarantine() | StartProgress():
                    proxy.dispatcher.memory.apply(message, now)
                    proxy.dispatcher.wake_now(now)
                case ReportRequest():
                    self._supervisor.send(build_report(proxy, now, message.number))
        except Exception as problem:  # also whatever a user's own policy raises
            _log(f"error {type(message).__name__}: {type(problem).__name__}: {problem}")

    def _replica_failed(self, replica: Replica, refused: bool, now: float) -> None:
        """The supervisor should probe it. One that refuses connections is out until it is seen ready."""
        proxy, upstream = self._proxy, replica.context
        if proxy.balancer.ejections != self._ejections and proxy.dispatcher.peers.count:
            self._report_now(now)  # a replica was ejected: the other workers should hear of it
        if not upstream.probed or replica.state is State.GONE:
            return  # no probe would tell when it is back: the balancer's own ejection has to do
        if self._check_supervisor(now):
            self._passive_health.request_failed(replica, refused, now)
            return
        if refused and replica.state in (State.READY, State.EJECTED):
            self._supervisor.send(ReplicaFailure(upstream.model, replica.id, True))
            proxy.dispatcher.execute(proxy.balancer.report(replica.id, Event.LOST, upstream.model, now=now), now)
        elif now >= upstream.failure_reported_at + FAILURE_INTERVAL_SECONDS:
            upstream.failure_reported_at = now
            self._supervisor.send(ReplicaFailure(upstream.model, replica.id, False))

    def _check_supervisor(self, now: float) -> bool:
        """Is the supervisor silent?"""
        silent = self._supervisor.is_silent(now)
        if silent is not self._supervisor_silent:
            self._supervisor_silent = silent
            if silent:
                _log("warning no heartbeat from the supervisor: replica health follows requests only")
            else:
                for replica in self._passive_health.end():
                    self._supervisor.send(ReplicaFailure(replica.context.model, replica.id, True))
        return silent

    async def _report(self) -> None:
        last = monotonic()
        while True:
            await asyncio.sleep(REPORT_CHECK_SECONDS)
            now = monotonic()
            if self._check_supervisor(now):
                self._passive_health.tick(now, now - self._supervisor.heard_at)
            due = now - last >= REPORT_INTERVAL_SECONDS - REPORT_CHECK_SECONDS / 2
            if due or self._proxy.dispatcher.memory.has_waiting():
                last = now
                self._report_now(now)

    def _report_now(self, now: float) -> None:
        if self._supervisor.is_keeping_up():
            self._ejections = self._proxy.balancer.ejections
            self._supervisor.send(build_report(self._proxy, now))

    def _reload(self, message: Apply) -> None:
        try:
            self.apply(message)
        except Exception as problem:  # also whatever a user's own policy or dialect raises
            self._supervisor.send(Applied(message.number, _sentence(problem)))

    def apply(self, message: Apply) -> None:
        """All of it, or it raises."""
        config = message.config
        fingerprint = tls_fingerprint(config.tls)
        tls = listener_context(config.tls) if config.tls is not None else None
        self._apply_config(message)
        if fingerprint != self._tls_fingerprint:
            self._acceptor.tls, self._tls_fingerprint = tls, fingerprint
        self._supervisor.send(Applied(message.number))

    def _start_serving(self) -> None:
        """After the state of the fleet is known: an earlier request would find no replica ready."""
        self.loop.set_exception_handler(MemoryMonitor(self._proxy).handle_loop_exception)
        self._acceptor.open()
        gc.collect()
        gc.freeze()  # what is there now stays
        self._supervisor.send(Started(os.getpid()))

    def _apply_config(self, message: Apply) -> None:
        config, recorder = message.config, self._proxy.recorder
        if recorder.tracing_settings != config.tracing:
            self._set_tracing(config.tracing)
        # Reopened at each reload, so that a log that was moved away is let go; first, because it may fail.
        with ExitStack() as undo:
            log = AccessLog(config.access_log) if config.access_log is not None else None
            if log is not None:
                undo.callback(log.close)
            decisions = None
            if config.decision_log is not None:
                decisions = DecisionLog(config.decision_log, self._proxy.balancer, config, self._index, self._workers)
                undo.callback(decisions.close)
            self._fleet.apply(config, message.columns, monotonic(), message.devices)
            undo.pop_all()
        recorder.replace_logs(log, decisions)

    def _set_tracing(self, settings: TracingConfig | None) -> None:
        made = None
        if settings is not None:
            from ..telemetry.otel import OtelTracer  # not everybody has it installed

            made = OtelTracer(settings, self._index)
        self._proxy.recorder.set_tracer(made, settings)

    def _drain_soon(self, seconds: float | None, sockets_shared: bool = False) -> None:
        if self._draining:
            return
        self._draining = True
        self._drained = asyncio.create_task(self._drain(seconds, sockets_shared))

    async def _drain(self, seconds: float | None, sockets_shared: bool) -> None:
        """No new connections; what is in flight has its time; then the end.

        `sockets_shared`: other workers hold the same sockets and accept. An idle connection then stays open until
        the answer to its next request closes it: closed before, it might meet a request under way.
        """
        proxy = self._proxy
        self._acceptor.close()
        if not sockets_shared:
            self._acceptor.accept_backlog()
        for listener in self._listeners:
            listener.close()
        await asyncio.sleep(DRAIN_POLL_SECONDS)
        proxy.drain(sockets_shared=sockets_shared)
        until = monotonic() + (proxy.timeouts.drain if seconds is None else seconds)
        while proxy.clients and monotonic() < until:
            if not self._supervisor.connected:  # nobody will ever say that a replica is ready
                proxy.reject_pending(only_without_replica=True)
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        self._acceptor.cancel_handshakes()
        proxy.reject_pending()
        until = monotonic() + LAST_REPLY_SECONDS
        while any(client.closing for client in proxy.clients) and monotonic() < until:
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        proxy.abort_all()
        self._supervisor.send(build_report(proxy, monotonic()))  # the last word, whatever else is still to be said
        self._stopped.set()


async def run_worker(
    channel: socket.socket,
    board: LoadBoard,
    listeners: list[socket.socket],
    index: int,
    ledger: SharedLedger,
    control_socket: Path | None,
) -> None:
    """Until it is told to stop, or the supervisor leaves without ever having sent a configuration."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is the supervisor's business
    loop.add_signal_handler(signal.SIGTERM, os._exit, 0)  # there is nothing to finish yet
    supervisor = await SupervisorChannel.open(channel)
    messages = supervisor.messages()
    async for message in messages:
        if not isinstance(message, Apply):
            continue
        try:
            worker = Worker(supervisor, message.config, board, listeners, index, ledger, control_socket)
            worker.apply(message)
        except Exception as problem:
            supervisor.send(Applied(message.number, _sentence(problem)))
            sys.exit(f"steelyard worker {index}: {problem}")
        await worker.run(messages)
        break
    supervisor.close()
    await asyncio.sleep(0)  # what was closed is closed in the next turn


def _sentence(problem: Exception) -> str:
    return str(problem) or repr(problem)


def _log(line: str) -> None:
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
