"""One question to a server over HTTP/1.1, on a fresh connection: whether it takes one is part of what is asked."""

from __future__ import annotations

import asyncio
import ssl

from ...addresses import Address
from .answer import ProbeResponse, ResponseReader
from .errors import ReplicaRequestError, ResponseTimeoutError, classify_error


async def send_request(
    address: Address,
    request: bytes,
    *,
    timeout: float,
    limit: int,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    cut: bool = False,
) -> ProbeResponse:
    """The answer to `request`, a whole one; or an AskError.

    `tls` is for an address that speaks it. A body longer than `limit` is an error; with `cut` the rest of it is
    read and dropped.
    """
    answer = ResponseReader(address, request, limit, cut=cut)
    try:
        async with asyncio.timeout(timeout):
            await _connect(answer, address, tls, server_name or address.host)
            return await answer.done
    except ReplicaRequestError:
        raise
    except TimeoutError:
        raise ResponseTimeoutError(f"{_timeout_stage(answer)} in time") from None
    except Exception as problem:  # OSError, SSLError, gaierror, UnicodeError of a host name…
        raise classify_error(problem, address) from None
    finally:
        answer.end()


async def _connect(answer: ResponseReader, address: Address, tls: ssl.SSLContext | None, name: str) -> None:
    loop = asyncio.get_running_loop()
    if address.path:
        await loop.create_unix_connection(lambda: answer, address.path)
    elif tls is None:
        await loop.create_connection(lambda: answer, address.host, address.port)
    else:
        await loop.create_connection(lambda: answer, address.host, address.port, ssl=tls, server_hostname=name)


def _timeout_stage(answer: ResponseReader) -> str:
    if not answer.connected:
        return "no connection"
    return "no end of its answer" if answer.begun else "no answer"
