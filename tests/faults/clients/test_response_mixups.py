"""Nobody ever gets the answer to somebody else's request: many clients, with aborts, pipelines, failures."""

from __future__ import annotations

import random
import threading

import pytest

from tests.harness import (
    Connection,
    Ledger,
    Serving,
    StubReplica,
    Truncated,
    config,
    model,
    nothing_left,
    request,
    scripts,
)

CLIENTS, ROUNDS = 8, 40


def behaviours(rng: random.Random) -> list[list[object]] | None:
    """What the stub does with one request; None: a plain answer at once."""
    return rng.choice(
        [
            None,
            None,
            scripts.slow(rng.random() * 0.01),
            [["body"], ["reply"], ["doom", rng.choice(["close", "reset"])]],
            [["body"], ["reply", 200, {"connection": "close"}], ["close"]],
            [["reply"], ["body"]],
            [["body"], [rng.choice(["close", "reset"])]],
        ]
    )


class Client(threading.Thread):
    """Asks in bursts of pipelined requests, and leaves now and then in the middle."""

    def __init__(self, gateway: Serving, ledger: Ledger, seed: int) -> None:
        super().__init__(daemon=True)
        self.gateway, self.ledger, self.rng = gateway, ledger, random.Random(seed)
        self.problem: BaseException | None = None

    def run(self) -> None:
        connection = self.gateway.connect()
        try:
            for _ in range(ROUNDS):
                if not self.burst(connection):
                    connection.close()
                    connection = self.gateway.connect()
        except BaseException as problem:
            self.problem = problem
        finally:
            connection.close()

    def burst(self, connection: Connection) -> bool:
        """False: the connection is used up."""
        rng = self.rng
        ids = [self.ledger.new(may_retry=True) for _ in range(rng.choice([1, 1, 2, 5]))]
        sent = b"".join(
            request("POST", id=id, script=behaviours(rng), body=b"x" * rng.choice([0, 10, 5000, 80_000])) for id in ids
        )
        leave = rng.random() < 0.2
        cut = rng.randrange(len(sent)) if leave and rng.random() < 0.5 else len(sent)
        if not connection.try_send(sent[:cut]):
            return self.over(ids)
        answered = rng.randrange(len(ids) + 1) if leave else len(ids)
        if cut < len(sent):
            answered = 0
        for place, id in enumerate(ids[:answered]):
            try:
                self.ledger.tell(id, connection.response("POST"))
            except Truncated:
                return self.over(ids[place:])
        if leave:
            (connection.reset if rng.random() < 0.5 else connection.close)()
            return self.over(ids[answered:])
        return True

    def over(self, ids: list[str]) -> bool:
        for id in ids:
            self.ledger.end(id, "left")
        return False


@pytest.mark.parametrize("workers", [1, 2])
def test_zero_mismatches(workers: int) -> None:
    with StubReplica("a") as a, StubReplica("b") as b:
        ledger = Ledger(a, b)
        models = {
            "*": model(a, b, idempotent=True, concurrency=4, retry={"budget": 1}, outlier_detection={"enabled": False})
        }
        with Serving(config(models, workers=workers)) as gateway, nothing_left(gateway):
            clients = [Client(gateway, ledger, seed) for seed in range(CLIENTS)]
            for client in clients:
                client.start()
            for client in clients:
                client.join(120)
                assert not client.is_alive()
                if client.problem is not None:
                    raise client.problem
        ledger.check()
        assert ledger.count()["ok"] > CLIENTS * ROUNDS / 2
