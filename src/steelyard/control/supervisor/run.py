"""Runs a supervisor as a program: signals in, exit code out."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from typing import Any

from ...addresses import Address
from .supervisor import Supervisor

EXIT_REQUESTS_LOST = 1
TAKE_OVER_FLAG = "--take-over"
SUCCESSOR_POLL_SECONDS = 0.2
log = logging.getLogger("steelyard.control")


async def run(supervisor: Supervisor, *next_steps: str) -> int:
    """Returns the exit code. `next_steps` are logged when it listens.

    SIGTERM and SIGINT drain, the second one ends at once; SIGHUP reloads; SIGUSR2 starts a successor.
    """
    orders = _Signals(supervisor)
    starting = asyncio.ensure_future(supervisor.start())
    await orders.stop_or(starting)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        return 0  # nothing was in flight
    starting.result()
    log.info("listening on %s", " and ".join(urls(supervisor)))
    if supervisor.admin_address is not None:
        log.info("dashboard and admin API on %s", _url(supervisor.admin_address))
    log.info("next: send requests to %s as to a replica", urls(supervisor)[0])
    for step in next_steps:
        log.info("%s", step)
    await orders.stop_or(asyncio.ensure_future(supervisor.superseded.wait()))
    drain = supervisor.config.timeouts.drain
    if not orders.given:
        log.info("taken over: another gateway serves from now on; requests in flight here have %g s", drain)
        clean = await supervisor.finish_handover()
        log.info("stopped after the take-over") if clean else log.error("stopped, but not every request could finish")
        return 0 if clean else EXIT_REQUESTS_LOST
    log.info("stopping: no new connections; requests in flight have %g s; the same signal again ends them now", drain)
    clean = await supervisor.stop()
    if len(orders.given) > 1:
        log.warning("second signal: stopped at once")
        return 128 + orders.given[1]
    log.info("stopped") if clean else log.error("stopped, but not every request could finish")
    return 0 if clean else EXIT_REQUESTS_LOST


def urls(supervisor: Supervisor) -> list[str]:
    scheme = "https" if supervisor.config.tls else "http"
    return [_url(address, scheme) for address in supervisor.addresses]


def _url(address: Address, scheme: str = "http") -> str:
    if address.path:
        return str(address)
    return f"{scheme}://{address.authority if address.host else f'0.0.0.0:{address.port}'}"


class _Signals:
    def __init__(self, supervisor: Supervisor) -> None:
        self.given: list[int] = []
        self._supervisor = supervisor
        self.stop = asyncio.Event()
        self._terminal = os.isatty(sys.stderr.fileno())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        loop.add_signal_handler(signal.SIGUSR2, self._upgrade)
        self._upgrading: asyncio.Task[None] | None = None

    async def stop_or(self, task: asyncio.Future[Any]) -> None:
        stop = asyncio.ensure_future(self.stop.wait())
        both: set[asyncio.Future[Any]] = {stop, task}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()

    def _told_to_stop(self, number: int) -> None:
        self.given.append(number)
        self.stop.set()
        if len(self.given) > 1:
            self._supervisor.stop_now()

    def _hang_up(self) -> None:
        """Reloads, or stops if the terminal we were started from is gone."""
        if self._terminal and not os.isatty(sys.stderr.fileno()):
            self._told_to_stop(signal.SIGHUP)
        else:
            log.info("SIGHUP: reloading")
            self._supervisor.request_reload()

    def _upgrade(self) -> None:
        if self._upgrading is not None and not self._upgrading.done():
            log.warning("SIGUSR2 ignored: the successor is not ready yet")
            return
        self._upgrading = asyncio.ensure_future(self._start_successor())

    async def _start_successor(self) -> None:
        """Starts the installed version with the same arguments. It logs its own failure."""
        more = () if TAKE_OVER_FLAG in sys.argv else (TAKE_OVER_FLAG,)
        log.info("SIGUSR2: starting the version that is installed now; it takes over when it is ready")
        try:
            successor = subprocess.Popen([sys.executable, *sys.orig_argv[1:], *more], stdin=subprocess.DEVNULL)
        except OSError as problem:
            log.error("SIGUSR2: no successor can be started: %s; this one keeps serving", problem)
            return
        while not self._supervisor.superseded.is_set():
            await asyncio.sleep(SUCCESSOR_POLL_SECONDS)
            if (code := successor.poll()) is not None:
                log.error("SIGUSR2: the successor ended with exit code %d; this one keeps serving", code)
                return
