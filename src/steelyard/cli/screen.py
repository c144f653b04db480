"""Consoles: as wide as the terminal, and wide enough when the output goes to a file or a pipe."""

from __future__ import annotations

import os
import sys

from rich.console import Console

PIPED_COLUMNS = 200  # columns: nothing is cut off, grep finds whole words


def stdout(piped: int = PIPED_COLUMNS) -> Console:
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if narrow else piped, highlight=False, emoji=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, emoji=False)
