"""A tool that reads the OpenAPI document and tries everything finds nothing that is otherwise."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
import uvloop

from steelyard.config import AdminConfig, ReplicaConfig, parse_config
from steelyard.control.admin.openapi import document
from steelyard.control.admin.routes import ROUTES

from ...driving import supervised
from ..fake_operations import FakeOperations
from ..serving import TOKEN, WAIT_TIMEOUT_SECONDS, served

ROOT = Path(__file__).parents[4]
CHANGES = {"add", "remove", "drain", "undrain", "load", "unload"}
CHANGES |= {"set_weight", "set_model", "reload", "register", "deregister"}
UNPROBED = {
    "health": {"enabled": False},
    "replicas": [{"url": "http://127.0.0.1:8001", "id": "a", "device": "node1/gpu0"}],
    "autoscale": {"mode": "recommend", "max": 4},
}
DEVICES = {"node1/gpu0": {"memory": "8GiB"}, "dark": {}}
MODELS = ("llama", "org/mœdel:7b.1")  # as in generated_values.py
REPLICAS = ("a", "b", "pod/3", "127.0.0.1:9001", "started")
# Without a server that can load models and without one that was started, these are always refused; test_loading.py and
# test_scaling.py have them. And who has left cannot leave again: in a long run most are told so.
REFUSED = (
    '[[operations]]\ninclude-operation-id = ["load", "unload", "replica_log", "withdraw_lease"]\nwarnings = false\n'
)


class Counting(FakeOperations):
    """Counts what was done, not what was refused."""

    def __init__(self) -> None:
        super().__init__()
        self.done: Counter[str] = Counter()
        for model in MODELS:
            self.put_replica(model, ReplicaConfig(url="http://127.0.0.1:20000", id="started"), "runtime")
        for name in CHANGES:
            setattr(self, name, self._counted_call(name, getattr(self, name)))

    def _counted_call(self, name: str, operation: Any) -> Any:
        async def call(*given: Any) -> Any:
            result = await operation(*given)
            self.done[name] += 1
            return result

        return call


def try_everything(here: Path, url: str, *, token: str, examples: int, seed: int) -> None:
    (here / "openapi.json").write_bytes(document(token=bool(token)))
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(here / "openapi.json"), "--url", url]
    command += ["--checks", "all", "--continue-on-failure", "--no-color"]
    command += ["--request-timeout", "60", "--suppress-health-check", "too_slow"]
    command += ["--max-examples", str(examples), "--seed", str(seed)]
    command += ["--exclude-path", "/v1/live"]  # it never ends: test_live.py has it
    if token:
        command += ["-H", f"Authorization: Bearer {token}"]
    done = subprocess.run(
        command,
        cwd=here,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.control.admin.openapi.generated_values",
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert "No issues found" in done.stdout, done.stdout[-20_000:]
    found = re.search(r"Operations: +(\d+) selected / (\d+) total", done.stdout)
    assert found is not None
    assert int(found[1]) + 1 == int(found[2]) == len(ROUTES) + 1


def try_the_fake(here: Path, **options: int) -> Counting:
    operations = Counting()
    (here / "tokens").write_text(TOKEN)
    with served(operations, token_file=str(here / "tokens")) as admin:
        try_everything(here, admin.url, token=TOKEN, **options)
    assert set(operations.done) == CHANGES, "not everything was reached"
    return operations


def register(url: str) -> None:
    """So that there is somebody to leave: few of the names that are tried are those of registered replicas."""
    for model, replica in product(MODELS, REPLICAS[1:]):
        path = f"/v1/models/{quote(model, safe='')}/leases/{quote(replica, safe='')}"
        body = {"url": "http://127.0.0.1:8001", "device": "node1/gpu0"}
        answer = httpx.put(url + path, json=body, trust_env=False, timeout=WAIT_TIMEOUT_SECONDS)
        assert answer.status_code == 200, answer.text


def try_the_real_one(here: Path, **options: int) -> None:
    made = parse_config(json.dumps({"models": dict.fromkeys(MODELS, UNPROBED), "devices": DEVICES}))
    made = msgspec.structs.replace(made, listen="127.0.0.1:0", admin=AdminConfig(listen="127.0.0.1:0"))

    async def work() -> None:
        async with supervised(made) as supervisor:
            url = f"http://{supervisor.admin_address}"
            (here / "schemathesis.toml").write_text(REFUSED)
            await asyncio.to_thread(register, url)
            await asyncio.to_thread(try_everything, here, url, token="", **options)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


def bugs(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.slow
def test_schemathesis_finds_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    try_the_fake(tmp_path, examples=10, seed=4)
    assert not bugs(caplog)


def test_schemathesis_finds_nothing_with_a_real_supervisor(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    try_the_real_one(tmp_path, examples=10, seed=5)
    assert not bugs(caplog)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_schemathesis_finds_nothing_in_minutes(tmp_path: Path, seed: int) -> None:
    try_the_fake(tmp_path, examples=400, seed=seed)
    try_the_real_one(tmp_path, examples=200, seed=seed)
