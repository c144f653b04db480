"""Waiting for something to become true: bounded, generous, and awake as soon as it can be known."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Seconds a test waits for what must happen; it is never what a test measures. Lower it to see many failures soon.
PATIENCE = float(os.environ.get("STEELYARD_PATIENCE", "60"))
START = 2 * PATIENCE  # for a process to start: on a busy machine that takes longest of all
LOOK = 0.02  # seconds between looks at what cannot wake us (/proc, a process's exit)


def wait_until(check: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Look until `check` gives something true, and return that."""
    end = time.monotonic() + patience
    while not (found := check()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience:g} s in vain: {what}")
        time.sleep(LOOK)
    return found


def steady(read: Callable[[], int], calm: float = 0.6, patience: float = PATIENCE) -> int:
    """The value of `read` once it has not changed for `calm` seconds."""
    end = time.monotonic() + patience
    last, since = read(), time.monotonic()
    while time.monotonic() - since < calm and time.monotonic() < end:
        time.sleep(LOOK)
        now = read()
        if now != last:
            last, since = now, time.monotonic()
    return last
