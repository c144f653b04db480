"""Questions over real sockets, to servers that answer in every way they should not."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from steelyard.addresses import Address
from steelyard.config import ReplicaTlsConfig
from steelyard.control.health.http_client import (
    ConnectRefusedError,
    InvalidResponseError,
    LocalFailureError,
    ProbeOrigin,
    ProbeResponse,
    ReplicaUnreachableError,
    ResponseTimeoutError,
    TlsContexts,
    classify_error,
)
from tests.control.driving import run
from tests.harness.certificates import Authority

from .servers import Server, serving, target


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


GET = b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
SHORT_TIMEOUT_SECONDS = 1.0  # in which no answer comes; but a connection does, on a slow machine too


async def send(
    address: Address,
    request: bytes = GET,
    *,
    tls: ReplicaTlsConfig | None = None,
    contexts: TlsContexts | None = None,
    timeout: float = 20.0,
    max_bytes: int = 10,
    truncate: bool = False,
) -> ProbeResponse:
    """`tls`: it is spoken there."""
    origin = ProbeOrigin(target("http://unused:1", tls=tls), contexts or TlsContexts())
    origin.address = structs.replace(address, tls=tls is not None)  # also one that no configuration may name
    return await origin.send(request, timeout=timeout, max_bytes=max_bytes, truncate=truncate)


async def answer(server: Server, said: Any, request: bytes = GET, **options: Any) -> ProbeResponse:
    server.answers["/"] = said
    return await send(server.address, request, max_bytes=1000, **options)


def test_an_answer() -> None:
    async def scenario() -> None:
        async with serving() as server:
            said = b"HTTP/1.1 207 So So\r\nContent-Length: 5\r\nSteelyard-Instance: x1\r\n\r\nhello"
            reply = await answer(server, said)
            assert reply == ProbeResponse(207, {b"content-length": b"5", b"steelyard-instance": b"x1"}, b"hello")
            assert server.asked[0].headers == {"host": "h", "connection": "close"}

    run(scenario())


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 200, b"abcde"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\n", 200, b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", 200, b"x"),
        (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", 503, b""),
    ],
)
def test_every_way_in_which_an_answer_may_end(said: bytes, status: int, body: bytes) -> None:
    async def scenario() -> None:
        async with serving() as server:
            reply = await answer(server, said)
            assert (reply.status, reply.body) == (status, body)

    run(scenario())


def test_an_answer_to_head_has_no_body() -> None:
    async def scenario() -> None:
        async with serving() as server:
            request = GET.replace(b"GET", b"HEAD")
            reply = await answer(server, b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", request)
            assert reply.status == 200

    run(scenario())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (b"\x16\x03\x01\x02\x00", "not HTTP"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", "not HTTP|hangs up"),
        (b"", "without an answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "before its answer ends"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "before its answer ends"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nha", "before its answer ends"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n" + b"x" * 5000, "longer than 1000 B"),
        (b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(20000)), "head of its answer is longer"),
    ],
)
def test_nonsense(said: bytes, words: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            with pytest.raises(InvalidResponseError, match=words):
                await answer(server, said)

    run(scenario())


def test_a_long_answer_may_be_cut() -> None:
    async def scenario() -> None:
        async with serving() as server:
            said = b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n" + b"x" * 300000
            reply = await answer(server, said, truncate=True)
            assert reply.body == b"x" * 1000

    run(scenario())


def test_a_reset_instead_of_an_answer() -> None:
    async def scenario() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        asking = loop.create_task(send(Address(*listener.getsockname())))
        taken, _ = await loop.sock_accept(listener)
        await loop.sock_recv(taken, 1)  # bytes that nobody reads make the kernel send a reset
        taken.close()
        with pytest.raises(InvalidResponseError, match="hangs up"):
            await asking
        listener.close()

    run(scenario())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_silence_before_and_after_the_connection() -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.frozen = True
            with pytest.raises(ResponseTimeoutError, match="no answer in time"):
                await answer(server, 200, timeout=SHORT_TIMEOUT_SECONDS)
        async with half_answering() as address:
            with pytest.raises(ResponseTimeoutError, match="no end of its answer in time"):
                await send(address, timeout=SHORT_TIMEOUT_SECONDS)
        with full_queue(socket.create_server(("127.0.0.1", 0), backlog=0)) as name:
            address = Address(*name)
            with pytest.raises(ResponseTimeoutError, match="no connection in time"):
                await send(address, timeout=0.2)

    run(scenario())


def test_nothing_is_left_open(authority: Authority) -> None:
    async def scenario() -> None:
        tls, contexts = ReplicaTlsConfig(ca=str(authority.ca)), TlsContexts()
        files: list[int] = []
        async with half_answering() as address, serving() as server:
            server.frozen = True
            with full_queue(socket.create_server(("127.0.0.1", 0), backlog=0)) as name:
                for _ in range(4):
                    for where, how in (
                        (address, None),
                        (server.address, None),
                        (server.address, tls),
                        (Address(*name), None),
                    ):
                        with pytest.raises((ResponseTimeoutError, InvalidResponseError)):
                            await send(where, timeout=0.05, tls=how, contexts=contexts)
                    await calm(files)
        assert files[-1] <= files[0]

    async def calm(files: list[int]) -> None:
        """Until the other side has noticed."""
        for _ in range(200):
            await asyncio.sleep(0.01)
            if files and open_files() <= files[0]:
                break
        files.append(open_files())

    run(scenario())


@asynccontextmanager
async def half_answering() -> AsyncIterator[Address]:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nx")
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    yield Address(*server.sockets[0].getsockname())
    server.close()
    await server.wait_closed()


@contextmanager
def full_queue(listener: socket.socket) -> Iterator[Any]:
    """Its name, when no more connections fit in."""
    waiting = [socket.socket(listener.family) for _ in range(4)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex(listener.getsockname())
    yield listener.getsockname()
    for one in (*waiting, listener):
        one.close()


def test_nobody_listens(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = await Server().start()
        await server.stop()
        with pytest.raises(ConnectRefusedError, match="refuses connections"):
            await send(server.address)
        with pytest.raises(ConnectRefusedError):
            await send(Address("localhost", server.port))
        with pytest.raises(ConnectRefusedError, match="no socket"):
            await send(Address(path=str(tmp_path / "none")))
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(tmp_path / "left"))
        left.close()
        with pytest.raises(ConnectRefusedError):
            await send(Address(path=str(tmp_path / "left")))

    run(scenario())


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EMFILE, LocalFailureError),
        (errno.ENOMEM, LocalFailureError),
        (errno.EADDRNOTAVAIL, LocalFailureError),
        (errno.EHOSTUNREACH, ReplicaUnreachableError),
        (errno.EACCES, ReplicaUnreachableError),
        (errno.ETIMEDOUT, ResponseTimeoutError),
        (errno.ECONNRESET, InvalidResponseError),
        (errno.ECONNREFUSED, ConnectRefusedError),
    ],
)
def test_what_the_kernel_says(number: int, error: type[Exception]) -> None:
    problem = classify_error(OSError(number, os.strerror(number)), Address("h", 1))
    assert type(problem) is error
    assert str(problem)


def test_several_addresses_that_failed_in_their_own_ways() -> None:
    problem = OSError("Multiple exceptions: [Errno 99] Cannot assign, [Errno 111] Connection refused")
    assert type(classify_error(problem, Address("h", 1))) is ConnectRefusedError


def test_a_name_that_nobody_knows() -> None:
    async def scenario() -> None:
        for host in ("no.such.host.invalid", "x" * 64 + ".invalid"):
            with pytest.raises((ReplicaUnreachableError, ResponseTimeoutError)):
                await send(Address(host, 80))

    run(scenario())


def test_a_unix_socket(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(path=str(tmp_path / "socket")) as server:
            assert (await answer(server, 200)).status == 200

    run(scenario())


def test_a_unix_socket_whose_queue_is_full_is_silent(tmp_path: Path) -> None:
    async def scenario() -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "socket"))
        listener.listen(0)
        with full_queue(listener) as name, pytest.raises(ResponseTimeoutError):
            await send(Address(path=name), timeout=0.2)

    run(scenario())


# ------------------------------------------------------------------ TLS


def server_context(authority: Authority) -> Any:
    certificate, key = authority.issue("server", "DNS:model.test", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_tls(authority: Authority) -> None:
    async def scenario() -> None:
        contexts = TlsContexts()
        ours = ReplicaTlsConfig(ca=str(authority.ca))
        async with serving(tls=server_context(authority)) as server:
            server.answers["/"] = 200

            async def speak(tls: ReplicaTlsConfig, name: str = "") -> ProbeResponse:
                return await send(server.address, tls=structs.replace(tls, server_name=name), contexts=contexts)

            assert (await speak(ours)).status == 200
            assert (await speak(ours, "model.test")).status == 200
            assert (await speak(ReplicaTlsConfig(verify=False))).status == 200
            with pytest.raises(ReplicaUnreachableError, match="certificate is not trusted"):
                await speak(ours, "other.test")
            with pytest.raises(ReplicaUnreachableError, match="certificate is not trusted"):
                await speak(ReplicaTlsConfig())
            server.frozen = True
            with pytest.raises(ResponseTimeoutError, match="no answer"):
                await send(server.address, timeout=SHORT_TIMEOUT_SECONDS, tls=ours, contexts=contexts)
            assert contexts.get(ours) is contexts.get(ours)

    run(scenario())


def test_tls_with_who_does_not_speak_it_or_says_nothing(authority: Authority) -> None:
    async def scenario() -> None:
        tls = ReplicaTlsConfig(ca=str(authority.ca))

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n")
            await writer.drain()
            await reader.read()
            writer.close()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        for behave, error, timeout in ((greet, InvalidResponseError, 20.0), (say_nothing, ResponseTimeoutError, 0.2)):
            server = await asyncio.start_server(behave, "127.0.0.1", 0)
            address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
            with pytest.raises(error):
                await send(address, timeout=timeout, tls=tls)
            server.close()
            await server.wait_closed()

    run(scenario())


def test_files_that_change_are_read_again(authority: Authority, tmp_path: Path) -> None:
    contexts, ca = TlsContexts(), tmp_path / "ca.pem"
    tls = ReplicaTlsConfig(ca=str(ca))
    with pytest.raises(LocalFailureError, match="cannot be used"):
        contexts.get(tls)
    ca.write_bytes(authority.ca.read_bytes())
    first = contexts.get(tls)
    ca.write_text("half a certi")
    assert contexts.get(tls) is first  # somebody is writing it
    ca.unlink()
    assert contexts.get(tls) is first
    ca.write_bytes(authority.ca.read_bytes() + b"\n")
    second = contexts.get(tls)
    assert second is not first
    assert contexts.get(tls) is second
