"""Workers and supervisor: killed, told to stop, short of file descriptors or memory."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.harness import (
    MIB,
    Connection,
    Ledger,
    NoAnswer,
    Serving,
    StubReplica,
    Truncated,
    config,
    model,
    new_id,
    request,
    scripts,
    slots_free,
    wait_until,
)
from tests.harness.processes import alive, descriptors, memory
from tests.harness.traffic import traffic


@pytest.fixture
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


def on_each_worker(gateway: Serving, count: int) -> dict[int, list[Connection]]:
    """Connections, by the worker that has them; at least `count` on each."""
    found: dict[int, list[Connection]] = {pid: [] for pid in gateway.workers}
    for _ in range(400):
        if min(map(len, found.values())) >= count:
            return found
        connection = gateway.connect()
        found[gateway.worker_of(connection)].append(connection)
    raise AssertionError(f"connections go to one worker only: { {pid: len(c) for pid, c in found.items()} }")


def balancers(gateway: Serving) -> list[int]:
    """The pids of all balancer processes that it has had, the last one serves."""
    return [int(pid) for pid in re.findall(r"balancer process \(pid (\d+)\) ready", gateway.output)]


def close_all(connections: dict[int, list[Connection]]) -> None:
    for some in connections.values():
        for connection in some:
            connection.close()


class TestWorkerKilled:
    def test_only_its_own_requests_fail_and_it_is_replaced(self, stub: StubReplica) -> None:
        with Serving(config({"*": model(stub, idempotent=False)}, workers=2)) as gateway:
            connections = on_each_worker(gateway, 3)
            victim, survivor = gateway.workers
            gate, ids = new_id("gate"), {}
            for some in connections.values():
                for connection in some:
                    ids[connection] = new_id()
                    connection.send(request("POST", id=ids[connection], script=scripts.held(gate)))
            for id in ids.values():
                stub.wait("waiting", id=id)
            os.kill(victim, signal.SIGKILL)
            for connection in connections[victim]:
                with pytest.raises(NoAnswer):
                    connection.response()
                stub.wait_left(ids[connection])
            wait_until(lambda: len(gateway.workers) == 2 and victim not in gateway.workers, "it is not replaced")
            assert survivor in gateway.workers
            stub.open(gate)
            for connection in connections[survivor]:
                assert f'"{ids[connection]}"'.encode() in connection.response().body
            close_all(connections)
            fresh = on_each_worker(gateway, 2)
            for some in fresh.values():
                for connection in some:
                    assert connection.ask("POST").status == 200
            close_all(fresh)
        assert [len(stub.of("request", id=id)) for id in ids.values()] == [1] * len(ids)

    def test_the_only_one(self, stub: StubReplica) -> None:
        """With one worker there is a gap, and then it serves again by itself."""
        ledger = Ledger(stub)
        with Serving(config([stub])) as gateway:
            worker = gateway.worker
            with traffic(gateway, ledger, patient=True):
                stub.wait("done", 5)
                os.kill(worker, signal.SIGKILL)
                wait_until(lambda: gateway.workers and worker not in gateway.workers, "it is not replaced")
                before = ledger.count()["ok"]
                wait_until(lambda: ledger.count()["ok"] > before + 20, "the new one does not serve")
            ledger.check()
            assert set(ledger.count()) <= {"ok", "no answer", "truncated"}
            assert ledger.count()["no answer"] + ledger.count()["truncated"] <= 6

    def test_its_share_of_the_load_is_forgotten(self, stub: StubReplica) -> None:
        """One slot, held by the worker that dies: the others must not believe that it is still taken."""
        with Serving(config({"*": model(stub, concurrency=1)}, workers=2)) as gateway:
            connections = on_each_worker(gateway, 1)
            victim = gateway.workers[0]
            id = new_id()
            connections[victim][0].send(request("POST", id=id, script=scripts.silent()))
            stub.wait("body", id=id)
            os.kill(victim, signal.SIGKILL)
            stub.wait_left(id)
            wait_until(lambda: len(gateway.workers) == 2 and victim not in gateway.workers, "it is not replaced")
            close_all(connections)
            fresh = on_each_worker(gateway, 1)
            for some in fresh.values():
                assert some[0].ask("POST").status == 200
            close_all(fresh)

    def test_again_and_again(self, stub: StubReplica) -> None:
        with Serving(config([stub], workers=2)) as gateway:
            for _ in range(4):
                victim = gateway.workers[0]
                os.kill(victim, signal.SIGKILL)
                wait_until(
                    lambda victim=victim: len(gateway.workers) == 2 and victim not in gateway.workers,
                    "it is not replaced",
                )
                assert gateway.ask("POST").status == 200


class TestBalancerKilled:
    def test_no_request_fails_and_a_limit_holds(self, stub: StubReplica) -> None:
        """One slot, taken when the balancer process dies, and requests of both workers that wait for it."""
        with Serving(config({"*": model(stub, concurrency=1, idempotent=False)}, workers=2)) as gateway:
            connections = on_each_worker(gateway, 3)
            gate, waiting = new_id("gate"), [connection for some in connections.values() for connection in some]
            first, *rest = waiting
            first.send(request("POST", id=new_id(), script=scripts.held(gate)))
            stub.wait("waiting")
            for connection in rest:
                connection.send(request("POST", id=new_id()))
            os.kill(balancers(gateway)[0], signal.SIGKILL)
            wait_until(lambda: len(balancers(gateway)) == 2, "it is not replaced")
            late = gateway.connect()
            late.send(request("POST", id=new_id()))
            stub.sync()
            assert len(stub.of("request")) == 1, "another is sent beside the one that runs"
            stub.open(gate)
            for connection in (first, *rest, late):
                assert connection.response().status == 200
            close_all(connections)
            late.close()
        assert "Traceback" not in gateway.output

    def test_again_and_again_under_load(self, stub: StubReplica) -> None:
        ledger = Ledger(stub)
        with Serving(config({"*": model(stub, concurrency=2)}, workers=2)) as gateway:
            with traffic(gateway, ledger):
                for count in (1, 2, 3):
                    before = ledger.count()["ok"]
                    wait_until(lambda before=before: ledger.count()["ok"] > before + 20, "nothing is served")
                    os.kill(balancers(gateway)[-1], signal.SIGKILL)
                    wait_until(lambda count=count: len(balancers(gateway)) > count, "it is not replaced")
            ledger.check()
            assert set(ledger.count()) == {"ok"}
            slots_free(gateway, stub, 2)


class TestSupervisorKilled:
    def test_the_workers_go_on(self, stub: StubReplica) -> None:
        gateway = Serving(config([stub], workers=2))
        workers = gateway.workers
        try:
            gate = new_id("gate")
            with gateway.connect() as connection:
                connection.send(request("POST", script=scripts.sse(2, gate)))
                response = connection.begin()
                os.kill(gateway.pid, signal.SIGKILL)
                gateway.process.wait(30)
                for _ in range(20):
                    assert gateway.ask("POST").status == 200
                for number in (1, 2):
                    stub.open(f"{gate}-{number}")
                assert connection.finish(response).body.count(b"data: ") == 2
            assert all(map(alive, workers))
            for pid in workers:  # nobody is left to ask them, so they must hear for themselves
                os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not any(map(alive, workers)), "workers without a supervisor do not hear SIGTERM")
        finally:
            for pid in workers:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)

    def test_a_new_one_can_start_beside_the_old_workers(self, stub: StubReplica) -> None:
        settings = config([stub])
        old = Serving(settings)
        orphans = old.workers
        try:
            os.kill(old.pid, signal.SIGKILL)
            old.process.wait(30)
            with Serving(settings) as gateway:
                for pid in orphans:
                    os.kill(pid, signal.SIGTERM)
                wait_until(lambda: not any(map(alive, orphans)), "the orphans do not end")
                for _ in range(10):
                    assert gateway.ask("POST").status == 200
        finally:
            for pid in orphans:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)


class TestTermination:
    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
    def test_what_runs_is_finished_and_nothing_new_is_taken(self, stub: StubReplica, how: signal.Signals) -> None:
        gate, id = new_id("gate"), new_id()
        gateway = Serving(config([stub], timeouts={"drain": "300s"}))
        with gateway.connect() as stream, gateway.connect() as held, gateway.connect() as idle:
            assert idle.ask("GET").status == 200
            stream.send(request("POST", script=scripts.sse(2, gate)))
            response = stream.begin()
            held.send(request("POST", id=id, script=scripts.held(f"{gate}-2")))
            stub.wait("waiting", id=id)
            gateway.process.send_signal(how)
            wait_until(lambda: refused(gateway), "it still takes connections")
            idle.wait_closed()  # those without a request have nothing to wait for
            for number in (1, 2):
                stub.open(f"{gate}-{number}")
            assert stream.finish(response).body.count(b"data: ") == 2
            answer = held.response()
            assert answer.status == 200
            held.wait_closed()
        assert gateway.process.wait(30) == 0
        assert "Traceback" not in gateway.output

    def test_what_does_not_end_in_time_is_cut(self, stub: StubReplica) -> None:
        gateway = Serving(config([stub], timeouts={"drain": "500ms"}))
        with gateway.connect() as connection:
            connection.send(request("POST", script=scripts.endless(new_id("never"))))
            response = connection.begin()
            gateway.process.send_signal(signal.SIGTERM)
            with pytest.raises(Truncated):
                connection.finish(response)
        assert gateway.process.wait(30) in (0, 1)  # it may tell that not all ended well
        assert "Traceback" not in gateway.output

    def test_under_load_nobody_is_dropped(self, stub: StubReplica) -> None:
        """Whoever got a connection and a word in is answered, or told by `connection: close`."""
        ledger = Ledger(stub)
        gateway = Serving(config({"*": model(stub, idempotent=False)}, timeouts={"drain": "60s"}))
        try:
            with contextlib.suppress(ConnectionError), traffic(gateway, ledger, clients=4):
                stub.wait("done", 30)
                gateway.process.send_signal(signal.SIGTERM)
                gateway.process.wait(30)
        finally:
            gateway.kill()
        ledger.check()
        counts = ledger.count()
        assert counts["ok"] >= 30
        assert counts["truncated"] == 0
        assert set(counts) <= {"ok", "no answer"} | {end for end in counts if end.startswith("error 503")}
        # A request that never reached a replica may go unanswered as the connection closes; one that ran may not.
        for id, ends in ledger.ends.items():
            if ends == ["no answer"]:
                stub.never("request", id=id)

    def test_a_second_signal_ends_it_at_once(self, stub: StubReplica) -> None:
        gateway = Serving(config([stub], timeouts={"drain": "300s"}))
        with gateway.connect() as connection:
            connection.send(request("POST", script=scripts.endless(new_id("never"))))
            connection.begin()
            gateway.process.send_signal(signal.SIGTERM)
            wait_until(lambda: refused(gateway), "it still takes connections")
            gateway.process.send_signal(signal.SIGTERM)
            try:
                gateway.process.wait(30)
            except subprocess.TimeoutExpired:
                gateway.kill()
                pytest.fail("a second SIGTERM does not end a drain of 300 s")


def refused(gateway: Serving) -> bool:
    try:
        Connection(gateway.address, timeout=5).close()
    except ConnectionError:
        return True
    return False


class TestExhausted:
    def test_file_descriptors(self, stub: StubReplica) -> None:
        """None are left: the error is clear, nothing dies, nothing spins, and it recovers."""
        with Serving(config({"*": model(stub, concurrency=4)})) as gateway:
            worker = gateway.worker
            assert gateway.ask("POST").status == 200
            _, hard = resource.prlimit(worker, resource.RLIMIT_NOFILE)
            with gateway.connect() as old:
                assert old.ask("POST").status == 200
                stub.close_idle()
                resource.prlimit(worker, resource.RLIMIT_NOFILE, (max(descriptors(worker)) + 3, hard))
                crowd = []
                for _ in range(30):
                    with contextlib.suppress(ConnectionError, TimeoutError):
                        crowd.append(gateway.connect(timeout=5))
                # The open connection is answered: by a replica if a descriptor is left, else with a clear refusal.
                response = old.ask("POST", headers={"steelyard-timeout-ms": "5000"})
                assert response.status in (200, 502, 503, 504)
                if response.status != 200:
                    assert response.headers["steelyard-reason"]
                for connection in crowd:
                    connection.close()
                resource.prlimit(worker, resource.RLIMIT_NOFILE, (hard, hard))
                wait_until(lambda: old.ask("POST").status == 200, "it does not recover")
            slots_free(gateway, stub, 4)
            assert gateway.worker == worker, gateway.output
            assert len(gateway.output) < MIB, "it floods its log"

    def test_descriptors_for_replicas(self, stub: StubReplica) -> None:
        """Clients are in, but none is left for a connection to a replica: 503, not a hang, not a crash."""
        with Serving(config({"*": model(stub, outlier_detection={"enabled": False})})) as gateway:
            worker = gateway.worker
            clients = [gateway.connect() for _ in range(5)]
            for connection in clients:
                assert connection.ask("POST").status == 200
            stub.close_idle()
            wait_until(lambda: not [1 for row in stub.of("open")][len(stub.of("lost")) :], "connections stay open")
            _, hard = resource.prlimit(worker, resource.RLIMIT_NOFILE)
            resource.prlimit(worker, resource.RLIMIT_NOFILE, (max(descriptors(worker)) + 1, hard))
            held = fill_holes(worker)
            for connection in clients:
                response = connection.ask("POST", headers={"steelyard-timeout-ms": "5000"})
                assert response.status in (200, 502, 503, 504)
            resource.prlimit(worker, resource.RLIMIT_NOFILE, (hard, hard))
            for connection in clients:
                assert connection.ask("POST").status == 200
                connection.close()
            assert gateway.worker == worker
            assert held >= 0

    def test_memory(self, stub: StubReplica) -> None:
        """Little address space is left: what cannot be had is refused, the worker lives or is replaced, and serves."""
        limits = {"total_buffer_bytes": "512MiB", "replay_bytes": "64MiB", "body_bytes": "64MiB"}
        gateway = Serving(config({"*": model(stub, concurrency=1, max_queue=100)}, limits=limits))
        try:
            worker = gateway.worker
            assert gateway.ask("POST").status == 200
            size = memory(worker, "VmSize")
            resource.prlimit(worker, resource.RLIMIT_AS, (size + 48 * MIB, resource.RLIM_INFINITY))
            body = b'{"model": "m", "prompt": "' + b"x" * (30 * MIB) + b'"}'
            connections = [gateway.connect() for _ in range(4)]
            for connection in connections:
                connection.sock.settimeout(5)
                with contextlib.suppress(ConnectionError, TimeoutError):
                    connection.send(request("POST", "/v1/completions", body=body))
            for connection in connections:
                connection.close()
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(worker, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            wait_until(lambda: gateway.workers, "nobody is left")
            wait_until(lambda: answered(gateway), "it does not recover")
            slots_free(gateway, stub)
            assert gateway.stop() == 0
        finally:
            gateway.kill()
        # It may say where memory ran out, and nothing else may have gone wrong.
        assert gateway.output.count("Traceback") == gateway.output.count("MemoryError")


def answered(gateway: Serving) -> bool:
    try:
        return gateway.ask("POST").status == 200
    except (Truncated, ConnectionError):
        return False


def fill_holes(pid: int) -> int:
    """How many descriptors below the limit are free (for the report only)."""
    soft, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    return soft - len(descriptors(pid))
