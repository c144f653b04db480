"""A supervisor with workers that are quick to start, and what to ask them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest
import uvloop

from steelyard.addresses import Address
from steelyard.config import Config, parse_config
from steelyard.control.supervisor.supervisor import Supervisor

FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
WAIT_TIMEOUT_SECONDS = 30.0  # until a test gives up waiting


def config(
    workers: int = 1, listen: str = "127.0.0.1:0", models: str = "m", more: str = "", replica_tls: str = "{}"
) -> Config:
    one = f"{{replicas: [{{url: 'https://127.0.0.1:9'}}], health: {{enabled: false}}, tls: {replica_tls}}}"
    named = "".join(f"  {name}: {one}\n" for name in models.split())
    return parse_config(f"listen: {listen}\nworkers: {workers}\nadmin: {{listen: ''}}\nmodels:\n{named}{more}")


def run(work: Coroutine[Any, Any, None]) -> None:
    """On the loop that `steelyard serve` uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work, 4 * WAIT_TIMEOUT_SECONDS))


@asynccontextmanager
async def supervised(
    made: Config | None = None, *, drain: float = WAIT_TIMEOUT_SECONDS, **options: Any
) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(made or config(), command=FAKE, **options)
    await supervisor.start()
    try:
        yield supervisor
    finally:
        if not supervisor.superseded.is_set():  # else it has left
            await supervisor.stop(drain)


async def ask(supervisor: Supervisor, path: str = "/", address: Address | None = None) -> tuple[int, int, int]:
    """Who answers: index, pid, and the number of its configuration."""
    where = address or supervisor.addresses[0]
    if where.path:
        reader, writer = await asyncio.open_unix_connection(where.path)
    else:
        reader, writer = await asyncio.open_connection(where.host, where.port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        answer = await reader.read()
    finally:
        writer.close()
    if not answer:
        raise ConnectionResetError("no answer")
    index, pid, number = answer.rpartition(b"\r\n\r\n")[2].split()
    return int(index), int(pid), int(number)


async def refused(supervisor: Supervisor) -> int:
    """Until nobody takes connections any more; how often somebody still answered."""
    answers = 0
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        with suppress(ConnectionError):
            while await ask(supervisor):
                answers += 1
    return answers


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        while not true():
            await asyncio.sleep(0.01)


def serving(supervisor: Supervisor) -> list[int]:
    """The pids of the workers that serve."""
    return [worker.pid for worker in supervisor.status().workers if worker.serving]


def die_young(patch: pytest.MonkeyPatch) -> None:
    """Whoever ends seems to have died of its start, however slow that was; and one more try at once is enough."""
    patch.setattr("steelyard.control.workers.slot.HEALTHY_LIFETIME_SECONDS", inf)
    patch.setattr("steelyard.control.workers.slot.IMMEDIATE_RESTARTS", 1)


def release(pids: Iterable[int]) -> None:
    """Whoever waits for an answer at /held has it now."""
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno >= level)
