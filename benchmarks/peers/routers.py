"""The vendors' routers from PyPI, all in Rust behind a Python launcher: smg, vllm-router, sglang-router."""

from __future__ import annotations

from .base import Peer, Setting, Start


class Router(Peer):
    """`launch` is the words between the program and its options."""

    rewrites = "x-request-id"

    def __init__(self, program: str, launch: tuple[str, ...] = (), policy: str = "", log_level: str = "error") -> None:
        self.name = f"{program}-{policy.replace('_', '-')}" if policy else program
        self.program = program
        self.launch = launch
        self.log_level = log_level
        self.rule = policy or "power_of_two"

    def start(self, program: str, setting: Setting) -> Start:
        command = [program, *self.launch, "--host", "127.0.0.1", "--port", str(setting.listen)]
        command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(setting.extra[0])]
        command += ["--policy", self.rule, "--log-level", self.log_level, "--request-timeout-secs", "300"]
        command += ["--worker-urls", *(f"http://127.0.0.1:{port}" for port in setting.replicas)]
        return Start(command, env={"TOKIO_WORKER_THREADS": "1"})
