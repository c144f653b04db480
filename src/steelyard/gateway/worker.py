"""The worker process: a loop, its listeners, and the channel to the supervisor. It goes on serving when that breaks."""

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

from ..config import Tracing
from ..core.balancer import Balancer
from ..core.memory import Ledger
from ..core.replica import Event, Replica, State
from ..link.board import Board
from ..link.book import Book
from ..link.handover import HandoverError, Orphan, Relieved, connect, receive, send
from ..link.messages import (
    Alive,
    Applied,
    Apply,
    Capacity,
    Changes,
    Coming,
    Drain,
    Frames,
    FromWorker,
    Members,
    Quarantine,
    Readings,
    Serve,
    Sizes,
    Started,
    Tell,
    ToWorker,
    Trouble,
    frame,
)
from .accepting import Acceptor
from .access_log import AccessLog
from .carrier import Carrier
from .decision_log import DecisionLog
from .fallback_health import SILENT_AFTER, FallbackHealth
from .fleet import Fleet
from .memory import Memory
from .memory_left import MemoryLeft
from .neighbours import Neighbours
from .reports import report
from .tidings import take_in_changes, take_in_readings
from .tls import client_context, fingerprint

REPORT_EVERY: Final = 1.0
REPORT_SOON: Final = 0.25
TROUBLE_EVERY: Final = 0.2  # seconds between two words about trouble with the same replica
UNHEARD: Final = 64 << 10  # bytes that wait for the supervisor: it stands still
SEEK_EVERY: Final = 0.1  # seconds between looks for the next supervisor
SETTLE: Final = 0.05  # seconds in which connections that were just accepted become known
FAREWELL: Final = 1.0  # seconds for clients to take the last answers: that the gateway is stopping


