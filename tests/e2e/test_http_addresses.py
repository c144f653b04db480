"""Where it listens and where replicas are: IPv6, Unix sockets, several addresses, no file at all."""

from __future__ import annotations

import json
import socket
from collections import Counter
from pathlib import Path

import pytest

from tests.harness import Connection, Serving, StubReplica, config, new_id, scripts, wait_until
from tests.harness.processes import free_port


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_ipv6_on_both_sides() -> None:
    with StubReplica("six", host="::1") as stub, Serving(config([stub], f"[::1]:{free_port('::1')}")) as gateway:
        id = new_id()
        response = gateway.ask("POST", id=id, body=b"x")
        assert response.status == 200
        assert "::1" in stub.headers(id)["x-forwarded-for"]


def test_unix_sockets_on_both_sides(tmp_path: Path) -> None:
    front, back = tmp_path / "front.sock", tmp_path / "back.sock"
    with StubReplica("unix", path=str(back)) as stub:
        with Serving(config([stub], f"unix:{front}")) as gateway:
            with gateway.connect() as connection:
                assert connection.ask("POST", body=b"x" * 300_000).status == 200
                assert len(connection.ask("GET", script=scripts.large(3 << 20)).body) == 3 << 20
            id = new_id()
            gateway.ask("GET", id=id)
            assert len([name for name, _ in stub.request(id)["headers"] if name == "host"]) == 1
        assert not front.exists(), "the socket's file was left behind"


def test_a_unix_socket_left_behind_does_not_stop_a_new_start(tmp_path: Path) -> None:
    front = tmp_path / "front.sock"
    with StubReplica() as stub:
        first = Serving(config([stub], f"unix:{front}"))
        first.kill()
        assert front.exists()
        with Serving(config([stub], f"unix:{front}")) as gateway:
            assert gateway.ask("GET").status == 200


def test_several_addresses_at_once(tmp_path: Path) -> None:
    path, port = str(tmp_path / "also.sock"), free_port()
    listen = [f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}", f"unix:{path}"]
    with StubReplica() as stub, Serving(config([stub], listen)) as gateway:
        for place in (("127.0.0.1", port), ("127.0.0.1", int(listen[1].rpartition(":")[2])), path):
            with Connection(place) as connection:
                assert connection.ask("GET").status == 200
        assert gateway.workers


def test_replicas_on_the_command_line() -> None:
    port = free_port()
    with StubReplica("a") as a, StubReplica("b") as b:
        arguments = ["--replica", a.url, "--replica", b.url, "--listen", f"127.0.0.1:{port}", "--policy", "round_robin"]
        with Serving(arguments=arguments, address=("127.0.0.1", port)) as gateway:

            def answered_by() -> str:
                response = gateway.ask("POST")
                assert response.status == 200
                return json.loads(response.body)["replica"]

            wait_until(lambda: {answered_by(), answered_by()} == {"a", "b"}, "one of them is never ready")
            assert Counter(answered_by() for _ in range(10)) == {"a": 5, "b": 5}


def test_a_port_in_use_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, StubReplica() as stub:
        port = taken.getsockname()[1]
        with pytest.raises(AssertionError, match=f"ended with [1-9].*\n(?s:.*){port}") as problem:
            Serving(config([stub], f"127.0.0.1:{port}"))
        assert "Traceback" not in str(problem.value)
