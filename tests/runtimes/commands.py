"""Tiny commands: a shell starts much sooner than a Python."""

from __future__ import annotations

import sys

from steelyard.runtimes.process.config import ProcessRuntimeConfig as Settings

SERVES = """
import http.server, sys
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.BaseHTTPRequestHandler)
print("up", flush=True)
server.serve_forever()
"""

COMMANDS = {
    "waits": ("sh", "-c", "echo up; exec sleep 1000", "{port}"),
    "deaf": ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1000; done", "{port}"),
    "serves": (sys.executable, "-S", "-c", SERVES, "{port}"),
    "ends": ("sh", "-c", "echo so long; exit 3", "{port}"),
    "missing": ("no-such-command-anywhere", "{port}"),
}


def shell(script: str, *words: str) -> tuple[str, ...]:
    return ("sh", "-c", script, "sh", *words)


def settings(does: str, log: object) -> Settings:
    return Settings(command=COMMANDS[does], log_directory=str(log))
