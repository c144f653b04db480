"""The figures of `benchmarks.lifecycle`: how soon a bad replica is noticed, and what it still gets."""

from __future__ import annotations

from collections import Counter

import pytest
from benchmarks.scores.detection import (
    CLIENT_TIMEOUT_SECONDS,
    QUIET_SECONDS,
    SentRequest,
    detection,
    fault_run,
    observe_fault,
)

STEP = QUIET_SECONDS / 10


def every_step(begin: float, end: float) -> list[float]:
    return [begin + STEP * n for n in range(round((end - begin) / STEP))]


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ([], 0.0),  # nothing reached it
        ([9.9, 31.0], 0.0),  # before and after
        (every_step(8.0, 11.5), 1.45),  # then no more
        ([*every_step(8.0, 11.5), 20.0], 1.45),  # one after a pause is not detection any more
        (every_step(8.0, 40.0), 19.95),  # never noticed
        ([10.4, 10.8], 0.8),  # few, but no pause between them
    ],
)
def test_detected_is_who_gets_nothing_for_a_while(arrivals: list[float], expected: float) -> None:
    assert detection(arrivals, 10.0, 30.0) == pytest.approx(expected)


def test_the_order_of_arrivals_does_not_matter() -> None:
    arrivals = every_step(8.0, 11.5)
    assert detection(arrivals[::-1], 10.0, 30.0) == detection(arrivals, 10.0, 30.0)


def test_what_it_gets_after_detection_counts_until_it_is_well_again() -> None:
    due = [10.0 + n for n in range(20)]
    found = observe_fault("frozen", [10.2, 15.0, 16.0, 30.5, 31.0], due, (10.0, 30.0), 2.0, True)
    assert found.detection == pytest.approx(0.2)
    assert (found.reached, found.sent) == (2, 19)
    assert found.share == pytest.approx(2 / 19)
    assert found.back == pytest.approx(0.5)


def test_who_is_never_noticed_is_not_excused() -> None:
    arrivals = every_step(10.0, 30.0)
    found = observe_fault("errors", arrivals, arrivals, (10.0, 30.0), 2.0, True)
    assert found.detection == pytest.approx(20.0 - STEP)
    assert found.share == 1.0
    assert found.back is None


def test_where_there_is_no_moment_to_notice_it_there_is_a_grace() -> None:
    found = observe_fault("flapping", [10.1, 11.9, 12.1], [11.0, 12.5, 20.0], (10.0, 30.0), 2.0, False)
    assert found.detection is None
    assert (found.reached, found.sent) == (1, 2)


def test_requests_in_flight_when_it_happened_count_and_those_before_do_not() -> None:
    sent = [
        SentRequest(1.0, 0.5),
        SentRequest(9.0, 2.0),
        SentRequest(11.0, 0.1),
        SentRequest(12.0, None),
        SentRequest(13.0, CLIENT_TIMEOUT_SECONDS + 1.0),
    ]
    result = fault_run(sent, 10.0, [], Counter({"503": 1}), 0.001)
    assert (result.requests, result.failed) == (4, 2)
    assert result.slowest == CLIENT_TIMEOUT_SECONDS + 1.0
    assert result.p50 == 2.0
    assert result.statuses == {"503": 1}


def test_a_request_that_failed_just_before_counts_for_its_client_was_still_waiting() -> None:
    assert fault_run([SentRequest(9.5, None)], 10.0, [], Counter(), 0.0).failed == 1
