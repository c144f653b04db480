"""The demo's replicas as processes: started together, killed together, and never left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import msgspec

from ..control.errors import StartError
from .tied import command

# Name → how often it does all its work. The answers are the same, they come later.
SPEEDS: Mapping[str, int] = MappingProxyType({"fast": 1, "half": 2, "quarter": 4})
START = 60.0  # seconds: a cold disk may be slow, but nobody waits longer than this

# One thread each: three replicas share a machine that may have two cores, and a thread more would be nobody's speed-up.
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class ReplicaProcess(msgspec.Struct, frozen=True):
    name: str
    passes: int
    pid: int
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def replicas(speeds: Mapping[str, int] = SPEEDS) -> AsyncIterator[list[ReplicaProcess]]:
    """Ready to serve. StartError: one is not, and none is left."""
    started: dict[str, subprocess.Popen[str]] = {}
    try:
        for name, passes in speeds.items():
            started[name] = _start(passes)
        yield [await _ready(name, speeds[name], process) for name, process in started.items()]
    finally:
        for process in started.values():
            process.kill()  # even if somebody stopped it with SIGSTOP to see what happens
        for process in started.values():
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _start(passes: int) -> subprocess.Popen[str]:
    """Not with asyncio's own, which forgets a process if it is interrupted while it starts one."""
    return subprocess.Popen(
        [*command("steelyard.demo.replica"), "--passes", str(passes)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **_ONE_THREAD},
        process_group=0,  # Ctrl-C in the terminal is for the demo alone
    )


async def _ready(name: str, passes: int, process: subprocess.Popen[str]) -> ReplicaProcess:
    assert process.stdout is not None
    try:
        said = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), START)
    except TimeoutError:
        raise StartError(f"replica {name} was not ready after {START:.0f} s; is the machine very busy?") from None
    if not said:
        code = process.wait()
        raise StartError(f"replica {name} ended with exit code {code} before it was ready; it said why above")
    return ReplicaProcess(name, passes, process.pid, int(said))
