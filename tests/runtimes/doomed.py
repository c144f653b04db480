"""`python -m tests.runtimes.doomed NAME LOG SCRIPT`: a supervisor that starts a replica and waits to be killed."""

from __future__ import annotations

import asyncio
import sys

from steelyard.runtimes import ReplicaSpec
from steelyard.runtimes.process.config import ProcessRuntimeConfig as Settings
from steelyard.runtimes.process.runtime import ProcessRuntime

from .commands import shell


async def main(name: str, log: str, script: str) -> None:
    runtime = ProcessRuntime(name)
    for instance in await runtime.list():
        print("found", instance.id, flush=True)
    settings = Settings(command=shell(script), environment={"PORT": "{port}"}, log_directory=log, cpus=1)
    if script:
        started = await runtime.start(ReplicaSpec("m", "one", settings, device="gpu0"))
        print(started.location, started.url, flush=True)
    print("waits", flush=True)
    await asyncio.sleep(1000)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
