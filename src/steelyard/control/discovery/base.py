"""What every source of replicas can do."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ...config import ReplicaConfig
from ...core.errors import SteelyardError

MAX_REPLICAS_PER_SOURCE = 10_000  # replicas of one source


class DiscoveryError(SteelyardError):
    """A source cannot be asked, or what it says cannot be used."""

    reason = "discovery_failed"


class DiscoveryResult(NamedTuple):
    """What a source names now."""

    replicas: tuple[ReplicaConfig, ...]
    ttl: float | None = None  # seconds for which the source says that this holds; None: it does not say
    note: str = ""  # what was left out and why, in words


class Source:
    """Where replicas are found: one entry of a model's `discovery`.

    There is one object for as long as the entry is configured, so it may remember what it saw. Polls never overlap.
    """

    async def poll(self) -> DiscoveryResult:
        """What it names now, the same in the same order if nothing changed. DiscoveryError: nothing can be said."""
        raise NotImplementedError

    async def wait_for_change(self) -> None:
        """Returns when it is worth to poll at once. Here: never."""
        await asyncio.Event().wait()


def too_many_replicas(count: int) -> DiscoveryError:
    return DiscoveryError(f"it names {count:,} replicas, and at most {MAX_REPLICAS_PER_SOURCE:,} are taken")


def list_some(things: list[str], most: int = 3) -> str:
    """The first few, and how many more there are: a sentence has an end."""
    more = len(things) - most
    return "; ".join(things[:most]) + (f"; and {more} more" if more > 0 else "")
