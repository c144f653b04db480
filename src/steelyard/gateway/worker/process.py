"""The worker process: event loop, listeners, and the channel to the supervisor, without which it goes on serving."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

from ...config import TracingConfig
from ...core.balancer import Balancer
from ...core.memory.ledger import MemoryLedger
from ...core.replica import Event, Replica, State
from ...link.handover import HandoverError, OrphanedWorker, OrphanReleased, connect, receive, send
from ...link.load_board import LoadBoard
from ...link.messages import (
    Applied,
    Apply,
    DeviceCapacities,
    Drain,
    FrameDecoder,
    FromWorker,
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
    encode_frame,
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
from .passive_health import SUPERVISOR_TIMEOUT_SECONDS, PassiveHealth
from .peer_workers import PeerWorkers
from .tls import listener_context, tls_fingerprint
from .worker_report import build_report

REPORT_INTERVAL_SECONDS: Final = 1.0
REPORT_CHECK_SECONDS: Final = 0.25
FAILURE_INTERVAL_SECONDS: Final = 0.2  # between two reports of the same replica
MAX_UNSENT_BYTES: Final = 64 << 10  # to the supervisor: then it stands still
SUPERVISOR_SEARCH_SECONDS: Final = 0.1
DRAIN_POLL_SECONDS: Final = 0.05  # in which connections just accepted become known
LAST_REPLY_SECONDS: Final = 1.0  # for clients to take the last answers


class Worker:
    def __init__(
        self,
        channel: socket.socket,
        board: LoadBoard | None,
        listeners: list[socket.socket],
        index: int,
        ledger: SharedLedger | None = None,
        control_socket: Path | None = None,
    ) -> None:
        """`control_socket`: where the next supervisor is found, should this worker's die."""
        self.loop = asyncio.get_running_loop()
        self._channel = channel
        self._board = board
        self._ledger = ledger
        self._control_socket = control_socket
        self._search_task: asyncio.Task[None] | None = None
        self._listeners = listeners
        self._index = index
        self._acceptor: Acceptor | None = None
        self._tls: ssl.SSLContext | None = None
        self._tls_fingerprint: tuple[object, ...] = ()
        self._fleet: WorkerFleet | None = None
        self._proxy: Proxy | None = None
        self._out: asyncio.StreamWriter | None = None
        self._draining = False
        self._ejections = 0  # as of the last report
        self._fallback: PassiveHealth | None = None  # with the proxy
        self._supervisor_seen_at = monotonic()
        self._supervisor_silent = False  # it is gone, or frozen
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        reader, self._out = await asyncio.open_unix_connection(sock=self._channel)
        self.loop.add_signal_handler(signal.SIGTERM, self._drain_soon, None)
        self.loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is the supervisor's business
        listening = asyncio.create_task(self._read_messages(reader))
        reporting = asyncio.create_task(self._report())
        await self.stopped.wait()
        tasks = [task for task in (listening, reporting, self._search_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._proxy is not None:
            self._proxy.close()
        if self._out is not None:
            self._out.close()
        await asyncio.sleep(0)  # what was closed is closed in the next turn

    async def _read_messages(self, reader: asyncio.StreamReader) -> None:
        frames = FrameDecoder(ToWorker)
        try:
            while data := await self._read(reader):
                self._supervisor_seen_at = now = monotonic()
                for message in frames.feed(data):
                    if isinstance(message, Apply):
                        await self._apply(message)
                    elif isinstance(message, StartServing):
                        self._start_serving()
                    elif isinstance(message, Drain):
                        self._drain_soon(message.seconds, sockets_shared=message.sockets_shared)
                    elif isinstance(message, Heartbeat):
                        self._check_supervisor(now)
                    elif self._proxy is not None and self._fleet is not None:
                        self._apply_message(message, self._proxy, self._fleet)
        except Exception as problem:  # deaf to all that follows it would serve by what was true once
            _log(f"error invalid message from the supervisor, exiting: {problem!r}")
            self.stopped.set()
            return
        self._out = None  # it is gone; the last good configuration stays in force
        if self._proxy is None:
            self.stopped.set()  # there never was one
        elif self._control_socket is not None and not self._draining:
            self._search_task = asyncio.create_task(self._find_supervisor(self._control_socket))

    async def _find_supervisor(self, control_socket: Path) -> None:
        """Gives the listening sockets to the next supervisor, and leaves when its workers serve."""
        while not self._draining:
            with suppress(HandoverError):
                await self._hand_over(control_socket)
            await asyncio.sleep(SUPERVISOR_SEARCH_SECONDS)

    async def _hand_over(self, control_socket: Path) -> None:
        """Returns when that supervisor ended too, or released us."""
        link = connect(control_socket)
        if link is None:
            return
        with link:
            send(link, OrphanedWorker(os.getpid()), self._listeners)
            answered = asyncio.Event()
            self.loop.add_reader(link, answered.set)
            try:
                await answered.wait()
            finally:
                self.loop.remove_reader(link)
            if isinstance(receive(link)[0], OrphanReleased):
                self._drain_soon(None, sockets_shared=True)

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        """Empty: it is gone. Killed before it read all we said, its connection is reset, not closed."""
        try:
            return await reader.read(1 << 16)
        except ConnectionError:
            return b""

    def _apply_message(self, message: ToWorker, proxy: Proxy, fleet: WorkerFleet) -> None:
        """Whatever goes wrong with one message, the next is heard."""
        now = monotonic()
        try:
            match message:
                case MemberUpdate():
                    fleet.update_members(message, now)
                case ReplicaEvents():
                    apply_replica_events(proxy, message.events, now)
                case LoadReadings():
                    apply_load_readings(proxy, message.loads, now)
                case DeviceCapacities() | MemorySizes() | Quarantine() | StartProgress():
                    proxy.dispatcher.memory.apply(message, now)
                    proxy.dispatcher.wake_now(now)
                case ReportRequest():
                    self._send(build_report(proxy, now, message.number))
        except Exception as problem:  # also whatever a user's own policy raises
            _log(f"error {type(message).__name__}: {type(problem).__name__}: {problem}")

    def _replica_failed(self, replica: Replica, refused: bool, now: float) -> None:
        """The supervisor should probe it. One that refuses connections is out until it is seen ready."""
        proxy, upstream = self._proxy, replica.context
        assert proxy is not None
        if proxy.balancer.ejections != self._ejections and proxy.dispatcher.peers.count:
            self._report_now(now)  # a replica was ejected: the other workers should hear of it
        if not upstream.probed or replica.state is State.GONE:
            return  # no probe would tell when it is back: the balancer's own ejection has to do
        if self._check_supervisor(now) and self._fallback is not None:
            self._fallback.request_failed(replica, refused, now)
            return
        if refused and replica.state in (State.READY, State.EJECTED):
            self._send(ReplicaFailure(upstream.model, replica.id, True))
            proxy.dispatcher.execute(proxy.balancer.report(replica.id, Event.LOST, upstream.model, now=now), now)
        elif now >= upstream.failure_reported_at + FAILURE_INTERVAL_SECONDS:
            upstream.failure_reported_at = now
            self._send(ReplicaFailure(upstream.model, replica.id, False))

    def _check_supervisor(self, now: float) -> bool:
        """Is the supervisor dead, frozen, or deaf?"""
        silent = (
            self._out is None
            or now - self._supervisor_seen_at > SUPERVISOR_TIMEOUT_SECONDS
            or self._out.transport.get_write_buffer_size() >= MAX_UNSENT_BYTES
        )
        if silent is not self._supervisor_silent:
            self._supervisor_silent = silent
            if silent:
                _log("warning no heartbeat from the supervisor: replica health follows requests only")
            elif self._fallback is not None:
                for replica in self._fallback.end():
                    self._send(ReplicaFailure(replica.context.model, replica.id, True))
        return silent

    def _send(self, message: FromWorker) -> None:
        if self._out is not None:
            self._out.write(encode_frame(message))

    async def _report(self) -> None:
        last = monotonic()
        while True:
            await asyncio.sleep(REPORT_CHECK_SECONDS)
            now = monotonic()
            if self._fallback is not None and self._check_supervisor(now):
                self._fallback.tick(now, now - self._supervisor_seen_at)
            if now - last >= REPORT_INTERVAL_SECONDS - REPORT_CHECK_SECONDS / 2 or (
                self._proxy is not None and self._proxy.dispatcher.memory.has_waiting()
            ):
                last = now
                self._report_now(now)

    def _report_now(self, now: float) -> None:
        out = self._out
        if out is not None and self._proxy is not None and not out.transport.get_write_buffer_size():
            self._ejections = self._proxy.balancer.ejections
            out.write(encode_frame(build_report(self._proxy, now)))

    async def _apply(self, message: Apply) -> None:
        try:
            made_from = tls_fingerprint(message.config.tls)
            tls = listener_context(message.config.tls) if message.config.tls is not None else None
            self._apply_config(message)
            if made_from != self._tls_fingerprint:
                self._tls, self._tls_fingerprint = tls, made_from
                if self._acceptor is not None:
                    self._acceptor.tls = tls
            self._send(Applied(message.number))
        except Exception as problem:  # also whatever a user's own policy or dialect raises
            self._send(Applied(message.number, str(problem) or repr(problem)))
            if self._proxy is None:
                sys.exit(f"steelyard worker {self._index}: {problem}")

    def _start_serving(self) -> None:
        """After the state of the fleet is known: an earlier request would find no replica ready."""
        assert self._proxy is not None
        self.loop.set_exception_handler(MemoryMonitor(self._proxy).handle_loop_exception)
        self._acceptor = Acceptor(self._proxy, self._listeners, self._tls)
        self._acceptor.open()
        gc.collect()
        gc.freeze()  # what is there now stays
        self._send(Started(os.getpid()))

    def _apply_config(self, message: Apply) -> None:
        config = message.config
        proxy, fleet = self._proxy, self._fleet
        if proxy is None or fleet is None:
            ledger = MemoryLedger(self._ledger) if self._ledger is not None else None
            proxy = Proxy(self.loop, Balancer(Random(), ledger), config)
            proxy.dispatcher.on_replica_failure = self._replica_failed
            if ledger is not None:
                proxy.dispatcher.memory = TrackedDeviceMemory(proxy, ledger, self._send)
            if self._board is not None and self._board.workers > 1:
                proxy.dispatcher.peers = PeerWorkers(proxy, self._board, self._index)
            fleet = WorkerFleet(proxy)
            self._fallback = PassiveHealth(proxy)
        if proxy.recorder.tracing_settings != config.tracing:
            self._set_tracing(proxy, config.tracing)
        # Reopened at each reload, so that a log that was moved away is let go; first, because it may fail.
        log = AccessLog(config.access_log) if config.access_log is not None else None
        decisions = None
        try:
            if config.decision_log is not None:
                workers = self._board.workers if self._board is not None else 1
                decisions = DecisionLog(config.decision_log, proxy.balancer, config, self._index, workers)
            fleet.apply(config, message.columns, monotonic(), message.devices)
        except Exception:
            for begun in (log, decisions):
                if begun is not None:
                    begun.close()
            raise
        proxy.recorder.replace_logs(log, decisions)
        self._proxy, self._fleet = proxy, fleet

    def _set_tracing(self, proxy: Proxy, settings: TracingConfig | None) -> None:
        made = None
        if settings is not None:
            from ..telemetry.otel import OtelTracer  # not everybody has it installed

            made = OtelTracer(settings, self._index)
        proxy.recorder.set_tracer(made, settings)

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
        if proxy is not None and self._acceptor is not None:
            self._acceptor.close()
            if not sockets_shared:
                self._acceptor.accept_backlog()
            for listener in self._listeners:
                listener.close()
            await asyncio.sleep(DRAIN_POLL_SECONDS)
            proxy.drain(sockets_shared=sockets_shared)
            until = monotonic() + (proxy.timeouts.drain if seconds is None else seconds)
            while proxy.clients and monotonic() < until:
                if self._out is None:  # nobody will ever say that a replica is ready
                    proxy.reject_pending(only_without_replica=True)
                await asyncio.sleep(DRAIN_POLL_SECONDS)
            self._acceptor.cancel_handshakes()
            proxy.reject_pending()
            until = monotonic() + LAST_REPLY_SECONDS
            while any(client.closing for client in proxy.clients) and monotonic() < until:
                await asyncio.sleep(DRAIN_POLL_SECONDS)
            proxy.abort_all()
            self._send(build_report(proxy, monotonic()))  # the last word, whatever else is still to be said
        self.stopped.set()


def _log(line: str) -> None:
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
