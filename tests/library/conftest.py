"""Two real replicas over sockets, and one that nobody listens for."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ..harness.replicas.stub import StubReplica

Stubs = tuple[StubReplica, StubReplica]


@pytest.fixture(scope="module")
def started() -> Iterator[Stubs]:
    with StubReplica("one") as one, StubReplica("two") as two:
        yield one, two


@pytest.fixture
def stubs(started: Stubs) -> Stubs:
    for stub in started:
        stub.answer_all(None)
    return started


@pytest.fixture
def dead() -> Iterator[str]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        yield f"http://127.0.0.1:{held.getsockname()[1]}"
