"""Replicas as real processes, and questions to them."""

from __future__ import annotations

import http.client
import json
import signal
import socket
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
    command = [sys.executable, "-m", "tests.replica.fake_replica", "--port", str(port), "--log", "requests.jsonl"]
    environment.setdefault("PYTHONPATH", str(ROOT))
    return Program("demo", [*command, *map(str, options)], port, folder, "/steelyard/ready", environment=environment)


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


class Held:
    """A POST that lacks the end of its body: it runs until the test lets it end, however long that takes."""

    def __init__(self, program: Program, path: str, body: bytes = b"{}") -> None:
        self._link = socket.create_connection(("127.0.0.1", program.port), timeout=30)
        self._rest = body[-1:]
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._link.sendall(head.encode() + body[:-1])
        wait_until(lambda: load(program).get("running") == 1, "the request to begin")

    def end(self) -> int:
        """Its status."""
        with self._link, http.client.HTTPResponse(self._link) as answer:
            self._link.sendall(self._rest)
            answer.begin()
            answer.read()
            return answer.status


def load(program: Program) -> dict[str, Any]:
    found = get(program, "/steelyard/load")[1]
    return found if isinstance(found, dict) else {}


def answers(program: Program) -> None:
    wait_until(lambda: get(program, "/steelyard/live")[0] == 200, f"{program.name} to live")


def idle(program: Program) -> dict[str, Any]:
    """Its load once nothing is there: a request is counted off a moment after its answer."""
    return wait_until(lambda: (report := load(program)).get("running") == 0 and report, f"{program.name} to be idle")


def ends(program: Program) -> int:
    """Waits for it; its exit code."""
    return wait_until(lambda: (program.process.poll() is not None) and (program.process.returncode,), program.name)[0]


def tell(program: Program, number: signal.Signals) -> None:
    program.process.send_signal(number)


def lines(program: Program) -> list[dict[str, Any]]:
    """What the fake replica saw."""
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in (program.folder / "requests.jsonl").read_text().splitlines()]
    return []
