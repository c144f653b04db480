"""docs/admin.md: whoever types in its commands, from top to bottom, sees what it says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
import pytest

from steelyard.cli import main
from steelyard.config import AdminConfig, ReplicaConfig, parse_config
from steelyard.control.admin.errors import ERROR_CODES
from steelyard.control.admin.schemas import Log
from steelyard.control.observability.views import (
    DeviceView,
    InstanceView,
    ModelMemoryView,
    ModelView,
    ReplicaView,
    ResidentModelView,
    ScalingStepView,
    ScalingView,
    StartFailureView,
)

from ..driving import run, supervised, until
from .fake_operations import FakeOperations
from .serving import served

PAGE = (Path(__file__).parents[3] / "docs/admin.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:9080"


class Command(NamedTuple):
    section: str
    text: str
    status: int  # 0: any success


def commands() -> Iterator[Command]:
    """The lines of blocks without a language. `  # 404` behind a line: that is its status."""
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
            for line in block.splitlines() if not language else ():
                text, _, status = line.partition("  # ")
                if not line.startswith(("{", "steelyard ")):
                    yield Command(section.partition("\n")[0], text, int(status or 0))


def type_in(command: Command, url: str, here: Path) -> None:
    """curl tells the status of each answer on standard error, and the command itself must succeed."""
    (here / ".curlrc").write_text(
        'write-out = "%{stderr}%{http_code}\\n"\nnoproxy = "*"\nno-progress-meter\nmax-time = 60\n'
    )
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command.text.replace(ADDRESS, url)}"],
        cwd=here,
        env={**os.environ, "CURL_HOME": str(here)},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{command.text}\n{done.stdout}{done.stderr}"
    for status in map(int, done.stderr.split()):
        assert status == command.status or (not command.status and status < 300), f"{command.text}\n{done.stdout}"


def everything() -> dict[str, list[Command]]:
    """By section; each is for a gateway of its own."""
    if missing := [tool for tool in ("bash", "curl", "jq", "openssl") if shutil.which(tool) is None]:
        pytest.skip(f"the page uses {', '.join(missing)}, which this machine has not")
    found: dict[str, list[Command]] = {}
    for command in commands():
        found.setdefault(command.section, []).append(command)
    return found


def test_its_commands_do_what_it_says(tmp_path: Path) -> None:
    for section, commands in everything().items():
        if section == "Tokens":
            subprocess.run(["bash", "-c", commands.pop(0).text], cwd=tmp_path, check=True)
        operations = FakeOperations("llama")
        operations.put_replica("llama", ReplicaConfig(url="http://127.0.0.1:8002", id="b"), "config")
        operations.put_replica("llama", ReplicaConfig(url="http://127.0.0.1:20000", id="p1"), "runtime")
        for key, view in operations.replicas.items():
            operations.replicas[key] = msgspec.structs.replace(view, in_flight=0)
        options = {"token_file": str(tmp_path / "tokens.txt")} if section == "Tokens" else {}
        with served(operations, **options) as admin:
            for command in commands:
                type_in(command, admin.url, tmp_path)


def test_they_do_so_with_a_real_supervisor_too(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n# gateway.yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    made = parse_config(text.replace("llama:\n", "llama:\n    health: {enabled: false}\n"))
    made = msgspec.structs.replace(made, listen="127.0.0.1:0", admin=AdminConfig(listen="127.0.0.1:0"))

    async def work() -> None:
        async with supervised(made) as supervisor:
            for section, commands in everything().items():
                for command in commands if section not in ("Tokens", "Scaling") else ():
                    await asyncio.to_thread(type_in, command, f"http://{supervisor.admin_address}", tmp_path)

    run(work())


def test_so_do_those_of_scaling_with_replicas_that_are_started(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n# scaled.yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    server = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(1000)"
    (tmp_path / "server.py").write_text(server)
    text = text.replace(
        "    runtime:\n", f"    runtime:\n      working_directory: {tmp_path}\n      log_directory: {tmp_path}/logs\n"
    )
    made = parse_config(f"name: page-{os.getpid()}\n{text}".replace("python ", f"{sys.executable} "))
    made = msgspec.structs.replace(made, listen="127.0.0.1:0", admin=AdminConfig(listen="127.0.0.1:0"))

    async def work() -> None:
        async with supervised(made) as supervisor:
            await until(lambda: supervisor.controllers.autoscaler.views()[0].instances)
            for command in everything()["Scaling"]:
                await asyncio.to_thread(type_in, command, f"http://{supervisor.admin_address}", tmp_path)

    run(work())


@pytest.mark.parametrize(("key", "view"), [("age", ScalingStepView), ("replica", StartFailureView), ("model", Log)])
def test_its_examples_of_scaling_have_every_key(key: str, view: type[msgspec.Struct]) -> None:
    (shown,) = re.findall(rf'^{{"{key}".*$', PAGE, re.MULTILINE)
    assert msgspec.json.decode(shown, type=view)
    assert set(json.loads(shown)) == set(view.__struct_fields__)


def test_the_options_it_names_are_there() -> None:
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    known = {flag for option in command.params for flag in option.opts}
    documented = {
        flag for line in re.findall(r"steelyard serve.*|`--.*?`", PAGE) for flag in re.findall(r"--[\w-]+", line)
    }
    assert documented
    assert documented <= known


def test_every_path_of_the_api_is_on_the_page() -> None:
    text = " ".join(command.text for command in commands())
    for path in (
        "drain",
        "undrain",
        "leases",
        "reload",
        "healthz",
        "readyz",
        "events",
        "fleet",
        "models",
        "devices",
        "model-memory",
        "scaling",
        "log",
        "metrics",
        "openapi.json",
    ):
        assert f"/{path}" in text


def rows(heading: str) -> list[list[str]]:
    part = PAGE.partition(heading)[2]
    lines = re.search(r"^\|.*?(?=\n\n)", part, re.DOTALL | re.MULTILINE)
    assert lines is not None, heading
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[0].splitlines()[2:]]


def test_its_table_of_errors_is_that_of_the_code() -> None:
    assert rows("## Errors") == [[str(status), f"`{code}`", when] for status, (code, when) in ERROR_CODES.items()]


@pytest.mark.parametrize(
    ("heading", "view"),
    [
        ("Keys of a replica:", ReplicaView),
        ("Keys of a model:", ModelView),
        ("Keys of a device:", DeviceView),
        ("(an entry of `models`):", ResidentModelView),
        ("(`/v1/model-memory`):", ModelMemoryView),
        ("Keys of a model's scaling:", ScalingView),
        ("(an entry of `steps`):", ScalingStepView),
        ("(an entry of `instances`):", InstanceView),
        ("(`start_failure`):", StartFailureView),
    ],
)
def test_it_explains_every_key_that_is_shown(heading: str, view: type[msgspec.Struct]) -> None:
    documented = {key for row in rows(heading) for key in re.findall(r"`(\w+)`", row[0])}
    assert documented == set(view.__struct_fields__)


def test_its_example_of_an_error_is_one() -> None:
    (shown,) = re.findall(r'^{"error".*$', PAGE, re.MULTILINE)
    with served(FakeOperations("llama")) as admin:
        answer = admin.http.patch("/v1/models/llama/replicas/a", json={"weight": 0})
    assert answer.json() == json.loads(shown)
