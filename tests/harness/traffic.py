"""Background traffic: clients that keep asking while something is done to the gateway."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .client import Response, Truncated, request
from .oracle import Ledger
from .serving import Serving
from .waiting import WAIT_TIMEOUT_SECONDS


@contextmanager
def traffic(
    serving: Serving,
    ledger: Ledger,
    *,
    clients: int = 3,
    may_retry: bool = False,
    patient: bool = False,
    options: Callable[[], dict[str, Any]] = dict,
) -> Iterator[None]:
    """Clients ask one after another, half of them on connections that stay open, half on new ones each time.

    `patient`: a connection that cannot be made, or ends, is made again; how each request ended is in the ledger.
    """
    over, problems = threading.Event(), []

    def run(stay: bool) -> None:
        try:
            while not over.is_set():
                try:
                    connection = serving.connect()
                except ConnectionError:
                    if not patient:
                        raise
                    time.sleep(0.01)
                    continue
                with connection:
                    for _ in range(1000 if stay else 1):
                        end = ledger.ask(connection, may_retry=may_retry, **options())
                        if over.is_set() or end in ("no answer", "truncated"):
                            break
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(number % 2 == 0,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(WAIT_TIMEOUT_SECONDS)
    if problems:
        raise problems[0]
    assert not any(thread.is_alive() for thread in threads)


async def one(address: Any, ledger: Ledger, *, may_retry: bool, **options: Any) -> tuple[str, Response | None]:
    """One request on a connection of its own, for very many at once: its end and its answer."""
    id = ledger.new(may_retry=may_retry)
    response = Response("POST")
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request("POST", id=id, **options))
        while not response.complete:
            data = await reader.read(1 << 16)
            if not data:
                response.end()
            response.feed(data)
        ledger.tell(id, response)
    except (Truncated, ConnectionError):
        ledger.end(id, "truncated")
        return "truncated", None
    finally:
        writer.close()
    return ledger.ends[id][0], response
