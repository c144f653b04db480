"""Memory over real servers: what requests need is told with their answers, and one that runs out is answered 507."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ...harness.processes import free_port
from ...harness.waiting import wait_until
from ...real.processes import ROOT, Program
from ..programs import idle, load, running

MIB = 1 << 20
KINDS = [("fastapi", "middleware"), ("starlette", "wrap")]  # the others are in test_frameworks.py


def server(folder: Path, framework: str, how: str) -> Program:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.replica.memory.hungry_app:app", "--port", str(port)]
    environment = {"FRAMEWORK": framework, "HOW": how, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    return Program("hungry", command, port, folder, "/steelyard/ready", environment)


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with running(server(tmp_path_factory.mktemp("hungry"), *request.param)) as program:
        program.wait()
        yield program


@pytest.fixture
def hungry(started: Program) -> Program:
    """With nothing left there of the test before."""
    idle(started)
    return started


class Answer:
    def __init__(self, program: Program, path: str, asked: bool = True) -> None:
        link = http.client.HTTPConnection("127.0.0.1", program.port, timeout=30)
        try:
            link.request("GET", path, headers={"endpoint-load-metrics-format": "JSON"} if asked else {})
            got = link.getresponse()
            self.status = got.status
            report = got.headers.get("endpoint-load-metrics", "")
            self.report: dict[str, Any] = json.loads(report.removeprefix("JSON ") or "{}").get("named_metrics", {})
            try:
                self.body = got.read()
            except http.client.HTTPException:
                self.body = b"broken off"
        finally:
            link.close()

    @property
    def needed(self) -> int | None:
        return self.report.get("memory_request_bytes")

    @property
    def about(self) -> int:
        """MiB, to the nearest 8: what the server itself allocates besides is less than that."""
        assert self.needed is not None
        return round(self.needed / MIB / 8) * 8


def test_a_request_that_is_alone_is_measured(hungry: Program) -> None:
    for mib in (64, 8, 128, 32):
        idle(hungry)
        answer = Answer(hungry, f"/take?bytes={mib * MIB}")
        assert (answer.status, answer.about) == (200, mib)
        assert answer.report["memory_held_bytes"] < answer.report["memory_base_bytes"] + 16 * MIB  # given back by now
    assert "memory_request_bytes" not in Answer(hungry, "/take?bytes=1000000", asked=False).report


@contextmanager
def another(program: Program) -> Iterator[list[Answer]]:
    """A request that is there meanwhile."""
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(Answer(program, "/wait")))
    thread.start()
    try:
        wait_until(lambda: load(program)["running"] == 1, "the other request to begin")
        yield found
    finally:
        Answer(program, "/open")
        thread.join(30)
        idle(program)


def test_requests_that_overlap_tell_nothing(hungry: Program) -> None:
    with another(hungry) as found:
        answer = Answer(hungry, f"/take?bytes={8 * MIB}")
        assert (answer.status, answer.needed) == (200, None)
    assert (found[0].status, found[0].needed) == (200, None)
    assert Answer(hungry, f"/take?bytes={8 * MIB}").about == 8


@pytest.mark.parametrize("how", ["run_in_threadpool", "to_thread", "async", "generator", "async+generator"])
def test_a_section_is_measured_though_other_requests_are_there(hungry: Program, how: str) -> None:
    with another(hungry):
        answer = Answer(hungry, f"/measured?bytes={48 * MIB}&how={how}")
        assert (answer.status, answer.about) == (200, 48)


def test_sections_under_a_lock_are_all_measured(hungry: Program) -> None:
    sizes = (16, 64, 32, 16, 64, 32)
    found: dict[int, list[int]] = {}

    def one(mib: int) -> None:
        found.setdefault(mib, []).append(Answer(hungry, f"/measured?bytes={mib * MIB}").about)

    threads = [threading.Thread(target=one, args=(mib,)) for mib in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {16: [16, 16], 64: [64, 64], 32: [32, 32]}


def test_of_a_stream_what_it_needs_until_its_first_byte_is_told(hungry: Program) -> None:
    answer = Answer(hungry, f"/stream?bytes={32 * MIB}")
    assert (answer.status, answer.body, answer.about) == (200, b"one two", 32)
    assert Answer(hungry, f"/stream?bytes={MIB}", asked=False).body == b"one two"


@pytest.mark.parametrize("how", ["torch", "python"])
def test_one_that_runs_out_of_memory_is_answered_507(hungry: Program, how: str) -> None:
    before = load(hungry)["out_of_memory"]
    answer = Answer(hungry, f"/fail?how={how}")
    assert answer.status == 507
    assert json.loads(answer.body)["error"]["code"] == "out_of_memory"
    assert answer.needed is None
    assert answer.report["memory_held_bytes"] > 0
    assert idle(hungry)["out_of_memory"] == before + 1


@pytest.mark.parametrize(
    ("how", "body"),
    [("other", b"Internal Server Error"), ("answer", b"its own"), ("long", b"x" * 200_000)],
)
def test_another_failure_is_the_apps_own(hungry: Program, how: str, body: bytes) -> None:
    before = load(hungry)["out_of_memory"]
    answer = Answer(hungry, f"/fail?how={how}")
    assert (answer.status, answer.body, answer.needed) == (500, body, None)
    assert idle(hungry)["out_of_memory"] == before


def test_an_answer_of_500_does_not_wait_for_work_in_the_background(hungry: Program) -> None:
    answer = Answer(hungry, "/fail?how=background")
    assert (answer.status, answer.body) == (500, b"its own")
    Answer(hungry, "/open")


def test_an_answer_that_has_begun_is_broken_off_and_counted(hungry: Program) -> None:
    before = load(hungry)["out_of_memory"]
    answer = Answer(hungry, "/fail?how=begun")
    assert (answer.status, answer.body) == (200, b"broken off")
    assert idle(hungry)["out_of_memory"] == before + 1
