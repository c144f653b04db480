"""One question to a server over HTTP/1.1, on a fresh connection: whether it takes one is part of what is asked."""

from __future__ import annotations

import asyncio
import ssl

from ...addresses import Address
from .answer import Answer, Reply
from .errors import AskError, SilentError, told


async def ask(
    address: Address,
    request: bytes,
    *,
    timeout: float,
    limit: int,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    cut: bool = False,
) -> Reply:
    """The answer to `request`, a whole one; or an AskError.

    `tls` is for an address that speaks it. A body longer than `limit` is an error; with `cut` the rest of it is
    read and dropped.
    """
    answer = Answer(address, request, limit, cut=cut)
    try:
        async with asyncio.timeout(timeout):
            await _connect(answer, address, tls, server_name or address.host)
            return await answer.done
    except AskError:
        raise
    except TimeoutError:
        raise SilentError(f"{_waited_for(answer)} in time") from None
    except Exception as problem:  # OSError, SSLError, gaierror, UnicodeError of a host name…
        raise told(problem, address) from None
    finally:
        answer.end()


async def _connect(answer: Answer, address: Address, tls: ssl.SSLContext | None, name: str) -> None:
    loop = asyncio.get_running_loop()
    if address.path:
        await loop.create_unix_connection(lambda: answer, address.path)
    elif tls is None:
        await loop.create_connection(lambda: answer, address.host, address.port)
    else:
        await loop.create_connection(lambda: answer, address.host, address.port, ssl=tls, server_hostname=name)


def _waited_for(answer: Answer) -> str:
    if not answer.connected:
        return "no connection"
    return "no end of its answer" if answer.begun else "no answer"
