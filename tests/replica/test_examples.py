"""What examples/replicas/README.md shows is run, command by command, on ports of our own and with a shorter wait."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import sys
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest

from ..harness.processes import free_port
from ..harness.waiting import wait_until
from ..real.processes import ROOT, Program, servers_python
from .fake_gateway import gateway
from .programs import EXAMPLES, answers, ends, get, running, tell

pytestmark = pytest.mark.full

COMMANDS = [line.strip() for line in (EXAMPLES / "README.md").read_text().splitlines() if line.startswith("    ")]
STARTS = [command for command in COMMANDS if not command.startswith("curl")]


def asked(start: str) -> list[str]:
    """The questions that follow a command."""
    rest = COMMANDS[COMMANDS.index(start) + 1 :]
    return rest[: next((at for at, command in enumerate(rest) if not command.startswith("curl")), len(rest))]


def program(start: str, folder: Path, gateway: str, load: str) -> Program:
    port = free_port()
    words = shlex.split(re.sub(r"\b800\d\b", str(port), start))
    environment = {"STEELYARD_GATEWAY": gateway, "PYTHONPATH": str(ROOT / "src")}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    assert words.pop(0) == "python"
    if "LOAD_SECONDS" in environment:
        environment["LOAD_SECONDS"] = load
    else:
        words[words.index("--load-seconds") + 1] = load
    python = servers_python() if "litserve" in start else sys.executable
    where = [str(EXAMPLES / words[0]), *words[1:]] if words[0].endswith(".py") else [*words, "--app-dir", str(EXAMPLES)]
    return Program("example", [str(python), *where], port, folder, "/steelyard/ready", environment)


def curl(command: str, port: int) -> tuple[int, Any]:
    words = shlex.split(command)[1:]
    headers: dict[str, str] = {}
    body, path, method = None, "", "GET"
    while words:
        word = words.pop(0)
        if word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        elif word == "-d":
            body, method = words.pop(0), "POST"
        elif word == "-X":
            method = words.pop(0)
        elif word != "-i":
            path = re.sub(r"http://127\.0\.0\.1:\d+", "", word)
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.request(method, path, body, headers)
    answer = link.getresponse()
    try:
        return answer.status, json.loads(answer.read())
    finally:
        link.close()


@pytest.mark.parametrize(
    "start",
    [pytest.param(s, marks=[pytest.mark.xdist_group("real")] if "litserve" in s else []) for s in STARTS],
    ids=lambda start: re.search(r"(\w+)_app", start)[1],  # type: ignore[index]
)
def test_an_example_does_what_its_readme_says(start: str, tmp_path: Path) -> None:
    with gateway() as fake, running(program(start, tmp_path, fake.url, "0.5")) as server:
        server.wait()
        for question in asked(start):
            status, body = curl(question, server.port)
            assert (status, "error" in body) == (200, False), question
        wait_until(lambda: fake.leases, "a lease")
        tell(server, SIGTERM)
        ends(server)
        assert fake.leases == {}


# LitServe opens its port when it is loaded, and the one with several models is ready to be asked for them at once.
@pytest.mark.parametrize("start", [s for s in STARTS if "litserve" not in s and "several" not in s])
def test_an_example_that_loads_refuses(start: str, tmp_path: Path) -> None:
    with running(program(start, tmp_path, "", "1000")) as server:
        answers(server)
        assert get(server, "/steelyard/ready")[1]["state"] == "loading"
        *_, question = [question for question in asked(start) if "-d" in question]
        status, body = curl(question, server.port)
        assert (status, body["error"]["code"]) == (503, "loading")


def test_all_examples_are_in_the_readme() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {re.search(r"\w+_app", s)[0] for s in STARTS}  # type: ignore[index]
