"""A hard limit on a worker's memory: what does not fit is refused early, with a reason (issue 13, point 28)."""

from __future__ import annotations

import resource
import threading
import time

from steelyard.gateway.worker.overload import CHECK_SECONDS
from tests.harness import MIB, Serving, StubReplica, config, new_id, scripts, wait_until
from tests.harness.client import Truncated
from tests.harness.processes import memory

CLIENTS, BODY_BYTES = 300, 200_000


def test_what_does_not_fit_under_a_memory_limit_is_refused_with_a_reason() -> None:
    """60 MiB to spare, and clients with far more than that in bodies, which all wait for a replica."""
    with StubReplica("a") as stub, Serving(config([stub])) as gateway:
        limit = memory(gateway.worker, "VmSize") + 60 * MIB
        resource.prlimit(gateway.worker, resource.RLIMIT_AS, (limit, limit))
        time.sleep(4 * CHECK_SECONDS)  # in life the limit is there from the beginning
        gate, ends = new_id("gate"), list[str]()
        stub.answer_all(scripts.held(gate))

        def client() -> None:
            try:
                with gateway.connect(timeout=60) as connection:
                    answer = connection.ask("POST", body=b"x" * BODY_BYTES)
                    ends.append(answer.headers.get("steelyard-reason", str(answer.status)))
                    assert answer.status == 200 or "retry-after" in answer.headers
            except (Truncated, ConnectionError):
                ends.append("cut off")

        clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for thread in clients:
            thread.start()
        wait_until(lambda: "memory_low" in ends, "nobody is refused")
        wait_until(lambda: len(stub.of("waiting")) + len(ends) >= CLIENTS, "not all are answered or with the replica")
        stub.open(gate)
        stub.answer_all(None)
        for thread in clients:
            thread.join(60)
        assert set(ends) <= {"200", "memory_low"}
        assert "200" in ends
        wait_until(lambda: gateway.ask("POST", body=b"x" * BODY_BYTES).status == 200, "it does not recover")
        wait_until(lambda: "of memory are left" in gateway.output, "there is no alarm")
        assert gateway.output.count("of memory are left") == 1
        assert "Fatal error" not in gateway.output
