"""Real servers share a device of a fixed size: a burst of mixed sizes kills them without a ledger, and none with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from benchmarks.load.memory_requests import MIB, Burst, run
from benchmarks.mocks.memory_device import MemoryDevice

from tests.harness import Serving, wait_until
from tests.harness.admin import AdminClient
from tests.harness.memory import (
    BUDGET,
    DEVICE_BYTES,
    MODELS,
    at_rest,
    fronted,
    job,
    jobs,
    ledger,
    needs_box,
    port,
    watched_ledger,
)

pytestmark = needs_box

REQUESTS, CLIENTS = 36, 30
LONG_REQUEST_SECONDS = 0.5  # where it matters that many run at once, however slow this machine is


@pytest.fixture
def box() -> Iterator[MemoryDevice]:
    with MemoryDevice(DEVICE_BYTES, MODELS) as box:
        yield box


def nobody_died(box: MemoryDevice, seen: Burst) -> None:
    """The servers tell how full the device was whenever a request had all it needed."""
    assert box.deaths() == []
    assert seen.peak <= BUDGET, f"{seen.peak / MIB:.0f} MiB in use"


def test_without_a_ledger_a_burst_kills(box: MemoryDevice) -> None:
    """Otherwise all the others prove nothing."""
    with fronted(box, ledger=False) as (gateway, _):
        seen = run(port(gateway), jobs(REQUESTS, seconds=LONG_REQUEST_SECONDS), CLIENTS)
    assert box.deaths()
    assert seen.failed


@pytest.mark.parametrize(
    ("sizes_declared", "workers"), [(True, 1), (False, 2)], ids=["declared", "learned, two workers"]
)
def test_with_it_nobody_dies(box: MemoryDevice, sizes_declared: bool, workers: int) -> None:
    with fronted(box, sizes_declared=sizes_declared, workers=workers) as (gateway, admin):
        with watched_ledger(admin):
            seen = run(port(gateway), jobs(REQUESTS), CLIENTS)
        assert not seen.failed
        at_rest(admin)
    nobody_died(box, seen)


class TestWorkerKilled:
    """What it had reserved counts on: its servers do not know that nobody waits for their answers."""

    @contextmanager
    def killed_midway(self, gateway: Serving, admin: AdminClient) -> Iterator[None]:
        """Once requests run on the device."""

        def kill() -> None:
            wait_until(lambda: ledger(admin).requests >= 4, "nothing runs")
            os.kill(gateway.workers[0], signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def test_nobody_dies_of_it(self, box: MemoryDevice) -> None:
        with fronted(box, workers=2) as (gateway, admin):
            with watched_ledger(admin), self.killed_midway(gateway, admin):
                seen = run(port(gateway), jobs(REQUESTS, seconds=LONG_REQUEST_SECONDS), CLIENTS)
            assert set(seen.failed) <= {"broken"}, "only its own requests fail"
            assert seen.failed["broken"] <= CLIENTS
            at_rest(admin)
        nobody_died(box, seen)


def test_clients_that_leave_free_nothing(box: MemoryDevice) -> None:
    """A server goes on with what it has begun, and holds what it needs for that."""
    large = job(40 * MIB, seconds=0.6)
    with fronted(box) as (gateway, admin):
        run(port(gateway), [large], 1)  # so that it is known how long such a one takes
        for _ in range(3):
            connections = [gateway.connect() for _ in range(2)]
            for connection in connections:
                connection.send(large.request({}))
            time.sleep(0.2)  # enough for some of them to begin
            for connection in connections:
                connection.close()
        at_rest(admin)
        seen = run(port(gateway), jobs(10), 5)
        assert not seen.failed
    nobody_died(box, seen)
