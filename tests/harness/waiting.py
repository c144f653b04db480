"""Waiting for something to become true: bounded, generous, and awake as soon as it can be known."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Seconds a test waits for what must happen; it is never what a test measures. Lower it to see many failures soon.
WAIT_TIMEOUT_SECONDS = float(os.environ.get("STEELYARD_TEST_TIMEOUT", "60"))
START_TIMEOUT_SECONDS = 2 * WAIT_TIMEOUT_SECONDS  # for a process to start: on a busy machine that takes longest of all
POLL_INTERVAL_SECONDS = 0.02  # between looks at what cannot wake us (/proc, a process's exit)


def wait_until(check: Callable[[], T], what: str, timeout: float = WAIT_TIMEOUT_SECONDS) -> T:
    """Look until `check` gives something true, and return that."""
    end = time.monotonic() + timeout
    while not (found := check()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {timeout:g} s in vain: {what}")
        time.sleep(POLL_INTERVAL_SECONDS)
    return found


def steady(read: Callable[[], int], calm: float = 0.6, timeout: float = WAIT_TIMEOUT_SECONDS) -> int:
    """The value of `read` once it has not changed for `calm` seconds."""
    end = time.monotonic() + timeout
    last, since = read(), time.monotonic()
    while time.monotonic() - since < calm and time.monotonic() < end:
        time.sleep(POLL_INTERVAL_SECONDS)
        now = read()
        if now != last:
            last, since = now, time.monotonic()
    return last
