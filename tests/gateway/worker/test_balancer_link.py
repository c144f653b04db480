"""A worker connects to the balancer process, and to no process of another user."""

from __future__ import annotations

import asyncio
import os
import socket
from secrets import token_hex
from typing import Any

import pytest

from steelyard.gateway.shared_balancer.client import BalancerClient
from steelyard.gateway.shared_balancer.messages import Hello, WorkerMessage, decoder
from steelyard.gateway.worker import balancer_link
from steelyard.gateway.worker.balancer_link import BalancerLink


class NoDriver:
    def fail_over(self, replica: Any, now: float) -> None: ...

    def execute(self, decisions: Any, now: float) -> None: ...

    def wake_now(self, now: float) -> None: ...


async def heard_by_listener(client: BalancerClient) -> bytes:
    """What a listener at the balancer process's address hears of the worker until it is connected, or left."""
    loop, name = asyncio.get_running_loop(), f"steelyard-test-{token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        listener.setblocking(False)
        link = BalancerLink(NoDriver(), client, name)  # type: ignore[arg-type]
        running = asyncio.create_task(link.run())
        connection, _ = await loop.sock_accept(listener)
        with connection:
            heard = await asyncio.wait_for(loop.sock_recv(connection, 1000), 30.0)
        running.cancel()
        link.close()
    return heard


def test_it_says_hello_to_a_process_of_the_same_user() -> None:
    heard = asyncio.run(heard_by_listener(BalancerClient(3, 4)))
    assert decoder(WorkerMessage).decode(heard[4:]) == [Hello(3, 4)]


def test_it_says_nothing_to_a_process_of_another_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(balancer_link, "peer_user", lambda connection: os.getuid() + 1)
    client = BalancerClient(3, 4)
    assert asyncio.run(heard_by_listener(client)) == b""
    assert not client.connected
    error = capsys.readouterr().err
    assert f"belongs to a process of user {os.getuid() + 1}, not to the balancer process" in error
