"""Which started replicas are given up, though their processes run. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ...units import show_seconds
from .started import HUNG, Started


def failing(replicas: Iterable[Started], timeout: float, missing: int, now: float) -> list[tuple[Started, str]]:
    """And why: those that should have been ready by now, and one that hangs.

    Of several that hang only one at a time, when none is missing or being started: if it is we who hear nothing, as a
    network is down or the machine is busy, not all of them must go.
    """
    known = list(replicas)
    found = [(r, _late(r, timeout)) for r in known if r.is_overdue(now, timeout)]
    if not found and not missing and not any(r.coming for r in known):
        hung = [r for r in known if r.is_hung(now)]
        found = [(r, f"it was ready, and has not answered for {HUNG:g} s") for r in hung[:1]]
    return found


def _late(replica: Started, timeout: float) -> str:
    again = " again" if replica.was_ready else ""
    return f"it was not ready{again} within {show_seconds(timeout)}"
