"""Mixed traffic for long, with aborts and failures: counters never drift, memory is flat.

`STEELYARD_SOAK=3600 pytest -m slow tests/faults/clients/test_soak.py` runs for an hour; the default is 20 seconds.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.harness import (
    MIB,
    Connection,
    Ledger,
    Serving,
    StubReplica,
    config,
    model,
    nothing_left,
    request,
    scripts,
    slots_free,
)
from tests.harness.processes import memory

from .test_response_mixups import Client

SOAK_SECONDS = float(os.environ.get("STEELYARD_SOAK", "20"))


class Mixed(Client):
    """Bursts as in test_swapped, and streams that are left, large bodies, refusals, connections that say nothing."""

    end = 0.0

    def run(self) -> None:
        try:
            while time.monotonic() < self.end:
                with self.gateway.connect() as connection:
                    for _ in range(20):
                        if not self.rng.choice([self.burst, self.burst, self.stream, self.large, self.refused])(
                            connection
                        ):
                            break
        except BaseException as problem:
            self.problem = problem

    def stream(self, connection: Connection) -> bool:
        gate = "open" if self.rng.random() < 0.5 else "never"
        connection.send(request("POST", script=[*scripts.endless(gate), ["send", "0\r\n\r\n"]]))
        response = connection.begin()
        if gate == "open":
            connection.finish(response)
        return gate == "open"

    def large(self, connection: Connection) -> bool:
        size = self.rng.choice([10_000, MIB, 3 * MIB])
        response = connection.ask("POST", body=b"x" * size, script=scripts.large(size, self.rng.random() < 0.5))
        assert len(response.body) == size or response.status != 200
        return True

    def refused(self, connection: Connection) -> bool:
        assert connection.ask("POST", headers={"steelyard-model": "nobody"}).status == 404
        return True


@pytest.mark.slow
def test_soak() -> None:
    with StubReplica("a") as a, StubReplica("b") as b:
        for stub in (a, b):
            stub.open("open")
        models = {
            "m": model(a, b, concurrency=8, idempotent=True, outlier_detection={"enabled": False}, paths=["/work"]),
            "slots": model(a, concurrency=8, paths=["/slots"]),
        }
        ledger = Ledger(a, b)
        with Serving(config(models, workers=2, timeouts={"idle": "5s"})) as gateway, nothing_left(gateway):
            sizes = {}
            for part in range(4):
                clients = [Mixed(gateway, ledger, random.randrange(1 << 30)) for _ in range(6)]
                for client in clients:
                    client.end = time.monotonic() + SOAK_SECONDS / 4
                    client.start()
                for client in clients:
                    client.join(SOAK_SECONDS / 4 + 60)
                    assert not client.is_alive()
                    if client.problem is not None:
                        raise client.problem
                ledger.check()
                for stub in (a, b):
                    stub.events.clear()
                ledger.ends.clear()
                ledger.retried.clear()
                sizes[part] = [memory(pid) for pid in gateway.workers]
            slots_free(gateway, a, 8, target="/slots")
            # The first part fills caches and arenas; after that it is flat.
            assert sum(sizes[3]) - sum(sizes[0]) < 24 * MIB, sizes
