"""Open-loop load in the Open Inference Protocol: requests sent when they are due, each an idempotent inference."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Callable, Iterable
from time import monotonic, sleep

import uvloop

from steelyard.simulate.engine.job import Job
from steelyard.simulate.scenario.schema import ReplicaGroup, Scenario, Sizes, Workload
from steelyard.simulate.workload.generator import random_jobs

from ..peers.health_checked import MODEL
from ..testbed.processes import ManagedProcess, StartError
from .open_loop import OpenLoop, Outcome, RequestConnection

PATH = f"/v2/models/{MODEL}/infer"
BODY = (
    b'{"parameters": {"work": "%.6f"}, "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}'
)
HEAD = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


def request(work: float) -> bytes:
    body = BODY % work
    return HEAD % (PATH.encode(), len(body), body)


def jobs(replicas: int, sizes: Sizes, rate: float, seconds: float, seed: int) -> Iterable[Job]:
    """Poisson arrivals for that many seconds."""
    workload = Workload(sizes=sizes, features=0.0)
    scenario = Scenario(
        name="inferences",
        fleet=(ReplicaGroup(count=replicas),),
        workload=workload,
        requests=max(1, round(rate * seconds)),
    )
    return random_jobs(scenario, rate, seed)


class InferenceConnection(RequestConnection):
    def call(self, job: Job) -> None:
        self.job = job
        self.send(request(job.work))


class InferenceLoad(OpenLoop):
    async def open(self, job: Job) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, caller = await loop.create_connection(lambda: InferenceConnection(self), "127.0.0.1", self.port)
        except OSError:
            self.answered(job, None, b"")
        else:
            caller.call(job)


def run(port: int, begin: float, todo: Iterable[Job], progress: Callable[[], None]) -> Outcome:
    async def main() -> Outcome:
        return await InferenceLoad(port, begin).run(todo, progress)

    return uvloop.run(main())


def wait_until_served(running: ManagedProcess, port: int, seconds: float = 60.0) -> None:
    """A port that accepts is not yet a proxy that knows its replicas."""
    end = monotonic() + seconds
    while (status := ask(port)) != "200":
        if running.process.poll() is not None or monotonic() > end:
            raise StartError(f"{running.name} answers {status}, not 200:\n{running.log_tail()}")
        sleep(0.1)


def ask(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request("POST", PATH, BODY % 0.001, {"content-type": "application/json"})
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as problem:
        return repr(problem)
    finally:
        connection.close()
