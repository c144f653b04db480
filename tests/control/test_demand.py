"""What is asked of models, from what workers report."""

import pytest

from steelyard.control.demand import Demands
from steelyard.link.messages import ModelReport, Report


def reported(model="m", *, ok=0, waiting=0, in_flight=0, typical=0.5):
    return Report(0, (ModelReport(model, waiting, in_flight, {"ok": ok}, {}, typical),), ())


def test_what_waits_is_told_with_its_work_and_for_how_long():
    demands = Demands()
    reports = [reported(waiting=3), reported(waiting=1)]
    demands.take_in(reports, 10.0)
    wish = demands.wishes(reports, 12.0)["m"]
    assert (wish.waiting, wish.work, wish.oldest) == (4, 2.0, 2.0)
    reports = [reported(), reported()]
    demands.take_in(reports, 13.0)
    assert demands.wishes(reports, 14.0)["m"].oldest == 0.0


def test_a_worker_may_say_earlier_that_requests_wait():
    demands = Demands()
    demands.wanted("m", 5.0)
    assert demands.wishes([reported(waiting=1)], 6.0)["m"].oldest == 1.0


def test_the_rate_of_work_is_what_came_times_what_it_takes():
    demands = Demands()
    for second in range(200):
        demands.take_in([reported(ok=4 * second, in_flight=2)], float(second))
    assert demands.wishes([reported()], 200.0)["m"].rate == pytest.approx(2.0, rel=0.01)
    for second in range(200, 300):
        demands.take_in([reported(ok=800)], float(second))
    assert demands.wishes([reported()], 300.0)["m"].rate < 0.05


def test_a_worker_that_died_takes_its_count_with_it():
    demands = Demands()
    demands.take_in([reported(ok=1000), reported(ok=500)], 1.0)
    demands.take_in([reported(ok=1000)], 2.0)
    assert demands.wishes([reported()], 2.0)["m"].rate == 0.0
    demands.take_in([reported(ok=1004)], 3.0)
    assert demands.wishes([reported()], 3.0)["m"].rate > 0.0


def test_models_that_are_gone_are_forgotten():
    demands = Demands()
    demands.wanted("m", 1.0)
    demands.keep(set())
    assert demands.wishes([reported(waiting=1)], 6.0)["m"].oldest == 0.0
