"""Waiting until nothing runs on a replica any more: soon known at first, and no burden where it takes long."""

from __future__ import annotations

import asyncio

import pytest

from steelyard.control.fleet import health
from steelyard.control.fleet.health import EAGER_POLL_SECONDS

from ..driving import until
from ..fakes import ONE, A, Played, acted, in_flight

HOUR = 3600.0


@acted(ONE)
async def test_workers_are_not_asked_again_and_again_for_as_long_as_a_stream_lasts(stage: Played) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "DRAIN_POLL_SECONDS", 0.0)
        stage.worker_pool.worker_reports = [in_flight(A)]
        drained = asyncio.create_task(stage.fleet.wait_drained(A, HOUR))
        await until(lambda: stage.worker_pool.report_requests > 2)
        stage.clock.ahead += EAGER_POLL_SECONDS
        await stage.settle()
        asked = stage.worker_pool.report_requests
        await stage.settle()
        assert stage.worker_pool.report_requests == asked
        assert not drained.done()
        stage.worker_pool.worker_reports = []  # by their own reports
        assert await drained
        assert stage.worker_pool.report_requests == asked + 1, "they say so themselves"


@acted(ONE)
async def test_it_has_its_time_and_no_more(stage: Played) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "DRAIN_POLL_SECONDS", 0.0)
        stage.worker_pool.worker_reports = [in_flight(A)]
        drained = asyncio.create_task(stage.fleet.wait_drained(A, HOUR))
        await stage.settle()
        stage.clock.ahead += HOUR
        assert not await drained
