"""Steelyard itself, started as a user would: `steelyard serve --replica …`, all defaults on."""

from __future__ import annotations

import sys
from pathlib import Path

from .base import Peer, Setting, Start

COMPILED = Path(__file__).parents[2] / ".venv-compiled" / "bin" / "steelyard"  # what `make compiled` makes


class Steelyard(Peer):
    program = "steelyard"
    rewrites = "x-forwarded-*, via, x-request-id, traceparent, server-timing, steelyard-replica"
    ours = True

    def __init__(
        self, name: str, policy: str = "", concurrency: str = "", dialect: str = "", pure: bool = False
    ) -> None:
        self.name = name
        self.policy = policy
        self.concurrency = concurrency
        self.dialect = dialect
        self.pure = pure
        default = "prefix_work" if dialect else "least_work"
        self.rule = (policy or f"{default} (default)") + (f", concurrency {concurrency}" if concurrency else "")

    def find(self) -> str | None:
        """Compiled, if it was; the pure form is beside this Python."""
        if self.pure:
            beside = Path(sys.executable).parent / self.program
            return str(beside) if beside.exists() else None
        return str(COMPILED) if COMPILED.exists() else super().find()

    def start(self, program: str, setting: Setting) -> Start:
        command = [program, "serve", "--listen", f"127.0.0.1:{setting.listen}", "--workers", str(setting.workers)]
        for port in setting.replicas:
            command += ["--replica", f"http://127.0.0.1:{port}"]
        if self.policy:
            command += ["--policy", self.policy]
        if self.dialect:
            command += ["--dialect", self.dialect]
        if self.concurrency:
            command += ["--concurrency", self.concurrency]
        return Start(command)
