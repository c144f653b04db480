"""More replicas when more comes, fewer when less does, others when they are to be others: no request pays for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.harness import wait_until
from tests.harness.scaling import QUICK, Load, ReplicaLog, Scaled, scaled, started

pytestmark = pytest.mark.xdist_group("scaling_load")

TO_FIVE = {"min": 1, "max": 5, "cold_start": "1s", "scaler_options": QUICK}


def changing(folder: Path, generation: str) -> dict[str, Any]:
    arguments = ("--cold", 0.2, "--seconds", 0.02, "--generation", generation)
    return started(folder / "changing", *arguments, runtime={"replicas": 2})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scaling")


@pytest.fixture(scope="module")
def deployment(folder: Path) -> Iterator[Scaled]:
    """A gateway for all tests here, each with a model of its own."""
    two: dict[str, Any] = {"replicas": 2}
    models = {
        "killed": started(folder / "killed", "--seconds", 0.02, runtime=two),
        "fragile": started(folder / "fragile", "--seconds", 0.1, runtime=two, idempotent=False),
        "changing": changing(folder, "old"),
        "advised": started(
            folder / "advised", "--seconds", 0.1, autoscale={**TO_FIVE, "mode": "recommend"}, queue_timeout="5m"
        ),
        "spike": started(folder / "spike", "--cold", 0.5, "--seconds", 0.05, autoscale=TO_FIVE),
    }
    with scaled(models) as deployment:
        yield deployment


def only_answers(load: Load) -> None:
    assert set(load.ends) == {"200"}, load.ends


@pytest.mark.slow
def test_five_times_as_much_and_back(deployment: Scaled, folder: Path) -> None:
    """0.2 seconds of work per second, for which one replica is right, then 1.0."""
    deployment.wait_ready(1, "spike")
    with Load(deployment.gateway.address, 4.0, "spike") as load:
        load.some_more(8)
        load.rate = 20.0
        wait_until(lambda: deployment.scaling("spike").ready >= 3, "no more replicas")
        load.some_more(40)
        load.rate = 4.0
        deployment.wait_ready(1, "spike")
        load.some_more(8)
    only_answers(load)
    view = deployment.scaling("spike")
    sizes = [step.after for step in view.steps]
    assert max(sizes) >= 3
    assert sizes[-1] == 1
    assert view.crashes == 0
    assert view.starts - view.stops == 1
    assert view.starts == len(ReplicaLog(folder / "spike").starts)
    assert all("→" in step.reason and step.carried_out for step in view.steps)


def test_one_that_is_killed_is_replaced(deployment: Scaled, folder: Path) -> None:
    """Whatever it was working on may be sent again, and is."""
    deployment.wait_ready(2, "killed")
    with Load(deployment.gateway.address, 30.0, "killed") as load:
        for turn in range(1, 3):
            before = deployment.running("killed")
            victim = min(before)
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda turn=turn: deployment.scaling("killed").crashes == turn, "its end is not seen")
            deployment.wait_ready(2, "killed")
            assert set(before) - set(deployment.running("killed")) == {victim}, "others were touched"
            load.some_more(10)
    only_answers(load)
    assert len(ReplicaLog(folder / "killed").starts) == 4
    view = deployment.scaling("killed")
    assert view.start_failure is not None
    assert "SIGKILL" in view.start_failure.message


def test_what_may_not_be_sent_again_fails_alone(deployment: Scaled) -> None:
    """One request at a time was on the replica that is killed."""
    deployment.wait_ready(2, "fragile")
    with Load(deployment.gateway.address, 12.0, "fragile") as load:
        load.some_more(5)
        os.kill(min(deployment.running("fragile")), signal.SIGKILL)
        wait_until(lambda: deployment.scaling("fragile").crashes == 1, "its end is not seen")
        deployment.wait_ready(2, "fragile")
        load.some_more(10)
    assert sum(load.ends.values()) - load.ok <= 1, load.ends


def test_another_command_takes_the_place_of_the_old_one(deployment: Scaled, folder: Path) -> None:
    deployment.wait_ready(2, "changing")
    before = set(deployment.running("changing"))
    with Load(deployment.gateway.address, 20.0, "changing") as load:
        load.some_more()
        assert bytes(deployment.ask("changing").body).endswith(b" old")
        deployment.reload({**deepcopy(deployment.settings["models"]), "changing": changing(folder, "new")})
        wait_until(lambda: not before & set(deployment.running("changing")), "the old ones stay")
        deployment.wait_ready(2, "changing")
        load.some_more()
        assert bytes(deployment.ask("changing").body).endswith(b" new")
    only_answers(load)
    assert len(ReplicaLog(folder / "changing").starts) == 4
    view = deployment.scaling("changing")
    assert (view.starts, view.stops, view.crashes) == (4, 2, 0)


def test_who_only_recommends_starts_nothing(deployment: Scaled, folder: Path) -> None:
    """There is one from the start on, which is `min`; more would be started."""
    deployment.wait_ready(1, "advised")
    before = deployment.running("advised")
    with Load(deployment.gateway.address, 15.0, "advised") as load:
        wait_until(
            lambda: any(step.after >= 2 for step in deployment.scaling("advised").steps), "nothing is recommended"
        )
    only_answers(load)
    view = deployment.scaling("advised")
    assert view.mode == "recommend"
    assert not any(step.carried_out for step in view.steps if step.after > 1)
    assert deployment.running("advised") == before
    assert len(ReplicaLog(folder / "advised").starts) == 1
