"""A command that cannot start: it is said why, it is tried again ever more rarely, and nobody else has to suffer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from steelyard.control.observability.views import StartFailureView
from tests.harness import WAIT_TIMEOUT_SECONDS, wait_until
from tests.harness.processes import free_port
from tests.harness.replicas.probed import ProbedReplica
from tests.harness.scaling import Load, ReplicaLog, Scaled, scaled, started

pytestmark = pytest.mark.xdist_group("scaling_broken")

MODELS = ("dies", "missing", "folder", "taken", "never")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken")


@pytest.fixture(scope="module")
def taken() -> Iterator[socket.socket]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        yield other


@pytest.fixture(scope="module")
def deployment(folder: Path, taken: socket.socket) -> Iterator[Scaled]:
    """Broken models, each with a replica from the file that is well, and one model that starts as it should."""
    port = taken.getsockname()[1]
    models = {
        "dies": started(folder / "dies", "--dies", "no such weights"),
        "missing": started(folder / "missing", runtime={"command": "/no/such/program --port {port}"}),
        "folder": started(folder / "folder", runtime={"command": f"{folder} --port {{port}}"}),
        "taken": started(folder / "taken", runtime={"port_range": f"{port}-{port}"}),
        "never": started(folder / "never", "--cold", 1000, runtime={"start_timeout": "3s"}),
    }
    with ProbedReplica("file") as stub:
        models = {name: {**model, "replicas": [stub.config]} for name, model in models.items()}
        with scaled({**models, "well": started(folder / "well", "--seconds", 0.01)}) as deployment:
            yield deployment


def failing(deployment: Scaled, model: str, times: int = 1) -> StartFailureView:
    def seen() -> StartFailureView | None:
        failure = deployment.scaling(model).start_failure
        return failure if failure is not None and failure.consecutive_failures >= times else None

    return wait_until(seen, f"{times} failures of {model} are not shown")


def alarm(deployment: Scaled, code: str, model: str) -> str:
    """What it says."""

    def there() -> str:
        return next(
            (a.message for a in deployment.admin.fleet().alarms if a.code == code and f" {model} " in a.message), ""
        )

    return wait_until(there, f"no alarm {code} for {model}")


def test_the_others_do_not_notice(deployment: Scaled, folder: Path) -> None:
    """Neither those of other models nor the model's own that are well."""
    deployment.wait_ready(1, "well")
    before = deployment.running("well")
    with Load(deployment.gateway.address, 10.0, "dies") as own, Load(deployment.gateway.address, 10.0, "well") as other:
        for model in MODELS:
            failing(deployment, model)
        failing(deployment, "dies", 3)
        own.some_more(5)
        other.some_more(5)
    assert set(own.ends) == set(other.ends) == {"200"}, (own.ends, other.ends)
    assert deployment.running("well") == before
    assert len(ReplicaLog(folder / "well").starts) == 1
    assert {model: deployment.scaling(model).ready for model in MODELS} == dict.fromkeys(MODELS, 1)


def test_it_ends_at_once(deployment: Scaled, folder: Path) -> None:
    failure = failing(deployment, "dies", 3)
    assert (failure.reason, failure.crash_looping) == ("ended", True)
    assert "exit code 3" in failure.message
    assert failure.log_tail == ("begins", "no such weights")
    assert "no such weights" in alarm(deployment, "crash_loop", "dies")
    starts, view = len(ReplicaLog(folder / "dies").starts), deployment.scaling("dies")
    assert view.start_failure is not None
    assert starts <= view.start_failure.consecutive_failures + 1, (
        "each start but the last is a failure, and each waits twice as long"
    )
    assert len(deployment.running("dies")) <= 1


@pytest.mark.parametrize(("model", "reason"), [("missing", "command_not_found"), ("folder", "permission_denied")])
def test_there_is_no_such_program(deployment: Scaled, folder: Path, model: str, reason: str) -> None:
    failure = failing(deployment, model)
    assert failure.reason == reason
    assert ("/no/such/program" if model == "missing" else str(folder)) in failure.message
    failing(deployment, model, 3)
    assert failure.message in alarm(deployment, "crash_loop", model)


def test_it_is_never_ready(deployment: Scaled, folder: Path) -> None:
    failure = failing(deployment, "never")
    assert failure.reason == "start_timeout"
    assert failure.log_tail == ("pretends to load for 1000 s",)
    alarm(deployment, "start_timeout", "never")
    failing(deployment, "never", 2)
    view = deployment.scaling("never")
    assert view.start_failure is not None
    assert len(ReplicaLog(folder / "never").starts) <= view.start_failure.consecutive_failures + 1
    assert len(deployment.running("never")) <= 1, "those that were given up go on"


def test_the_port_is_taken_and_then_free(deployment: Scaled, folder: Path, taken: socket.socket) -> None:
    failure = failing(deployment, "taken")
    assert failure.reason in ("no_free_port", "port_in_use")
    assert str(taken.getsockname()[1]) in failure.message
    assert ReplicaLog(folder / "taken").starts == []
    taken.close()
    deployment.wait_ready(2, "taken", 60 + WAIT_TIMEOUT_SECONDS)  # tried again by itself, after a minute at the latest


def test_a_good_command_is_tried_at_once(deployment: Scaled, folder: Path) -> None:
    failing(deployment, "dies", 3)
    models = deepcopy(deployment.settings["models"])
    models["dies"]["runtime"] |= started(folder / "dies")["runtime"]
    deployment.reload(models)
    assert deployment.wait_ready(2, "dies").start_failure is None
    assert not [a for a in deployment.admin.fleet().alarms if " dies " in a.message]
