"""Three demo models in one process that the kernel limits (RLIMIT_DATA): it ends with code 137 when memory runs out.

This needs nothing of the machine, and here nothing is declared: all that is counted was measured by the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.load.memory_requests import MIB, run
from benchmarks.mocks.memory_device import HostedModel

from tests.harness.admin import PROBED, AdminClient, admin_config
from tests.harness.memory import at_rest, jobs, port, watched_ledger
from tests.harness.processes import memory
from tests.harness.serving import Serving, config
from tests.real.processes import Program
from tests.replica.programs import answers, demo, ends, get, running

PROCESS_LIMIT_BYTES = 220 * MIB
HEADROOM = 0.1
BUDGET = int(PROCESS_LIMIT_BYTES * (1 - HEADROOM))
MODELS = tuple(HostedModel(name, 16 * MIB, 32 << 10) for name in "abc")
OOM_KILLED_EXIT_CODE = 137  # as a shell tells that the kernel's out-of-memory killer was there
BURST = jobs(36, models=MODELS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Program]:
    models = ",".join(f"{model.name}={model.weights}" for model in MODELS)
    limits = ("--bytes-per-element", MODELS[0].per_unit, "--limit", PROCESS_LIMIT_BYTES, "--die", "--load-seconds", 0)
    with running(demo(tmp_path, "--allocate", "--models", models, *limits)) as server:
        answers(server)
        for model in MODELS:
            status, body = get(server, f"/steelyard/models/{model.name}/load?wait=20", "POST")
            assert status == 200, body
        yield server


@contextmanager
def fronted(server: Program, devices: dict[str, Any]) -> Iterator[tuple[Serving, AdminClient]]:
    whole = {}
    for model in MODELS:
        replica = {"id": model.name, "url": server.url, **({"device": "node"} if devices else {})}
        health = {**PROBED, "path": f"/steelyard/models/{model.name}/ready"}
        load_metrics = {"orca": True, "enabled": True, "path": "/steelyard/metrics", "interval": "1s"}
        options = {"dialect": "oip", "policy": "least_connections", "concurrency": "unlimited"}
        whole[model.name] = {**options, "replicas": [replica], "health": health, "load_metrics": load_metrics}
    settings = config(whole, admin=admin_config(), **({"devices": devices} if devices else {}))
    with Serving(settings) as gateway, AdminClient(settings) as admin:
        admin.wait_up()
        for model in MODELS:
            admin.wait_ready(model.name, model=model.name)
        yield gateway, admin


def test_without_a_ledger_a_burst_takes_all_three_down(server: Program) -> None:
    with fronted(server, {}) as (gateway, _):
        run(port(gateway), jobs(36, models=MODELS, seconds=0.5), 30)
        assert ends(server) == OOM_KILLED_EXIT_CODE


def test_with_it_all_are_answered(server: Program) -> None:
    with fronted(server, {"node": {"memory": PROCESS_LIMIT_BYTES, "headroom": HEADROOM}}) as (gateway, admin):
        with watched_ledger(admin, BUDGET):
            seen = run(port(gateway), BURST, 30)
        assert not seen.failed
        at_rest(admin, weights=None)
        assert memory(server.process.pid, "VmHWM") <= BUDGET
    assert server.process.poll() is None
