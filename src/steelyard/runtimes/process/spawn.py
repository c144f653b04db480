"""Starts an independent process: its own session, and a file for its output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ..base import ReplicaStartError
from . import log_files, procfs
from .allocation import pinned_to
from .command import spawn_error


def spawn(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, path: Path, cpus: Collection[int]
) -> tuple[int, int]:
    """Its pid and start ticks. The caller must reap it."""
    new = not os.path.exists(path)
    try:
        output = log_files.open_log(path)
    except OSError as problem:
        raise ReplicaStartError("failed", log_files.log_error(path, problem)) from None
    try:
        with pinned_to(cpus):
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,  # no pipe: that would end with us
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,  # Ctrl-C in the terminal is for us alone
            )
    except (OSError, ValueError) as problem:
        if new:
            path.unlink(missing_ok=True)
        raise spawn_error(problem, words[0]) from None
    finally:
        os.close(output)
    process.returncode = 0  # otherwise Popen warns that its process still runs
    seen = procfs.stat(process.pid)
    return process.pid, seen.start_ticks if seen is not None else 0