class Worker:
    def __init__(
        self,
        channel: socket.socket,
        board: Board | None,
        listeners: list[socket.socket],
        index: int,
        book: Book | None = None,
        control: Path | None = None,
    ) -> None:
        """`control`: where the next supervisor is found, should this worker's die."""
        self.loop = asyncio.get_running_loop()
        self._channel = channel
        self._board = board
        self._book = book
        self._control = control
        self._seeking: asyncio.Task[None] | None = None
        self._listeners = listeners
        self._index = index
        self._acceptor: Acceptor | None = None
        self._tls: ssl.SSLContext | None = None
        self._tls_made_from: tuple[object, ...] = ()
        self._fleet: Fleet | None = None
        self._carrier: Carrier | None = None
        self._out: asyncio.StreamWriter | None = None
        self._draining = False
        self._ejections = 0  # as of the last report
        self._fallback: FallbackHealth | None = None  # with the carrier
        self._spoke = monotonic()  # when the supervisor last did
        self._silent = False  # it is gone, or has not spoken for long
        self.over = asyncio.Event()

    async def run(self) -> None:
        reader, self._out = await asyncio.open_unix_connection(sock=self._channel)
        self.loop.add_signal_handler(signal.SIGTERM, self._drain_soon, None)
        self.loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is the supervisor's business
        listening = asyncio.create_task(self._listen_to_supervisor(reader))
        reporting = asyncio.create_task(self._report())
        await self.over.wait()
        tasks = [task for task in (listening, reporting, self._seeking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._carrier is not None:
            self._carrier.close()
        if self._out is not None:
            self._out.close()
        await asyncio.sleep(0)  # what was closed is closed in the next turn

    # ------------------------------------------------------------------ the supervisor

    async def _listen_to_supervisor(self, reader: asyncio.StreamReader) -> None:
        frames = Frames(ToWorker)
        try:
            while data := await self._read(reader):
                self._spoke = monotonic()
                for message in frames.feed(data):
                    if isinstance(message, Apply):
                        await self._apply(message)
                    elif isinstance(message, Serve):
                        self._serve_clients()
                    elif isinstance(message, Drain):
                        self._drain_soon(message.seconds, relieved=message.relieved)
                    elif isinstance(message, Alive):
                        self._is_silent()
                    elif self._carrier is not None and self._fleet is not None:
                        self._hear(message, self._carrier, self._fleet)
        except Exception as problem:  # deaf to all that follows it would serve by what was true once
            _complain(f"error it does not understand the supervisor and ends: {problem!r}")
            self.over.set()
            return
        self._out = None  # it is gone; the last good configuration stays in force
        if self._carrier is None:
            self.over.set()  # there never was one
        elif self._control is not None and not self._draining:
            self._seeking = asyncio.create_task(self._seek_supervisor(self._control))

    async def _seek_supervisor(self, control: Path) -> None:
        """Give the listening sockets to the next supervisor, and leave when workers of that one serve."""
        while not self._draining:
            with suppress(HandoverError):
                await self._hand_over(control)
            await asyncio.sleep(SEEK_EVERY)

    async def _hand_over(self, control: Path) -> None:
        """Returns when that supervisor ended too, or has relieved us."""
        link = connect(control)
        if link is None:
            return
        with link:
            send(link, Orphan(os.getpid()), self._listeners)
            answered = asyncio.Event()
            self.loop.add_reader(link, answered.set)
            try:
                await answered.wait()
            finally:
                self.loop.remove_reader(link)
            if isinstance(receive(link)[0], Relieved):
                self._drain_soon(None, relieved=True)

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        """Nothing: it is gone. One that was killed before it read all we said is reset, not closed."""
        try:
            return await reader.read(1 << 16)
        except ConnectionError:
            return b""

    def _hear(
        self,
        message: Members | Changes | Readings | Capacity | Sizes | Quarantine | Coming | Tell,
        carrier: Carrier,
        fleet: Fleet,
    ) -> None:
        """What is said of replicas. Whatever goes wrong with one message, the next is heard."""
        now = monotonic()
        try:
            match message:
                case Members():
                    fleet.members(message, now)
                case Changes():
                    take_in_changes(carrier, message.changes, now)
                case Readings():
                    take_in_readings(carrier, message.readings, now)
                case Capacity() | Sizes() | Quarantine() | Coming():
                    if carrier.memory is not None:
                        carrier.memory.hear(message, now)
                        carrier.look_soon()
                case Tell():
                    self._say(report(carrier, now, message.number))
        except Exception as problem:  # also whatever a user's own policy raises
            _complain(f"error {type(message).__name__}: {type(problem).__name__}: {problem}")

    def _trouble(self, replica: Replica, refused: bool) -> None:
        """The supervisor should look at it. One where nobody listens is out until a probe has seen it ready."""
        carrier, way, now = self._carrier, replica.context, monotonic()
        assert carrier is not None
        if carrier.balancer.ejections != self._ejections and carrier.neighbours is not None:
            self._report_now()  # it, or another, was ejected just now: the other workers should hear of it
        if not way.probed or replica.state is State.GONE:
            return  # nobody could tell when it is back: the balancer's own ejection has to do
        if self._is_silent() and self._fallback is not None:
            self._fallback.failed(replica, refused, now)
            return
        if refused and replica.state in (State.READY, State.EJECTED):
            self._say(Trouble(way.model, replica.id, True))
            carrier.carry_out(carrier.balancer.report(replica.id, Event.LOST, way.model, now=now), now)
        elif now >= way.told_at + TROUBLE_EVERY:
            way.told_at = now
            self._say(Trouble(way.model, replica.id, False))

    def _is_silent(self) -> bool:
        """Is the supervisor dead, frozen, or deaf?"""
        silent = (
            self._out is None
            or monotonic() - self._spoke > SILENT_AFTER
            or self._out.transport.get_write_buffer_size() >= UNHEARD
        )
        if silent is not self._silent:
            self._silent = silent
            if silent:
                _complain("warning the supervisor is silent: requests show which replicas serve")
            elif self._fallback is not None:
                for replica in self._fallback.end():
                    self._say(Trouble(replica.context.model, replica.id, True))
        return silent

    def _say(self, message: FromWorker) -> None:
        if self._out is not None:
            self._out.write(frame(message))

    async def _report(self) -> None:
        """More often while requests wait that another replica could be started for."""
        last = monotonic()
        while True:
            await asyncio.sleep(REPORT_SOON)
            memory = self._carrier.memory if self._carrier is not None else None
            now = monotonic()
            if self._fallback is not None and self._is_silent():
                self._fallback.look(now, now - self._spoke)
            if now - last >= REPORT_EVERY - REPORT_SOON / 2 or (memory is not None and memory.lacks()):
                last = now
                self._report_now()

    def _report_now(self) -> None:
        out = self._out
        if out is not None and self._carrier is not None and not out.transport.get_write_buffer_size():
            self._ejections = self._carrier.balancer.ejections
            out.write(frame(report(self._carrier, monotonic())))

    async def _apply(self, message: Apply) -> None:
        try:
            made_from = fingerprint(message.config.tls)
            tls = client_context(message.config.tls) if message.config.tls is not None else None
            self._put_in_force(message)
            if made_from != self._tls_made_from:
                self._tls, self._tls_made_from = tls, made_from
                if self._acceptor is not None:
                    self._acceptor.tls = tls
            self._say(Applied(message.number))
        except Exception as problem:  # also whatever a user's own policy or dialect raises
            self._say(Applied(message.number, str(problem) or repr(problem)))
            if self._carrier is None:
                sys.exit(f"steelyard worker {self._index}: {problem}")

    def _serve_clients(self) -> None:
        """After all that was to be known first: a request that came before would find no replica ready."""
        assert self._carrier is not None
        self.loop.set_exception_handler(MemoryLeft(self._carrier).problem)
        self._acceptor = Acceptor(self._carrier, self._listeners, self._tls)
        self._acceptor.open()
        gc.collect()
        gc.freeze()  # what is there now stays; no need to look at it again and again
        self._say(Started(os.getpid()))

    def _put_in_force(self, message: Apply) -> None:
        config = message.config
        carrier, fleet = self._carrier, self._fleet
        if carrier is None or fleet is None:
            ledger = Ledger(self._book) if self._book is not None else None
            carrier = Carrier(self.loop, Balancer(Random(), ledger), config)
            carrier.trouble = self._trouble
            if ledger is not None:
                carrier.memory = Memory(carrier, ledger, self._say)
            if self._board is not None and self._board.workers > 1:
                carrier.neighbours = Neighbours(carrier, self._board, self._index)
            fleet = Fleet(carrier, carrier.neighbours)
            self._fallback = FallbackHealth(carrier)
        if carrier.tracing_settings != config.tracing:
            self._trace(carrier, config.tracing)
        # Anew at each reload, so that a log that was moved away is let go; first, because opening it may fail.
        log = AccessLog(config.access_log) if config.access_log is not None else None
        decisions = None
        try:
            if config.decisions is not None:
                workers = self._board.workers if self._board is not None else 1
                decisions = DecisionLog(config.decisions, carrier.balancer, config, self._index, workers)
            fleet.apply(config, message.slots, monotonic(), message.devices)
        except Exception:
            for begun in (log, decisions):
                if begun is not None:
                    begun.close()
            raise
        old, carrier.log = carrier.log, log
        old_decisions, carrier.decisions = carrier.decisions, decisions
        for ended, begun in ((old, log), (old_decisions, decisions)):
            if ended is not None:
                ended.close(0.0)  # its thread ends by itself
                if begun is not None:
                    begun.missing += ended.missing
        if decisions is not None:
            decisions.watch()
        self._carrier, self._fleet = carrier, fleet

    def _trace(self, carrier: Carrier, settings: Tracing | None) -> None:
        made = None
        if settings is not None:
            from .otel import Otel  # not everybody has it installed

            made = Otel(settings, self._index)
        old, carrier.tracing = carrier.tracing, made
        carrier.tracing_settings = settings
        if old is not None:
            old.close(0.0)  # its thread ends by itself

    # ------------------------------------------------------------------ clients

    def _drain_soon(self, seconds: float | None, relieved: bool = False) -> None:
        if self._draining:
            return
        self._draining = True
        self._drained = asyncio.create_task(self._drain(seconds, relieved))

    async def _drain(self, seconds: float | None, relieved: bool) -> None:
        """No new connections; what is in flight has its time; then the end.

        `relieved`: other workers hold the same sockets, so whoever waits to be accepted is left to them, and an idle
        connection stays open until its next request, whose answer tells the client to make another. Closed before,
        it might meet a request that is under way.
        """
        carrier = self._carrier
        if carrier is not None and self._acceptor is not None:
            self._acceptor.close()
            if not relieved:
                self._acceptor.accept_rest()
            for listener in self._listeners:
                listener.close()
            await asyncio.sleep(SETTLE)
            carrier.drain(relieved=relieved)
            until = monotonic() + (carrier.timeouts.drain if seconds is None else seconds)
            while carrier.clients and monotonic() < until:
                if self._out is None:  # nobody will ever say that a replica is ready
                    carrier.turn_away(hopeless=True)
                await asyncio.sleep(SETTLE)
            self._acceptor.cancel()
            carrier.turn_away()
            until = monotonic() + FAREWELL
            while any(client.ended for client in carrier.clients) and monotonic() < until:
                await asyncio.sleep(SETTLE)
            carrier.cut_off()
            self._say(report(carrier, monotonic()))  # the last word, whatever else is still to be said
        self.over.set()


def _complain(line: str) -> None:
    """To the supervisor's log; if there is none any more, nobody reads it."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
