"""How a process ended, in words."""

from __future__ import annotations

import signal
from contextlib import suppress


def describe_exit(code: int) -> str:
    """`code` as subprocess has it: of a signal, negative."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
