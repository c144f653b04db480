"""Replicas as processes of this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from ...config.commands import fill_in, uses_placeholder
from ...core.errors import MisuseError
from ..base import Instance, ReplicaSpec, ReplicaStartError
from . import log_files, ownership, procfs
from .allocation import HostAddress, PortAllocator, address_of, check_free, choose_cpus, host_addresses
from .command import command, environment, placeholder_values, spawn, working_directory
from .config import ProcessRuntimeConfig, parse_port_range
from .managed_process import ManagedProcess
from .ownership import Descendants, NameLock

LOG_CHECK_INTERVAL_SECONDS = 1.0
MAX_ENDED_REPLICAS = 200  # whose logs can still be read

log = logging.getLogger("steelyard.control")
Key = tuple[str, str]


class ProcessRuntime:
    """Replicas run in sessions of their own and write to files, so that they outlive the supervisor."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._claim = NameLock(gateway)
        self._ports = PortAllocator(gateway)
        self._running: dict[Key, ManagedProcess] = {}
        self._ended: dict[Key, ManagedProcess] = {}
        self._watchers: list[Callable[[Instance], None]] = []
        self._closed = False
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def start(self, spec: ReplicaSpec) -> Instance:
        self._check_open()
        places = await host_addresses(spec.settings.url)
        # No `await` from here on: no two replicas get the same port or cores.
        if (running := self._running.get((spec.model, spec.id))) is not None:
            raise ReplicaStartError("failed", f"{spec.id} of model {spec.model} runs already, as pid {running.pid}")
        folder = working_directory(spec)
        port = self._port(spec, places)
        facts = self._facts(spec, port, places)
        filling = placeholder_values(spec, port, facts.url)
        marked = ownership.ownership_variables(self._gateway, spec.model, spec.id, facts)
        variables = environment(spec, filling, len(facts.cpus), marked)
        path = Path(facts.log_path)
        pid, born = spawn(command(spec, filling, variables, folder), variables, folder, path, facts.cpus)
        running = ManagedProcess(ownership.OwnedProcess(pid, born, spec.model, spec.id, facts), self._over)
        self._running[spec.model, spec.id] = running
        self._ended.pop((spec.model, spec.id), None)
        log_files.remove_old_logs(path.parent, {one.record.log_path for one in self._running.values()})
        return running.instance

    async def stop(self, model: str, id: str, *, timeout: float) -> None:
        self._check_open()
        running = self._running.get((model, id)) or self._ended.get((model, id))
        if running is not None:
            await running.stop(timeout)

    async def list(self, predecessor_pid: int = 0) -> tuple[Instance, ...]:
        if other := await asyncio.to_thread(self._claim.acquire_or_holder):
            log.warning("%s is a gateway named %r too: its replicas are left alone", other, self._gateway)
        else:
            replicas, others = await asyncio.to_thread(ownership.find_owned, self._gateway, predecessor_pid)
            for found in replicas:
                self._adopt(found)
            for found in others:
                log.warning("killed pid %d, left by %s of model %s", found.pid, found.id, found.model)
                await asyncio.to_thread(Descendants(0, 0, found.record.token).signal_all, signal.SIGKILL)
        return tuple(running.instance for running in self._running.values())

    def watch(self, callback: Callable[[Instance], None]) -> None:
        self._watchers.append(callback)

    def log_tail(self, model: str, id: str, lines: int = 20) -> tuple[str, ...]:
        running = self._running.get((model, id)) or self._ended.get((model, id))
        return () if running is None else log_files.last_lines(running.record.log_path, running.log_from, lines)

    def release(self) -> None:
        self._claim.release()

    async def close(self) -> None:
        self._closed = True
        self._watchers.clear()
        self._looking.cancel()
        self._claim.release()
        for running in (*self._running.values(), *self._ended.values()):
            running.close()
        with suppress(asyncio.CancelledError):
            await self._looking

    def _check_open(self) -> None:
        if self._closed:  # ends are no longer seen, and a stop would seem done at once
            raise MisuseError("the runtime is closed: stop what should not go on before that")

    def _facts(self, spec: ReplicaSpec, port: int, places: set[HostAddress]) -> ownership.StartRecord:
        url = fill_in(spec.settings.url, placeholder_values(spec, port, ""))
        self._check_free(spec, url, places)
        log = self._log(spec)
        return ownership.StartRecord(
            token=token_hex(8),
            url=url,
            supervisor=_this_process(),
            device=spec.device,
            fingerprint=spec.settings.fingerprint(),
            log_path=str(log),
            log_size=int(spec.settings.max_log_size),
            log_offset=log_files.size_of(log),
            cpus=self._cores(spec.settings.cpus),
            number=spec.number,
        )

    def _port(self, spec: ReplicaSpec, places: set[HostAddress]) -> int:
        """0: none is needed."""
        settings: ProcessRuntimeConfig = spec.settings
        if not any(uses_placeholder(text, "port") for text in (settings.url, *settings.templates())):
            return 0
        try:
            first, last = parse_port_range(settings.port_range)
        except ValueError as problem:
            raise ReplicaStartError("no_free_port", str(problem)) from None
        return self._ports.choose(first, last, places, {one.address.port for one in self._running.values()})

    def _check_free(self, spec: ReplicaSpec, url: str, places: set[HostAddress]) -> None:
        address = address_of(url)
        for one in self._running.values():
            if one.address == address:
                what = f"{address} belongs to {one.id} of model {one.model}, pid {one.pid}"
                raise ReplicaStartError("port_in_use", what)
        if not uses_placeholder(spec.settings.url, "port"):  # otherwise it was chosen because it is free
            check_free(address, places)

    def _cores(self, wanted: int | None) -> tuple[int, ...]:
        if wanted is None:
            return ()
        return choose_cpus(wanted, os.sched_getaffinity(0), [one.record.cpus for one in self._running.values()])

    def _log(self, spec: ReplicaSpec) -> Path:
        try:
            path = log_files.log_file(spec.settings.log_directory, self._gateway, spec.model, spec.id)
            return log_files.unused_path(path)
        except RuntimeError:
            what = "there is no home folder to keep logs in: name a folder (`log_directory` of the runtime)"
            raise ReplicaStartError("failed", what) from None

    def _adopt(self, found: ownership.OwnedProcess) -> None:
        known = self._running.get((found.model, found.id))
        if known is not None and known.pid != found.pid:
            log.warning("pids %d and %d are both %s of model %s", known.pid, found.pid, known.id, known.model)
        if known is None and not self._closed:
            with suppress(ProcessLookupError):
                self._running[found.model, found.id] = ManagedProcess(found, self._over)

    def _over(self, running: ManagedProcess) -> None:
        key = running.model, running.id
        if self._running.get(key) is running:
            del self._running[key]
        self._ended[key] = running
        while len(self._ended) > MAX_ENDED_REPLICAS:
            del self._ended[next(iter(self._ended))]
        for callback in self._watchers:
            try:
                callback(running.instance)
            except Exception:
                log.exception("the end of %s of model %s could not be recorded", running.id, running.model)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_INTERVAL_SECONDS)
            for running in tuple(self._running.values()):
                running.poll()
                if log_files.needs_rotation(running.record.log_path, running.record.log_size):
                    await asyncio.to_thread(log_files.rotate, running.record.log_path, running.record.log_size)
                    running.log_from = 0


def _this_process() -> tuple[int, int]:
    seen = procfs.stat(os.getpid())
    return os.getpid(), seen.start_ticks if seen is not None else 0
