"""From when requests came and went back to what each asked for: exact, if the replica is of that kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.balancer import Balancer
from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.engine.simulation import Simulation
from steelyard.simulate.replay.server_models import SERVER_MODELS, UNLIMITED_SLOTS, BatchModel, ServerModel, SlotModel
from steelyard.simulate.replay.speeds import change_points

GAPS = st.lists(st.tuples(st.floats(0.0, 0.2), st.floats(0.01, 1.0)), min_size=1, max_size=40)


class Ends(Simulation):
    ends: dict[Job, float]

    def _end(self, job: Job, outcome: object, now: float) -> None:
        self.ends[job] = now
        super()._end(job, outcome, now)  # type: ignore[arg-type]


def served(kind: ServerModel, todo: list[tuple[float, float]], speed: float) -> tuple[np.ndarray, np.ndarray]:
    """When each came and went."""
    from random import Random

    balancer = Balancer()
    balancer.add_model("", "round_robin")
    balancer.add_replica("r", now=0.0)
    born = np.cumsum([gap for gap, _ in todo]) + 1.0
    jobs = [Job(float(when), work, ()) for when, (_, work) in zip(born, todo, strict=True)]
    run = Ends([kind.build("r", speed)], [balancer], jobs, RunResult("", "", 0.0, 1), Random(1))
    run.ends = {}
    run.run()
    return born, np.array([run.ends[job] for job in jobs])


@given(todo=GAPS, kind=st.sampled_from(SERVER_MODELS), speed=st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=60, deadline=None)
def test_demands_are_what_was_asked(todo: list[tuple[float, float]], kind: ServerModel, speed: float) -> None:
    start, end = served(kind, todo, speed)
    demand, density = kind.demands(start, end)
    assert demand == pytest.approx([work / speed for _, work in todo], abs=1e-6)
    assert (density <= 0.0).all()


def test_in_words() -> None:
    assert str(SlotModel(1)) == "one at a time, first come first served"
    assert str(SlotModel(UNLIMITED_SLOTS)) == "any number at a time, without slowing each other down"
    assert str(BatchModel(0.3)) == "all at once, each 30% slower for every other one beside it"


def test_a_stretch_of_slowness_is_found_where_it_was() -> None:
    rng = np.random.default_rng(5)
    residual = rng.normal(0.0, 0.3, 400)
    residual[150:230] += 1.0
    found = change_points(residual, 0.45)
    assert len(found) == 2
    assert found == pytest.approx([150, 230], abs=4)


def test_chance_is_no_change() -> None:
    for seed in range(30):
        residual = np.random.default_rng(seed).normal(0.0, 0.5, 500)
        assert change_points(residual, 0.5) == []
