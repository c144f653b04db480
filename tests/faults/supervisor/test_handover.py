"""One gateway, or one worker, after another under load: nothing is lost (issue 13, points 11 and 27)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness import Serving, config, model, new_id, request, scripts, wait_until
from tests.harness.admin import PROBED, AdminClient, admin_config
from tests.harness.flow import Flow
from tests.harness.processes import alive
from tests.harness.replicas.probed import ProbedReplica
from tests.harness.scaling import ReplicaLog, started

IN_HAND = {"no answer", "cut off in the answer"}  # what a killed worker takes with it


@pytest.fixture
def stubs() -> Iterator[list[ProbedReplica]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ProbedReplica(f"r{number}")) for number in range(3)]


def settings(stubs: list[ProbedReplica], workers: int = 2, **rest: Any) -> dict[str, Any]:
    served = model(*stubs, health=PROBED, idempotent=False)
    return config({"*": served}, workers=workers, timeouts={"drain": "20s"}, **rest)


def successor(configuration: dict[str, Any]) -> Serving:
    return Serving(configuration, arguments=["--take-over"])


def test_an_upgrade_loses_nothing(stubs: list[ProbedReplica]) -> None:
    """Streams run out, clients that keep their connections are told, the admin address stays, the old one ends."""
    configured = settings(stubs[:1], workers=1, admin=admin_config())
    gate = new_id("gate")
    old = Serving(configured)
    with old.connect() as stream, old.connect() as idle, Flow(old.address, kept=4, fresh=2) as flow:
        assert idle.ask("POST").headers.get("connection") != "close"
        stream.send(request("POST", script=scripts.sse(2, gate)))
        response = stream.begin()
        with successor(configured) as new:
            wait_until(lambda: "taken over" in old.output, "it is not told")
            assert old.process.poll() is None  # the stream
            wait_until(lambda: idle.ask("POST").headers.get("connection") == "close", "it is not told")
            for number in (1, 2):
                stubs[0].open(f"{gate}-{number}")
            assert stream.finish(response).body.count(b"data: ") == 2
            stream.close()
            assert old.process.wait(30) == 0
            with AdminClient(configured) as admin:
                admin.wait_ready("r0")
            flow.go_on()
            flow.end()
            assert "Traceback" not in old.output
            assert new.process.poll() is None
    assert flow.lost == {}, f"of {flow.total}: {old.output}"


@pytest.mark.slow
def test_upgrade_after_upgrade_under_load(stubs: list[ProbedReplica]) -> None:
    configured = settings(stubs)
    gateway = Serving(configured)
    with Flow(gateway.address, kept=100, fresh=8, pause=0.3, streams=10, stream=scripts.slow(0.5)) as flow:
        for _ in range(3):
            before, gateway = gateway, successor(configured)
            assert before.process.wait(60) == 0
            flow.go_on(200)
    gateway.stop()
    assert flow.lost == {}, f"of {flow.total}"


@pytest.mark.slow
def test_a_signal_starts_the_version_that_is_installed_by_now(stubs: list[ProbedReplica]) -> None:
    old = Serving(settings(stubs))
    with Flow(old.address) as flow:
        old.process.send_signal(signal.SIGUSR2)
        assert old.process.wait(60) == 0
        flow.go_on(100)
        flow.end()
    found = re.search(r"pid (\d+) \(steelyard .* takes over", old.output)
    assert found
    os.kill(int(found[1]), signal.SIGTERM)
    wait_until(lambda: not alive(int(found[1])), "it does not end")
    assert flow.lost == {}, f"of {flow.total}: {old.output}"


@pytest.mark.slow
def test_a_new_one_that_cannot_start_changes_nothing(stubs: list[ProbedReplica]) -> None:
    configured = settings(stubs[:1], workers=1)
    with Serving(configured) as gateway, Flow(gateway.address) as flow:
        with pytest.raises(AssertionError, match="serve ended with 2"):
            successor({**configured, "models": {"*": {**configured["models"]["*"], "policy": "nowhere:Policy"}}})
        wait_until(lambda: gateway.process.poll() is None and gateway.ask().status == 200, "it does not go on")
        gone = {"replicas": [{"url": "http://127.0.0.1:9"}], "health": PROBED}
        with pytest.raises(AssertionError, match="none here after"):
            successor({**configured, "models": {"*": gone}})
        wait_until(lambda: "did not start; this one keeps serving" in gateway.output, "it does not say so")
        flow.go_on()
    assert flow.lost == {}, f"of {flow.total}"


@pytest.mark.slow
def test_replicas_that_it_started_are_taken_over(tmp_path: Path) -> None:
    replica_log = ReplicaLog(tmp_path)
    served = started(tmp_path, "--seconds", "0.01", runtime={"replicas": 2}, concurrency=8)
    configured = config({"*": served}, timeouts={"drain": "20s"}, name=new_id("upgraded"))
    old = Serving(configured)
    wait_until(lambda: len(replica_log.starts) == 2 and old.ask().status == 200, "they are not started")
    with Flow(old.address) as flow, successor(configured) as new:
        assert old.process.wait(60) == 0
        flow.go_on(100)
        assert len(replica_log.starts) == 2
        assert all(map(alive, replica_log.starts))
        os.kill(replica_log.starts[0], signal.SIGKILL)  # they are the new one's now
        wait_until(lambda: len(replica_log.starts) == 3, f"nobody looks after them:\n{new.output}")
        flow.go_on(20)
        flow.end()
    assert set(flow.lost) <= {"error 502 replica_failed", "error 502 replica_unreachable"}, flow.lost


@pytest.mark.slow
def test_the_supervisor_is_killed_and_started_again(stubs: list[ProbedReplica]) -> None:
    configured = settings(stubs)
    old = Serving(configured)
    orphans = old.workers
    with Flow(old.address, kept=100, fresh=16, pause=0.2) as flow:
        os.kill(old.pid, signal.SIGKILL)
        old.process.wait(30)
        flow.go_on(100)
        with Serving(configured) as new:
            flow.go_on(200)
            wait_until(lambda: not any(map(alive, orphans)), "the workers before do not end")
            flow.end()
            assert new.process.poll() is None
    assert flow.lost == {}, f"of {flow.total}"


@pytest.mark.slow
def test_more_and_fewer_workers(stubs: list[ProbedReplica]) -> None:
    configured = settings(stubs)
    with Serving(configured) as gateway:
        with Flow(gateway.address, kept=200, fresh=8, pause=1.5) as flow:
            for size in (4, 1):
                gateway.reload({**configured, "workers": size})
                wait_until(lambda size=size: len(gateway.workers) == size, "not so many workers")
                flow.go_on(100)
        assert flow.lost == {}, f"of {flow.total}"
        assert flow.reconnected == 0, "connections were closed without a word"


@pytest.mark.slow
@pytest.mark.parametrize("all_of_them", [False, True], ids=["one", "all"])
def test_workers_are_killed_with_what_they_have_in_hand(stubs: list[ProbedReplica], all_of_them: bool) -> None:
    """No more than that: nobody is refused, and no later request suffers."""
    with Serving(settings(stubs)) as gateway, Flow(gateway.address, kept=12, fresh=4) as flow:
        workers = gateway.workers
        for pid in workers if all_of_them else workers[:1]:
            os.kill(pid, signal.SIGKILL)
        flow.go_on(400)
    assert set(flow.lost) <= IN_HAND, f"of {flow.total}"
    assert sum(flow.lost.values()) <= 16


@contextlib.contextmanager
def config_map(first: dict[str, Any], folder: Path) -> Iterator[Any]:
    """A folder as Kubernetes mounts it: what is read lies behind a link that is swapped."""

    def swap(configuration: dict[str, Any]) -> None:
        data = folder / f"..{time.monotonic_ns()}"
        data.mkdir()
        (data / "gateway.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False))
        (folder / "..new").symlink_to(data.name)
        (folder / "..new").rename(folder / "..data")

    swap(first)
    (folder / "gateway.yaml").symlink_to("..data/gateway.yaml")
    yield swap


@pytest.mark.slow
@pytest.mark.parametrize("same_ids", [False, True], ids=["others", "moved"])
def test_a_config_map_that_swaps_all_replicas(stubs: list[ProbedReplica], tmp_path: Path, same_ids: bool) -> None:
    configured = settings(stubs[:1])
    port = int(configured["listen"].rpartition(":")[2])
    with config_map(configured, tmp_path) as swap:
        file = str(tmp_path / "gateway.yaml")
        with Serving(arguments=[file], address=("127.0.0.1", port)) as gateway, Flow(gateway.address) as flow:
            for number in range(1, 7):
                stub = stubs[number % 3]
                replica = {**stub.config, "id": "same"} if same_ids else stub.config
                mark = stub.mark
                swap({**configured, "models": {"*": {**configured["models"]["*"], "replicas": [replica]}}})
                stub.wait_real(20, mark)
        assert flow.lost == {}, f"of {flow.total}"


ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.slow
def test_a_restart_with_a_socket_of_systemd_refuses_nobody(stubs: list[ProbedReplica]) -> None:
    """Whoever connects meanwhile waits in the socket, which systemd keeps open."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as held:
        configured = settings(stubs, listen=f"127.0.0.1:{held.getsockname()[1]}")
        os.set_inheritable(held.fileno(), True)

        def serve() -> Serving:
            wrapper = [sys.executable, "-c", ACTIVATE, str(held.fileno())]
            return Serving(configured, wrapper=wrapper, close_fds=False)

        gateway = serve()
        with Flow(gateway.address, kept=0, fresh=8) as flow:
            assert gateway.stop() == 0
            gateway = serve()
            flow.go_on(100)
        gateway.stop()
    assert flow.lost == {}, f"of {flow.total}"
