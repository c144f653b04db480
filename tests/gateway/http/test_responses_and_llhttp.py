"""What a client hears of a replica's answer is what llhttp reads of it, or the client is told that it is broken."""

import httptools
from hypothesis import example, given
from hypothesis import strategies as st

from ..conftest import ONE
from ..reading import Message, read_answers, request
from ..stage import Stage
from ..streams import Changes, changes, cut, mutated, streams


class Llhttp:
    """The first final answer in a stream of bytes, and where the reader stopped."""

    def __init__(self, data: bytes, ended: bool) -> None:
        self.status = 0
        self.body = b""
        self.whole = self.refused = False
        self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.refused = True
        if ended and not self.refused and self.status and not self.whole and self._until_close:
            self.whole = True

    def on_message_begin(self) -> None:
        self._until_close = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._until_close = False

    def on_headers_complete(self) -> None:
        if not self.whole and self._parser.get_status_code() >= 200:
            self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if not self.whole:
            self.body += data

    def on_message_complete(self) -> None:
        self.whole = self.status >= 200


def heard(pieces: list[bytes], version: str) -> tuple[list[Message], bool]:
    """What the client hears when a replica says this and goes; and whether it was cut off."""
    stage = Stage(ONE)
    try:
        client = stage.client()
        client.says(request("GET /", "connection: close", version=version))
        replica = stage.accept()
        for piece in pieces:
            if replica.closed:
                break
            replica.says(piece)
        if not replica.closed:
            replica.ends()
        while stage.dialling:  # a GET may be tried again
            stage.dial().fail()
        cut_off = client.cut_off
        if not cut_off:
            client.ends()
        stage.check_idle(counted=1)
        return read_answers(client.hears()), cut_off
    finally:
        stage.close()


first = st.sampled_from(
    [
        *("HTTP/1.1 200 OK",) * 4,
        *("HTTP/1.0 200 OK", "HTTP/1.1 200", "HTTP/1.1 204 None", "HTTP/1.1 304 Same", "HTTP/1.1 404 \xe9"),
        *("HTTP/1.1 99 X", "HTTP/1.1 2000 X", "HTTP/2.0 200 OK", "HTTP/1.1  200 OK", "ICY 200 OK", "HTTP/1.1 200 \x00"),
        *("HTTP/1.1 +20 OK", "HTTP/1.1 101 Switching", "http/1.1 200 OK"),
    ]
)
header = st.sampled_from(
    [
        *("content-length: 5",) * 2,
        *("transfer-encoding: chunked",) * 2,
        *("content-length: 5 ", "content-length: +5", "content-length: 5,5", "Content-Length:0", "content-length : 5"),
        *("transfer-encoding: identity", "transfer-encoding: gzip, chunked", "transfer-encoding: chunked, gzip"),
        *("x-a: 1", "connection: close", "connection: x-a", " folded", "x: \x00", "x: a\nb", "set-cookie: a=b"),
    ]
)
interim = st.sampled_from([b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"])
answers = st.builds(
    lambda before, line, headers, body: before + "\r\n".join([line, *headers, "", ""]).encode("latin-1") + body,
    interim,
    first,
    st.lists(header, max_size=3),
    st.sampled_from([b"", b"hello", b"hell", b"hello\r\n"]) | streams,
)


def test_the_oracle_itself() -> None:
    theirs = Llhttp(b"HTTP/1.1 103 E\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", ended=False)
    assert (theirs.status, theirs.body, theirs.whole) == (200, b"hi", True)
    theirs = Llhttp(b"HTTP/1.1 200 OK\r\n\r\nhi", ended=True)
    assert (theirs.status, theirs.body, theirs.whole) == (200, b"hi", True)


@given(answers, changes, st.lists(st.integers(0, 999), max_size=3), st.sampled_from(["1.1", "1.0"]))
@example(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n\r\n", [], [], "1.1")
@example(
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", [], [], "1.1"
)
@example(b"HTTP/1.1 200 OK\r\n\r\nhello", [], [45], "1.1")
def test_a_whole_answer_is_the_one_llhttp_reads(data: bytes, changes: Changes, places: list[int], version: str) -> None:
    data = mutated(data, changes)
    responses, cut_off = heard(cut(data, places), version)
    theirs = Llhttp(data, ended=True)
    assert not [message for message in responses[:-1] if message.status >= 200], "something follows the answer"
    if cut_off or not responses:
        assert cut_off, "no answer, and the connection was closed cleanly"
        return
    answer = responses[-1]
    assert answer.whole, "a part, and the connection was closed cleanly"
    if "steelyard-reason" in answer:
        assert answer.status == 502
        return
    assert answer["steelyard-replica"] == "a:1"
    if not theirs.refused or theirs.whole:
        assert (answer.status, answer.body) == (theirs.status, theirs.body)
        assert theirs.whole
    else:
        assert b";" in data, (
            f"passed on, though llhttp refuses it: {data!r}"
        )  # extensions of chunks, see test_chunked.py
