"""The supervisor watches and the workers serve: what each knows when the other is killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.harness import Ledger, Serving, scripts, wait_until
from tests.harness.admin import AdminClient
from tests.harness.processes import alive
from tests.harness.replicas.probed import ProbedReplica, watched
from tests.harness.traffic import traffic


@pytest.fixture
def stubs() -> Iterator[list[ProbedReplica]]:
    """Ready, loading, to be drained."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ProbedReplica(name, ready=name != "b")) for name in "abc"]


def settle(admin: AdminClient) -> None:
    admin.wait_ready("a", "c")
    admin.drain("c")
    admin.wait_state("b", "loading")
    admin.wait_state("c", "draining")


class TestWorkerReplaced:
    def test_the_new_one_knows_at_once_who_is_ready(self, stubs: list[ProbedReplica]) -> None:
        """Its very first request goes to the ready one: not to the loading, not to the draining, not refused."""
        ledger, (a, b, c) = Ledger(*stubs), stubs
        with watched(*stubs, workers=2, idempotent=False) as (gateway, admin):
            settle(admin)
            marks = b.mark, c.mark
            with traffic(gateway, ledger, clients=4, patient=True):
                a.wait_real(20)
                for _ in range(2):
                    victim = gateway.workers[0]
                    os.kill(victim, signal.SIGKILL)
                    wait_until(
                        lambda victim=victim: len(gateway.workers) == 2 and victim not in gateway.workers,
                        "it is not replaced",
                    )
                    done = ledger.count()["ok"]
                    wait_until(lambda done=done: ledger.count()["ok"] > done + 50, "it does not serve")
            b.untouched(marks[0])
            c.untouched(marks[1])
            admin.wait_state("c", "draining")
            assert admin.wait_state("b", "loading").balancer is not None
            admin.undrain("c")
            admin.wait_ready("c")
        ledger.check()
        assert set(ledger.count()) <= {"ok", "no answer", "truncated"}, "a fresh worker refused"

    @pytest.mark.slow
    def test_an_ejection_is_known_to_it_too(self) -> None:
        """Otherwise each new worker would learn it anew, by failures."""
        with contextlib.ExitStack() as stack:
            stubs = [stack.enter_context(ProbedReplica(name)) for name in "abcd"]
            bad = stubs[0]
            bad.answer_all(scripts.fails(500))
            lasting = {"base_ejection_time": "10m", "max_ejection_time": "10m"}
            with watched(*stubs, idempotent=False, workers=2, outlier_detection=lasting) as (gateway, admin):
                admin.wait_ready(*"abcd")
                wait_until(
                    lambda: gateway.ask("POST").status and admin.states()["a"] == "ejected", "it gets no requests"
                )
                admin.wait_state("a", "ejected")
                victim = gateway.workers[0]
                os.kill(victim, signal.SIGKILL)
                wait_until(lambda: len(gateway.workers) == 2 and victim not in gateway.workers, "it is not replaced")
                mark = bad.mark
                for _ in range(60):
                    assert gateway.ask("POST").status == 200
                bad.untouched(mark)
                admin.wait_state("a", "ejected")


@contextlib.contextmanager
def orphaned(gateway: Serving) -> Iterator[list[int]]:
    """The supervisor is killed; its workers end with the block."""
    workers = gateway.workers
    os.kill(gateway.pid, signal.SIGKILL)
    gateway.process.wait(30)
    try:
        yield workers
    finally:
        for pid in workers:
            if alive(pid):
                os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(map(alive, workers)), "the orphans do not end")


class TestSupervisorKilled:
    def test_workers_go_on_with_what_they_know(self, stubs: list[ProbedReplica]) -> None:
        """And find out for themselves: nobody probes any more, so a replica that restarts must be tried by them."""
        ledger, (a, b, c) = Ledger(*stubs), stubs
        with watched(*stubs, workers=2, idempotent=False) as (gateway, admin):
            settle(admin)
            marks = b.mark, c.mark
            with orphaned(gateway) as workers:
                with traffic(gateway, ledger, clients=4):
                    a.wait_real(100)
                assert set(ledger.count()) == {"ok"}
                b.untouched(marks[0])
                c.untouched(marks[1])
                a.kill()
                with gateway.connect() as connection:
                    for _ in range(5):
                        assert ledger.ask(connection, may_retry=False).startswith("error 50")
                    a.restart(ready=True)
                    wait_until(lambda: ledger.ask(connection, may_retry=False) == "ok", "it is never tried again")
                assert all(map(alive, workers))
        ledger.check()
