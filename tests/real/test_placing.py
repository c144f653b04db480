"""Models come and go on NVIDIA's Triton and on MLServer as they are wanted, through their repository APIs."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from steelyard.config import parse_config
from steelyard.core.replica import Event
from tests.control.driving import run
from tests.control.placement.stage import MODEL_BYTES, READY, UNLOADED, Shelf, Stage, staged

from .processes import Program, mlserver, triton
from .tensors import needs_triton

pytestmark = pytest.mark.xdist_group("real")

BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("no weights")

    def execute(self, requests):
        return []
"""


def explicit_triton(folder: Path) -> Program:
    program = triton("placing", folder)
    program.command.append("--model-control-mode=explicit")
    program.ready = "/v2/health/live"
    models = program.folder / "models"
    for name in ("two", "broken"):
        shutil.copytree(models / "scorer", models / name)
    (models / "broken" / "1" / "model.py").write_text(BROKEN)
    return program


def explicit_mlserver(folder: Path) -> Program:
    program = mlserver("placing", folder)
    program.environment["MLSERVER_LOAD_MODELS_AT_STARTUP"] = "false"
    program.ready = "/v2/health/live"
    (program.folder / "model-settings.json").unlink()
    for name, kind in (("scorer", "Scorer"), ("two", "Scorer"), ("broken", "Nobody")):
        (program.folder / name).mkdir()
        settings = {"name": name, "implementation": f"mlserver_runtime.{kind}"}
        (program.folder / name / "model-settings.json").write_text(json.dumps(settings))
    return program


@contextmanager
def running(program: Program) -> Iterator[None]:
    program.start()
    try:
        program.wait()
        yield
    finally:
        program.stop()


@needs_triton
def test_triton(tmp_path: Path) -> None:
    program = explicit_triton(tmp_path)
    with running(program):
        run(_scene(program, "triton", "no weights"))


def test_mlserver(tmp_path: Path) -> None:
    program = explicit_mlserver(tmp_path)
    with running(program):
        run(_scene(program, "oip", "answers 500"))


async def _scene(program: Program, dialect: str, sentence: str) -> None:
    """Room for one: it is loaded, makes room for another, and what cannot be loaded leaves the room as it was."""
    async with staged() as stage:
        stage.shelves = {"a": Shelf()}
        stage.shelves["a"].port = program.port
        stage.ledger.capacity = MODEL_BYTES
        _follow(stage, program, dialect)
        await stage.known()
        assert stage.ledger.reserved == {}
        stage.load("scorer", "a")
        await stage.until(lambda: stage.state("scorer", "a") == READY)
        assert await _is_ready(program, "scorer")
        stage.load("two", "a", ("a", "scorer"))
        await stage.until(lambda: stage.state("two", "a") == READY)
        assert (await _is_ready(program, "two"), await _is_ready(program, "scorer")) == (True, False)
        assert stage.ledger.reserved == {("two", "a"): MODEL_BYTES}
        stage.ledger.capacity = 2 * MODEL_BYTES
        stage.load("broken", "a")
        await stage.until(stage.failures)
        stage.script.loads = []
        (view,) = stage.placer.views().failures
        assert (view.model, view.reason) == ("broken", "load_failed")
        assert sentence in view.message
        await stage.until(lambda: stage.ledger.reserved == {("two", "a"): MODEL_BYTES})
        await _somebody_else(program, "two", "unload")
        stage.move(("two", "a"), Event.LIVE)  # as probes see it
        await stage.until(lambda: stage.state("two", "a") == UNLOADED and not stage.ledger.reserved)


def _follow(stage: Stage, program: Program, dialect: str) -> None:
    replicas = [{"id": "a", "url": program.url, "device": "gpu"}]
    model = {"dialect": dialect, "placement": {}, "replicas": replicas}
    wanted = {"models": dict.fromkeys(("scorer", "two", "broken"), model), "devices": {"gpu": {"memory": "1GiB"}}}
    stage.members(parse_config(json.dumps(wanted)))


async def _is_ready(program: Program, model: str) -> bool:
    return await _status(program, "GET", f"/v2/models/{model}/ready") == 200


async def _somebody_else(program: Program, model: str, what: str) -> None:
    assert await _status(program, "POST", f"/v2/repository/models/{model}/{what}") == 200


async def _status(program: Program, method: str, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", program.port)
    writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status
