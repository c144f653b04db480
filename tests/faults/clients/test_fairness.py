"""One connection that sends more than its share: others are served in between (issue 13, point 17)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.harness import Connection, Serving, StubReplica, config, model, new_id, request

LOCAL = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n"  # answered by the gateway itself
PIPELINED_REQUESTS = 20_000


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config({"m": model(stub, dialect="openai")})) as serving:
        yield serving


def sent_beside(connection: Connection, data: bytes) -> threading.Thread:
    thread = threading.Thread(target=connection.try_send, args=(data,))
    thread.start()
    return thread


def test_others_are_served_between_pipelined_requests_of_one_connection(gateway: Serving) -> None:
    """Its answers are not read, but it has more to ask than fits into its buffers: the others do not wait for them."""
    worker = gateway.worker
    with gateway.connect(timeout=120) as flood, gateway.connect() as other:
        sending = sent_beside(flood, LOCAL * PIPELINED_REQUESTS)
        answered = served = 0
        for number in range(PIPELINED_REQUESTS):
            assert flood.response("GET").status == 200
            answered += 1
            if number % 2000 == 0:
                assert other.ask("POST", body=b'{"model": "m"}', target="/v1/embeddings").status == 200
                served += 1
        sending.join(60)
        assert (answered, served) == (PIPELINED_REQUESTS, PIPELINED_REQUESTS // 2000)
    assert gateway.worker == worker
    assert "is killed" not in gateway.output


def test_a_body_of_one_byte_chunks_arrives_whole(gateway: Serving, stub: StubReplica) -> None:
    id, size = new_id(), 20_000
    text = b'{"model": "m", "input": "' + b"x" * size + b'"}'
    chunks = [text[n : n + 1] for n in range(len(text))]
    with gateway.connect(timeout=60) as connection:
        connection.send(request("POST", "/v1/embeddings", id=id, chunks=chunks) + request("GET", "/v1/models"))
        assert connection.response("POST").status == 200
        assert connection.response("GET").status == 200
    assert stub.wait("body", id=id)["length"] == len(text)


def test_chunks_of_a_few_bytes_each_are_taken(gateway: Serving, stub: StubReplica) -> None:
    """As clients stream tokens, events or sound: the framing is more than the data, but not far more."""
    id = new_id()
    chunks = [b'{"model": "m", "input": "', *[b"data"] * 5000, b'"}']
    assert gateway.ask("POST", "/v1/embeddings", id=id, chunks=chunks).status == 200
    assert stub.wait("body", id=id)["length"] == 25 + 4 * 5000 + 2


def test_a_body_whose_framing_is_far_larger_than_its_data_is_refused(gateway: Serving, stub: StubReplica) -> None:
    id = new_id()
    with gateway.connect() as connection:
        head = request("POST", "/v1/embeddings", id=id, headers={"transfer-encoding": "chunked"})
        connection.try_send(head + (b"1;" + b"e" * 1000 + b"\r\nx\r\n") * 100)
        refused = connection.response("POST")
        assert (refused.status, refused.headers["steelyard-reason"]) == (400, "chunk_overhead")
    stub.never("body", id=id)
