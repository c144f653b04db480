"""The only replica restarts: requests wait for it, as they wait for a busy one, and are not refused at once."""

from __future__ import annotations

import pytest

from tests.harness import model, request
from tests.harness.replicas.probed import ProbedReplica, watched

pytestmark = pytest.mark.xdist_group("restarting")
GRACE = "60s"  # more than a busy machine needs to start a process


def test_requests_wait_for_the_only_replica_while_it_restarts() -> None:
    with ProbedReplica("only") as stub, watched(models={"m": model(stub, restart_grace=GRACE)}) as (gateway, admin):
        admin.wait_ready(stub.name, model="m")
        stub.kill()
        admin.wait_state(stub.name, "unreachable", model="m")
        with gateway.connect() as first, gateway.connect() as second:
            for client in (first, second):
                client.send(request("POST", headers={"steelyard-model": "m"}))
                assert client.quiet(0.2), "it waits"
            stub.start()
            stub.ready()
            assert [first.response().status, second.response().status] == [200, 200]
