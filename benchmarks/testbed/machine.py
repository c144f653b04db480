"""What a figure was measured on: no number in the docs without this line."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path


def describe(command: str) -> str:
    names = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    cpu = names[0] if names else "unknown CPU"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"commit {commit.stdout.strip() or 'unknown'}, `{command}`"
    )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
