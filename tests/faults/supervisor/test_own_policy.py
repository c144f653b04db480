"""A policy of a user's own that raises, in real processes: in the only worker, and in the balancer process."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness import Serving, StubReplica, config, model, wait_until

FAULTY = """
from pathlib import Path

from steelyard import Policy


class Faulty(Policy):
    def choose(self, request, candidates, now):
        if Path(__file__).with_name("broken").exists():
            raise ValueError("no table")
        return candidates[0]
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_policy_that_raises_is_a_clear_500_and_the_next_request_is_served(workers: int, tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with StubReplica("a") as stub, ExitStack() as stack:
        settings = config({"*": model(stub, policy="faulty:Faulty", concurrency=1)}, workers=workers)
        gateway = stack.enter_context(Serving(settings, environment={"PYTHONPATH": path}))
        connection = stack.enter_context(gateway.connect())
        (tmp_path / "broken").touch()
        for _ in range(3):
            response = connection.ask("POST")  # on one connection: it stays open
            assert (response.status, response.headers["steelyard-reason"]) == (500, "policy_failed")
        (tmp_path / "broken").unlink()
        for _ in range(3):
            assert connection.ask("POST").status == 200, "the slot is free"
        line = "policy faulty:Faulty: choose raised ValueError: no table"
        wait_until(lambda: line in gateway.output, "it is not logged")
    assert gateway.output.count(line) == 1
    assert "Traceback" not in gateway.output
