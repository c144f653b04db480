"""How many files and connections a process may have open."""

from __future__ import annotations

import resource

from ..config import Config

BESIDES = 128  # open files of a worker that are no connections


def raise_open_files() -> int:
    """Up to what this process may ask for; its workers inherit it. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # a container may forbid what it shows
            pass
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def too_few_open_files(config: Config, limit: int) -> str:
    """A warning, if a worker could run out of them before limits.connections stops it; else empty."""
    needed = 2 * config.limits.connections + BESIDES  # each client's request may be a connection to a replica too
    if limit >= needed:
        return ""
    fits = max(1, (limit - BESIDES) // 2)
    return (
        f"a worker may have {limit} open files, and limits.connections = {config.limits.connections} may need "
        f"{needed}: allow more (ulimit -n, LimitNOFILE=) or set limits.connections to {fits}"
    )
