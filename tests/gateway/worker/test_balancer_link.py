"""A worker connects to the balancer process, and to no process of another user."""

from __future__ import annotations

import asyncio
import os
import socket
from secrets import token_hex
from typing import Any

import pytest

from steelyard.gateway.shared_balancer.client import BalancerClient
from steelyard.gateway.shared_balancer.messages import FailOver, Hello, WorkerMessage, decoder, encode_messages
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


def test_a_decision_that_cannot_be_carried_out_takes_no_other_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    messages = [FailOver("m", id) for id in "abc"]
    carried_out: list[Any] = []
    done = asyncio.Event()

    class Driver(NoDriver):
        def execute(self, decisions: Any, now: float) -> None:
            for decision in decisions:
                carried_out.append(decision)
                if decision == messages[1]:
                    raise ValueError("not this one")
            done.set()

    class Client:
        """Decides what it is told."""

        def connect(self, post: Any, post_later: Any) -> None: ...

        def disconnect(self, now: float) -> None: ...

        def receive(self, messages: list[Any], now: float) -> list[Any]:
            return messages

    async def run() -> None:
        loop, name = asyncio.get_running_loop(), f"steelyard-test-{token_hex(8)}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("\0" + name)
            listener.listen()
            listener.setblocking(False)
            link = BalancerLink(Driver(), Client(), name)  # type: ignore[arg-type]
            running = asyncio.create_task(link.run())
            connection, _ = await loop.sock_accept(listener)
            with connection:
                await loop.sock_sendall(connection, encode_messages(messages))
                await asyncio.wait_for(done.wait(), 30.0)
            running.cancel()
            link.close()

    asyncio.run(run())
    assert carried_out == messages
    assert "error carrying out a decision: ValueError: not this one" in capsys.readouterr().err


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
