"""What a figure was measured on: no number in the docs without this line."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from steelyard.system import package_form


def describe(command: str, program: str | None = None) -> str:
    """`program`: the `steelyard` that is measured, if that is not the package beside this Python."""
    names = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    cpu = names[0] if names else "unknown CPU"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    form = form_of(program) if program else package_form()
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"Steelyard {form}, commit {commit.stdout.strip() or 'unknown'}, `{command}`"
    )


def form_of(program: str) -> str:
    """What `steelyard --version` says between brackets."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return said.partition("(")[2].partition(")")[0] or "of unknown form"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
