"""What runs on a replica that leaves is finished; who waits for one is answered, whatever becomes of the gateway."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness import WAIT_TIMEOUT_SECONDS, Connection, Response, Serving, Truncated, request, wait_until
from tests.harness.processes import alive
from tests.harness.scaling import QUICK, ReplicaLog, Scaled, scaled, started

WORK = request("POST", headers={"steelyard-model": "m"})
LONG_DRAIN_SECONDS = 35  # longer than a replica that leaves had before


def streaming(folder: Path, **runtime: Any) -> dict[str, Any]:
    model = started(folder, runtime={"replicas": 2, **runtime})
    if "drain_timeout" not in runtime:
        del model["runtime"]["drain_timeout"]
    return model


def stream(deployment: Scaled) -> tuple[Connection, Response]:
    connection = deployment.gateway.connect()
    connection.send(request("POST", "/stream", headers={"steelyard-model": "m"}))
    response = connection.begin("POST")
    connection.read_body(response, b".")
    return connection, response


@pytest.mark.parametrize("seconds", [0, pytest.param(LONG_DRAIN_SECONDS, marks=pytest.mark.slow)])
def test_a_stream_outlives_the_scale_down(tmp_path: Path, seconds: float) -> None:
    with scaled({"m": streaming(tmp_path)}, workers=1) as deployment:
        deployment.wait_ready(2)
        streams = [stream(deployment), stream(deployment)]
        assert len(set(ReplicaLog(tmp_path).requests)) == 2, "one on each"
        deployment.reload({"m": streaming(tmp_path, replicas=1)})
        wait_until(lambda: deployment.scaling().terminating == 1, "none leaves")
        time.sleep(seconds)
        for connection, response in streams:
            connection.read_body(response, response.body + b".")  # it goes on
        assert len(deployment.running()) == 2
        (tmp_path / "replica_log.end").touch()
        for connection, response in streams:
            assert set(connection.finish(response).body) == {ord(".")}
        deployment.wait_ready(1)
        assert len(deployment.running()) == 1


def test_where_the_operator_bounds_it_the_stream_is_cut(tmp_path: Path) -> None:
    with scaled({"m": streaming(tmp_path, drain_timeout="200ms", replicas=1)}) as deployment:
        deployment.wait_ready(1)
        connection, response = stream(deployment)
        deployment.reload({"m": streaming(tmp_path, drain_timeout="200ms", replicas=0)})
        with pytest.raises(Truncated):
            connection.finish(response)
        deployment.wait_ready(0)


# ---------------------------------------------------------------------- at zero, and the gateway ends


def at_zero(folder: Path) -> dict[str, Any]:
    """Its replicas are not ready before `folder/gate` is there."""
    autoscale = {"min": 0, "max": 1, "scale_to_zero_after": "10m", "scaler_options": QUICK}
    return started(folder, "--gate", folder / "gate", autoscale=autoscale, queue_timeout="10m")


@contextmanager
def waiting(deployment: Scaled, folder: Path) -> Iterator[Connection]:
    """Somebody waits for a replica, which is being started."""
    with deployment.gateway.connect() as client:
        client.send(WORK)
        wait_until(lambda: ReplicaLog(folder).starts, "nothing is started")
        yield client


def test_a_gateway_that_is_told_to_stop_still_sees_the_replica_ready_for_which_one_waits(tmp_path: Path) -> None:
    with (
        scaled({"m": at_zero(tmp_path)}, timeouts={"drain": f"{WAIT_TIMEOUT_SECONDS}s"}) as deployment,
        waiting(deployment, tmp_path) as client,
    ):
        deployment.gateway.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping:" in deployment.gateway.output, "it does not stop")
        (tmp_path / "gate").touch()
        assert client.response("POST").status == 200
        client.wait_closed()
        assert deployment.gateway.process.wait(WAIT_TIMEOUT_SECONDS) == 0
        assert deployment.running() == {}


def test_who_waits_in_vain_until_the_gateway_ends_is_told_so(tmp_path: Path) -> None:
    with (
        scaled({"m": at_zero(tmp_path)}, timeouts={"drain": "500ms"}) as deployment,
        waiting(deployment, tmp_path) as client,
    ):
        deployment.gateway.process.send_signal(signal.SIGTERM)
        check_stopping(client)
        assert deployment.gateway.process.wait(WAIT_TIMEOUT_SECONDS) == 0
        assert "Traceback" not in deployment.gateway.output


def test_so_is_who_is_not_answered_in_time_and_who_is_in_line_behind(tmp_path: Path) -> None:
    with scaled({"m": started(tmp_path, "--seconds", 1000)}, workers=1, timeouts={"drain": "500ms"}) as deployment:
        deployment.wait_ready(1)
        with deployment.gateway.connect() as runs, deployment.gateway.connect() as waits:
            runs.send(WORK)
            wait_until(lambda: ReplicaLog(tmp_path).requests, "it did not get there")
            waits.send(WORK)
            wait_until(lambda: deployment.admin.http.get("/v1/models/m").json()["waiting"] == 1, "it does not wait")
            deployment.gateway.process.send_signal(signal.SIGTERM)
            check_stopping(runs)
            check_stopping(waits)
        assert deployment.gateway.process.wait(WAIT_TIMEOUT_SECONDS) == 0
        assert len(ReplicaLog(tmp_path).requests) == 1


def test_who_waits_at_a_worker_whose_supervisor_was_replaced_is_sent_to_the_next(tmp_path: Path) -> None:
    """That worker never hears that the replica is ready; the next ones do."""
    with scaled({"m": at_zero(tmp_path)}, timeouts={"drain": f"{WAIT_TIMEOUT_SECONDS}s"}) as deployment:
        workers = deployment.gateway.workers
        try:
            with waiting(deployment, tmp_path) as client:
                deployment.gateway.process.kill()
                deployment.gateway.process.wait(WAIT_TIMEOUT_SECONDS)
                with Serving(deployment.settings) as second:
                    check_stopping(client)
                    (tmp_path / "gate").touch()
                    assert second.ask("POST", headers={"steelyard-model": "m"}).status == 200
            assert len(ReplicaLog(tmp_path).starts) == 1
        finally:
            for pid in filter(alive, workers):
                os.kill(pid, signal.SIGKILL)


def check_stopping(client: Connection) -> None:
    answer = client.response("POST")
    assert (answer.status, answer.headers["steelyard-reason"]) == (503, "stopping")
    assert int(answer.headers["retry-after"]) >= 1
    client.wait_closed()
