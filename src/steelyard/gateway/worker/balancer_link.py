"""A worker's connection to the balancer process."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from ..proxy.dispatch_hooks import Driver
from ..shared_balancer.channel import MessageChannel, peer_user
from ..shared_balancer.client import BalancerClient
from ..shared_balancer.messages import BalancerMessage
from .supervisor_channel import log

RECONNECT_SECONDS: Final = 0.02  # while the balancer process is away
FOREIGN_RETRY_SECONDS: Final = 1.0  # while a process of another user has its address


class BalancerLink:
    def __init__(self, driver: Driver, client: BalancerClient, address: str) -> None:
        """`address`: of the balancer process's socket, in Linux's abstract namespace."""
        self._driver = driver
        self._client = client
        self._address = "\0" + address
        self._lost = asyncio.Event()
        self._channel: MessageChannel | None = None
        client.on_fail_over = driver.fail_over

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            delay = RECONNECT_SECONDS
            with suppress(OSError):
                connected = socket.socket(socket.AF_UNIX)
                connected.setblocking(False)
                try:
                    await loop.sock_connect(connected, self._address)
                except OSError:
                    connected.close()
                    raise
                if (user := peer_user(connected)) == os.getuid():
                    await self._serve(connected)
                else:  # anybody may take a name of the abstract namespace that is free
                    connected.close()
                    name = self._address[1:]
                    log(f"error @{name} belongs to a process of user {user}, not to the balancer process: not used")
                    delay = FOREIGN_RETRY_SECONDS
            await asyncio.sleep(delay)

    async def _serve(self, connected: socket.socket) -> None:
        """Until the balancer process is gone."""
        self._lost.clear()
        self._channel = channel = MessageChannel(BalancerMessage, self._received, self._disconnected)
        made: Any = lambda: channel  # noqa: E731  # has a protocol's callbacks without being an asyncio.Protocol
        await asyncio.get_running_loop().create_unix_connection(made, sock=connected)
        self._client.connect(channel.send, channel.send_later)
        await self._lost.wait()

    def _received(self, channel: MessageChannel, messages: list[Any]) -> None:
        now = monotonic()
        left: Any = iter(self._client.receive(messages, now))
        while True:
            try:
                return self._driver.execute(left, now)
            except Exception as problem:  # whatever it was, the other requests get their decisions
                log(f"error carrying out a decision: {type(problem).__name__}: {problem}")

    def _disconnected(self, channel: MessageChannel) -> None:
        self._channel = None
        now = monotonic()
        self._client.disconnect(now)
        self._driver.wake_now(now)
        self._lost.set()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.flush()
            self._channel.close()
