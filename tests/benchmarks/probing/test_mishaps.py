"""A replica in a process of its own: it can be frozen, restarted and made to misbehave, and says what reached it."""

from __future__ import annotations

import http.client
import signal
import socket
from collections.abc import Callable, Iterator
from math import isnan
from time import monotonic, sleep

import pytest
from benchmarks.load.inferences import PATH, request
from benchmarks.mocks.faults import COLD, ERRORS, FLAPPING, FROZEN, FaultKind, ReplicaProcess, ScheduledFault, scheduled
from benchmarks.peers.health_checked import READY_PATH
from benchmarks.testbed.processes import ProcessManager, StartError, cores

from tests.harness.processes import free_port

NEVER_SECONDS = 1000.0  # never, for a test
WAIT_TIMEOUT_SECONDS = 30.0


@pytest.fixture
def server() -> Iterator[ReplicaProcess]:
    with ProcessManager() as processes:
        server = ReplicaProcess(processes, cores()[0], free_port())
        server.start()
        yield server
        server.stop()


def ask(server: ReplicaProcess, method: str, path: str, body: bytes = b"{}") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_TIMEOUT_SECONDS)
    try:
        connection.request(method, path, body)
        return connection.getresponse().status
    finally:
        connection.close()


def infer(server: ReplicaProcess) -> int:
    return ask(server, "POST", PATH)


def is_ready(server: ReplicaProcess) -> bool:
    return ask(server, "GET", READY_PATH) == 200


def wait_for(condition: Callable[[], bool]) -> None:
    end = monotonic() + WAIT_TIMEOUT_SECONDS
    while not condition():
        assert monotonic() < end, "in vain"
        sleep(0.01)


def test_it_says_what_reached_it(server: ReplicaProcess) -> None:
    before = monotonic()
    assert is_ready(server)
    assert infer(server) == 200
    assert [what for _, what in server.seen()] == ["up", "200"]
    assert before <= server.seen()[1][0] <= monotonic()


def test_what_reaches_a_frozen_one_is_told_with_the_time_at_which_it_came(server: ReplicaProcess) -> None:
    assert is_ready(server)  # the kernel begins to stamp a moment after the first socket wants it
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_TIMEOUT_SECONDS) as client:
        FROZEN.begin(server)
        client.sendall(request(0.001))
        sleep(0.1)
        thawed = monotonic()
        assert FROZEN.end is not None
        FROZEN.end(server)
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
    (arrived,) = [when for when, what in server.seen() if what == "200"]
    assert arrived < thawed


def test_errors_and_flapping_begin_and_end(server: ReplicaProcess) -> None:
    for kind, misbehaves in ((ERRORS, lambda: infer(server) == 500), (FLAPPING, lambda: not is_ready(server))):
        kind.begin(server)
        wait_for(misbehaves)
        assert kind.end is not None
        kind.end(server)
        wait_for(lambda: infer(server) == 200 and is_ready(server))


def test_one_that_is_not_ready_fails_what_it_is_given(server: ReplicaProcess) -> None:
    server.restart(NEVER_SECONDS)
    assert not is_ready(server)
    assert infer(server) == 503
    assert ask(server, "GET", "/v2/health/live") == 200


def test_a_restarted_one_is_bad_from_when_it_listens_to_when_it_is_ready(server: ReplicaProcess) -> None:
    mishap = ScheduledFault(COLD, server, 0.0, 0.0)
    mishap.began = monotonic()
    server.restart(0.3)
    wait_for(lambda: is_ready(server))
    mishap.ended = monotonic()
    up, ready = mishap.window()
    assert mishap.began < up < ready < mishap.ended
    assert [what for _, what in server.seen()] == ["up", "up", "ready"]


def test_what_has_begun_is_ended_when_the_run_is_broken_off(server: ReplicaProcess) -> None:
    mishap = ScheduledFault(FROZEN, server, monotonic(), NEVER_SECONDS)

    def broken_off() -> None:
        with scheduled([mishap]):
            wait_for(lambda: not isnan(mishap.began))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert mishap.began <= mishap.ended
    assert infer(server) == 200


def test_trouble_with_a_mishap_is_not_swallowed(server: ReplicaProcess) -> None:
    def fail(server: ReplicaProcess) -> None:
        raise StartError("it would not start")

    with (
        pytest.raises(StartError, match="would not"),
        scheduled([ScheduledFault(FaultKind("odd", fail, None), server, 0.0, 0.0)]),
    ):
        pass


def test_a_frozen_one_can_be_stopped(server: ReplicaProcess) -> None:
    server.send(signal.SIGSTOP)
    server.stop()
    assert server.running is None
