from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.addresses import Address, listen_address
from steelyard.control.listeners.listeners import ListenerSockets
from steelyard.control.takeover.orphaned_workers import find_orphaned_workers

SLEEP = "import sys, time; print(flush=True); time.sleep(60)"
COMMAND = (sys.executable, "-c", SLEEP)


@pytest.fixture(params=["127.0.0.1:0", "[::1]:0", "unix:{}/s"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ListenerSockets]:
    if "::" in request.param and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 on this machine")
    made = ListenerSockets([listen_address(request.param.format(tmp_path))])
    yield made
    made.close_all()


@pytest.fixture
def worker(listening: ListenerSockets) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*COMMAND, "--index", "0"], pass_fds=listening.open(0), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def let_go(listening: ListenerSockets) -> None:
    """As if the supervisor had been killed: its sockets are closed, and a Unix socket's file stays."""
    null = os.open(os.devnull, os.O_RDONLY)
    for fd in listening.open(0):
        os.dup2(null, fd)
    os.close(null)


def test_nobody_listens() -> None:
    assert find_orphaned_workers([Address("127.0.0.1", 1), Address(path="/no/such/socket")], COMMAND) == {}


def test_a_supervisor_that_lives_keeps_its_workers(listening: ListenerSockets, worker: subprocess.Popen[bytes]) -> None:
    assert find_orphaned_workers(listening.addresses, COMMAND) == {}


def test_one_that_was_killed_leaves_them(listening: ListenerSockets, worker: subprocess.Popen[bytes]) -> None:
    let_go(listening)
    assert find_orphaned_workers(listening.addresses, COMMAND) == {listening.addresses[0]: {worker.pid}}


def test_other_programs_are_left_alone(listening: ListenerSockets, worker: subprocess.Popen[bytes]) -> None:
    let_go(listening)
    assert find_orphaned_workers(listening.addresses, (sys.executable, "-m", "steelyard.gateway")) == {}
    os.kill(worker.pid, 0)


def test_a_busy_supervisor_is_not_overlooked(listening: ListenerSockets, worker: subprocess.Popen[bytes]) -> None:
    """It opens and closes files while it is looked at."""
    script = f"""
import os, sys
print(flush=True)
while True:
    for n in range(20): os.open("/dev/null", os.O_RDONLY)
    os.closerange(100, 200)
    os.closerange(3, min({listening.open(0)}))
"""
    with subprocess.Popen([sys.executable, "-c", script], pass_fds=listening.open(0), stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        let_go(listening)
        try:
            assert [find_orphaned_workers(listening.addresses, COMMAND) for _ in range(20)] == [{}] * 20
        finally:
            os.kill(busy.pid, signal.SIGKILL)
