"""A runtime for a test, and the certainty that nothing of it is left afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from uuid import uuid4

import uvloop

from steelyard.runtimes import Instance, InstancePhase, Runtime
from steelyard.runtimes.process import procfs
from steelyard.runtimes.process.ownership import GATEWAY_VARIABLE
from steelyard.runtimes.process.runtime import ProcessRuntime

WAIT_TIMEOUT_SECONDS = 30.0  # until a test gives up waiting


_left: dict[str, set[int]] = {}  # by the gateway's name, what ran when a runtime was closed


def run(work: Coroutine[Any, Any, None], loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(work, 4 * WAIT_TIMEOUT_SECONDS))


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        while not true():
            await asyncio.sleep(0.01)


@contextmanager
def gateway() -> Iterator[str]:
    """A name that no other test has. In the end nothing runs any more that was started under it."""
    name = f"test {uuid4().hex[:12]}"
    try:
        yield name
    finally:
        for pid in {*_children(name), *started_under(name)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children(name: str) -> list[int]:
    """Those that had not yet begun their program when they were looked at have no marks."""
    stats = {pid: procfs.stat(pid) for pid in _left.pop(name, ())}
    return [pid for pid, seen in stats.items() if seen is not None and seen.parent == os.getpid()]


def started_under(name: str) -> list[int]:
    """Replicas and whatever they started."""
    return [pid for pid in procfs.pids() if procfs.environment(pid).get(GATEWAY_VARIABLE) == name]


@asynccontextmanager
async def opened(name: str) -> AsyncIterator[ProcessRuntime]:
    runtime = ProcessRuntime(name)
    try:
        yield runtime
    finally:
        _left.setdefault(name, set()).update(pid_of(instance) for instance in await runtime.list())
        await runtime.close()


def ends(runtime: Runtime) -> list[Instance]:
    """A list that grows with each replica that ends from now on."""
    heard: list[Instance] = []
    runtime.watch(lambda instance: heard.append(instance) if instance.phase is InstancePhase.ENDED else None)
    return heard


async def until_said(runtime: Runtime, instance: Instance, word: str) -> None:
    await until(lambda: word in "\n".join(runtime.log_tail(instance.model, instance.id)))


def pid_of(instance: Instance) -> int:
    return int(instance.location.removeprefix("pid "))


def spare_ports() -> int:
    """The first of three that nobody has, and that neither the kernel gives to outgoing connections nor a runtime by
    itself to a replica."""
    begin = 3 * os.getpid()
    places = (30000 + (begin + 3 * number) % 2700 for number in range(900))
    return next(first for first in places if all(map(_is_free, range(first, first + 3))))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
