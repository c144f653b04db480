"""A request that is too large for a device, or not for now: refused with the numbers, or served when there is room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from benchmarks.load.memory_requests import MIB, run
from benchmarks.mocks.memory_device import MemoryDevice

from tests.harness import Serving, wait_until
from tests.harness.admin import AdminClient
from tests.harness.memory import BUDGET, DEVICE_BYTES, MODELS, WEIGHTS, at_rest, fronted, job, ledger, needs_box, port

pytestmark = [needs_box, pytest.mark.xdist_group("memory limits")]

LARGE_REQUEST_BYTES = 60 * MIB  # two of them do not fit
Fronted = tuple[MemoryDevice, Serving, AdminClient]


@pytest.fixture(scope="module")
def fronted_box() -> Iterator[Fronted]:
    with MemoryDevice(DEVICE_BYTES, MODELS) as box, fronted(box) as (gateway, admin):
        yield box, gateway, admin
        at_rest(admin)
        assert box.deaths() == []


def test_what_never_fits_is_refused_at_once_with_the_numbers(fronted_box: Fronted) -> None:
    _, gateway, _ = fronted_box
    (answer,) = run(port(gateway), [job(200 * MIB)], 1).answers
    assert (answer.status, answer.reason) == (413, "too_large")
    assert "200" in answer.said, "what it needs"
    assert f"{(BUDGET - WEIGHTS) / MIB:.1f}" in answer.said, "what there is for one"


def test_what_does_not_fit_now_waits_and_is_served(fronted_box: Fronted) -> None:
    _, gateway, _ = fronted_box
    jobs = [job(LARGE_REQUEST_BYTES, 0.1, model) for model in MODELS]
    seen = run(port(gateway), jobs, len(jobs))
    assert not seen.failed
    assert seen.peak <= BUDGET


def test_a_large_one_gets_its_turn_among_many_small(fronted_box: Fronted) -> None:
    """Without room saved up for it, there would always be a small one that takes what was just freed."""
    _, gateway, _ = fronted_box
    small, large = job(10 * MIB, 0.1, MODELS[1]), job(80 * MIB, 0.01)
    seen = run(port(gateway), [*[small] * 12, large, *[small] * 80], 14)
    assert not seen.failed
    order = [answer.job for answer in seen.answers]
    assert order.index(large) < len(order) - 14, "it came last of all"


def test_who_cannot_wait_is_told_that_it_was_for_memory(fronted_box: Fronted) -> None:
    _, gateway, admin = fronted_box

    def refused() -> Counter[str]:
        """Nothing, if the first ended meanwhile: then there was room."""
        with ThreadPoolExecutor() as pool:
            first = pool.submit(run, port(gateway), [job(LARGE_REQUEST_BYTES, 2.0)], 1)
            wait_until(lambda: ledger(admin).requests, "it does not run")
            second = run(
                port(gateway), [job(LARGE_REQUEST_BYTES, 0.01, MODELS[1])], 1, **{"steelyard-timeout-ms": "1000"}
            )
            in_time = not first.done()
            assert not first.result().failed
        at_rest(admin)
        return second.failed if in_time else Counter()

    assert wait_until(refused, "never a quiet moment") == {"503 insufficient_memory": 1}
