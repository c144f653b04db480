"""What a request costs in the balancer process: its messages decoded, decided on and answered, without the sockets.

    python -m benchmarks.balancer_process [--replicas 4,64] [--batch 8] [--profile]

The balancer process is the limit of what several workers carry together: one core ÷ this is the most they can.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from random import Random
from time import process_time
from typing import Any

from steelyard.core.balancer import Balancer
from steelyard.core.options import PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.gateway.balancer_process.server import BalancerServer
from steelyard.gateway.shared_balancer.messages import (
    OUTCOME_CODES,
    OVER,
    BalancerMessage,
    Finish,
    Submit,
    WorkerMessage,
    decoder,
    encode_messages,
)

from .testbed.machine import describe

ROUNDS = 5
SERVICE_SECONDS = 0.01
INFINITY = float("inf")


def submit(number: int, at: float) -> Submit:
    size = float(100 + number * 37 % 900)
    return Submit(
        number, "m", at, (size, 128.0, 1.0), "chat", "", "", None, 0.0, INFINITY, INFINITY, False, 0, True, 0, False
    )


class Process:
    """The balancer process, with a worker that sends `batch` requests a frame, and what became of earlier ones."""

    def __init__(self, replicas: int, batch: int) -> None:
        self.balancer = Balancer(Random(1))
        self.balancer.add_model("m", "least_work", PoolOptions(slow_start=0.0), now=0.0)
        for place in range(replicas):
            self.balancer.add_replica(f"http://127.0.0.1:{9000 + place}", "m", now=0.0)
        self.server = BalancerServer(self.balancer, lambda when, now: None)
        self.answers: list[Any] = []
        self.link = self.server.add_worker(self.answers.append)
        self.decode = decoder(WorkerMessage).decode
        self.read_answers = decoder(BalancerMessage).decode
        self.batch = batch
        self.number = 0
        self.now = 0.0
        self.replica_of: list[tuple[int, str]] = []

    def frames(self, count: int) -> float:
        """Seconds of CPU for `count` requests."""
        spent = 0.0
        for _ in range(count // self.batch):
            self.now += SERVICE_SECONDS
            messages: list[Any] = [
                Finish(number, replica, OUTCOME_CODES[Outcome.OK], self.now, OVER, 0, 0.0)
                for number, replica in self.replica_of
            ]
            for _ in range(self.batch):
                self.number += 1
                messages.append(submit(self.number, self.now))
            frame = encode_messages(messages)
            began = process_time()
            self.server.receive(self.link, self.decode(memoryview(frame)[4:]), self.now)
            out = encode_messages(self.answers)
            spent += process_time() - began
            self.answers.clear()
            self.replica_of = [(answer.number, answer.replica) for answer in self.read_answers(out[4:])]
            if self.balancer.wake <= self.now:
                self.server.expire(self.now)
        return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", default="4,64")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    print(describe("python -m benchmarks.balancer_process"))
    for replicas in map(int, options.replicas.split(",")):
        process = Process(replicas, options.batch)
        process.frames(5_000)
        profiler = cProfile.Profile()
        if options.profile:
            profiler.enable()
        best = min(process.frames(options.requests) for _ in range(ROUNDS)) / options.requests
        profiler.disable()
        print(f"{replicas} replicas: {best * 1e6:.2f} µs a request, {1 / best:,.0f} requests/s at most")
        if options.profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
