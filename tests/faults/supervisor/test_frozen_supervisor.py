"""The supervisor is frozen or dead while replicas restart: workers go by what they see (issue 13, point 26)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.harness import Serving, wait_until
from tests.harness.admin import AdminClient
from tests.harness.flow import Flow
from tests.harness.replicas.probed import ProbedReplica, watched

from .test_health_updates import orphaned


@contextlib.contextmanager
def frozen(gateway: Serving) -> Iterator[None]:
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(gateway.pid, signal.SIGCONT)


# Each pays for a fifth of a retry at its worker, which begins with three. A replica that is killed may end two attempts
# of each of 20 clients: one on a kept connection, and one as it is sent there again.
REQUESTS_THAT_SAVE_RETRIES = 800


@contextlib.contextmanager
def fleet(count: int, workers: int = 1) -> Iterator[tuple[list[ProbedReplica], Serving, AdminClient]]:
    with contextlib.ExitStack() as stack:
        stubs = [stack.enter_context(ProbedReplica(f"r{number}")) for number in range(count)]
        gateway, admin = stack.enter_context(watched(*stubs, workers=workers, idempotent=True))
        admin.wait_ready(*(stub.name for stub in stubs))
        yield stubs, gateway, admin


@pytest.mark.parametrize(
    "silence", [pytest.param(frozen, marks=pytest.mark.slow, id="frozen"), pytest.param(orphaned, id="dead")]
)
def test_a_replica_that_restarts_meanwhile_is_used_again(silence: object) -> None:
    with fleet(2) as ((a, b), gateway, _), silence(gateway):  # type: ignore[operator]
        with Flow(gateway.address, kept=4, fresh=2) as flow:
            a.kill()
            flow.go_on(40)
            a.restart(ready=True)
            mark = a.mark
            a.wait_real(5, mark)
            b.kill()  # from here on there is nobody else
            flow.go_on(40)
        assert flow.lost == {}


@pytest.mark.slow
@pytest.mark.parametrize("silence", [frozen, orphaned], ids=["frozen", "dead"])
def test_replicas_restart_one_after_another_for_half_a_minute(silence: object) -> None:
    with fleet(3, workers=2) as (stubs, gateway, admin):
        with silence(gateway), Flow(gateway.address, kept=16) as flow:  # type: ignore[operator]
            flow.go_on(REQUESTS_THAT_SAVE_RETRIES)
            until = time.monotonic() + 30.0
            while time.monotonic() < until:
                for stub in stubs:
                    stub.kill()
                    time.sleep(1.0)
                    stub.restart(ready=True)
                    time.sleep(1.0)
        assert flow.lost == {}, f"of {flow.total}"
        if silence is frozen:
            wait_until(lambda: set(admin.states().values()) == {"ready"}, "the supervisor does not find them again")
            with Flow(gateway.address) as flow:
                pass
            assert flow.lost == {}
