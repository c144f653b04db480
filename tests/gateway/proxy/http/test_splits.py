"""It makes no difference where the network splits the bytes, of a request or of an answer."""

from collections.abc import Callable, Iterator

import pytest

from ...conftest import ONE
from ...reading import answer, chunked, read_answers, read_requests, request
from ...stage import Stage

NAMED = ("x-request-id: 7", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
SIZED = request("POST /a", *NAMED, "accept: */*", body=b"hello world")
IN_CHUNKS = request("POST /b", *NAMED, "transfer-encoding: chunked") + chunked(b"hello ", b"world", trailers=["x-a: 1"])
BARE = request("GET /c", *NAMED)


def splits(data: bytes) -> Iterator[list[bytes]]:
    """In two pieces at every place, and byte by byte."""
    for place in range(1, len(data)):
        yield [data[:place], data[place:]]
    yield [data[i : i + 1] for i in range(len(data))]


def asked(stage: Stage, pieces: list[bytes], count: int) -> tuple[bytes, bytes]:
    """What a replica hears, and the client, when each request is answered with a number."""
    client = stage.client()
    client.says(*pieces)
    heard = b""
    for number in range(count):
        replica = stage.replica()
        heard += replica.hears()
        replica.says(answer(b"%d" % number))
    received = client.hears()
    client.breaks()
    stage.check_idle()
    return heard, received


@pytest.mark.parametrize("data", [SIZED, IN_CHUNKS, BARE + SIZED + IN_CHUNKS, b"\r\n" + BARE + b"\r\n" + SIZED])
def test_requests(staged: Callable[..., Stage], data: bytes) -> None:
    count = data.count(b"HTTP/1.1\r\n")
    whole = asked(staged(), [data], count)
    assert [message.whole for message in read_requests(whole[0])] == [True] * count
    assert [message.body for message in read_answers(whole[1])] == [b"%d" % number for number in range(count)]
    stage = staged()
    for pieces in splits(data):
        assert asked(stage, pieces, count) == whole


ANSWERS = [
    answer(b"hello world", "x-a: 1"),
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(b"hello ", b"world", trailers=["x-a: 1"]),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + answer(b"hello"),
    b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello world",
]


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("data", ANSWERS)
def test_answers(data: bytes, version: str) -> None:
    stage = Stage(ONE)

    def heard(pieces: list[bytes]) -> list[tuple[str, list[tuple[str, str]], bytes, list[tuple[str, str]], bool]]:
        client = stage.client()
        client.says(request("GET /", *NAMED, version=version))
        replica = stage.replica()
        replica.says(*pieces)
        if stage.proxy.active:
            replica.ends()
        messages = [(m.first, m.headers, m.body, m.trailers, m.whole) for m in read_answers(client.hears())]
        client.breaks()
        stage.check_idle()
        return messages

    whole = heard([data])
    assert whole[-1][-1]
    for pieces in splits(data):
        assert heard(pieces) == whole
    stage.close()
