from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from steelyard.control.admin import connection
from steelyard.control.admin.connection import MAX_AUTHORIZED_CONNECTIONS, MAX_UNAUTHORIZED_CONNECTIONS, AdminConnection

from .serving import TOKEN, WAIT_TIMEOUT_SECONDS, Served, served, until
from .test_routes import failed

GET = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"


@contextmanager
def connected(admin: Served) -> Iterator[socket.socket]:
    with socket.create_connection((admin.server.address.host, admin.server.address.port), WAIT_TIMEOUT_SECONDS) as made:
        yield made


def all_of(made: socket.socket) -> bytes:
    """Until the other side closes."""
    found = b""
    while piece := made.recv(65536):
        found += piece
    return found


def answer_to(admin: Served, data: bytes) -> bytes:
    with connected(admin) as made:
        made.sendall(data)
        return all_of(made)


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nno colon\r\n\r\n",
        GET + b"nonsense\r\n\r\n",
        b"GET http://localhost HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /v1/m\xc5\x93del HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /v1/reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        b"POST /v1/reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /v1/reload HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_400_in_json_and_fills_no_log(
    admin: Served, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    said = answer_to(admin, data)
    assert said.removeprefix(b"HTTP/1.1 200 ").count(b"HTTP/1.1 400 ") == 1
    assert b"\r\ncache-control: no-store\r\n" in said
    assert b'"code":"bad_request"' in said
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_star_is_no_path(admin: Served) -> None:
    data = b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert answer_to(admin, data).startswith(b"HTTP/1.1 404 ")


def test_an_absolute_target_is_a_path_too(admin: Served) -> None:
    data = b"GET http://localhost/v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert answer_to(admin, data).startswith(b"HTTP/1.1 200 ")


def test_two_hosts_of_which_one_is_foreign_are_refused(admin: Served) -> None:
    data = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nhost: evil\r\nconnection: close\r\n\r\n"
    assert answer_to(admin, data).startswith(b"HTTP/1.1 403 ")


def test_http_1_0_needs_no_host(admin: Served) -> None:
    assert answer_to(admin, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_an_upgrade_is_not_taken_up_and_not_talked_about(admin: Served, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n"
    with connected(admin) as made:
        made.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n" + upgrade + b"\r\n")
        assert made.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_head_without_end_is_431(admin: Served) -> None:
    with connected(admin) as made:
        made.sendall(b"GET /v1/models HTTP/1.1\r\n")
        with suppress(ConnectionError):  # closed while we write
            while not select.select([made], [], [], 0.002)[0]:
                made.sendall(b"x-filler: " + b"x" * 4096 + b"\r\n")
        said = made.recv(65536)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head_too_large"' in said


def test_requests_in_one_piece_are_answered_one_after_the_other(admin: Served) -> None:
    last = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert answer_to(admin, GET * 20 + last).count(b"HTTP/1.1 200 ") == 21


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /v1/mod",
        GET + b"GET /v1",
        b"POST /v1/reload HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\r\n{",
        b"POST /v1/fleet HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n{",  # answered before it is all there
    ],
)
def test_a_request_that_does_not_arrive_is_given_up(
    admin: Served, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        connection, "REQUEST_TIMEOUT_SECONDS", 1.0
    )  # in which what was begun is seen, on a slow machine too
    said = answer_to(admin, begun)
    assert (b"HTTP/1.1 408 " in said) == (b"HTTP/1.1 405" not in said and begun != b"")
    until(lambda: not admin.server.state.connections)


@pytest.mark.parametrize(
    ("first", "then"),
    [(GET, b"\r\n"), (b"POST /v1/fleet HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n{", b"    ")],
)
def test_a_connection_that_sends_no_request_is_not_kept(
    admin: Served, first: bytes, then: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(admin) as made:
        made.sendall(first)
        assert made.recv(10000).startswith(b"HTTP/1.1 ")
        monkeypatch.setattr(connection, "REQUEST_TIMEOUT_SECONDS", 0.2)
        made.sendall(then)
        until(lambda: not admin.server.state.connections)


def test_an_answer_that_is_not_read_is_given_up(admin: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_SECONDS", 0.2)
    begun: list[object] = []  # connections, though they may be over when we look

    def noted(
        made: AdminConnection, transport: asyncio.BaseTransport, plain: Any = AdminConnection.connection_made
    ) -> None:
        plain(made, transport)
        begun.append(made)

    monkeypatch.setattr(AdminConnection, "connection_made", noted)
    views = admin.operations.fleet().replicas * 20_000  # more than the kernel keeps
    admin.operations.replicas = {("llama", str(number)): view for number, view in enumerate(views)}
    for last in (b"", b"connection: close\r\n"):
        with connected(admin) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.sendall(GET.replace(b"models", b"fleet").replace(b"\r\n\r\n", b"\r\n" + last + b"\r\n"))
            until(lambda: begun)
            begun.clear()
            until(lambda: not admin.server.state.connections)


def test_too_many_connections_are_told_but_health_is_answered(admin: Served) -> None:
    with ExitStack() as stack:
        for _ in range(MAX_AUTHORIZED_CONNECTIONS):
            made = stack.enter_context(connected(admin))
            made.sendall(GET)
            assert made.recv(10).startswith(b"HTTP/1.1 2")
            made.sendall(b"GET /v1/mod")  # it goes on to use it
        until(lambda: all(made.in_head for made in admin.server.state.connections))
        answer = admin.http.get("/v1/models")
        failed(answer, 503, "busy")
        assert answer.headers["retry-after"] == "1"
        assert admin.http.get("/healthz").status_code == 200
    until(lambda: len(admin.server.state.connections) <= 1)
    assert admin.http.get("/v1/models").status_code == 200


def test_strangers_do_not_crowd_out_operators_and_health_is_answered(tmp_path: Path) -> None:
    """Connections that say nothing, and such that ask without a token."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with served(token_file=str(token)) as admin, ExitStack() as stack:
        ask = {"authorization": f"Bearer {TOKEN}"}
        assert admin.http.get("/v1/models", headers=ask).status_code == 200
        strangers = [stack.enter_context(connected(admin)) for _ in range(MAX_UNAUTHORIZED_CONNECTIONS + 20)]
        for made in strangers[-10:]:
            made.sendall(GET)
            assert b"connection: close" in all_of(made), "it is not kept"
        with httpx.Client(base_url=admin.url, timeout=WAIT_TIMEOUT_SECONDS, trust_env=False) as operator:
            assert operator.get("/v1/models", headers=ask).status_code == 200
        assert admin.http.get("/v1/models", headers=ask).status_code == 200
        assert admin.http.get("/healthz").status_code == 200


def test_there_is_an_end_to_strangers_and_the_oldest_goes(admin: Served) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(connected(admin)) for _ in range(MAX_UNAUTHORIZED_CONNECTIONS)]
        until(lambda: len(admin.server.state.connections) == MAX_UNAUTHORIZED_CONNECTIONS)
        one_more = stack.enter_context(connected(admin))
        with suppress(ConnectionResetError):
            assert strangers[0].recv(10) == b""
        one_more.sendall(GET)
        assert one_more.recv(10).startswith(b"HTTP/1.1 2")
        until(lambda: len(admin.server.state.connections) <= MAX_UNAUTHORIZED_CONNECTIONS)


def test_a_stranger_has_less_time(admin: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(admin) as known:
        known.sendall(GET)
        assert known.recv(10).startswith(b"HTTP/1.1 2")
        known.sendall(b"GET /v1/mod")
        until(lambda: all(made.in_head for made in admin.server.state.connections))
        monkeypatch.setattr(connection, "UNAUTHORIZED_TIMEOUT_SECONDS", 0.2)
        with connected(admin) as stranger:
            assert stranger.recv(10) == b""
        assert len(admin.server.state.connections) == 1


def test_connections_that_are_not_used_make_room(admin: Served) -> None:
    with ExitStack() as stack:
        for _ in range(3 * MAX_AUTHORIZED_CONNECTIONS):
            made = stack.enter_context(connected(admin))
            made.sendall(GET)
            assert made.recv(10).startswith(b"HTTP/1.1 2")
            until(lambda: len(admin.server.state.connections) <= MAX_AUTHORIZED_CONNECTIONS)
