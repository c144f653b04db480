"""A model is taken off its server."""

from __future__ import annotations

import asyncio

from ...protocols.repository import IndexEntry, ModelPresence, OperationProgress
from ..probing.errors import ReplicaRequestError
from .desk import RepositoryClient
from .errors import UnloadError

UNLOADED_TIMEOUT_SECONDS = 120.0  # seconds from the wish to unload until the index says that it is done
ABSENT_ENTRY = IndexEntry(ModelPresence.ABSENT)


async def unload_and_wait(desk: RepositoryClient, where: str) -> None:
    """Returns when its index says that it is gone. UnloadError: it is not."""
    try:
        async with asyncio.timeout(UNLOADED_TIMEOUT_SECONDS):
            said = await desk.unload()
            if said.progress is OperationProgress.REFUSED:
                raise UnloadError(f"{where} was not unloaded: {said.reason}")
            await desk.wait_until(lambda entry: entry.presence is ModelPresence.ABSENT, ABSENT_ENTRY)
    except TimeoutError:
        raise UnloadError(f"{where} was not unloaded within {UNLOADED_TIMEOUT_SECONDS:g} s") from None
    except ReplicaRequestError as problem:
        raise UnloadError(f"{where} was not unloaded: {problem}") from None
