"""How dnspython opens its sockets, with a repair."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from dns._asyncio_backend import Backend


class CancelSafeBackend(Backend):
    """A UDP socket whose opening is cancelled is closed. uvloop leaves it open, and stumbles over it at the end."""

    async def make_socket(self, af: int, socktype: int, *more: Any, **options: Any) -> Any:
        make: Any = super().make_socket
        if socktype != socket.SOCK_DGRAM:
            return await make(af, socktype, *more, **options)
        opening = asyncio.ensure_future(make(af, socktype, *more, **options))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            with suppress(OSError):
                await (await opening).close()  # at once: it connects to nobody
            raise
