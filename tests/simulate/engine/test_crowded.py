"""A replica that had a long queue is not taken for slow, and is used once it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.options import PoolOptions
from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.engine.servers import BatchServer, Server, SlotServer

from ..watched import Watched

SPEEDS = {"fast": 1.0, "half": 0.5, "quarter": 0.25}
SWITCH_SECONDS, SLOW_SECONDS, RECOVERY_SECONDS, END_SECONDS = 12.0, 24.0, 34.0, 45.0


def requests(seed: int) -> Iterator[Job]:
    """Small and large ones, 20 a second: a third of what the three can do, but nearly all that `quarter` can if it gets
    as many as the others."""
    rng = Random(seed)
    now = rng.expovariate(20.0)
    while now < END_SECONDS:
        size = rng.randint(6, 12) if rng.random() < 0.15 else rng.randint(1, 2)
        yield Job(now, 0.012 * size, (float(size),))
        now += rng.expovariate(20.0)


def serial(id: str, speed: float) -> Server:
    return SlotServer(id, speed)


def sharing(id: str, speed: float) -> Server:
    return BatchServer(id, speed, 10_000, float)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("server", [serial, sharing])
def test_who_was_crowded_by_round_robin_is_used_by_least_work(server: object, seed: int) -> None:
    balancer = Balancer(Random(seed))
    balancer.add_model("", "round_robin", PoolOptions(concurrency="unlimited"))
    for id in SPEEDS:
        balancer.add_replica(id, now=0.0)
    servers = [server(id, speed) for id, speed in SPEEDS.items()]  # type: ignore[operator]
    simulation = Watched(servers, [balancer], requests(seed), RunResult("", "", 0.0, seed), Random(seed))
    replicas = balancer.pool().replicas
    believed: list[float] = []
    states: set[str] = set()

    def look(now: float) -> None:
        states.update(replica.state.value for replica in replicas.values())
        if SWITCH_SECONDS <= now < SLOW_SECONDS:
            believed.append(replicas["quarter"].slowness / replicas["fast"].slowness)

    simulation.call_every(0.5, look)
    simulation.call_at(
        SWITCH_SECONDS, lambda now: simulation.carry_out(balancer.set_policy("", "least_work", now=now), now)
    )
    fast = simulation.servers["fast"]
    simulation.call_at(SLOW_SECONDS, lambda now: fast.slow_down(4.0, now, simulation.schedule))
    simulation.call_at(RECOVERY_SECONDS, lambda now: fast.restore_speed(4.0, now, simulation.schedule))
    simulation.run()
    assert states == {"ready"}
    assert sorted(believed)[len(believed) // 2] < 8.0  # it is 4
    assert len(simulation.times_sent_to("quarter", SLOW_SECONDS, RECOVERY_SECONDS)) > 25
