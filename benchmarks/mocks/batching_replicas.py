"""Batching replicas for `benchmarks.replay`: `python -m benchmarks.mocks.batching_replicas PORT PORT …`.

Like `timed_replicas`, but n concurrent requests each take 1 + SLOPE × (n - 1) times as long, as in a batch.
"""

from __future__ import annotations

import asyncio
import sys
from time import monotonic

import uvloop

from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.servers import BatchServer
from steelyard.simulate.scenario.schema import Batching

from ..load.timer import Timer
from .timed_replicas import Connection, Plan, Replica

BATCH_SLOPE = 0.4
MAX_BATCH = 1_000_000


class BatchingReplica(Replica):
    """The simulator's server, by the clock."""

    def plan(self, plan: Plan) -> None:
        super().plan(plan)
        self.server_model = BatchServer(
            str(self.place), self.service_times.speed, MAX_BATCH, Batching(slope=BATCH_SLOPE)
        )

    def serve(self, connection: Connection, work: float) -> None:
        now = monotonic()
        job = Job(now, work, ())
        job.context = connection
        self.server_model.accept(job, now, self.schedule)

    def schedule(self, when: float, job: Job) -> None:
        server = self.server_model

        def due() -> None:
            if job.finish == when and server is self.server_model:
                job.finish = -1.0
                server.ended(job, when, self.schedule)
                self.answer(job.context, when)

        self.timer.at(when, due)


async def serve(ports: list[int]) -> None:
    timer = Timer(asyncio.get_running_loop())
    Connection.all = tuple(BatchingReplica(place, port, timer) for place, port in enumerate(ports))
    for replica in Connection.all:
        await replica.listen()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve([int(text) for text in sys.argv[1:]]))
