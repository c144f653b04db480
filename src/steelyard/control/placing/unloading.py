"""A model is taken off its server."""

from __future__ import annotations

import asyncio

from ...protocols.repository import Entry, Presence, Progress
from ..probing.errors import AskError
from .desk import Desk
from .errors import UnloadError

GONE = 120.0  # seconds from the wish to unload until the index says that it is done
ABSENT = Entry(Presence.ABSENT)


async def unload(desk: Desk, where: str) -> None:
    """Returns when its index says that it is gone. UnloadError: it is not."""
    try:
        async with asyncio.timeout(GONE):
            said = await desk.unload()
            if said.progress is Progress.REFUSED:
                raise UnloadError(f"{where} was not unloaded: {said.reason}")
            await desk.until(lambda entry: entry.presence is Presence.ABSENT, ABSENT)
    except TimeoutError:
        raise UnloadError(f"{where} was not unloaded within {GONE:g} s") from None
    except AskError as problem:
        raise UnloadError(f"{where} was not unloaded: {problem}") from None
