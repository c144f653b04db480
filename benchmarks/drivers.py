"""Workers that share one balancer, in the simulator: p99 with several of them against one balancer's.

    python -m benchmarks.drivers [--drivers 4,8] [--delay 100us] [--requests 40000] [--seeds 5]

Real messages between real workers' ends (`BalancerClient`) and the balancer process's server, in virtual time; each
message takes `--delay`. Requests come to the workers at random, as connections do. The figures do not depend on the
machine, only on the commit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from steelyard.core.balancer import Balancer
from steelyard.core.request import INFINITY
from steelyard.gateway.balancer_process.server import BalancerServer
from steelyard.gateway.shared_balancer.client import BalancerClient
from steelyard.gateway.shared_balancer.messages import BalancerMessage, WorkerMessage, decoder, encode_messages
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.engine.simulation import Simulation
from steelyard.simulate.run import Task, build_balancer, build_servers, make_jobs, run_task
from steelyard.simulate.scenario.schema import ReplicaGroup, Scenario, Sizes, Workload
from steelyard.units import parse_duration

from .testbed.machine import describe
from .testbed.rounds import verdict

GOAL_P99_RATIO = 1.05  # several drivers' ÷ one balancer's
FRAME_LENGTH_BYTES = 4
SIZES = Sizes(kind="lognormal")
FLEETS = {
    "even": (ReplicaGroup(count=8),),
    "uneven (1:2:4)": (ReplicaGroup(count=4), ReplicaGroup(count=2, speed=2.0), ReplicaGroup(count=2, speed=4.0)),
}
POLICIES = ("least_work@1", "least_work", "least_work@auto", "least_connections@1")


class DrivenSimulation(Simulation):
    """Its balancers ask a balancer process; messages are delivered late."""

    def __init__(self, *arguments: Any, delay: float, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._delay = delay
        self._under_way = 0
        self.server: BalancerServer | None = None

    def connect(self, balancer: Balancer) -> None:
        self.server = server = BalancerServer(balancer, self._wake_by)
        for client in self.balancers:
            assert isinstance(client, BalancerClient)
            self._connect(server, client)
        self.call_at(balancer.wake, self._expire)

    def _connect(self, server: BalancerServer, client: BalancerClient) -> None:
        def to_worker(sent: list[Any], now: float) -> None:
            self.carry_out(client.receive(sent, now), now)

        def to_server(sent: list[Any], now: float) -> None:
            server.receive(link, sent, now)

        link = server.add_worker(self._line(BalancerMessage, to_worker))
        up = self._line(WorkerMessage, to_server)
        client.connect(up, up)

    def _line(self, kind: Any, deliver: Callable[[list[Any], float], None]) -> Callable[[Any], None]:
        decode = decoder(kind).decode

        def send(message: Any) -> None:
            frame = encode_messages([message])
            self._under_way += 1

            def arrive(now: float) -> None:
                self._under_way -= 1
                deliver(decode(frame[FRAME_LENGTH_BYTES:]), now)

            self.call_at(self.now + self._delay, arrive)

        return send

    def _wake_by(self, when: float, now: float) -> None:
        self.call_at(max(when, now), self._expire)

    def _expire(self, now: float) -> None:
        assert self.server is not None
        if now < self.server.balancer.wake:
            return  # it was due earlier, and was done
        self.server.expire(now)
        if self.server.balancer.wake < INFINITY:
            self.call_at(max(self.server.balancer.wake, now), self._expire)

    def _waiting(self) -> bool:
        server = self.server
        return self._under_way > 0 or (server is not None and any(len(link.requests) for link in server.links))


def run_with_drivers(task: Task, drivers: int, delay: float) -> RunResult:
    """As `run_task`, which has one balancer that decides at once."""
    scenario = task.scenario
    jobs, seconds = make_jobs(task)
    servers = build_servers(scenario)
    balancer = build_balancer(task, servers, 0)
    clients = [BalancerClient(number, number, Random(number)) for number in range(drivers)]
    for client in clients:
        client.add_model("", options=balancer.pool().options)
        for server in servers:
            client.add_replica(server.id, now=0.0)
    result = RunResult(scenario.name, task.policy, task.load, task.seed)
    warmup = scenario.warmup * seconds
    simulation = DrivenSimulation(servers, clients, jobs, result, Random(task.seed), warmup=warmup, delay=delay)
    simulation.connect(balancer)
    return simulation.run()


def scenario_of(fleet: str, requests: int, load: float) -> Scenario:
    return Scenario(
        name=fleet,
        requests=requests,
        loads=(load,),
        fleet=FLEETS[fleet],
        workload=Workload(sizes=SIZES, features=0.5),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--drivers", default="4,8")
    parser.add_argument("--delay", default="100us", help="of each message")
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--load", type=float, default=0.8)
    options = parser.parse_args()
    counts = [int(count) for count in options.drivers.split(",")]
    delay = parse_duration(options.delay)
    table = Table("fleet", "policy", "one balancer: p99 ms", *(f"{n} workers ÷ one" for n in counts))
    verdicts = []
    console = Console(width=140)
    with Progress(console=console) as progress:
        bar = progress.add_task("runs", total=len(FLEETS) * len(POLICIES) * options.seeds * (1 + len(counts)))
        for fleet in FLEETS:
            scenario = scenario_of(fleet, options.requests, options.load)
            for policy in POLICIES:
                tasks = [Task(scenario, policy, options.load, seed) for seed in range(1, options.seeds + 1)]
                alone = []
                for task in tasks:
                    alone.append(run_task(task).latency.quantile(0.99))
                    progress.advance(bar)
                cells = []
                for count in counts:
                    ratios = []
                    for task, one in zip(tasks, alone, strict=True):
                        ratios.append(run_with_drivers(task, count, delay).latency.quantile(0.99) / one)
                        progress.advance(bar)
                    cells.append(f"{mean(ratios):.3f}")
                    verdicts.append(verdict(f"{fleet}, {policy}, {count} workers", mean(ratios), GOAL_P99_RATIO))
                table.add_row(fleet, policy, f"{1e3 * mean(alone):.1f}", *cells)
    console.print(table)
    for line in verdicts:
        console.print(line, markup=False, highlight=False)
    command = f"python -m benchmarks.drivers --drivers {options.drivers} --delay {options.delay}"
    command += f" --requests {options.requests} --seeds {options.seeds} --load {options.load:g}"
    console.print(describe(command), markup=False, highlight=False)


if __name__ == "__main__":
    main()
