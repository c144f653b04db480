"""Which started replicas are given up, though their processes run. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ...units import format_seconds
from .started import HUNG_AFTER_SECONDS, ManagedReplica


def hung_or_overdue(
    replicas: Iterable[ManagedReplica], timeout: float, missing: int, now: float
) -> list[tuple[ManagedReplica, str]]:
    """And why: those that should have been ready by now, and one that hangs.

    Of several that hang only one at a time, when none is missing or being started: if it is we who hear nothing, as a
    network is down or the machine is busy, not all of them must go.
    """
    known = list(replicas)
    found = [(r, _overdue_reason(r, timeout)) for r in known if r.is_overdue(now, timeout)]
    if not found and not missing and not any(r.is_starting for r in known):
        hung = [r for r in known if r.is_hung(now)]
        found = [(r, f"it was ready, and has not answered for {HUNG_AFTER_SECONDS:g} s") for r in hung[:1]]
    return found


def _overdue_reason(replica: ManagedReplica, timeout: float) -> str:
    again = " again" if replica.was_ready else ""
    return f"it was not ready{again} within {format_seconds(timeout)}"
