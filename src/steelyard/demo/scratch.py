"""A folder that is gone when the demo is, even if that was killed and could clean up nothing."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Reads until the demo, who holds the other end, is gone.
_CLEANUP_SCRIPT = 'read -r _; rm -rf -- "$1"'


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="steelyard-demo-")
    sweeper = subprocess.Popen(
        ["/bin/sh", "-c", _CLEANUP_SCRIPT, "sh", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C in the terminal is for the demo alone
    )
    try:
        yield Path(folder)
    finally:
        assert sweeper.stdin is not None
        sweeper.stdin.close()
        sweeper.wait()
        shutil.rmtree(folder, ignore_errors=True)
