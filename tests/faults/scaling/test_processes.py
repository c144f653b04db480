"""Replicas are processes of their own: they outlive a supervisor that is killed, and not one that stops."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness import WAIT_TIMEOUT_SECONDS, Serving, wait_until
from tests.harness.processes import alive, descendants
from tests.harness.scaling import Load, ReplicaLog, Scaled, scaled, started


@contextmanager
def orphaned(deployment: Scaled) -> Iterator[None]:
    """The supervisor is killed; its workers go on, and end with the block at the latest."""
    workers = deployment.gateway.workers
    deployment.gateway.process.kill()
    deployment.gateway.process.wait(WAIT_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        for pid in workers:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def taken_over(deployment: Scaled, load: Load, **changed: Any) -> Iterator[Scaled]:
    """And after a while there is another supervisor, perhaps with other models."""
    with orphaned(deployment):
        load.some_more()
        deployment.settings["models"] |= changed
        with Serving(deployment.settings) as second:
            deployment.admin.wait_up()
            yield Scaled(second, deployment.admin, deployment.settings)


def test_the_next_supervisor_takes_them_over(tmp_path: Path) -> None:
    model = started(tmp_path, "--seconds", 0.02, runtime={"replicas": 2})
    with scaled({"m": model}) as deployment:
        deployment.wait_ready(2)
        replicas = deployment.running()
        assert set(replicas) == set(ReplicaLog(tmp_path).starts)
        with Load(deployment.gateway.address, 20.0) as load, taken_over(deployment, load) as second:
            view = second.wait_ready(2)
            assert {instance.replica for instance in view.instances} == set(replicas.values())
            assert all(instance.adopted and not instance.outdated for instance in view.instances)
            assert view.starts == 0
            load.some_more()
            assert deployment.running() == replicas
            # They are its own now: one that dies is replaced.
            os.kill(min(replicas), signal.SIGKILL)
            wait_until(lambda: second.scaling().crashes == 1, "its end is not seen")
            second.wait_ready(2)
            load.some_more()
            load.stop()
        assert deployment.running() == {}, "they outlived a normal stop"
        assert set(load.ends) == {"200"}, load.ends
        assert len(ReplicaLog(tmp_path).starts) == 3


@pytest.mark.slow
def test_the_next_supervisor_has_other_settings(tmp_path: Path) -> None:
    """What it replaces is still used by the workers of the one before."""
    before = started(tmp_path / "m", "--seconds", 0.02, runtime={"replicas": 2})
    after = started(tmp_path / "m", "--seconds", 0.02, "--generation", 2, runtime={"replicas": 2})
    with scaled({"m": before}) as deployment:
        deployment.wait_ready(2)
        old = set(deployment.running())
        with Load(deployment.gateway.address, 20.0) as load, taken_over(deployment, load, m=after) as second:
            wait_until(lambda: not old & set(deployment.running()), "the old ones stay")
            second.wait_ready(2)
            load.some_more()
            assert bytes(second.ask().body).endswith(b" 2")
            load.stop()
        assert set(load.ends) == {"200"}, load.ends


REFUSED = """
import sys
from steelyard.core.policies.round_robin import RoundRobin
class Refused(RoundRobin):
    def __init__(self, *args, **options):
        if "--channel" in sys.argv:
            raise ValueError("in a worker it does not work")
        super().__init__(*args, **options)
"""


def serve_until_ended(settings: dict[str, Any], environment: dict[str, str]) -> None:
    """Its workers may be there for a moment: it hears later that they do not work."""
    refused = Serving(settings, environment=environment)
    refused.process.wait(WAIT_TIMEOUT_SECONDS)
    raise AssertionError(refused.output)


@pytest.mark.slow
def test_one_that_cannot_start_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """What the workers of the one before still use."""
    (tmp_path / "own.py").write_text(REFUSED)
    with scaled({"m": started(tmp_path / "m", runtime={"replicas": 2})}) as deployment:
        deployment.wait_ready(2)
        replicas = deployment.running()
        with orphaned(deployment):
            deployment.settings["models"]["m"]["policy"] = "own:Refused"
            with pytest.raises(AssertionError, match="in a worker it does not work"):
                serve_until_ended(deployment.settings, {"PYTHONPATH": str(tmp_path)})
            assert deployment.running() == replicas
            assert deployment.ask().status == 200


@pytest.mark.slow
def test_other_gateways_replicas_are_left_alone(tmp_path: Path) -> None:
    with scaled({"m": started(tmp_path / "one")}) as deployment, scaled({"m": started(tmp_path / "other")}) as beside:
        deployment.wait_ready(1)
        beside.wait_ready(1)
        theirs = beside.running()
        assert deployment.gateway.stop() == 0
        assert deployment.running() == {}
        assert beside.running() == theirs
        assert beside.ask().status == 200


def test_a_normal_stop_leaves_nothing_and_answers_who_was_there(tmp_path: Path) -> None:
    """Replicas end last: what is in flight is answered. Those that are not ready yet end too, and those that do not
    want to."""
    models = {
        "m": started(tmp_path / "m", "--seconds", 0.5, runtime={"replicas": 2}),
        "cold": started(tmp_path / "cold", "--cold", 1000),
        "deaf": started(tmp_path / "deaf", "--deaf", runtime={"stop_timeout": "500ms"}),
    }
    with scaled(models) as deployment:
        deployment.wait_ready(2)
        deployment.wait_ready(1, "deaf")
        wait_until(lambda: deployment.running("cold"), "it is not started")
        family = [*descendants(deployment.gateway.pid), *deployment.running()]
        with deployment.gateway.connect() as client:
            client.send(b"POST /work HTTP/1.1\r\nhost: a\r\nsteelyard-model: m\r\ncontent-length: 0\r\n\r\n")
            wait_until(lambda: ReplicaLog(tmp_path / "m").requests, "it did not get there")
            deployment.gateway.process.send_signal(signal.SIGTERM)
            assert client.response().status == 200
        assert deployment.gateway.process.wait(WAIT_TIMEOUT_SECONDS) == 0
        assert deployment.running() == {}
        assert not any(map(alive, family))
