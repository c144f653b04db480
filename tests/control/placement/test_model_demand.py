"""What is asked of models, from what workers report."""

import pytest

from steelyard.control.placement.model_demand import DemandTracker
from steelyard.link.messages import ModelReport, WorkerReport


def reported(model="m", *, ok=0, waiting=0, in_flight=0, typical=0.5):
    return WorkerReport(0, (ModelReport(model, waiting, in_flight, {"ok": ok}, {}, typical),), ())


def test_what_waits_is_told_with_its_work_and_for_how_long():
    demands = DemandTracker()
    reports = [reported(waiting=3), reported(waiting=1)]
    demands.update(reports, 10.0)
    wish = demands.current(reports, 12.0)["m"]
    assert (wish.waiting, wish.work, wish.oldest) == (4, 2.0, 2.0)
    reports = [reported(), reported()]
    demands.update(reports, 13.0)
    assert demands.current(reports, 14.0)["m"].oldest == 0.0


def test_a_worker_may_say_earlier_that_requests_wait():
    demands = DemandTracker()
    demands.requested("m", 5.0)
    assert demands.current([reported(waiting=1)], 6.0)["m"].oldest == 1.0


def test_the_rate_of_work_is_what_came_times_what_it_takes():
    demands = DemandTracker()
    for second in range(200):
        demands.update([reported(ok=4 * second, in_flight=2)], float(second))
    assert demands.current([reported()], 200.0)["m"].rate == pytest.approx(2.0, rel=0.01)
    for second in range(200, 300):
        demands.update([reported(ok=800)], float(second))
    assert demands.current([reported()], 300.0)["m"].rate < 0.05


def test_a_worker_that_died_takes_its_count_with_it():
    demands = DemandTracker()
    demands.update([reported(ok=1000), reported(ok=500)], 1.0)
    demands.update([reported(ok=1000)], 2.0)
    assert demands.current([reported()], 2.0)["m"].rate == 0.0
    demands.update([reported(ok=1004)], 3.0)
    assert demands.current([reported()], 3.0)["m"].rate > 0.0


def test_models_that_are_gone_are_forgotten():
    demands = DemandTracker()
    demands.requested("m", 1.0)
    demands.prune(set())
    assert demands.current([reported(waiting=1)], 6.0)["m"].oldest == 0.0
