"""Replicas as real processes, and questions to them."""

from __future__ import annotations

import http.client
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..harness.processes import free_port
from ..harness.waiting import wait_until
from ..real.processes import ROOT, Program

EXAMPLES = ROOT / "examples" / "replicas"


@contextmanager
def running(program: Program) -> Iterator[Program]:
    program.start()
    try:
        yield program
    finally:
        program.process.kill()
        program.stop()


def demo(folder: Path, *options: object, **environment: str) -> Program:
    port = free_port()
    command = [sys.executable, "-m", "steelyard.replica.demo", "--port", str(port), "--log", "requests.jsonl"]
    return Program(
        "demo", [*command, *map(str, options)], port, folder, "/steelyard/ready", environment=dict(environment)
    )


def get(program: Program, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, Any]:
    """Status and what the JSON says, if it is such; 0: nobody answers."""
    link = http.client.HTTPConnection("127.0.0.1", program.port, timeout=30)
    try:
        link.request(method, path, body, {"content-type": "application/json"})
        answer = link.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data.startswith(b"{") else None
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        link.close()


def load(program: Program) -> dict[str, Any]:
    found = get(program, "/steelyard/load")[1]
    return found if isinstance(found, dict) else {}


def answers(program: Program) -> None:
    wait_until(lambda: get(program, "/steelyard/live")[0] == 200, f"{program.name} to live")


def ends(program: Program) -> int:
    """Waits for it; its exit code."""
    return wait_until(lambda: (program.process.poll() is not None) and (program.process.returncode,), program.name)[0]


def tell(program: Program, number: signal.Signals) -> None:
    program.process.send_signal(number)


def lines(program: Program) -> list[dict[str, Any]]:
    """What the demo replica saw."""
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in (program.folder / "requests.jsonl").read_text().splitlines()]
    return []
