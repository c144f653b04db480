"""Requests and answers with a few bytes changed, seeded: whatever comes in, what goes out is well-formed HTTP.

`STEELYARD_MUTATIONS=100000 pytest tests/faults/http/test_mutations.py` looks longer.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from tests.harness import (
    BadAnswer,
    Response,
    Serving,
    StubReplica,
    Truncated,
    config,
    model,
    new_id,
    nothing_left,
    request,
    wait_until,
)
from tests.harness import scripts as answers

COUNT = int(os.environ.get("STEELYARD_MUTATIONS", "400"))
CONCURRENCY = 40
SPICE = (
    *(b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"0", b"-1", b"+", b"_", b"\x7f"),
    *(b"\xff", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"),
    *(b"Host: b\r\n", b"0\r\n\r\n", b"HTTP/1.1", b"HTTP/1.0", b"chunked", b"5\r\nhello\r\n", b"9" * 25),
    *(b"Expect: 100-continue\r\n", b"Upgrade: x\r\n"),
)
TIMES = {"header": "300ms", "body": "300ms", "idle": "300ms", "first_byte": "500ms", "stream_idle": "500ms"}


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One to four changes: bytes put in, taken out, doubled, replaced, moved."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, span = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 8, 40))
        piece = data[at : at + span]
        how = rng.randrange(5)
        if how == 0:
            data = data[:at] + rng.choice(SPICE) + data[at:]
        elif how == 1:
            data = data[:at] + data[at + span :]
        elif how == 2:
            data = data[:at] + piece + piece + data[at + span :]
        elif how == 3:
            data = data[:at] + rng.choice(SPICE) + data[at + 1 :]
        else:
            to = rng.randrange(len(data) + 1)
            data = data[:at] + data[at + span :]
            data = data[:to] + piece + data[to:]
    return data


def seeds(id: str) -> list[bytes]:
    return [
        request("GET", id=id),
        request("POST", id=id, body=b"hello"),
        request("POST", id=id, chunks=[b"hello", b"world"], trailers={"x-sum": "1"}),
        request("POST", "/v1/chat/completions", id=id, body=b'{"model": "m", "messages": []}'),
        request("POST", id=id, body=b"hello") + request("GET", id=id) + request("PUT", id=id),
    ]


async def talk(gateway: Serving, data: bytes) -> list[int]:
    """Send it, read well-formed answers until the gateway closes; their statuses."""
    assert not isinstance(gateway.address, str)
    reader, writer = await asyncio.open_connection(*gateway.address)
    statuses, response = [], Response("GET")
    try:
        writer.write(data)
        while piece := await asyncio.wait_for(reader.read(1 << 16), 30):
            while piece:
                piece = response.feed(piece)
                if response.complete:
                    statuses.append(response.status)
                    response = Response("GET")
        if response.begun:
            response.end()
            statuses.append(response.status)
    except (Truncated, ConnectionError):
        statuses.append(0)
    finally:
        writer.close()
    return statuses


async def all_of(gateway: Serving, inputs: list[bytes]) -> list[list[int]]:
    found: list[list[int]] = []
    for start in range(0, len(inputs), CONCURRENCY):
        tasks = [talk(gateway, data) for data in inputs[start : start + CONCURRENCY]]
        found += await asyncio.gather(*tasks)
    return found


def own_answer(gateway: Serving) -> None:
    """Whoever comes next is answered, and gets nobody else's answer. On a slow machine it may be too slow for TIMES."""

    def answered() -> bool:
        id = new_id()
        try:
            response = gateway.ask("POST", id=id)
        except (Truncated, ConnectionError):
            return False
        assert response.status in (200, 408, 504), response
        assert response.status != 200 or f'"{id}"'.encode() in response.body, response
        return response.status == 200

    wait_until(answered, "nobody is answered any more")


@pytest.mark.parametrize("seed", [1, 2])
def test_requests(seed: int) -> None:
    """What reaches the replica is well-formed (the stub is strict), and so is each answer (the client is too)."""
    rng = random.Random(seed)
    inputs = [mutate(rng, rng.choice(seeds(new_id()))) for _ in range(COUNT // 2)]
    with StubReplica("a") as stub, Serving(config([stub], timeouts=TIMES)) as gateway, nothing_left(gateway):
        statuses = asyncio.run(all_of(gateway, inputs))
        stub.sync()
        assert stub.misdeeds == []
        assert all(status < 500 or status in (501, 502, 503, 504, 505) for some in statuses for status in some)
        assert any(200 in some for some in statuses)
        assert any(400 in some for some in statuses)
        own_answer(gateway)


@pytest.mark.parametrize("seed", [1, 2])
def test_answers(seed: int) -> None:
    """No answer that reaches the client is malformed; nobody gets a part of somebody else's."""
    rng = random.Random(seed)
    good = [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-a: b\r\n\r\n5\r\nhello\r\n1;a\r\n!\r\n0\r\nx: y\r\n\r\n",
        "HTTP/1.1 204 No Content\r\netag: x\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\nconnection: close, x-a\r\nx-a: b\r\n\r\nhello",
        "HTTP/1.0 404 Not Found\r\ncontent-length: 2\r\nset-cookie: a=b\r\n\r\nno",
    ]
    scripts = []
    for _ in range(COUNT // 2):
        text = mutate(rng, rng.choice(good).encode("latin-1")).decode("latin-1")
        scripts.append(answers.raw(text, *rng.choice(([], [["close"]], [["sleep", 0.01], ["close"]]))))
    with StubReplica("a") as stub:
        models = {"*": model(stub, idempotent=False, outlier_detection={"enabled": False})}
        with Serving(config(models, timeouts=TIMES)) as gateway, nothing_left(gateway):
            ends = {"connection": "close"}
            inputs = [request("POST", script=script, headers=ends) for script in scripts]
            try:
                asyncio.run(all_of(gateway, inputs))
            except BadAnswer as problem:
                raise AssertionError(f"a client was sent this: {problem}") from problem
            stub.sync()
            assert stub.misdeeds == []
            for _ in range(10):
                own_answer(gateway)
