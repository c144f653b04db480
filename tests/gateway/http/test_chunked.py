"""Bodies in chunks: the same content and the same end however they arrive, and never another content than llhttp's."""

from unittest.mock import patch

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steelyard.gateway.http import chunked as chunks
from steelyard.gateway.http.chunked import ChunkedReader
from steelyard.gateway.http.headers import MalformedMessageError

from ..reading import Message, chunked, take_body
from ..streams import LINE_LIMIT_BYTES, Changes, changes, cut, mutated, streams

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
Reading = tuple[bytes, list[bytes], int | None]  # content, trailers, where it ended


def read(pieces: list[bytes]) -> Reading | str:
    """All of it; a sentence if it is refused."""
    reader = ChunkedReader()
    reader.pieces = []
    end = 0
    for piece in pieces:
        try:
            end += reader.feed(piece)
        except MalformedMessageError:
            return "refused"
        if reader.done:
            return b"".join(reader.pieces), reader.trailers, end
    return b"".join(reader.pieces), reader.trailers, None


class Llhttp:
    """The same by another reader."""

    def __init__(self, data: bytes) -> None:
        self.content = b""
        self.done = self.refused = False
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(HEAD)
        try:
            parser.feed_data(data)
        except httptools.HttpParserError:
            self.refused = True

    def on_body(self, data: bytes) -> None:
        if not self.done:
            self.content += data

    def on_message_complete(self) -> None:
        self.done = True


@patch.object(chunks, "MAX_LINE_BYTES", LINE_LIMIT_BYTES)
@given(stream=streams, changes=changes, places=st.lists(st.integers(0, 500), max_size=8))
@example(stream=chunked(b"a", trailers=["x: " + "y" * LINE_LIMIT_BYTES]), changes=[], places=[20])
@example(
    stream=b"1;" + b"x" * (LINE_LIMIT_BYTES - 2) + b"\r\na\r\n0\r\n\r\n", changes=[], places=[LINE_LIMIT_BYTES + 1]
)
def test_it_does_not_matter_where_the_bytes_are_split(stream: bytes, changes: Changes, places: list[int]) -> None:
    stream = mutated(stream, changes)
    whole = read([stream])
    assert read(cut(stream, places)) == whole
    assert read([stream[i : i + 1] for i in range(len(stream))]) == whole


@given(streams, changes)
def test_never_another_content_than_llhttp(stream: bytes, changes: Changes) -> None:
    stream = mutated(stream, changes)
    ours = read([stream])
    if isinstance(ours, str):
        return
    content, trailers, end = ours
    if end is None:
        theirs = Llhttp(stream)
        assert theirs.refused or (theirs.content == content and not theirs.done)
        return
    theirs = Llhttp(stream[:end])
    if theirs.refused:
        # llhttp knows no space before an extension (RFC 9112, 7.1.1: BWS), and is choosy about what is inside one.
        assert b";" in stream[:end]
        message = Message("", [("transfer-encoding", "chunked")])
        assert take_body(message, stream[:end], ends=False) == b""
        assert (message.body, len(message.trailers)) == (content, len(trailers))
    else:
        assert theirs.content == content
        assert theirs.done
        assert not Llhttp(stream[: end - 1]).done


def test_valid_streams_are_read_to_their_end() -> None:
    stream = chunked(b"hello ", b"world", trailers=["x-a: 1", "X-B:2"])
    assert read([stream + b"GET"]) == (b"hello world", [b"x-a: 1", b"X-B:2"], len(stream))
    assert read([b"0\r\n\r\n"]) == (b"", [], 5)
    assert read([b"000A;x=1\r\n0123456789\r\n0\r\n\r\n"]) == (b"0123456789", [], 27)


@pytest.mark.parametrize(
    "size",
    [b"", b" 5", b"5 ", b"+5", b"-5", b"0x5", b"1_0", b"5\t", b"g", b"5;\x00", b"5;\n", b"5 a", b"\xb2", b"1" * 16],
)
def test_a_size_is_hex_digits(size: bytes) -> None:
    assert read([size + b"\r\n" + b"x" * 20]) == "refused"


@pytest.mark.parametrize(
    "stream",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\n\r\n",
        b"5\r\nhello\r\n0\r\n\n",
        b"5\r\nhello\r\n0\r\n x: folded\r\n\r\n",
        b"5\r\nhello\r\n0\r\nx : 1\r\n\r\n",
        b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
        b"5\r\nhello\r\n0\r\nx: a\x00\r\n\r\n",
        b"5\r\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_what_could_be_read_two_ways_is_refused(stream: bytes) -> None:
    assert read([stream]) == "refused"


def test_lines_and_trailers_are_bounded() -> None:
    assert read([b"5;" + b"x" * 5000]) == "refused"
    assert read([b"0\r\nx: " + b"x" * 5000]) == "refused"
    assert read([b"0\r\n" + b"x: 1\r\n" * (chunks.MAX_TRAILER_LINES + 1)]) == "refused"
    assert read([b"0\r\n" + b"x: 1\r\n" * chunks.MAX_TRAILER_LINES + b"\r\n"]) != "refused"


def test_content_is_kept_only_if_wanted() -> None:
    reader = ChunkedReader()
    assert reader.feed(b"5\r\nhello\r\n0\r\n\r\nmore") == 15
    assert reader.done
    assert reader.pieces is None
