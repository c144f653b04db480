"""A steady flow of requests while something is done to the gateway: what becomes of each is counted.

Some clients keep their connections, with a pause between two requests, others make a new one for each request. As real
clients do, one that keeps its connection looks whether it is still open before it sends, and heeds `connection: close`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any

from .client import Address, Response, Truncated, request
from .waiting import WAIT_TIMEOUT_SECONDS, wait_until

WARM_UP_REQUESTS = 20  # requests answered before anything is done


class Flow:
    """`with Flow(address) as flow: …`; then `flow.lost` must be empty."""

    def __init__(
        self, address: Address, *, kept: int = 8, fresh: int = 4, pause: float = 0.02, streams: int = 0, **options: Any
    ) -> None:
        """`kept`, `fresh`: clients of each kind; `streams`: how many of the kept ones ask with `options["stream"]`."""
        self.address = address
        self.ends: Counter[str] = Counter()
        self.reconnected = 0  # kept connections that were closed between two requests
        self._pause = pause
        self._stream = options.pop("stream", None)
        self._options = {"method": "POST", **options}
        self._kinds = [(True, number < streams) for number in range(kept)] + [(False, False)] * fresh
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    @property
    def lost(self) -> dict[str, int]:
        return {end: count for end, count in self.ends.items() if end != "ok"}

    @property
    def total(self) -> int:
        return sum(self.ends.values())

    def go_on(self, more: int = WARM_UP_REQUESTS) -> None:
        """Wait until so many more were answered."""
        wanted = self.ends["ok"] + more
        wait_until(
            lambda: self.ends["ok"] >= wanted, f"nobody is answered any more: {dict(self.ends)}", WAIT_TIMEOUT_SECONDS
        )

    def __enter__(self) -> Flow:
        self._thread.start()
        self.go_on()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """What runs is waited for."""
        self._over.set()
        self._thread.join(WAIT_TIMEOUT_SECONDS)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        await asyncio.gather(*(self._client(n, *kind) for n, kind in enumerate(self._kinds)))

    async def _client(self, number: int, keep: bool, stream: bool) -> None:
        random, link = Random(number), None
        while not self._over.is_set():
            if link is not None and (link[0].at_eof() or link[1].is_closing()):
                self.reconnected += 1
                link[1].close()
                link = None
            if link is None:
                try:
                    link = await self._connect()
                except OSError as problem:
                    self.ends[f"no connection: {type(problem).__name__}"] += 1
                    await asyncio.sleep(0.02)
                    continue
            end, stays = await self._ask(*link, stream)
            self.ends[end] += 1
            if not (keep and stays):
                link[1].close()
                link = None
            await asyncio.sleep(self._pause * random.uniform(0.5, 1.5))
        if link is not None:
            link[1].close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.address, str):
            return await asyncio.open_unix_connection(self.address)
        return await asyncio.open_connection(*self.address)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: bool) -> tuple[str, bool]:
        options = {**self._options, **({"script": self._stream} if stream else {})}
        response = Response("POST")
        try:
            writer.write(request(**options))
            while not response.complete:
                data = await reader.read(1 << 16)
                if not data:
                    response.end()
                response.feed(data)
        except (Truncated, ConnectionError) as problem:
            begun = isinstance(problem, Truncated) and response.head_done
            return ("cut off in the answer" if begun else "no answer"), False
        with suppress(KeyError):
            return f"error {response.status} {response.headers['steelyard-reason']}", self._stays(response)
        return ("ok" if response.status == 200 else f"error {response.status}"), self._stays(response)

    @staticmethod
    def _stays(response: Response) -> bool:
        return response.headers.get("connection", "") != "close"
