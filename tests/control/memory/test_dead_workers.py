"""A worker that is killed: what it had still counts until it is surely over. Never is more given out than there is."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steelyard.control.memory.orphaned_reservations import MAX_HOLD_SECONDS, MIN_HOLD_SECONDS
from steelyard.core.memory.ledger import MemoryLedger
from steelyard.link.messages import ReservationsAdopted

from .making import ON_DEMAND, READY, Made, made, model

DEVICE = "{d: {memory: 1000, headroom: 10%}}"
BOTH = f"{{m: {model(more='memory: {weights: 200}')}, n: {model(2, more=ON_DEMAND)}}}"
WORKER = Path(__file__).with_name("dying_worker.py")


@contextmanager
def begun(it: Made, row: int, amount: int, seconds: float, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Killed in the end, if not before."""
    given = [it.shared_ledger.fd, row, it.numbers["d"], 1000, 0.1, it.column("m"), amount, seconds, *more]
    command = [sys.executable, str(WORKER), *map(str, given)]
    with subprocess.Popen(command, pass_fds=[it.shared_ledger.fd], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def killed(it: Made, row: int, amount: int, seconds: float) -> int:
    """A real process takes all it can and is killed with the lock in its hands. How many requests it had."""
    with begun(it, row, amount, seconds, "lock") as process:
        assert process.stdout is not None
        taken = int(process.stdout.readline())
        assert not it.shared_ledger.lock(it.numbers["d"]), "it has the lock"
    return taken


def test_what_it_had_counts_until_its_time_is_up() -> None:
    with made(DEVICE, BOTH) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        assert killed(it, 1, 60, 50.0) == 11, "700 bytes are left for requests"
        now = time.monotonic()
        view = it.device(now)
        assert (view.reserved, view.requests) == (200 + 660, 11)
        it.accounts.worker_exited(1, now)
        assert (it.device(now).reserved, it.device(now).requests) == (200 + 660, 11)
        assert not it.accounts.reserve(("n", "a"), 50)
        worker = MemoryLedger(it.shared_ledger)
        place = worker.add_residency(worker.set_device("d", it.numbers["d"], 1000, 0.1), "http://h:1", it.column("m"))
        assert worker.reserve(place, 40), "the lock died with it"
        assert not worker.reserve(place, 1)
        worker.release(place, 40)
        it.accounts.tick(now + 10.0)
        assert it.device(now).reserved == 860
        it.accounts.tick(now + 51.0)
        assert (it.device(now).reserved, it.device(now).requests) == (200, 0)
        assert it.accounts.reserve(("n", "a"), 50)


def test_two_workers_and_a_load_want_the_same_room() -> None:
    with made(DEVICE, BOTH) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        with begun(it, 1, 7, 20.0) as first, begun(it, 2, 5, 20.0) as second:
            pending = [first.stdout, second.stdout]
            taken = {}
            while pending:
                if it.accounts.reserve(("n", "a"), 50):
                    it.accounts.release(("n", "a"))
                assert it.device().reserved <= 900
                for said in select.select(pending, [], [], 0.0)[0]:
                    taken[said] = int(said.readline())
                    pending.remove(said)
        now = time.monotonic()
        had = 7 * taken[first.stdout] + 5 * taken[second.stdout]
        assert it.device(now).reserved == 200 + had <= 900
        for row in (1, 2):
            it.accounts.worker_exited(row, now)
        assert it.device(now).reserved == 200 + had
        it.accounts.tick(now + 61.0)
        assert it.device(now).reserved == 200


def test_another_takes_its_row_meanwhile() -> None:
    with made(DEVICE, BOTH) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        killed(it, 1, 300, 50.0)
        it.accounts.worker_exited(1, time.monotonic())
        assert killed(it, 1, 50, 5.0) == 2, "100 bytes were left"
        now = time.monotonic()
        assert it.device(now).reserved == 200 + 600 + 100
        it.accounts.worker_exited(1, now)
        it.accounts.tick(now + 7.0)
        assert (it.device(now).reserved, it.device(now).requests) == (200 + 600, 2)
        it.accounts.tick(now + 51.0)
        assert (it.device(now).reserved, it.device(now).requests) == (200, 0)


def test_a_balancer_process_that_starts_again_adopts_what_runs_on() -> None:
    with made(DEVICE, BOTH) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        assert killed(it, 1, 60, 5.0) == 11
        it.accounts.worker_exited(1, now := time.monotonic(), adoptable=True)
        it.accounts.tick(now + 100.0)
        assert (it.device(now).reserved, it.device(now).requests) == (200 + 660, 11), "until it is known what runs on"
        runs_on = (it.column("m"), it.numbers["d"], 60)
        it.accounts.reservations_adopted(ReservationsAdopted((runs_on,) * 4))
        assert (it.device(now).reserved, it.device(now).requests) == (200 + 420, 7), "four count for it"
        it.accounts.tick(now + 6.0)
        assert (it.device(now).reserved, it.device(now).requests) == (200, 0)


def test_not_shorter_than_a_second_nor_longer_than_a_minute() -> None:
    with made(DEVICE, BOTH) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        for seconds, counts in ((-5.0, MIN_HOLD_SECONDS), (5000.0, MAX_HOLD_SECONDS)):
            killed(it, 1, 700, seconds)
            now = time.monotonic()
            it.accounts.worker_exited(1, now)
            it.accounts.tick(now + counts - 0.1)
            assert it.device(now).reserved == 900
            it.accounts.tick(now + counts + 0.1)
            assert it.device(now).reserved == 200


def test_one_that_had_nothing() -> None:
    with made(DEVICE, BOTH) as it:
        it.accounts.worker_exited(3, 1.0)
        assert it.notes == []


def test_of_a_replica_that_was_removed() -> None:
    with made(DEVICE, BOTH) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        column = it.column("m")
        killed(it, 1, 100, 20.0)
        it.follow(DEVICE, f"{{n: {model(2)}}}", 1.0)
        it.accounts.worker_exited(1, now := time.monotonic())
        assert it.shared_ledger.running(column) == 700
        it.accounts.tick(now + 30.0)
        assert (it.shared_ledger.running(column), it.device(now).requests) == (0, 0)
        it.accounts.tick(now + 31.0)
        assert it.device(now).servers[0].server == "http://h:2"
        assert len(it.device(now).servers) == 1
