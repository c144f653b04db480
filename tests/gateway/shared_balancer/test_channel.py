"""A connection between a worker and the balancer process: frames, and what is no frame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from steelyard.gateway.shared_balancer.channel import MAX_UNSENT_BYTES, MessageChannel
from steelyard.gateway.shared_balancer.messages import (
    MAX_FRAME_BYTES,
    ReplicaRefused,
    TrialPassed,
    WorkerMessage,
    encode_messages,
)

TWO = [ReplicaRefused("m", "a"), TrialPassed("m", "b")]
LARGE = TrialPassed("m", "x" * (1 << 20))


class Unread:
    """A transport to one that reads nothing."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def abort(self) -> None:
        self.aborted = True


def with_channel(play: Callable[[MessageChannel, Unread, list[Any]], None]) -> None:
    async def run() -> None:
        heard: list[Any] = []
        channel = MessageChannel(WorkerMessage, lambda channel, messages: heard.extend(messages), lambda channel: None)
        transport = Unread()
        channel.connection_made(transport)
        play(channel, transport, heard)

    asyncio.run(run())


def say(channel: MessageChannel, messages: list[Any]) -> None:
    for message in messages:
        channel.send(message)
    channel.flush()


def test_frames_arrive_whole_however_they_are_cut() -> None:
    def play(channel: MessageChannel, transport: Unread, heard: list[Any]) -> None:
        data = encode_messages(TWO) + encode_messages(TWO[:1])
        for at in range(len(data)):
            channel.data_received(data[at : at + 1])
        assert heard == [*TWO, TWO[0]]
        channel.data_received(data)
        assert len(heard) == 6
        assert not transport.aborted

    with_channel(play)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\1\xc1",
        b"\0\0\0\2\x91\x01",
        encode_messages(TWO)[:4] + b"\x91\x93\x63" + b"\0" * 40,
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"GET / HTTP/1.1\r\n",
    ],
    ids=["no msgpack", "no message", "an unknown one", "too large", "http"],
)
def test_what_is_none_of_ours_ends_the_connection(data: bytes) -> None:
    def play(channel: MessageChannel, transport: Unread, heard: list[Any]) -> None:
        channel.data_received(data)
        assert transport.aborted
        assert heard == []

    with_channel(play)


def test_all_that_a_worker_has_may_be_said_at_once_and_then_the_other_must_read() -> None:
    """Or one with many requests could never connect again."""
    greeting = MAX_UNSENT_BYTES // len(LARGE.replica) + 4

    def play(channel: MessageChannel, transport: Unread, heard: list[Any]) -> None:
        say(channel, [LARGE] * greeting)
        say(channel, [LARGE] * 8)
        assert not transport.aborted
        say(channel, [LARGE] * 8)
        assert transport.aborted

    with_channel(play)


def test_many_messages_are_several_frames() -> None:
    def play(channel: MessageChannel, transport: Unread, heard: list[Any]) -> None:
        say(channel, TWO * 5000)
        length = int.from_bytes(transport.written[:4], "big")
        assert 4 + length < len(transport.written)
        channel.data_received(transport.written)
        assert heard == TWO * 5000

    with_channel(play)
