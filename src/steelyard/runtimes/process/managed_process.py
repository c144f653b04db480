"""A process that is a replica: our child, or one that an earlier supervisor left."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from ...addresses import Address, replica_address
from ...system import describe_exit
from ..base import Instance, InstancePhase
from . import log_files, procfs
from .ownership import Descendants, OwnedProcess

KILL_TIMEOUT_SECONDS = 60.0  # a driver that hangs can take for ever
SWEEP_INTERVAL_SECONDS, MAX_SWEEPS = 0.05, 100  # for what it left behind
MAX_SWEEP_INTERVAL_SECONDS = 1.0  # while that has time to end
EXIT_UNKNOWN = "ended (exit code unknown: it was started by an earlier supervisor)"

log = logging.getLogger("steelyard.control")


class ManagedProcess:
    """Needs a running loop. ProcessLookupError: it is gone already."""

    def __init__(self, found: OwnedProcess, ended: Callable[[ManagedProcess], None]) -> None:
        self.pid, self.born, self.model, self.id, self.record = found
        self.log_from = self.record.log_offset
        self.address = address_or_none(self.record.url)
        self.exit_reason = ""
        self.ended = False
        self._on_end = ended
        self._asked = False
        self._until = 0.0  # it has time, since it was asked to end
        self._killed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()  # when nothing is left of it
        self._sweeping: asyncio.Task[None] | None = None
        self._handle = self._open()

    def _open(self) -> int | None:
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            raise
        except OSError:  # a kernel without them, or no file descriptor left: then `poll` is called periodically
            return None
        if not self._is_there():  # its number is another's by now
            os.close(handle)
            raise ProcessLookupError
        self._loop.add_reader(handle, self._end)
        return handle

    @property
    def instance(self) -> Instance:
        return Instance(
            self.model,
            self.id,
            self.record.url,
            self.record.device,
            self.record.fingerprint,
            InstancePhase.ENDED if self.ended else InstancePhase.RUNNING,
            procfs.age(self.born),
            self.exit_reason,
            f"pid {self.pid}",
            self.record.log_path,
        )

    def poll(self) -> None:
        if self._handle is None and not self.ended:
            seen = procfs.stat(self.pid)
            if seen is None or seen.start_ticks != self.born or not seen.is_alive:
                self._end()

    async def stop(self, timeout: float) -> None:
        """Returns when it is gone. It is asked alone, as many servers stop their children in order; what outlives it is
        asked too, and has the time that is left."""
        self._until = max(self._until, self._loop.time() + timeout)
        if not self._asked:  # a second SIGTERM makes some servers drop what they still do
            self._asked = True
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped one could not react
        if await self._is_gone(timeout):
            return
        self._kill()
        if not await self._is_gone(KILL_TIMEOUT_SECONDS):
            log.error("pid %d (%s of model %s) survives SIGKILL", self.pid, self.id, self.model)

    def close(self) -> None:
        self._let_go()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

    async def _is_gone(self, timeout: float) -> bool:
        await asyncio.wait([self.gone], timeout=max(timeout, 0.0))
        return self.gone.done()

    def _is_there(self) -> bool:
        seen = procfs.stat(self.pid)
        return seen is not None and seen.start_ticks == self.born

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)
            elif not self.ended and self._is_there():
                os.kill(self.pid, number)

    def _kill(self) -> None:
        self._killed.set()
        self._signal(signal.SIGKILL)
        if not self.ended and self._is_there():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def _let_go(self) -> None:
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    def _end(self) -> None:
        self._let_go()
        self.exit_reason = self._reap()
        if not self._asked and log_files.is_full(self.record.log_path):  # many servers end when printing fails
            self.exit_reason += f"; the disk of its log is full ({self.record.log_path})"
        self.ended = True
        self._sweeping = self._loop.create_task(self._sweep())
        self._on_end(self)

    @property
    def _has_time(self) -> bool:
        """Only if it was asked to end."""
        return self._asked and not self._killed.is_set()

    def _reap(self) -> str:
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if not self._has_time:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)  # before its pid can be reused
            _, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return EXIT_UNKNOWN
        return describe_exit(os.waitstatus_to_exitcode(status))

    async def _sweep(self) -> None:
        """What it left behind may hold its port or its GPU."""
        relatives = Descendants(self.pid, self.born, self.record.token)
        try:
            if self._has_time:
                await self._let_end(relatives)
            for _ in range(MAX_SWEEPS):
                if not await asyncio.to_thread(relatives.signal_all, signal.SIGKILL):
                    break
                await asyncio.sleep(SWEEP_INTERVAL_SECONDS)
            else:
                log.error("pid %d (%s of model %s) left processes that survive SIGKILL", self.pid, self.id, self.model)
            if log_files.needs_rotation(self.record.log_path, self.record.log_size):
                await asyncio.to_thread(log_files.rotate, self.record.log_path, self.record.log_size)
                self.log_from = 0
        finally:
            if not self.gone.done():
                self.gone.set_result(None)

    async def _let_end(self, relatives: Descendants) -> None:
        pause = SWEEP_INTERVAL_SECONDS
        while await asyncio.to_thread(relatives.signal_all, signal.SIGTERM, signal.SIGCONT):
            left = self._until - self._loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(pause, left))):
                    await self._killed.wait()
            if self._killed.is_set() or left <= 0.0:
                return
            pause = min(MAX_SWEEP_INTERVAL_SECONDS, 2.0 * pause)


def address_or_none(url: str) -> Address:
    try:
        return replica_address(url)
    except ValueError:  # its marks are damaged
        return Address()
