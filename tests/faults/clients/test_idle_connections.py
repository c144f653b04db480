"""Connections that are made and not used: handshakes count, and running out of descriptors is survived (point 23)."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.harness import Connection, Serving, StubReplica, config, new_id, request, scripts, wait_until
from tests.harness.certificates import Authority
from tests.harness.processes import descriptors


def closed(connection: Connection) -> bool:
    """By the other side, without a word."""
    return not connection.quiet(0.0)


def test_tls_handshakes_count_as_connections(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost", "IP:127.0.0.1")
    settings = {"tls": {"certificate": str(certificate), "key": str(key)}, "limits": {"connections": 10}}
    with StubReplica("a") as stub, Serving(config([stub], timeouts={"header": "60s"}, **settings)) as gateway:
        silent = [gateway.connect() for _ in range(30)]
        wait_until(lambda: sum(map(closed, silent)) >= 20, "more handshakes than connections are let in")
        left = [connection for connection in silent if not closed(connection)]
        assert len(left) == 10
        left[0].close()

        def served() -> bool:
            try:
                with gateway.connect(tls=authority.client_context()) as connection:
                    return connection.ask("GET").status == 200
            except OSError:
                return False

        wait_until(served, "a handshake that was given up still counts")
        for connection in silent:
            connection.close()


@pytest.mark.parametrize("tls", [False, True])
def test_out_of_descriptors_clients_wait_and_are_served_when_there_are_some_again(tmp_path: Path, tls: bool) -> None:
    settings, context = {}, None
    if tls:
        authority = Authority(tmp_path)
        certificate, key = authority.issue("localhost", "IP:127.0.0.1")
        settings, context = {"tls": {"certificate": str(certificate), "key": str(key)}}, authority.client_context()
    with StubReplica("a") as stub, Serving(config([stub], **settings)) as gateway:
        with gateway.connect(tls=context) as first:
            assert first.ask("GET").status == 200
        limit = max(descriptors(gateway.worker)) + 40
        before = resource.prlimit(gateway.worker, resource.RLIMIT_NOFILE)
        resource.prlimit(gateway.worker, resource.RLIMIT_NOFILE, (limit, before[1]))
        idle = [gateway.connect() for _ in range(80)]
        wait_until(lambda: "no file descriptors are left" in gateway.output, "nobody is told of it")
        assert not tls or gateway.output.count("no file descriptors are left") == 1
        waiting = idle.pop()
        assert waiting.quiet(0.2), "it waits to be accepted"
        for connection in idle:
            connection.close()
        id = new_id()
        with waiting if not tls else gateway.connect(tls=context) as connection:
            connection.send(request("POST", id=id, script=scripts.slow(0.01)))
            assert connection.response("POST").status == 200
        waiting.close()
        assert gateway.output.count("alarm: worker 0: no file descriptors are left") == 1
        assert "is killed" not in gateway.output
