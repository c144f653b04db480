"""An answer before the request's body was read: drained or closed, never out of step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import MIB, Connection, NoAnswer, Serving, StubReplica, config, new_id, nothing_left, request

BODY_BYTES, BLOCK_BYTES = 8 * MIB, 1 << 16


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config([stub], limits={"replay_bytes": "1KiB"})) as serving, nothing_left(serving):
        yield serving


@pytest.fixture(scope="module")
def whole(stub: StubReplica) -> Iterator[Serving]:
    """Bodies are kept whole, and then sent in one go."""
    with Serving(config([stub], limits={"replay_bytes": "32MiB"})) as serving, nothing_left(serving):
        yield serving


def early(*after: list[object], status: int = 413) -> list[list[object]]:
    return [["send", f"HTTP/1.1 {status} Early\r\ncontent-length: 5\r\n\r\nearly"], *after]


AFTER = {
    "reads on": [["body"]],
    "closes": [["close"]],
    "resets": [["reset"]],
    "never reads": [["gate", "never"]],
}


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("after", AFTER)
def test_the_answer_reaches_a_client_that_still_sends(
    gateway: Serving, stub: StubReplica, after: str, chunked: bool
) -> None:
    id, framing = new_id(), {"transfer-encoding": "chunked"} if chunked else {"content-length": str(BODY_BYTES)}
    with gateway.connect() as connection:
        connection.send(request("POST", id=id, headers=framing, script=early(*AFTER[after])))
        block = b"%x\r\n%s\r\n" % (BLOCK_BYTES, b"G" * BLOCK_BYTES) if chunked else b"G" * BLOCK_BYTES
        connection.send(block)
        response = connection.response("POST")
        if after in ("closes", "resets") and response.status == 502:
            assert response.headers["steelyard-reason"]  # unread bytes make the kernel send a RST, which can win
        else:
            assert (response.status, response.body) == (413, b"early")
        # Whatever the client does now, it is never taken for another request than it is.
        rest = BODY_BYTES - BLOCK_BYTES
        while rest > 0 and connection.try_send(block):
            rest -= BLOCK_BYTES
        mine = new_id()
        if rest <= 0 and connection.try_send((b"0\r\n\r\n" if chunked else b"") + request("GET", id=mine)):
            in_step(connection, mine)
    other = new_id()
    assert f'"{other}"'.encode() in gateway.ask("GET", id=other).body


@pytest.mark.parametrize("after", ["reads on", "closes"])
def test_the_next_request_is_answered_or_the_connection_closed(gateway: Serving, stub: StubReplica, after: str) -> None:
    """The whole body follows: the next request on the connection is either served rightly or not at all."""
    for size in (2 * BLOCK_BYTES, MIB):
        first, second = new_id(), new_id()
        headers = {"content-length": str(size)}
        with gateway.connect() as connection:
            head = request("POST", id=first, headers=headers, script=early(*AFTER[after], status=200))
            connection.send(head + b"x" * BLOCK_BYTES)
            response = connection.response("POST")
            assert response.body == b"early" or (after == "closes" and response.status == 502)
            if connection.try_send(b"x" * (size - BLOCK_BYTES) + request("GET", id=second)):
                in_step(connection, second)


def test_upstream_connections_with_half_a_body_are_not_used_again(gateway: Serving, stub: StubReplica) -> None:
    """The client leaves after the early answer: the replica must not see the next request as the rest of the body."""
    for _ in range(5):
        id = new_id()
        with gateway.connect() as connection:
            headers = {"content-length": str(2 * BLOCK_BYTES)}
            connection.send(
                request("POST", id=id, headers=headers, script=early(["body"], status=200)) + b"x" * BLOCK_BYTES
            )
            assert connection.response("POST").body == b"early"
        mine = new_id()
        assert f'"{mine}"'.encode() in gateway.ask("GET", id=mine).body
        assert stub.request(mine)["conn"] != stub.request(id)["conn"]


@pytest.mark.parametrize(("status", "size"), [(413, 4 * BLOCK_BYTES), (413, 24 * MIB), (200, 24 * MIB)])
def test_a_replica_connection_with_an_unsent_body_is_not_used_again(
    whole: Serving, stub: StubReplica, status: int, size: int
) -> None:
    """The gateway has the whole body; the replica has answered and does not read on: others must not queue there."""
    id = new_id()
    with whole.connect() as connection:
        script = early(["gate", "never"], status=status)
        connection.send(request("POST", id=id, body=b"x" * size, script=script))
        assert connection.response("POST").status == status
        for _ in range(3):
            mine = new_id()
            assert f'"{mine}"'.encode() in whole.ask("POST", id=mine, body=b"small").body
            assert stub.request(mine)["conn"] != stub.request(id)["conn"]


def test_an_early_error_is_not_retried(gateway: Serving, stub: StubReplica) -> None:
    id = new_id()
    with gateway.connect() as connection:
        headers = {"content-length": str(BODY_BYTES)}
        connection.send(
            request("POST", id=id, headers=headers, script=early(["close"], status=400)) + b"x" * BLOCK_BYTES
        )
        assert connection.response("POST").status in (400, 502)
    assert stub.request(id)
    stub.sync()  # the answer can be faster than what the stub tells of it, and so could a second try be
    assert len(stub.of("request", id=id)) == 1


def in_step(connection: Connection, id: str) -> None:
    """The next answer is to this request, or there is none."""
    try:
        response = connection.response("GET")
    except NoAnswer:
        return
    assert f'"{id}"'.encode() in response.body, response
