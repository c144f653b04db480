"""The interface of a source of replicas."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ...config import ReplicaConfig
from ...core.errors import SteelyardError

MAX_REPLICAS_PER_SOURCE = 10_000


class DiscoveryError(SteelyardError):
    """A source cannot be asked, or its answer cannot be used."""

    reason = "discovery_failed"


class DiscoveryResult(NamedTuple):
    replicas: tuple[ReplicaConfig, ...]
    ttl: float | None = None  # seconds for which this holds; None: the source does not say
    note: str = ""  # what was left out and why


class Source:
    """One entry of a model's `discovery`, for as long as it is configured: it may keep state. Polls never overlap."""

    async def poll(self) -> DiscoveryResult:
        """In the same order if nothing changed. DiscoveryError: nothing can be said."""
        raise NotImplementedError

    async def wait_for_change(self) -> None:
        """Returns when it should be polled at once. Here: never."""
        await asyncio.Event().wait()


def too_many_replicas(count: int) -> DiscoveryError:
    return DiscoveryError(f"it names {count:,} replicas, and at most {MAX_REPLICAS_PER_SOURCE:,} are taken")


def list_some(things: list[str], most: int = 3) -> str:
    more = len(things) - most
    return "; ".join(things[:most]) + (f"; and {more} more" if more > 0 else "")
