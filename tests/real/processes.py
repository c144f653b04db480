"""Real servers and the gateway as processes: started on free ports, awaited, and ended with all their children."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.processes import free_port

ROOT = Path(__file__).parents[2]
SERVERS = Path(__file__).with_name("servers")
VENV = ROOT / ".venv-servers"
WAIT_TIMEOUT_SECONDS = 120.0  # for a server to become ready on a busy machine; nothing is measured by it


@dataclass
class Program:
    """One program with its children, in a process group of its own."""

    name: str
    command: list[str]
    port: int
    folder: Path  # its working folder; its log is there too
    ready: str = "/health"  # a path that answers 2xx when it is
    environment: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        self.log = self.folder / f"{self.name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=_clean_environment() | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self) -> None:
        end = time.monotonic() + WAIT_TIMEOUT_SECONDS
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} did not become ready:\n{self.log_tail()}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + self.ready, timeout=2) as answer:
                return bool(200 <= answer.status < 300)
        except (urllib.error.URLError, OSError):
            return False

    def log_tail(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-4000:]

    def ask_to_stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def stop(self) -> None:
        """Ask nicely, then end the whole group: some servers leave their workers behind."""
        self.ask_to_stop()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in ("HOME", "LANG", "PATH", "TMPDIR", "XDG_STATE_HOME")
    }


def servers_python() -> Path:
    """The interpreter of the servers' venv; `make test` makes it."""
    python = VENV / "bin" / "python"
    if not python.exists():
        raise RuntimeError(f"{python} is not there: `make servers` installs the real model servers")
    return python


def litserve(name: str, folder: Path) -> Program:
    port = free_port()
    return Program(name, [str(servers_python()), str(SERVERS / "litserve_app.py"), str(port)], port, folder)


def katan(name: str, folder: Path, *options: str) -> Program:
    port = free_port()
    program = servers_python().with_name("llm-katan")
    command = [str(program), "--model", name, "--backend", "echo", "--host", "127.0.0.1", "--port", str(port), *options]
    return Program(name, [*command, "--stats-file", str(folder / f"{name}.json")], port, folder)


def mlserver(name: str, folder: Path) -> Program:
    home = folder / name
    home.mkdir()
    (home / "model-settings.json").write_text('{"name": "linear", "implementation": "mlserver_runtime.Scorer"}')
    port = free_port()
    command = [str(servers_python().with_name("mlserver")), "start", str(home)]
    return Program(name, command, port, home, "/v2/models/linear/ready", mlserver_environment(port))


def mlserver_environment(port: int) -> dict[str, str]:
    return {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(port),
        "MLSERVER_GRPC_PORT": str(free_port()),
        "MLSERVER_METRICS_PORT": str(free_port()),
        "MLSERVER_PARALLEL_WORKERS": "0",
        "MLSERVER_DEBUG": "false",
        "PYTHONPATH": str(SERVERS),
    }


def triton(name: str, folder: Path) -> Program:
    """NVIDIA's Triton from the wheel of pytriton, with the Python backend put together as Triton wants it."""
    home = folder / name
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    site = VENV / "lib" / f"python{version}" / "site-packages"
    parts = site / "pytriton" / "tritonserver"
    shutil.copytree(parts / "backends", home / "backends")
    stub = home / "backends" / "python" / "triton_python_backend_stub"
    shutil.copy(parts / "python_backend_stubs" / version / stub.name, stub)
    shutil.copytree(SERVERS / "triton_models", home / "models")
    port = free_port()
    command = [
        str(parts / "bin" / "tritonserver"),
        f"--model-repository={home / 'models'}",
        f"--backend-directory={home / 'backends'}",
        f"--backend-config=python,shm-region-prefix-name={name}-{port}",
        f"--http-port={port}",
        "--http-address=127.0.0.1",
        "--allow-grpc=false",
        "--allow-metrics=false",
    ]
    # The stub wants the very libpython that belongs to the standard library it finds through PATH.
    libraries = (site / "nvidia_pytriton.libs", Path(sys.base_prefix) / "lib")
    environment = {
        "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "TINY_PATH": str(SERVERS),
        "REPLICA": name,
    }
    return Program(name, command, port, home, "/v2/models/scorer/ready", environment)
