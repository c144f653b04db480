"""Real servers, two replicas of each, and `steelyard serve` in front of them; started once for all tests here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import openai
import pytest
import yaml
from tritonclient.http import InferenceServerClient

from ..harness.processes import free_port
from .chats import KEY
from .processes import Program, katan, litserve, mlserver, triton
from .tensors import has_triton


class Fleet(NamedTuple):
    chat: tuple[Program, Program]  # LitServe
    linear: tuple[Program, Program]  # MLServer
    scorer: tuple[Program, ...]  # Triton, where there is one
    echo: Program  # llm-katan
    limited: Program  # llm-katan that answers 429 from its second request on

    @property
    def programs(self) -> tuple[Program, ...]:
        return (*self.chat, *self.linear, *self.scorer, self.echo, self.limited)


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("servers")
    fleet = Fleet(
        (litserve("chat-a", folder), litserve("chat-b", folder)),
        (mlserver("linear-a", folder), mlserver("linear-b", folder)),
        (triton("scorer-a", folder), triton("scorer-b", folder)) if has_triton else (),
        katan("echo", folder),
        katan("limited", folder, "--rate-limit-after", "1"),
    )
    started: list[Program] = []
    try:
        for program in fleet.programs:
            program.start()
            started.append(program)
        for program in started:
            program.wait()
        yield fleet
    finally:
        _stop(started)


def _stop(programs: list[Program]) -> None:
    for program in programs:
        program.ask_to_stop()
    for program in programs:
        program.stop()


def configuration(fleet: Fleet, port: int) -> dict[str, object]:
    def replicas(*programs: Program) -> list[dict[str, str]]:
        return [{"id": program.name, "url": program.url} for program in programs]

    def openai(*programs: Program) -> dict[str, object]:
        return {"dialect": "openai", "replicas": replicas(*programs)}

    return {
        "listen": f"127.0.0.1:{port}",
        "models": {
            "tiny-chat": openai(*fleet.chat),
            "tiny-text": openai(*fleet.chat),
            "tiny-embed": openai(*fleet.chat),
            "narrow": openai(fleet.chat[0]) | {"concurrency": 1, "max_queue": 0},
            "echo": openai(fleet.echo),
            "one-socket": openai(fleet.echo) | {"concurrency": 1, "max_queue": 0},
            "limited": openai(fleet.limited),
            "linear": {"dialect": "oip", "replicas": replicas(*fleet.linear)},
            "scorer": {"dialect": "oip", "replicas": replicas(*fleet.scorer)},
        },
    }


@pytest.fixture(scope="session")
def running_gateway(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("gateway")
    port = free_port()
    file = folder / "steelyard.yaml"
    file.write_text(yaml.safe_dump(configuration(fleet, port)))
    gateway = Program("gateway", gateway_command(file), port, folder, "/v2/health/ready")
    gateway.start()
    try:
        gateway.wait()
        yield gateway
    finally:
        gateway.stop()


def gateway_command(file: Path) -> list[str]:
    return [sys.executable, "-m", "steelyard", "serve", str(file)]


@pytest.fixture
def gateway(running_gateway: Program) -> Iterator[Program]:
    """The gateway; after each test it must still be there and have nothing to complain of."""
    before = running_gateway.log.stat().st_size
    yield running_gateway
    assert running_gateway.process.poll() is None, running_gateway.log_tail()
    said = running_gateway.log.read_bytes()[before:].decode(errors="replace")
    assert "Traceback" not in said, said


@pytest.fixture
def triton_client(gateway: Program) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(f"127.0.0.1:{gateway.port}", concurrency=8) as client:
        yield client


@pytest.fixture
def client(gateway: Program) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key=KEY, max_retries=0, timeout=30) as client:
        yield client
