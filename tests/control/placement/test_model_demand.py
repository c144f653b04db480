"""What is asked of models, from what workers report."""

import pytest

from steelyard.config import Config
from steelyard.control.placement.model_demand import DemandTracker
from steelyard.link.messages import ModelReport, ReplicaDemand, WorkerReport

from ..fake_fleet import FakeFleet, in_force


class Demands(DemandTracker):
    """With the reports that a test says."""

    def __init__(self):
        self.fleet = FakeFleet()
        super().__init__(self.fleet)

    def update(self, reports, now):
        self.fleet.worker_reports = reports
        self.worker_reported(reports[-1], now)

    def demand(self, reports, now):
        self.fleet.worker_reports = reports
        return self.current(now)["m"]


def reported(model="m", *, ok=0, waiting=0, in_flight=0, typical=0.5):
    return WorkerReport(0, (ModelReport(model, waiting, in_flight, {"ok": ok}, {}, typical),), ())


def test_what_waits_is_told_with_its_work_and_for_how_long():
    demands = Demands()
    reports = [reported(waiting=3), reported(waiting=1)]
    demands.update(reports, 10.0)
    demand = demands.demand(reports, 12.0)
    assert (demand.waiting, demand.work, demand.oldest) == (4, 2.0, 2.0)
    reports = [reported(), reported()]
    demands.update(reports, 13.0)
    assert demands.demand(reports, 14.0).oldest == 0.0


def test_a_worker_may_say_earlier_that_requests_wait():
    demands = Demands()
    demands.model_requested(ReplicaDemand("m", 1, 0.5), 5.0)
    assert demands.demand([reported(waiting=1)], 6.0).oldest == 1.0


def test_the_rate_of_work_is_what_came_times_what_it_takes():
    demands = Demands()
    for second in range(200):
        demands.update([reported(ok=4 * second, in_flight=2)], float(second))
    assert demands.demand([reported()], 200.0).rate == pytest.approx(2.0, rel=0.01)
    for second in range(200, 300):
        demands.update([reported(ok=800)], float(second))
    assert demands.demand([reported()], 300.0).rate < 0.05


def test_a_worker_that_died_takes_its_count_with_it():
    demands = Demands()
    demands.update([reported(ok=1000), reported(ok=500)], 1.0)
    demands.update([reported(ok=1000)], 2.0)
    assert demands.demand([reported()], 2.0).rate == 0.0
    demands.update([reported(ok=1004)], 3.0)
    assert demands.demand([reported()], 3.0).rate > 0.0


def test_models_that_are_gone_are_forgotten():
    demands = Demands()
    demands.model_requested(ReplicaDemand("m", 1, 0.5), 1.0)
    demands.members_changed(in_force(Config(models={})), 1.0)
    assert demands.demand([reported(waiting=1)], 6.0).oldest == 0.0
