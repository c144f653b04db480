"""The commands of the README's quick start, typed as they stand there but for the ports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..harness.processes import free_port
from .test_docs import ROOT, blocks

SERVER_COUNT = 3  # two replicas and the gateway


@pytest.mark.parametrize("with_a_file", [False, True])
def test_the_commands_of_the_quick_start_bring_an_answer(tmp_path: Path, with_a_file: bool) -> None:
    shown = [line for block in blocks(ROOT / "README.md") if block.language == "sh" for line in block.text.splitlines()]
    start = next(number for number, line in enumerate(shown) if line.startswith("steelyard demo-replica"))
    *servers, ask = shown[start : start + SERVER_COUNT + 1]
    assert ask.startswith("curl ")
    ports = dict(zip(("8001", "8002", "8080", "9080"), (str(free_port()) for _ in range(4)), strict=True))

    def own(line: str) -> str:
        return re.sub(r"\b(8001|8002|8080|9080)\b", lambda match: ports[match[0]], line)

    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if with_a_file:  # the next step: the same replicas and the same request
        (file,) = [block for block in blocks(ROOT / "README.md") if block.saved_as == "gateway.yaml"]
        (tmp_path / "gateway.yaml").write_text(own(file.text))
        servers[-1] = next(line for line in shown if line.startswith("steelyard serve gateway.yaml"))
    servers[-1] += " --listen 127.0.0.1:8080 --admin 127.0.0.1:9080"
    running: list[subprocess.Popen[bytes]] = []
    try:
        for line in servers:
            command = f"exec {own(line.rstrip(' &'))}"
            running.append(subprocess.Popen(["bash", "-c", command], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL))
        again = f"{own(ask)} -sS --retry 60 --retry-delay 1 --retry-all-errors --max-time 120"
        answer = subprocess.run(["bash", "-c", again], capture_output=True, encoding="utf-8", check=True).stdout
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(30)
    assert "HTTP/1.1 200" in answer
    assert "steelyard-replica:" in answer
    assert '"content":"Hello Hello' in answer
