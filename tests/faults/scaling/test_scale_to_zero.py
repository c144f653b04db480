"""A model without a replica: who asks waits for one, which is started once, however many ask."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harness import wait_until
from tests.harness.scaling import QUICK, ReplicaLog, Scaled, scaled, started

pytestmark = pytest.mark.xdist_group("scaling_zero")


def model(
    folder: Path, *more: object, queue_timeout: str = "30s", runtime: dict[str, Any] | None = None, **autoscale: Any
) -> dict[str, Any]:
    from_zero = {"min": 0, "max": 1, "scale_to_zero_after": "60s", "scaler_options": QUICK, **autoscale}
    return started(folder, *more, runtime=runtime, autoscale=from_zero, queue_timeout=queue_timeout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zero")


@pytest.fixture(scope="module")
def deployment(folder: Path) -> Iterator[Scaled]:
    """A gateway for all tests here, each with a model of its own."""
    models = {
        "crowd": model(folder / "crowd", "--cold", 0.5, "--seconds", 0.01, scale_to_zero_after="3s"),
        "roomy": model(folder / "roomy", "--cold", 0.3, "--seconds", 0.01, max=5),
        "hasty": model(folder / "hasty", "--cold", 2, cold_start="20s"),
        "leaver": model(folder / "leaver", "--cold", 3),  # time for a client to go away
        "broken": model(folder / "broken", "--dies", "x", queue_timeout="1s"),
        "failing": model(
            folder / "failing", "--dies", "no such weights", queue_timeout="10m", runtime={"expose_log_tail": True}
        ),
        "discreet": model(folder / "discreet", "--dies", "HF_TOKEN=hf_secret", queue_timeout="10m"),
    }
    with scaled(models) as deployment:
        yield deployment


def test_many_at_once_wake_one(deployment: Scaled, folder: Path) -> None:
    replica_log = ReplicaLog(folder / "crowd")
    assert deployment.wait_ready(0, "crowd").starts == 0
    with ThreadPoolExecutor(40) as crowd:
        answers = list(crowd.map(lambda _: deployment.ask("crowd"), range(40)))
    assert {answer.status for answer in answers} == {200}
    assert len(replica_log.starts) == 1
    assert len(replica_log.requests) == 40
    # Nobody asks any more: none is left. And again.
    deployment.wait_ready(0, "crowd")
    assert deployment.running("crowd") == {}
    # Meanwhile it was measured how long a start takes: a client with less time is told so.
    hasty = deployment.ask("crowd", **{"steelyard-timeout-ms": "100"})
    assert hasty.headers["steelyard-reason"] == "deadline"
    assert f"The model is being started, usually ready in {hasty.headers['retry-after']} s" in hasty.body.decode()
    assert deployment.ask("crowd").status == 200
    assert len(replica_log.starts) == 2
    view = deployment.scaling("crowd")
    assert (view.starts, view.crashes) == (2, 0)
    assert view.cold_start_measured


def test_a_crowd_alone_is_no_reason_for_many(deployment: Scaled) -> None:
    """How long its requests take is not known yet: one is started first, whatever `max` allows."""
    with ThreadPoolExecutor(20) as crowd:
        assert {answer.status for answer in crowd.map(lambda _: deployment.ask("roomy"), range(20))} == {200}
    history = deployment.scaling("roomy").steps
    assert (history[0].before, history[0].after) == (0, 1)


def test_who_cannot_wait_so_long_is_told_and_wakes_it_all_the_same(deployment: Scaled, folder: Path) -> None:
    answer = deployment.ask("hasty", **{"steelyard-timeout-ms": "200"})
    assert answer.status in (429, 503), answer
    assert 10 <= int(answer.headers["retry-after"]) <= 25, "in 20 seconds it should be there"
    wait_until(lambda: len(ReplicaLog(folder / "hasty").starts) == 1, "nothing is started")
    assert deployment.ask("hasty").status == 200
    assert deployment.wait_ready(1, "hasty").starts == 1


def test_who_goes_away_has_woken_it_all_the_same(deployment: Scaled, folder: Path) -> None:
    replica_log = ReplicaLog(folder / "leaver")
    with deployment.gateway.connect() as client:
        client.send(b"POST /work HTTP/1.1\r\nhost: a\r\nsteelyard-model: leaver\r\ncontent-length: 0\r\n\r\n")
        wait_until(lambda: replica_log.starts, "nothing is started")
    deployment.wait_ready(1, "leaver")
    assert replica_log.requests == [], "nobody waits for that answer"
    assert deployment.ask("leaver").status == 200
    assert len(replica_log.starts) == 1


def test_a_start_that_fails_answers_at_once_with_its_last_words(deployment: Scaled) -> None:
    """Although requests might wait for ten minutes."""
    answer = deployment.ask("failing")
    assert (answer.status, answer.headers["steelyard-reason"]) == (503, "start_failed")
    assert int(answer.headers["retry-after"]) >= 1
    assert b"could not be started" in answer.body
    assert b"the last lines of its log: begins | no such weights" in answer.body


def test_last_words_that_may_be_secret_go_to_operators_alone_by_default(deployment: Scaled) -> None:
    answer = deployment.ask("discreet")
    assert (answer.status, answer.headers["steelyard-reason"]) == (503, "start_failed")
    assert (
        b"its process ended: exit code 3; the last lines of its log are in the gateway's log and admin API."
        in answer.body
    )
    assert b"secret" not in answer.body
    failure = deployment.scaling("discreet").start_failure
    assert failure is not None
    assert "HF_TOKEN=hf_secret" in failure.log_tail


def test_who_waits_in_vain_is_refused_in_the_end(deployment: Scaled, folder: Path) -> None:
    """It cannot be started: nobody hangs for ever, and nothing is tried again and again."""
    answer = deployment.ask("broken")
    assert answer.status == 503
    assert "retry-after" in answer.headers
    assert len(ReplicaLog(folder / "broken").starts) <= 3
