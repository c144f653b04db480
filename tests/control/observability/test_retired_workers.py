from __future__ import annotations

from steelyard.control.observability.retired_workers import lost_requests, show_requests
from steelyard.link.messages import ModelReport, WorkerReport

SAID = WorkerReport(0, (ModelReport("m", 1, 2, {}, {}), ModelReport("n", 0, 0, {}, {})), ())


def test_of_a_worker_that_decided_itself_the_last_report_must_do() -> None:
    assert lost_requests(SAID) == {"m": 3}
    assert lost_requests(None) == {}


def test_in_words() -> None:
    assert (show_requests(1), show_requests(2)) == ("1 request", "2 requests")
